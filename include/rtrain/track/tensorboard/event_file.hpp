// SPDX-License-Identifier: Apache-2.0
/// @file
/// TensorBoard's event file format: protocol buffers in records with masked checksums. Fields are
/// those of TensorFlow's event.proto and summary.proto.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/format/protobuf.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track::event {

using protobuf::Fields;
using protobuf::Message;

[[nodiscard]] inline std::uint32_t masked_checksum(std::string_view bytes) {
    return std::rotr(checkpoint::crc32c(bytes), 15) + 0xa282ead8U;
}

/// An event as a record of a file.
[[nodiscard]] inline std::string record(const Message& event) {
    const std::uint64_t size = event.text().size();
    std::string text(sizeof size, '\0');
    std::memcpy(text.data(), &size, sizeof size);
    const auto add = [&](std::uint32_t checksum) {
        text.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
    };
    add(masked_checksum(text));
    text += event.text();
    add(masked_checksum(event.text()));
    return text;
}

/// The next event in a file; none at its end or at damage.
[[nodiscard]] inline std::optional<std::string> next_event(std::istream& file) {
    constexpr std::uint64_t largest = std::uint64_t{1} << 30;
    const auto read = [&file](std::uint64_t bytes) {
        std::string text(bytes, '\0');
        file.read(text.data(), static_cast<std::streamsize>(bytes));
        return file ? std::optional(std::move(text)) : std::nullopt;
    };
    const auto is_followed_by_checksum = [&read](const std::string& bytes) {
        std::uint32_t checksum = 0;
        const auto text = read(sizeof checksum);
        if (text) {
            std::memcpy(&checksum, text->data(), sizeof checksum);
        }
        return text && checksum == masked_checksum(bytes);
    };
    std::uint64_t size = 0;
    const auto head = read(sizeof size);
    if (!head || !is_followed_by_checksum(*head)) {
        return std::nullopt;
    }
    std::memcpy(&size, head->data(), sizeof size);
    auto event = size <= largest ? read(size) : std::nullopt;
    return event && is_followed_by_checksum(*event) ? std::move(event) : std::nullopt;
}

/// An event of `step`, made at `time_s` seconds since 1970.
[[nodiscard]] inline Message at(double time_s, std::int64_t step) {
    Message event;
    event.real(1, time_s).number(2, static_cast<std::uint64_t>(step));
    return event;
}

/// The first record of each file.
[[nodiscard]] inline std::string file_version(double time_s) {
    return record(Message().real(1, time_s).bytes(3, "brain.Event:2"));
}

/// A START event: readers discard events of earlier files with this step or a later one.
[[nodiscard]] inline std::string start(double time_s, std::int64_t step) {
    constexpr unsigned start_status = 1;
    return record(at(time_s, step).bytes(7, Message().number(1, start_status).text()));
}

/// The parts of an event that are needed to continue after it.
struct Seen {
    std::int64_t step = 0;
    bool is_start = false;
};
[[nodiscard]] inline Seen look_at(std::string_view event) {
    Seen seen;
    Fields fields(event);
    while (const auto field = fields.next()) {
        if (field->number == 2) {
            seen.step = static_cast<std::int64_t>(field->value);
        }
        seen.is_start = seen.is_start || field->number == 7;
    }
    return seen;
}

} // namespace rtrain::track::event
