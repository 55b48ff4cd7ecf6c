// SPDX-License-Identifier: Apache-2.0
/// @file
/// tuner_state.json: the state of a search's trials, for tools and for ResultGrid; replaced as a
/// whole. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <cstddef>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::tune {

inline constexpr const char* tuner_state_file = "tuner_state.json";

struct TunerState {
    static constexpr const char* format = "rtrain-tuner-state";

    Goal goal{};
    std::vector<TrialRecord> trials{}; ///< in the order of their numbers
};

/// A crash leaves the old file or the new one. Trials are written one by one, because the JSON of
/// all of them would need several times their memory.
inline void write_tuner_state(const std::filesystem::path& experiment, const TunerState& state) {
    storage::replace_file_by(experiment / tuner_state_file, [&](storage::OutputFile& file) {
        constexpr std::size_t piece = std::size_t{1} << 16U;
        std::string text = json::serialize({{"format", TunerState::format},
                                            {"version", 1},
                                            {"metric", state.goal.metric},
                                            {"mode", ScoreOrder::names[state.goal.mode]}});
        text.pop_back();
        text += ",\"trials\":[";
        const char* comma = "";
        for (const TrialRecord& trial : state.trials) {
            text += std::exchange(comma, ",") + json::serialize(json::finite(to_json(trial)));
            if (text.size() > piece) {
                file.write(text);
                text.clear();
            }
        }
        file.write(text + "]}");
    });
}

/// Throws StorageError [RT-U80] when the file does not exist, [RT-U85] when it is damaged.
[[nodiscard]] inline TunerState read_tuner_state(const std::filesystem::path& experiment) {
    const auto file = experiment / tuner_state_file;
    if (!std::filesystem::exists(file)) {
        throw StorageError("RT-U80", rtrain::detail::concat(experiment.string(),
                                                            " is not a search; it has no ",
                                                            tuner_state_file));
    }
    const std::string text = storage::read_file(file);
    try {
        const auto saved = json::parse(text).as_object();
        if (saved.at("format").as_string() != TunerState::format || saved.at("version") != 1) {
            throw std::invalid_argument("the format is not supported");
        }
        TunerState state{.goal = {std::string(saved.at("metric").as_string()),
                                  std::string_view(saved.at("mode").as_string())}};
        for (const auto& trial : saved.at("trials").as_array()) {
            state.trials.push_back(trial_from_json(trial.as_object()));
        }
        return state;
    } catch (const std::exception& error) {
        throw StorageError(
            "RT-U85",
            rtrain::detail::concat(
                file.string(), " is damaged: ", error.what(),
                "; run the search again, which rewrites the file, or restore it from a backup"));
    }
}

} // namespace rtrain::tune
