// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"
#include "tar_bytes.hpp"

#include <rtrain/format/tar.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace rtrain;
using test::contains;
using test::error_of;
using test::tar_end;
using test::tar_file;

namespace {

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
