// SPDX-License-Identifier: Apache-2.0
/// @file
/// torch::data data sets and loaders on ranks: an adapter to data::Dataset, a sampler for torch's
/// own loaders, and the loader that `worker.prepare(data_loader)` returns.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/device_prefetch.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/order/sampler.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/loop_status.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <c10/core/GradMode.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/data/samplers/distributed.h>
#include <torch/data/samplers/random.h>
#include <torch/data/samplers/sequential.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain::data {

/// A torch::data data set whose examples are pairs of tensors: columns "data" and "target".
template <class D>
[[nodiscard]] Dataset from_dataset(D dataset) {
    class Adapter : public Dataset::Source {
    public:
        explicit Adapter(D dataset) : dataset_(std::move(dataset)) {}
        [[nodiscard]] std::int64_t size() const override {
            return static_cast<std::int64_t>(dataset_.size().value());
        }
        [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
            std::vector<at::Tensor> data;
            std::vector<at::Tensor> target;
            for (std::int64_t i = 0; i < indices.numel(); ++i) {
                auto example = dataset_.get(
                    static_cast<std::size_t>(indices[i].template item<std::int64_t>()));
                data.push_back(std::move(example.data));
                target.push_back(std::move(example.target));
            }
            return Batch({{"data", torch::stack(data)}, {"target", torch::stack(target)}});
        }

    private:
        mutable D dataset_; // torch's get() is not const
    };
    if (!dataset.size().has_value()) {
        throw DataError("RT-D10", "a torch::data data set without a size cannot be split between "
                                  "ranks by rows; use a data set with a known size()");
    }
    return Dataset(std::make_shared<Adapter>(std::move(dataset)));
}

/// The settings of an epoch of a rank's loader.
struct LoaderEpoch {
    EpochRequest epoch;
    /// See BatchOptions::each_row_once.
    std::optional<bool> each_row_once = std::nullopt;
    bool drops_last = false; ///< the loader drops an incomplete batch

    /// The request for an epoch that begins now. If each row counts once, ranks with one row more
    /// than others would drop a different number of batches; these rows are dropped too.
    [[nodiscard]] EpochRequest now() const {
        EpochRequest begins = epoch;
        begins.each_once = each_row_once.value_or(!c10::GradMode::is_enabled());
        begins.drop_last = epoch.drop_last || (begins.each_once && drops_last);
        return begins;
    }
};

/// distributed_order() for torch's data loaders. Each reset starts at the epoch and row of
/// `position`.
class DistributedSampler : public torch::data::samplers::Sampler<> {
public:
    DistributedSampler(EpochRequest epoch, std::shared_ptr<const Position> position)
        : DistributedSampler(LoaderEpoch{epoch}, std::move(position)) {}
    DistributedSampler(LoaderEpoch of, std::shared_ptr<const Position> position)
        : of_(of), epoch_(of.epoch), position_(std::move(position)) {}

    /// Begins an epoch.
    void reset(std::optional<std::size_t> rows = std::nullopt) override {
        epoch_ = of_.now();
        if (rows) {
            epoch_.rows = static_cast<std::int64_t>(*rows);
        }
        epoch_.epoch = position_->epoch;
        taken_ = position_->samples;
        order_ = distributed_order(epoch_, position_->samples);
        next_ = 0;
    }
    /// At most `batch_size` more rows of this rank; none at the end of the epoch.
    std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
        const std::int64_t left = order_.defined() ? order_.numel() - next_ : 0;
        std::int64_t count = std::min(left, static_cast<std::int64_t>(batch_size));
        if (count <= 0) {
            return std::nullopt;
        }
        if (left == count + 1 && last_batch_grows(epoch_, taken_, count) &&
            order_.numel() > (epoch_.rows - taken_) / epoch_.size) {
            ++count;
        }
        const auto* const rows = order_.const_data_ptr<std::int64_t>() + next_;
        next_ += count;
        return std::vector<std::size_t>(rows, rows + count);
    }
    /// The position is saved with the worker's state, not here.
    void save(torch::serialize::OutputArchive& /*archive*/) const override {}
    void load(torch::serialize::InputArchive& /*archive*/) override {}

private:
    LoaderEpoch of_;
    EpochRequest epoch_; ///< the current epoch
    std::shared_ptr<const Position> position_;
    at::Tensor order_;
    std::int64_t taken_ = 0; ///< by all ranks, before order_
    std::int64_t next_ = 0;
};

namespace internal {

/// The number of rows in a loader's batch; 0: not known.
template <class B>
[[nodiscard]] std::int64_t rows_of(const B& batch) {
    if constexpr (std::is_convertible_v<const B&, at::Tensor>) {
        const at::Tensor& tensor = batch;
        return tensor.defined() && tensor.dim() > 0 ? tensor.size(0) : 0;
    } else if constexpr (requires { batch.begin()->second; }) { // columns by name
        return batch.begin() == batch.end() ? 0 : rows_of(batch.begin()->second);
    } else if constexpr (requires { batch.size(); }) {
        return static_cast<std::int64_t>(batch.size());
    } else if constexpr (requires { batch.data; }) {
        return rows_of(batch.data);
    } else if constexpr (requires { std::get<0>(batch); }) {
        return rows_of(std::get<0>(batch));
    } else {
        return 0;
    }
}

} // namespace internal

