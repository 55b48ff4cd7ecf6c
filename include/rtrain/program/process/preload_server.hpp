// SPDX-License-Identifier: Apache-2.0
/// @file
/// PreloadServer: a Python process that imports modules once and forks the ranks of this machine
/// (examples/python/rtrain/_preload.py). Ranks that start again then need no import.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/program/process/preload_socket.hpp>
#include <rtrain/program/process/rank_process.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::program {

/// The script of a Python command; empty for a module. Throws ConfigError [RT-E63] for other
/// commands.
[[nodiscard]] std::string preloadable_script(const std::vector<std::string>& command);

class PreloadServer {
public:
    /// `command`: of the ranks, checked by preloadable_script(); its first word is a path.
    /// `variables`: of the ranks, as far as they are the same. The server imports while ranks
    /// start, and answers them if an import fails.
    PreloadServer(const std::vector<std::string>& command, const std::vector<std::string>& modules,
                  PreloadListener listener, const std::map<std::string, std::string>& variables);
    PreloadServer(const PreloadServer&) = delete;
    PreloadServer& operator=(const PreloadServer&) = delete;
    ~PreloadServer() { process_.kill(); }

    [[nodiscard]] bool has_ended() const { return process_.has_ended(); }

private:
    RankProcess process_; ///< ends with this object
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/process/preload_server_definitions.hpp>
#endif
