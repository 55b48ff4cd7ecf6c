// SPDX-License-Identifier: Apache-2.0
/// @file
/// A copy of memory as it is at one moment, made behind that moment.
///
/// Pages can only be read until they are copied. Whoever writes to one before, by whatever code,
/// gets a fault, and a handler first copies what is about to change. So no write gets into the
/// copy, and nobody has to be told of it. Only the system itself gets no fault but an error
/// (EFAULT) where it is to write, as in read(): release() comes before that.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/process/memory_faults.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rtrain::process {

/// One in a process is late; while there is one, others are made at once, as they are in a debugger
/// and where SIGSEGV is blocked.
class LateCopy {
public:
    /// Of anonymous memory that only this process has, and where its copy goes.
    struct Range {
        std::byte* from = nullptr;
        std::byte* to = nullptr;
        std::size_t bytes = 0;
    };
    /// Smaller ranges are copied at once: a fault would cost more.
    static constexpr std::size_t least = std::size_t{64} << 10;

    /// The copy will hold what the ranges hold now. They stay where they are until finish() has
    /// returned. Of ranges that overlap only one is late.
    explicit LateCopy(std::vector<Range> ranges)
        : owner_(::getpid()), late_(can_fault() && !taken().exchange(true)) {
        std::ranges::sort(ranges, {}, &Range::from);
        std::vector<Range> pages;
        const std::byte* end = nullptr;
        for (const Range& range : ranges) {
            const Range inner = pages_of(range);
            if (!late_ || inner.bytes < least || range.from < end || pages.size() == most_ranges) {
                std::memcpy(range.to, range.from, range.bytes);
                continue;
            }
            const auto head = static_cast<std::size_t>(inner.from - range.from);
            const std::size_t tail = head + inner.bytes;
            std::memcpy(range.to, range.from, head);
            std::memcpy(range.to + tail, range.from + tail, range.bytes - tail);
            pages.push_back(inner);
            end = range.from + range.bytes;
        }
        if (late_) {
            cut(pages);
            protect(pages);
        }
    }
    LateCopy(const LateCopy&) = delete;
    LateCopy& operator=(const LateCopy&) = delete;
    /// What is not copied never will be.
    ~LateCopy() { end(false); }

    /// Returns when all is copied; in any thread.
    void finish() noexcept { end(true); }

    /// Copies what is yet to be copied of these bytes, so that the system can write there.
    static void release(const void* address, std::size_t bytes) noexcept {
        const Visit visit;
        if (const LateCopy* const copy = current().load()) {
            const auto* const begin = static_cast<const std::byte*>(address);
            for (std::size_t i = copy->first_behind(begin);
                 i < copy->chunks_.size() && copy->chunks_[i].from < begin + bytes; ++i) {
                copy->settle(i, true);
            }
        }
    }

private:
    enum class State : std::uint8_t { pending, copying, settled };
    static constexpr std::size_t chunk = std::size_t{2} << 20; ///< at least; a huge page
    static constexpr std::size_t most_chunks = 1024;           ///< about; each may be a mapping
    static constexpr std::size_t most_ranges = 8192;           ///< of 65530 mappings in a process
    static constexpr std::chrono::seconds patience{60};        ///< with a thread that copies

    /// While it lives, the copy that is current stays.
    struct Visit {
        Visit() noexcept { visits().fetch_add(1); }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;
        ~Visit() { visits().fetch_sub(1); }
    };
    [[nodiscard]] static std::atomic<int>& visits() noexcept {
        static std::atomic<int> count{0};
        return count;
    }
    [[nodiscard]] static std::atomic<bool>& taken() noexcept {
        static std::atomic<bool> taken{false};
        return taken;
    }
    [[nodiscard]] static std::atomic<const LateCopy*>& current() noexcept {
        static std::atomic<const LateCopy*> copy{nullptr};
        return copy;
    }
    [[nodiscard]] static std::atomic<int>& stragglers() noexcept {
        static std::atomic<int> left{0};
        return left;
    }

    [[nodiscard]] static bool can_fault() {
        sigset_t blocked;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        std::ifstream status("/proc/self/status");
        std::string word;
        int tracer = 0;
        while (status >> word && word != "TracerPid:") {
        }
        status >> tracer;
        return sigismember(&blocked, SIGSEGV) == 0 && tracer == 0;
    }

