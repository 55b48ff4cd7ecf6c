// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the bytes of a pickle sequentially. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::checkpoint::pickle {

class Bytes {
public:
    explicit Bytes(std::span<const char> pickle) : pickle_(pickle) {}

    /// Returns the error for a malformed pickle.
    [[nodiscard]] std::invalid_argument malformed() const {
        return std::invalid_argument("its pickle is malformed at byte " + std::to_string(place_));
    }

protected:
    [[nodiscard]] std::span<const char> take(std::uint64_t bytes) {
        if (bytes > pickle_.size() - place_) {
            throw std::invalid_argument("its pickle is cut off");
        }
        place_ += static_cast<std::size_t>(bytes);
        return pickle_.subspan(place_ - static_cast<std::size_t>(bytes),
                               static_cast<std::size_t>(bytes));
    }
    /// Reads a little-endian number.
    [[nodiscard]] std::uint64_t number(std::size_t bytes) {
        std::uint64_t value = 0;
        const auto from = take(bytes);
        for (std::size_t i = 0; i < bytes; ++i) {
            value |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
        }
        return value;
    }
    [[nodiscard]] std::string_view line() {
        const auto begin = pickle_.begin() + static_cast<std::ptrdiff_t>(place_);
        const auto end = std::find(begin, pickle_.end(), '\n');
        if (end == pickle_.end()) {
            throw std::invalid_argument("its pickle is cut off");
        }
        const auto text = take(static_cast<std::uint64_t>(end - begin) + 1);
        return {text.data(), text.size() - 1};
    }

    [[nodiscard]] std::size_t place() const noexcept { return place_; }
    /// Offset of bytes that were read before, and the inverse.
    [[nodiscard]] std::uint64_t offset_of(std::span<const char> taken) const {
        return static_cast<std::uint64_t>(taken.data() - pickle_.data());
    }
    [[nodiscard]] const char* at(std::uint64_t offset) const { return pickle_.data() + offset; }

private:
    std::span<const char> pickle_;
    std::size_t place_ = 0;
};

} // namespace rtrain::checkpoint::pickle
