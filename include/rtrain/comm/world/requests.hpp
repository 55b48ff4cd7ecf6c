// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of point-to-point messages in flight. A rank inside one of MPI's own collectives can
/// neither notice that another rank has thrown, nor leave. Between these messages it can.
#pragma once

#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/process/throw_for_good.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// Messages specify their peer and a tag; all ranks agree on both and on the sizes. Receiving
/// starts only after the size of an arriving message is checked: Open MPI 4.1 and 5.0 write past a
/// buffer that is too small for a large message.
class Requests {
public:
    /// Peers are indices into `members`, which contains their ranks in `comm`.
    Requests(MPI_Comm comm, const std::vector<int>* members) : comm_(comm), members_(members) {}
    Requests(Requests&& other) noexcept
        : comm_(other.comm_), members_(other.members_),
          messages_(std::exchange(other.messages_, {})) {}
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;
    Requests& operator=(Requests&&) = delete;
    ~Requests() {
        if (owner_.is_this_process()) {
            abandon();
        }
    }

    /// Sends a contiguous tensor's bytes, which must not change until poll() returns true.
    void send(const at::Tensor& tensor, int to, int tag) {
        each_piece(tensor, [&](const char* data, int count) {
            MPI_Request request = MPI_REQUEST_NULL;
            check_mpi(MPI_Isend(data, count, MPI_BYTE, rank_of(to), tag, comm_, &request),
                      "MPI_Isend");
            messages_.push_back(
                {.memory = tensor, .peer = rank_of(to), .request = request, .under_way = true});
        });
    }

    /// Receives into a contiguous tensor exactly as many bytes as it has.
    void receive(const at::Tensor& tensor, int from, int tag) {
        // NOLINTNEXTLINE(readability-non-const-parameter): MPI writes there
        each_piece(tensor, [&](char* data, int count) {
            messages_.push_back({.memory = tensor,
                                 .data = data,
                                 .count = count,
                                 .peer = rank_of(from),
                                 .tag = tag});
        });
    }

    /// True if all messages are sent and received; never blocks. Throws CommError [RT-X5] if a peer
    /// sends a message of a different size.
    bool poll() {
        bool all_done = true;
        bool earlier_piece_missing = false;
        int earlier_from = -1;
        for (Message& message : messages_) {
            if (!message.under_way) {
                const bool must_wait = earlier_piece_missing && earlier_from == message.peer;
                if (!must_wait) {
                    begin_receiving(message);
                }
                earlier_piece_missing = !message.under_way;
                earlier_from = message.peer;
            }
            if (message.under_way && message.request != MPI_REQUEST_NULL) {
                int finished = 0;
                check_mpi(MPI_Test(&message.request, &finished, MPI_STATUS_IGNORE), "MPI_Test");
            }
            all_done = all_done && message.under_way && message.request == MPI_REQUEST_NULL;
        }
        if (all_done) {
            messages_.clear();
        }
        return all_done;
    }

    /// Ranks in the communicator that it waits for.
    [[nodiscard]] std::vector<int> awaited() const {
        std::vector<int> peers;
        for (const Message& message : messages_) {
            if (!message.under_way || message.request != MPI_REQUEST_NULL) {
                peers.push_back(message.peer);
            }
        }
        return peers;
    }

private:
    struct Message {
        at::Tensor memory{}; ///< kept alive while MPI may access it
        char* data = nullptr;
        int count = 0;
        int peer = -1; ///< its rank in comm_
        int tag = 0;
        MPI_Request request = MPI_REQUEST_NULL;
        bool under_way = false; ///< sent, or arriving
    };

    [[nodiscard]] int rank_of(int member) const {
        return (*members_)[static_cast<std::size_t>(member)];
    }

    /// Messages above MPI's count limit are sent in consecutive pieces.
    template <class F>
    static void each_piece(const at::Tensor& tensor, F&& transfer) {
        constexpr std::size_t limit = std::size_t{1} << 30;
        auto* data = static_cast<char*>(tensor.data_ptr());
        std::size_t left = tensor.nbytes();
        do { // an empty message still signals that its sender got here
            const std::size_t count = std::min(left, limit);
            transfer(data, static_cast<int>(count));
            data += count;
            left -= count;
        } while (left > 0);
    }

    void begin_receiving(Message& message) {
        int arrived = 0;
        MPI_Message handle = MPI_MESSAGE_NULL;
        MPI_Status status;
        check_mpi(MPI_Improbe(message.peer, message.tag, comm_, &arrived, &handle, &status),
                  "MPI_Improbe");
        if (arrived == 0) {
            return;
        }
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (count != message.count) {
            throw_for_good(CommError(
                "RT-X5",
                detail::concat("rank ", message.peer, " sent ", count,
                               " bytes where this rank expects ",
                               UserCall::current().around(detail::concat(message.count, " bytes")),
                               ": all ranks must call the same collectives in the same "
                               "order, with tensors of the same shape and type")));
        }
        check_mpi(MPI_Imrecv(message.data, message.count, MPI_BYTE, &handle, &message.request),
                  "MPI_Imrecv");
        message.under_way = true;
    }

    /// After an error, messages may be stuck forever: memory that MPI could still access is never
    /// freed.
    void abandon() noexcept {
        for (Message& message : messages_) {
            int finished = 1;
            if (message.request != MPI_REQUEST_NULL) {
                MPI_Test(&message.request, &finished, MPI_STATUS_IGNORE);
            }
            if (finished == 0) {
                // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory all ends
                static auto* const unreachable = new std::vector<at::Tensor>();
                unreachable->push_back(message.memory);
            }
        }
    }

    process::Owner owner_;
    MPI_Comm comm_;
    const std::vector<int>* members_;
    std::vector<Message> messages_;
};

} // namespace rtrain::comm
