// SPDX-License-Identifier: Apache-2.0
/// @file
/// FitWindows: the batches that Fit trains on, and how many of them make a step.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/fit/checks.hpp>
#include <rtrain/fit/options.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace rtrain::detail {

/// The batches of a training, in windows of batches that make a step.
template <class W>
class FitWindows {
public:
    /// `accumulate`: in the first epoch. Throws ConfigError [RT-F11].
    FitWindows(W& worker, const FitOptions& options, int accumulate)
        : worker_(worker), options_(options) {
        begin_epoch(accumulate);
        try {
            all_batches_ = batches_->size();
        } catch (const DataError& error) {
            if (error.code() != "RT-D71") { // rows that are not counted
                throw;
            }
        }
    }

    /// Keeps the batches of the previous epoch if its windows were the same.
    void begin_epoch(int accumulate) {
        if (batches_ && accumulate_ == accumulate) {
            return;
        }
        check_accumulate(options_, accumulate, worker_.size());
        accumulate_ = accumulate;
        // Carried gradients are in checkpoints, which may then be made between batches.
        const bool in_steps = adds_by_micro_batches(options_) ||
                              (accumulate > 1 && options_.last_window != LastWindow::carry);
        batches_.reset(); // the next ones continue its position
        batches_.emplace(
            worker_.dataset_shard(options_.train)
                .batches({.size = options_.batch_size,
                          .shuffle = options_.shuffle && options_.overfit_batches == 0,
                          .micro_batches =
                              in_steps ? std::int64_t{passes_of(accumulate)} * worker_.size() : 0,
                          .threads = options_.threads}));
    }
    /// The batches of the epoch.
    [[nodiscard]] const data::Batches& epoch() const { return *batches_; }

    /// The number of batches in the window that begins with batch `number` of the epoch; 0: it and
    /// those after it are left out.
    [[nodiscard]] int next(std::int64_t number) const {
        const int whole = passes_of(accumulate_);
        if (options_.last_window == LastWindow::carry) {
            return whole;
        }
        const std::int64_t limit = this->limit(options_.limit_train_batches);
        const std::int64_t left = limit > 0 ? limit - number : whole;
        const auto passes =
            static_cast<int>(std::min({std::int64_t{whole}, left, batches_->step_passes()}));
        return options_.last_window == LastWindow::drop && passes < whole ? 0 : passes;
    }
    /// True if the limit ends the epoch before batch `number`.
    [[nodiscard]] bool ends_before(std::int64_t number) const {
        const std::int64_t limit = this->limit(options_.limit_train_batches);
        return limit > 0 && number >= limit;
    }

    /// The number of batches of this rank in a step.
    [[nodiscard]] int passes_of(int accumulate) const {
        return adds_by_micro_batches(options_) ? accumulate / worker_.size() : accumulate;
    }
    /// The number of batches of this rank in an epoch; empty if rows are not counted.
    [[nodiscard]] std::optional<std::int64_t> batches() const {
        const std::int64_t limit = this->limit(options_.limit_train_batches);
        return all_batches_ && limit > 0 ? std::min(limit, *all_batches_) : all_batches_;
    }
    /// The same without limits.
    [[nodiscard]] std::optional<std::int64_t> all_batches() const { return all_batches_; }

    /// The least of a limit and those for trials of a program; 0: none.
    [[nodiscard]] std::int64_t limit(std::int64_t given) const {
        for (const std::int64_t other : {options_.overfit_batches, options_.fast_dev_run,
                                         std::int64_t{worker_.fast_dev_run()}}) {
            given = other > 0 && given > 0 ? std::min(given, other) : std::max(given, other);
        }
        return given;
    }

private:
    W& worker_;
    const FitOptions& options_;
    int accumulate_ = 0;
    std::optional<data::Batches> batches_;
    std::optional<std::int64_t> all_batches_;
};

} // namespace rtrain::detail
