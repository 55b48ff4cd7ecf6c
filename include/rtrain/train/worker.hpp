// SPDX-License-Identifier: Apache-2.0
/// @file
/// Worker: a training function's view of its rank, data and run.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/policy/policy.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/policy.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/fwd.hpp>
#include <rtrain/model/activation/recompute.hpp>
#include <rtrain/model/amp/grad_scaler.hpp>
#include <rtrain/model/batch_norm/convert_sync_batch_norm.hpp>
#include <rtrain/model/construct.hpp>
#include <rtrain/model/data_parallel.hpp>
#include <rtrain/model/ddp/captured_step.hpp>
#include <rtrain/model/local_sgd.hpp>
#include <rtrain/model/optimizer/sharded_optimizer.hpp>
#include <rtrain/model/reproducibility.hpp>
#include <rtrain/model/sharded.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/train/worker_loops.hpp>

#include <c10/core/GradMode.h>
#include <torch/data/dataloader.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain {

/// One rank's view of the run; the first argument of the training function. All ranks call members
/// marked *collective*, in the same order.
template <Backend B, DataPolicy D, CheckpointPolicy C>
class Worker<B, D, C> : public WorkerLoops {
public:
    Worker(std::shared_ptr<B> backend, std::shared_ptr<detail::AnyBackend> ranks, const D& data,
           Run& run, const TrainerOptions& options)
        : WorkerLoops(std::move(ranks), options, run), backend_(std::move(backend)), data_(data) {}

    /// Makes this run bit-reproducible on the same ranks, machine and libtorch. Call it first in
    /// the training function.
    ///
    /// Seeds torch's generators with `seed`, the same on all ranks. Reseeds them for every batch of
    /// a data set shard, from `seed`, the epoch and the batch's index. So dropout for a batch
    /// depends neither on the rank nor on earlier draws: see docs/data-order.md. Outside of such
    /// loops all ranks draw the same numbers. Adds `seed` to the shuffle seeds of data sets and
    /// loaders. Makes torch use deterministic algorithms until the training function ends; these
    /// may be slower, and throw c10::Error where torch has none. Bits also depend on the number of
    /// threads per rank: rtrain derives it from the cores unless ScalingConfig::threads_per_worker
    /// is set.
    void enable_reproducibility(std::uint64_t seed = 0) {
        detail::make_reproducible(seed);
        seed_ = seed;
        random_seed_ = seed;
    }

    /// Moves a model to this rank's device, copies rank 0's parameters and buffers to it, and
    /// averages its gradients over ranks in every backward pass. Takes a module holder, a shared
    /// pointer to a module, or a module by value. *Collective.* Throws ModelError [RT-M1, RT-M2,
    /// RT-M5] and ConfigError [RT-C11, RT-C12].
    template <class M>
    requires requires(M model) { detail::module_of(std::move(model)); }
    [[nodiscard]] auto prepare(M model, const DataParallelOptions& options = {}) {
        return prepare<M, DataParallelOptions>(std::move(model), options);
    }
    /// The same with a different engine, chosen by the type of its options: see EngineFor.
    template <class M, class Options>
    requires requires(M model) {
        detail::module_of(std::move(model));
        sizeof(EngineFor<Options>);
    }
    [[nodiscard]] auto prepare(M model, const Options& options) {
        const UserCall::In in(UserCall::prepare);
        auto module = detail::module_of(std::move(model));
        module->to(device());
        using Module = typename decltype(module)::element_type;
        auto handle = EngineFor<Options>::template prepare<Module, B>(ranks(), module, options);
        keep(handle.prepared(), *module);
        return handle;
    }

    /// Same as `prepare(make(), options)`, without holding a full copy of the parameters in every
    /// rank's memory during construction. The first rank runs make() with values, the others
    /// without. Values computed by a constructor must end in registered parameters and buffers,
    /// which get rank 0's values. A constructor that reads values, for example with item(), is
    /// rerun with them, on one rank after another; so make() may be called twice. Afterwards
    /// torch's CPU generator equals rank 0's. *Collective.* Throws like prepare(), and what make()
    /// throws on any rank.
    ///
    /// @code
    /// auto model = worker.construct([&] { return Gpt(size); }, rtrain::ShardedOptions{});
    /// @endcode
    template <std::invocable Make, class Options = DataParallelOptions>
    requires requires(Make make) { detail::module_of(make()); }
    [[nodiscard]] auto construct(Make&& make, const Options& options = {}) {
        const UserCall::In in(UserCall::construct);
        decltype(detail::module_of(make())) module;
        detail::construct_once(ranks(), detail::averaging_of(options), [&] {
            module = detail::module_of(make());
            return module;
        });
        return prepare(std::move(module), options);
    }

    /// Fuses the step of torch::optim::SGD, Adam or AdamW into one kernel; everything else about
    /// the optimizer is unchanged: see FusedOptimizer. Optimizers also work without prepare(),
    /// except those of models prepared with ShardedOptions, which then hold this rank's parts.
    /// Throws ModelError [RT-M45] for an unsupported one, and CheckpointError [RT-K11] if it has
    /// parts and a custom checkpoint policy does not save them.
    template <std::derived_from<torch::optim::Optimizer> O>
    [[nodiscard]] auto prepare(O optimizer) {
        const UserCall::In in(UserCall::prepare);
        typename detail::PreparedOptimizer<O>::type prepared(std::move(optimizer),
                                                             sharded_models());
        if (prepared.holds_parts()) {
            require_parts_are_saved();
        }
        return prepared;
    }

