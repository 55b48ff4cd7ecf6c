// SPDX-License-Identifier: Apache-2.0
/// @file
/// A copy of a state in host memory, so that training continues while it is written. Tensors that
/// are written only by code that waits for the copy are copied while training continues
/// (process/memory/deferred_copy.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/policy/pinned_copies.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/memory/read_only_memory.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace rtrain::checkpoint {

/// Reuses its memory for the next copy: fresh pages would cost as much time as copying.
class HostCopy {
public:
    HostCopy() = default;
    HostCopy(const HostCopy&) = delete;
    HostCopy& operator=(const HostCopy&) = delete;
    ~HostCopy() {
        wait();
        release();
    }

    /// Returns the current state, on the CPU, and overwrites what an earlier call returned. Tensors
    /// in Snapshot::late, and checksums of Snapshot::compared, are ready when finish() has
    /// returned.
    [[nodiscard]] Snapshot operator()(Snapshot live) {
        wait();
        std::size_t bytes = 0;
        for_each_tensor(live, [&](const std::string& /*name*/, const at::Tensor& tensor) {
            bytes += padded(tensor);
        });
        reserve(bytes);
        std::vector<process::DeferredCopy::Range> ranges;
        sources_ = std::make_shared<Sources>();
        PinnedCopies from_devices;
        char* free = memory_;
        for_each_tensor(live, [&](const std::string& name, at::Tensor& tensor) {
            at::Tensor copy =
                at::from_blob(free, tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
            if (live.late.contains(name) && can_be_late(tensor)) {
                ranges.push_back({static_cast<const std::byte*>(tensor.const_data_ptr()),
                                  reinterpret_cast<std::byte*>(free), tensor.nbytes()});
                sources_->add(name, tensor);
            } else if (tensor.is_cuda() && tensor.layout() == at::kStrided) {
                from_devices.add(tensor, free);
            } else {
                copy.copy_(tensor.detach());
            }
            free += padded(tensor);
            tensor = std::move(copy);
        });
        from_devices.finish();
        sums_.assign(live.compared.size(), {});
        for (std::size_t i = 0; i < live.compared.size(); ++i) {
            const auto& [name, tensor] = live.compared[i];
            sums_[i].name = name;
            sources_->add(name, tensor);
            ranges.push_back({static_cast<const std::byte*>(tensor.const_data_ptr()), nullptr,
                              tensor.nbytes(), &sums_[i].sum});
        }
        if (!ranges.empty()) {
            late_ =
                process::DeferredCopy::begin(ranges, [sources = sources_] { sources->compare(); });
        }
        live.compared.clear();
        return live;
    }

    /// Copies the late tensors; in any thread. Throws CheckpointError [RT-K28] if one was written
    /// meanwhile.
    void finish() {
        if (!late_) {
            return;
        }
        late_->finish_beside();
        if (!sources_->written.empty()) {
            throw CheckpointError(
                "RT-K28",
                detail::concat(
                    "\"", sources_->written,
                    "\" was written while a background checkpoint copied it, so nothing was saved; "
                    "between a report and the next step, only prepared optimizers, edit(), "
                    "restore() and load_weights() may write parameters and optimizer state: write "
                    "before the report, or set CheckpointConfig::late_copies to false"));
        }
    }
    /// Adds the checksums to what this rank has written.
    [[nodiscard]] Contents with_sums(Contents contents) const {
        contents.compared = sums_;
        return contents;
    }

private:
    /// The tensors that are copied late, and the means to detect whether they have changed.
    struct Sources {
        struct Source {
            std::string name;
            at::Tensor tensor; ///< keeps the memory alive
            const void* memory;
            std::int64_t version;
            process::ReadOnlyMemory::Loads* loads; ///< null for memory that this process writes
            std::uint64_t loaded;
        };
        std::vector<Source> all;
        std::string written; ///< the first tensor that was written meanwhile

        void add(const std::string& name, const at::Tensor& tensor) {
            const at::Tensor same = tensor.detach(); // with the same version
            auto* const loads = process::ReadOnlyMemory::loads(same.const_data_ptr());
            all.push_back({name, same, same.const_data_ptr(), same._version(), loads,
                           loads == nullptr ? 0 : loads->load()});
        }
        void compare() {
            for (const Source& source : all) {
                // Read-only memory is written through other mappings. The tensor's version marks
                // stale graphs, and backward may increase it early.
                const bool is_same =
                    source.tensor.const_data_ptr() == source.memory &&
                    (source.loads == nullptr ? source.tensor._version() == source.version
                                             : source.loads->load() == source.loaded);
                if (!is_same) {
                    written = source.name;
                    break;
                }
            }
            all.clear();
        }
    };

    [[nodiscard]] static bool can_be_late(const at::Tensor& tensor) {
        return tensor.is_cpu() && tensor.nbytes() > 0 && tensor.is_contiguous() &&
               !tensor.is_neg() && !tensor.is_conj() && !tensor.is_inference();
    }

    void wait() {
        if (const auto late = std::exchange(late_, nullptr)) {
            late->finish();
        }
    }

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
    std::vector<ComparedSum> sums_;
    std::shared_ptr<Sources> sources_;
    std::shared_ptr<process::DeferredCopy> late_; ///< reads the sources, writes to the memory
};

} // namespace rtrain::checkpoint
