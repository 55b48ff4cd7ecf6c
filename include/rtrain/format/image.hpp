// SPDX-License-Identifier: Apache-2.0
/// @file
/// What decoders and encoders of images have in common.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace rtrain::format {

/// Each PNG file begins with it.
inline constexpr std::string_view png_begin = "\x89PNG\r\n\x1a\n";

/// What is wrong with an image.
class ImageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// In pixels.
struct ImageSize {
    std::int64_t height = 0;
    std::int64_t width = 0;
    friend bool operator==(const ImageSize&, const ImageSize&) = default;

    [[nodiscard]] std::int64_t pixels() const noexcept { return height * width; }
};

/// What a pixel is: one byte of light, or red, green and blue.
enum class ImageMode : unsigned char { grey, rgb };

[[nodiscard]] inline std::int64_t channels_of(ImageMode mode) noexcept {
    return mode == ImageMode::grey ? 1 : 3;
}

/// The light of a pixel of three bytes, or of 16 bits each, as Pillow computes it: ITU-R 601 in
/// parts of 2^16.
template <class Sample>
[[nodiscard]] Sample grey_of(const Sample* rgb) noexcept {
    constexpr std::uint32_t half = 1U << 15U;
    return static_cast<Sample>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + half) >> 16U);
}

} // namespace rtrain::format
