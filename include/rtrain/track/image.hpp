// SPDX-License-Identifier: Apache-2.0
/// @file
/// Images in reports, for TensorBoard and report.html. Guide: docs/tracking.md.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <string>

namespace at {
class Tensor;
}

namespace rtrain::track {

/// The largest height and width of an image.
inline constexpr int longest_image = 4096;

/// Pixels as a value of a report, a text that has them as a PNG file:
///
/// @code
/// worker.report({{"loss", loss}, {"sample", rtrain::track::image(batch["image"][0])}});
/// @endcode
///
/// Of shape [height, width] or [1, height, width] they are grey, of [3, height, width] red, green
/// and blue. Their type is uint8, from 0 to 255, or a floating-point one, from 0 to 1: what is
/// outside is cut off, NaN is 0. On any device; it waits for what computes them. Call it where it
/// is needed, on rank 0: it packs the pixels, and result.json grows by them. Throws Error [RT-V81]
/// for other shapes or types, and more than longest_image in height or width.
[[nodiscard]] std::string image(const at::Tensor& pixels);

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/image_definitions.hpp>
#endif
