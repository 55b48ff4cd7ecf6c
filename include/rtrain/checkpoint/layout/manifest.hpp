// SPDX-License-Identifier: Apache-2.0
/// @file
/// manifest.json: the contents of a checkpoint, and the metrics of the report that created it. A
/// directory is an rtrain checkpoint if and only if it has a manifest that matches its files.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/format/checksummed_json.hpp>
#include <rtrain/version.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::checkpoint {

inline constexpr const char* manifest_file = "manifest.json";

struct Manifest {
    std::int64_t index = 0; ///< counts the checkpoints of a run, from 0
    int ranks = 1;          ///< that wrote it
    boost::json::object metrics;
    Contents contents;
};

[[nodiscard]] inline std::string manifest_text(const Manifest& manifest) {
    boost::json::object text{{"format", "rtrain-checkpoint"},    {"version", 2},
                             {"rtrain_version", RTRAIN_VERSION}, {"index", manifest.index},
                             {"ranks", manifest.ranks},          {"metrics", manifest.metrics}};
    for (auto& item : to_json(manifest.contents)) {
        text[item.key()] = std::move(item.value());
    }
    return with_checksum(std::move(text));
}

/// True if a manifest.json was written by rtrain.
[[nodiscard]] inline bool is_manifest(std::string_view text) {
    return text.find("\"rtrain-checkpoint\"") != std::string_view::npos;
}

/// Reads a manifest; `name` is for messages. Throws CheckpointError: RT-K1 it is not from rtrain,
/// RT-K2 it is damaged.
[[nodiscard]] inline Manifest parse_manifest(std::string_view text,
                                             const std::string& name = manifest_file) {
    if (!is_manifest(text)) {
        throw CheckpointError("RT-K1", name + " was not written by rtrain");
    }
    const auto damaged = [&](const char* why) {
        return CheckpointError("RT-K2", detail::concat(name, " is damaged: ", why));
    };
    const boost::json::object fields = detail::parsed([&] { return parse_checked(text); }, damaged);
    const auto* const version = fields.if_contains("version");
    if (version == nullptr || *version != 2) {
        throw CheckpointError("RT-K1",
                              detail::concat(name,
                                             " has a different format than this rtrain reads; use "
                                             "the rtrain that wrote it, or a newer one than ",
                                             RTRAIN_VERSION));
    }
    const auto manifest = [&]() -> Manifest {
        const auto index = fields.at("index").to_number<std::int64_t>();
        if (index < 0 || index > std::numeric_limits<std::int64_t>::max() / 2) {
            throw std::invalid_argument("its index is impossible"); // others are counted from it
        }
        return {index, fields.at("ranks").to_number<int>(), fields.at("metrics").as_object(),
                contents_from(fields, Listed::completely)};
    };
    return detail::parsed(manifest, damaged);
}

} // namespace rtrain::checkpoint
