// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door epochs.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/state/progress.hpp>
#include <rtrain/train/epochs.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <utility>

namespace rtrain {

RTRAIN_DOOR Epochs::Epochs(Progress& progress, int count, Hooks hooks)
    : progress_(progress), count_(count), hooks_(std::move(hooks)) {}

RTRAIN_DOOR Epochs::~Epochs() noexcept(false) {
    struct End {
        Epochs& epochs;
        ~End() { epochs.leave(); }
    } const end{*this};
    if (is_under_way_ && owner_.is_this_process() && std::uncaught_exceptions() == exceptions_) {
        hooks_.left_early();
    }
}

RTRAIN_DOOR Epochs::Iterator Epochs::begin() {
    hooks_.begin();
    is_under_way_ = true;
    exceptions_ = std::uncaught_exceptions();
    const auto last = progress_.last_epoch();
    return {*this, last ? std::min(count_, *last + 1) : count_};
}

RTRAIN_DOOR void Epochs::leave() {
    if (std::exchange(is_under_way_, false)) {
        data::LoopStack::current().leave_epochs();
        hooks_.end();
    }
}

} // namespace rtrain
