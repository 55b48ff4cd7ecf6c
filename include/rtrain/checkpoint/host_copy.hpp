// SPDX-License-Identifier: Apache-2.0
/// @file
/// A copy of a state in host memory, so that training can go on while it is written.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/snapshot.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace rtrain::checkpoint {

/// Keeps its memory for the next copy: fresh pages would cost as much time as copying.
class HostCopy {
public:
    HostCopy() = default;
    HostCopy(const HostCopy&) = delete;
    HostCopy& operator=(const HostCopy&) = delete;
    ~HostCopy() { release(); }

    /// The state as it is now, on the CPU. What an earlier call returned is overwritten.
    [[nodiscard]] Snapshot operator()(Snapshot live) {
        std::size_t bytes = 0;
        for_each_tensor(live, [&](const at::Tensor& tensor) { bytes += padded(tensor); });
        reserve(bytes);
        char* free = memory_;
        for_each_tensor(live, [&](at::Tensor& tensor) {
            at::Tensor copy =
                at::from_blob(free, tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
            copy.copy_(tensor.detach());
            free += padded(tensor);
            tensor = std::move(copy);
        });
        return live;
    }

private:
    template <class F>
    static void for_each_tensor(Snapshot& state, F&& use) {
        for (auto& [name, tensor] : state.tensors) {
            use(tensor);
        }
        for (auto& [name, whole] : state.pieces) {
            for (auto& piece : whole.pieces) {
                use(piece.elements);
            }
        }
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
};

} // namespace rtrain::checkpoint
