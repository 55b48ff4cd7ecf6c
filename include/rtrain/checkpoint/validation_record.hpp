// SPDX-License-Identifier: Apache-2.0
/// @file
/// The validation record in a checkpoint's directory: pending, or the result. A small file next to
/// the manifest, because a manifest never changes.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/format/checksummed_json.hpp>

#include <boost/json/object.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::checkpoint {

inline constexpr const char* validation_file = ".validation.json";

struct ValidationRecord {
    CheckpointStatus status = CheckpointStatus::pending_validation;
    Config task{};                     ///< the request, while pending
    std::optional<double> timeout_s{}; ///< its limit
    Config metrics{};                  ///< the result, when validated
    std::string message{};             ///< the reason for a missing result
};

[[nodiscard]] inline std::string validation_text(const ValidationRecord& record) {
    Config text{{"status", to_string(record.status)}};
    if (record.status == CheckpointStatus::pending_validation) {
        text["task"] = record.task;
        if (record.timeout_s) {
            text["timeout_s"] = *record.timeout_s;
        }
    } else {
        text["metrics"] = record.metrics;
        text["message"] = record.message;
    }
    return with_checksum(std::move(text));
}

/// Throws std::exception for text that is malformed or damaged.
[[nodiscard]] inline ValidationRecord parse_validation(std::string_view text) {
    const Config fields = parse_checked(text);
    ValidationRecord record;
    record.status = checkpoint_status(fields.at("status").as_string());
    if (record.status == CheckpointStatus::pending_validation) {
        record.task = fields.at("task").as_object();
        if (const auto* const limit = fields.if_contains("timeout_s")) {
            record.timeout_s = limit->to_number<double>();
        }
    } else {
        record.metrics = fields.at("metrics").as_object();
        record.message = fields.at("message").as_string();
    }
    return record;
}

} // namespace rtrain::checkpoint
