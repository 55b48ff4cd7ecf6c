// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door sync_batch_norm.hpp.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm.hpp>
#include <rtrain/process/status/user_call.hpp>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

/// The type for sums over an input: float32 for 16-bit types.
[[nodiscard]] inline at::ScalarType computing_type(const at::Tensor& input) {
    return at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

/// Statistics of the batch of all ranks.
struct BatchStatistics {
    at::Tensor mean;     ///< by channel, float64
    at::Tensor variance; ///< biased
    at::Tensor count;    ///< values in a channel; a scalar, float64
};

/// Throws ModelError [RT-M14] unless a channel has several values. The host waits for the device
/// only if this rank has at most one: otherwise all ranks together have several.
inline void require_several_values(const at::Tensor& input, const at::Tensor& count) {
    if (input.numel() > input.size(1)) {
        return;
    }
    if (const auto values = count.item<double>(); values <= 1) {
        throw ModelError("RT-M14", concat("SyncBatchNorm needs more than one value in a channel to "
                                          "train, but the batches of all ranks hold ",
                                          values, "; use larger batches"));
    }
}

/// Collective. `input` is (N, C, ...), where N may be 0.
[[nodiscard]] inline BatchStatistics batch_statistics(const at::Tensor& input,
                                                      const BatchNormRanks& ranks) {
    const std::int64_t channels = input.size(1);
    at::Tensor mine = at::zeros({2 * channels + 1}, input.options().dtype(at::kDouble));
    if (input.numel() > 0) {
        // The running values, unused here, determine the type of the result.
        const at::Tensor none = at::zeros({channels}, input.options().dtype(computing_type(input)));
        const auto [mean, variance] =
            at::batch_norm_update_stats(input, none, none.clone(), /*momentum=*/0);
        mine.slice(0, 0, channels).copy_(mean);
        mine.slice(0, channels, 2 * channels).copy_(variance);
        mine[2 * channels] = input.numel() / channels;
    }
    const UserCall::In in(UserCall::forward);
    const at::Tensor all = ranks.backend->all_gather(mine);
    const at::Tensor means = all.slice(1, 0, channels);
    const at::Tensor variances = all.slice(1, channels, 2 * channels);
    const at::Tensor counts = all.slice(1, 2 * channels);
    const at::Tensor count = counts.sum();
    const at::Tensor mean = (means * counts).sum(0) / count;
    const at::Tensor variance = ((variances + (means - mean).square()) * counts).sum(0) / count;
    return {mean, variance, count};
}

struct Normalization {
    BatchStatistics statistics;
    double eps;
    c10::intrusive_ptr<BatchNormRanks> ranks;
};

/// Normalises with given statistics; they are functions of the input in backward.
class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
public:
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const Normalization& by) {
        const BatchStatistics& statistics = by.statistics;
        const at::Tensor mean = statistics.mean.to(computing_type(input));
        const at::Tensor variance = statistics.variance.to(computing_type(input));
        context->save_for_backward(
            {input, weight, mean, (variance + by.eps).rsqrt(), statistics.count});
        context->saved_data["ranks"] = c10::IValue::make_capsule(by.ranks);
        if (input.numel() == 0) {
            return at::empty_like(input);
        }
        return std::get<0>(at::native_batch_norm(input, weight.to(computing_type(input)),
                                                 bias.to(computing_type(input)), mean, variance,
                                                 /*training=*/false, /*momentum=*/0, by.eps));
    }

    static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                            const std::vector<at::Tensor>& gradients) {
        if (at::GradMode::is_enabled()) {
            throw ModelError("RT-M15", "SyncBatchNorm has no second derivatives, but backward ran "
                                       "with create_graph; use torch::nn::BatchNorm there");
        }
        const auto saved = context->get_saved_variables();
        const at::Tensor& input = saved[0];
        const at::Tensor& weight = saved[1];
        const at::Tensor& mean = saved[2];
        const at::Tensor& inv_std = saved[3];
        const at::Tensor& count = saved[4];
        const std::int64_t channels = input.size(1);
        // Sums by channel, over this rank's values: of the output's gradient, and of its product
        // with the normalised input.
        at::Tensor sums = at::zeros({2 * channels}, mean.options());
        at::Tensor of_bias = sums.slice(0, 0, channels);
        at::Tensor of_weight = sums.slice(0, channels);
        if (input.numel() > 0) {
            const auto [no_gradient, products, gradient_sums] = at::native_batch_norm_backward(
                gradients[0], input, at::ones_like(mean), {}, {}, mean, inv_std, /*train=*/true,
                /*eps=*/0, {false, true, true});
            of_bias.copy_(gradient_sums);
            of_weight.copy_(products);
        }
        // Gradients of the parameters stay this rank's: gradient averaging follows.
        std::vector<at::Tensor> result(4);
        result[1] = context->needs_input_grad(1) ? of_weight.clone() : at::Tensor();
        result[2] = context->needs_input_grad(2) ? of_bias.clone() : at::Tensor();
        if (context->needs_input_grad(0)) {
            const auto ranks = c10::static_intrusive_pointer_cast<BatchNormRanks>(
                context->saved_data["ranks"].toCapsule());
            const UserCall::In in(UserCall::backward);
            ranks->backend->all_reduce(sums, ReduceOp::sum);
            sums /= count;
            const at::Tensor scale = inv_std * weight.to(computing_type(input));
            result[0] = at::sub(input.to(computing_type(input)), by_channel(mean, input));
            result[0] = at::addcmul(by_channel(-scale * of_bias, input), result[0],
                                    by_channel(-scale * of_weight * inv_std, input));
            result[0] =
                result[0]
                    .addcmul_(gradients[0].to(computing_type(input)), by_channel(scale, input))
                    .to(input.scalar_type());
        }
        return result;
    }

