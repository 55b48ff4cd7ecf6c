// SPDX-License-Identifier: Apache-2.0
/// @file
/// The helper process that validates checkpoints: the same program, started by rank 0. This header
/// has the helper's side; launch/validator.hpp has rank 0's.
///
/// They exchange JSON texts, one per line, over a socket:
/// @code
/// helper:  {"ready":true}                             once, when it can validate
/// rank 0:  {"id":3,"checkpoint":"/runs/a/checkpoint_000003","task":{"batches":10}}
/// helper:  {"id":3,"metrics":{"accuracy":0.9}}        or {"id":3,"error":"no such file"}
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/storage/filesystem.hpp>

#include <array>
#include <cerrno>
#include <concepts>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rtrain::launch {

struct Helper {
    /// Set for a helper: the process that started it.
    static constexpr const char* parent_variable = "RTRAIN_VALIDATOR_OF";
    /// The helper's end of the socket.
    static constexpr int socket = 3;
    /// A longer line breaks the protocol.
    static constexpr std::size_t max_line = std::size_t{16} << 20;
    /// Ranks that compute on the same cores get ten times as much processor time.
    static constexpr int niceness = 10;

    /// True if this process is a helper. The first call, before main() begins, binds it to its
    /// parent: it is killed when that dies. It may use all cores, whatever the rank's binding,
    /// where ranks leave them idle.
    [[nodiscard]] static bool is_this_process() {
        static const bool result = begin();
        return result;
    }

    /// Answers requests with the result or exception of `function(checkpoint, task)`, until rank 0
    /// closes the socket. `filesystem`: that of the checkpoints, unless local.
    template <std::invocable<const Checkpoint&, const Config&> F>
    static void serve(F&& function,
                      const std::optional<storage::AnyFilesystem>& filesystem = std::nullopt) {
        if (!say({{"ready", true}})) {
            return;
        }
        std::string buffer;
        while (const auto request = next_line(buffer)) {
            const Config asked = json::parse(*request).as_object();
            Config answer{{"id", asked.at("id")}};
            try {
                process::call_in_this_process([&] {
                    const Config metrics = function(
                        Checkpoint(std::string(asked.at("checkpoint").as_string()), filesystem),
                        asked.at("task").as_object());
                    answer["metrics"] = metrics;
                });
            } catch (const std::exception& error) {
                answer["error"] = error.what();
            } catch (...) {
                answer["error"] = detail::thrown_object();
            }
            if (!say(answer)) {
                return;
            }
        }
    }

private:
    static bool begin() {
        const char* const parent = std::getenv(parent_variable);
        if (parent == nullptr) {
            return false;
        }
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (std::to_string(::getppid()) != parent) {
            ::_exit(EXIT_FAILURE); // it died before the line above
        }
        ::unsetenv(parent_variable);
        ::fcntl(socket, F_SETFD, FD_CLOEXEC);
        cpu_set_t all;
        std::memset(&all, 0xff, sizeof all); // the kernel removes those not allowed
        ::sched_setaffinity(0, sizeof all, &all);
        ::setpriority(PRIO_PROCESS, 0, niceness);
        return true;
    }

    /// Returns false if rank 0 is gone.
    static bool say(const Config& text) {
        const std::string line = json::serialize(text) + "\n";
        for (std::size_t sent = 0; sent < line.size();) {
            const ssize_t more =
                ::send(socket, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
            if (more < 0 && errno == EINTR) {
                continue;
            }
            if (more < 0) {
                return false;
            }
            sent += static_cast<std::size_t>(more);
        }
        return true;
    }

    static std::optional<std::string> next_line(std::string& buffer) {
        for (;;) {
            const auto end = buffer.find('\n');
            if (end != std::string::npos) {
                std::string line = buffer.substr(0, end);
                buffer.erase(0, end + 1);
                return line;
            }
            std::array<char, 65536> part; // NOLINT: recv fills it
            const ssize_t got = ::recv(socket, part.data(), part.size(), 0);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                return std::nullopt;
            }
            buffer.append(part.data(), static_cast<std::size_t>(got));
        }
    }
};

} // namespace rtrain::launch
