// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door image.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/text/base64.hpp>
#include <rtrain/format/png_writer.hpp>
#include <rtrain/track/lines/image.hpp>
#include <rtrain/track/lines/reported_image.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace rtrain::track {

RTRAIN_DOOR std::string image(const at::Tensor& pixels) {
    const c10::AutoGradMode no_gradients(false);
    const auto is_fit = [&] {
        const auto is_side = [](std::int64_t size) { return size >= 1 && size <= longest_image; };
        return pixels.defined() && (pixels.dim() == 2 || pixels.dim() == 3) &&
               (pixels.dim() == 2 || pixels.size(0) == 1 || pixels.size(0) == 3) &&
               is_side(pixels.size(-2)) && is_side(pixels.size(-1)) &&
               (pixels.scalar_type() == at::kByte || at::isFloatingType(pixels.scalar_type()));
    };
    if (!is_fit()) {
        throw Error("RT-V81",
                    pixels.defined()
                        ? rtrain::detail::concat(
                              "an image has shape ", pixels.sizes(), " and type ",
                              pixels.scalar_type(),
                              "; expected [height, width], [1, height, width] or [3, height, "
                              "width] with at most ",
                              longest_image, " in each, and uint8 or a floating-point type")
                        : "an image is an undefined tensor");
    }
    at::Tensor bytes = pixels.dim() == 2 ? pixels.unsqueeze(0) : pixels;
    if (bytes.scalar_type() != at::kByte) {
        bytes = bytes.to(at::kFloat).nan_to_num(0).clamp(0, 1).mul(255).round().to(at::kByte);
    }
    bytes = bytes.permute({1, 2, 0}).cpu().contiguous();
    const auto mode = bytes.size(2) == 1 ? format::ImageMode::grey : format::ImageMode::rgb;
    return std::string(image_begin) + rtrain::detail::to_base64(format::encode_png(
                                          {.height = bytes.size(0), .width = bytes.size(1)}, mode,
                                          bytes.const_data_ptr<std::uint8_t>()));
}

} // namespace rtrain::track
