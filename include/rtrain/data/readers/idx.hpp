// SPDX-License-Identifier: Apache-2.0
/// @file
/// IDX files, the format of MNIST and Fashion-MNIST, plain or gzip.
/// Format: http://yann.lecun.com/exdb/mnist/ (magic 00 00 type dimensions, sizes big-endian).
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/dataset/dataset.hpp>

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace rtrain::data {

namespace idx {

/// An IDX file of unsigned bytes as a uint8 tensor with `dimensions` dimensions. A plain file is
/// mapped: the processes of a node share its memory until they write to it, and it must not be
/// truncated meanwhile. A gzip file is unpacked into memory of this process. Throws DataError:
/// RT-D3 it cannot be opened, RT-D4 it is not such a file, RT-D5 its data does not match the length
/// in its header.
[[nodiscard]] at::Tensor read(const std::filesystem::path& path, int dimensions);

} // namespace idx

/// A part of a data set with a customary split.
enum class Split : unsigned char {
    train, ///< training data
    test   ///< test data
};

/// Images and labels from two IDX files. Columns: "image", float32 in [0, 1], shape (rows, 1,
/// height, width); "label", int64, shape (rows). Files are checked immediately, read when first
/// used, and kept as bytes, those of plain files once per node. Throws DataError as idx::read()
/// does, and at first use RT-D6 if there are not as many labels as images.
[[nodiscard]] Dataset idx_images(const std::filesystem::path& images,
                                 const std::filesystem::path& labels);

/// Fashion-MNIST (or MNIST) as distributed: train-images-idx3-ubyte and its siblings, plain or .gz,
/// in `directory`. Columns and errors as idx_images().
[[nodiscard]] Dataset fashion_mnist(const std::filesystem::path& directory, Split split);

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/readers/idx_definitions.hpp>
#endif
