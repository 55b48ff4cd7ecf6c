// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place reached in a data set, and a pass over it. Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

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
