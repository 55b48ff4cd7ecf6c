// SPDX-License-Identifier: Apache-2.0
/// @file
/// Types and functions shared by the image decoders and encoders.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace rtrain::format {

/// Signature at the start of each PNG file.
inline constexpr std::string_view png_begin = "\x89PNG\r\n\x1a\n";

/// An image cannot be decoded.
class ImageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Size of an image, in pixels.
struct ImageSize {
    std::int64_t height = 0;
    std::int64_t width = 0;
    friend bool operator==(const ImageSize&, const ImageSize&) = default;

    [[nodiscard]] std::int64_t pixels() const noexcept { return height * width; }
};

/// Pixel format: one byte of luminance, or three of red, green and blue.
enum class ImageMode : unsigned char { grey, rgb };

[[nodiscard]] inline std::int64_t channels_of(ImageMode mode) noexcept {
    return mode == ImageMode::grey ? 1 : 3;
}

/// Luminance of a pixel of three 8-bit or 16-bit samples, as Pillow computes it: ITU-R 601 in fixed
/// point with 16 fractional bits.
template <class Sample>
[[nodiscard]] Sample grey_of(const Sample* rgb) noexcept {
    constexpr std::uint32_t half = 1U << 15U;
    return static_cast<Sample>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + half) >> 16U);
}

} // namespace rtrain::format
