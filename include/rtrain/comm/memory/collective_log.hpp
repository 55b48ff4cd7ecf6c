// SPDX-License-Identifier: Apache-2.0
/// @file
/// The calls that each rank of a node has begun, in shared memory: ranks that wait for each other
/// in different calls detect it by reading. Independent of MPI and tensors, so that ThreadSanitizer
/// can check it (tests/comm/memory/protocol_test.cpp).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

namespace rtrain::comm {

/// Ranks begin the same calls in the same order. Each records its last `kept` calls, which costs a
/// few stores; a waiting rank compares them. A rank may be any number of calls ahead.
template <class Call>
class CollectiveLog {
public:
    static constexpr std::uint64_t kept = 1024;

    /// Bytes of shared memory for `size` ranks; zeroed before the first one starts.
    [[nodiscard]] static constexpr std::size_t bytes_for(int size) {
        return static_cast<std::size_t>(size) * sizeof(Page);
    }

    CollectiveLog(std::byte* memory, int rank, int size)
        : pages_(reinterpret_cast<Page*>(memory)), rank_(rank),
          compared_(static_cast<std::size_t>(size), 0) {}

    /// Called before the first call, in memory reused by the same ranks. All must have called it
    /// before one continues.
    void begin_anew() noexcept {
        pages_[rank_].writing.store(0, std::memory_order_relaxed);
        pages_[rank_].begun.store(0, std::memory_order_release);
    }

    /// Records that this rank begins its next call.
    void add(const Call& call) noexcept {
        Page& page = pages_[rank_];
        ++begun_;
        page.writing.store(begun_, std::memory_order_relaxed);
        Words words{};
        std::memcpy(words.data(), &call, sizeof call);
        // A reader that sees a word of this call then learns from `writing` that the old one is
        // gone.
        for (std::size_t i = 0; i < words.size(); ++i) {
            page.calls[begun_ % kept][i].store(words[i], std::memory_order_release);
        }
        page.begun.store(begun_, std::memory_order_release);
    }

    struct Difference {
        int peer;
        Call mine;
        Call theirs;
    };
    /// Returns the first call known to both that another rank has begun differently.
    [[nodiscard]] std::optional<Difference> find() {
        for (std::size_t peer = 0; peer < compared_.size(); ++peer) {
            const std::uint64_t theirs = pages_[peer].begun.load(std::memory_order_acquire);
            const std::uint64_t common = theirs < begun_ ? theirs : begun_;
            const std::uint64_t last = theirs < begun_ ? begun_ : theirs;
            for (std::uint64_t& number = compared_[peer]; number < common;) {
                ++number;
                if (number + kept <= last) { // one of the two has forgotten it
                    continue;
                }
                const auto other = read(static_cast<int>(peer), number);
                const auto own = read(rank_, number);
                if (other && own && !(*other == *own)) {
                    return Difference{static_cast<int>(peer), *own, *other};
                }
            }
        }
        return std::nullopt;
    }

private:
    static_assert(std::is_trivially_copyable_v<Call>);
    using Words = std::array<std::uint64_t, (sizeof(Call) + 7) / 8>;
    /// Written by one rank.
    struct alignas(64) Page {
        std::atomic<std::uint64_t> begun;   ///< calls that can be read
        std::atomic<std::uint64_t> writing; ///< the call that is being written, or was last
        std::atomic<std::uint64_t> calls[kept][std::tuple_size_v<Words>];
    };
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free); // also between processes

    /// Empty if it is overwritten meanwhile.
    [[nodiscard]] std::optional<Call> read(int rank, std::uint64_t number) const {
        const Page& page = pages_[rank];
        Words words{};
        for (std::size_t i = 0; i < words.size(); ++i) {
            words[i] = page.calls[number % kept][i].load(std::memory_order_acquire);
        }
        if (page.writing.load(std::memory_order_relaxed) >= number + kept) {
            return std::nullopt;
        }
        Call call;
        std::memcpy(static_cast<void*>(&call), words.data(), sizeof call);
        return call;
    }

    Page* pages_;
    int rank_;
    std::uint64_t begun_ = 0;
    std::vector<std::uint64_t>
        compared_; ///< by rank: calls that were found equal, or are forgotten
};

} // namespace rtrain::comm
