// SPDX-License-Identifier: Apache-2.0
/// @file
/// What this process does to the files under one directory, call by call, in the order in which the
/// kernel saw it. interpose.cpp stands between the program and libc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace crash {

/// A file or directory by number: its name may change, its number does not. 0 is the watched
/// directory.
using Object = int;

/// What the program under test said about itself while it was watched.
struct Mark {
    enum class What : unsigned char {
        nothing,
        attempt,  ///< fit() begins
        training, ///< the training function begins, after `step` steps
        returned, ///< report() of `step` has returned
        thrown,   ///< report() of `step` has thrown, and training goes on
        finished, ///< fit() has returned
        failed    ///< fit() has thrown what the training function threw
    };
    What what = What::nothing;
    int attempt = 0;
    int step = 0;
    bool checkpoint = false; ///< that report saved one
};

struct Operation {
    enum class Kind : unsigned char {
        create_file,
        create_directory,
        write,
        truncate,
        sync,
        rename,
        remove,
        mark
    };
    Kind kind{};
    Object object = 0;
    Object directory = 0; ///< of create, remove and rename: where `name` is
    std::string name{};
    Object to_directory = 0; ///< of rename
    std::string to_name{};
    std::uint64_t offset = 0; ///< of write; of truncate the new size
    std::string data{};
    std::string text{}; ///< for people; of sync also the site, equal in every checkpoint
    Mark mark{};
};

struct Node {
    bool is_directory = true;
    std::string content{};
    std::map<std::string, Object> entries{};
};
using Tree = std::map<Object, Node>;

struct Trace {
    Tree before; ///< on disk when the recording began, and durable
    std::vector<Operation> operations;
};

/// Numbers in names differ from checkpoint to checkpoint and from process to process: '#' for each,
/// also for hexadecimal ones of eight digits and more.
[[nodiscard]] inline std::string without_numbers(const std::string& text) {
    std::string result;
    for (std::size_t begin = 0; begin < text.size();) {
        const auto run = [&](const char* digits) {
            const auto end = std::min(text.find_first_not_of(digits, begin), text.size());
            return end - begin;
        };
        const std::size_t hexadecimal = run("0123456789abcdef");
        const std::size_t length = hexadecimal >= 8 ? hexadecimal : run("0123456789");
        result += length > 0 ? '#' : text[begin];
        begin += std::max<std::size_t>(length, 1);
    }
    return result;
}

/// Reads what is under a directory.
[[nodiscard]] Tree read_tree(const std::filesystem::path& directory);

void start_recording(const std::filesystem::path& directory);
void mark(const Mark& mark); ///< nothing happens when no recording is under way
[[nodiscard]] Trace stop_recording();

} // namespace crash
