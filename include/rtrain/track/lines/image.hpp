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

/// Maximum height and width of an image, in pixels.
inline constexpr int longest_image = 4096;

/// Encodes pixels as a value of a report, a text that contains a PNG file:
///
/// @code
/// worker.report({{"loss", loss}, {"sample", rtrain::track::image(batch["image"][0])}});
/// @endcode
///
/// Shape [height, width] or [1, height, width] is grey; [3, height, width] is RGB. The type is
/// uint8, from 0 to 255, or floating-point, from 0 to 1: values outside are clamped, NaN is 0. Any
/// device; waits for pending computations. Call it only where needed, on rank 0: it compresses the
/// pixels, and result.json grows by them. Throws Error [RT-V81] for other shapes or types, and if
/// height or width exceeds longest_image.
[[nodiscard]] std::string image(const at::Tensor& pixels);

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/lines/image_definitions.hpp>
#endif
