// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks of a job that have joined, as the driver sees them: which live, which are done, and
/// which are lost.
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/control/message.hpp>
#include <rtrain/process/os/others.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include <sys/types.h>

namespace rtrain::launch {

class JobRanks {
public:
    struct Rank {
        pid_t local_process = 0; ///< 0: on another machine
        bool connected = true;
        bool done = false;
        bool lost = false;                   ///< the others continue without it
        std::optional<Failure> last_words{}; ///< the failure that it reported before it ended

        /// True if it has left, and no process of it exists on this machine.
        [[nodiscard]] bool has_left() const {
            return !connected && (local_process == 0 || !storage::process_is_alive(local_process));
        }
        [[nodiscard]] bool is_gone() const {
            return local_process > 0 && !storage::process_is_alive(local_process);
        }
    };

    explicit JobRanks(int size) : size_(static_cast<std::size_t>(size)) {}

    void join(const Hello& hello) {
        ranks_[hello.rank] = {.local_process = hello.local ? hello.pid : 0};
    }
    [[nodiscard]] Rank& at(int rank) { return ranks_.at(rank); }

    /// A rank has sent where it will listen. Returns all addresses once they are complete.
    [[nodiscard]] std::optional<event::Addresses> add(int rank, event::Address address) {
        addresses_[rank] = std::move(address);
        if (addresses_.size() < size_) {
            return std::nullopt;
        }
        event::Addresses all;
        for (const auto& [number, one] : addresses_) {
            all.hosts.push_back(one.host);
            all.ports.push_back(one.port);
        }
        return all;
    }

    /// The others continue without this rank; kills its process, which MPI may wrongly consider
    /// dead. Returns false if the rank has not joined.
    bool lose(int number) {
        const auto found = ranks_.find(number);
        if (found == ranks_.end()) {
            return false;
        }
        Rank& rank = found->second;
        rank.lost = true;
        if (rank.connected && rank.local_process > 0) {
            ::kill(rank.local_process, SIGKILL);
        }
        return true;
    }

    /// Kills all ranks here. Ranks end by themselves when the driver is gone, but stopped ones
    /// cannot. Returns true if all had joined and run on this machine.
    bool kill() {
        bool all_here = all_joined();
        for (auto& [number, rank] : ranks_) {
            if (rank.connected && rank.local_process > 0) {
                ::kill(rank.local_process, SIGKILL);
            }
            rank.connected = false;
            all_here = all_here && rank.local_process > 0;
        }
        return all_here;
    }

    /// True if this rank is connected, or has reported how it ends.
    [[nodiscard]] bool reports(int number) const {
        const auto found = ranks_.find(number);
        return found != ranks_.end() && (found->second.connected || found->second.done ||
                                         found->second.lost || found->second.last_words);
    }
    [[nodiscard]] bool all_joined() const { return ranks_.size() == size_; }
    [[nodiscard]] std::ptrdiff_t living() const {
        return std::count_if(ranks_.begin(), ranks_.end(),
                             [](const auto& item) { return item.second.connected; });
    }
    /// True if all ranks that have joined have left.
    [[nodiscard]] bool all_have_left() const {
        return all_are([](const Rank& rank) { return rank.has_left(); });
    }
    [[nodiscard]] bool all_are_done() const {
        return all_joined() && all_are([](const Rank& rank) { return rank.done || rank.lost; });
    }
    /// True if all ranks had joined, on this machine, and none of their processes exists.
    [[nodiscard]] bool all_are_gone() const {
        return all_joined() && all_are([](const Rank& rank) { return rank.is_gone(); });
    }
    /// True if all have joined, none is done, and the first living rank shares files with the
    /// driver.
    [[nodiscard]] bool can_go_on() const {
        const auto first = std::find_if(ranks_.begin(), ranks_.end(),
                                        [](const auto& item) { return item.second.connected; });
        return all_joined() && all_are([](const Rank& rank) { return !rank.done; }) &&
               first != ranks_.end() && first->second.local_process > 0;
    }

private:
    template <class F>
    [[nodiscard]] bool all_are(F&& is) const {
        return std::all_of(ranks_.begin(), ranks_.end(),
                           [&](const auto& item) { return is(item.second); });
    }

    std::size_t size_;
    std::map<int, Rank> ranks_;
    std::map<int, event::Address> addresses_; ///< by rank
};

} // namespace rtrain::launch
