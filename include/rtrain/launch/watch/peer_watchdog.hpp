// SPDX-License-Identifier: Apache-2.0
/// @file
/// PeerWatchdog: ranks without a driver, under plain mpirun or srun, watch each other. Up to three
/// of them are judges (launch/watch/hang_judge.hpp), and each rank reports to each judge
/// (launch/control/driver_link.hpp). Rationale: docs/decisions/0018-watch-without-driver.md.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/launch/control/driver_link.hpp>
#include <rtrain/launch/watch/peer_hang_monitor.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/process/stack/stack_dump.hpp>
#include <rtrain/process/status/rank_status.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

/// While it exists on all ranks, a hang ends the job according to HangConfig. A rank that leaves
/// earlier than others counts as done.
class PeerWatchdog {
public:
    using Clock = std::chrono::steady_clock;
    /// Returns each rank's text, indexed by rank; collective.
    using Gather = std::function<std::vector<std::string>(const std::string& mine)>;

    /// Time for all ranks to join the judges.
    static constexpr std::chrono::seconds join_limit{10};
    /// Time for which each judge waits for the one before it, which may itself hang.
    static constexpr std::chrono::seconds precedence{4};

    /// Collective; call in the training thread. Does nothing if a rank has it disabled. A judge
    /// that not all ranks can reach is left out, with a warning by rank 0 [RT-L19]; training
    /// continues.
    PeerWatchdog(int rank, int size, const HangConfig& hang, const Gather& gather)
        : rank_(rank), size_(size) {
        ProcessContext::current().status.enter(Phase::starting);
        // Also if disabled, so that ranks with different options call the same collectives.
        const std::vector<std::string> places =
            gather((hang.enabled ? "on " : "off ") + ControlAddress::this_machine() + ' ' +
                   storage::host_name());
        const bool all_on = std::all_of(places.begin(), places.end(), [](const std::string& place) {
            return place.starts_with("on ");
        });
        if (!all_on) {
            return;
        }
        watch_this_thread();
        std::string problem;
        const std::vector<std::string> addresses = gather(open_judge(hang, places, problem) + ' ');
        const std::string reached = join(addresses, problem);
        agree(gather(reached + problem));
    }
    PeerWatchdog(const PeerWatchdog&) = delete;
    PeerWatchdog& operator=(const PeerWatchdog&) = delete;
    ~PeerWatchdog() {
        ProcessContext::current().status.enter(Phase::done);
        for (const auto& link : links_) {
            if (link) {
                link->say(event::Done{});
            }
        }
        links_.clear();
        judge_.reset();
    }

    /// The ranks with judges, in the order in which they act: rank 0; its neighbor, which detects a
    /// stopped process immediately; and one that is most likely on another node.
    [[nodiscard]] static std::vector<int> judges(int size) {
        std::vector<int> ranks;
        for (const int rank : {0, 1, size - 1}) {
            if (rank < size && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
                ranks.push_back(rank);
            }
        }
        return ranks;
    }

private:
    /// Less often in a large job, to use little of a judge's core.
    [[nodiscard]] std::chrono::milliseconds interval(std::size_t judge) const {
        constexpr std::chrono::milliseconds shortest{200};
        constexpr std::chrono::milliseconds longest{1000};
        return judge > 0 ? longest
                         : std::clamp(std::chrono::milliseconds(4) * size_, shortest, longest);
    }

    /// Names of other nodes: a few suffice to find the route to all, and each has to be resolved.
    [[nodiscard]] std::vector<std::string>
    other_hosts(const std::vector<std::string>& places) const {
        constexpr std::size_t enough = 3;
        const std::string& here = places[static_cast<std::size_t>(rank_)];
        std::vector<std::string> hosts;
        for (const std::string& place : places) {
            const std::string host = place.substr(place.rfind(' ') + 1);
            if (place != here && hosts.size() < enough &&
                std::find(hosts.begin(), hosts.end(), host) == hosts.end()) {
                hosts.push_back(host);
            }
        }
        return hosts;
    }

    /// Token and address of this rank's judge; empty if it has none.
    [[nodiscard]] std::string open_judge(const HangConfig& hang,
                                         const std::vector<std::string>& places,
                                         std::string& problem) {
        const std::vector<int> ranks = judges(size_);
        const auto found = std::find(ranks.begin(), ranks.end(), rank_);
        if (found == ranks.end()) {
            return "";
        }
        const auto number = static_cast<std::size_t>(found - ranks.begin());
        const std::vector<std::string> others = other_hosts(places);
        try {
            judge_.emplace(PeerHangMonitor::Options{.rank = rank_,
                                                    .size = size_,
                                                    .hang = hang,
                                                    .patience = precedence * number,
                                                    .interval = interval(number),
                                                    .remote = !others.empty(),
                                                    .hosts = others});
            return judge_->token() + judge_->address();
        } catch (const std::exception& error) {
            problem = error.what();
            return "";
        }
    }

    /// A '+' for each judge that was reached, otherwise a '-'.
    [[nodiscard]] std::string join(const std::vector<std::string>& addresses,
                                   std::string& problem) {
        const auto deadline = Clock::now() + join_limit;
        const std::vector<int> ranks = judges(size_);
        std::string reached(ranks.size(), '-');
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            std::string text = addresses[static_cast<std::size_t>(ranks[i])];
            text.pop_back();
            links_.push_back(nullptr);
            if (text.empty()) {
                continue; // its rank reports why
            }
            constexpr std::chrono::milliseconds moment{100};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
            try {
                auto link =
                    DriverLink::to_judge(text.substr(ControlAddress::token_size),
                                         text.substr(0, ControlAddress::token_size), interval(i));
                link->connect(rank_, size_, std::max(left, moment));
                links_[i] = std::move(link);
                reached[i] = '+';
            } catch (const std::exception& error) {
                problem = detail::concat("rank ", ranks[i], " was not reached: ", error.what());
            }
        }
        return reached;
    }

    /// Keeps the judges that all ranks have reached.
    void agree(const std::vector<std::string>& texts) {
        const std::vector<int> ranks = judges(size_);
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const bool by_all = std::all_of(texts.begin(), texts.end(),
                                            [&](const auto& text) { return text[i] == '+'; });
            if (!by_all) {
                links_[i].reset();
                if (ranks[i] == rank_) {
                    judge_.reset();
                }
            }
        }
        if (judge_) {
            judge_->stop_listening();
        }
        for (std::size_t rank = 0; rank < texts.size() && rank_ == 0; ++rank) {
            if (const std::string why = texts[rank].substr(ranks.size()); !why.empty()) {
                console::warn("hangs of the ranks may go unnoticed: rank %zu of %d: %s [RT-L19]",
                              rank, size_, why.c_str());
                return;
            }
        }
    }

    int rank_;
    int size_;
    std::optional<PeerHangMonitor> judge_;           ///< if this rank is one
    std::vector<std::unique_ptr<DriverLink>> links_; ///< to each judge; null: left out
};

} // namespace rtrain::launch
