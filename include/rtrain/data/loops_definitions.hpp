// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door loops.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/process/context.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::data {

RTRAIN_DOOR LoopStack& LoopStack::current() {
    return *shared();
}

RTRAIN_DOOR const std::shared_ptr<LoopStack>& LoopStack::shared() {
    thread_local const auto loops = std::make_shared<LoopStack>();
    return loops;
}

RTRAIN_DOOR std::unique_ptr<LoopStack::Loop> LoopStack::begin(std::shared_ptr<Position> position,
                                                              bool trains) {
    forget_past(*position);
    position->finished.reserve(position->finished.size() + 1); // end() must not throw
    auto loop = std::make_unique<Loop>(Loop{std::move(position), trains, ++clock_});
    loop->leads =
        trains && std::ranges::none_of(under_way_, [](const Loop* other) { return other->trains; });
    loop->position->iterating = true;
    under_way_.push_back(loop.get());
    return loop;
}

RTRAIN_DOOR void LoopStack::take(Loop& loop) noexcept {
    if (loop.taken == 0) {
        loop.taken = ++clock_;
    }
}

RTRAIN_DOOR void LoopStack::leave_body(Loop& loop) {
    require_closed(loop.saved_around, loop.taken);
    loop.saved_around = false;
    loop.taken = 0;
    ++loop.used;
}

RTRAIN_DOOR void LoopStack::end(const Loop& loop) noexcept {
    std::erase(under_way_, &loop);
    Time body = epoch_ < loop.began ? epoch_ : 0;
    const Loop* ended_in = nullptr;
    for (const Loop* other : under_way_) {
        if (other->taken < loop.began) {
            body = std::max(body, other->taken);
        } else {
            ended_in = other;
        }
    }
    if (body != 0) {
        loop.position->finished.push_back({.epoch = loop.position->epoch,
                                           .trains = loop.trains,
                                           .body = body,
                                           .ended_in = ended_in ? ended_in->began : 0});
    }
    loop.position->finish_epoch();
}

RTRAIN_DOOR void LoopStack::skip(Position& position) const {
    Time body = epoch_;
    for (const Loop* loop : under_way_) {
        body = std::max(body, loop->taken);
    }
    forget_past(position);
    if (body != 0) {
        position.finished.push_back(
            {.epoch = position.epoch, .trains = true, .body = body, .ended_in = 0});
    }
}

RTRAIN_DOOR void LoopStack::begin_epoch() {
    require_closed(epoch_saved_around_, epoch_);
    epoch_saved_around_ = false;
    epoch_ = ++clock_;
}

RTRAIN_DOOR void LoopStack::end_epoch() noexcept {
    epoch_saved_around_ = false;
    epoch_ = ++clock_;
}

RTRAIN_DOOR void LoopStack::leave_epochs() noexcept {
    epoch_saved_around_ = false;
    epoch_ = 0;
}

RTRAIN_DOOR const LoopStack::Loop* LoopStack::only() const noexcept {
    return under_way_.size() == 1 ? under_way_.front() : nullptr;
}

RTRAIN_DOOR const LoopStack::Loop* LoopStack::over(const Position& position) const noexcept {
    const auto found = std::ranges::find_if(
        under_way_, [&](const Loop* loop) { return loop->position.get() == &position; });
    return found == under_way_.end() ? nullptr : *found;
}

RTRAIN_DOOR double LoopStack::weight() const noexcept {
    const Loop* found = nullptr;
    for (const Loop* loop : under_way_) {
        if (loop->trains && loop->taken != 0) {
            if (found) {
                return 1;
            }
            found = loop;
        }
    }
    return found ? found->weight : 1;
}

RTRAIN_DOOR bool LoopStack::is_around_another(const Loop& loop) const noexcept {
    return loop.taken != 0 && std::ranges::any_of(under_way_, [&](const Loop* other) {
               return other->began > loop.taken && other->taken != 0;
           });
}

RTRAIN_DOOR bool LoopStack::within_epoch() const noexcept {
    return epoch_ != 0 && std::ranges::any_of(under_way_, [this](const Loop* loop) {
               return loop->began > epoch_ && loop->taken != 0;
           });
}

RTRAIN_DOOR std::vector<FinishedPass> LoopStack::finished(const Position& position) const {
    std::vector<FinishedPass> passes;
    std::ranges::copy_if(position.finished, std::back_inserter(passes),
                         [this](const FinishedPass& pass) { return begins_again(pass.body); });
    return passes;
}

RTRAIN_DOOR void LoopStack::note_saved() noexcept {
    for (Loop* loop : under_way_) {
        loop->saved_around = loop->saved_around || is_around_another(*loop);
    }
    epoch_saved_around_ = epoch_saved_around_ || within_epoch();
}

RTRAIN_DOOR bool LoopStack::is_open(Time body) const noexcept {
    return body == epoch_ ||
           std::ranges::any_of(under_way_, [&](const Loop* loop) { return loop->taken == body; });
}

RTRAIN_DOOR bool LoopStack::begins_again(Time body) const noexcept {
    return body == epoch_ ? within_epoch() : std::ranges::any_of(under_way_, [&](const Loop* loop) {
        return loop->taken == body && is_around_another(*loop);
    });
}

RTRAIN_DOOR void LoopStack::forget_past(Position& position) const {
    std::erase_if(position.finished, [this](const FinishedPass& pass) {
        return !is_open(pass.body) || std::ranges::any_of(under_way_, [&](const Loop* loop) {
            return loop->began == pass.ended_in;
        });
    });
}

RTRAIN_DOOR void LoopStack::require_closed(bool saved_around, Time body) const {
    if (saved_around &&
        std::ranges::any_of(under_way_, [&](const Loop* loop) { return loop->began > body; })) {
        throw DataError(
            "RT-D16",
            "a checkpoint was made inside the body of a loop over batches while an inner loop was "
            "running, but the inner loop continues after that body, and a resumed run could not "
            "find its position; begin iterators that are advanced by hand before the loop that "
            "advances them, or advance them before the report");
    }
}

RTRAIN_DOOR Pass::Pass(std::shared_ptr<Position> position, bool trains)
    : loop_(LoopStack::current().begin(std::move(position), trains)) {
    end_if_asked();
}

RTRAIN_DOOR Pass& Pass::operator=(Pass&& other) noexcept {
    std::swap(loop_, other.loop_);
    return *this;
}

RTRAIN_DOOR Pass::~Pass() {
    end();
}

RTRAIN_DOOR void Pass::take() noexcept {
    if (loop_) {
        LoopStack::current().take(*loop_);
    }
}

RTRAIN_DOOR void Pass::leave_batch() {
    if (loop_) {
        if (leads()) {
            ProcessContext::current().loop.advance();
        }
        if (observers().between_batches) {
            observers().between_batches(*loop_);
        }
        LoopStack::current().leave_body(*loop_);
        end_if_asked();
    }
}

RTRAIN_DOOR void Pass::end() noexcept {
    if (loop_) { // not moved from, and not ended before
        if (leads()) {
            ProcessContext::current().loop.end_loop();
        }
        LoopStack::current().end(*loop_);
        loop_.reset();
    }
}

RTRAIN_DOOR Pass::Callbacks Pass::observe(Callbacks callbacks) {
    return std::exchange(observers(), std::move(callbacks));
}

RTRAIN_DOOR void Pass::end_if_asked() {
    if (observers().ends_here && observers().ends_here(*loop_)) {
        end();
    }
}

RTRAIN_DOOR Pass::Callbacks& Pass::observers() {
    thread_local Callbacks callbacks;
    return callbacks;
}

} // namespace rtrain::data
