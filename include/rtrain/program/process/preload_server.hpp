// SPDX-License-Identifier: Apache-2.0
/// @file
/// PreloadServer: a Python process that imports modules once and forks the ranks of this machine
/// (examples/python/rtrain/_preload.py). Ranks that start again then need no import.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/program/process/preload_socket.hpp>
#include <rtrain/program/process/rank_process.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
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

/// The server of this machine, for one run or the trials of a search. Used by one thread, with
/// which the server ends.
class PreloadService {
public:
    /// `directory`: of the socket.
    explicit PreloadService(const std::filesystem::path& directory)
        : path_(directory / "preload") {}

    /// Starts a server if none runs. Returns where ranks ask for their process. Arguments are those
    /// of PreloadServer. Throws LaunchError [RT-L7].
    [[nodiscard]] const std::string& path(const std::vector<std::string>& command,
                                          const std::vector<std::string>& modules,
                                          const std::map<std::string, std::string>& variables) {
        if (!server_ || server_->has_ended()) {
            auto listener = PreloadListener::at(path_);
            if (!listener) {
                throw LaunchError("RT-L7", detail::concat("cannot listen on ", path_, ": ",
                                                          std::strerror(errno)));
            }
            server_.emplace(command, modules, *std::move(listener), variables);
        }
        return path_;
    }

private:
    std::string path_;
    std::optional<PreloadServer> server_;
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/process/preload_server_definitions.hpp>
#endif
