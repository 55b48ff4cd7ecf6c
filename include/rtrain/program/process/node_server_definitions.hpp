// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/process/node_server.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/program/process/awaited_signals.hpp>
#include <rtrain/program/process/node_server.hpp>
#include <rtrain/program/process/preload_server.hpp>
#include <rtrain/program/process/preload_socket.hpp>
#include <rtrain/program/process/run_lease.hpp>

#include <chrono>
#include <csignal>
#include <exception>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::program {

namespace internal {

/// Identifies the namespace of this process.
[[nodiscard]] inline std::string namespace_number(const char* kind) {
    struct stat status{};
    (void)::stat(detail::concat("/proc/self/ns/", kind).c_str(), &status);
    return std::to_string(status.st_ino);
}

/// Leaves nothing that the launcher of the ranks waits for: its session and its pipes.
inline void leave_launcher(int listener) {
    ::setsid();
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        ::dup2(null, stream);
    }
    const auto kept = static_cast<unsigned>(listener);
    constexpr unsigned first = STDERR_FILENO + 1;
    if (kept > first) {
        ::close_range(first, kept - 1, 0);
    }
    ::close_range(kept + 1, ~0U, 0);
}

/// Lives as long as the server and the run.
[[noreturn]] inline void keep_server(const NodeServer& node, PreloadListener listener) {
    try {
        leave_launcher(listener.descriptor());
        const process::Descriptor lease = RunLease::hold(node.lease);
        const PreloadServer server(node.command, node.modules, std::move(listener), node.variables);
        const AwaitedSignals signals;
        int signal = 0;
        while ((signal == 0 || signal == SIGCHLD) && !server.has_ended() &&
               !RunLease::has_ended(lease)) {
            constexpr std::chrono::hours longest{1};
            signal = signals.next(lease.get(), longest);
        }
    } catch (const std::exception&) { // ranks report that the server has ended
    }
    ::_exit(0);
}

} // namespace internal

RTRAIN_DOOR std::string NodeServer::address_for(const std::string& run) {
    return detail::concat('@', run, '-', internal::namespace_number("pid"), '-',
                          internal::namespace_number("mnt"));
}

RTRAIN_DOOR void NodeServer::start() const {
    auto listener = PreloadListener::at(address);
    if (listener && ::fork() == 0) {
        internal::keep_server(*this, *std::move(listener));
    }
}

} // namespace rtrain::program
