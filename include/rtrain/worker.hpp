// SPDX-License-Identifier: Apache-2.0
/// @file
/// Worker: what a training function sees of its rank, its data and its run.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/checkpoint/policy.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/epochs.hpp>
#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/model/convert_sync_batch_norm.hpp>
#include <rtrain/model/data_parallel.hpp>
#include <rtrain/model/fused_optimizer.hpp>
#include <rtrain/model/grad_scaler.hpp>
#include <rtrain/model/local_sgd.hpp>
#include <rtrain/model/reproducibility.hpp>
#include <rtrain/options.hpp>
#include <rtrain/preemption.hpp>
#include <rtrain/progress.hpp>
#include <rtrain/rank_status.hpp>
#include <rtrain/report_options.hpp>
#include <rtrain/reported_checkpoint.hpp>
#include <rtrain/run.hpp>
#include <rtrain/state.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <torch/data/dataloader.h>

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

/// One rank's view of the run; the first argument of the training function. Members marked
/// *collective* are called by all ranks, in the same order.
template <Backend B, DataPolicy D, CheckpointPolicy C>
class Worker {
public:
    Worker(std::shared_ptr<B> backend, const D& data, Run<B, C>& run, const TrainerOptions& options)
        : backend_(std::move(backend)), data_(data), run_(run), options_(options) {
        data::Pass::observe([this](const data::Loops::Loop& loop) {
            RankStatus::current().advance();
            make_room_in(loop);
        });
        PreemptionNotice::current().listen(true);
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() {
        PreemptionNotice::current().listen(false);
        data::Pass::observe({});
    }

    /// This rank, from 0 to size() - 1.
    [[nodiscard]] int rank() const { return backend_->rank(); }
    /// Number of ranks.
    [[nodiscard]] int size() const { return backend_->size(); }
    /// This rank among those on the same node.
    [[nodiscard]] int local_rank() const {
        if constexpr (requires { backend_->local_rank(); }) {
            return backend_->local_rank();
        } else {
            return rank();
        }
    }
    /// Number of ranks on this node.
    [[nodiscard]] int local_size() const {
        if constexpr (requires { backend_->local_size(); }) {
            return backend_->local_size();
        } else {
            return size();
        }
    }
    /// This node, numbered in the order of its lowest rank.
    [[nodiscard]] int node_rank() const {
        if constexpr (requires { backend_->node_rank(); }) {
            return backend_->node_rank();
        } else {
            return 0;
        }
    }
    /// Where this rank computes.
    [[nodiscard]] at::Device device() const {
        if constexpr (requires { backend_->device(); }) {
            return backend_->device();
        } else {
            return at::kCPU;
        }
    }

    [[nodiscard]] const Config& config() const noexcept { return options_.config; }
    /// The run's directory, `<storage_path>/<name>`.
    [[nodiscard]] std::filesystem::path run_path() const {
        return run_.directory().location().path;
    }

    /// Makes this run give the same bits each time on the same ranks, machine and libtorch. Call it
    /// first in the training function.
    ///
    /// Seeds torch's generators with `seed`, the same on all ranks, and again for every batch of a
    /// data set shard, with a number made from `seed`, the epoch and the batch's place in it. So
    /// what dropout draws for a batch does not depend on who reads it, nor on what was drawn
    /// before: see docs/data-order.md. Outside of such loops ranks draw the same. Shifts the seeds
    /// of the shuffles of data sets and loaders by `seed`. Makes torch use deterministic
    /// algorithms, which may be slower, and throw c10::Error where it has none; this stays so in
    /// this process. How many threads a rank computes with also decides on the bits: rtrain derives
    /// it from the cores unless ScalingConfig::threads_per_worker says it.
    void enable_reproducibility(std::uint64_t seed = 0) {
        detail::make_reproducible(seed);
        seed_ = seed;
        random_seed_ = seed;
    }

    /// Moves a model to this rank's device, gives it rank 0's parameters and buffers, and averages
    /// its gradients over ranks in every backward pass. Takes a module holder, a shared pointer to
    /// a module, or a module by value. *Collective.* Throws ModelError [RT-M1, RT-M2, RT-M5] and
    /// ConfigError [RT-C11, RT-C12].
    template <class M>
    requires requires(M model) { detail::module_of(std::move(model)); }
    [[nodiscard]] auto prepare(M model, const DataParallelOptions& options = {}) {
        auto module = detail::module_of(std::move(model));
        std::erase_if(prepared_, [](const auto& item) { return item.model->is_gone(); });
        module->to(device());
        using Module = typename decltype(module)::element_type;
        DataParallel<Module, B> handle(backend_, std::move(module), options);
        prepared_.push_back({prepared_count_++, handle.prepared()});
        return handle;
    }

    /// Makes the step of torch::optim::SGD, Adam or AdamW one fused kernel; everything else about
    /// the optimizer stays: see FusedOptimizer. Optimizers work without it, too.
    template <std::derived_from<torch::optim::Optimizer> O>
    [[nodiscard]] FusedOptimizer<O> prepare(O optimizer) {
        return FusedOptimizer<O>(std::move(optimizer));
    }

    /// Gives a torch::data loader this rank's rows and device: see data::distribute_loader().
    template <class Dataset, class Sampler>
    [[nodiscard]] auto
    prepare(std::unique_ptr<torch::data::StatelessDataLoader<Dataset, Sampler>> loader,
            std::uint64_t seed = 0) {
        return data::distribute_loader(std::move(loader), epoch_request(false, seed), device(),
                                       progress_.new_position("(data loader)"));
    }

    /// A torch::data loader over this rank's rows of a data set; for loaders with worker threads.
    template <class Dataset>
    requires requires { typename Dataset::BatchRequestType; }
    [[nodiscard]] auto prepare(Dataset dataset, const torch::data::DataLoaderOptions& options,
                               bool shuffle = true, std::uint64_t seed = 0) {
        return data::make_distributed_loader(std::move(dataset), options,
                                             epoch_request(shuffle, seed), device(),
                                             progress_.new_position("(data loader)"));
    }

    /// This rank's part of a data set given to the trainer. Throws DataError [RT-D1] for a name
    /// that was not.
    [[nodiscard]] data::Shard<D> dataset_shard(const std::string& name) {
        const auto found = options_.datasets.find(name);
        if (found == options_.datasets.end()) {
            std::string names;
            for (const auto& [known, dataset] : options_.datasets) {
                names += (names.empty() ? "\"" : ", \"") + known + "\"";
            }
            throw DataError("RT-D1", detail::concat("there is no data set \"", name,
                                                    "\"; the trainer "
                                                    "was given ",
                                                    names.empty() ? "none" : names));
        }
        return data::Shard<D>(
            found->second, data_, rank(), size(), device(),
            [this, name] { return progress_.new_position(name); }, seed_, random_seed_);
    }

    /// Records rank 0's metrics. *Collective.* Throws what went wrong in saving an earlier
    /// checkpoint in the background.
    void report(const Config& metrics) { run_.report(metrics); }
    /// Records rank 0's metrics and saves a checkpoint of the state, with every rank's random
    /// number generator and the place in every data set; with CheckpointConfig::frequency or
    /// mean_time_between_failures_s, not each time. *Collective.* Before, ranks compare the
    /// parameters of prepared models: ModelError [RT-M25] when they have drifted apart.
    void report(const Config& metrics, const State& state, const ReportOptions& options = {}) {
        if constexpr (!checkpoint::saves_state<C>) {
            if (asks_for_validation(options)) {
                throw ConfigError("RT-C16", "a report asks for validation, but "
                                            "checkpoint::None saves nothing to validate");
            }
            run_.report(metrics);
            return;
        }
        run_.report(
            metrics, options, is_due(), [&] { check_models(); },
            [&] { return snapshot_of(state); });
        leave_if_preempted();
    }
    /// Records rank 0's metrics and keeps the files in a directory as a checkpoint, together with
    /// those that other ranks give. *Collective.* Throws CheckpointError [RT-K5].
    void report(const Config& metrics, const Checkpoint& directory,
                const ReportOptions& options = {}) {
        run_.report(metrics, directory, options);
        leave_if_preempted();
    }

    /// The checkpoints of this run that are kept, oldest first, with their metrics and what is
    /// known about their validation. Waits for a checkpoint that is being saved, and in mode
    /// `validated` for all validations, but for no more than `timeout_s` seconds if set.
    /// *Collective*; rank 0's arguments count.
    [[nodiscard]] std::vector<ReportedCheckpoint>
    get_all_reported_checkpoints(ConsistencyMode mode = ConsistencyMode::validated,
                                 std::optional<double> timeout_s = std::nullopt) {
        return run_.reported_checkpoints(mode, timeout_s);
    }

    /// The newest checkpoint, to go on from; empty in a new run.
    [[nodiscard]] std::optional<Checkpoint> checkpoint() const { return run_.checkpoint(); }

    /// Loads the newest checkpoint, if there is one, into the state, the random number generators,
    /// the data sets and the hooks of models that are prepared; returns whether there was one.
    /// epochs() calls it. *Collective.*
    bool restore(const State& state) {
        if constexpr (!checkpoint::saves_state<C>) {
            return false;
        }
        const auto newest = checkpoint();
        if (!newest) {
            return false;
        }
        const checkpoint::Snapshot snapshot = run_.load(*newest);
        detail::succeed_together(*backend_, [&] {
            state.load(snapshot);
            progress_.load(snapshot, rank(), run_.is_own(*newest));
            for (const Prepared& prepared : prepared_) {
                prepared.model->load_hook(StateReader(snapshot, prepared.section()));
            }
        });
        if (const std::string way = progress_.way_back(); rank() == 0 && way != said_way_) {
            said_way_ = way;
            std::fprintf(stderr, "rtrain: going on within epoch %d: %s\n", progress_.epoch() + 1,
                         way.c_str());
        }
        return true;
    }

    /// The epochs from the first that the newest checkpoint has not finished to `count` - 1, after
    /// loading that checkpoint into `state`. *Collective.*
    ///
    /// An epoch is finished at a report() that no loop over a data shard's batches is around; a
    /// checkpoint from within such a loop continues the loop behind the batch it was taken in. See
    /// docs/data-order.md for loops in loops, and one behind the other.
    [[nodiscard]] Epochs epochs(int count, const State& state) {
        restore(state);
        progress_.set_epochs(count);
        return Epochs(progress_, count,
                      {.begin = [this, state] { state_.emplace(state); },
                       .end_epoch = [this] { return stops_here(); },
                       .left_early = [this, count] { leave_epochs_early(count); },
                       .end = [this] { state_.reset(); }});
    }

    /// Early stopping: the epoch under way is the last of the loop over epochs(), on all ranks as
    /// soon as one has called this. The body goes on to its end, or leaves the loop by `break`.
    ///
    /// A checkpoint says so: neither a restart nor another start of this run begins an epoch more.
    /// It is that of the next report, or one of its own when the loop ends without. Other ranks
    /// learn of it there, so this is not collective.
    void stop() noexcept { progress_.stop(); }

    /// Whether the run is to make room, and how long it may still take; empty when not.
    /// *Collective.*
    ///
    /// Most training functions need not ask: the next report() of a state saves it, whatever
    /// CheckpointConfig says, and within the loop over epochs() a state is also saved between two
    /// batches. fit() then ends, and the same command goes on from there. Ask to save with a report
    /// of one's own in other loops, or to skip what takes long.
    [[nodiscard]] std::optional<PreemptionInfo> preemption() {
        PreemptionNotice& notice = PreemptionNotice::current();
        at::Tensor seconds =
            at::full({1}, notice.given() ? notice.seconds_left() : never, at::kDouble);
        backend_->all_reduce(seconds, ReduceOp::min);
        const double left = seconds.template item<double>();
        if (left == never) {
            return std::nullopt;
        }
        notice.agree(nullptr);
        return PreemptionInfo{left};
    }

    /// Waits for all ranks. *Collective.*
    void barrier() { detail::barrier(*backend_); }

    /// Overwrites a tensor with that of rank `root`. *Collective.*
    void broadcast(at::Tensor& tensor, int root = 0) { backend_->broadcast(tensor, root); }
    /// Rank `root`'s value: a number, string, or JSON. *Collective.*
    template <class T>
    requires detail::PlainValue<T>
    [[nodiscard]] T broadcast(const T& value, int root = 0) {
        if constexpr (std::same_as<T, std::string>) {
            return detail::broadcast(*backend_, value, root);
        } else if constexpr (std::is_arithmetic_v<T>) {
            at::Tensor bytes = as_bytes(value);
            backend_->broadcast(bytes, root);
            return from_bytes<T>(bytes);
        } else {
            const auto text = detail::broadcast(*backend_, boost::json::serialize(value), root);
            return boost::json::value_to<T>(json::parse(text));
        }
    }

    /// Reduces a tensor in place over all ranks. *Collective.*
    void all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum) {
        const torch::NoGradGuard no_grad;
        backend_->all_reduce(tensor, op);
    }
    /// The number reduced over all ranks. *Collective.*
    template <class T>
    requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) [[nodiscard]] T
        all_reduce(T value, ReduceOp op = ReduceOp::sum) {
        using Wide = std::conditional_t<std::floating_point<T>, double, std::int64_t>;
        at::Tensor tensor = at::full({1}, static_cast<Wide>(value),
                                     std::floating_point<T> ? at::kDouble : at::kLong);
        backend_->all_reduce(tensor, op);
        return static_cast<T>(tensor.template item<Wide>());
    }

    /// The tensors of all ranks, which have equal shapes, by rank. *Collective.*
    [[nodiscard]] std::vector<at::Tensor> all_gather(const at::Tensor& tensor) {
        const torch::NoGradGuard no_grad;
        return detail::all_gather(*backend_, tensor).unbind(0);
    }
    /// The numbers of all ranks, by rank. *Collective.*
    template <class T>
    requires std::is_arithmetic_v<T>
    [[nodiscard]] std::vector<T> all_gather(T value) {
        const at::Tensor gathered = detail::all_gather(*backend_, as_bytes(value));
        std::vector<T> values;
        for (int rank = 0; rank < size(); ++rank) {
            values.push_back(from_bytes<T>(gathered[rank]));
        }
        return values;
    }

    /// Reduces a tensor of shape (size, ...) and returns row rank() of the result. *Collective.*
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) {
        const torch::NoGradGuard no_grad;
        return detail::reduce_scatter(*backend_, tensor, op);
    }

    /// All ranks as a communicator, where the backend has one: groups (`split`), messages, and
    /// collectives with a handle to wait on.
    [[nodiscard]] auto& communicator() const requires requires(B& backend) {
        backend.communicator();
    }
    { return backend_->communicator(); }

