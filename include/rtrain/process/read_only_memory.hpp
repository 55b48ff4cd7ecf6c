// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that this process reads through one mapping and writes through another, because others
/// read it, too. Who writes where it should only read gets a fault; a handler then says what was
/// written, and leaves the fault to whoever handled it before.
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
    /// What lies at some bytes of a mapping: what the handler says of them.
    struct Part {
        std::size_t begin = 0;
        std::size_t end = 0;
        std::string message;
    };

    /// How often it was loaded, by any process that shares it; in memory that they share.
    using Loads = std::atomic<std::uint64_t>;
    static_assert(Loads::is_always_lock_free);

    /// Listed while it lives. `parts` in the order of their bytes.
    ReadOnlyMemory(const std::byte* read, std::byte* write, std::size_t bytes,
                   std::vector<Part> parts, Loads* loads = nullptr)
        : read_(read), write_(write), bytes_(bytes), parts_(std::move(parts)), loads_(loads) {
        for (auto& place : list()) {
            const ReadOnlyMemory* none = nullptr;
            if (place.compare_exchange_strong(none, this)) {
                break;
            }
        }
        ++count();
        install();
    }
    ReadOnlyMemory(const ReadOnlyMemory&) = delete;
    ReadOnlyMemory& operator=(const ReadOnlyMemory&) = delete;
    ~ReadOnlyMemory() {
        --count();
        for (auto& place : list()) {
            const ReadOnlyMemory* self = this;
            place.compare_exchange_strong(self, nullptr);
        }
    }

    /// Whether there is any.
    [[nodiscard]] static bool any() noexcept { return count().load() > 0; }
    /// Where the bytes that are read at `address` can be written; null when it is in no such
    /// memory.
    [[nodiscard]] static std::byte* writable(const void* address) noexcept {
        const ReadOnlyMemory* const memory = find(address);
        return memory == nullptr ? nullptr : memory->write_ + memory->offset_of(address);
    }
    /// Whoever loads values in one process while others may read says so; null when nobody counts.
    [[nodiscard]] static Loads* loads(const void* address) noexcept {
        const ReadOnlyMemory* const memory = find(address);
        return memory == nullptr ? nullptr : memory->loads_;
    }

private:
    /// More models than that in one process get no name in the handler's message.
    static constexpr std::size_t most = 256;
    using List = std::array<std::atomic<const ReadOnlyMemory*>, most>;
    [[nodiscard]] static List& list() noexcept {
        static List all{};
        return all;
    }
    [[nodiscard]] static std::atomic<int>& count() noexcept {
        static std::atomic<int> living{0};
        return living;
    }
    [[nodiscard]] static struct sigaction& before() noexcept {
        static struct sigaction action {};
        return action;
    }

    [[nodiscard]] static const ReadOnlyMemory* find(const void* address) noexcept {
        if (!any()) {
            return nullptr;
        }
        for (const auto& place : list()) {
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

    /// Anew for each memory: others set handlers, too, and take theirs back.
    static void install() {
        struct sigaction now {};
        ::sigaction(SIGSEGV, nullptr, &now);
        if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == faulted) {
            return;
        }
        before() = now;
        passed_on = false;
        struct sigaction action {};
        action.sa_sigaction = faulted;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        ::sigaction(SIGSEGV, &action, nullptr);
    }

    /// Only what a signal handler may do. The fault comes again when this returns, and then goes to
    /// the handler before.
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
        if (passed_on.exchange(true)) { // whoever was before has called this one
            ::signal(signal, SIG_DFL);
        } else {
            ::sigaction(signal, &before(), nullptr);
        }
    }
    static inline std::atomic<bool> passed_on{false};

    const std::byte* read_;
    std::byte* write_;
    std::size_t bytes_;
    std::vector<Part> parts_;
    Loads* loads_;
};

} // namespace rtrain::process
