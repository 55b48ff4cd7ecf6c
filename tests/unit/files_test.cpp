// SPDX-License-Identifier: Apache-2.0
// Which files a data set has, where their rows are, and what is in archives of strangers. Includes
// no libtorch.
#include "../files.hpp"
#include "../thrown.hpp"

#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/index_cache.hpp>
#include <rtrain/data/files/lines.hpp>
#include <rtrain/format/json_row.hpp>
#include <rtrain/format/mds.hpp>
#include <rtrain/format/webdataset.hpp>
#include <rtrain/format/zip_directory.hpp>
#include <rtrain/storage/file/bulk_file.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/file_lock.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/storage/file/mapping.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/testing/scratch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace rtrain;
namespace fs = std::filesystem;
using test::code_of;
using test::contains;

namespace {

int error_of_flock = 0; ///< 0: locks work

/// As long as it lives, no file can be locked, as on NFS without its lock daemon.
struct WithoutLocks {
    WithoutLocks() { error_of_flock = ENOLCK; }
    WithoutLocks(const WithoutLocks&) = delete;
    WithoutLocks& operator=(const WithoutLocks&) = delete;
    ~WithoutLocks() { error_of_flock = 0; }
};

} // namespace

/// In place of the C library's.
extern "C" int flock(int descriptor, int operation) noexcept {
    if (error_of_flock != 0) {
        errno = error_of_flock;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}

namespace {

void write(const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

template <class Action>
std::string error_of(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "no error";
}

/// Paths relative to `base`.
std::string found(const fs::path& base, const data::Paths& paths, data::FileOptions options = {}) {
    std::string names;
    for (const auto& file : data::list_files(paths, options)) {
        names += fs::path(file.path()).lexically_relative(base).string() + ' ';
    }
    return names;
}

data::FileIndex index_text(const std::string& text, const data::LineOptions& options,
                           std::mt19937& random) {
    data::LineIndexer indexer("text", options);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t piece = random() % 40 + 1;
        indexer.add(std::string_view(text).substr(at, piece));
        at += piece;
    }
    return {.size = text.size(), .modified_ns = 0, .blocks = indexer.finish()};
}

/// The header of a file in a tar archive, and its bytes.
std::string tar_file(const std::string& name, const std::string& content, char type = '0',
                     const std::string& size = "") {
    std::string header(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) {
        header.replace(at, text.size(), text);
    };
    std::array<char, 16> octal{};
    std::snprintf(octal.data(), octal.size(), "%011zo", content.size());
    put(0, name.substr(0, 100));
    put(100, "0000644");
    put(124, size.empty() ? octal.data() : size);
    put(148, "        ");
    header[156] = type;
    put(257, std::string("ustar\0", 6) + "00");
    std::uint32_t sum = 0;
    for (const char byte : header) {
        sum += static_cast<unsigned char>(byte);
    }
    std::snprintf(octal.data(), octal.size(), "%06o", sum);
    put(148, octal.data());
    return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}
const std::string tar_end(1024, '\0');

/// "aaaa" and "bbbb" in a zip file, with what its directory says of "b": its place, which is 35,
/// and its size; and the size of "a".
std::string zip_file(std::uint32_t place, std::uint32_t size, std::uint32_t size_of_a = 4) {
    std::string file;
    const auto put = [&](std::uint32_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) {
            file += static_cast<char>(value >> (8 * i) & 0xFFU);
        }
    };
    for (const char name : {'a', 'b'}) {
        file += "PK\3\4" + std::string(22, '\0');
        put(1, 4); // length of the name
        file += std::string(5, name);
    }
    const auto directory = static_cast<std::uint32_t>(file.size());
    for (const char name : {'a', 'b'}) {
        file += "PK\1\2" + std::string(16, '\0');
        put(name == 'a' ? size_of_a : size, 4);
        put(name == 'a' ? size_of_a : size, 4);
        put(1, 2);
        file += std::string(12, '\0');
        put(name == 'a' ? 0 : place, 4);
        file += name;
    }
    const auto bytes = static_cast<std::uint32_t>(file.size()) - directory;
    file += "PK\5\6" + std::string(4, '\0');
    put(2, 2);
    put(2, 2);
    put(bytes, 4);
    put(directory, 4);
    put(0, 2);
    return file;
}

/// "name=content " of all files, or the error.
std::string untar(const std::string& archive) {
    return error_of([&] {
        format::TarReader tar(archive.size(), [&](std::uint64_t at, std::size_t length) {
            return at < archive.size() ? std::string_view(archive).substr(at, length)
                                       : std::string_view();
        });
        std::string all;
        while (const auto file = tar.next()) {
            all += file->name + '=' + archive.substr(file->data, file->size) + ' ';
        }
        throw std::runtime_error(all);
    });
}

} // namespace