private:
    /// No state of ranks that have drifted apart is saved as if it were the model. *Collective.*
    void check_models() {
        for (const auto& [number, model] : prepared_) {
            if (!model->is_gone()) {
                model->check_parameters();
            }
        }
    }

    /// Outside of a report.
    void save_between(const State& state) {
        run_.save([&] {
            check_models();
            return snapshot_of(state);
        });
    }
    [[nodiscard]] checkpoint::Snapshot snapshot_of(const State& state) {
        checkpoint::Snapshot snapshot;
        state.save(snapshot);
        progress_.save(snapshot, *backend_);
        for (const Prepared& prepared : prepared_) {
            prepared.model->save_hook(
                StateWriter(snapshot, prepared.section()), requires { requires C::takes_rows; });
        }
        return snapshot;
    }

    /// Between two batches of a loop over epochs(): saves and ends if all ranks have agreed in this
    /// very loop that the run is to make room.
    void make_room_in(const data::Loops::Loop& loop) {
        const PreemptionNotice& notice = PreemptionNotice::current();
        const bool agreed = size() > 1 ? notice.agreed_in(*loop.position) : notice.given();
        if (!agreed || !state_ || !loop.trains || loop.position->within_step ||
            data::Loops::current().only() != &loop || !progress_.obstacle().empty()) {
            return;
        }
        if constexpr (!checkpoint::saves_state<C>) {
            return;
        }
        save_between(*state_);
        leave_if_preempted();
    }
    /// Behind a checkpoint.
    void leave_if_preempted() const {
        if (run_.preempted()) {
            throw detail::Preempted();
        }
    }

    /// Behind the body of an epoch: whether it was the last because some rank has called stop().
    bool stops_here() {
        if (!progress_.agree_to_stop(*backend_)) {
            return false;
        }
        if constexpr (checkpoint::saves_state<C>) {
            if (!progress_.stop_is_saved()) {
                save_between(*state_);
            }
        }
        return true;
    }
    /// When the loop over `count` epochs was left by `break` or `return`.
    void leave_epochs_early(int count) {
        if (progress_.is_to_stop()) {
            (void)stops_here();
        } else if (rank() == 0 && progress_.epoch() + 1 < count) {
            std::fprintf(
                stderr,
                "rtrain: the loop over %d epochs was left in epoch %d; another start of this "
                "run goes on with the rest, unless worker.stop() says that there is none\n",
                count, progress_.epoch());
        }
    }

    /// Whether this report of a state saves it; else the run's clock decides, if it has one.
    [[nodiscard]] bool is_due() {
        const CheckpointConfig& config = options_.run.checkpoint;
        const bool last = config.at_end && progress_.in_last_epoch();
        if (last || config.mean_time_between_failures_s) {
            return last;
        }
        return config.frequency <= 1 || ++state_reports_ % config.frequency == 0;
    }
    [[nodiscard]] data::EpochRequest epoch_request(bool shuffle, std::uint64_t seed) const {
        return {.rank = rank(), .size = size(), .shuffle = shuffle, .seed = seed_ + seed};
    }
    template <class T>
    static at::Tensor as_bytes(const T& value) {
        return detail::to_bytes({reinterpret_cast<const char*>(&value), sizeof value});
    }
    template <class T>
    static T from_bytes(const at::Tensor& bytes) {
        T value{};
        std::memcpy(&value, bytes.const_data_ptr(), sizeof value);
        return value;
    }

    std::shared_ptr<B> backend_;
    D data_;
    Run<B, C>& run_;
    const TrainerOptions& options_;
    Progress progress_;
    static constexpr double never = std::numeric_limits<double>::infinity();
    std::optional<State> state_; ///< of the loop over epochs()
    std::string said_way_;       ///< back into loops
    std::uint64_t seed_ = 0;     ///< added to those of shuffles
    /// Of what is drawn for each batch; unset: torch's own.
    std::optional<std::uint64_t> random_seed_;
    int state_reports_ = 0;
    struct Prepared {
        int number = 0; ///< prepare() calls before
        std::shared_ptr<detail::PreparedModel> model;

        /// Where in a checkpoint its hook is.
        [[nodiscard]] std::string section() const {
            return "rtrain/hook/" + std::to_string(number);
        }
    };
    std::vector<Prepared> prepared_;
    int prepared_count_ = 0;
};

} // namespace rtrain
