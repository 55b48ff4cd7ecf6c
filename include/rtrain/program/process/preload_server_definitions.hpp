// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/process/preload_server.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/program/process/preload_server.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::program {

RTRAIN_DOOR std::string preloadable_script(const std::vector<std::string>& command) {
    const std::string name = std::filesystem::path(command[0]).filename().string();
    std::size_t at = 1;
    if (at < command.size() && command[at] == "-u") {
        ++at;
    }
    const bool has_word = at < command.size();
    const bool is_module = has_word && command[at] == "-m" && at + 1 < command.size();
    if (!name.starts_with("python") || !has_word || (command[at].starts_with('-') && !is_module)) {
        throw ConfigError("RT-E63", "--preload forks a Python script, as in `rtrain run --preload "
                                    "torch train.py`, or a module (-m); no other options of "
                                    "Python, and no other programs");
    }
    return is_module ? "" : command[at];
}

RTRAIN_DOOR PreloadServer::PreloadServer(const std::vector<std::string>& command,
                                         const std::vector<std::string>& modules,
                                         PreloadListener listener,
                                         const std::map<std::string, std::string>& variables)
    : process_([&] {
          const PreloadListener inherited = std::move(listener);
          std::vector<std::string> words{command[0], "-m", "rtrain._preload",
                                         std::to_string(inherited.descriptor()),
                                         preloadable_script(command)};
          words.insert(words.end(), modules.begin(), modules.end());
          return RankProcess(words, variables);
      }()) {}

} // namespace rtrain::program
