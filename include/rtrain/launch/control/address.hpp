// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver's address, passed to the ranks in the environment.
#pragma once

#include <rtrain/process/os/machine.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace rtrain::launch {

/// Format: "machine=<id>|tcp=<address>:<port>|unix=<path>".
struct ControlAddress {
    static constexpr const char* variable = "RTRAIN_CONTROL";
    static constexpr const char* token_variable = "RTRAIN_CONTROL_TOKEN";
    static constexpr const char* attempt_variable = "RTRAIN_ATTEMPT";

    /// Characters of a token: 256 bits, in hexadecimal digits.
    static constexpr std::size_t token_size = 64;

    std::string machine;          ///< this_machine() of the driver
    std::string tcp;              ///< such as "10.0.0.1:4711" or "[fd00::1]:4711"; empty: none
    std::filesystem::path socket; ///< Unix socket

    /// Identifies processes that can reach each other's Unix sockets: one boot of one machine, one
    /// network namespace.
    [[nodiscard]] static std::string this_machine() {
        struct stat network {};
        (void)::stat("/proc/self/ns/net", &network);
        return storage::boot_id() + "-" + std::to_string(network.st_ino);
    }

    [[nodiscard]] std::string text() const {
        return "machine=" + machine + "|tcp=" + tcp + "|unix=" + socket.string();
    }

    [[nodiscard]] static std::optional<ControlAddress> parse(std::string_view text) {
        const auto tcp = text.find("|tcp=");
        const auto local = text.find("|unix=");
        if (!text.starts_with("machine=") || tcp == std::string_view::npos ||
            local == std::string_view::npos || local < tcp) {
            return std::nullopt;
        }
        return ControlAddress{.machine = std::string(text.substr(8, tcp - 8)),
                              .tcp = std::string(text.substr(tcp + 5, local - tcp - 5)),
                              .socket = std::filesystem::path(text.substr(local + 6))};
    }
};

/// Address of a Unix socket. The kernel allows 107 bytes, and temporary directories can be longer,
/// so the address goes through a descriptor of the directory.
class UnixPath {
public:
    /// `path`: the socket, whose directory must exist; otherwise is_open() is false, with errno
    /// set.
    explicit UnixPath(const std::filesystem::path& path)
        : directory_(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
          name_("/proc/self/fd/" + std::to_string(directory_) + "/" + path.filename().string()) {}
    UnixPath(const UnixPath&) = delete;
    UnixPath& operator=(const UnixPath&) = delete;
    ~UnixPath() {
        if (is_open()) {
            ::close(directory_);
        }
    }

    [[nodiscard]] bool is_open() const noexcept { return directory_ >= 0; }
    /// Descriptor of the directory.
    [[nodiscard]] int directory() const noexcept { return directory_; }
    /// Short path for bind() and connect().
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    [[nodiscard]] sockaddr_un address() const {
        sockaddr_un result{};
        result.sun_family = AF_UNIX;
        std::memcpy(result.sun_path, name_.data(),
                    std::min(name_.size(), sizeof result.sun_path - 1));
        return result;
    }

private:
    int directory_;
    std::string name_;
};

} // namespace rtrain::launch
