// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door any_replica.hpp.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/typed_config.hpp>
#include <rtrain/creators/any_replica.hpp>

#include <ATen/Functions.h>

#include <boost/json/array.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rtrain::detail {

RTRAIN_DOOR void DeviceSum::add(const at::Tensor& scalar, std::int64_t weight) {
    const at::Tensor value = scalar.detach();
    if (value.is_cpu()) {
        known_ += value.item<double>() * static_cast<double>(weight);
        return;
    }
    const at::Tensor part = value.to(at::kDouble) * weight;
    on_device_ = on_device_.defined() ? on_device_ + part : part;
}
RTRAIN_DOOR void DeviceSum::reset(double total) {
    known_ = total;
    on_device_.reset();
}
RTRAIN_DOOR double DeviceSum::total() const {
    return on_device_.defined() ? known_ + on_device_.item<double>() : known_;
}

RTRAIN_DOOR void BatchSums::save(StateWriter& out) const {
    out.value("counts", boost::json::array{batches, rows});
    out.value("sums", boost::json::array{loss.total(), data, forward, backward, step});
}
RTRAIN_DOOR void BatchSums::load(const StateReader& in) {
    const auto counts = in.value("counts").as_array();
    batches = counts.at(0).to_number<std::int64_t>();
    rows = counts.at(1).to_number<std::int64_t>();
    const auto sums = in.value("sums").as_array();
    loss.reset(json::number(sums.at(0)).value());
    std::size_t index = 1;
    for (double* const sum : {&data, &forward, &backward, &step}) {
        *sum = json::number(sums.at(index++)).value();
    }
}

/// Returns the sums over all ranks. *Collective.*
[[nodiscard]] inline std::vector<double> sums_of_all(WorkerLoops& worker,
                                                     std::vector<double> sums) {
    at::Tensor all = at::tensor(sums, at::kDouble);
    worker.all_reduce(all);
    const auto* const first = all.const_data_ptr<double>();
    return {first, first + all.numel()};
}

RTRAIN_DOOR TrainStats train_stats(WorkerLoops& worker, const BatchSums& sums,
                                   double learning_rate) {
    const auto all =
        sums_of_all(worker, {static_cast<double>(sums.batches), static_cast<double>(sums.rows),
                             sums.loss.total(), sums.data, sums.forward, sums.backward, sums.step});
    const double batches = std::max(all[0], 1.0);
    TrainStats stats{.batch_count = static_cast<std::int64_t>(all[0]) / worker.size(),
                     .batch_processed = static_cast<std::int64_t>(all[1]),
                     .data_time = all[3] / batches,
                     .fwd = all[4] / batches,
                     .grad = all[5] / batches,
                     .apply = all[6] / batches,
                     .train_loss = all[2] / std::max(all[1], 1.0),
                     .learning_rate = learning_rate};
    stats.batch_time = stats.data_time + stats.fwd + stats.grad + stats.apply;
    return stats;
}

RTRAIN_DOOR ValidationStats validation_stats(WorkerLoops& worker, const BatchSums& sums) {
    const auto all = sums_of_all(worker, {static_cast<double>(sums.batches),
                                          static_cast<double>(sums.rows), sums.loss.total(),
                                          sums.correct.total(), sums.has_classes ? 1.0 : 0.0});
    const double rows = std::max(all[1], 1.0);
    ValidationStats stats{.batch_count = static_cast<std::int64_t>(all[0]) / worker.size(),
                          .validation_loss = all[2] / rows,
                          .mean_loss = all[2] / rows};
    if (all[4] > 0) {
        stats.mean_accuracy = all[3] / rows;
    }
    return stats;
}

RTRAIN_DOOR Config metrics_of(const ValidationStats& stats) {
    Config metrics = to_config(stats);
    if (!stats.mean_accuracy) {
        metrics.erase("mean_accuracy");
    }
    return metrics;
}

} // namespace rtrain::detail
