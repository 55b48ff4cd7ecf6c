// SPDX-License-Identifier: Apache-2.0

#include <rtrain/format/safetensors_header.hpp>
#include <rtrain/storage/file/safe_name.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

using namespace rtrain;

namespace {

/// Names that must never reach a file system.
std::vector<std::string> hostile_names() {
    using namespace std::string_literals;
    return {
        // Out of the directory
        "..",
        ".",
        "../x",
        "../../etc/passwd",
        "a/../b",
        "a/..",
        "a/../../b",
        "./a",
        "a/.",
        "a/./b",
        "/",
        "//",
        "/etc/passwd",
        "//server/share",
        "a/",
        "a//b",
        "/a",
        "",
        "...",
        "a/...",
        // Other systems' ways out
        "\\",
        "..\\x",
        "a\\b",
        "a\\..\\b",
        "\\\\server\\share",
        "C:\\x",
        "C:",
        "c:/x",
        "C:x",
        "\\\\?\\C:\\x",
        "/dev/null",
        "file:///etc/passwd",
        "s3://bucket/x",
        // What a device or a name that is cut short becomes
        "CON",
        "con",
        "nul",
        "NUL.txt",
        "aux.tar.gz",
        "a/PRN",
        "COM1",
        "lpt9.json",
        "com0",
        "CONIN$",
        "con .txt",
        "x.",
        "x ",
        "a /b",
        "a./b",
        " x",
        ".. ",
        ".. /x",
        // Bytes that are no text
        "a\0b"s,
        "\0"s,
        "a\0/../b"s,
        "a\nb",
        "\r",
        "a\tb",
        "\x1b[31mred",
        "\x7f",
        "a\xC2\x85"
        "b",
        "\xE2\x80\xAEtxt.exe",
        "\xC0\xAE\xC0\xAE/x",
        "\xC0\xAF",
        "\xE0\x80\xAF",
        "\xED\xA0\x80",
        "\xF4\x90\x80\x80",
        "\xFF",
        "a\x80",
        "\xE2\x82",
        "\xF8\x88\x80\x80\x80",
        // Too long
        std::string(4096, 'a'),
        std::string(256, 'a'),
        [] {
            std::string deep;
            for (int i = 0; i < 600; ++i) {
                deep += "a/";
            }
            return deep + "a";
        }(),
    };
}

} // namespace

TEST_CASE("SafeName.hostile_names_are_refused") {
    const auto names = hostile_names();
    CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
    CHECK(names.size() >= 64);
    for (const std::string& name : names) {
        CAPTURE(name);
        CHECK(!checkpoint::is_safe_name(name));
        CHECK(!checkpoint::is_safe_name("a/" + name));
        CHECK(!checkpoint::is_safe_name(name + "/a"));
    }
}

TEST_CASE("SafeName.ordinary_names_are_accepted") {
    const std::string euro = "\xE2\x82\xAC";
    const std::string clef = "\xF0\x9D\x84\x9E";
    for (const std::string& name : std::vector<std::string>{
             "a", "state.safetensors", "rank 3/model.bin", ".hidden", "..a", "a..b", "a/b/c/d",
             "console", "nullable.json", "com10", "common/lpt", euro, clef + "/" + euro + ".x",
             "\xC3\xA9", "x-_+,;=@#$%&!~'()[]{}^`|<>?*\"", "10:30", std::string(255, 'a'),
             std::string(255, 'a') + "/" + std::string(255, 'b')}) {
        CAPTURE(name);
        CHECK(checkpoint::is_safe_name(name));
    }
}

TEST_CASE("SafeName.clashes_are_found") {
    const auto clash = [](const std::vector<std::string>& names) {
        return checkpoint::find_name_clash(names).has_value();
    };
    CHECK(!clash({}));
    CHECK(!clash({"a", "b", "c/a", "c/b", "d/a", "ab", "a.b"}));
    CHECK(clash({"a", "b", "a"}));
    CHECK(clash({"Model.bin", "model.bin"}));
    CHECK(clash({"A/x", "a/y"}));
    CHECK(clash({"a/b", "a"}));
    CHECK(clash({"a", "A/b"}));
    CHECK(clash({"x/y/Z/a", "x/y/z/b"}));
}

TEST_CASE("SafeName.links_are_no_plain_files") {
    namespace fs = std::filesystem;
    const fs::path directory =
        fs::temp_directory_path() / ("rtrain-names-" + std::to_string(::getpid()));
    fs::create_directories(directory / "inside/deep");
    std::ofstream(directory / "outside") << "secret";
    std::ofstream(directory / "inside/deep/file") << "x";
    fs::create_symlink("../outside", directory / "inside/link");
    fs::create_symlink("deep", directory / "inside/way");
    fs::create_symlink("nowhere", directory / "inside/dangling");
    const auto plain = [&](const char* name) {
        return checkpoint::is_plain_file(directory / "inside", name);
    };
    CHECK(plain("deep/file"));
    for (const char* const name : {"link", "way/file", "dangling", "deep", "absent", "deep/file/x",
                                   "../outside", "deep/../deep/file"}) {
        CAPTURE(name);
        CHECK(!plain(name));
    }
    fs::remove_all(directory);
}
