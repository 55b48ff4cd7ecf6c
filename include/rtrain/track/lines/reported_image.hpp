// SPDX-License-Identifier: Apache-2.0
/// @file
/// Images in reports: data URIs of PNG files, created from tensors by track/lines/image.hpp.
#pragma once

#include <rtrain/base/text/base64.hpp>
#include <rtrain/format/image.hpp>

#include <boost/json/value.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track {

inline constexpr std::string_view image_begin = "data:image/png;base64,";

/// True if a metric is an image. Trackers that cannot show images omit it.
[[nodiscard]] inline bool is_image(const boost::json::value& metric) {
    return metric.is_string() && std::string_view(metric.get_string()).starts_with(image_begin);
}

struct ReportedImage {
    std::string file{}; ///< PNG
    std::uint32_t height = 0;
    std::uint32_t width = 0;
    unsigned channels = 0; ///< 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA
};

/// None if the metric is not an image, or not a PNG file.
[[nodiscard]] inline std::optional<ReportedImage> image_in(const boost::json::value& metric) {
    constexpr std::size_t header = 33; // signature and IHDR
    if (!is_image(metric)) {
        return std::nullopt;
    }
    auto file = rtrain::detail::from_base64(
        std::string_view(metric.get_string()).substr(image_begin.size()));
    if (!file || file->size() < header || !file->starts_with(format::png_begin)) {
        return std::nullopt;
    }
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>((*file)[at]); };
    const auto number = [&](std::size_t at) {
        return std::uint32_t{byte(at)} << 24U | std::uint32_t{byte(at + 1)} << 16U |
               std::uint32_t{byte(at + 2)} << 8U | byte(at + 3);
    };
    constexpr unsigned channels[] = {1, 0, 3, 3, 2, 0, 4}; // by colour type
    const unsigned type = byte(25);
    const std::uint32_t height = number(20);
    const std::uint32_t width = number(16);
    if (type >= std::size(channels) || channels[type] == 0) {
        return std::nullopt;
    }
    return ReportedImage{std::move(*file), height, width, channels[type]};
}

} // namespace rtrain::track
