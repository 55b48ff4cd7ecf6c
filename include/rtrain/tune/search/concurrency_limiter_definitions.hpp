// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door concurrency_limiter.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/tune/search/concurrency_limiter.hpp>
#include <rtrain/tune/search/plan.hpp>

namespace rtrain::tune {

RTRAIN_DOOR ConcurrencyLimiter::ConcurrencyLimiter(AnySearcher searcher,
                                                   std::int64_t max_concurrent, bool batch)
    : searcher_(std::move(searcher)), max_concurrent_(max_concurrent), batch_(batch) {
    if (max_concurrent < 1) {
        throw ConfigError("RT-U13", detail::concat("ConcurrencyLimiter: max_concurrent is ",
                                                   max_concurrent, "; expected at least 1"));
    }
}

RTRAIN_DOOR Suggestion ConcurrencyLimiter::ask(const std::string& trial) {
    if (static_cast<std::int64_t>(under_way_.size() + ended_.size()) >= max_concurrent_) {
        return Wait{};
    }
    Suggestion suggestion = searcher_.ask(trial);
    if (std::holds_alternative<Config>(suggestion)) {
        under_way_.insert(trial);
    }
    return suggestion;
}

RTRAIN_DOOR void ConcurrencyLimiter::tell(const std::string& trial, std::optional<double> score,
                                          TrialEnd end) {
    under_way_.erase(trial);
    if (!batch_) {
        searcher_.tell(trial, score, end);
        return;
    }
    ended_.emplace_back(trial, score, end);
    if (under_way_.empty()) {
        for (const auto& [id, its_score, its_end] : ended_) {
            searcher_.tell(id, its_score, its_end);
        }
        ended_.clear();
    }
}

RTRAIN_DOOR boost::json::object ConcurrencyLimiter::save() const {
    boost::json::array under_way;
    for (const std::string& id : under_way_) {
        under_way.emplace_back(id);
    }
    boost::json::array ended;
    for (const auto& [id, score, end] : ended_) {
        ended.push_back(boost::json::array{
            id, score ? boost::json::array{json::finite(*score)} : boost::json::array{},
            static_cast<int>(end)});
    }
    return {{"searcher", searcher_.save()},
            {"under_way", std::move(under_way)},
            {"ended", std::move(ended)}};
}

RTRAIN_DOOR void ConcurrencyLimiter::load(const boost::json::object& state) {
    internal::read_state([&] {
        searcher_.load(state.at("searcher").as_object());
        under_way_.clear();
        ended_.clear();
        for (const boost::json::value& id : state.at("under_way").as_array()) {
            under_way_.emplace(id.as_string());
        }
        for (const boost::json::value& each : state.at("ended").as_array()) {
            const boost::json::array& fields = each.as_array();
            const boost::json::array& score = fields.at(1).as_array();
            ended_.emplace_back(std::string(fields.at(0).as_string()),
                                score.empty() ? std::nullopt : json::number(score[0]),
                                static_cast<TrialEnd>(fields.at(2).as_int64()));
        }
    });
}

} // namespace rtrain::tune
