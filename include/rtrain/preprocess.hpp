// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preprocessors: fitted once to the rows of a data set, then applied to each batch. Names and
/// behavior follow ray.data.preprocessors. Guide: docs/data.md
///
/// @code
/// namespace prep = rtrain::preprocess;
/// prep::Chain chain(prep::OneHotEncoder({"color"}), prep::StandardScaler({"age"}),
///                   prep::Concatenator({"age", "color"}, {.dtype = torch::kFloat}));
/// worker.fit(chain, "train"); // all ranks read, and get the same bits
/// for (const auto& batch : worker.dataset_shard("train").batches({.size = 32})) {
///     const auto x = chain.transform(batch)["concat_out"];
/// }
/// @endcode
#pragma once

#include <rtrain/preprocess/chain.hpp>
#include <rtrain/preprocess/character_tokenizer.hpp>
#include <rtrain/preprocess/concatenator.hpp>
#include <rtrain/preprocess/encoders.hpp>
#include <rtrain/preprocess/imputer.hpp>
#include <rtrain/preprocess/scalers.hpp>
#include <rtrain/preprocess/tokenizer.hpp>
