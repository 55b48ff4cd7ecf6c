// SPDX-License-Identifier: Apache-2.0
/// @file
/// Searches for tests: a searcher that counts.
#pragma once

#include <rtrain/tune/controller/search_directory.hpp>
#include <rtrain/tune/schedule/fifo.hpp>
#include <rtrain/tune/threads/function_runner.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test {

namespace tune = rtrain::tune;
using rtrain::Config;

/// Suggests {"x": 0}, {"x": 1}, ... What it was told shifts them, so that a search that forgets
/// something goes another way.
class Counting {
public:
    void begin(const tune::Space& /*space*/, const tune::Goal& /*goal*/, std::int64_t samples) {
        samples_ = samples;
    }
    [[nodiscard]] tune::Suggestion ask(const std::string& /*trial*/) {
        if (samples_ >= 0 && asked_ >= samples_) {
            return tune::Exhausted{};
        }
        return Config{{"x", asked_++}, {"told", told_}, {"heard", heard_}};
    }
    void on_result(const std::string& /*trial*/, std::int64_t /*iteration*/, double score) {
        heard_ = 31 * heard_ % 1'000'003 + static_cast<std::int64_t>(score);
    }
    void tell(const std::string& /*trial*/, std::optional<double> score, tune::TrialEnd end) {
        told_ = 17 * told_ % 1'000'003 + static_cast<std::int64_t>(score.value_or(-1)) +
                static_cast<std::int64_t>(end);
    }
    [[nodiscard]] boost::json::object save() const { return {{"asked", asked_}}; }
    void load(const boost::json::object& state) {
        asked_ = state.at("asked").to_number<std::int64_t>();
    }

private:
    std::int64_t samples_ = 0;
    std::int64_t asked_ = 0;
    std::int64_t told_ = 0;
    std::int64_t heard_ = 0;
};

inline tune::SearchPlan plan(int samples, tune::AnyScheduler scheduler = tune::Fifo{}) {
    return {.goal = {.metric = "score", .mode = rtrain::ScoreOrder::max},
            .searcher = Counting{},
            .scheduler = std::move(scheduler),
            .num_samples = samples,
            .identity = {{"trainable", "test"}}};
}

/// Runs a search in a directory, in so many threads; returns how its trials have ended.
inline std::vector<tune::TrialRecord> search(tune::SearchPlan plan,
                                             const std::filesystem::path& directory,
                                             tune::TrialFunction function, int places = 1,
                                             const tune::RestoreOptions& options = {}) {
    tune::SearchDirectory search(std::move(plan), directory, options);
    tune::FunctionRunner(search.controller(), std::move(function),
                         std::vector<tune::Place>(static_cast<std::size_t>(places)),
                         {.at_ends = [&] { search.write_state_now_and_then(); }})
        .run();
    search.close();
    return search.controller().records();
}

inline std::vector<std::int64_t> reports_of(const std::vector<tune::TrialRecord>& trials) {
    std::vector<std::int64_t> reports;
    for (const auto& trial : trials) {
        reports.push_back(trial.reports);
    }
    return reports;
}

} // namespace test
