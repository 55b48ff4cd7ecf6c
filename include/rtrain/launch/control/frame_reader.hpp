// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits the stream of a control channel into frames; launch/control/message.hpp parses them.
#pragma once

#include <rtrain/base/error.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::launch {

/// Maximum number of JSON bytes in a frame.
inline constexpr std::size_t max_frame = std::size_t{1} << 20;

namespace control {

[[noreturn]] inline void malformed(const std::string& why) {
    throw LaunchError("RT-L9", "malformed message on the control channel: " + why);
}

} // namespace control

/// Splits a stream into frames. Buffers only received bytes, whatever lengths frames claim.
/// @code
/// reader.append(received);
/// while (const auto text = reader.next()) { handle(parse_from_rank(*text)); }
/// @endcode
class FrameReader {
public:
    /// Longer frames are rejected.
    explicit FrameReader(std::size_t limit = max_frame) : limit_(limit) {}

    void set_limit(std::size_t limit) noexcept { limit_ = limit; }

    void append(std::string_view bytes) {
        bytes_.erase(0, std::exchange(begin_, 0));
        bytes_.append(bytes);
    }

    /// Returns the payload of the next complete frame; empty if none is complete. Throws
    /// LaunchError [RT-L9] for a frame that is too long; then the connection is unusable.
    [[nodiscard]] std::optional<std::string> next() {
        constexpr std::size_t header = 4;
        if (bytes_.size() - begin_ < header) {
            return std::nullopt;
        }
        std::size_t length = 0;
        for (std::size_t i = 0; i < header; ++i) {
            length |= std::size_t{static_cast<unsigned char>(bytes_[begin_ + i])} << (8 * i);
        }
        if (length > limit_) {
            control::malformed(
                detail::concat("a frame of ", length, " bytes, but the limit is ", limit_));
        }
        if (bytes_.size() - begin_ - header < length) {
            return std::nullopt;
        }
        std::string text = bytes_.substr(begin_ + header, length);
        begin_ += header + length;
        return text;
    }

private:
    std::size_t limit_;
    std::string bytes_;
    std::size_t begin_ = 0; ///< of the next frame
};

} // namespace rtrain::launch
