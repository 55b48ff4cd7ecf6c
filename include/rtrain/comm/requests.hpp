// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of point-to-point messages under way. Why not MPI's own collectives: a rank inside one
/// can neither notice that another rank has thrown, nor leave. Between these messages it can.
#pragma once

#include <rtrain/comm/mpi.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rtrain::comm {

class Requests {
public:
    /// Tensors whose memory the messages use; kept for as long as MPI may touch it.
    explicit Requests(MPI_Comm comm) : comm_(comm) {}
    Requests(Requests&& other) noexcept
        : comm_(other.comm_), active_(std::exchange(other.active_, {})),
          expected_(std::exchange(other.expected_, {})) {}
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;
    Requests& operator=(Requests&&) = delete;
    ~Requests() { abandon(); }

    /// Messages above MPI's count limit travel in pieces; `tag` orders them.
    void send(const at::Tensor& bytes, int to, int tag) {
        each_piece(bytes, [&](char* data, int count, const at::Tensor& owner) {
            MPI_Request request = MPI_REQUEST_NULL;
            check_mpi(MPI_Isend(data, count, MPI_BYTE, to, tag, comm_, &request), "MPI_Isend");
            active_.push_back(request);
            expected_.push_back({Kind::send, to, count, owner});
        });
    }

    void receive(const at::Tensor& bytes, int from, int tag) {
        each_piece(bytes, [&](char* data, int count, const at::Tensor& owner) {
            MPI_Request request = MPI_REQUEST_NULL;
            check_mpi(MPI_Irecv(data, count, MPI_BYTE, from, tag, comm_, &request), "MPI_Irecv");
            active_.push_back(request);
            expected_.push_back({Kind::receive, from, count, owner});
        });
    }

    /// Whether all messages have arrived. Throws CommError [RT-X5] when a peer sent a message of
    /// another size.
    bool done() {
        if (active_.empty()) {
            return true;
        }
        statuses_.resize(active_.size());
        int flag = 0;
        const int result =
            MPI_Testall(static_cast<int>(active_.size()), active_.data(), &flag, statuses_.data());
        if (result != MPI_SUCCESS) {
            fail(result);
        }
        if (flag == 0) {
            return false;
        }
        for (std::size_t i = 0; i < expected_.size(); ++i) {
            int count = 0;
            if (expected_[i].kind == Kind::receive) {
                MPI_Get_count(&statuses_[i], MPI_BYTE, &count);
                if (count != expected_[i].count) {
                    throw size_mismatch(expected_[i].peer, expected_[i].count);
                }
            }
        }
        active_.clear();
        expected_.clear();
        return true;
    }

private:
    enum class Kind : unsigned char { send, receive };
    struct Message {
        Kind kind;
        int peer;
        int count;
        at::Tensor memory;
    };

    template <class F>
    static void each_piece(const at::Tensor& bytes, F&& transfer) {
        constexpr std::size_t limit = std::size_t{1} << 30;
        auto* data = static_cast<char*>(bytes.data_ptr());
        std::size_t left = bytes.nbytes();
        do { // a message without bytes still tells that its sender got here
            const std::size_t count = std::min(left, limit);
            transfer(data, static_cast<int>(count), bytes);
            data += count;
            left -= count;
        } while (left > 0);
    }

    [[noreturn]] void fail(int result) {
        for (std::size_t i = 0; i < expected_.size(); ++i) {
            int error_class = MPI_SUCCESS;
            MPI_Error_class(statuses_[i].MPI_ERROR, &error_class);
            if (error_class == MPI_ERR_TRUNCATE) {
                throw size_mismatch(expected_[i].peer, expected_[i].count);
            }
        }
        check_mpi(result, "MPI_Testall");
        throw CommError("RT-X3", "MPI_Testall failed");
    }

    static CommError size_mismatch(int peer, int expected) {
        return CommError("RT-X5",
                         detail::concat("rank ", peer, " sent a message of another size than the ",
                                        expected,
                                        " bytes expected: all ranks must call the same "
                                        "collectives with tensors of the same shape"));
    }

    /// After an error messages may be stuck for ever: receives are cancelled, and what MPI could
    /// still read or write is never freed.
    void abandon() noexcept {
        for (std::size_t i = 0; i < active_.size(); ++i) {
            if (active_[i] == MPI_REQUEST_NULL) {
                continue;
            }
            if (expected_[i].kind == Kind::receive) {
                MPI_Cancel(&active_[i]);
            }
            int flag = 0;
            MPI_Test(&active_[i], &flag, MPI_STATUS_IGNORE);
            if (flag == 0) {
                static auto* const unreachable = new std::vector<at::Tensor>();
                unreachable->push_back(expected_[i].memory);
            }
        }
        active_.clear();
        expected_.clear();
    }

    MPI_Comm comm_;
    std::vector<MPI_Request> active_;
    std::vector<Message> expected_;
    std::vector<MPI_Status> statuses_;
};

} // namespace rtrain::comm