TEST_CASE("Files.are_found_by_path_directory_and_glob") {
    const testing::ScratchDirectory scratch;
    const fs::path base = scratch.path();
    for (const char* const name : {"b.txt", "a.txt", "[x].txt", "deep/c.txt", "deep/er/d.json",
                                   ".hidden", "_SUCCESS", "_meta/e.txt", "deep/.git/f.txt"}) {
        write(base / name, "text");
    }
    CHECK(found(base, base) == "[x].txt a.txt b.txt deep/c.txt deep/er/d.json ");
    CHECK(found(base, base.string() + "/") == found(base, base));
    CHECK(found(base, base, {.endings = {".json", ".csv"}}) == "deep/er/d.json ");
    CHECK(found(base, base / "*.txt") == "[x].txt a.txt b.txt ");
    CHECK(found(base, base / "[ab].txt") == "a.txt b.txt ");
    CHECK(found(base, base / "[x].txt") == "[x].txt "); // there is one of that name
    CHECK(found(base, base / "?.txt") == "a.txt b.txt ");
    CHECK(found(base, base / "**" / "*.txt") == "[x].txt _meta/e.txt a.txt b.txt deep/c.txt ");
    CHECK(found(base, base / "d*" / "*" / "*") == "deep/er/d.json ");
    CHECK(found(base, {base / "b.txt", base / "a.txt", base / "*.txt"}) == "[x].txt a.txt b.txt ");
    CHECK(found(base, "file://" + base.string() + "/a.txt") == "a.txt ");
    const auto file = data::list_files(base / "a.txt").front();
    CHECK(file.size() == 4);
    CHECK(file.modified_ns() > 0);
    CHECK(file.read_at(1, 2) == "ex");
    std::string into = "......";
    CHECK(file.read_into(1, into) == 3);
    CHECK(into == "ext...");
    CHECK(file.read_into(4, into) == 0);
    CHECK(file.read_into(100, into) == 0);
    fs::remove(base / "a.txt");
    CHECK(contains(error_of([&] { static_cast<void>(file.read_into(0, into)); }), "a.txt"));
}

TEST_CASE("Files.that_are_missing_empty_or_in_circles_are_errors" * doctest::timeout(30)) {
    const testing::ScratchDirectory scratch;
    const fs::path base = scratch.path();
    write(base / "a.txt", "text");
    const auto error = [&](const data::Paths& paths, data::FileOptions options = {}) {
        return error_of([&] { static_cast<void>(data::list_files(paths, options)); });
    };
    const auto says = [](const std::string& text, const std::string& code, const fs::path& path) {
        return contains(text, code) && contains(text, path.string());
    };
    CHECK(says(error(base / "none"), "[RT-D25]", base / "none"));
    CHECK(says(error(base / "*.csv"), "[RT-D25]", base / "*.csv"));
    CHECK(says(error(base, {.endings = {".csv"}}), "[RT-D25]", base));
    CHECK(contains(error(std::vector<std::string>{}), "[RT-D25]"));
    write(base / "empty", "");
    CHECK(says(error(base), "[RT-D26]", base / "empty"));
    CHECK(says(error(base / "empty"), "[RT-D26]", base / "empty"));
    fs::remove(base / "empty");
    fs::create_symlink("nowhere", base / "link");
    CHECK(says(error(base), "[RT-D25]", base / "link"));
    fs::remove(base / "link");
    fs::create_symlink("link", base / "link");
    CHECK(says(error(base), "[RT-D27]", base / "link"));
    CHECK(says(error(base / "link"), "[RT-D27]", base / "link"));
    fs::remove(base / "link");
    write(base / "deep/b.txt", "text");
    fs::create_directory_symlink("..", base / "deep/up");
    CHECK(says(error(base), "[RT-D27]", base / "deep/up"));
    CHECK(says(error(base / "**" / "b.txt"), "[RT-D27]", base / "deep/up"));
    fs::remove(base / "deep/up");
    fs::create_directory_symlink("deep", base / "again"); // no circle
    CHECK(found(base, base) == "a.txt again/b.txt deep/b.txt ");
    REQUIRE(::mkfifo((base / "pipe").c_str(), 0600) == 0);
    CHECK(found(base, base) == "a.txt again/b.txt deep/b.txt ");
    CHECK_FALSE(error(base / "pipe") == "no error"); // and nobody waits for a writer
}

