// SPDX-License-Identifier: Apache-2.0
/// @file
/// Generations: the files of a trial's previous runs are kept in directories generation_0,
/// generation_1... when its run starts over, with another trial's state or from the beginning.
#pragma once

#include <rtrain/tune/controller/plan.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::tune::internal {

inline constexpr std::string_view generation_prefix = "generation_";
/// Suffix of the name while files are still being moved.
inline constexpr std::string_view unfinished_suffix = ".half";

/// Moves the files in a trial's directory to generation_<number>, unless already done. Completes
/// the move of a killed process.
inline void move_aside(const std::filesystem::path& trial, const std::string& number) {
    namespace fs = std::filesystem;
    const fs::path aside = trial / (std::string(generation_prefix) + number);
    if (fs::exists(aside)) {
        return;
    }
    const fs::path half = aside.string() + std::string(unfinished_suffix);
    fs::create_directories(half);
    std::vector<fs::path> old;
    for (const auto& entry : fs::directory_iterator(trial)) {
        if (!entry.path().filename().string().starts_with(generation_prefix)) {
            old.push_back(entry.path());
        }
    }
    for (const fs::path& path : old) {
        fs::rename(path, half / path.filename());
    }
    fs::rename(half, aside);
}

/// Moves aside the files of a trial's previous run if its run starts over: with another trial's
/// state (Pbt), or from the beginning. Returns the checkpoint to start from; empty: none.
[[nodiscard]] inline std::string start_over(const Assignment& trial) {
    if (trial.taken_over == 0) {
        return "";
    }
    const std::string number = std::to_string(trial.taken_over - 1);
    move_aside(trial.directory, number);
    return trial.base_reports == 0 ? ""
                                   : (trial.directory.parent_path() / taken_over_directory /
                                      (trial.trial + "_" + number))
                                         .string(); // the name given by the controller
}

/// Completes the moves of a killed process, for trials that may never run again.
inline void finish_moves(const std::filesystem::path& trial) {
    if (!std::filesystem::exists(trial)) {
        return;
    }
    std::vector<std::string> numbers;
    for (const auto& entry : std::filesystem::directory_iterator(trial)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(generation_prefix) && name.ends_with(unfinished_suffix)) {
            numbers.push_back(
                name.substr(generation_prefix.size(),
                            name.size() - generation_prefix.size() - unfinished_suffix.size()));
        }
    }
    for (const std::string& number : numbers) {
        move_aside(trial, number);
    }
}

} // namespace rtrain::tune::internal
