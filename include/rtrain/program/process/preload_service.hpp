// SPDX-License-Identifier: Apache-2.0
/// @file
/// PreloadService: a preload server for the ranks of a run, or of several.
#pragma once

#include <rtrain/program/process/preload_server.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::program {

/// Used by one thread, with which the server ends.
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
