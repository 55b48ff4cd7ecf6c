// SPDX-License-Identifier: Apache-2.0
/// @file
/// The conformance suite of storage::Filesystem: tests what the concept cannot check, for custom
/// types.
///
/// @code
/// #include <doctest/doctest.h>
/// #include <rtrain/testing/filesystem.hpp>
///
/// RTRAIN_TEST_FILESYSTEM(MyFiles, "bucket/scratch", MyFiles("token"));
/// @endcode
///
/// defines test cases "Filesystem.MyFiles.lists_direct_children" and so on. Each constructs a new
/// file system; the directory must not exist yet, and is removed at the end of each. Needs no
/// libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/testing/scratch.hpp>
#include <rtrain/testing/suite.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <ios>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::testing {

/// Tests of rtrain's requirements for a file system; run by RTRAIN_TEST_FILESYSTEM.
class FilesystemSuite {
public:
    FilesystemSuite(std::string base, storage::AnyFilesystem files)
        : base_(std::move(base)), files_(std::move(files)) {}
    FilesystemSuite(const FilesystemSuite&) = delete;
    FilesystemSuite& operator=(const FilesystemSuite&) = delete;
    ~FilesystemSuite() {
        try {
            files_.remove(base_);
        } catch (const std::exception&) { // a test case has reported the error
        }
    }

    void says_what_is_absent() const {
        DOCTEST_CHECK_FALSE(files_.exists(base_));
        DOCTEST_CHECK(files_.list(base_).empty());
        files_.remove(base_);
        const std::string none = base_ + "/none";
        DOCTEST_CHECK_THROWS_AS(static_cast<void>(files_.read(none)), StorageError);
        DOCTEST_CHECK_THROWS_AS(files_.download(none, local_.path() / "none"), StorageError);
        DOCTEST_CHECK(std::filesystem::is_empty(local_.path()));
        DOCTEST_CHECK_THROWS_AS(files_.upload(local_.path() / "none", none), StorageError);
        DOCTEST_CHECK_FALSE(files_.exists(none));
        files_.write(base_ + "/file", "");
        DOCTEST_CHECK(files_.exists(base_ + "/file"));
        DOCTEST_CHECK_FALSE(files_.exists(base_ + "/fil"));
    }

