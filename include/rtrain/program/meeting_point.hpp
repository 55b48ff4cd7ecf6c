// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the ranks of an mpirun or srun without a driver agree on the port of rank 0.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/program/held_ports.hpp>
#include <rtrain/program/place.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rtrain::program {

/// An abstract Unix socket, whose name the processes with the same parent have in common. It leaves
/// no file.
class MeetingPoint {
public:
    /// Where rank 0 listens.
    struct Place {
        std::string address;
        int port;
    };

    using Limit = std::chrono::duration<double>;
    static constexpr Limit default_limit{60}; ///< for all ranks to start

    /// Rank 0 passes `port` to the other ranks of this machine; the others receive it. Throws
    /// LaunchError [RT-E3].
    [[nodiscard]] static int agree(const RankPlace& place, int port, Limit limit = default_limit) {
        if (place.size == 1) {
            return port;
        }
        return place.rank == 0 ? give(place.size - 1, port, limit) : receive(limit);
    }

    /// The first node of a step of srun, and a port that depends on the step; empty outside one.
    [[nodiscard]] static std::optional<Place> of_srun() {
        const char* const list = std::getenv("SLURM_STEP_NODELIST");
        const int job = launch::env_int("SLURM_JOB_ID").value_or(0);
        const int step = launch::env_int("SLURM_STEP_ID").value_or(0);
        if (list == nullptr) {
            return std::nullopt;
        }
        constexpr int first = 10'000; // below the ports that the system gives to clients
        constexpr int count = 20'000;
        return Place{.address = first_host(list), .port = first + (job * 31 + step) % count};
    }

    /// The first host of Slurm's list, such as "node[01-04,09],other".
    [[nodiscard]] static std::string first_host(const std::string& list) {
        const auto bracket = list.find('[');
        if (bracket == std::string::npos || list.find(',') < bracket) {
            return list.substr(0, list.find(','));
        }
        const auto end = list.find_first_of(",-]", bracket);
        return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
    }

private:
    using Clock = std::chrono::steady_clock;

    /// The parent, mpirun or srun, and when it was started.
    static sockaddr_un address(socklen_t& size) {
        std::ifstream file("/proc/" + std::to_string(::getppid()) + "/stat");
        std::string text;
        std::getline(file, text);
        const std::string rest = text.substr(std::min(text.rfind(')') + 1, text.size()));
        auto fields = detail::strict(std::istringstream(rest));
        std::string started; // field 22, the 20th after the name
        for (int field = 0; field < 20; ++field) {
            fields >> started;
        }
        const std::string name =
            detail::concat("rtrain-exec-", ::getuid(), '-', ::getppid(), '-', started);
        sockaddr_un result{};
        result.sun_family = AF_UNIX;
        std::copy(name.begin(), name.end(), result.sun_path + 1); // after a null: abstract
        size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        return result;
    }

    static LaunchError missing(const char* what) {
        return {"RT-E3", detail::concat("the ranks of this machine did not find each other: ", what,
                                        "; start all of them with the same mpirun or srun")};
    }

    static bool is_same_user(int socket) {
        ucred process{};
        socklen_t size = sizeof process;
        return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &process, &size) == 0 &&
               process.uid == ::getuid();
    }

    static int give(int others, int port, Limit limit) {
        socklen_t size = 0;
        const sockaddr_un here = address(size);
        const process::Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&here), size) != 0 ||
            ::listen(listener.get(), others) != 0) {
            throw missing(std::strerror(errno));
        }
        const auto deadline = Clock::now() + limit;
        while (others > 0) {
            pollfd state{listener.get(), POLLIN, 0};
            (void)::poll(&state, 1, 100);
            if (state.revents != 0) {
                const process::Descriptor other(
                    ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
                others -= is_same_user(other.get()) &&
                                  ::send(other.get(), &port, sizeof port, MSG_NOSIGNAL) ==
                                      static_cast<ssize_t>(sizeof port)
                              ? 1
                              : 0;
            } else if (Clock::now() > deadline) {
                throw missing("some ranks did not start");
            }
        }
        return port;
    }

    static int receive(Limit limit) {
        socklen_t size = 0;
        const sockaddr_un there = address(size);
        const auto deadline = Clock::now() + limit;
        while (Clock::now() < deadline) {
            const process::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
            int port = 0;
            if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), size) == 0 &&
                is_same_user(socket.get()) &&
                ::recv(socket.get(), &port, sizeof port, MSG_WAITALL) ==
                    static_cast<ssize_t>(sizeof port)) {
                return port;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        throw missing("rank 0 did not start");
    }
};

} // namespace rtrain::program
