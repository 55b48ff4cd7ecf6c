// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of gradient_arena.hpp.
#pragma once

#include <rtrain/model/ddp/gradient_arena.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace rtrain::detail {

/// All memory of arenas that live, or in which tensors do.
class ArenaMemories {
public:
    static ArenaMemories& all() {
        static auto* const instance = new ArenaMemories; // tensors may outlive main()
        return *instance;
    }
    void add(std::shared_ptr<ArenaMemory> memory) {
        const std::scoped_lock lock(mutex_);
        memories_.push_back(std::move(memory));
    }
    /// Keeps the memory until its last place is released.
    void remove(const std::shared_ptr<ArenaMemory>& memory) {
        const std::scoped_lock lock(mutex_);
        ended_.push_back(memory);
        drop_free();
    }
    bool release(const void* data) {
        const std::scoped_lock lock(mutex_);
        const bool found = std::any_of(memories_.begin(), memories_.end(),
                                       [&](const auto& it) { return it->release(data); });
        if (found && !ended_.empty()) {
            drop_free();
        }
        return found;
    }

private:
    void drop_free() {
        std::erase_if(ended_, [this](const auto& memory) {
            return !memory->any_taken() && std::erase(memories_, memory) > 0;
        });
    }
    std::mutex mutex_;
    std::vector<std::shared_ptr<ArenaMemory>> memories_;
    std::vector<std::shared_ptr<ArenaMemory>> ended_;
};

/// The arena in which this thread's backward allocates gradients.
inline std::shared_ptr<GradientArena>& current_arena() {
    thread_local std::shared_ptr<GradientArena> arena;
    return arena;
}

/// Installed before libtorch's CPU allocator, or the user's; forwards to it what no arena serves.
class ArenaAllocator final : public c10::Allocator {
public:
    /// Once, unless the user has set an allocator since, which then serves all.
    static void install() {
        static ArenaAllocator* const instance = [] {
            auto* const made = new ArenaAllocator(c10::GetCPUAllocator());
            c10::SetCPUAllocator(made);
            return made;
        }();
        (void)instance;
    }

    c10::DataPtr allocate(std::size_t bytes) override {
        if (GradientArena* const arena = current_arena().get()) {
            if (std::byte* const place = arena->allocate(bytes)) {
                return {place, place, &release, c10::Device(c10::kCPU)};
            }
        }
        return before_->allocate(bytes);
    }
    [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override {
        return delete_before_ == nullptr ? nullptr : &release;
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        before_->copy_data(to, from, bytes);
    }

private:
    explicit ArenaAllocator(c10::Allocator* before) : before_(before) {
        delete_before_ = before->raw_deleter();
    }
    /// Releases a place; for raw_deallocate(), any memory.
    static void release(void* data) {
        if (!ArenaMemories::all().release(data) && delete_before_ != nullptr) {
            delete_before_(data);
        }
    }

    inline static c10::DeleterFnPtr delete_before_ = nullptr;
    c10::Allocator* before_;
};

RTRAIN_DOOR GradientArena::GradientArena(const std::vector<Gradient>& gradients,
                                         std::vector<std::shared_ptr<void>> owners)
    : has_arrived_(gradients.size()) {
    std::vector<ArenaMemory::Place> places;
    for (const Gradient& gradient : gradients) {
        const std::size_t bytes = gradient.place.bytes;
        auto queue = std::find_if(queues_.begin(), queues_.end(),
                                  [&](const Queue& it) { return it.bytes == bytes; });
        if (queue == queues_.end()) {
            queue = queues_.insert(queues_.end(), Queue{bytes, {}, {}, 0});
        }
        queue->order.push_back(places.size());
        queue_of_.push_back(static_cast<std::size_t>(queue - queues_.begin()));
        parameters_.push_back(gradient.parameter);
        places.push_back(gradient.place);
    }
    memory_ = std::make_shared<ArenaMemory>(std::move(places), std::move(owners));
    ArenaMemories::all().add(memory_);
    ArenaAllocator::install();
}

RTRAIN_DOOR GradientArena::~GradientArena() {
    ArenaMemories::all().remove(memory_);
}

RTRAIN_DOOR void GradientArena::enter(std::shared_ptr<GradientArena> arena) {
    current_arena() = std::move(arena);
}

RTRAIN_DOOR void GradientArena::begin() {
    has_arrived_.assign(has_arrived_.size(), false);
    for (Queue& queue : queues_) {
        if (queue.arrivals.size() == queue.order.size()) {
            queue.order.swap(queue.arrivals);
        }
        queue.arrivals.clear();
        queue.next = 0;
    }
}

RTRAIN_DOOR void GradientArena::arrived(std::size_t gradient) {
    Queue& queue = queues_[queue_of_[gradient]];
    if (!has_arrived_[gradient]) {
        has_arrived_[gradient] = true;
        queue.arrivals.push_back(gradient);
    }
    while (queue.next < queue.order.size() && has_arrived_[queue.order[queue.next]]) {
        ++queue.next;
    }
}

RTRAIN_DOOR std::byte* GradientArena::allocate(std::size_t bytes) {
    for (const Queue& queue : queues_) {
        if (queue.bytes != bytes) {
            continue;
        }
        if (queue.next == queue.order.size()) {
            return nullptr;
        }
        const std::size_t next = queue.order[queue.next];
        if (memory_->is_taken(next) || parameters_[next].grad().defined()) {
            return nullptr;
        }
        memory_->take(next);
        return memory_->place(next).data;
    }
    return nullptr;
}

} // namespace rtrain::detail