/// A torch::data loader over this rank's rows that moves batches to the rank's device. Each begin()
/// starts a new epoch, except the first after a resumed checkpoint, which continues from the
/// checkpoint's position, even on a different number of ranks. The position is exact only if
/// batches keep their order (`enforce_ordering`, torch's default).
template <class Loader>
class DeviceLoader {
public:
    using Batch = typename Loader::BatchType; ///< the loader's batch type

    /// `position` counts the rows taken by the ranks of `epoch`; a loader with its own distributed
    /// sampler has none.
    DeviceLoader(std::unique_ptr<Loader> loader, at::Device device,
                 std::shared_ptr<Position> position = std::make_shared<Position>(),
                 std::optional<LoaderEpoch> epoch = std::nullopt)
        : loader_(std::move(loader)), device_(device), position_(std::move(position)),
          epoch_(epoch) {}

    /// Moves each batch to the device.
    class Iterator {
    public:
        using value_type = Batch;
        using difference_type = std::ptrdiff_t;

        explicit Iterator(DeviceLoader& loader)
            : loader_(&loader), pass_(loader.begin_pass()), end_(loader.end_of_pass()),
              prefetch_(loader.device_), next_(loader.loader_->end()) {
            if (!pass_.has_ended()) {
                const StepClock::In data(ProcessContext::current().clock,
                                         StepPart::data); // worker threads start reading here
                next_ = loader.loader_->begin();
            }
            const bool is_whole = end_ > 0 && !pass_.has_ended() && pass_.position().samples == 0;
            if (pass_.leads()) {
                ProcessContext::current().loop.begin_loop(loader.length_to(end_));
            }
            next();
            if (is_whole && pass_.has_ended()) {
                loader.say_empty();
            }
        }

        [[nodiscard]] Batch& operator*() {
            pass_.take();
            return *batch_;
        }
        [[nodiscard]] Batch* operator->() {
            pass_.take();
            return &*batch_;
        }
        Iterator& operator++() {
            pass_.leave_batch();
            next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const Iterator& self, std::default_sentinel_t /*end*/) {
            return !self.batch_.has_value();
        }

    private:
        void next() {
            (void)ProcessContext::current().clock.enter(StepPart::data);
            batch_ = pass_.has_ended() ? std::nullopt : prefetch_.next([this] { return read(); });
            (void)ProcessContext::current().clock.enter(StepPart::optimizer);
            if (batch_ && c10::GradMode::is_enabled()) {
                ProcessContext::current().clock.add_rows(internal::rows_of(*batch_));
            }
            if (!batch_) {
                if (!pass_.has_ended() && ProcessContext::current().clock.steps() == steps_) {
                    loader_->say_repeated(end_);
                }
                pass_.end();
                return;
            }
            if (end_ > 0) {
                const auto size =
                    static_cast<std::int64_t>(loader_->loader_->options().batch_size) *
                    loader_->epoch_->epoch.size;
                const auto taken = pass_.position().samples; // the last batch may be short
                pass_.position().advance(size < end_ - taken ? taken + size : end_, true);
            }
        }

        /// torch's iterator reads when it advances.
        [[nodiscard]] std::optional<Batch> read() {
            if (std::exchange(started_, true)) {
                ++next_;
            }
            if (next_ == loader_->loader_->end()) {
                return std::nullopt;
            }
            return std::move(*next_);
        }

        DeviceLoader* loader_;
        Pass pass_;
        std::int64_t end_; ///< of the epoch, in rows of all ranks; 0: rows are not counted
        std::int64_t steps_ = ProcessContext::current().clock.steps(); ///< when the pass began
        DevicePrefetch<Batch> prefetch_;
        torch::data::Iterator<Batch> next_;
        bool started_ = false;
        std::optional<Batch> batch_;
    };

    [[nodiscard]] Iterator begin() { return Iterator(*this); }
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
    [[nodiscard]] const Loader& loader() const noexcept { return *loader_; } ///< the wrapped loader