TEST_CASE("Local.what_cannot_be_looked_at_is_not_taken_for_absent") {
    const testing::ScratchDirectory scratch;
    const storage::Local files;
    const std::string circle = (scratch.path() / "circle").string();
    fs::create_symlink("circle", circle);
    write(scratch.path() / "file", "");
    CHECK(files.exists((scratch.path() / "file").string()));
    CHECK(files.exists(scratch.path().string()));
    CHECK_FALSE(files.exists((scratch.path() / "none").string()));
    CHECK_FALSE(files.exists((scratch.path() / "file/none").string()));
    const std::string error = error_of([&] { static_cast<void>(files.exists(circle)); });
    CHECK(contains(error, "[RT-S3]"));
    CHECK(contains(error, circle));
}

TEST_CASE("Storage.pipes_and_directories_are_errors_that_do_not_block" * doctest::timeout(30)) {
    const test::Directory directory("pipes");
    const auto pipe = directory.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    for (const auto& path : {pipe, directory.path()}) {
        CAPTURE(path.string());
        CHECK(code_of([&] { (void)storage::read_file(path); }) == "RT-S4");
        CHECK(code_of([&] { (void)storage::Local{}.read(path.string()); }) == "RT-S4");
        CHECK(code_of([&] { (void)storage::Local{}.read_at(path.string(), 0, 1); }) == "RT-S4");
        CHECK(code_of([&] { storage::InputFile{path}; }) == "RT-S4");
        CHECK(code_of([&] { storage::Mapping{path}; }) == "RT-S4");
        CHECK(code_of([&] {
                  storage::Local{}.upload(path, (directory.path() / "copy").string());
              }) == "RT-S4");
        CHECK(!storage::open_stream(path));
        CHECK(code_of([&] { storage::OutputFile{path}; }) == "RT-S3");
        CHECK(code_of([&] { storage::GrowingFile{path}; }) == "RT-S3");
        CHECK(code_of([&] { storage::BulkFile{path}; }) == "RT-S3");
        CHECK(!storage::in_use(path));
        const storage::FileUse use(path);
    }
}

TEST_CASE("Storage.files_are_read_up_to_a_limit") {
    const test::Directory directory("limit");
    const auto file = directory.path() / "file";
    test::write(file, "12345");
    CHECK(storage::read_file(file, 5) == "12345");
    CHECK(code_of([&] { (void)storage::read_file(file, 4); }) == "RT-S4");
    CHECK(storage::read_file("/proc/self/cmdline").size() > 5); // does not state its size
    CHECK(code_of([&] { (void)storage::read_file("/proc/self/cmdline", 5); }) == "RT-S4");
    test::write(file, std::string(1 << 17, 'x'));
    CHECK(storage::read_file(file).size() == 1 << 17);
}

TEST_CASE("Lines.blocks_hold_each_row_once_whatever_the_pieces") {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        std::string text = random() % 4 == 0 ? "\xEF\xBB\xBF" : "";
        const std::size_t bom = text.size();
        for (std::size_t left = random() % 60; left > 0; --left) {
            const std::string_view parts[] = {
                "a", "bb", " ", "\t", "\r", "\n", "\r\n", std::string_view("\0", 1), "\xC3\xA4"};
            text += parts[random() % std::size(parts)];
        }
        const data::LineOptions options{.drop_blank = random() % 2 == 0,
                                        .block_bytes = random() % 20 + 1,
                                        .max_line_bytes = 1000};
        CAPTURE(text);
        const data::FileIndex index = index_text(text, options, random);
        std::vector<std::string> whole;
        data::for_each_line(std::string_view(text).substr(bom), options,
                            [&](std::string_view row) { whole.emplace_back(row); });
        std::vector<std::string> rows;
        for (const data::FileBlock& block : index.blocks) {
            const std::size_t before = rows.size();
            data::for_each_line(std::string_view(text).substr(block.offset, block.bytes), options,
                                [&](std::string_view row) { rows.emplace_back(row); });
            CHECK(static_cast<std::int64_t>(rows.size() - before) == block.rows);
            CHECK((block.bytes >= options.block_bytes || &block == &index.blocks.back()));
        }
        CHECK(rows == whole);
        CHECK(data::parse_index(data::to_bytes(index)) == index);
    }
}

