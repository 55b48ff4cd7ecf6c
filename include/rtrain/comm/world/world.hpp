// SPDX-License-Identifier: Apache-2.0
/// @file
/// State that all communicators of a process share: two MPI communicators over the same ranks, one
/// for data and one for outcomes, the node of each rank, and the longest wait.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/comm/world/backoff.hpp>
#include <rtrain/comm/world/interned_text.hpp>
#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/comm/world/outcomes.hpp>
#include <rtrain/comm/world/processes.hpp>
#include <rtrain/comm/world/ulfm.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/rank_status.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/process/stdio/output_tee.hpp>
#include <rtrain/process/throw_for_good.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>

namespace rtrain::comm {

/// Called at intervals in each wait; an exception from it ends the wait.
class WaitObserver {
public:
    virtual void poll() = 0;

protected:
    ~WaitObserver() = default;
};

class World {
public:
    struct Options {
        /// Longest wait in one collective; then throws CommError [RT-X2].
        std::chrono::seconds timeout{1800};
        /// Compares the calls of all ranks before each collective, even if that costs messages.
        bool check_calls = false;
    };

    /// Joins all living ranks; collective.
    explicit World(const Options& options)
        : options_(options), messages_(SurvivingRanks::current().comm()),
          notices_(SurvivingRanks::current().comm()),
          board_(notices_.get(), rank_in(notices_.get()), size_of(notices_.get()), round_) {
        const RevokedOnError guard(messages_.get());
        find_nodes();
    }

    /// Reuses the communicators that `before` has kept, for the same ranks, without communication.
    /// Groups have different numbers than all earlier ones, so that none of their messages arrive
    /// here.
    explicit World(World&& before)
        : options_(before.options_), messages_(std::move(before.messages_)),
          notices_(std::move(before.notices_)), round_(before.round_ + 1),
          board_(notices_.get(), rank_in(notices_.get()), before.size(), round_),
          processes_(std::move(before.processes_)), everyone_(before.everyone_),
          node_of_(before.node_of_), crowded_(before.crowded_), last_group_(*before.kept_) {}

    [[nodiscard]] int rank() const { return rank_in(messages_.get()); }
    [[nodiscard]] int size() const { return static_cast<int>(node_of_.size()); }
    [[nodiscard]] const std::vector<int>& everyone() const noexcept { return everyone_; }
    /// The node that a rank is on, numbered in the order of their lowest ranks.
    [[nodiscard]] int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
    /// Nodes of several ranks.
    [[nodiscard]] std::vector<int> nodes_of(const std::vector<int>& ranks) const {
        std::vector<int> nodes;
        for (const int rank : ranks) {
            nodes.push_back(node_of(rank));
        }
        return nodes;
    }
    [[nodiscard]] const Options& options() const noexcept { return options_; }
    [[nodiscard]] MPI_Comm messages() const noexcept { return messages_.get(); }
    /// Ranks found dead.
    [[nodiscard]] const std::vector<int>& died() const noexcept { return board_.died(); }

    void add(WaitObserver& lookout) { lookouts_.push_back(&lookout); }
    void remove(WaitObserver& lookout) { std::erase(lookouts_, &lookout); }

    /// Waits until `progress.poll()` returns true; `what` names the wait in errors, or
    /// `details(numbered)` does, if it returns a text. `members` are the ranks that it waits for,
    /// unless `progress.awaited()` is more exact. Throws PeerError if any rank has failed (RT-X1)
    /// or died (RT-X9) or one of them has left (RT-X4). Throws what the WaitObserver throws, and
    /// CommError after the timeout (RT-X2).
    template <class Progress, class Details>
    void wait(Progress& progress, const char* what, const std::vector<int>& members,
              Details&& details) {
        const ExceptionGuard watch(*this);
        if (progress.poll()) {
            return;
        }
        RankStatus& status = ProcessContext::current().status;
        const RankStatus::Waiting waiting(status, what);
        constexpr std::chrono::milliseconds short_wait{100};
        bool is_detailed = false;
        std::string in_full;
        Backoff backoff(crowded_);
        while (!progress.poll()) {
            if (backoff.time_to_look_around()) {
                if (!is_detailed && backoff.waited() > short_wait) {
                    is_detailed = true;
                    status.waiting_in.store(kept(what, details(false)), std::memory_order_relaxed);
                }
                if (in_full.empty()) {
                    in_full = details(true);
                    in_full = in_full.empty() ? UserCall::current().around(what) : in_full;
                }
                if constexpr (requires { progress.awaited(); }) {
                    poll(backoff, in_full.c_str(), members, progress.awaited());
                } else {
                    poll(backoff, in_full.c_str(), members, members);
                }
            }
            backoff.pause();
        }
    }

