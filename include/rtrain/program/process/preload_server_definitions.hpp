// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/process/preload_server.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/program/process/preload_server.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rtrain::program {

namespace internal {

/// The script of a Python command; empty for a module. Throws ConfigError [RT-E63].
[[nodiscard]] inline std::string preloadable_script(const std::vector<std::string>& command) {
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

/// A listening socket, which programs that this one starts inherit.
class Listener {
public:
    /// Throws LaunchError [RT-L7].
    explicit Listener(const std::string& path)
        : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        ::unlink(path.c_str());
        const launch::UnixPath place(path);
        const sockaddr_un address = place.address();
        const auto* const here = reinterpret_cast<const sockaddr*>(&address); // NOLINT
        constexpr int waiting = 256;                                          // ranks
        if (::bind(descriptor(), here, sizeof address) != 0 ||
            ::listen(descriptor(), waiting) != 0) {
            throw LaunchError(
                "RT-L7", detail::concat("cannot listen on ", path, ": ", std::strerror(errno)));
        }
        ::fcntl(descriptor(), F_SETFD, 0);
    }

    [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

private:
    process::Descriptor socket_;
};

} // namespace internal

RTRAIN_DOOR PreloadServer::PreloadServer(const std::vector<std::string>& command,
                                         const std::vector<std::string>& modules,
                                         const std::filesystem::path& directory,
                                         const std::map<std::string, std::string>& variables)
    : path_(directory / "preload"), process_([&] {
          const internal::Listener listener(path_);
          std::vector<std::string> words{command[0], "-m", "rtrain._preload",
                                         std::to_string(listener.descriptor()),
                                         internal::preloadable_script(command)};
          words.insert(words.end(), modules.begin(), modules.end());
          return RankProcess(words, variables);
      }()) {}

} // namespace rtrain::program
