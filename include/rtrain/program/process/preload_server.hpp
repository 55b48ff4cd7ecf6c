// SPDX-License-Identifier: Apache-2.0
/// @file
/// PreloadServer: a Python process that imports modules once and forks the ranks of this machine
/// (examples/python/rtrain/_preload.py). Ranks that start again then need no import.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/program/process/rank_process.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::program {

class PreloadServer {
public:
    /// `command`: of the ranks; its first word is a path. `directory`: of the socket. `variables`:
    /// of the ranks, as far as they are the same. The server imports while ranks start, and answers
    /// them if an import fails. Throws ConfigError [RT-E63] unless it is a Python script or module.
    PreloadServer(const std::vector<std::string>& command, const std::vector<std::string>& modules,
                  const std::filesystem::path& directory,
                  const std::map<std::string, std::string>& variables);
    PreloadServer(const PreloadServer&) = delete;
    PreloadServer& operator=(const PreloadServer&) = delete;
    ~PreloadServer() { process_.kill(); }

    /// Where ranks ask for their process.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] bool has_ended() const { return process_.has_ended(); }

private:
    std::string path_;
    RankProcess process_; ///< ends with this object
};

/// A server for the ranks of a run, or of several. Used by one thread, with which the server ends.
class PreloadService {
public:
    /// `directory`: of the socket.
    explicit PreloadService(std::filesystem::path directory) : directory_(std::move(directory)) {}

    /// Starts a server if none runs. Returns where ranks ask for their process. Arguments and
    /// errors are those of PreloadServer.
    [[nodiscard]] const std::string& path(const std::vector<std::string>& command,
                                          const std::vector<std::string>& modules,
                                          const std::map<std::string, std::string>& variables) {
        if (!server_ || server_->has_ended()) {
            server_.emplace(command, modules, directory_, variables);
        }
        return server_->path();
    }

private:
    std::filesystem::path directory_;
    std::optional<PreloadServer> server_;
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/process/preload_server_definitions.hpp>
#endif