    /// Throws PeerError if any rank has failed or died, because that ends the run. Also if one of
    /// `members` has left in the middle of a call, or one of `awaited`, which this rank waits for
    /// in `what`, has returned. Never blocks. Also for waits on something other than messages.
    void check_peers(const char* what, const std::vector<int>& members,
                     const std::vector<int>& awaited) {
        using detail::concat;
        board_.look();
        notice_deaths();
        const int mine = rank();
        if (const auto peer = board_.first_died()) {
            throw_for_good(PeerError(
                "RT-X9",
                concat("rank ", *peer, " died while rank ", mine, " waited for it in ", what,
                       "; its process exited without reporting an error: check for a signal, or "
                       "for the kernel's out-of-memory killer")));
        }
        auto failed = board_.first(Failure::Kind::threw, everyone_);
        const auto interrupted = board_.first(Failure::Kind::interrupted, members);
        const auto finished = board_.first_finished(awaited);
        if (!failed && !interrupted && !finished) {
            peer_left_.reset();
        } else if (!peer_left_) {
            peer_left_ = Backoff::Clock::now();
        }
        const auto since =
            peer_left_ ? Backoff::Clock::now() - *peer_left_ : Backoff::Clock::duration{};
        // A message that a rank sent before it left may still be in flight, perhaps through other
        // ranks.
        constexpr std::chrono::milliseconds on_its_way{500};
        // A rank that has returned may only be early, and the failure that another one names as its
        // cause may be reported late.
        constexpr std::chrono::seconds grace{2};
        if (interrupted && since > grace) {
            failed = failed ? failed : interrupted;
        }
        if (failed && since > on_its_way) {
            throw_for_good(
                PeerError("RT-X1", concat("rank ", *failed, " failed while rank ", mine,
                                          " waited in ", what, ": ", board_.of(*failed)->text())));
        }
        if (finished && since > grace) {
            throw_for_good(
                PeerError("RT-X4", concat("rank ", *finished,
                                          " has returned from the training function while rank ",
                                          mine, " waits for it in ", what,
                                          ": ranks must take equally many steps and reports; "
                                          "give them equally many batches, or stop all at the "
                                          "shortest")));
        }
    }

