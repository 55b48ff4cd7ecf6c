// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decodes JPEG and PNG files in memory to planes of pixels. Part of the component images.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/format/image.hpp>
#include <rtrain/format/jpeg.hpp>
#include <rtrain/format/png.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::data {

using format::ImageMode;
using format::ImageSize;

/// Decodes images of any size into planes of one size.
class ImageDecoder {
public:
    /// `bits`: as in ImageOptions.
    ImageDecoder(ImageMode mode, std::int64_t max_pixels, int bits = 0)
        : channels_(format::channels_of(mode)), mode_(mode), max_pixels_(max_pixels), bits_(bits) {}

    /// The type of plane elements: bytes, or int32.
    [[nodiscard]] at::ScalarType type() const noexcept {
        return bits_ == 16 ? at::kInt : at::kByte;
    }

    /// Bytes of the planes of an image of this size.
    [[nodiscard]] std::size_t bytes_of(ImageSize size) const noexcept {
        return values_of(size) * c10::elementSize(type());
    }

    /// The size of an image in a file. Throws DataError [RT-D80, RT-D81]; `name` is the file's.
    [[nodiscard]] ImageSize size_of(std::string_view file, const std::string& name) const {
        ImageSize size;
        with_image(file, name, [&](const auto& image) { size = image.size(); });
        return size;
    }

    /// Writes channels of height × width elements of type() each to `planes`. An image of a
    /// different size is resized, or throws DataError [RT-D82] if `may_resize` is false. Also
    /// throws as size_of().
    void decode(std::string_view file, const std::string& name, ImageSize size, bool may_resize,
                std::uint8_t* planes) const {
        with_image(file, name, [&](auto& image) {
            if (bits_ == 16 && (image.size() == size || may_resize)) {
                decode_wide(image, size, planes);
            } else if (image.size() == size) {
                decode_as_is(image, planes);
            } else if (may_resize) {
                decode_resized(image, size, planes);
            } else {
                throw DataError(
                    "RT-D82",
                    detail::concat(name, " has ", text_of(image.size()),
                                   " pixels, the first image has ", text_of(size),
                                   "; set .size = {height, width} to resize all of them"));
            }
        });
    }

private:
    template <class Visit>
    void with_image(std::string_view file, const std::string& name, Visit&& visit) const {
        const auto visit_small = [&](auto image) {
            if (image.size().pixels() > max_pixels_) {
                throw DataError(
                    "RT-D81", detail::concat(name, " has ", text_of(image.size()),
                                             " pixels; expected at most max_pixels = ", max_pixels_,
                                             ", because it may be a decompression bomb"));
            }
            if (image.bits() > 8 && bits_ == 0) {
                throw DataError(
                    "RT-D107",
                    detail::concat(name, " has ", image.bits(),
                                   " bits a channel, which do not fit in bytes; set .bits = 16 for "
                                   "int32, or .bits = 8 for the higher 8 of them"));
            }
            visit(image);
        };
        try {
            if (format::JpegImage::is_one(file)) {
                return visit_small(format::JpegImage(file));
            }
            if (format::PngImage::is_one(file)) {
                return visit_small(format::PngImage(file));
            }
        } catch (const format::ImageError& error) {
            throw DataError("RT-D80", detail::concat("cannot read ", name, ' ', error.what(),
                                                     "; the file is damaged or truncated"));
        }
        throw DataError("RT-D80",
                        detail::concat(name,
                                       file.empty() ? " is empty"
                                                    : " is neither JPEG nor PNG, despite its name",
                                       "; remove it, or skip it with .on_error"));
    }

    template <class Image>
    void decode_as_is(Image& image, std::uint8_t* planes) const {
        if (channels_ == 1) {
            image.decode(image.size(), mode_, planes);
            return;
        }
        const auto pixels = std::make_unique_for_overwrite<std::uint8_t[]>(values_of(image.size()));
        image.decode(image.size(), mode_, pixels.get());
        const auto count = static_cast<std::size_t>(image.size().pixels());
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t channel = 0; channel < 3; ++channel) {
                planes[channel * count + i] = pixels[3 * i + channel];
            }
        }
    }

    /// Each pixel of the result is the mean of the pixels below a triangle, as in Pillow's and
    /// torchvision's bilinear filter.
    template <class Image>
    void decode_resized(Image& image, ImageSize size, std::uint8_t* planes) const {
        const ImageSize decoded = image.size_for(size);
        at::Tensor pixels = at::empty({1, decoded.height, decoded.width, channels_}, at::kByte);
        image.decode(decoded, mode_, pixels.mutable_data_ptr<std::uint8_t>());
        pixels = pixels.permute({0, 3, 1, 2});
        if (decoded != size) {
            pixels = at::_upsample_bilinear2d_aa(pixels, at::IntArrayRef{size.height, size.width},
                                                 /*align_corners=*/false, std::nullopt);
        }
        at::from_blob(planes, {1, channels_, size.height, size.width}, at::kByte).copy_(pixels);
    }

    /// Writes 16 bits a channel, in int32.
    template <class Image>
    void decode_wide(Image& image, ImageSize size, std::uint8_t* planes) const {
        const ImageSize decoded = image.size() == size ? size : image.size_for(size);
        at::Tensor pixels = at::empty({1, decoded.height, decoded.width, channels_}, at::kInt);
        auto* const target = pixels.mutable_data_ptr<std::int32_t>();
        if constexpr (requires(std::uint16_t * wide) { image.decode(decoded, mode_, wide); }) {
            std::vector<std::uint16_t> wide(values_of(decoded));
            image.decode(decoded, mode_, wide.data());
            std::ranges::copy(wide, target);
        } else {
            std::vector<std::uint8_t> bytes(values_of(decoded));
            image.decode(decoded, mode_, bytes.data());
            std::ranges::transform(bytes, target, [](std::uint8_t byte) { return byte * 257; });
        }
        pixels = pixels.permute({0, 3, 1, 2});
        if (decoded != size) {
            pixels = at::_upsample_bilinear2d_aa(pixels.to(at::kFloat),
                                                 at::IntArrayRef{size.height, size.width},
                                                 /*align_corners=*/false, std::nullopt)
                         .round_();
        }
        at::from_blob(planes, {1, channels_, size.height, size.width}, at::kInt).copy_(pixels);
    }

    [[nodiscard]] std::size_t values_of(ImageSize size) const noexcept {
        return static_cast<std::size_t>(channels_ * size.pixels());
    }

    [[nodiscard]] static std::string text_of(ImageSize size) {
        return detail::concat(size.height, " x ", size.width);
    }

    std::int64_t channels_;
    ImageMode mode_;
    std::int64_t max_pixels_;
    int bits_;
};

} // namespace rtrain::data
