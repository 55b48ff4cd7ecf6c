// SPDX-License-Identifier: Apache-2.0
/// @file
/// A copy of a state in host memory, so that training can go on while it is written, and mostly
/// while it is copied.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/process/late_copy.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace rtrain::checkpoint {

/// When the values of a state are copied: before training goes on, or what is in
/// Snapshot::computed later, and earlier only what training changes first.
enum class CopyWhen { now, late };

/// Keeps its memory for the next copy: fresh pages would cost as much time as copying.
class HostCopy {
public:
    HostCopy() = default;
    HostCopy(const HostCopy&) = delete;
    HostCopy& operator=(const HostCopy&) = delete;
    ~HostCopy() {
        late_.reset();
        release();
    }

    /// The state as it is now, on the CPU, complete when finish() has returned. What an earlier
    /// call returned is overwritten. Throws CheckpointError [RT-K12].
    [[nodiscard]] Snapshot operator()(Snapshot live, CopyWhen when) {
        late_.reset();
        sources_.clear();
        std::size_t bytes = 0;
        bool on_host = true;
        for_each_tensor(live, [&](const std::string& /*name*/, const at::Tensor& tensor) {
            bytes += padded(tensor);
            on_host = on_host && tensor.is_cpu();
        });
        reserve(bytes);
        std::map<std::pair<const void*, std::size_t>, char*> places; // tied ones share theirs
        std::vector<process::LateCopy::Range> ranges;
        char* free = memory_;
        for_each_tensor(live, [&](const std::string& name, at::Tensor& tensor) {
            char* place = free;
            const bool late = when == CopyWhen::late && on_host && live.computed.contains(name) &&
                              can_be_late(tensor);
            const void* const from = late ? tensor.const_data_ptr() : nullptr;
            if (late) {
                place = places.try_emplace({from, tensor.nbytes()}, free).first->second;
            }
            at::Tensor copy =
                at::from_blob(place, tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
            if (!late) {
                copy.copy_(tensor.detach());
            } else if (place == free) {
                ranges.push_back({static_cast<std::byte*>(const_cast<void*>(from)),
                                  reinterpret_cast<std::byte*>(place), tensor.nbytes()});
                sources_.push_back({name, tensor.detach(), from});
            }
            free += place == free ? padded(tensor) : 0;
            tensor = std::move(copy);
        });
        if (!ranges.empty()) {
            late_.emplace(std::move(ranges));
        }
        return live;
    }

    /// Copies what is left; in any thread. Throws CheckpointError [RT-K28].
    void finish() {
        if (late_) {
            late_->finish();
        }
        for (const Source& source : std::exchange(sources_, {})) {
            if (source.tensor.const_data_ptr() != source.memory) {
                throw CheckpointError(
                    "RT-K28",
                    detail::concat("the memory of \"", source.name,
                                   "\" was replaced while a checkpoint copied it, as resize_() "
                                   "and storage().set_data_ptr() do, so that nothing was saved; "
                                   "expected no such call while a checkpoint is under way: call it "
                                   "elsewhere, or use checkpoint::Sync or Sharded"));
            }
        }
    }

private:
    /// What is copied late: it keeps its memory until then.
    struct Source {
        std::string name;
        at::Tensor tensor;
        const void* memory;
    };

    template <class F>
    static void for_each_tensor(Snapshot& state, F&& use) {
        for (auto& [name, tensor] : state.tensors) {
            use(name, tensor);
        }
        for (auto& [name, whole] : state.pieces) {
            for (auto& piece : whole.pieces) {
                use(name, piece.elements);
            }
        }
    }

    /// Whether it lies in memory that torch has allocated for it: not mapped, shared or pinned.
    [[nodiscard]] static bool can_be_late(const at::Tensor& tensor) {
        return tensor.nbytes() >= process::LateCopy::least && tensor.has_storage() &&
               tensor.is_contiguous() && !tensor.is_neg() &&
               tensor.storage().data_ptr().get_deleter() ==
                   c10::GetAllocator(c10::kCPU)->raw_deleter();
    }

    [[nodiscard]] static std::size_t padded(const at::Tensor& tensor) {
        constexpr std::size_t alignment = 64;
        return (tensor.nbytes() + alignment - 1) / alignment * alignment;
    }

    void reserve(std::size_t bytes) {
        if (bytes <= size_) {
            return;
        }
        release();
        void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            throw CheckpointError("RT-K12",
                                  detail::concat("no memory for a copy of the state, ", bytes,
                                                 " bytes; use checkpoint::Sync, which needs none"));
        }
        ::madvise(memory, bytes, MADV_HUGEPAGE);
        memory_ = static_cast<char*>(memory);
        size_ = bytes;
    }

    void release() noexcept {
        if (memory_ != nullptr) {
            ::munmap(memory_, size_);
        }
        memory_ = nullptr;
        size_ = 0;
    }

    char* memory_ = nullptr;
    std::size_t size_ = 0;
    std::vector<Source> sources_;
    std::optional<process::LateCopy> late_; ///< writes to the memory
};

} // namespace rtrain::checkpoint
