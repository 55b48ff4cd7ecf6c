// SPDX-License-Identifier: Apache-2.0
/// @file
/// FitEvaluation: validation, test and prediction on a checkpoint of a Fit.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/steps.hpp>
#include <rtrain/fit/context.hpp>
#include <rtrain/fit/gathered_rows.hpp>
#include <rtrain/state/state.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Batches of consecutive rows, read when the loop gets there.
class ConsecutiveBatches {
public:
    ConsecutiveBatches(data::Dataset rows, data::RowRange part, std::int64_t size,
                       at::Device device)
        : rows_(std::move(rows)), part_(part), size_(size), device_(device) {}

    class Iterator {
    public:
        Iterator(const ConsecutiveBatches& of, std::int64_t row) : of_(&of), row_(row) {}
        [[nodiscard]] data::Batch operator*() const {
            const std::int64_t end = std::min(row_ + of_->size_, of_->part_.end);
            return of_->rows_.rows(at::arange(row_, end)).to(of_->device_);
        }
        Iterator& operator++() {
            row_ = std::min(row_ + of_->size_, of_->part_.end);
            return *this;
        }
        [[nodiscard]] bool operator==(const Iterator& other) const { return row_ == other.row_; }

    private:
        const ConsecutiveBatches* of_;
        std::int64_t row_;
    };
    [[nodiscard]] Iterator begin() const { return {*this, part_.begin}; }
    [[nodiscard]] Iterator end() const { return {*this, part_.end}; }

private:
    data::Dataset rows_;
    data::RowRange part_;
    std::int64_t size_;
    at::Device device_;
};

template <class M, class W, class... Callbacks>
class FitEvaluation final : public FitContext<M, W, Callbacks...> {
    using Base = FitContext<M, W, Callbacks...>;
    using Base::model_;
    using Base::options_;
    using Base::worker_;

public:
    FitEvaluation(W& worker, typename Base::Parts parts, const Checkpoint& checkpoint,
                  const std::string& prefix)
        : Base(worker, std::move(parts)),
          plan_(options_, worker.size(), std::nullopt, [](int /*epoch*/) { return 1; }),
          logged_(prefix), step_(*this, plan_, worker.rank(), logged_), checkpoint_(checkpoint) {}

    template <class Hooks, class Each>
    void run(Stage stage, const std::string& dataset, const Each& each) {
        between_setup_and_teardown([&] {
            auto batches = worker_.dataset_shard(dataset).batches(
                {.size = options_.batch_size, .threads = options_.threads, .each_row_once = true});
            this->template evaluate<Hooks>(
                {step_, stage, logged_, options_.limit_val_batches}, batches,
                [&](const data::Batch& batch) {
                    this->run_step(step_, [&] { return each(*model_, batch, step_); });
                });
        });
        worker_.report({}, logged_.values());
    }

    /// The predictions for all rows, on each rank. *Collective.*
    [[nodiscard]] at::Tensor predict() {
        std::vector<at::Tensor> predictions;
        between_setup_and_teardown([&] {
            this->template evaluate<PredictHooks>(
                {step_, Stage::predict, logged_}, consecutive_batches(),
                [&](const data::Batch& batch) {
                    predictions.push_back(model_.call(
                        [&] { return at::Tensor(model_->predict_step(batch, step_)); }));
                });
        });
        return gathered_rows(worker_, predictions.empty() ? at::Tensor() : at::cat(predictions));
    }

private:
    struct Saved {
        Base* context;
        void save(StateWriter& /*out*/) const {}
        void load(const StateReader& in) { context->load_callbacks(in); }
    };

    template <class Evaluate>
    void between_setup_and_teardown(const Evaluate& evaluate) {
        this->with_exception_hooks(step_, [&] {
            this->template call<setup_hook>(step_);
            Saved saved{this};
            State{}.add("model", model_).add("fit", saved).load_from(checkpoint_);
            evaluate();
            this->template call<teardown_hook>(step_);
        });
    }

    /// This rank's part of the rows. Ranks in order give all rows in order.
    [[nodiscard]] ConsecutiveBatches consecutive_batches() {
        data::Dataset rows = worker_.dataset_shard(options_.test).dataset();
        const data::RowRange part = data::even_part(rows.size(), worker_.size(), worker_.rank());
        return {std::move(rows), part, options_.batch_size, worker_.device()};
    }

    Plan plan_;
    Logged logged_;
    Step step_;
    const Checkpoint& checkpoint_;
};

} // namespace rtrain::detail
