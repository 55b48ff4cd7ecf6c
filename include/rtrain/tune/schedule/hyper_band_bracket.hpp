// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bracket: trials of a HyperBand that are halved together. Pure bookkeeping.
/// Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/tune/schedule/reading.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune::internal {

class Bracket {
public:
    struct Shape {
        std::int64_t trials = 0; ///< capacity
        std::int64_t first = 0;  ///< time of the first halving
        double max_t = 0;
        double eta = 0;
        int halvings = 0;
        bool stop_last_trials = true;
    };

    explicit Bracket(const Shape& shape)
        : shape_(shape), size_(shape.trials), milestone_(shape.first), halvings_(shape.halvings),
          total_work_(work_of(shape)) {}

    void add(const std::string& trial) { live_.push_back({trial, std::nullopt}); }
    [[nodiscard]] bool filled() const noexcept {
        return static_cast<std::int64_t>(live_.size()) == size_;
    }
    [[nodiscard]] bool holds(const std::string& trial) const { return find(trial) != live_.end(); }
    /// The trials in the order in which they were added.
    [[nodiscard]] std::vector<std::string> trials() const {
        std::vector<std::string> names;
        names.reserve(live_.size());
        for (const Live& live : live_) {
            names.push_back(live.trial);
        }
        return names;
    }

    void hear(const std::string& trial, const Point& point) {
        auto& last = find(trial)->last;
        progress_ += point.time - (last ? last->time : 0);
        last = point;
        may_go_on_.erase(trial);
    }
    void remove(const std::string& trial) {
        std::erase_if(live_, [&](const Live& live) { return live.trial == trial; });
        may_go_on_.erase(trial);
    }

    /// True if the trial has not reached the next halving.
    [[nodiscard]] bool goes_on(const std::string& trial) const {
        return (!shape_.stop_last_trials && halvings_ == 0) ||
               time_of(*find(trial)) < static_cast<double>(milestone_);
    }
    [[nodiscard]] bool all_have_come() const {
        return std::all_of(live_.begin(), live_.end(), [&](const Live& live) {
            return time_of(live) >= static_cast<double>(milestone_);
        });
    }
    [[nodiscard]] bool finished() const {
        return shape_.stop_last_trials && halvings_ == 0 && all_have_come();
    }

    struct Halves {
        std::vector<std::string> good;
        std::vector<std::string> bad;
    };
    /// Keeps the best trials, and among equals those added later; sets the next milestone.
    [[nodiscard]] Halves halve() {
        if (halvings_ == 0) {
            return {trials(), {}};
        }
        --halvings_;
        size_ = static_cast<std::int64_t>(std::ceil(static_cast<double>(size_) / shape_.eta));
        milestone_ = static_cast<std::int64_t>(
            std::min(static_cast<double>(milestone_) * shape_.eta, shape_.max_t));
        std::vector<const Live*> order;
        order.reserve(live_.size());
        for (const Live& live : live_) {
            order.push_back(&live);
        }
        std::stable_sort(order.begin(), order.end(), [](const Live* one, const Live* other) {
            return rtrain::detail::is_worse(one->last->score, other->last->score, ScoreOrder::max);
        });
        const std::size_t kept = std::min(order.size(), static_cast<std::size_t>(size_));
        Halves halves;
        for (std::size_t at = 0; at < order.size(); ++at) {
            (at < order.size() - kept ? halves.bad : halves.good).push_back(order[at]->trial);
        }
        return halves;
    }

    /// Lets a paused trial continue that has survived a halving.
    void let_go_on(const std::string& trial) { may_go_on_.insert(trial); }
    [[nodiscard]] bool may_go_on(const std::string& trial) const {
        return may_go_on_.contains(trial);
    }

    /// Share of the bracket's total work that is done, 0 to 1, assuming no early ends.
    [[nodiscard]] double done() const {
        return finished() ? 1 : std::min(progress_ / static_cast<double>(total_work_), 1.0);
    }

    [[nodiscard]] boost::json::object save() const {
        boost::json::array live;
        for (const Live& it : live_) {
            boost::json::object one{{"trial", it.trial}, {"may_go_on", may_go_on(it.trial)}};
            if (it.last) {
                one["time"] = it.last->time;
                one["score"] = it.last->score;
            }
            live.push_back(std::move(one));
        }
        return {{"size", size_},
                {"milestone", milestone_},
                {"halvings", halvings_},
                {"progress", progress_},
                {"live", std::move(live)}};
    }
    /// Throws std::exception for anything but what save() has returned.
    void load(const boost::json::object& saved) {
        size_ = saved.at("size").to_number<std::int64_t>();
        milestone_ = saved.at("milestone").to_number<std::int64_t>();
        halvings_ = saved.at("halvings").to_number<int>();
        progress_ = saved_number(saved.at("progress"));
        if (halvings_ < 0 || halvings_ > shape_.halvings) {
            throw std::invalid_argument("a bracket with a different number of halvings");
        }
        live_.clear();
        may_go_on_.clear();
        for (const auto& value : saved.at("live").as_array()) {
            const auto& one = value.as_object();
            live_.push_back({std::string(one.at("trial").as_string()), std::nullopt});
            if (one.contains("time")) {
                live_.back().last = {saved_number(one.at("time")), saved_number(one.at("score"))};
            }
            if (one.at("may_go_on").as_bool()) {
                may_go_on_.insert(live_.back().trial);
            }
        }
    }

private:
    struct Live {
        std::string trial;
        std::optional<Point> last;
    };

    [[nodiscard]] static double time_of(const Live& live) {
        return live.last ? live.last->time : 0;
    }
    [[nodiscard]] std::vector<Live>::iterator find(const std::string& trial) {
        return std::find_if(live_.begin(), live_.end(),
                            [&](const Live& live) { return live.trial == trial; });
    }
    [[nodiscard]] std::vector<Live>::const_iterator find(const std::string& trial) const {
        return std::find_if(live_.begin(), live_.end(),
                            [&](const Live& live) { return live.trial == trial; });
    }

    [[nodiscard]] static std::int64_t work_of(const Shape& shape) {
        std::int64_t work = 0;
        std::int64_t trials = shape.trials;
        std::int64_t time = shape.first;
        for (int halving = 0; halving <= shape.halvings; ++halving) {
            work += trials * time;
            trials = static_cast<std::int64_t>(std::ceil(static_cast<double>(trials) / shape.eta));
            time =
                static_cast<std::int64_t>(std::min(static_cast<double>(time) * shape.eta,
                                                   shape.max_t - static_cast<double>(shape.first)));
        }
        return work;
    }

    Shape shape_;
    std::int64_t size_;      ///< trials until the next halving
    std::int64_t milestone_; ///< time of the next halving
    int halvings_;           ///< remaining halvings
    std::int64_t total_work_;
    double progress_ = 0;
    std::vector<Live> live_;
    std::set<std::string> may_go_on_;
};

} // namespace rtrain::tune::internal
