// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/data/files/files.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/testing/scratch.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/stat.h>

using namespace rtrain;
namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::write;

namespace {

/// Paths relative to `base`.
std::string found(const fs::path& base, const data::Paths& paths, data::FileOptions options = {}) {
    std::string names;
    for (const auto& file : data::list_files(paths, options)) {
        names += fs::path(file.path()).lexically_relative(base).string() + ' ';
    }
    return names;
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
    CHECK_FALSE(error(base / "pipe") == "no error"); // and it does not wait for a writer
}
