// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives on CPU tensors over MPI messages. Unlike MPI's own they end when another rank fails,
/// and waiting gives the core away (comm/backoff.hpp).
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/comm/backoff.hpp>
#include <rtrain/comm/outcomes.hpp>
#include <rtrain/comm/requests.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::comm {

class AllReduce;

/// All ranks of MPI_COMM_WORLD. Every member that communicates is collective: all ranks call the
/// same ones in the same order. Any of them throws PeerError when another rank has failed (RT-X1)
/// or has left (RT-X4), and CommError after `timeout` (RT-X2).
class Communicator {
public:
    explicit Communicator(std::chrono::seconds timeout)
        : messages_(MPI_COMM_WORLD), notices_(MPI_COMM_WORLD), rank_(rank_in(messages_.get())),
          size_(size_of(messages_.get())), timeout_(timeout), board_(notices_.get(), rank_, size_) {
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }

    /// Reduces `tensor` in place, whatever its strides. Elements are combined in the order of
    /// ranks, so the result has the same bits on all ranks and in every run.
    void all_reduce(at::Tensor& tensor, ReduceOp op);

    /// Overwrites `tensor` with that of `root`; a binomial tree.
    void broadcast(at::Tensor& tensor, int root) {
        require_cpu(tensor);
        at::Tensor buffer = tensor.contiguous();
        const int tag = next_tag(Collective::broadcast);
        const int relative = (rank_ - root + size_) % size_;
        int bit = 1;
        for (; bit < size_; bit <<= 1) {
            if ((relative & bit) != 0) {
                Requests receive(messages_.get());
                receive.receive(buffer, (relative - bit + root) % size_, tag);
                wait(receive, "broadcast");
                break;
            }
        }
        Requests sends(messages_.get());
        for (bit >>= 1; bit > 0; bit >>= 1) {
            if (relative + bit < size_) {
                sends.send(buffer, (relative + bit + root) % size_, tag);
            }
        }
        wait(sends, "broadcast");
        if (!buffer.is_same(tensor)) {
            tensor.copy_(buffer);
        }
    }

