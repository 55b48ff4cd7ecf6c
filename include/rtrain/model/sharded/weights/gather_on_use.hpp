// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that is filled when an operator is about to use it. A callback of at::RecordFunction sees
/// each operator's arguments before its kernel, in forward and in backward, including views that
/// autograd has saved. There are few slots. The least recently used unit is evicted; where passes
/// repeat, the one whose next use is farthest, and the next unit is prefetched while operators
/// compute.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/profile/recorded_inputs.hpp>
#include <rtrain/model/sharded/plan/unit_all_gather.hpp>
#include <rtrain/model/sharded/plan/unit_order.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Observes each operator of this process while it lives. Torch swallows exceptions thrown by
/// callbacks. So a use that fails makes its storages throw when the kernel accesses their memory,
/// and rethrow_failure() has the exception.
class GatherOnUse {
public:
    /// `slots`: where models read gathered units, on `device`; models do not write there.
    GatherOnUse(std::vector<std::byte*> slots, at::Device device, UnitAllGather& gathering)
        : slots_(std::move(slots)), device_(device), in_slot_(slots_.size(), nullptr),
          gathering_(gathering),
          handle_(at::addGlobalCallback(at::RecordFunctionCallback(&GatherOnUse::before)
                                            .needsInputs(true)
                                            .scopes({at::RecordScope::FUNCTION}))) {
        polls_->owner = this;
    }
    GatherOnUse(const GatherOnUse&) = delete;
    GatherOnUse& operator=(const GatherOnUse&) = delete;
    ~GatherOnUse() {
        at::removeCallback(handle_);
        {
            const std::lock_guard lock(polls_->mutex);
            polls_->owner = nullptr;
        }
        for (Resident& unit : units_) { // tensors may outlive it
            point_at(unit, nullptr, at::DataPtr(nullptr, device_));
        }
    }

    /// Creates a storage for a unit of `bytes`, which is not gathered yet.
    [[nodiscard]] c10::Storage add(std::string name, std::size_t bytes) {
        Resident& unit = units_.emplace_back();
        unit.owner = this;
        unit.number = units_.size() - 1;
        unit.name = std::move(name);
        unit.bytes = bytes;
        unit.storage = c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                    at::DataPtr(nullptr, device_), nullptr, false);
        leave(unit);
        return unit.storage;
    }

    /// Evicts all units, because their weights have changed.
    void release() {
        for (Resident& unit : units_) {
            leave(unit);
        }
        begin_pass();
    }
    /// Begins another pass through the units.
    void begin_pass() {
        order_.begin_pass();
        last_ = nullptr;
        for (Resident& unit : units_) {
            unit.is_along = false;
        }
    }
    /// Ends a pass, and begins a step. *Collective.* Throws ModelError [RT-M49] when ranks have
    /// used units in different orders.
    void agree() {
        begin_pass();
        if (const auto same = gathering_.agree(order_.hash())) {
            order_.agree(*same);
        }
    }

    [[nodiscard]] const GatherCounts& counts() const noexcept { return counts_; }

    /// Rethrows the exception of a failed use, if there is one.
    void rethrow_failure() const {
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    }

