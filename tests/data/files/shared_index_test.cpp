// SPDX-License-Identifier: Apache-2.0
// Processes of one node share the work of indexing files, and what has come of it.
#include "storage/services.hpp"

#include <doctest/doctest.h>

using namespace test;

namespace {

/// Four files of 1 MiB, and a temporary directory for their indices.
struct Indexed {
    Indexed() {
        for (const char* const name : {"a", "b", "c", "d"}) {
            std::ofstream(files.path() / name) << lines_of(name);
        }
        ::setenv("TMPDIR", temporary.path().c_str(), 1);
    }
    Indexed(const Indexed&) = delete;
    Indexed& operator=(const Indexed&) = delete;
    ~Indexed() { ::unsetenv("TMPDIR"); }

    static std::string lines_of(const std::string& name) {
        std::string text;
        while (text.size() < 1U << 20U) {
            text += "a line of " + name + " at " + std::to_string(text.size()) + '\n';
        }
        return text;
    }
    [[nodiscard]] std::unique_ptr<Child> user() const {
        return std::make_unique<Child>(
            std::vector<std::string>{RTRAIN_TEST_INDEX_USER, files.path()},
            std::map<std::string, std::string>{}, true);
    }
    /// What a process prints that reads whatever it wants.
    [[nodiscard]] std::string run() const {
        const auto child = user();
        child->end_input();
        return child->receive_all();
    }
    /// Where the indices are.
    [[nodiscard]] std::vector<fs::path> kept() const {
        std::vector<fs::path> paths;
        for (const auto& entry : fs::recursive_directory_iterator(temporary.path())) {
            if (entry.is_regular_file()) {
                paths.push_back(entry.path());
            }
        }
        return paths;
    }

    Directory files{"indexed"};
    Directory temporary{"indices"};
};

} // namespace

TEST_CASE("Index.processes_of_a_node_index_a_share_of_the_files_each") {
    const Indexed set;
    const auto one = set.user();
    CHECK(one->receive() == "a");
    const auto other = set.user();
    CHECK(other->receive() == "b"); // not that which one is at
    one->send("");
    CHECK(one->receive() == "c");
    other->send("");
    CHECK(other->receive() == "d");
    one->send("");
    other->send("");
    const std::string result = one->receive();
    CHECK(result.find("rows") != std::string::npos);
    CHECK(other->receive() == result);
    CHECK(set.run() == result + "\n"); // and those that come later, none
    fs::remove_all(set.temporary.path() / ("rtrain-cache-" + std::to_string(::geteuid())));
    CHECK(set.run() == "a\nb\nc\nd\n" + result + "\n");
}

TEST_CASE("Index.another_goes_on_for_a_process_that_is_killed") {
    const Indexed set;
    const auto one = set.user();
    CHECK(one->receive() == "a");
    const auto other = set.user();
    for (const char* const name : {"b", "c", "d"}) {
        CHECK(other->receive() == name);
        other->send("");
    }
    one->kill();
    CHECK(other->receive() == "a");
    other->send("");
    CHECK(other->receive().find("rows") != std::string::npos);
}

TEST_CASE("Index.of_a_file_that_has_changed_or_an_index_that_is_damaged_is_made_anew") {
    const Indexed set;
    const std::string before = set.run();
    std::ofstream(set.files.path() / "c", std::ios::app) << "one more\n";
    const std::string after = set.run();
    CHECK(after.starts_with("c\n"));
    CHECK(after.substr(2) != before.substr(8)); // behind "a\nb\nc\nd\n"
    const auto kept = set.kept();
    CHECK(kept.size() == 4);
    for (const fs::path& path : kept) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
        const int byte = file.seekg(middle).get();
        file.seekp(middle).put(static_cast<char>(byte ^ 1));
    }
    CHECK(set.run() == "a\nb\nc\nd\n" + after.substr(2));
    for (const fs::path& path : kept) {
        fs::resize_file(path, fs::file_size(path) / 2); // as a process leaves it that is killed
    }
    CHECK(set.run() == "a\nb\nc\nd\n" + after.substr(2));
}

TEST_CASE("Index.is_made_where_nothing_can_be_shared") {
    const Indexed set;
    std::ofstream(set.temporary.path() / ("rtrain-cache-" + std::to_string(::geteuid())));
    const std::string result = set.run();
    CHECK(result.starts_with("a\nb\nc\nd\n"));
    CHECK(set.run() == result);
}
