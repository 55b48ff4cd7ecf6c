// SPDX-License-Identifier: Apache-2.0
// Every file system behaves alike, and URIs lead to the right one.
#include "services.hpp"

#include <rtrain/data/files/files.hpp>
#include <rtrain/storage/node/random_access_file.hpp>
#include <rtrain/storage/retrying.hpp>
#include <rtrain/testing/filesystem.hpp>

#include <arrow/filesystem/localfs.h>
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>

#include <sys/syscall.h>
#include <unistd.h>

using namespace test;

namespace {

/// Whether closing a temporary file fails in this thread, as on NFS over its quota.
thread_local bool closing_fails = false;
/// Whether writing any file to the disk fails in this thread.
thread_local bool syncing_fails = false;

} // namespace

/// In place of the C library's.
extern "C" int fsync(int descriptor) {
    if (syncing_fails) {
        errno = EIO;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
extern "C" int close(int descriptor) {
    std::array<char, 4096> path{};
    const bool fails =
        closing_fails &&
        ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path.data(),
                   path.size() - 1) > 0 &&
        std::string_view(path.data()).find("/.rtrain-tmp-") != std::string_view::npos;
    const auto result = static_cast<int>(::syscall(SYS_close, descriptor));
    if (fails) {
        errno = EDQUOT;
        return -1;
    }
    return result;
}

namespace {

/// Serves one test case after the other; the suite leaves nothing behind.
const Server& server_of(const std::string& kind) {
    static const Server s3("s3");
    static const Server gcs("gcs");
    return kind == "s3" ? s3 : gcs;
}

/// A bucket of a service. These emulators, unlike the services, overwrite a file while they send
/// it.
class Bucket {
public:
    explicit Bucket(const std::string& kind)
        : files_(locate(server_of(kind).uri("bucket/team/run"), quick()).filesystem) {}

    std::vector<Entry> list(const std::string& path) { return files_.list(path); }
    std::string read(const std::string& path) {
        const std::shared_lock lock(*replacing_);
        return files_.read(path);
    }
    void write(const std::string& path, std::string_view text) {
        std::unique_lock lock(*replacing_, std::defer_lock);
        if (files_.exists(path)) {
            lock.lock();
        }
        files_.write(path, text);
    }
    void upload(const fs::path& local, const std::string& path) { files_.upload(local, path); }
    void download(const std::string& path, const fs::path& local) { files_.download(path, local); }
    void remove(const std::string& path) { files_.remove(path); }
    bool exists(const std::string& path) { return files_.exists(path); }
    std::string read_at(const std::string& path, std::uint64_t offset, std::size_t length) {
        return files_.read_at(path, offset, length);
    }
    bool reads_at() const { return files_.reads_at(); }
    std::optional<Entry> look_at(const std::string& path) { return files_.look_at(path); }

private:
    AnyFilesystem files_;
    std::shared_ptr<std::shared_mutex> replacing_ = std::make_shared<std::shared_mutex>();
};

std::string local_directory() {
    return (fs::temp_directory_path() / ("rtrain-conformance-" + std::to_string(::getpid())))
        .string();
}

const fs::path& base_of_directories() {
    static const Directory base("directories");
    return base.path();
}

} // namespace

RTRAIN_TEST_FILESYSTEM(Local, local_directory(), Local{});
RTRAIN_TEST_FILESYSTEM(Retrying, local_directory(), Retrying(Local{}, quick()));
RTRAIN_TEST_FILESYSTEM(S3, "bucket/team/run", Bucket("s3"));
RTRAIN_TEST_FILESYSTEM(GoogleCloudStorage, "bucket/team/run", Bucket("gcs"));
RTRAIN_TEST_FILESYSTEM(Directories, "team/run",
                       ArrowFilesystem(std::make_shared<Directories>(base_of_directories()),
                                       "hdfs"));
RTRAIN_TEST_FILESYSTEM(Memory, "team/run", Memory());

namespace {

struct ReadsWhatIsAbsent : Memory {
    std::string read(const std::string& path) { return exists(path) ? Memory::read(path) : ""; }
};
struct Appends : Memory {
    void write(const std::string& path, std::string_view text) {
        Memory::write(path, (exists(path) ? read(path) : "") + std::string(text));
    }
};
struct ListsNoSizes : Memory {
    std::vector<Entry> list(const std::string& path) {
        auto entries = Memory::list(path);
        std::ranges::for_each(entries, [](Entry& entry) { entry.size = 0; });
        return entries;
    }
};
struct CutsOff : Memory {
    void upload(const fs::path& local, const std::string& path) {
        write(path, read_file(local).substr(0, 16U << 20U));
    }
};
struct ReadsToTheEnd : Memory {
    std::string read_at(const std::string& path, std::uint64_t offset, std::size_t) {
        return read(path).substr(std::min<std::size_t>(offset, read(path).size()));
    }
};
struct LooksAtNothing : Memory {
    std::optional<Entry> look_at(const std::string&) { return std::nullopt; }
};
struct RemovesNeighbours : Memory {
    void remove(const std::string& path) {
        const auto above = fs::path(path).parent_path().string();
        for (const auto& entry : list(above)) {
            if (const auto beside = above + "/" + entry.name; beside.starts_with(path)) {
                Memory::remove(beside);
            }
        }
    }
};
struct ServesOneThread : Memory {
    void write(const std::string& path, std::string_view text) {
        if (std::this_thread::get_id() == mine) {
            Memory::write(path, text);
        }
    }
    std::thread::id mine = std::this_thread::get_id();
};
/// Until somebody has read it, half of a file is there.
struct WritesHalves : Memory {
    std::string read(const std::string& path) {
        ++*reads;
        return Memory::read(path);
    }
    void write(const std::string& path, std::string_view text) {
        if (exists(path)) {
            Memory::write(path, text.substr(0, text.size() / 2));
            for (const int before = *reads; *reads < before + 2;) {
                std::this_thread::yield();
            }
        }
        Memory::write(path, text);
    }
    std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>();
};

} // namespace

#define MUST_FAIL(type, holds)                                                                     \
    TEST_CASE("Filesystem.suite_notices." #type* doctest::should_fail()) {                         \
        rtrain::testing::FilesystemSuite("team/run", type()).holds();                              \
    }
MUST_FAIL(ReadsWhatIsAbsent, says_what_is_absent)
MUST_FAIL(Appends, replaces_whole_files)
MUST_FAIL(ListsNoSizes, lists_direct_children)
MUST_FAIL(CutsOff, transfers_files_of_any_size)
MUST_FAIL(ReadsToTheEnd, reads_parts_of_files)
MUST_FAIL(LooksAtNothing, says_what_is_at_a_path)
MUST_FAIL(RemovesNeighbours, removes_files_and_directories)
MUST_FAIL(ServesOneThread, serves_several_threads)
MUST_FAIL(WritesHalves, shows_all_of_a_file_or_nothing)

TEST_CASE("Filesystem.local_paths_have_no_uri") {
    const Directory directory("local");
    const auto [files, path] = locate(directory.path() / "run");
    CHECK(files.is_local());
    CHECK(files.uri(path) == path);
}

TEST_CASE("Filesystem.s3_leaves_no_empty_directory") {
    Server server("s3");
    const auto [files, path] = locate(server.uri("bucket/team/run"), quick());
    CHECK_FALSE(files.is_local());
    CHECK(files.uri(path) == "s3://bucket/team/run");
    files.write(path + "/deep/file", "x");
    files.remove(path);
    // Arrow leaves a marker of the empty directory above; nobody sees it.
    CHECK(files.list("bucket").empty());
    CHECK_FALSE(files.exists("bucket/team"));
}

TEST_CASE("Filesystem.directories_lose_no_file_that_is_replaced") {
    using Failing = Directories::Failing;
    for (const auto failing : {Failing::once, Failing::from_then_on}) {
        bool has_failed = true;
        for (int steps = 0; has_failed; ++steps) {
            CAPTURE(steps);
            const Directory base("replaced");
            const ArrowFilesystem files(std::make_shared<Directories>(base.path()), "hdfs");
            files.write("team/file", "old");
            const auto failing_there = std::make_shared<Directories>(base.path(), steps, failing);
            const auto error =
                caught([&] { ArrowFilesystem(failing_there, "hdfs").write("team/file", "new"); });
            has_failed = failing_there->has_failed();
            CHECK(error.code == (has_failed ? "RT-S11" : ""));
            const std::string text = files.read("team/file");
            CHECK((text == "new" || (has_failed && text == "old")));
            CHECK(files.exists("team/file"));
            const auto entries = files.list("team");
            CHECK(entries.back().name == "file");
            CHECK(files.look_at("team/file") == entries.back());
            CHECK((failing == Failing::from_then_on || entries.size() == 1));
            files.write("team/file", "newer");
            CHECK(files.read("team/file") == "newer");
            files.remove("team/file");
            CHECK_FALSE(files.exists("team/file"));
        }
    }
}

TEST_CASE("Filesystem.a_download_that_cannot_be_closed_is_an_error_and_leaves_nothing") {
    const Directory base("remote");
    const Directory local("local");
    const ArrowFilesystem files(std::make_shared<Directories>(base.path()), "hdfs");
    files.write("team/file", "text");
    closing_fails = true;
    const auto error = caught([&] { files.download("team/file", local.path() / "file"); });
    closing_fails = false;
    CHECK(error.code == "RT-S3");
    CHECK(contains(error.text, "cannot close"));
    CHECK(fs::is_empty(local.path()));
    files.download("team/file", local.path() / "file");
    CHECK(read_file(local.path() / "file") == "text");
}

TEST_CASE("Filesystem.a_file_that_cannot_be_synced_replaces_nothing") {
    const Directory local("unsynced");
    const auto file = local.path() / "file";
    replace_file(file, "old");
    syncing_fails = true;
    const auto error = caught([&] { replace_file(file, "new"); });
    syncing_fails = false;
    CHECK(error.code == "RT-S3");
    CHECK(contains(error.text, "cannot sync"));
    CHECK(read_file(file) == "old");
    CHECK(std::distance(fs::directory_iterator(local.path()), {}) == 1);
    replace_file(file, "new");
    CHECK(read_file(file) == "new");
}

TEST_CASE("Filesystem.google_cloud_storage_has_uris") {
    const auto [files, path] = locate("gs://bucket/team/run?anonymous=true", quick());
    CHECK(files.uri(path) == "gs://bucket/team/run");
    for (const auto& [written, meant] : std::map<std::string, std::string>{
             {"a%20b", "a b"}, {"%2525", "%25"}, {"a%23b%3Fc%40d", "a#b?c@d"}, {"ä", "ä"}}) {
        CHECK(locate("gs://bucket/" + written + "?anonymous=true").path == "bucket/" + meant);
    }
    // An option's value, in Arrow's words.
    const auto error = caught(
        [] { static_cast<void>(locate("abfs://c@account/run?enable_tls=%26a%3Db%25%2B%23")); });
    CHECK(contains(error.text, "&a=b%+#"));
}

TEST_CASE("Filesystem.a_file_that_cannot_be_read_in_parts_is_downloaded_once") {
    struct Counting : Memory {
        std::string read(const std::string& path) {
            ++*reads;
            return Memory::read(path);
        }
        void download(const std::string& path, const fs::path& local) {
            ++*downloads;
            Memory::download(path, local);
        }
        std::shared_ptr<int> reads = std::make_shared<int>();
        std::shared_ptr<int> downloads = std::make_shared<int>();
    };
    Counting counting;
    const std::string text = noise(10'000, 5);
    counting.write("team/x", text);
    {
        const RandomAccessFile file(AnyFilesystem(counting, "memory"), "team/x", text.size(), 7);
        CHECK(file.uri() == "memory://team/x");
        CHECK(*counting.downloads == 0);
        CHECK(file.read_at(10, 100) == text.substr(10, 100));
        const RandomAccessFile& copy = file;
        CHECK(copy.read_at(9'990, 100) == text.substr(9'990));
        std::string into(10, ' ');
        CHECK(copy.read_into(9'995, into) == 5);
        CHECK(into == text.substr(9'995) + "     ");
        const RandomAccessFile other(AnyFilesystem(counting, "memory"), "team/x", text.size(), 7);
        CHECK(other.read_at(0, 10) == text.substr(0, 10)); // of the same node
        CHECK(*counting.downloads == 1);
        CHECK(*counting.reads == 0);
    }
    const RandomAccessFile again(AnyFilesystem(counting, "memory"), "team/x", text.size(), 7);
    CHECK(again.read_at(20'000, 10).empty());
    CHECK(*counting.downloads == 2); // the copy went with its last reader
}

TEST_CASE("Filesystem.data_files_are_found_on_a_service") {
    Server server("s3");
    const auto files = locate(server.uri("bucket/data"), quick()).filesystem;
    for (const std::string name : {"a.txt", "b.txt", "deep/c.txt", "deep/d.json", "_SUCCESS"}) {
        files.write("bucket/data/" + name, "text of " + name);
    }
    const auto names = [&](const std::string& path, std::vector<std::string> endings = {}) {
        std::string found;
        for (const auto& file :
             rtrain::data::list_files(server.uri(path), {.endings = std::move(endings)})) {
            found += file.path().substr(std::string("bucket/data").size()) + ' ';
            const std::string text = file.read_at(0, 100);
            CHECK(text == "text of " + file.path().substr(std::string("bucket/data/").size()));
            CHECK(file.size() == text.size());
            CHECK(file.modified_ns() > 0);
        }
        return found;
    };
    CHECK(names("bucket/data") == "/a.txt /b.txt /deep/c.txt /deep/d.json ");
    CHECK(names("bucket/data", {".txt"}) == "/a.txt /b.txt /deep/c.txt ");
    CHECK(names("bucket/data/*.txt") == "/a.txt /b.txt ");
    CHECK(names("bucket/data/**/[cd].*") == "/deep/c.txt /deep/d.json ");
    CHECK(names("bucket/data/b.txt") == "/b.txt ");
    CHECK(caught([&] { names("bucket/data/none"); }).code == "RT-D25");
    CHECK(caught([&] { names("bucket/data/*.csv"); }).code == "RT-D25");
}

TEST_CASE("Filesystem.ones_own_has_a_scheme") {
    const Memory memory;
    register_scheme("memory", [memory](const Uri& uri, const TransferConfig&) {
        return Location{AnyFilesystem(memory, "memory"), uri.authority + uri.path};
    });
    locate("memory://team").filesystem.write("team/x", "shared");
    const auto [files, path] = locate("memory://team/x");
    CHECK(files.read(path) == "shared");
    CHECK(files.uri(path) == "memory://team/x");
}

TEST_CASE("Locate.paths_and_file_uris_are_local") {
    for (const auto& [text, path] :
         std::map<std::string, std::string>{{"results", "results"},
                                            {"/nfs/results", "/nfs/results"},
                                            {"a:b//c", "a:b//c"},
                                            {"file:///results/", "/results"},
                                            {"FILE:///a%20b", "/a b"},
                                            {"file://localhost/results", "/results"},
                                            {"file:///", "/"}}) {
        const auto found = locate(text);
        CHECK(found.filesystem.is_local());
        CHECK(found.path == path);
    }
    CHECK(caught([] { static_cast<void>(locate("file://host/results")); }).code == "RT-S9");
}

TEST_CASE("Locate.user_information_is_refused_and_not_repeated") {
    for (const std::string scheme : {"s3", "gs", "hdfs", "abfs", "memory2"}) {
        for (const auto& user :
             std::vector<std::string>{canary_id + ":" + canary_key, "CANARYID:canary0123",
                                      "CANARY:canary/with/slashes"}) {
            const auto error =
                caught([&] { static_cast<void>(locate(scheme + "://" + user + "@bucket/run")); });
            CHECK(error.code == "RT-S8");
            CHECK_FALSE(contains(error.text, "CANARY"));
            CHECK_FALSE(contains(error.text, "canary"));
        }
    }
    const auto error = caught([] { static_cast<void>(locate("s3://CANARY@bucket/run")); });
    CHECK(error.code == "RT-S8");
    CHECK(contains(error.text, "AWS_SECRET_ACCESS_KEY"));
    CHECK_FALSE(contains(error.text, "CANARY"));
    // Nor in an option.
    for (const std::string query :
         {"secret_key=canary", "canary", "endpoint_override=canary@host"}) {
        const auto refused = caught([&] { static_cast<void>(locate("s3://bucket/run?" + query)); });
        CHECK(refused.code == "RT-S9");
        CHECK_FALSE(contains(refused.text, "canary"));
        CHECK(contains(refused.text, "endpoint_override"));
    }
}

TEST_CASE("Locate.an_unknown_scheme_says_what_to_do") {
    const auto error = caught([] { static_cast<void>(locate("s4://bucket/run")); });
    CHECK(error.code == "RT-S9");
    CHECK(contains(error.text, "register_scheme"));
    CHECK(caught([] { static_cast<void>(locate("s3:///run")); }).code == "RT-S9");
    // No Java machine here.
    const auto hdfs = caught([] { static_cast<void>(locate("hdfs://127.0.0.1:9/run")); });
    CHECK(hdfs.code == "RT-S10");
    CHECK(contains(hdfs.text, "hdfs://127.0.0.1:9/run"));
    CHECK_FALSE(contains(hdfs.text, "\n"));
}
