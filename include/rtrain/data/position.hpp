// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place reached in a data set, and a pass over it. Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace rtrain::data {

/// How far ranks have come in a data set; a checkpoint holds it.
struct Position {
    std::int64_t epoch = 0;   ///< the pass under way, or the next one
    std::int64_t samples = 0; ///< rows of this pass that all ranks together have taken
    bool iterating = false;   ///< a loop over the batches is under way

    void finish_epoch() noexcept { *this = {epoch + 1, 0, false}; }
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
