// SPDX-License-Identifier: Apache-2.0
/// @file
/// Local SGD: ranks train alone and average parameters every few steps, after a warm-up in which
/// they average gradients (post-local SGD; Lin et al., "Don't use large mini-batches, use local
/// SGD", ICLR 2020). PyTorch: PostLocalSGDOptimizer with PeriodicModelAverager.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/data_parallel.hpp>
#include <rtrain/state/state_io.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace rtrain {

/// The same on all ranks.
struct LocalSgdOptions {
    std::int64_t warmup_steps = 0; ///< steps with averaged gradients before ranks train alone
    std::int64_t period = 8;       ///< from then on, steps between two averagings of parameters
};

/// Trains a prepared model by local SGD; call step() after every optimizer step.
///
/// @code
/// rtrain::LocalSgd local(model, {.warmup_steps = 1000, .period = 8});
/// auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer).add("local",
/// local);
/// ...
/// loss.backward();
/// optimizer.step();
/// local.step();
/// @endcode
///
/// After an averaging, parameters have the same bits on all ranks, and floating-point buffers
/// (running means) are averaged with them. The optimizer's state, such as momentum, is not
/// averaged, as in the paper. A checkpoint holds rank 0's parameters and optimizer state: call
/// `model.average_parameters()` before a report that does not follow an averaging, or add both with
/// State::add_per_rank(). While it lives, after the warm-up, the model's gradients are not
/// averaged.
template <class M, Backend B>
class LocalSgd {
public:
    /// Throws ModelError [RT-M20] for a period below 1 or a negative warm-up, ConfigError [RT-C12]
    /// for a model whose gradients are added up by micro-batch.
    explicit LocalSgd(DataParallel<M, B> model, const LocalSgdOptions& options = {})
        : model_(std::move(model)), options_(options) {
        if (options.period < 1 || options.warmup_steps < 0) {
            throw ModelError("RT-M20", detail::concat("LocalSgd was given period ", options.period,
                                                      " and ", options.warmup_steps,
                                                      " warm-up steps; expected at least 1 and 0"));
        }
        if (model_.options().reduction_order == ReductionOrder::micro_batches) {
            throw ConfigError(
                "RT-C12", "LocalSgd steps between averagings, but with reduction_order "
                          "micro_batches gradients exist only after one; use only one of the two");
        }
        choose_mode();
    }

    /// Call it after every optimizer.step(). *Collective.*
    void step() {
        ++steps_;
        choose_mode();
        const std::int64_t alone = steps_ - options_.warmup_steps;
        if (alone > 0 && alone % options_.period == 0) {
            model_.average_parameters();
        }
    }

    /// For State::add(): the number of steps made.
    void save(StateWriter& out) const { out.value("steps", steps_); }
    void load(const StateReader& in) {
        steps_ = in.value("steps").to_number<std::int64_t>();
        choose_mode();
    }

private:
    using NoSync = typename DataParallel<M, B>::NoSync;

    void choose_mode() {
        if (steps_ < options_.warmup_steps) {
            alone_.reset();
        } else if (!alone_) {
            alone_.reset(new NoSync(model_.no_sync()));
        }
    }

    DataParallel<M, B> model_;
    LocalSgdOptions options_;
    std::int64_t steps_ = 0;
    std::unique_ptr<NoSync> alone_; ///< after the warm-up
};

} // namespace rtrain
