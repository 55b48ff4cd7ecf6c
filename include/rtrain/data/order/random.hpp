// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random numbers for functions of stages, which may run on several threads and in any order.
#pragma once

#include <rtrain/data/order/permutation.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace rtrain::data {

/// Random numbers that depend only on the seed, the epoch and the rows: not on threads, ranks, or
/// earlier draws.
class Random {
public:
    explicit Random(std::uint64_t seed) noexcept : seed_(seed) {}

    /// In [0, 1).
    [[nodiscard]] double uniform() noexcept {
        constexpr double step = 0x1p-53;
        return static_cast<double>(next() >> 11U) * step;
    }
    /// In [0, end); `end` is at least 1.
    [[nodiscard]] std::int64_t below(std::int64_t end) noexcept {
        return static_cast<std::int64_t>(uniform() * static_cast<double>(end));
    }
    /// A generator for torch's functions, such as torch::rand({3}, random.generator()).
    [[nodiscard]] at::Generator generator() {
        if (!generator_) {
            generator_ = at::detail::createCPUGenerator(next());
        }
        return *generator_;
    }

private:
    std::uint64_t next() noexcept { return hash_of(seed_, ++drawn_); }

    std::uint64_t seed_;
    std::uint64_t drawn_ = 0;
    std::optional<at::Generator> generator_;
};

/// Sets the pass of a loop over batches for which the calling thread reads, during its lifetime.
class ReadingFor {
public:
    struct Pass {
        std::uint64_t hash = 0;        ///< of its seed and epoch
        bool shuffles = false;         ///< rows
        std::int64_t memory_bytes = 0; ///< limit for data kept by readers
    };

    explicit ReadingFor(Pass pass) noexcept : outer_(current()) { current() = pass; }
    ReadingFor(const ReadingFor&) = delete;
    ReadingFor& operator=(const ReadingFor&) = delete;
    ~ReadingFor() { current() = outer_; }

    /// Outside of passes, one that keeps nothing.
    [[nodiscard]] static const Pass& pass() noexcept { return current(); }

private:
    [[nodiscard]] static Pass& current() noexcept {
        thread_local Pass pass;
        return pass;
    }
    Pass outer_;
};

} // namespace rtrain::data
