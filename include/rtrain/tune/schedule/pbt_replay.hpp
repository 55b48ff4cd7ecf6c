// SPDX-License-Identifier: Apache-2.0
/// @file
/// PbtReplay: one trial that follows the configurations of a policy log, rtrain's or Ray's. Cost
/// tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/tune/schedule/fifo.hpp>
#include <rtrain/tune/schedule/reading.hpp>
#include <rtrain/tune/schedule/scheduler.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// `policy` is the text of a pbt_policy_<id>.txt, one line per exploit: [trial, donor, iteration of
/// the trial, iteration of the donor, donor's configuration, new configuration]. The trial's
/// history before an exploit does not count.
class PbtReplay {
public:
    static constexpr const char* name = "PbtReplay";

    /// Throws ConfigError [RT-U67] for a text that is not a policy log.
    explicit PbtReplay(std::string_view policy) {
        std::vector<boost::json::array> rows;
        try {
            while (!policy.empty()) {
                const std::size_t end = std::min(policy.find('\n'), policy.size());
                rows.push_back(json::parse(policy.substr(0, end)).as_array());
                (void)rows.back().at(5).as_object();
                policy.remove_prefix(std::min(end + 1, policy.size()));
            }
            std::optional<std::string> next_tag;
            for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
                if (next_tag && row->at(0).as_string() != *next_tag) {
                    break;
                }
                next_tag = row->at(1).as_string();
                first_ = row->at(4).as_object();
                changes_.push_back({row->at(3).to_number<std::int64_t>(), row->at(5).as_object()});
            }
        } catch (const std::exception& error) {
            throw ConfigError(
                "RT-U67", rtrain::detail::concat("line ", rows.size() + 1,
                                                 " of the policy log is invalid: ", error.what()));
        }
        std::reverse(changes_.begin(), changes_.end());
    }

    void begin(const Goal& /*goal*/) {}

    /// Returns the log's first configuration; without one, the given one. Throws ConfigError
    /// [RT-U68] for a second trial.
    [[nodiscard]] Config add(const std::string& trial, Config config) {
        if (trial == trial_) { // it runs again
            return config;
        }
        if (!std::exchange(trial_, trial).empty()) {
            throw ConfigError("RT-U68", "PbtReplay trains one trial; set num_samples to 1");
        }
        return changes_.empty() ? std::move(config) : first_;
    }

    [[nodiscard]] Verdict on_result(const TrialReport& report) {
        if (done_ == changes_.size() || report.iteration < changes_[done_].iteration) {
            return GoOn{};
        }
        const Config& before = done_ == 0 ? first_ : changes_[done_ - 1].config;
        const Change& change = changes_[done_];
        return Exploit{.donor = report.trial,
                       .config = change.config,
                       .iteration = report.iteration,
                       .donor_iteration = report.iteration,
                       .donor_config = before,
                       .log = false};
    }
    void on_taken_over(const std::string& /*trial*/, const Exploit& /*exploit*/) { ++done_; }
    void on_end(const std::string& /*trial*/, TrialEnd /*end*/,
                const std::optional<TrialReport>& /*last*/) {}
    [[nodiscard]] std::optional<std::string> next(std::span<const Candidate> waiting) {
        return internal::first_of(waiting);
    }

    [[nodiscard]] boost::json::object save() const {
        return {{"type", name}, {"done", done_}, {"trial", trial_}};
    }
    /// Throws ConfigError [RT-U65].
    void load(const boost::json::object& state) {
        internal::load_state(name, state, [&] {
            const auto done = state.at("done").to_number<std::size_t>();
            if (done > changes_.size()) {
                throw std::invalid_argument("the policy log is too short");
            }
            trial_ = state.at("trial").as_string();
            done_ = done;
        });
    }

private:
    struct Change {
        std::int64_t iteration = 0;
        Config config;
    };

    Config first_;
    std::vector<Change> changes_; ///< oldest first
    std::size_t done_ = 0;
    std::string trial_{};
};
static_assert(Scheduler<PbtReplay>);

} // namespace rtrain::tune
