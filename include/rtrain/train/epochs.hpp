// SPDX-License-Identifier: Apache-2.0
/// @file
/// Epochs: what `worker.epochs()` and `worker.steps()` return.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/process/loop_status.hpp>
#include <rtrain/process/owner.hpp>
#include <rtrain/state/progress.hpp>

#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

namespace rtrain {

/// A range of numbers, of epochs or steps, to be gone through once.
class Epochs {
public:
    /// What the worker does around the loop.
    struct Hooks {
        std::function<void()> begin;
        std::function<bool()> end_epoch;  ///< behind the body; whether it was the last time
        std::function<void()> left_early; ///< by `break` or `return`
        std::function<void()> end;        ///< however the loop has ended
        bool in_steps = false;            ///< each is a step
    };

    Epochs(Progress& progress, int count, Hooks hooks);
    Epochs(const Epochs&) = delete;
    Epochs& operator=(const Epochs&) = delete;
    /// Throws what left_early() throws: a loop that is left is not asked again.
    ~Epochs() noexcept(false);

    /// Ends an epoch, and begins the next one, when it is advanced.
    class Iterator {
    public:
        using value_type = int;
        using difference_type = std::ptrdiff_t;
        Iterator(Epochs& epochs, int count)
            : epochs_(&epochs), epoch_(epochs.progress_.epoch() + 1), count_(count) {}
        [[nodiscard]] int operator*() const {
            if (!std::exchange(has_begun_, true)) {
                epochs_->progress_.begin_epoch(epoch_);
                LoopStatus::current().begin_epoch(epoch_, count_, epochs_->hooks_.in_steps);
            }
            return epoch_;
        }
        Iterator& operator++() {
            epoch_ = epochs_->hooks_.end_epoch() ? count_ : epoch_ + 1;
            has_begun_ = false;
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const Iterator& self, std::default_sentinel_t /*end*/) {
            return self.is_over();
        }

    private:
        [[nodiscard]] bool is_over() const {
            const bool is_over = epoch_ >= count_;
            if (is_over) {
                epochs_->leave();
            }
            return is_over;
        }

        Epochs* epochs_;
        int epoch_;
        int count_;
        mutable bool has_begun_ = false;
    };

    [[nodiscard]] Iterator begin();
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

private:
    /// Loops over batches behind this one are in no epoch.
    void leave();

    Progress& progress_;
    int count_;
    Hooks hooks_;
    process::Owner owner_;
    bool is_under_way_ = false;
    int exceptions_ = 0; ///< in flight when it began
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/train/epochs_definitions.hpp>
#endif
