// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arrow's memory pool for the readers: pages of the system for large blocks, malloc for the rest.
/// The jemalloc and mimalloc that Arrow's own pools may use have crashed in processes that also
/// load libtorch (arrow#44342, ray#60478).
#pragma once

#include <rtrain/data/batch/pages.hpp>

#include <arrow/memory_pool.h>
#include <arrow/status.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace rtrain::detail {

class ArrowMemory final : public arrow::MemoryPool {
public:
    /// Never destroyed: batches hold its memory, and static objects may hold batches.
    [[nodiscard]] static ArrowMemory* instance() {
        static auto* const memory = new ArrowMemory;
        return memory;
    }

    using arrow::MemoryPool::Allocate;
    using arrow::MemoryPool::Free;
    using arrow::MemoryPool::Reallocate;

    arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
        void* memory = nullptr;
        if (has_pages(size)) {
            memory = pages_.take(static_cast<std::size_t>(size));
        } else if (size < 0 || ::posix_memalign(&memory, static_cast<std::size_t>(alignment),
                                                static_cast<std::size_t>(
                                                    std::max<std::int64_t>(size, 1))) != 0) {
            memory = nullptr;
        }
        if (memory == nullptr) {
            return arrow::Status::OutOfMemory("no memory for ", size, " bytes");
        }
        *out = static_cast<std::uint8_t*>(memory);
        statistics_.DidAllocateBytes(size);
        return arrow::Status::OK();
    }

    arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                             std::uint8_t** memory) override {
        std::uint8_t* moved = nullptr;
        ARROW_RETURN_NOT_OK(Allocate(new_size, alignment, &moved));
        std::memcpy(moved, *memory, static_cast<std::size_t>(std::min(old_size, new_size)));
        Free(*memory, old_size, alignment);
        *memory = moved;
        return arrow::Status::OK();
    }

    void Free(std::uint8_t* memory, std::int64_t size, std::int64_t /*alignment*/) override {
        if (has_pages(size)) {
            pages_.give_back(memory, static_cast<std::size_t>(size));
        } else {
            std::free(memory);
        }
        statistics_.DidFreeBytes(size);
    }

    [[nodiscard]] std::int64_t bytes_allocated() const override {
        return statistics_.bytes_allocated();
    }
    [[nodiscard]] std::int64_t max_memory() const override { return statistics_.max_memory(); }
    [[nodiscard]] std::int64_t total_bytes_allocated() const override {
        return statistics_.total_bytes_allocated();
    }
    [[nodiscard]] std::int64_t num_allocations() const override {
        return statistics_.num_allocations();
    }
    [[nodiscard]] std::string backend_name() const override { return "malloc"; }

private:
    ArrowMemory() = default;

    [[nodiscard]] static bool has_pages(std::int64_t size) noexcept {
        return size >= static_cast<std::int64_t>(worth_pages);
    }

    PageCache pages_{std::size_t{16} << 20U};
    arrow::internal::MemoryPoolStats statistics_;
};

} // namespace rtrain::detail