    /// The pages that a range fills.
    [[nodiscard]] static Range pages_of(const Range& range) {
        static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
        const auto begin = reinterpret_cast<std::uintptr_t>(range.from);
        const std::uintptr_t first = (begin + page - 1) / page * page;
        const std::uintptr_t last = (begin + range.bytes) / page * page;
        return last <= first
                   ? Range{range.from, range.to, 0}
                   : Range{range.from + (first - begin), range.to + (first - begin), last - first};
    }

    void cut(const std::vector<Range>& pages) {
        std::size_t all = 0;
        for (const Range& range : pages) {
            all += range.bytes;
        }
        const std::size_t bytes = std::max<std::size_t>(1, all / chunk / most_chunks) * chunk;
        for (Range rest : pages) {
            while (rest.bytes > 0) {
                const std::size_t place = reinterpret_cast<std::uintptr_t>(rest.from) % bytes;
                const std::size_t count = std::min(rest.bytes, bytes - place);
                chunks_.push_back({rest.from, rest.to, count});
                rest = {rest.from + count, rest.to + count, rest.bytes - count};
            }
        }
        states_ = std::make_unique<std::atomic<State>[]>(chunks_.size());
    }

    void protect(const std::vector<Range>& pages) {
        stragglers().store(64);
        current().store(this);
        MemoryFaults::listen(faulted);
        for (const Range& range : pages) {
            if (::mprotect(range.from, range.bytes, PROT_READ) != 0) { // too many mappings
                release(range.from, range.bytes);
            }
        }
    }

    /// The first chunk that does not end at or before an address.
    [[nodiscard]] std::size_t first_behind(const std::byte* address) const noexcept {
        const auto found = std::ranges::partition_point(
            chunks_, [&](const Range& range) { return range.from + range.bytes <= address; });
        return static_cast<std::size_t>(found - chunks_.begin());
    }

    static bool unprotect(const Range& range) noexcept {
        return ::mprotect(range.from, range.bytes, PROT_READ | PROT_WRITE) == 0;
    }

    /// Whether the chunk can be written then.
    bool settle(std::size_t index, bool copies) const noexcept {
        const Range& range = chunks_[index];
        std::atomic<State>& state = states_[index];
        State expected = State::pending;
        if (state.compare_exchange_strong(expected, State::copying)) {
            if (copies) {
                std::memcpy(range.to, range.from, range.bytes);
            }
            const bool writable = ::mprotect(range.from, range.bytes, PROT_READ | PROT_WRITE) == 0;
            state.store(State::settled);
            return writable;
        }
        if (expected == State::copying) {
            const auto deadline = std::chrono::steady_clock::now() + patience;
            while (state.load() != State::settled && std::chrono::steady_clock::now() < deadline) {
                ::sched_yield();
            }
        }
        return state.load() == State::settled;
    }

    /// A thread may come here when what it ran into is settled, and even forgotten: some faults
    /// that nobody knows just come again.
    static Fault faulted(const siginfo_t& fault) noexcept {
        const Visit visit;
        const auto* const address = static_cast<const std::byte*>(fault.si_addr);
        if (const LateCopy* const copy = current().load()) {
            const std::size_t index = copy->first_behind(address);
            if (index < copy->chunks_.size() && address >= copy->chunks_[index].from) {
                const bool is_child = ::getpid() != copy->owner_; // its memory is its own
                const bool settled = (is_child || copy->settle(index, true)) &&
                                     unprotect(copy->chunks_[index]); // it may have come too early
                return settled ? Fault::resolved : Fault::unknown;
            }
        }
        const bool again = fault.si_code == SEGV_ACCERR && stragglers().fetch_sub(1) > 0;
        return again ? Fault::resolved : Fault::unknown;
    }

    void end(bool copies) noexcept {
        if (!late_) {
            return;
        }
        for (std::size_t i = 0; i < chunks_.size(); ++i) {
            settle(i, copies);
        }
        current().store(nullptr);
        while (::getpid() == owner_ && visits().load() > 0) {
            ::sched_yield();
        }
        late_ = false;
        taken().store(false);
    }

    pid_t owner_;
    bool late_;                                    ///< it is current, or about to be
    std::vector<Range> chunks_;                    ///< by address
    std::unique_ptr<std::atomic<State>[]> states_; ///< of chunks
};

} // namespace rtrain::process
