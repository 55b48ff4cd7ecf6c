// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data of a CreatorTrainer: the results of data_creator, as loops over pairs of tensors.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/creators/settings.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/data/torch_data.hpp>

#include <ATen/core/Tensor.h>
#include <torch/data/dataloader.h>

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rtrain::detail {

/// Called with the input and the target of a batch; returns false to end the loop.
using UsePair = std::function<bool(const at::Tensor& input, const at::Tensor& target)>;
/// Loops over the batches of this rank.
using PairLoop = std::function<void(const UsePair&)>;

/// The input and the target of a batch: the columns of the settings, or the only two. Throws
/// DataError [RT-D2], ConfigError [RT-F36].
[[nodiscard]] std::pair<at::Tensor, at::Tensor> pair_of(const data::Batch& batch,
                                                        const CreatorSettings& settings);

/// Returns the loop over a part of a data set. `settings` outlives the result.
[[nodiscard]] PairLoop loop_over(const data::Shard& shard, const data::BatchOptions& options,
                                 const CreatorSettings& settings);

/// Writes the rows of a data set to a file for ranks, durably. Throws ConfigError [RT-F36] for
/// columns other than tensors, StorageError.
void write_rows(const data::Dataset& rows, const std::filesystem::path& file);
/// Reads it. Throws CheckpointError [RT-K2], StorageError.
[[nodiscard]] data::Dataset read_rows(const std::filesystem::path& file);

template <class T>
concept TorchDataset = requires {
    typename T::BatchRequestType;
};
template <class T>
concept IsDataset = std::same_as<T, data::Dataset> || TorchDataset<T>;

[[nodiscard]] inline data::Dataset dataset_of(data::Dataset rows) {
    return rows;
}
template <TorchDataset T>
[[nodiscard]] data::Dataset dataset_of(T rows) {
    return data::from_dataset(std::move(rows));
}

/// The result of data_creator in two parts; the second may be std::nullopt.
template <class T>
[[nodiscard]] auto in_two_parts(T made) {
    if constexpr (requires { std::tuple_size<T>::value; }) {
        static_assert(std::tuple_size_v<T> == 2,
                      "rtrain: data_creator returns the training data, or a pair of it and the "
                      "validation data [RT-F42]");
        return std::pair(std::get<0>(std::move(made)), std::get<1>(std::move(made)));
    } else {
        return std::pair(std::move(made), std::nullopt);
    }
}

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/creators/data_definitions.hpp>
#endif
