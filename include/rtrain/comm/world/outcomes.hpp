// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exchange of how ranks ended. A rank that leaves the training function, by return or by
/// exception, notifies every other rank; ranks that wait for it check here and stop waiting.
#pragma once

#include <rtrain/base/failure_json.hpp>
#include <rtrain/comm/world/backoff.hpp>
#include <rtrain/comm/world/mpi.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// Exchanges one Outcome per rank over a communicator used for nothing else.
class OutcomeBoard {
public:
    /// `round`: index of this board among those that use `comm` consecutively. A rank may announce
    /// in the next one while another still waits in this one.
    OutcomeBoard(MPI_Comm comm, int rank, int size, int round)
        : comm_(comm), rank_(rank), tag_(round % 2), outcomes_(static_cast<std::size_t>(size)),
          words_(outcomes_.size()) {}

    /// Sends this rank's outcome to all other ranks. Called once. `word`: of a rank that succeeded,
    /// for largest_word().
    void announce(const Outcome& mine, std::optional<int> word) {
        if (announced()) {
            return;
        }
        // A message above the eager limit would wait for its receiver; readers need no more anyway.
        constexpr std::size_t longest = 3000;
        text_ = mine ? encode(*mine, longest) : word ? std::to_string(*word) : "";
        outcomes_[static_cast<std::size_t>(rank_)].emplace(mine);
        words_[static_cast<std::size_t>(rank_)] = word;
        for (int peer = 0; peer < size(); ++peer) {
            if (peer != rank_) {
                MPI_Request request = MPI_REQUEST_NULL;
                if (reaches_the_living(MPI_Isend(text_.data(), static_cast<int>(text_.size()),
                                                 MPI_CHAR, peer, tag_, comm_, &request),
                                       "MPI_Isend")) {
                    sends_.push_back(request);
                }
            }
        }
    }

    /// Receives what has arrived; never blocks.
    void look() {
        int arrived = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        while (reaches_the_living(
                   MPI_Improbe(MPI_ANY_SOURCE, tag_, comm_, &arrived, &message, &status),
                   "MPI_Improbe") &&
               arrived != 0) {
            int length = 0;
            MPI_Get_count(&status, MPI_CHAR, &length);
            std::string text(static_cast<std::size_t>(length), '\0');
            if (reaches_the_living(
                    MPI_Mrecv(text.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE),
                    "MPI_Mrecv")) {
                take(status.MPI_SOURCE, text);
            }
        }
    }

    /// Returns the first of `ranks`, other than this one, that has failed in this way so far.
    [[nodiscard]] std::optional<int> first(Failure::Kind kind,
                                           const std::vector<int>& ranks) const {
        return first_of(ranks,
                        [&](const Outcome& outcome) { return outcome && outcome->kind == kind; });
    }
    /// Returns the first of `ranks` that has returned.
    [[nodiscard]] std::optional<int> first_finished(const std::vector<int>& ranks) const {
        return first_of(ranks, [](const Outcome& outcome) { return !outcome; });
    }

    /// Records that a rank's process has exited; an outcome that it has announced is kept.
    void set_died(int rank) {
        auto& outcome = outcomes_[static_cast<std::size_t>(rank)];
        if (!outcome) {
            outcome.emplace(Failure{.kind = Failure::Kind::died,
                                    .rank = rank,
                                    .message = "the process died",
                                    .from_outside = true});
            died_.push_back(rank);
            a_rank_has_died = true;
        }
    }
    /// Ranks found dead, in that order.
    [[nodiscard]] const std::vector<int>& died() const noexcept { return died_; }
    /// The first of died().
    [[nodiscard]] std::optional<int> first_died() const {
        return died_.empty() ? std::nullopt : std::optional(died_.front());
    }

    [[nodiscard]] const Outcome& of(int rank) const {
        return outcomes_.at(static_cast<std::size_t>(rank)).value();
    }

    /// Returns the largest word, if all ranks have succeeded and each has announced one.
    [[nodiscard]] std::optional<int> largest_word() const {
        std::optional<int> largest;
        for (const auto& word : words_) {
            if (!word) {
                return std::nullopt;
            }
            largest = std::max(*word, largest.value_or(*word));
        }
        return largest;
    }

    /// Waits until every rank has announced its outcome. Once some rank has failed, the others have
    /// `patience` to notice; returns false if one has not (it computes without communicating, or
    /// hangs). `look_elsewhere` is called meanwhile, and may call set_died().
    template <class F>
    [[nodiscard]] bool wait_for_all(std::chrono::seconds patience, F&& look_elsewhere) {
        Backoff backoff;
        std::optional<Backoff::Clock::time_point> failed_at;
        while (true) {
            look();
            look_elsewhere();
            bool complete = true;
            for (const auto& outcome : outcomes_) {
                complete = complete && outcome.has_value();
                if (outcome && *outcome && !failed_at) {
                    failed_at = Backoff::Clock::now();
                }
            }
            if (complete && (poll_sends() || !died_.empty())) {
                return true;
            }
            const std::chrono::duration<double> since = // can be compared with any number
                failed_at ? Backoff::Clock::now() - *failed_at : Backoff::Clock::duration::zero();
            if (since > patience) {
                return false;
            }
            backoff.pause();
        }
    }

    /// Ranks that have not announced an outcome, for error messages.
    [[nodiscard]] std::string missing() const {
        std::string ranks;
        for (int peer = 0; peer < size(); ++peer) {
            if (!outcomes_[static_cast<std::size_t>(peer)]) {
                ranks += (ranks.empty() ? "" : ", ") + std::to_string(peer);
            }
        }
        return ranks;
    }

private:
    [[nodiscard]] int size() const { return static_cast<int>(outcomes_.size()); }

    void take(int rank, const std::string& text) {
        Outcome outcome;
        if (text.starts_with('{')) {
            outcome = decode_failure(text);
            outcome->rank = rank;
        } else if (!text.empty()) {
            words_[static_cast<std::size_t>(rank)] = std::stoi(text);
        }
        outcomes_[static_cast<std::size_t>(rank)].emplace(std::move(outcome));
    }

    template <class F>
    [[nodiscard]] std::optional<int> first_of(const std::vector<int>& ranks, F&& is) const {
        for (const int peer : ranks) {
            const auto& outcome = outcomes_[static_cast<std::size_t>(peer)];
            if (peer != rank_ && outcome && is(*outcome)) {
                return peer;
            }
        }
        return std::nullopt;
    }

    /// False if the other side is dead: it needs no outcome, and has sent none. For other errors,
    /// throws what check_mpi() throws.
    static bool reaches_the_living(int result, const char* call) {
        if (tells_of_death(result)) {
            return false;
        }
        check_mpi(result, call);
        return true;
    }

    [[nodiscard]] bool poll_sends() {
        bool sent = true;
        for (MPI_Request& request : sends_) {
            int finished = 0;
            if (reaches_the_living(MPI_Test(&request, &finished, MPI_STATUS_IGNORE), "MPI_Test")) {
                sent = sent && finished != 0;
            } else {
                request = MPI_REQUEST_NULL;
            }
        }
        return sent;
    }
    [[nodiscard]] bool announced() const {
        return outcomes_[static_cast<std::size_t>(rank_)].has_value();
    }

    MPI_Comm comm_;
    int rank_;
    int tag_;
    std::vector<std::optional<Outcome>> outcomes_; ///< of those that have announced one
    std::vector<std::optional<int>> words_;        ///< the same
    std::vector<int> died_;
    std::string text_;
    std::vector<MPI_Request> sends_;
};

} // namespace rtrain::comm
