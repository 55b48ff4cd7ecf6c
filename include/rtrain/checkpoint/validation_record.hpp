// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a checkpoint's directory says about its validation: that it waits for one, or how that
/// ended. A small file beside the manifest, because a manifest never changes.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/format/sealed_json.hpp>

#include <boost/json/object.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::checkpoint {

inline constexpr const char* validation_file = ".validation.json";

struct ValidationRecord {
    CheckpointStatus status = CheckpointStatus::pending_validation;
    Config task{};                     ///< what is asked for, while pending
    std::optional<double> timeout_s{}; ///< of that
    Config metrics{};                  ///< what it gave, when validated
    std::string message{};             ///< why it gave nothing
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
    return seal(std::move(text));
}

/// Throws std::exception for what is no such text, or damaged.
[[nodiscard]] inline ValidationRecord parse_validation(std::string_view text) {
    const Config fields = unseal(text);
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
