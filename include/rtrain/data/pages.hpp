// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory straight from the system, for what is large. malloc() keeps what it is given back in an
/// arena for each thread, with holes between what stays, and all of that counts as the process's.
/// Cost tier 0: std only.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include <sys/mman.h>

namespace rtrain::detail {

/// So many bytes are worth pages of their own.
inline constexpr std::size_t worth_pages = std::size_t{1} << 15U;

/// Null when there is no memory.
[[nodiscard]] inline void* map_pages(std::size_t bytes) noexcept {
    void* const pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : pages;
}

inline void unmap_pages(void* pages, std::size_t bytes) noexcept {
    ::munmap(pages, bytes);
}

/// Hands pages out again that were given back, whichever thread did that: new ones have to be
/// cleared by the system.
class PageCache {
public:
    /// Keeps at most so many bytes for others.
    explicit PageCache(std::size_t limit) : limit_(limit) {}
    PageCache(const PageCache&) = delete;
    PageCache& operator=(const PageCache&) = delete;
    ~PageCache() { drop_all(); }

    /// Null when there is no memory.
    [[nodiscard]] void* take(std::size_t bytes) {
        bytes = rounded(bytes);
        {
            const std::scoped_lock lock(mutex_);
            if (const auto found = kept_.find(bytes); found != kept_.end()) {
                void* const pages = found->second;
                kept_.erase(found);
                kept_bytes_ -= bytes;
                return pages;
            }
        }
        return map_pages(bytes);
    }

    /// `bytes`: as they were asked for.
    void give_back(void* pages, std::size_t bytes) {
        bytes = rounded(bytes);
        const std::scoped_lock lock(mutex_);
        if (kept_bytes_ + bytes > limit_) { // of sizes that nobody asks for any more, perhaps
            drop_all();
        }
        if (bytes > limit_) {
            unmap_pages(pages, bytes);
            return;
        }
        kept_.emplace(bytes, pages);
        kept_bytes_ += bytes;
    }

private:
    /// So that what is about as large has the same size.
    [[nodiscard]] static std::size_t rounded(std::size_t bytes) noexcept {
        return (bytes + worth_pages - 1) / worth_pages * worth_pages;
    }
    void drop_all() {
        for (const auto& [bytes, pages] : kept_) {
            unmap_pages(pages, bytes);
        }
        kept_.clear();
        kept_bytes_ = 0;
    }

    std::size_t limit_;
    std::mutex mutex_;
    std::multimap<std::size_t, void*> kept_; ///< by their bytes
    std::size_t kept_bytes_ = 0;
};

} // namespace rtrain::detail
