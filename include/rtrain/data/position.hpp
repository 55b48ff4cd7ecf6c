// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place reached in a data set, and a pass over it. Cost tier 0: std only.
#pragma once

#include <rtrain/error.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace rtrain::data {

/// How far ranks have come in a data set; a checkpoint holds it. Nothing in it depends on the
/// number of ranks.
struct Position {
    std::int64_t epoch = 0; ///< the pass under way, or the next one
    std::int64_t samples =
        0; ///< rows of this pass that all ranks together have taken, in whole steps
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
    explicit Pass(std::shared_ptr<Position> position) : position_(std::move(position)) {
        position_->iterating = true;
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

    void end() noexcept {
        if (position_) { // not moved from, and not ended before
            position_->finish_epoch();
            position_.reset();
        }
    }

private:
    std::shared_ptr<Position> position_;
};

} // namespace rtrain::data
