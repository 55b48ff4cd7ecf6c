// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the program of a command, as a shell does, and its name for messages.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/process/os/machine.hpp>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace rtrain::program {

/// The path of a program: with a '/', it is one; otherwise it is looked up on PATH. Throws
/// ConfigError: [RT-E5] if it does not exist, [RT-E6] if it cannot be executed, [RT-E7] if it is a
/// line for a shell.
[[nodiscard]] inline std::string path_of_program(const std::string& word) {
    std::error_code error;
    if (word.find('/') == std::string::npos) {
        if (const auto found = launch::find_program(word)) {
            return found->string();
        }
    } else if (std::filesystem::exists(word, error)) {
        if (std::filesystem::is_directory(word, error) || ::access(word.c_str(), X_OK) != 0) {
            throw ConfigError("RT-E6", detail::concat(word, " is not executable; run `chmod +x ",
                                                      word, "`, or name its interpreter first"));
        }
        return word;
    }
    if (word.find(' ') != std::string::npos) {
        throw ConfigError("RT-E7",
                          detail::concat('"', word,
                                         "\" is one word with spaces; pass the program and "
                                         "its arguments as separate words, without quotes "
                                         "around all of them"));
    }
    throw ConfigError("RT-E5", detail::concat("the program ", word,
                                              " does not exist; check its path. Without a '/', it "
                                              "must be on PATH"));
}

/// The word that identifies a command in messages: of `python3 -u train.py` and `python3 -m train`
/// the script or module.
[[nodiscard]] inline std::string name_of_program(const std::vector<std::string>& words) {
    if (words.empty()) {
        return "";
    }
    const std::string name = std::filesystem::path(words[0]).filename().string();
    if (name.starts_with("python")) {
        for (std::size_t i = 1; i < words.size(); ++i) {
            if (words[i] == "-c") {
                break;
            }
            if (!words[i].starts_with('-')) {
                return words[i];
            }
        }
    }
    return words[0];
}

/// Throws ConfigError [RT-E5] if the command is a Python script that does not exist here.
inline void require_script(const std::vector<std::string>& words) {
    const std::string name = name_of_program(words);
    std::error_code error;
    if (name.ends_with(".py") && !std::filesystem::exists(name, error)) {
        throw ConfigError("RT-E5", detail::concat("the script ", name, " does not exist on ",
                                                  storage::host_name(), "; check its path"));
    }
}

} // namespace rtrain::program