    /// The tensors of all ranks, stacked: shape (size, *tensor.sizes()).
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) {
        require_cpu(tensor);
        std::vector<std::int64_t> shape = tensor.sizes().vec();
        shape.insert(shape.begin(), size_);
        at::Tensor gathered = at::empty(shape, tensor.options());
        const at::Tensor mine = tensor.contiguous();
        gathered.select(0, rank_).copy_(mine);
        const int tag = next_tag(Collective::all_gather);
        Requests requests(messages_.get());
        for (int step = 1; step < size_; ++step) {
            const int from = (rank_ - step + size_) % size_;
            requests.receive(gathered.select(0, from), from, tag);
        }
        for (int step = 1; step < size_; ++step) {
            requests.send(mine, (rank_ + step) % size_, tag);
        }
        wait(requests, "all_gather");
        return gathered;
    }

    /// Tells the others how this rank ended and waits for their outcomes, indexed by rank. A rank
    /// that does not react within `patience` after a failure ends the whole job (MPI_Abort).
    [[nodiscard]] std::vector<Outcome> finish(const Outcome& mine, std::chrono::seconds patience) {
        board_.announce(mine);
        if (!board_.wait_for_all(patience)) {
            std::fprintf(
                stderr, "rtrain: rank %d: %s; rank %s did not stop within %lld s, ending the job\n",
                rank_, mine.message.c_str(), board_.missing().c_str(),
                static_cast<long long>(patience.count()));
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        std::vector<Outcome> outcomes;
        bool clean = true;
        for (int peer = 0; peer < size_; ++peer) {
            outcomes.push_back(board_.of(peer));
            clean = clean && outcomes.back().kind == Outcome::Kind::finished;
        }
        if (clean) {
            messages_.free();
            notices_.free();
        }
        return outcomes;
    }

    /// Waits for messages under way; `what` names the collective in errors.
    template <class Progress>
    void wait(Progress& progress, const char* what) {
        Backoff backoff;
        while (!progress.done()) {
            if (backoff.time_to_look_around()) {
                look_around(backoff, what);
            }
            backoff.pause();
        }
    }

    /// Throws PeerError when a rank that this one waits for in `what` has failed or left; never
    /// blocks. For those who wait for something else than messages.
    void check_peers(const char* what) {
        board_.look();
        const bool any_left =
            board_.first(Outcome::Kind::failed) || board_.first(Outcome::Kind::finished);
        if (any_left && !peer_left_) {
            peer_left_ = Backoff::Clock::now();
        }
        const auto since =
            peer_left_ ? Backoff::Clock::now() - *peer_left_ : Backoff::Clock::duration{};
        // What a rank sent before it left may still be on its way, perhaps through other ranks.
        constexpr std::chrono::milliseconds on_its_way{500};
        if (const auto peer = board_.first(Outcome::Kind::failed); peer && since > on_its_way) {
            throw PeerError("RT-X1",
                            detail::concat("rank ", *peer, " failed while rank ", rank_,
                                           " waited in ", what, ": ", board_.of(*peer).message));
        }
        // A rank that has returned may only be early.
        constexpr std::chrono::seconds grace{2};
        if (since > grace) {
            if (const auto peer = board_.first(Outcome::Kind::finished)) {
                throw PeerError(
                    "RT-X4",
                    detail::concat("rank ", *peer,
                                   " has returned from the training function while "
                                   "rank ",
                                   rank_, " waits for it in ", what,
                                   ": ranks must take equally many steps and reports; give them "
                                   "equally many batches, or stop all at the shortest"));
            }
        }
    }

private:
    friend class AllReduce;

    enum class Collective : int {
        all_reduce = 0,
        scatter_phase = 1,
        broadcast = 2,
        all_gather = 3
    };

    static int rank_in(MPI_Comm comm) {
        int rank = 0;
        check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
        return rank;
    }
    static int size_of(MPI_Comm comm) {
        int size = 1;
        check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
        return size;
    }

    static void require_cpu(const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.device().is_cpu()) {
            throw CommError("RT-X6",
                            detail::concat("backend::Mpi communicates CPU tensors, this one is ",
                                           tensor.defined() ? tensor.device().str() : "undefined",
                                           "; move it with tensor.cpu()"));
        }
    }

    /// Collectives under way at the same time, and of different kinds, never share a tag.
    int next_tag(Collective kind) {
        constexpr int sequences = 4096; // MPI guarantees tags up to 32767
        sequence_ = (sequence_ + 1) % sequences;
        return sequence_ * 4 + static_cast<int>(kind);
    }

    void look_around(const Backoff& backoff, const char* what) {
        check_peers(what);
        if (backoff.waited() > timeout_) {
            throw CommError("RT-X2",
                            detail::concat("rank ", rank_, " waited ", timeout_.count(), " s in ",
                                           what, ": some rank has not called it, or hangs"));
        }
    }

    OwnedComm messages_;
    OwnedComm notices_;
    int rank_;
    int size_;
    std::chrono::seconds timeout_;
    OutcomeBoard board_;
    int sequence_ = 0;
    std::optional<Backoff::Clock::time_point> peer_left_; ///< when the first was noticed
};

/// One all-reduce of a contiguous tensor, which can be started again and again and makes progress
/// in poll(). Rank r receives everybody's slice r, adds them up in the order of ranks, and sends
/// the sum to everybody: the bytes on the wire are those of a ring, in two steps instead of 2(n-1).
class AllReduce {
public:
    /// `tensor` is contiguous, on the CPU, and stays the same size on all ranks.
    AllReduce(Communicator& communicator, at::Tensor tensor, ReduceOp op)
        : communicator_(&communicator), op_(op), elements_(tensor.view({-1})),
          scatter_(communicator.messages_.get()), gather_(communicator.messages_.get()) {
        const int size = communicator.size();
        if (size > 1) {
            const std::int64_t slots = size - 1;
            incoming_ = at::empty({slots, slice(communicator.rank()).numel()}, elements_.options());
        }
    }

