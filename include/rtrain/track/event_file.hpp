// SPDX-License-Identifier: Apache-2.0
/// @file
/// The bytes of TensorBoard's event files: protocol buffers
/// (https://protobuf.dev/programming-guides/encoding) in records with masked checksums. Fields are
/// those of TensorFlow's event.proto and summary.proto.
#pragma once

#include <rtrain/base/crc32c.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track::event {

static_assert(std::endian::native == std::endian::little);

/// A message of protocol buffers, written field by field.
class Message {
public:
    Message& number(unsigned field, std::uint64_t value) {
        tag(field, 0);
        varint(value);
        return *this;
    }
    Message& real(unsigned field, double value) {
        tag(field, 1);
        raw(value);
        return *this;
    }
    Message& real(unsigned field, float value) {
        tag(field, 5);
        raw(value);
        return *this;
    }
    /// A string, bytes or another message.
    Message& bytes(unsigned field, std::string_view value) {
        tag(field, 2);
        varint(value.size());
        text_ += value;
        return *this;
    }

    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    void tag(unsigned field, unsigned wire_type) { varint(field << 3U | wire_type); }
    void varint(std::uint64_t value) {
        for (; value > 0x7f; value >>= 7U) {
            text_ += static_cast<char>(value | 0x80U);
        }
        text_ += static_cast<char>(value);
    }
    template <class T>
    void raw(T value) {
        text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }

    std::string text_;
};

/// A message read field by field, as far as it is well-formed.
class Fields {
public:
    explicit Fields(std::string_view text) : rest_(text) {}

    struct Field {
        unsigned number = 0;
        std::uint64_t value = 0;  ///< of a number
        std::string_view bytes{}; ///< of everything else
    };

    std::optional<Field> next() {
        const auto tag = varint();
        if (!tag) {
            return std::nullopt;
        }
        Field field{.number = static_cast<unsigned>(*tag >> 3U)};
        std::optional<std::uint64_t> size;
        switch (*tag & 7U) {
        case 0:
            size = varint();
            field.value = size.value_or(0);
            return size ? std::optional(field) : std::nullopt;
        case 1:
            size = 8;
            break;
        case 2:
            size = varint();
            break;
        case 5:
            size = 4;
            break;
        default:
            break;
        }
        if (!size || *size > rest_.size()) {
            return std::nullopt;
        }
        field.bytes = rest_.substr(0, *size);
        rest_.remove_prefix(*size);
        return field;
    }

private:
    std::optional<std::uint64_t> varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
            const auto byte = static_cast<unsigned char>(rest_.front());
            rest_.remove_prefix(1);
            value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
            if (byte < 0x80) {
                return value;
            }
        }
        return std::nullopt;
    }

    std::string_view rest_;
};

[[nodiscard]] inline std::uint32_t masked_checksum(std::string_view bytes) {
    return std::rotr(checkpoint::crc32c(bytes), 15) + 0xa282ead8U;
}

/// An event as it stands in a file.
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

/// The next event of a file; none at its end, and where it is damaged.
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

/// What each file begins with.
[[nodiscard]] inline std::string file_version(double time_s) {
    return record(Message().real(1, time_s).bytes(3, "brain.Event:2"));
}

/// Of all files before, readers forget what is of this step or a later one.
[[nodiscard]] inline std::string start(double time_s, std::int64_t step) {
    constexpr unsigned start_status = 1;
    return record(at(time_s, step).bytes(7, Message().number(1, start_status).text()));
}

/// What is to be known of an event to go on behind it.
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
