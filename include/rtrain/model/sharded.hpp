// SPDX-License-Identifier: Apache-2.0
/// @file
/// The handle that `worker.prepare(model, ShardedOptions{})` returns.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/model/data_parallel.hpp>
#include <rtrain/model/ddp/engine_for.hpp>
#include <rtrain/model/memory_needed.hpp>
#include <rtrain/model/options/sharded_options.hpp>
#include <rtrain/model/sharded/prepared_sharded.hpp>

#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include <concepts>
#include <memory>
#include <utility>

namespace rtrain {

/// A model of which each node has one copy, and each rank the gradients and optimizer state of its
/// part. Used like DataParallel, with the same bits. Differences:
///
/// - Optimizers are made of `model->parameters()` and go through worker.prepare(); their step() is
///   *collective*. Call their zero_grad(), because they hold the gradients, and the model does not.
/// - After backward, gradients of `model->parameters()` are undefined. So
///   torch::nn::utils::clip_grad_norm_(model->parameters(), ...) silently finds none, clips nothing
///   and returns 0: clip by model.clip_grad_norm_().
/// - The model's tensors cannot be written in place, except in edit(). State loads into them.
/// - No rank has all of the optimizer's state: with each checkpoint policy, every rank writes its
///   part. Either engine loads the other's checkpoints, on any number of ranks.
/// - no_sync() also communicates, and all ranks run equally many passes under it; with
/// Shard::optimizer
///   it does not.
///
/// @code
/// auto model = worker.prepare(Gpt(size), rtrain::ShardedOptions{});
/// auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 3e-4));
/// @endcode
template <std::derived_from<torch::nn::Module> M, Backend B>
class ShardedParallel : public DataParallel<M, B> {
public:
    /// Collective; the model must be the same on all ranks and gets rank 0's values. Throws like
    /// DataParallel, and ModelError [RT-M40], ConfigError [RT-C41] and CommError [RT-X12].
    ShardedParallel(const std::shared_ptr<detail::AnyBackend>& backend,
                    const std::shared_ptr<M>& module, const ShardedOptions& options)
        : DataParallel<M, B>(module, detail::prepare_sharded(backend, module, options)) {}

    /// Runs `change(*model)` without gradients on one rank of each node, while the model's tensors
    /// are writable. All ranks wait for it and get the parameters and buffers of rank 0's node.
    /// When it throws on any of them, they still do, and then all ranks throw. load_weights(model,
    /// path) does so automatically. *Collective.*
    ///
    /// @code
    /// model.edit([](Gpt& gpt) { torch::nn::init::zeros_(gpt.head->bias); });
    /// @endcode
    template <std::invocable<M&> Change>
    void edit(Change&& change) const {
        detail::edit_weights(*this->prepared(), [&] { change(**this); });
    }

    /// Runs `read(*model)` on all ranks while all weights are available: with Shard::parameters,
    /// each node needs memory for the whole model meanwhile. For code that takes pointers, or runs
    /// on some ranks only; an exception on any rank is thrown on all. *Collective.*
    ///
    /// @code
    /// model.gathered([&](Gpt& gpt) {
    ///     if (worker.rank() == 0) {
    ///         rtrain::save_weights("gpt.safetensors", gpt);
    ///     }
    /// });
    /// @endcode
    template <std::invocable<M&> Read>
    void gathered(Read&& read) const {
        detail::read_weights(*this->prepared(), [&] { read(**this); });
    }

    /// torch::save() and torch::load() would miss weights that are not gathered, or move them: use
    /// save_weights() and load_weights(), or torch::save(gpt, ...) within gathered().
    friend torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                       const ShardedParallel& model) = delete;
    friend torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                      ShardedParallel& model) = delete;
};

template <>
struct EngineFor<ShardedOptions> {
    template <class M, Backend B>
    static ShardedParallel<M, B> prepare(const std::shared_ptr<detail::AnyBackend>& backend,
                                         const std::shared_ptr<M>& module,
                                         const ShardedOptions& options) {
        return {backend, module, options};
    }
};

} // namespace rtrain
