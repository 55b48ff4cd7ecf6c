// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics of a model over the rows of all ranks. Names and values are those of torchmetrics 1.9.
/// Guide: docs/metrics.md
///
/// @code
/// rtrain::metric::Accuracy accuracy({.num_classes = 10});
/// auto metrics = rtrain::metric::Collection{}.add("accuracy", accuracy);
/// {
///     const torch::NoGradGuard evaluation; // each row once
///     for (const auto& batch : worker.dataset_shard("test").batches({.size = 256})) {
///         metrics.update(model(batch["image"]), batch["label"]);
///     }
/// }
/// worker.report({}, metrics);
/// @endcode
#pragma once

#include <rtrain/base/compiled_for.hpp>
#include <rtrain/metric/aggregates.hpp>
#include <rtrain/metric/calibration.hpp>
#include <rtrain/metric/classification.hpp>
#include <rtrain/metric/collection.hpp>
#include <rtrain/metric/curves.hpp>
#include <rtrain/metric/growing_collection.hpp>
#include <rtrain/metric/perplexity.hpp>
#include <rtrain/metric/regression.hpp>
