// SPDX-License-Identifier: Apache-2.0
/// @file
/// A short text that rank 0 sends to all ranks, which then communicate by other means than MPI.
#pragma once

#include <rtrain/base/exception_text.hpp>
#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/comm/world/world.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::comm {

struct SharedText {
    int rank = 0; ///< of this process
    int size = 1; ///< number of ranks that have it
    std::string text{};
};

namespace internal {

/// Messages of one size below every MPI's eager limit, so that sending never waits.
class TextMessages {
public:
    static constexpr std::size_t longest = 256;

    TextMessages(World& world, std::string text) : comm_(world.messages()) {
        text.resize(longest, '\0');
        std::copy(text.begin(), text.end(), text_.begin());
        for (int peer = 1; world.rank() == 0 && peer < world.size(); ++peer) {
            check_mpi(MPI_Send(text_.data(), longest, MPI_CHAR, peer, 0, comm_), "MPI_Send");
        }
        done_ = world.rank() == 0;
    }

    /// A receive that is not begun need not be cancelled when another rank fails.
    bool poll() {
        int came = 0;
        if (!done_) {
            check_mpi(MPI_Iprobe(0, 0, comm_, &came, MPI_STATUS_IGNORE), "MPI_Iprobe");
        }
        if (came != 0) {
            check_mpi(MPI_Recv(text_.data(), longest, MPI_CHAR, 0, 0, comm_, MPI_STATUS_IGNORE),
                      "MPI_Recv");
            done_ = true;
        }
        return done_;
    }

    [[nodiscard]] std::string text() const { return text_.data(); }

private:
    MPI_Comm comm_;
    std::array<char, longest + 1> text_{};
    bool done_ = false;
};

} // namespace internal

/// Collective over all ranks; afterwards, none is in an MPI call. `make` is called on rank 0, with
/// true if all ranks are on one node; returns at most 256 bytes. If it throws, the others throw
/// PeerError [RT-X1].
template <class Make>
[[nodiscard]] SharedText share_text(Make&& make) {
    constexpr std::chrono::seconds patience{30};
    ensure_mpi();
    World world(World::Options{});
    SharedText shared{.rank = world.rank(), .size = world.size()};
    try {
        if (shared.rank == 0) {
            bool one_node = true;
            for (int rank = 0; rank < shared.size; ++rank) {
                one_node = one_node && world.node_of(rank) == 0;
            }
            shared.text = std::forward<Make>(make)(one_node);
        }
        internal::TextMessages messages(world, shared.text);
        world.wait(messages, "share_text", world.everyone(),
                   [](bool /*numbered*/) { return std::string(); });
        shared.text = messages.text();
    } catch (const std::exception& error) {
        (void)world.finish(detail::failure_of(error), patience, false);
        throw;
    }
    (void)world.finish(std::nullopt, patience, false);
    return shared;
}

/// For a process that knows of a rank that has died: it does not wait for MPI at exit.
inline void leave_without_mpi() noexcept {
    a_rank_has_died = true;
}

} // namespace rtrain::comm
