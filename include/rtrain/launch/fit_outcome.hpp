// SPDX-License-Identifier: Apache-2.0
/// @file
/// The outcome of a fit() call, as one process records it in a file for the others
/// (launch/session.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/journal/result.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

/// The resulting run, or the error.
struct FitOutcome {
    std::filesystem::path run{};
    std::optional<Failure> failure{};
    std::vector<Failure> of_ranks{}; ///< TrainingFailedError::failures

    /// Returns the Result, or throws the error. `filesystem`: that of the run, unless local.
    [[nodiscard]] Result get(const std::optional<storage::AnyFilesystem>& filesystem) const {
        if (!failure) {
            return Result::from_path(run, filesystem);
        }
        if (!of_ranks.empty()) {
            throw TrainingFailedError(failure->message, of_ranks);
        }
        detail::throw_error(*failure);
    }

    /// Converts an exception.
    [[nodiscard]] static FitOutcome of(const std::exception& exception) {
        FitOutcome ending{.failure = detail::failure_of(exception)};
        if (const auto* const failed = dynamic_cast<const TrainingFailedError*>(&exception)) {
            ending.of_ranks = failed->failures();
        }
        return ending;
    }

    [[nodiscard]] bool has_code(ErrorCode code) const { return failure && failure->code == code; }
    /// True for a TrainingFailedError in which processes have died.
    [[nodiscard]] bool tells_of_deaths() const {
        return std::any_of(of_ranks.begin(), of_ranks.end(), [](const Failure& of_rank) {
            return of_rank.kind == Failure::Kind::died;
        });
    }
};

[[nodiscard]] inline boost::json::object to_json(const FitOutcome& ending) {
    boost::json::object object{{"run", ending.run.string()}};
    if (ending.failure) {
        object["failure"] = to_json(*ending.failure);
    }
    boost::json::array of_ranks;
    for (const Failure& failure : ending.of_ranks) {
        of_ranks.push_back(to_json(failure));
    }
    object["of_ranks"] = std::move(of_ranks);
    return object;
}

/// Parses the format from before Failure: code and message next to the run, texts of ranks.
[[nodiscard]] inline FitOutcome ending_from_texts(const boost::json::object& object) {
    FitOutcome ending{.run = std::string(object.at("run").as_string())};
    if (!object.at("code").as_string().empty()) {
        ending.failure = failure_from(object);
    }
    const auto& died = object.at("died").as_array();
    for (const auto& item : object.at("worker_failures").as_object()) {
        Failure failure{.rank = std::stoi(std::string(item.key())),
                        .message = std::string(item.value().as_string())};
        if (std::find(died.begin(), died.end(), boost::json::value(failure.rank)) != died.end()) {
            failure.kind = Failure::Kind::died;
        }
        ending.of_ranks.push_back(std::move(failure));
    }
    return ending;
}

[[nodiscard]] inline FitOutcome ending_from(const boost::json::object& object) {
    if (object.contains("code")) {
        return ending_from_texts(object);
    }
    FitOutcome ending{.run = std::string(object.at("run").as_string())};
    if (const auto* const failure = object.if_contains("failure")) {
        ending.failure = failure_from(failure->as_object());
    }
    for (const auto& failure : object.at("of_ranks").as_array()) {
        ending.of_ranks.push_back(failure_from(failure.as_object()));
    }
    return ending;
}

} // namespace rtrain::launch