private:
    /// (C) as (1, C, 1, ...).
    static at::Tensor by_channel(const at::Tensor& values, const at::Tensor& input) {
        std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
        shape[1] = values.numel();
        return values.view(shape);
    }
};

} // namespace detail

RTRAIN_DOOR at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
    const auto ranks = is_training() ? connection_.ranks.lock() : Ranks();
    if (!ranks) {
        return Base::forward(input);
    }
    _check_input_dim(input);
    detail::BatchStatistics statistics;
    {
        const torch::NoGradGuard no_grad;
        statistics = detail::batch_statistics(input.detach(), *ranks);
        detail::require_several_values(input, statistics.count);
        update_running(statistics);
    }
    const bool affine = options.affine();
    const auto plain = statistics.mean.options();
    return detail::SyncBatchNormFunction::apply(
        input, affine ? weight : at::ones({options.num_features()}, plain),
        affine ? bias : at::zeros({options.num_features()}, plain),
        detail::Normalization{statistics, options.eps(), ranks});
}

RTRAIN_DOOR void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
    stream << "rtrain::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
           << ')';
}

RTRAIN_DOOR void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
    if (input.dim() < 2 || input.size(1) != options.num_features()) {
        throw ModelError("RT-M13",
                         detail::concat("SyncBatchNorm expects an input (N, ",
                                        options.num_features(), ") or (N, ", options.num_features(),
                                        ", ...), but got ", input.sizes()));
    }
}

RTRAIN_DOOR void SyncBatchNormImpl::update_running(const detail::BatchStatistics& statistics) {
    if (!options.track_running_stats()) {
        return;
    }
    num_batches_tracked += 1;
    const auto follow = [&](at::Tensor& running, const at::Tensor& batch) {
        const at::Tensor value = batch.to(running.scalar_type());
        if (const auto momentum = options.momentum()) {
            running.lerp_(value, *momentum);
        } else { // the mean of all batches
            running.lerp_(value,
                          num_batches_tracked.to(at::kDouble).reciprocal().to(value.scalar_type()));
        }
    };
    follow(running_mean, statistics.mean);
    follow(running_var, statistics.variance * (statistics.count / (statistics.count - 1)));
}

} // namespace rtrain