    void replaces_whole_files() const {
        const std::string deep = base_ + "/deep/er/a.bin";
        const std::string text = noise(100'000, 1) + std::string(3, '\0') + "\r\n";
        files_.write(deep, text);
        DOCTEST_CHECK((files_.read(deep) == text));
        files_.write(deep, "new");
        DOCTEST_CHECK((files_.read(deep) == "new"));
        for (const std::string name : {"/empty", "/odd name+%41=&.txt"}) {
            const std::string content = name == "/empty" ? "" : "odd";
            files_.write(base_ + name, content);
            DOCTEST_CHECK(files_.read(base_ + name) == content);
        }
    }

    void lists_direct_children() const {
        using Names = std::vector<std::string>;
        files_.write(base_ + "/deep/er/a", "a");
        files_.write(base_ + "/empty", "");
        files_.write(base_ + "/file", "12345");
        files_.write(base_ + "/odd name+%41=&.txt", "odd");
        const auto entries = files_.list(base_);
        DOCTEST_CHECK(names(entries) == Names{"deep/", "empty", "file", "odd name+%41=&.txt"});
        DOCTEST_CHECK(names(files_.list(base_ + "/deep")) == Names{"er/"});
        for (const auto& entry : entries) {
            const std::uint64_t size = entry.name == "file"            ? 5
                                       : entry.name.starts_with("odd") ? 3
                                                                       : 0;
            DOCTEST_CHECK((entry.is_directory || entry.size == size));
        }
        DOCTEST_CHECK(files_.exists(base_ + "/deep"));
        DOCTEST_CHECK_FALSE(files_.exists(base_ + "/dee"));
    }

    void transfers_files_of_any_size() const {
        const std::string big = noise((33U << 20U) + 12'345, 2); // more than one part
        for (const std::string& content : {big, std::string()}) {
            std::ofstream(local_.path() / "from", std::ios::binary) << content;
            files_.upload(local_.path() / "from", base_ + "/up/file");
            files_.download(base_ + "/up/file", local_.path() / "to");
            DOCTEST_CHECK((storage::read_file(local_.path() / "to") == content));
        }
        DOCTEST_CHECK(names(files_.list(base_ + "/up")) == std::vector<std::string>{"file"});
    }

    /// Also without native support: the part is then cut from the whole file.
    void reads_parts_of_files() const {
        const std::string text = noise(300'000, 3);
        const std::string path = base_ + "/parts/a b.bin";
        files_.write(path, text);
        const auto part = [&](std::size_t offset, std::size_t length) {
            return files_.read_at(path, offset, length) ==
                   (offset < text.size() ? text.substr(offset, length) : std::string());
        };
        DOCTEST_CHECK(part(0, 1));
        DOCTEST_CHECK(part(0, text.size()));
        DOCTEST_CHECK(part(123'456, 100'000));
        DOCTEST_CHECK(part(7, 0));
        DOCTEST_CHECK(part(text.size() - 1, 1));
        DOCTEST_CHECK(part(text.size() - 10, 1000)); // fewer at the end
        DOCTEST_CHECK(part(text.size(), 10));
        DOCTEST_CHECK(part(text.size() + 1000, 10));
        files_.write(path, text.substr(0, 100));
        DOCTEST_CHECK(files_.read_at(path, 90, 100) == text.substr(90, 10)); // the current content
        files_.write(path, "");
        DOCTEST_CHECK(files_.read_at(path, 0, 10).empty());
        DOCTEST_CHECK_THROWS_AS(static_cast<void>(files_.read_at(base_ + "/none", 0, 1)),
                                StorageError);
    }

    void says_what_is_at_a_path() const {
        files_.write(base_ + "/up/file", "12345");
        const auto file = files_.look_at(base_ + "/up/file");
        DOCTEST_REQUIRE(file.has_value());
        DOCTEST_CHECK(file->name == "file");
        DOCTEST_CHECK(file->size == 5);
        DOCTEST_CHECK_FALSE(file->is_directory);
        const auto listed = files_.list(base_ + "/up");
        DOCTEST_REQUIRE(listed.size() == 1);
        DOCTEST_CHECK(*file == listed.front()); // including modification time, if known
        const auto directory = files_.look_at(base_ + "/up");
        DOCTEST_REQUIRE(directory.has_value());
        DOCTEST_CHECK(directory->is_directory);
        DOCTEST_CHECK_FALSE(files_.look_at(base_ + "/none").has_value());
        DOCTEST_CHECK_FALSE(files_.look_at(base_ + "/up/none").has_value());
    }

    void removes_files_and_directories() const {
        files_.write(base_ + "/up/file", "x");
        files_.write(base_ + "/up/deep/file", "x");
        files_.write(base_ + "/up2/neighbour", "x");
        files_.remove(base_ + "/up/file");
        DOCTEST_CHECK_FALSE(files_.exists(base_ + "/up/file"));
        DOCTEST_CHECK(files_.exists(base_ + "/up/deep/file"));
        files_.remove(base_ + "/up");
        DOCTEST_CHECK_FALSE(files_.exists(base_ + "/up/deep/file"));
        DOCTEST_CHECK_FALSE(files_.exists(base_ + "/up"));
        DOCTEST_CHECK(files_.exists(base_ + "/up2/neighbour"));
        files_.remove(base_);
        DOCTEST_CHECK_FALSE(files_.exists(base_));
        DOCTEST_CHECK(files_.list(base_).empty());
    }

    void serves_several_threads() const {
        constexpr int at_once = 4;
        constexpr int files_of_each = 5;
        std::vector<std::future<void>> writers;
        for (int i = 0; i < at_once; ++i) {
            writers.push_back(std::async(std::launch::async, [&, i] {
                for (int k = 0; k < files_of_each; ++k) {
                    const auto path = detail::concat(base_, "/threads/", i, '-', k);
                    files_.write(path, path);
                    static_cast<void>(files_.list(base_ + "/threads"));
                }
            }));
        }
        for (auto& writer : writers) {
            writer.get();
        }
        const auto entries = files_.list(base_ + "/threads");
        DOCTEST_CHECK(entries.size() == at_once * files_of_each);
        for (const auto& entry : entries) {
            const std::string path = base_ + "/threads/" + entry.name;
            DOCTEST_CHECK(files_.read(path) == path);
        }
    }

    /// Readers of a file during replacement get the old one, the new one or none.
    void shows_all_of_a_file_or_nothing() const {
        using namespace std::chrono_literals;
        const std::string path = base_ + "/replaced";
        const std::string texts[] = {std::string(100'000, 'a'), std::string(70'000, 'b')};
        files_.write(path, texts[0]);
        std::atomic<bool> done = false;
        std::atomic<int> read = 0;
        auto torn = std::async(std::launch::async, [&] {
            int count = 0;
            for (; !done; ++read) {
                try {
                    const std::string text = files_.read(path);
                    count += text == texts[0] || text == texts[1] ? 0 : 1;
                } catch (const StorageError&) { // temporarily absent
                }
            }
            return count;
        });
        const auto is_over = [&] { return torn.wait_for(0s) == std::future_status::ready; };
        for (int i = 1; (i <= 20 || read < 20) && !is_over(); ++i) {
            files_.write(path, texts[i % 2]);
        }
        done = true;
        DOCTEST_CHECK(torn.get() == 0);
    }

private:
    static std::vector<std::string> names(const std::vector<storage::Entry>& entries) {
        std::vector<std::string> found;
        for (const auto& entry : entries) {
            found.push_back(entry.name + (entry.is_directory ? "/" : ""));
        }
        std::sort(found.begin(), found.end());
        return found;
    }

    ScratchDirectory local_;
    std::string base_;
    storage::AnyFilesystem files_;
};

} // namespace rtrain::testing

/// RTRAIN_TEST_FILESYSTEM(name, directory, expression);
/// `expression` constructs a file system, in which `directory` can be created.
#define RTRAIN_TEST_FILESYSTEM(NAME, ...)                                                          \
    RTRAIN_TESTING_FILESYSTEM(NAME, says_what_is_absent, __VA_ARGS__)                              \
    RTRAIN_TESTING_FILESYSTEM(NAME, replaces_whole_files, __VA_ARGS__)                             \
    RTRAIN_TESTING_FILESYSTEM(NAME, lists_direct_children, __VA_ARGS__)                            \
    RTRAIN_TESTING_FILESYSTEM(NAME, transfers_files_of_any_size, __VA_ARGS__)                      \
    RTRAIN_TESTING_FILESYSTEM(NAME, reads_parts_of_files, __VA_ARGS__)                             \
    RTRAIN_TESTING_FILESYSTEM(NAME, says_what_is_at_a_path, __VA_ARGS__)                           \
    RTRAIN_TESTING_FILESYSTEM(NAME, removes_files_and_directories, __VA_ARGS__)                    \
    RTRAIN_TESTING_FILESYSTEM(NAME, serves_several_threads, __VA_ARGS__)                           \
    RTRAIN_TESTING_FILESYSTEM(NAME, shows_all_of_a_file_or_nothing, __VA_ARGS__)                   \
    static_assert(true)
/// One test case of RTRAIN_TEST_FILESYSTEM.
#define RTRAIN_TESTING_FILESYSTEM(NAME, HOLDS, ...)                                                \
    RTRAIN_TESTING_CASE("Filesystem", NAME, FilesystemSuite, HOLDS, __VA_ARGS__)
