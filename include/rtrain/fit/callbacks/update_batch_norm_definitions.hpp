// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door update_batch_norm.hpp.
#pragma once

#include <rtrain/fit/callbacks/update_batch_norm.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm.hpp>

#include <torch/nn/modules/batchnorm.h>

#include <cstdint>
#include <exception>

namespace rtrain::detail {

RTRAIN_DOOR BatchNormStatistics::BatchNormStatistics(torch::nn::Module& model) {
    for (const auto& part : model.modules()) {
        modes_.emplace_back(part, part->is_training());
        const auto add = [&](auto* const norm) {
            if (norm == nullptr || !norm->running_mean.defined()) {
                return;
            }
            norm->reset_running_stats();
            std::optional<double>& momentum = norm->options.momentum();
            norms_.push_back({norm->running_mean, norm->running_var, norm->num_batches_tracked,
                              &momentum, momentum});
            momentum.reset(); // the cumulative mean
        };
        add(part->template as<torch::nn::BatchNorm1dImpl>());
        add(part->template as<torch::nn::BatchNorm2dImpl>());
        add(part->template as<torch::nn::BatchNorm3dImpl>());
        add(part->template as<SyncBatchNormImpl>());
    }
    model.train();
}

RTRAIN_DOOR BatchNormStatistics::~BatchNormStatistics() {
    for (const Norm& norm : norms_) {
        *norm.momentum = norm.before;
    }
    for (const auto& [part, trains] : modes_) { // parents first: train() applies to children
        part->train(trains);
    }
}

RTRAIN_DOOR void BatchNormStatistics::reduce(WorkerCollectives& worker) {
    for (const Norm& norm : norms_) {
        const auto mine = norm.batches.item<std::int64_t>();
        const auto all = worker.all_reduce(mine);
        if (all == 0) { // forward has not reached it
            continue;
        }
        for (at::Tensor statistics : {norm.mean, norm.variance}) {
            statistics.mul_(static_cast<double>(mine) / static_cast<double>(all));
            worker.all_reduce(statistics);
        }
        norm.batches.fill_(all);
    }
}

} // namespace rtrain::detail