    /// Sends this rank's slices; the tensor must not be touched until done() is true.
    void start() {
        const int rank = communicator_->rank();
        const int size = communicator_->size();
        phase_ = size > 1 ? Phase::scatter : Phase::done;
        const int tag = communicator_->next_tag(Communicator::Collective::scatter_phase);
        gather_tag_ = communicator_->next_tag(Communicator::Collective::all_reduce);
        for (int step = 1; step < size; ++step) {
            const int from = (rank - step + size) % size;
            scatter_.receive(part_of(from), from, tag);
        }
        for (int step = 1; step < size; ++step) {
            const int to = (rank + step) % size;
            scatter_.send(slice(to), to, tag);
        }
    }

    /// Goes on as far as messages have arrived; true when the tensor holds the result.
    bool done() {
        if (phase_ == Phase::scatter && scatter_.done()) {
            reduce();
            share();
            phase_ = Phase::gather;
        }
        if (phase_ == Phase::gather && gather_.done()) {
            phase_ = Phase::done;
        }
        return phase_ == Phase::done;
    }

    void poll() { (void)done(); }
    void wait() { communicator_->wait(*this, "all_reduce"); }

private:
    enum class Phase : unsigned char { scatter, gather, done };

    /// The part of the tensor that `rank` adds up; whole cache lines of float32.
    [[nodiscard]] at::Tensor slice(int rank) const {
        constexpr std::int64_t line = 16;
        const std::int64_t size = communicator_->size();
        const std::int64_t step = ((elements_.numel() + size - 1) / size + line - 1) / line * line;
        const std::int64_t begin = std::min(elements_.numel(), step * rank);
        return elements_.slice(0, begin, std::min(elements_.numel(), begin + step));
    }

    /// What `rank` contributes to this rank's slice.
    [[nodiscard]] at::Tensor part_of(int rank) const {
        const int mine = communicator_->rank();
        return rank == mine ? slice(mine) : incoming_.select(0, rank < mine ? rank : rank - 1);
    }

    void reduce() {
        const int size = communicator_->size();
        at::Tensor result = slice(communicator_->rank());
        at::Tensor sum = part_of(0);
        for (int rank = 1; rank < size; ++rank) {
            at::Tensor target = rank + 1 == size ? result : sum;
            combine(target, sum, part_of(rank));
            sum = target;
        }
        if (op_ == ReduceOp::mean) {
            result.div_(size);
        }
    }

    void combine(at::Tensor& target, const at::Tensor& left, const at::Tensor& right) const {
        switch (op_) {
        case ReduceOp::sum:
        case ReduceOp::mean:
            at::add_out(target, left, right);
            break;
        case ReduceOp::min:
            at::minimum_out(target, left, right);
            break;
        case ReduceOp::max:
            at::maximum_out(target, left, right);
            break;
        }
    }

    void share() {
        const int rank = communicator_->rank();
        const int size = communicator_->size();
        for (int step = 1; step < size; ++step) {
            const int from = (rank - step + size) % size;
            gather_.receive(slice(from), from, gather_tag_);
        }
        for (int step = 1; step < size; ++step) {
            gather_.send(slice(rank), (rank + step) % size, gather_tag_);
        }
    }

    Communicator* communicator_;
    ReduceOp op_;
    at::Tensor elements_;
    at::Tensor incoming_;
    Requests scatter_;
    Requests gather_;
    int gather_tag_ = 0;
    Phase phase_ = Phase::done;
};

inline void Communicator::all_reduce(at::Tensor& tensor, ReduceOp op) {
    require_cpu(tensor);
    if (op == ReduceOp::mean && !tensor.is_floating_point() && !tensor.is_complex()) {
        throw CommError("RT-X7", detail::concat("the mean of ", tensor.scalar_type(),
                                                " tensors is no integer; reduce a sum, or "
                                                "convert to a floating-point type first"));
    }
    at::Tensor buffer = tensor.contiguous();
    AllReduce reduction(*this, buffer, op);
    reduction.start();
    reduction.wait();
    if (!buffer.is_same(tensor)) {
        tensor.copy_(buffer);
    }
}

} // namespace rtrain::comm
