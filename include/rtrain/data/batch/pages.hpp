// SPDX-License-Identifier: Apache-2.0
/// @file
/// Allocates large memory directly from the system. malloc() keeps freed memory in an arena per
/// thread, with holes between blocks in use, and all of that counts towards the process. Cost tier
/// 0: std only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <vector>

#include <sys/mman.h>

namespace rtrain::detail {

/// The size from which separate pages are used.
inline constexpr std::size_t worth_pages = std::size_t{1} << 15U;

/// Null if out of memory.
[[nodiscard]] inline void* map_pages(std::size_t bytes) noexcept {
    void* const pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : pages;
}

inline void unmap_pages(void* pages, std::size_t bytes) noexcept {
    ::munmap(pages, bytes);
}

/// The system may reclaim them under memory pressure; their contents are then lost.
inline void offer_pages(void* pages, std::size_t bytes) noexcept {
    ::madvise(pages, bytes, MADV_FREE); // no effect if not supported
}

/// Reuses pages that any thread has returned: the system has to clear new ones.
class PageCache {
public:
    /// Keeps at most `limit` bytes.
    explicit PageCache(std::size_t limit) : limit_(limit) {}
    PageCache(const PageCache&) = delete;
    PageCache& operator=(const PageCache&) = delete;
    ~PageCache() {
        for (const auto& [pages, bytes] : kept_) {
            unmap_pages(pages, bytes);
        }
    }

    /// Null if out of memory.
    [[nodiscard]] void* take(std::size_t bytes) {
        bytes = rounded(bytes);
        {
            const std::scoped_lock lock(mutex_);
            // The newest first: it may still be in the processor's caches.
            const auto newest = std::find_if(kept_.rbegin(), kept_.rend(),
                                             [&](const Kept& kept) { return kept.bytes == bytes; });
            if (newest != kept_.rend()) {
                void* const pages = newest->pages;
                kept_.erase(std::next(newest).base());
                kept_bytes_ -= bytes;
                return pages;
            }
        }
        return map_pages(bytes);
    }

    /// `bytes`: as passed to take().
    void give_back(void* pages, std::size_t bytes) {
        bytes = rounded(bytes);
        const std::scoped_lock lock(mutex_);
        kept_.push_back({pages, bytes});
        kept_bytes_ += bytes;
        auto end_of_old = kept_.begin();
        for (; kept_bytes_ > limit_; ++end_of_old) {
            unmap_pages(end_of_old->pages, end_of_old->bytes);
            kept_bytes_ -= end_of_old->bytes;
        }
        kept_.erase(kept_.begin(), end_of_old);
    }

private:
    struct Kept {
        void* pages;
        std::size_t bytes;
    };

    /// Rounds up, so that similar sizes are interchangeable. Unused pages take no memory.
    [[nodiscard]] static std::size_t rounded(std::size_t bytes) noexcept {
        const std::size_t step = std::max(std::bit_floor(bytes) / 4, worth_pages);
        return (bytes + step - 1) / step * step;
    }

    std::size_t limit_;
    std::mutex mutex_;
    std::vector<Kept> kept_; ///< the oldest first
    std::size_t kept_bytes_ = 0;
};

} // namespace rtrain::detail
