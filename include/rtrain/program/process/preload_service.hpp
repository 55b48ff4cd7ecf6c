// SPDX-License-Identifier: Apache-2.0
/// @file
/// PreloadService: the preload server of this machine, for one run or the trials of a search.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/program/process/preload_server.hpp>
#include <rtrain/program/process/preload_socket.hpp>

#include <cerrno>
#include <cstring>
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
