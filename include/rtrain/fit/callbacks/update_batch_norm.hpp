// SPDX-License-Identifier: Apache-2.0
/// @file
/// update_batch_norm(): statistics of batch norms for weights that they were not trained with.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/train/worker_collectives.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

/// While it lives, batch norms average the statistics of batches, all with the same weight.
class BatchNormStatistics {
public:
    explicit BatchNormStatistics(torch::nn::Module& model);
    BatchNormStatistics(const BatchNormStatistics&) = delete;
    BatchNormStatistics& operator=(const BatchNormStatistics&) = delete;
    ~BatchNormStatistics();

    /// Combines the ranks' averages. *Collective.*
    void reduce(WorkerCollectives& worker);

private:
    struct Norm {
        at::Tensor mean;
        at::Tensor variance;
        at::Tensor batches;
        std::optional<double>* momentum; ///< of its options
        std::optional<double> before;    ///< momentum
    };
    std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
    std::vector<Norm> norms_;
};

} // namespace detail

/// Computes the running statistics of the model's batch norms again, as the mean over the batches
/// of all ranks, like torch.optim.swa_utils.update_bn. `forward(batch)` runs the module's forward,
/// not the handle's, which would give all ranks rank 0's statistics. *Collective.*
///
/// @code
/// auto averaged = swa.applied();
/// rtrain::update_batch_norm(worker, *model, batches,
///                           [&](const auto& batch) { model->forward(batch["image"]); });
/// @endcode
template <class Batches, class Forward>
void update_batch_norm(WorkerCollectives& worker, torch::nn::Module& model, Batches&& batches,
                       const Forward& forward) {
    const c10::NoGradGuard no_grad;
    detail::BatchNormStatistics statistics(model);
    for (const auto& batch : batches) {
        forward(batch);
    }
    statistics.reduce(worker);
}

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/callbacks/update_batch_norm_definitions.hpp>
#endif