TEST_CASE("Lines.that_are_too_long_or_packed_are_errors") {
    std::mt19937 random(8);
    const data::LineOptions options{.max_line_bytes = 100};
    const std::string lines = "short\n" + std::string(100, 'x') + "\n";
    CHECK(index_text(lines, options, random).blocks.front().rows == 2);
    const auto error = [&](const std::string& text) {
        return error_of([&] { static_cast<void>(index_text(text, options, random)); });
    };
    CHECK(contains(error("short\n" + std::string(101, 'x') + "\n"), "line 2, at byte 6"));
    CHECK(contains(error("short\n" + std::string(10'000, 'x')), "[RT-D30]"));
    CHECK(contains(error("\x1F\x8B\x08 and so on"), "[RT-D31]"));
    // Of a line of a GiB, no more than the limit is ever in memory.
    data::LineIndexer indexer("huge", {.max_line_bytes = 1U << 20U});
    const std::string piece(1U << 18U, 'x');
    int pieces = 0;
    CHECK_THROWS_AS(
        [&] {
            for (; pieces < 4096; ++pieces) {
                indexer.add(piece);
            }
        }(),
        DataError);
    CHECK(pieces == 4);
}

TEST_CASE("Lines.an_index_is_kept_as_long_as_the_file_is_the_same") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.txt";
    write(path, "one\ntwo\n");
    int made = 0;
    const auto rows = [&] {
        const auto file = data::list_files(path).front();
        const auto index = data::index_file(file, "lines", [&] {
            ++made;
            return data::index_lines(file, {});
        });
        return index->blocks.front().rows;
    };
    CHECK(rows() == 2);
    CHECK(rows() == 2);
    CHECK(made == 1);
    const auto before = data::list_files(path).front();
    const std::uint32_t content = data::index_lines(before, {}).content;
    write(path, "one\nTWO\n");
    CHECK(data::index_lines(data::list_files(path).front(), {}).content != content);
    write(path, "one\ntwo\n"); // as a copy is written
    CHECK(data::index_lines(data::list_files(path).front(), {}).content == content);
    write(path, "one\ntwo\nthree\n");
    CHECK(rows() == 3);
    CHECK(made == 2);
    CHECK(contains(error_of([&] { data::require_unchanged(before); }), "[RT-D29]"));
    const auto time = fs::last_write_time(path);
    write(path, "one\ntwo\n3\n4th\n"); // of the same size and time, as `cp -p` leaves it
    fs::last_write_time(path, time);
    CHECK(rows() == 4);
    const auto after = data::list_files(path).front();
    CHECK(contains(error_of([&] { static_cast<void>(data::read_exactly(after, 10, 100)); }),
                   "[RT-D29]"));
    const data::FileIndex other{.size = after.size(),
                                .modified_ns = after.modified_ns(),
                                .blocks = {{.offset = 0, .bytes = 5, .rows = 1}},
                                .content = 0xFFFF'FFFF,
                                .sample = 0xFFFF'FFFE};
    CHECK(data::parse_index(data::to_bytes(other)) == other);
    for (std::string bytes :
         {data::to_bytes(other) + "x", std::string("RTRAINI3"), std::string()}) {
        CHECK(contains(error_of([&] { static_cast<void>(data::parse_index(bytes)); }), "[RT-D28]"));
    }
    std::string overlapping = data::to_bytes(other);
    overlapping += overlapping.substr(32);
    CHECK(
        contains(error_of([&] { static_cast<void>(data::parse_index(overlapping)); }), "overlaps"));
}

TEST_CASE("Locks.files_are_for_their_owner_only") {
    const test::Directory directory("lock-mode");
    const auto file = directory.path() / ".lock";
    for (const bool is_old : {false, true}) {
        if (is_old) {
            REQUIRE(::chmod(file.c_str(), 0644) == 0);
        }
        storage::DirectoryLock lock;
        lock.acquire(directory.path());
        struct stat status {};
        REQUIRE(::stat(file.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777U) == 0600);
    }
}

TEST_CASE("Locks.that_cannot_be_had_are_errors_and_not_taken_for_those_of_others") {
    const testing::ScratchDirectory scratch;
    storage::FileLock lock(scratch.path() / "lock");
    storage::FileLock other(scratch.path() / "lock");
    storage::DirectoryLock directory;
    REQUIRE(lock.try_lock(LOCK_EX));
    CHECK_FALSE(other.try_lock(LOCK_EX));
    const WithoutLocks here;
    for (const std::string& error : {error_of([&] { static_cast<void>(other.try_lock(LOCK_SH)); }),
                                     error_of([&] { directory.acquire(scratch.path()); })}) {
        CHECK(contains(error, "[RT-S3]"));
        CHECK(contains(error, "cannot lock " + scratch.path().string()));
        CHECK(contains(error, std::strerror(ENOLCK)));
    }
}

TEST_CASE("Lines.an_index_is_made_where_nothing_can_be_locked") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.txt";
    write(path, std::string(1U << 20U, '\n') + "row\n"); // as large as an index that is shared
    const auto file = data::list_files(path).front();
    const WithoutLocks here;
    const auto index = data::index_file(
        file, "lines", [&] { return data::index_lines(file, {}); }, data::Busy::skip);
    REQUIRE(index != nullptr);
    CHECK(index->blocks.back().rows == 1);
}

TEST_CASE("Tar.files_are_found_with_long_names_of_every_kind") {
    const std::string long_name = std::string(150, 'd') + "/" + std::string(120, 'n');
    const auto record = [](const std::string& key, const std::string& value) {
        std::string text = " " + key + "=" + value + "\n";
        std::size_t length = text.size() + 2;
        length += length >= 100 ? 1 : 0;
        return std::to_string(length) + text;
    };
    std::string prefixed = tar_file("name", "p");
    CHECK(untar(tar_file("a", "one") + tar_file("b/c", "") + tar_end) == "a=one b/c= ");
    CHECK(untar(tar_file("././@LongLink", long_name + '\0', 'L') + tar_file("cut", "x") +
                tar_end) == long_name + "=x ");
    CHECK(untar(tar_file("pax", record("path", long_name) + record("mtime", "1.5"), 'x') +
                tar_file("cut", "x") + tar_end) == long_name + "=x ");
    // pax says the size when the header cannot.
    CHECK(untar(tar_file("pax", record("size", "3"), 'x') +
                tar_file("a", "abc", '0', "00000000000") + tar_end) == "a=abc ");
    CHECK(untar(tar_file("a", "abc", '0', std::string("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12)) +
                tar_end) == "a=abc ");
    CHECK(untar(tar_file("comment", record("comment", "x"), 'g') + tar_file("dir/", "", '5') +
                tar_file("link", "", '2') + tar_file("a", "1") + tar_end +
                std::string(8192, '\0')) == "a=1 ");
}

TEST_CASE("Tar.damaged_archives_are_errors_with_a_place") {
    const std::string sound = tar_file("first", "1") + tar_file("a", "content") + tar_end;
    CHECK(untar(sound) == "first=1 a=content ");
    for (std::size_t cut = 0; cut < sound.size(); ++cut) { // also between files
        CAPTURE(cut);
        CHECK(contains(untar(sound.substr(0, cut)), "at byte "));
    }
    for (std::size_t byte = 0; byte < 512; ++byte) { // a header's sum finds each
        std::string flipped = sound;
        flipped[1024 + byte] = static_cast<char>(flipped[1024 + byte] ^ 1);
        CAPTURE(byte);
        const bool is_in_the_sum_itself = byte >= 148 && byte < 156;
        CHECK((contains(untar(flipped), "at byte 1024: ") || is_in_the_sum_itself));
    }
    for (const char* const name : {"../a", "a/../../b", "..", "/etc/passwd"}) {
        CHECK(contains(untar(tar_file(name, "x") + tar_end), ".."));
    }
    for (const std::string& size :
         {std::string("-0000000001"), std::string("77777777777"), std::string("9"),
          std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE", 12),
          std::string("\x80\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12),
          std::string(12, ' ')}) {
        CHECK(contains(untar(tar_file("a", "x", '0', size) + tar_end), "at byte 0: the size"));
    }
    CHECK(contains(untar(tar_file("p", "99 path=x\n", 'x') + sound), "pax"));
    CHECK(contains(untar(sound + sound), "bytes follow"));
    CHECK(contains(untar(tar_file("a", "1") + std::string(512, '\0') + sound), "one empty block"));
}

TEST_CASE("Tar.samples_are_files_of_one_key") {
    const std::string archive = tar_file("README", "no dot") + tar_file("__index__.txt", "d/01") +
                                tar_file("__meta__/a.json", "{}") +
                                tar_file("./__index__.txt", "d/01") + tar_file("d/01.cls", "7") +
                                tar_file("d/01.Seg.PNG", "x") + tar_file("__meta__", "") +
                                tar_file(".hidden.txt", "") + tar_file("d/._02.cls", "") +
                                tar_file("d.e/02.cls", "8") + tar_file("d/01.cls", "9") + tar_end;
    format::SampleReader samples{
        format::TarReader(archive.size(), [&](std::uint64_t at, std::size_t length) {
            return std::string_view(archive).substr(at, length);
        })};
    const auto first = samples.next();
    REQUIRE(first.has_value());
    CHECK(first->key == "d/01");
    REQUIRE(first->files.size() == 2);
    CHECK(first->files[1].field == "seg.png");
    CHECK(samples.next()->key == "d.e/02");
    const auto third = samples.next(); // a name that comes again later is another sample
    REQUIRE(third.has_value());
    CHECK(third->key == "d/01");
    CHECK_FALSE(samples.next().has_value());
    const std::string twice = tar_file("1.txt", "") + tar_file("1.TXT", "") + tar_end;
    format::SampleReader doubled{
        format::TarReader(twice.size(), [&](std::uint64_t at, std::size_t length) {
            return std::string_view(twice).substr(at, length);
        })};
    CHECK(contains(error_of([&] { static_cast<void>(doubled.next()); }), "twice"));
}

TEST_CASE("Tar.samples_may_have_names_with_underscores") {
    for (const char* const name : {"__a.txt", "a__.txt", "d/__a__.txt", "__.txt", "___/a.txt"}) {
        CHECK(format::split_sample_name(name).has_value());
    }
    for (const char* const name : {"./__a__.txt", "././__index__/a.txt"}) {
        CHECK_FALSE(format::split_sample_name(name).has_value());
    }
    CHECK(format::split_sample_name("./a.txt")->first == "./a");
}

TEST_CASE("Zip.records_lie_apart") {
    CHECK(checkpoint::parse_zip_directory(zip_file(35, 4)).at("b").offset == 66);
    const auto error = [](std::uint32_t place, std::uint32_t size, std::uint32_t size_of_a = 4) {
        return error_of([&] {
            static_cast<void>(checkpoint::parse_zip_directory(zip_file(place, size, size_of_a)));
        });
    };
    CHECK(contains(error(0, 4), "overlaps another"));
    CHECK(contains(error(35, 5), "\"b\" is cut off"));
    CHECK(contains(error(35, 4, 5), "\"b\" overlaps another"));
}

TEST_CASE("Json.rows_are_cells") {
    format::JsonRowParser parser;
    const auto cells = parser.parse(R"({"i": -3, "d": 0.1, "t": "\u00e4\"", "b": true, "n": null,
                                        "li": [1, 2], "ld": [1, null, 2.5], "o": {"x": [1]},
                                        "lt": ["a"], "u": 18446744073709551615, "e": []})");
    using format::JsonKind;
    std::vector<JsonKind> kinds;
    for (const auto& cell : cells) {
        kinds.push_back(cell.kind);
    }
    CHECK(kinds == std::vector{JsonKind::integer, JsonKind::real, JsonKind::text, JsonKind::boolean,
                               JsonKind::null, JsonKind::integers, JsonKind::reals, JsonKind::other,
                               JsonKind::other, JsonKind::real, JsonKind::integers});
    CHECK(cells[0].integer == -3);
    CHECK(cells[2].text == "\u00e4\"");
    CHECK(cells[5].integers == std::vector<std::int64_t>{1, 2});
    CHECK(std::isnan(cells[6].reals[1]));
    CHECK(cells[6].reals[2] == 2.5);
    // Rounded as Python rounds, each double is back.
    std::mt19937_64 random(9);
    for (int i = 0; i < 2000; ++i) {
        const std::uint64_t bits = random();
        double number = 0;
        std::memcpy(&number, &bits, sizeof number);
        if (std::isfinite(number)) {
            std::array<char, 64> text{};
            std::snprintf(text.data(), text.size(), "{\"x\":%.17g}", number);
            const double back = parser.parse(text.data()).front().real;
            CHECK(back == number);
        }
    }
}

TEST_CASE("Json.lines_that_are_no_object_are_errors") {
    format::JsonRowParser parser;
    const auto error = [&](std::string_view text) {
        return error_of([&] { static_cast<void>(parser.parse(text)); });
    };
    using namespace std::string_view_literals;
    for (const auto text :
         {""sv, "x"sv, "{"sv, "{\"a\":1"sv, "{\"a\":1}x"sv, "{\"a\":1}{}"sv, "[1]"sv, "1"sv,
          "null"sv, "\"a\""sv, "true"sv, "{\"a\":\"\xFF\"}"sv, "{\"a\":\"\xED\xA0\x80\"}"sv,
          "{\"a\":\"\0\"}"sv, "{\"a\":NaN}"sv, "{'a':1}"sv, "{\"a\":1,}"sv}) {
        CAPTURE(text);
        CHECK_FALSE(error(text) == "no error");
    }
    CHECK(contains(error("{\"a\":" + std::string(100'000, '[')), "too deeply"));
    CHECK(error("{\"a\":1}") == "no error"); // it goes on behind errors
}

TEST_CASE("Mds.damaged_indices_and_samples_are_errors") {
    const std::string sound =
        R"({"version":2,"shards":[{"format":"mds","compression":null,"samples":2,)"
        R"("raw_data":{"basename":"s.mds","bytes":40},"column_names":["a","b"],)"
        R"("column_encodings":["int","str"],"column_sizes":[8,null]}]})";
    const auto shards = format::parse_mds_index(sound);
    REQUIRE(shards.size() == 1);
    CHECK(shards[0].columns[1].size == 0);
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string text = sound;
        text.replace(text.find(from), from.size(), to);
        return error_of([&] { static_cast<void>(format::parse_mds_index(text)); });
    };
    CHECK(contains(changed("\"s.mds\"", "\"../s.mds\""), "points outside"));
    CHECK(contains(changed("\"samples\":2", "\"samples\":-2"), "samples"));
    CHECK(contains(changed("\"bytes\":40", "\"bytes\":1e3"), "bytes"));
    CHECK(contains(changed("[8,null]", "[8]"), "equal length"));
    CHECK(contains(changed("\"version\":2", "\"version\":1"), "version"));
    CHECK(contains(changed("\"format\":\"mds\"", "\"format\":\"jsonl\""), "format"));
    CHECK(contains(changed("]}", ""), "JSON"));
    const auto type = [](const std::string& encoding, std::uint32_t size) {
        return format::mds_type({.name = "x", .encoding = encoding, .size = size});
    };
    CHECK(type("ndarray:int16:2,3", 12).shape == std::vector<std::int64_t>{2, 3});
    CHECK(type("str", 0).bytes == 0);
    for (const std::string bad :
         {"pkl", "ndarray", "ndarray:int16", "ndarray:int16:", "ndarray:x:2", "ndarray:int16:2,-3",
          "ndarray:int16:99999999999999999999", "pil"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(static_cast<void>(type(bad, 12)), std::invalid_argument);
    }
    CHECK_THROWS_AS(static_cast<void>(type("int", 4)), std::invalid_argument);
    const auto table = [](std::vector<std::uint32_t> numbers) {
        std::string bytes;
        for (const std::uint32_t number : numbers) {
            for (unsigned i = 0; i < 4; ++i) {
                bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
            }
        }
        return bytes;
    };
    CHECK(format::mds_offsets(table({2, 16, 30, 40}), 2, 40).back() == 40);
    for (const auto& bad : {table({3, 16, 30, 40}), table({2, 15, 30, 40}), table({2, 30, 16, 40}),
                            table({2, 16, 30, 41}), table({2, 16, 30}), std::string()}) {
        CHECK_THROWS_AS(static_cast<void>(format::mds_offsets(bad, 2, 40)), std::invalid_argument);
    }
    std::vector<std::string_view> values;
    const std::string sample = table({3}) + "12345678" + "abc";
    format::split_mds_sample(sample, shards[0].columns, values);
    CHECK(values == std::vector<std::string_view>{"12345678", "abc"});
    for (const std::string& bad : {sample + "x", sample.substr(0, 14), sample.substr(0, 3)}) {
        CHECK_THROWS_AS(format::split_mds_sample(bad, shards[0].columns, values),
                        std::invalid_argument);
    }
}