    /// Returns itself, to act like the pointer that torch's make_data_loader() returns: `for (auto&
    /// batch : *loader)`.
    [[nodiscard]] DeviceLoader& operator*() noexcept { return *this; }
    [[nodiscard]] DeviceLoader* operator->() noexcept { return this; }
    /// The wrapped loader's options.
    [[nodiscard]] const torch::data::FullDataLoaderOptions& options() const noexcept {
        return loader_->options();
    }

private:
    /// Begins a pass; one that has already ended if it is to be skipped.
    [[nodiscard]] Pass begin_pass() {
        if (position_->consume_skip()) {
            LoopStack::current().skip(*position_);
            return Pass();
        }
        if (epoch_) {
            position_->begin_pass(epoch_->epoch.rows, order_name("sharded", epoch_->epoch));
        }
        return Pass(position_, c10::GradMode::is_enabled());
    }
    /// The number of rows all ranks have taken at the end of this epoch.
    [[nodiscard]] std::int64_t end_of_pass() const {
        return epoch_ ? distributed_end(epoch_->now(), position_->samples) : 0;
    }

    /// The length of a pass that ends on all ranks after `end` rows; 0: rows are not counted.
    [[nodiscard]] LoopStatus::Length length_to(std::int64_t end) const {
        const auto size = static_cast<std::int64_t>(loader_->options().batch_size);
        if (end == 0) {
            return {.rows = size};
        }
        const std::int64_t of_all = size * epoch_->epoch.size;
        return {.first = position_->samples / of_all,
                .total = (end + (loader_->options().drop_last ? 0 : of_all - 1)) / of_all,
                .rows = size,
                .rows_of_all = of_all};
    }

    void say_repeated(std::int64_t end) const {
        if (epoch_ && epoch_->epoch.rank == 0) {
            data::say_repeated(*position_, end - epoch_->epoch.rows, epoch_->epoch.rows);
        }
    }

    /// Warns once that an epoch has no batch.
    void say_empty() const {
        const EpochRequest& epoch = epoch_->epoch;
        if (epoch.rank == 0 && !std::exchange(position_->said_empty, true)) {
            const auto size = static_cast<std::int64_t>(loader_->options().batch_size);
            say_empty_epoch(epoch.rows, size, epoch.size);
        }
    }

    std::unique_ptr<Loader> loader_;
    at::Device device_;
    std::shared_ptr<Position> position_;
    std::optional<LoaderEpoch> epoch_; ///< of the loader's DistributedSampler
};

/// A rank's part of the rows of a torch::data loader.
struct LoaderShard {
    EpochRequest epoch;
    at::Device device = at::kCPU;
    std::shared_ptr<Position> position;               ///< shared with the code that saves it
    std::optional<bool> each_row_once = std::nullopt; ///< see BatchOptions
};

/// A loader over this rank's rows of `dataset`; its sampler is a DistributedSampler.
template <class D>
[[nodiscard]] auto make_distributed_loader(D dataset, const torch::data::DataLoaderOptions& options,
                                           LoaderShard shard) {
    if (!dataset.size().has_value()) {
        throw DataError("RT-D10", "a torch::data data set without a size cannot be split between "
                                  "ranks by rows; use a data set with a known size()");
    }
    shard.epoch.rows = static_cast<std::int64_t>(*dataset.size());
    const LoaderEpoch of{shard.epoch, shard.each_row_once, options.drop_last()};
    auto loader = torch::data::make_data_loader(std::move(dataset),
                                                DistributedSampler(of, shard.position), options);
    using Loader = typename decltype(loader)::element_type;
    return DeviceLoader<Loader>(std::move(loader), shard.device, std::move(shard.position), of);
}

/// Replaces a loader's sampler by a DistributedSampler, as Ray Train's prepare_data_loader does:
/// RandomSampler becomes a shuffled one, any other an ordered one. A loader whose sampler is
/// already distributed is kept. The loader must have no worker threads (RT-D11), because torch
/// moves the data set into them.
template <class D, class Sampler>
[[nodiscard]] auto
distribute_loader(std::unique_ptr<torch::data::StatelessDataLoader<D, Sampler>> loader,
                  LoaderShard shard) {
    using Loader = torch::data::StatelessDataLoader<D, Sampler>;
    constexpr bool distributed =
        std::is_base_of_v<DistributedSampler, Sampler> ||
        std::is_base_of_v<torch::data::samplers::DistributedSampler<>, Sampler>;
    if constexpr (distributed) {
        return DeviceLoader<Loader>(std::move(loader), shard.device);
    } else {
        // The data set is a protected member of torch's loader and has no accessor.
        struct Access : Loader {
            static std::unique_ptr<D> take(Loader& from) {
                return std::move(from.*(&Access::main_thread_dataset_));
            }
        };
        const auto full = loader->options();
        std::unique_ptr<D> dataset = Access::take(*loader);
        if (!dataset) {
            throw DataError("RT-D11", "a loader with worker threads no longer holds its data set; "
                                      "call worker.prepare(dataset, options) instead");
        }
        torch::data::DataLoaderOptions options(full.batch_size);
        options.enforce_ordering(full.enforce_ordering).drop_last(full.drop_last);
        shard.epoch.shuffle = std::is_base_of_v<torch::data::samplers::RandomSampler, Sampler>;
        return make_distributed_loader(std::move(*dataset), options, std::move(shard));
    }
}

} // namespace rtrain::data
