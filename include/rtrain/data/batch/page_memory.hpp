// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for long-lived tensors: separate pages, away from short-lived allocations.
#pragma once

#include <rtrain/data/batch/pages.hpp>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

namespace rtrain::detail {

/// Pages of the system for large blocks, libtorch's memory for the rest.
class PageMemory final : public c10::Allocator {
public:
    /// Never destroyed: static objects may hold tensors.
    [[nodiscard]] static PageMemory* instance() {
        static auto* const memory = new PageMemory;
        return memory;
    }

    /// Throws std::bad_alloc.
    [[nodiscard]] c10::DataPtr allocate(std::size_t bytes) override {
        if (bytes < worth_pages) {
            return c10::GetCPUAllocator()->allocate(bytes);
        }
        auto pages = std::make_unique<Pages>(bytes);
        void* const begin = pages->begin;
        return {begin, pages.release(), &free_pages, c10::Device(c10::kCPU)};
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        std::memcpy(to, from, bytes);
    }

private:
    struct Pages {
        explicit Pages(std::size_t size) : begin(map_pages(size)), bytes(size) {
            if (begin == nullptr) {
                throw std::bad_alloc();
            }
        }
        Pages(const Pages&) = delete;
        Pages& operator=(const Pages&) = delete;
        ~Pages() { unmap_pages(begin, bytes); }

        void* begin;
        std::size_t bytes;
    };

    PageMemory() = default;
    static void free_pages(void* pages) { delete static_cast<Pages*>(pages); }
};

/// Like at::empty() on the CPU, in memory that resize_() keeps using.
[[nodiscard]] inline at::Tensor empty_in_pages(at::IntArrayRef shape, at::ScalarType type) {
    return at::detail::empty_generic(shape, PageMemory::instance(),
                                     c10::DispatchKeySet(c10::DispatchKey::CPU), type,
                                     std::nullopt);
}

/// Lets the system reclaim the pages of such a tensor, whose values are no longer needed. It does
/// so only under memory pressure, and supplies new pages on the next write.
inline void offer_pages(const at::Tensor& tensor) {
    const at::Storage& storage = tensor.storage();
    if (storage.nbytes() >= worth_pages && storage.allocator() == PageMemory::instance()) {
        offer_pages(storage.mutable_data(), storage.nbytes());
    }
}

} // namespace rtrain::detail