    /// Captures a step of the loop as one graph that a GPU replays: forward, backward, averaging
    /// and the step of an optimizer returned by prepare(). The step takes tensors and returns
    /// anything or nothing. The first three calls run it, the fourth captures it. Learning rates
    /// may change between calls. On CPUs each call runs it. See docs/gpu.md.
    ///
    /// @code
    /// auto step = worker.capture([&](const at::Tensor& x, const at::Tensor& y) {
    ///     optimizer.zero_grad();
    ///     auto loss = torch::cross_entropy_loss(model(x), y);
    ///     loss.backward();
    ///     optimizer.step();
    ///     return loss.detach();
    /// });
    /// @endcode
    template <class Step>
    [[nodiscard]] auto capture(Step step) {
        return CapturedStep<Step>(ranks(), std::move(step));
    }

    /// Gives a torch::data loader this rank's rows and device: see data::distribute_loader(), and
    /// data::BatchOptions for `each_row_once`.
    template <class Dataset, class Sampler>
    [[nodiscard]] auto
    prepare(std::unique_ptr<torch::data::StatelessDataLoader<Dataset, Sampler>> loader,
            std::uint64_t seed = 0, std::optional<bool> each_row_once = std::nullopt) {
        return data::distribute_loader(std::move(loader), loader_shard(false, seed, each_row_once));
    }

    /// Returns a torch::data loader over this rank's rows of a data set; for loaders with worker
    /// threads.
    template <class Dataset>
    requires requires { typename Dataset::BatchRequestType; }
    [[nodiscard]] auto prepare(Dataset dataset, const torch::data::DataLoaderOptions& options,
                               bool shuffle = true, std::uint64_t seed = 0,
                               std::optional<bool> each_row_once = std::nullopt) {
        return data::make_distributed_loader(std::move(dataset), options,
                                             loader_shard(shuffle, seed, each_row_once));
    }

    /// Returns this rank's part of a data set passed to the trainer, or all of it if it is not in
    /// TrainerOptions::datasets_to_split. Throws DataError [RT-D1] for an unknown name.
    [[nodiscard]] data::Shard dataset_shard(const std::string& name) {
        const auto& to_split = options().datasets_to_split;
        const bool is_split = !to_split || std::ranges::find(*to_split, name) != to_split->end();
        return dataset_shard(name, dataset(name), is_split);
    }

    /// Returns this rank's part of a data set that the training function has made, the same on all
    /// ranks, or all of it without `is_split`. Checkpoints know it by `name`.
    [[nodiscard]] data::Shard dataset_shard(const std::string& name, const data::Dataset& rows,
                                            bool is_split = true) {
        return data::Shard(
            {.dataset = rows,
             .policy = data_,
             .rank = rank(),
             .size = size(),
             .device = device(),
             .random_seed = random_seed_,
             .is_split = is_split,
             .agree =
                 [ranks = ranks()](at::Tensor& numbers) {
                     const UserCall::In in(UserCall::next_batch);
                     const c10::NoGradGuard no_grad;
                     ranks->all_reduce(numbers, ReduceOp::max);
                 }},
            [this, name] { return progress().new_position(name); }, seed_);
    }

    /// Fits a preprocessor (rtrain/preprocess.hpp) to a data set passed to the trainer. Each rank
    /// reads its share of the rows, and all get the same bits for any number of ranks.
    /// *Collective.* Throws DataError [RT-D1], and what the preprocessor's fit() throws.
    template <class P>
    requires requires(P& preprocessor, const data::Dataset& rows, HookRanks* ranks) {
        preprocessor.fit(rows, ranks);
    }
    void fit(P& preprocessor, const std::string& name) {
        const UserCall::In in(UserCall::fit);
        preprocessor.fit(dataset(name), ranks().get());
    }

    /// All ranks as a communicator, if the backend has one: groups (`split`), messages, and
    /// nonblocking collectives.
    [[nodiscard]] auto& communicator() const requires requires(B& backend) {
        backend.communicator();
    }
    {
        detail::require_attempt(ProcessContext::current().attempt);
        return backend_->communicator();
    }

private:
    [[nodiscard]] const data::Dataset& dataset(const std::string& name) const {
        const auto found = options().datasets.find(name);
        if (found == options().datasets.end()) {
            std::string names;
            for (const auto& [known, dataset] : options().datasets) {
                names += (names.empty() ? "\"" : ", \"") + known + "\"";
            }
            throw DataError("RT-D1", detail::concat("data set \"", name,
                                                    "\" was not passed to the trainer, which has ",
                                                    names.empty() ? "none" : names));
        }
        return found->second;
    }

    [[nodiscard]] data::LoaderShard loader_shard(bool shuffle, std::uint64_t seed,
                                                 std::optional<bool> each_row_once) {
        return {.epoch = {.rank = rank(), .size = size(), .shuffle = shuffle, .seed = seed_ + seed},
                .device = device(),
                .position = progress().new_position("(data loader)"),
                .each_row_once = each_row_once};
    }

    std::shared_ptr<B> backend_;
    D data_;
    std::uint64_t seed_ = 0; ///< added to shuffle seeds
    /// Seed of each batch's random numbers; unset: torch's own.
    std::optional<std::uint64_t> random_seed_;
};

} // namespace rtrain
