// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that this process reads through one mapping and writes through another, because other
/// processes read it, too. A write through the read-only mapping faults; a handler then prints what
/// was written, and forwards the fault to the previous handler.
#pragma once

#include <rtrain/base/console.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>

namespace rtrain::process {

class ReadOnlyMemory {
public:
    /// A range of bytes in a mapping, with the handler's message for it.
    struct Part {
        std::size_t begin = 0;
        std::size_t end = 0;
        std::string message;
    };

    /// Number of loads by any process that shares the memory; stored in shared memory.
    using Loads = std::atomic<std::uint64_t>;
    static_assert(Loads::is_always_lock_free);

    /// Registered while it exists. `parts` in the order of their bytes.
    ReadOnlyMemory(const std::byte* read, std::byte* write, std::size_t bytes,
                   std::vector<Part> parts, Loads* loads = nullptr)
        : read_(read), write_(write), bytes_(bytes), parts_(std::move(parts)), loads_(loads) {
        for (auto& place : all.places) {
            const ReadOnlyMemory* none = nullptr;
            if (place.compare_exchange_strong(none, this)) {
                break;
            }
        }
        ++all.count;
        install();
    }
    ReadOnlyMemory(const ReadOnlyMemory&) = delete;
    ReadOnlyMemory& operator=(const ReadOnlyMemory&) = delete;
    ~ReadOnlyMemory() {
        --all.count;
        for (auto& place : all.places) {
            const ReadOnlyMemory* self = this;
            place.compare_exchange_strong(self, nullptr);
        }
    }

    /// True if any exists.
    [[nodiscard]] static bool any() noexcept { return all.count.load() > 0; }
    /// The writable address of the bytes that are read at `address`; null if it is not in such
    /// memory.
    [[nodiscard]] static std::byte* writable(const void* address) noexcept {
        const ReadOnlyMemory* const memory = find(address);
        return memory == nullptr ? nullptr : memory->write_ + memory->offset_of(address);
    }
    /// Counter to increment when one process loads values while others may read; null if not
    /// counted.
    [[nodiscard]] static Loads* loads(const void* address) noexcept {
        const ReadOnlyMemory* const memory = find(address);
        return memory == nullptr ? nullptr : memory->loads_;
    }

private:
    /// More models than this in one process are not named in the handler's message.
    static constexpr std::size_t most = 256;
    /// Used by the handler; SIGSEGV has one per process.
    struct All {
        std::array<std::atomic<const ReadOnlyMemory*>, most> places;
        std::atomic<int> count;
        struct sigaction before; ///< the previous handler
        std::atomic<bool> passed_on;
    };
    static inline All all{};

    [[nodiscard]] static const ReadOnlyMemory* find(const void* address) noexcept {
        if (!any()) {
            return nullptr;
        }
        for (const auto& place : all.places) {
            const ReadOnlyMemory* const memory = place.load();
            if (memory != nullptr && address >= memory->read_ &&
                address < memory->read_ + memory->bytes_) {
                return memory;
            }
        }
        return nullptr;
    }
    [[nodiscard]] std::size_t offset_of(const void* address) const noexcept {
        return static_cast<std::size_t>(static_cast<const std::byte*>(address) - read_);
    }

    /// Installs it again for each memory: other code sets and restores handlers, too.
    static void install() {
        struct sigaction now {};
        ::sigaction(SIGSEGV, nullptr, &now);
        if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == faulted) {
            return;
        }
        all.before = now;
        all.passed_on = false;
        struct sigaction action {};
        action.sa_sigaction = faulted;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        ::sigaction(SIGSEGV, &action, nullptr);
    }

    /// Async-signal-safe. The fault recurs when this returns, and then goes to the previous
    /// handler.
    static void faulted(int signal, siginfo_t* info, void* /*context*/) {
        if (const ReadOnlyMemory* const memory = find(info->si_addr)) {
            const std::size_t offset = memory->offset_of(info->si_addr);
            for (const Part& part : memory->parts_) {
                if (offset >= part.begin && offset < part.end) {
                    console::say_in_signal(part.message.data(), part.message.size());
                    break;
                }
            }
        }
        if (all.passed_on.exchange(true)) { // the previous handler called this one
            ::signal(signal, SIG_DFL);
        } else {
            ::sigaction(signal, &all.before, nullptr);
        }
    }

    const std::byte* read_;
    std::byte* write_;
    std::size_t bytes_;
    std::vector<Part> parts_;
    Loads* loads_;
};

} // namespace rtrain::process
