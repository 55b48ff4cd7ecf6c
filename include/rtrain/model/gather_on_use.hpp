// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that is filled when an operator is about to use it. A callback of at::RecordFunction sees
/// each operator's arguments before its kernel, in forward and in backward, also views that
/// autograd has saved. There are a few slots; the unit whose use is longest ago makes room.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/recorded_inputs.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Calls it back before each operator of this process, while it lives. Torch swallows what
/// callbacks throw. So a use that fails makes its storages throw when the kernel asks for their
/// memory, and rethrow_failure() has the exception.
class GatherOnUse {
public:
    /// Fills a slot with a unit. Its memory is not written by models.
    using Gather = std::function<void(std::size_t unit, std::size_t slot)>;

    GatherOnUse(std::vector<std::byte*> slots, Gather gather)
        : slots_(std::move(slots)), in_slot_(slots_.size(), nullptr), gather_(std::move(gather)),
          handle_(at::addGlobalCallback(at::RecordFunctionCallback(&GatherOnUse::before)
                                            .needsInputs(true)
                                            .scopes({at::RecordScope::FUNCTION}))) {}
    GatherOnUse(const GatherOnUse&) = delete;
    GatherOnUse& operator=(const GatherOnUse&) = delete;
    ~GatherOnUse() {
        at::removeCallback(handle_);
        for (Resident& unit : units_) { // tensors may outlive it
            point_at(unit, nullptr, at::DataPtr(nullptr, c10::Device(c10::kCPU)));
        }
    }

    /// A storage for a unit of `bytes`, which is not there yet.
    [[nodiscard]] c10::Storage add(std::string name, std::size_t bytes) {
        Resident& unit = units_.emplace_back();
        unit.owner = this;
        unit.number = units_.size() - 1;
        unit.name = std::move(name);
        unit.bytes = bytes;
        unit.storage = c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                    at::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr, false);
        leave(unit);
        return unit.storage;
    }

    /// Units have other bytes now: they are gathered again.
    void release() {
        for (Resident& unit : units_) {
            leave(unit);
        }
    }

    /// Throws what a use has failed with, if one has.
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
        std::size_t slot = 0;
        std::uint64_t used = 0; ///< the last operator
    };

    /// Marks the memory of units, which know their owner by the context. Frees nothing.
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

    /// All arguments count as used before one of them is brought, so that none makes room for
    /// another.
    static std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& call) {
        thread_local std::uint64_t number = 0;
        ++number;
        bool lacks = false;
        each_unit(call, [&](Resident& unit) { lacks = !unit.owner->has(unit, number) || lacks; });
        if (lacks) {
            each_unit(call, [&](Resident& unit) { unit.owner->bring(unit, call.name()); });
        }
        return nullptr;
    }

    [[nodiscard]] bool has(Resident& unit, std::uint64_t number) {
        if (std::this_thread::get_id() != thread_) {
            return false;
        }
        operator_ = unit.used = number;
        return unit.is_here;
    }

    void bring(Resident& unit, const char* what) {
        try {
            if (failure_) {
                return;
            }
            if (std::this_thread::get_id() != thread_) {
                throw ModelError("RT-M50",
                                 concat("operator ", what, " uses weights of unit \"", unit.name,
                                        "\" in another thread than the one "
                                        "that has prepared the model, in which ranks "
                                        "gather them; let that thread run the model"));
            }
            if (unit.is_here) {
                return;
            }
            const std::size_t slot = make_room(what);
            {
                const at::RecordFunctionGuard unseen(false);
                const c10::NoGradGuard no_grad;
                gather_(unit.number, slot);
            }
            if (in_slot_[slot] != nullptr) {
                leave(*in_slot_[slot]);
            }
            in_slot_[slot] = &unit;
            unit.slot = slot;
            unit.is_here = true;
            point_at(unit, slots_[slot],
                     at::DataPtr(slots_[slot], &unit, &mark, c10::Device(c10::kCPU)));
        } catch (const std::exception& problem) {
            fail(problem.what());
        }
    }

    [[nodiscard]] std::size_t make_room(const char* what) const {
        const Resident* oldest = nullptr;
        for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
            const Resident* const unit = in_slot_[slot];
            if (unit == nullptr) {
                return slot;
            }
            if (unit->used != operator_ && (oldest == nullptr || unit->used < oldest->used)) {
                oldest = unit;
            }
        }
        if (oldest == nullptr) {
            std::string names;
            for (const Resident& unit : units_) {
                if (unit.used == operator_) {
                    names += concat(names.empty() ? "\"" : ", \"", unit.name, '"');
                }
            }
            throw ModelError("RT-M48", concat("operator ", what, " uses weights of units ", names,
                                              " at once, but resident_units is ", slots_.size(),
                                              "; raise it, or let ShardedOptions::units put them "
                                              "into one unit"));
        }
        return oldest->slot;
    }

    void leave(Resident& unit) {
        if (unit.is_here) {
            in_slot_[unit.slot] = nullptr;
        }
        unit.is_here = false;
        point_at(unit, nullptr, at::DataPtr(nullptr, &unit, &mark, c10::Device(c10::kCPU)));
    }
    static void point_at(Resident& unit, const std::byte* memory, at::DataPtr&& data) {
        unit.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
        unit.storage.set_nbytes(memory != nullptr ? unit.bytes : 0);
    }

    /// For good: ranks do not know any more what the others have.
    void fail(const std::string& why) {
        failure_ = std::current_exception();
        for (Resident& unit : units_) {
            leave(unit);
            unit.storage.set_nbytes(unit.bytes); // else views of it complain first
            unit.storage.unsafeGetStorageImpl()
                ->release_data_and_set_meta_custom_data_ptr_error_msg_(why);
        }
    }

    std::vector<std::byte*> slots_; ///< where models read them
    std::vector<Resident*> in_slot_;
    std::deque<Resident> units_; ///< at addresses that stay
    Gather gather_;
    std::exception_ptr failure_;
    std::thread::id thread_ = std::this_thread::get_id();
    std::uint64_t operator_ = 0; ///< that looks at its arguments now
    at::CallbackHandle handle_;
};

} // namespace rtrain::detail
