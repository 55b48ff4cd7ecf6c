// SPDX-License-Identifier: Apache-2.0
/// @file
/// Epochs: what `worker.epochs()` and `worker.steps()` return.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/state/progress.hpp>

#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

namespace rtrain {

/// A range of epoch or step numbers, to be iterated once.
class Epochs {
public:
    /// The worker's hooks around the loop.
    struct Hooks {
        std::function<void()> begin;
        std::function<bool()> end_epoch;  ///< called after the body; returns true to end the loop
        std::function<void()> left_early; ///< by `break` or `return`
        std::function<void()> end;        ///< called however the loop ended
        bool in_steps = false;            ///< the loop counts steps
    };

    Epochs(Progress& progress, int count, Hooks hooks);
    Epochs(const Epochs&) = delete;
    Epochs& operator=(const Epochs&) = delete;
    /// Throws what left_early() throws: leaving the loop calls no other hook.
    ~Epochs() noexcept(false);

    /// Incrementing ends an epoch and begins the next.
    class Iterator {
    public:
        using value_type = int;
        using difference_type = std::ptrdiff_t;
        Iterator(Epochs& epochs, int count)
            : epochs_(&epochs), epoch_(epochs.progress_.epoch() + 1), count_(count) {}
        [[nodiscard]] int operator*() const {
            if (!std::exchange(has_begun_, true)) {
                epochs_->progress_.begin_epoch(epoch_);
                ProcessContext::current().loop.begin_epoch(epoch_, count_,
                                                           epochs_->hooks_.in_steps);
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

    /// Ends the loop between two epochs; a further loop continues with the next one. Loops over
    /// batches after this one belong to no epoch.
    void leave();

private:
    Progress& progress_;
    int count_;
    Hooks hooks_;
    process::Owner owner_;
    bool is_under_way_ = false;
    int exceptions_ = 0; ///< in flight when the loop began
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/train/epochs_definitions.hpp>
#endif
