// SPDX-License-Identifier: Apache-2.0
/// @file
/// Batch normalisation over the batches of all ranks: `rtrain::SyncBatchNorm`.
///
/// Mean and variance of the global batch come from each rank's count, mean and variance (Chan,
/// Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
/// 1979), so ranks may have batches of different sizes. Backward adds up two sums per channel over
/// ranks (Ioffe and Szegedy, "Batch normalization", 2015, section 3). One collective each, as in
/// PyTorch's SyncBatchNorm.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <cstddef>
#include <memory>
#include <ostream>
#include <utility>

namespace rtrain {

namespace detail {

struct BatchStatistics;

/// The ranks, in a form that autograd can hold.
struct BatchNormRanks : torch::CustomClassHolder {
    explicit BatchNormRanks(std::shared_ptr<AnyBackend> ranks) : backend(std::move(ranks)) {}
    std::shared_ptr<AnyBackend> backend;
};

} // namespace detail

/// Batch normalisation over the channels of an input (N, C) or (N, C, ...); the options are those
/// of torch::nn::BatchNorm, and so are the names of parameters and buffers in a checkpoint.
///
/// `prepare(model)` connects it to the other ranks for as long as a handle of the model lives. On
/// one rank, in evaluation mode and when not connected, it is torch::nn::BatchNorm. Connected and
/// in training mode, it normalises with mean and variance
/// of all ranks' batches, which may differ in size or be empty; all ranks must then run forward and
/// backward together. A clone is not connected.
///
/// @code
/// struct NetImpl : torch::nn::Module {
///     torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(3, 64, 3));
///     rtrain::SyncBatchNorm norm = register_module("norm", rtrain::SyncBatchNorm(64));
/// };
/// @endcode
class SyncBatchNormImpl : public torch::nn::BatchNormImplBase<0, SyncBatchNormImpl> {
    using Base = torch::nn::BatchNormImplBase<0, SyncBatchNormImpl>;
    using Ranks = c10::intrusive_ptr<detail::BatchNormRanks>;

public:
    using Base::Base;

    /// Shares the options, parameters and values of a torch::nn::BatchNorm.
    template <std::size_t D, class Derived>
    explicit SyncBatchNormImpl(const torch::nn::BatchNormImplBase<D, Derived>& other)
        : Base(other.options) {
        if (options.affine()) {
            parameters_["weight"] = weight = other.weight;
            parameters_["bias"] = bias = other.bias;
        }
        if (options.track_running_stats()) {
            running_mean.set_data(other.running_mean);
            running_var.set_data(other.running_var);
            num_batches_tracked.set_data(other.num_batches_tracked);
        }
        train(other.is_training());
    }

    /// Collective when connected and in training mode. Throws ModelError: RT-M13 for an input of a
    /// different shape, RT-M14 for one value or none in a channel of all ranks' batches.
    at::Tensor forward(const at::Tensor& input);

    /// Prints like torch::nn::BatchNorm2d.
    void pretty_print(std::ostream& stream) const override;

    /// Normalises over these ranks from now on, for as long as `ranks` is held elsewhere; null:
    /// over this rank only.
    void connect(const Ranks& ranks) {
        connection_.ranks = c10::weak_intrusive_ptr<detail::BatchNormRanks>(ranks);
    }

protected:
    void _check_input_dim(const at::Tensor& input) override;

private:
    /// Copies of a module are not connected: they may run on one rank alone.
    struct Connection {
        Connection() = default;
        Connection(const Connection& /*other*/) {}
        Connection& operator=(const Connection& /*other*/) { return *this; }
        ~Connection() = default;
        c10::weak_intrusive_ptr<detail::BatchNormRanks> ranks{Ranks()};
    };

    void update_running(const detail::BatchStatistics& statistics);

    Connection connection_;
};
TORCH_MODULE(SyncBatchNorm);

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/model/batch_norm/sync_batch_norm_definitions.hpp>
#endif
