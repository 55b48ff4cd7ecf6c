// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place reached in a data set, and a pass over it. Cost tier 0: std only.
#pragma once

#include <rtrain/error.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// How far ranks have come in a data set; a checkpoint holds it. Nothing in it depends on the
/// number of ranks.
struct Position {
    std::int64_t epoch = 0;   ///< the pass under way, or the next one
    std::int64_t samples = 0; ///< rows of this pass that all ranks have taken, in whole steps
    bool iterating = false;   ///< a loop over the batches is under way
    bool within_step = false; ///< ranks have taken some batches of the next step
    std::int64_t rows = 0;    ///< of the data set; 0: not known
    std::string order = {};   ///< what `samples` counts in, by order_name(); empty: not known

    /// Before a pass through `now_rows` rows in the order `now_order`. Throws DataError [RT-D12,
    /// RT-D13] when the pass has begun with others.
    void begin_pass(std::int64_t now_rows, const std::string& now_order) {
        if (samples > 0 && rows != 0 && rows != now_rows) {
            throw DataError("RT-D12",
                            detail::concat("the checkpoint was made after ", samples,
                                           " rows of an epoch over ", rows,
                                           " rows, but the data set has ", now_rows,
                                           " now; give the run the same rows, or begin a new epoch "
                                           "with set_epoch()"));
        }
        if (samples > 0 && !order.empty() && !now_order.empty() && order != now_order) {
            throw DataError(
                "RT-D13",
                detail::concat("the checkpoint was made after ", samples,
                               " rows of an epoch in the order \"", order,
                               "\", but this run reads in the order \"", now_order,
                               "\" and would repeat and miss rows; use the same, or begin "
                               "a new epoch with set_epoch()"));
        }
        rows = now_rows;
        order = now_order;
    }

    /// A new epoch is next.
    void begin_epoch(std::int64_t number) noexcept {
        epoch = number;
        samples = 0;
        iterating = false;
        within_step = false;
    }
    void finish_epoch() noexcept { begin_epoch(epoch + 1); }
};

/// What an iterator holds while it goes through the data: the epoch ends with end(), at the latest
/// when the iterator goes, for example because the loop was left early.
class Pass {
public:
    /// Called before each batch but the first is taken: what the last one was used for is done.
    using BetweenBatches = std::function<void(const Position&)>;

    explicit Pass(std::shared_ptr<Position> position) : position_(std::move(position)) {
        position_->iterating = true;
        under_way().push_back(position_.get());
    }
    Pass(Pass&&) = default;
    Pass& operator=(Pass&& other) noexcept {
        std::swap(position_, other.position_);
        return *this;
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { end(); }

    /// The place that this pass has reached; not after end().
    [[nodiscard]] Position& position() noexcept { return *position_; }

    void between_batches() const {
        if (position_ && observer()) {
            observer()(*position_);
        }
    }

    void end() noexcept {
        if (position_) { // not moved from, and not ended before
            std::erase(under_way(), position_.get());
            position_->finish_epoch();
            position_.reset();
        }
    }

    /// The one pass of this thread that is under way; null when there is none, or more than one.
    [[nodiscard]] static const Position* only() noexcept {
        return under_way().size() == 1 ? under_way().front() : nullptr;
    }

    /// Who is told between the batches of all passes of this thread.
    static void observe(BetweenBatches observe) { observer() = std::move(observe); }

private:
    static std::vector<const Position*>& under_way() {
        thread_local std::vector<const Position*> passes;
        return passes;
    }
    static BetweenBatches& observer() {
        thread_local BetweenBatches told;
        return told;
    }

    std::shared_ptr<Position> position_;
};

} // namespace rtrain::data