    /// The largest tag that messages may have.
    [[nodiscard]] int largest_tag() const {
        int* tag = nullptr;
        int known = 0;
        check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag, &known), "MPI_Comm_get_attr");
        constexpr int guaranteed = 32767;
        return known != 0 ? *tag : guaranteed;
    }

    /// Numbers that distinguish groups: a new one is larger than all that its members have used.
    [[nodiscard]] int last_group() const noexcept { return last_group_; }
    void set_last_group(int group) noexcept { last_group_ = group; }

    /// A call has failed. Even if the user handles that, operations may still be in flight.
    void set_disturbed() noexcept { disturbed_ = true; }
    /// True if another World can reuse the communicators of this one; the same on all ranks.
    [[nodiscard]] bool is_kept() const noexcept { return kept_.has_value(); }
    /// Number of groups with so many tags each that can still be created.
    [[nodiscard]] int groups_left(int tags) const {
        return largest_tag() / tags - kept_.value_or(last_group_);
    }
    /// Frees the communicators: no other World reuses them. Collective.
    void free() {
        messages_.free();
        notices_.free();
        kept_.reset();
    }

    /// Sends the others how this rank ended and waits for their outcomes, indexed by rank. If a
    /// rank does not react within `patience` after a failure, the whole job is ended (MPI_Abort).
    /// With `keep`, the communicators are kept if all ranks request that and no call of any has
    /// failed.
    [[nodiscard]] std::vector<Outcome> finish(const Outcome& mine, std::chrono::seconds patience,
                                              bool keep) {
        const bool can_be_kept = keep && !mine && !disturbed_;
        board_.announce(mine, can_be_kept ? std::optional(last_group_) : std::nullopt);
        const RankStatus::Waiting waiting(ProcessContext::current().status, "finish");
        if (!board_.wait_for_all(patience, [this] { notice_deaths(); })) {
            console::error("rank %d: %s; rank %s did not stop within %lld s, ending the job",
                           rank(), mine ? mine->text().c_str() : "", board_.missing().c_str(),
                           static_cast<long long>(patience.count()));
            process::OutputTee::settle_current();
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        std::vector<Outcome> outcomes;
        bool clean = true;
        for (int peer = 0; peer < size(); ++peer) {
            outcomes.push_back(board_.of(peer));
            clean = clean && !outcomes.back();
        }
        kept_ = board_.largest_word();
        if (clean && !kept_) {
            free();
        }
        return outcomes;
    }

private:
    /// Records exceptions that leave a call.
    class ExceptionGuard {
    public:
        explicit ExceptionGuard(World& world) : world_(world) {}
        ExceptionGuard(const ExceptionGuard&) = delete;
        ExceptionGuard& operator=(const ExceptionGuard&) = delete;
        ~ExceptionGuard() {
            if (std::uncaught_exceptions() > exceptions_) {
                world_.set_disturbed();
            }
        }

    private:
        World& world_;
        int exceptions_ = std::uncaught_exceptions();
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

    void find_nodes() {
        MPI_Comm node = MPI_COMM_NULL;
        const int mine = rank();
        check_mpi(
            MPI_Comm_split_type(messages_.get(), MPI_COMM_TYPE_SHARED, mine, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
        const RevokedOnError guard(node);
        int leader = mine;
        check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, node), "MPI_Bcast");
        std::vector<int> leaders(static_cast<std::size_t>(size_of(messages_.get())));
        check_mpi(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, messages_.get()),
                  "MPI_Allgather");
        std::vector<int> nodes = leaders;
        std::sort(nodes.begin(), nodes.end());
        nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
        for (const int rank : leaders) {
            everyone_.push_back(static_cast<int>(everyone_.size()));
            node_of_.push_back(static_cast<int>(std::lower_bound(nodes.begin(), nodes.end(), rank) -
                                                nodes.begin()));
        }
        std::vector<int> neighbours;
        for (int rank = 0; rank < size(); ++rank) {
            if (node_of(rank) == node_of(mine)) {
                neighbours.push_back(rank);
            }
        }
        processes_.watch(node, neighbours);
        check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
        cpu_set_t cores;
        CPU_ZERO(&cores);
        sched_getaffinity(0, sizeof cores, &cores);
        crowded_ = static_cast<int>(neighbours.size()) > CPU_COUNT(&cores);
    }

    /// A process that has exited without announcing its outcome has died.
    void notice_deaths() {
        if (ProcessContext::current().status.condemned.load(std::memory_order_relaxed)) {
            return;
        }
        for (const int rank : processes_.ended()) {
            board_.look();
            board_.set_died(rank);
        }
        for (const int rank : SurvivingRanks::current().take_dead(notices_.get())) { // of any node
            board_.look();
            board_.set_died(rank);
        }
    }

    [[nodiscard]] static const char* kept(const char* what, const std::string& details) {
        const auto& text = details.empty() ? UserCall::current().around(what, false) : details;
        const char* const kept = intern(text);
        return kept != nullptr ? kept : what;
    }

    void poll(const Backoff& backoff, const char* what, const std::vector<int>& members,
              const std::vector<int>& awaited) {
        for (WaitObserver* const lookout : lookouts_) {
            lookout->poll();
        }
        check_peers(what, members, awaited);
        if (std::chrono::duration<double>(backoff.waited()) > options_.timeout) { // any number
            throw_for_good(
                CommError("RT-X2", detail::concat("rank ", rank(), " waited ",
                                                  options_.timeout.count(), " s in ", what,
                                                  ": some rank has not called it, or hangs")));
        }
    }

    Options options_;
    OwnedComm messages_;
    OwnedComm notices_;
    int round_ = 0; ///< index among those that have used these communicators
    OutcomeBoard board_;
    ProcessWatch processes_;
    std::vector<int> everyone_; ///< all ranks
    std::vector<int> node_of_;
    std::vector<WaitObserver*> lookouts_;
    bool crowded_ = false;
    int last_group_ = -1;
    bool disturbed_ = false;
    std::optional<int> kept_; ///< the last group of any rank, at the end
    std::optional<Backoff::Clock::time_point> peer_left_; ///< when the first departure was noticed
};

} // namespace rtrain::comm
