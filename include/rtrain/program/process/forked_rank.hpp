// SPDX-License-Identifier: Apache-2.0
/// @file
/// ForkedRank: a rank that a preload server has forked (program/process/preload_server.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/number_in.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/os/send_all.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rtrain::program {

class ForkedRank {
public:
    /// The words of a command after the interpreter, and its environment as "NAME=value".
    struct Request {
        std::vector<std::string> words;
        std::vector<std::string> settings;
        int module = -1; ///< socket of the module rtrain; -1: none
    };

    /// The server has refused: the modules cannot be preloaded, but ranks can import them.
    struct Refused {
        std::string why;
    };

    /// Waits until a server has forked the rank, with this process's directory and standard
    /// streams. `server`: from connect_to_preload(). Throws Refused, and ConfigError [RT-E62].
    ForkedRank(process::Descriptor server, const Request& request) : server_(std::move(server)) {
        if (server_.get() < 0 || !send(request)) {
            throw gone();
        }
        const std::string answer = line();
        if (const auto number = detail::number_in<pid_t>(answer)) {
            pid_ = *number;
            return;
        }
        constexpr std::string_view refused = "refused ";
        if (answer.starts_with(refused)) {
            throw Refused{answer.substr(refused.size())};
        }
        throw answer.empty() ? gone() : ConfigError("RT-E62", answer);
    }
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }

    /// For poll(): readable once the rank has ended.
    [[nodiscard]] int end() const noexcept { return server_.get(); }

    [[nodiscard]] bool has_ended() const {
        pollfd end{server_.get(), POLLIN, 0};
        return ::poll(&end, 1, 0) > 0;
    }

    /// Waits for the end. Returns the status of waitpid().
    [[nodiscard]] int wait() {
        constexpr int killed = SIGKILL; // with its server
        return detail::number_in<int>(line()).value_or(killed);
    }

private:
    [[nodiscard]] static ConfigError gone() {
        return {"RT-E62", "the server of --preload has ended, perhaps with a message above; the "
                          "command must be a Python program, and its interpreter needs the module "
                          "rtrain"};
    }

    [[nodiscard]] bool send(const Request& request) const {
        std::string fields = std::filesystem::current_path().string() + '\0' +
                             std::to_string(request.words.size()) + '\0';
        for (const auto* const texts : {&request.words, &request.settings}) {
            for (const std::string& text : *texts) {
                fields += text + '\0';
            }
        }
        const std::uint64_t size = fields.size();
        std::string bytes(sizeof size, '\0');
        std::memcpy(bytes.data(), &size, sizeof size);
        bytes += fields;
        const std::size_t first = send_files(bytes, request.module);
        return first > 0 && process::send_all(server_.get(), std::string_view(bytes).substr(first));
    }

    /// Sends the standard streams with the first bytes. Returns how many; 0: an error.
    [[nodiscard]] std::size_t send_files(const std::string& bytes, int module) const {
        const process::Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        // A terminal would stop the rank, which is not in its foreground.
        std::vector<int> files{::isatty(STDIN_FILENO) != 0 ? null.get() : STDIN_FILENO,
                               STDOUT_FILENO, STDERR_FILENO};
        if (module >= 0) {
            files.push_back(module);
        }
        iovec part{const_cast<char*>(bytes.data()), bytes.size()};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
        std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
        const ssize_t sent = ::sendmsg(server_.get(), &message, MSG_NOSIGNAL);
        return sent > 0 ? static_cast<std::size_t>(sent) : 0;
    }

    /// The next line of the server, without its end; empty if it has ended.
    [[nodiscard]] std::string line() const {
        std::string text;
        for (char c = 0;;) {
            const ssize_t got = ::recv(server_.get(), &c, 1, 0);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                return "";
            }
            if (c == '\n') {
                return text;
            }
            text += c;
        }
    }

    process::Descriptor server_; ///< connection to it, which ends what is left of the group
    pid_t pid_ = -1;
};

} // namespace rtrain::program
