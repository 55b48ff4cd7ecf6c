// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes and reads Protocol Buffers messages (https://protobuf.dev/programming-guides/encoding)
/// field by field; the caller supplies field numbers and types. Cost tier 0: std only.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain::protobuf {

static_assert(std::endian::native == std::endian::little);

/// Writes a message field by field.
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
    /// Appends a string, bytes or an embedded message.
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

/// Reads a message field by field, up to the first malformed one.
class Fields {
public:
    explicit Fields(std::string_view text) : rest_(text) {}

    struct Field {
        unsigned number = 0;
        std::uint64_t value = 0;  ///< for numbers
        std::string_view bytes{}; ///< for all other types
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

} // namespace rtrain::protobuf
