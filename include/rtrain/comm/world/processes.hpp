// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detects the end of a rank's process on this node, whatever caused it.
#pragma once

#include <rtrain/comm/world/mpi.hpp>

#include <cstddef>
#include <vector>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rtrain::comm {

/// Holds a process file descriptor (Linux 5.3) of each neighbour. If the kernel provides none, for
/// example across containers, that neighbour's death goes unnoticed here and mpirun ends the job.
class ProcessWatch {
public:
    ProcessWatch() = default;
    ProcessWatch(ProcessWatch&&) noexcept = default;
    ProcessWatch(const ProcessWatch&) = delete;
    ProcessWatch& operator=(const ProcessWatch&) = delete;
    ~ProcessWatch() {
        for (const pollfd& process : processes_) {
            ::close(process.fd);
        }
    }

    /// Collective over `node`, whose ranks are `ranks` in the world.
    void watch(MPI_Comm node, const std::vector<int>& ranks) {
        const int mine = static_cast<int>(::getpid());
        std::vector<int> ids(ranks.size());
        check_mpi(MPI_Allgather(&mine, 1, MPI_INT, ids.data(), 1, MPI_INT, node), "MPI_Allgather");
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const auto file =
                ids[i] == mine ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, ids[i], 0));
            if (file >= 0) {
                processes_.push_back({.fd = file, .events = POLLIN, .revents = 0});
                ranks_.push_back(ranks[i]);
            }
        }
    }

    /// Ranks whose processes have ended since the last call; never blocks.
    [[nodiscard]] std::vector<int> ended() {
        std::vector<int> gone;
        if (::poll(processes_.data(), processes_.size(), 0) <= 0) {
            return gone;
        }
        for (std::size_t i = processes_.size(); i-- > 0;) {
            if (processes_[i].revents != 0) {
                gone.push_back(ranks_[i]);
                ::close(processes_[i].fd);
                processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(i));
                ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(i));
            }
        }
        return gone;
    }

private:
    std::vector<pollfd> processes_;
    std::vector<int> ranks_;
};

} // namespace rtrain::comm