private:
    struct Resident {
        GatherOnUse* owner = nullptr;
        std::size_t number = 0;
        std::string name;
        std::size_t bytes = 0;
        c10::Storage storage;
        bool is_here = false;
        bool is_coming = false; ///< started for a slot
        std::size_t slot = 0;
        std::uint64_t used = 0; ///< number of the operator that used it last
        bool is_along = false;  ///< an operator, which may still run, uses it with others
    };

    /// Marks the memory of units: its context is the unit. Frees nothing.
    static void mark(void* /*unit*/) {}

    [[nodiscard]] static Resident* unit_of(const c10::IValue& value) {
        if (!value.isTensor()) {
            return nullptr;
        }
        const at::Tensor& tensor = value.toTensor();
        if (!tensor.defined() || !tensor.has_storage()) {
            return nullptr;
        }
        auto* const storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
        const at::DataPtr& data = storage->_mutable_data_ptr_no_checks();
        return data.get_deleter() == &mark ? static_cast<Resident*>(data.get_context()) : nullptr;
    }
    template <class Visit>
    static void each_unit(const at::RecordFunction& call, Visit&& visit) {
        for (const c10::IValue& value : inputs_of(RecordedInputs{}, call)) {
            if (Resident* const unit = unit_of(value)) {
                visit(*unit);
            } else if (value.isList()) {
                for (const c10::IValue& item : value.toListRef()) {
                    if (Resident* const other = unit_of(item)) {
                        visit(*other);
                    }
                }
            }
        }
    }

    /// Marks all arguments as used before gathering any, so that none evicts another.
    static std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& call) {
        thread_local std::uint64_t number = first_number_of_thread();
        ++number;
        bool is_new = false;
        Resident* other = nullptr;
        each_unit(call, [&](Resident& unit) {
            is_new = !unit.owner->touch(unit, number) || is_new;
            if (other != nullptr && other != &unit) {
                other->is_along = unit.is_along = true;
            }
            other = &unit;
        });
        if (is_new) {
            each_unit(call, [&](Resident& unit) { unit.owner->use(unit, call); });
        }
        if (polled) {
            poll();
        }
        return nullptr;
    }

    /// Gives each thread its own range, so that operator numbers are unique.
    [[nodiscard]] static std::uint64_t first_number_of_thread() {
        static std::atomic<std::uint64_t> threads{0};
        constexpr int of_operators = 40;
        return ++threads << of_operators;
    }

    /// Marks a unit as used by an operator; true if it need not be gathered.
    [[nodiscard]] bool touch(Resident& unit, std::uint64_t number) {
        if (!is_its_thread()) {
            return false;
        }
        if (number != number_) {
            number_ = number;
            ++operator_;
        }
        unit.used = operator_;
        return unit.is_here && &unit == last_;
    }
    /// On other devices backward runs in its own thread, while the caller waits.
    [[nodiscard]] bool is_its_thread() const {
        return !device_.is_cpu() || std::this_thread::get_id() == thread_;
    }

    void use(Resident& unit, const at::RecordFunction& call) {
        guarded([&] {
            if (!is_its_thread()) {
                throw ModelError("RT-M50",
                                 concat("operator ", call.name(), " uses weights of unit \"",
                                        unit.name,
                                        "\" in a different thread than the one that prepared the "
                                        "model, in which ranks gather them; run the model in that "
                                        "thread, or prepare it with level Shard::gradients"));
            }
            if (&unit != last_) {
                last_ = &unit;
                order_.use(unit.number);
            }
            if (&unit == ahead_) {
                ahead_ = nullptr;
            }
            if (!unit.is_here) {
                bring(unit, call.name());
            }
            if (ahead_ == nullptr && order_.is_followed()) {
                look_ahead();
            }
        });
    }

    void bring(Resident& unit, const char* what) {
        const bool is_late = !unit.is_coming;
        if (is_late) {
            start(unit, make_room(what));
        }
        const std::optional<bool> same_order = gathering_.wait(unit.slot);
        if (is_late && same_order) { // at this use on all ranks, so all change the order together
            order_.agree(*same_order);
        }
        arrive(unit);
    }
    void start(Resident& unit, std::size_t slot) {
        if (in_slot_[slot] != nullptr) {
            leave(*in_slot_[slot]);
        }
        gathering_.start(unit.number, slot, order_.hash());
        in_slot_[slot] = &unit;
        unit.slot = slot;
        unit.is_coming = true;
        ++counts_.all;
    }
    void arrive(Resident& unit) {
        unit.is_coming = false;
        unit.is_here = true;
        point_at(unit, slots_[unit.slot], at::DataPtr(slots_[unit.slot], &unit, &mark, device_));
    }

    /// Prefetches the next missing unit, if a slot holds a unit that is needed later. One at a
    /// time, complete or not, because completion differs between ranks.
    void look_ahead() {
        const std::size_t next = order_.next_without(
            [this](std::size_t unit) { return units_[unit].is_here || units_[unit].is_coming; });
        if (next == UnitOrder::never) {
            return;
        }
        const auto slot = slot_for([&](const Resident& unit) {
            return unit.used != operator_ && !unit.is_along &&
                   order_.until(unit.number) > order_.until(next);
        });
        if (slot) {
            start(units_[next], *slot);
            ahead_ = &units_[next];
            polled = polls_;
            ++counts_.ahead;
        }
    }

    /// Polls what this thread has prefetched.
    static void poll() {
        const std::shared_ptr<Polls> polls = polled;
        const std::lock_guard lock(polls->mutex);
        GatherOnUse* const owner = polls->owner;
        bool goes_on = false;
        if (owner != nullptr) {
            owner->guarded([&] { goes_on = !owner->gathering_.poll(); });
        }
        if (!goes_on) {
            polled = nullptr;
        }
    }

    /// Hides the torch operators that `action` calls from the callback.
    template <class Action>
    void guarded(Action&& action) {
        try {
            if (!failure_) {
                const at::RecordFunctionGuard unseen(false);
                const c10::NoGradGuard no_grad;
                action();
            }
        } catch (const std::exception& problem) {
            fail(problem.what());
        }
    }

    /// An empty slot, or, of those whose unit `can_go`, the one needed last or used least recently.
    template <class CanGo>
    [[nodiscard]] std::optional<std::size_t> slot_for(CanGo&& can_go) const {
        const Resident* gone = nullptr;
        std::size_t until = 0;
        for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
            const Resident* const unit = in_slot_[slot];
            if (unit == nullptr) {
                return slot;
            }
            if (can_go(*unit)) {
                const std::size_t next = order_.is_followed() ? order_.until(unit->number) : 0;
                if (gone == nullptr || next > until || (next == until && unit->used < gone->used)) {
                    gone = unit;
                    until = next;
                }
            }
        }
        return gone != nullptr ? std::optional(gone->slot) : std::nullopt;
    }
    [[nodiscard]] std::size_t make_room(const char* what) const {
        const auto slot = slot_for([this](const Resident& unit) { return unit.used != operator_; });
        if (!slot) {
            std::string names;
            for (const Resident& unit : units_) {
                if (unit.used == operator_) {
                    names += concat(names.empty() ? "\"" : ", \"", unit.name, '"');
                }
            }
            throw ModelError("RT-M48",
                             concat("operator ", what, " uses weights of units ", names,
                                    " at the same time, but resident_units is ", slots_.size(),
                                    "; raise resident_units, or let ShardedOptions::units put them "
                                    "into one unit"));
        }
        return *slot;
    }

    void leave(Resident& unit) {
        if (unit.is_here || unit.is_coming) {
            in_slot_[unit.slot] = nullptr;
        }
        unit.is_here = unit.is_coming = unit.is_along = false;
        if (ahead_ == &unit) {
            ahead_ = nullptr;
        }
        point_at(unit, nullptr, at::DataPtr(nullptr, &unit, &mark, device_));
    }
    static void point_at(Resident& unit, const std::byte* memory, at::DataPtr&& data) {
        unit.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
        unit.storage.set_nbytes(memory != nullptr ? unit.bytes : 0);
    }

    /// Fails permanently: ranks have lost track of the others' state.
    void fail(const std::string& why) {
        failure_ = std::current_exception();
        for (Resident& unit : units_) {
            leave(unit);
            unit.storage.set_nbytes(unit.bytes); // else views of it complain first
            unit.storage.unsafeGetStorageImpl()
                ->release_data_and_set_meta_custom_data_ptr_error_msg_(why);
        }
    }

    /// State that operators of a thread poll. Another thread may destroy the model meanwhile.
    struct Polls {
        std::mutex mutex;
        GatherOnUse* owner = nullptr;
    };
    /// The object that last prefetched in this thread, which is its thread_.
    static inline thread_local std::shared_ptr<Polls> polled = nullptr;

    std::vector<std::byte*> slots_;
    at::Device device_;
    std::vector<Resident*> in_slot_;
    std::deque<Resident> units_; ///< at stable addresses
    UnitAllGather& gathering_;
    UnitOrder order_;
    Resident* last_ = nullptr;  ///< used most recently
    Resident* ahead_ = nullptr; ///< prefetched, and not used since
    GatherCounts counts_;
    std::exception_ptr failure_;
    std::thread::id thread_ = std::this_thread::get_id();
    std::shared_ptr<Polls> polls_ = std::make_shared<Polls>();
    std::uint64_t operator_ = 0; ///< whose arguments are being examined
    std::uint64_t number_ = 0;   ///< its number among all operators of the process
    at::CallbackHandle handle_;
};

} // namespace rtrain::detail
