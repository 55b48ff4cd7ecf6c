// SPDX-License-Identifier: Apache-2.0
/// @file
/// Combines the elements of several ranks, in the order of ranks, a block that fits the L1 cache at
/// a time. Half-precision types are added in float32 and rounded once.
#pragma once

#include <rtrain/comm/kernels/exact_sum.hpp>
#include <rtrain/comm/kernels/reduce_op.hpp>

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace rtrain::comm {

/// A reduction of several sources into targets.
struct Reduction {
    at::ScalarType type;
    ReduceOp op;
    int divisor = 1; ///< of sums: the number of ranks, for a mean

    /// targets[*][i] = sources[0][i] op sources[1][i] op ... for `elements` elements. A target may
    /// be a source, but no other overlap is allowed.
    void run(std::span<std::byte* const> targets, std::span<const std::byte* const> sources,
             std::int64_t elements) const;
};

/// Divisors of a mean over several nodes: it is divided at the end, except for float16, in which
/// the sum of a node may overflow.
struct Divisors {
    Divisors(at::ScalarType type, int divisor) noexcept
        : here(type == at::kHalf ? divisor : 1), across(type == at::kHalf ? 1 : divisor) {}

    int here;   ///< within the nodes
    int across; ///< between them
};

namespace kernels {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;
/// The accumulation type for elements of type T.
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

struct Sum {
    template <class T>
    static T combine(T a, T b) {
        if constexpr (std::is_integral_v<T>) { // wraps around, as in ATen
            using U = std::make_unsigned_t<T>;
            return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
        } else {
            return a + b;
        }
    }
};
template <class T>
bool is_nan(T value) {
    return value != value; // NOLINT(misc-redundant-expression): that is a NaN
}
/// The result is NaN if any rank has one, as in ATen.
struct Min {
    template <class T>
    static T combine(T a, T b) {
        return a < b || is_nan(a) ? a : b;
    }
};
struct Max {
    template <class T>
    static T combine(T a, T b) {
        return a > b || is_nan(a) ? a : b;
    }
};

/// A constant number of elements at a time is what g++ vectorises at -O2.
inline constexpr std::int64_t lanes = 32;

/// to = left op right; `to` may be one of them.
template <class Op, class T>
[[gnu::always_inline]] inline void combine(Wide<T>* to, const Wide<T>* left, const T* right,
                                           std::int64_t elements) {
    std::int64_t i = 0;
    for (; i + lanes <= elements; i += lanes) {
        Wide<T> result[static_cast<std::size_t>(lanes)]; // overlaps nothing, unlike `to`
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
            result[lane] = Op::combine(left[i + lane], static_cast<Wide<T>>(right[i + lane]));
        }
        std::memcpy(to + i, result, sizeof result);
    }
    for (; i < elements; ++i) {
        to[i] = Op::combine(left[i], static_cast<Wide<T>>(right[i]));
    }
}

template <class W>
[[gnu::always_inline]] inline void divide(W* values, W divisor, std::int64_t elements) {
    std::int64_t i = 0;
    for (; i + lanes <= elements; i += lanes) {
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
            values[i + lane] /= divisor;
        }
    }
    for (; i < elements; ++i) {
        values[i] /= divisor;
    }
}

[[gnu::always_inline]] inline void scale_blocks(float* to, const float* from, float by,
                                                std::int64_t elements) {
    std::int64_t i = 0;
    for (; i + lanes <= elements; i += lanes) {
        float result[static_cast<std::size_t>(lanes)];
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
            result[lane] = from[i + lane] * by;
        }
        std::memcpy(to + i, result, sizeof result);
    }
    for (; i < elements; ++i) {
        to[i] = from[i] * by;
    }
}

template <class T, class Op>
[[gnu::always_inline]] inline void reduce_blocks(std::span<std::byte* const> targets,
                                                 std::span<const std::byte* const> sources,
                                                 std::int64_t elements, int divisor) {
    constexpr std::int64_t block = 8192 / static_cast<std::int64_t>(sizeof(Wide<T>));
    alignas(64) Wide<T> buffer[static_cast<std::size_t>(block)];
    const auto part = [](const std::byte* data, std::int64_t begin) {
        return reinterpret_cast<const T*>(data) + begin;
    };
    // Accumulating in a target saves a copy, unless that overwrites a source not yet read.
    const bool in_target =
        !is_half<T> && (sources.size() == 2 || (sources.size() > 2 && targets[0] == sources[0]));
    for (std::int64_t begin = 0; begin < elements; begin += block) {
        const std::int64_t count = std::min(block, elements - begin);
        const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
        Wide<T>* sum = buffer;
        const Wide<T>* left = buffer;
        if constexpr (is_half<T>) {
            std::copy_n(part(sources[0], begin), count, buffer);
        } else {
            left = part(sources[0], begin);
            if (in_target) {
                sum = reinterpret_cast<T*>(targets[0]) + begin;
            } else if (sources.size() == 1) {
                std::memcpy(sum, left, bytes);
            }
        }
        for (const std::byte* source : sources.subspan(1)) {
            combine<Op, T>(sum, left, part(source, begin), count);
            left = sum;
        }
        if constexpr (std::is_floating_point_v<Wide<T>>) {
            if (divisor > 1) {
                divide(sum, static_cast<Wide<T>>(divisor), count);
            }
        }
        for (std::byte* target : targets.subspan(in_target ? 1 : 0)) {
            T* const to = reinterpret_cast<T*>(target) + begin;
            if constexpr (is_half<T>) {
                std::copy_n(sum, count, to);
            } else {
                std::memcpy(to, sum, bytes);
            }
        }
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
template <class T, class Op>
[[gnu::target("avx2")]] void reduce_avx2(std::span<std::byte* const> targets,
                                         std::span<const std::byte* const> sources,
                                         std::int64_t elements, int divisor) {
    reduce_blocks<T, Op>(targets, sources, elements, divisor);
}
#endif

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("avx2")]] inline void scale_avx2(float* to, const float* from, float by,
                                               std::int64_t elements) {
    scale_blocks(to, from, by, elements);
}
#endif

/// to = from * by, of float32. Not inlined: a product that is added elsewhere must be rounded
/// first, not fused with the addition.
[[gnu::noinline]] inline void scale(std::byte* to, const std::byte* from, float by,
                                    std::int64_t elements) {
    auto* const out = reinterpret_cast<float*>(to);
    const auto* const in = reinterpret_cast<const float*>(from);
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) {
        scale_avx2(out, in, by, elements);
        return;
    }
#endif
    scale_blocks(out, in, by, elements);
}

template <class T, class Op>
void reduce(std::span<std::byte* const> targets, std::span<const std::byte* const> sources,
            std::int64_t elements, int divisor) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) {
        reduce_avx2<T, Op>(targets, sources, elements, divisor);
        return;
    }
#endif
    reduce_blocks<T, Op>(targets, sources, elements, divisor);
}

template <class T>
void reduce(ReduceOp op, std::span<std::byte* const> targets,
            std::span<const std::byte* const> sources, std::int64_t elements, int divisor) {
    switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
        return reduce<T, Sum>(targets, sources, elements, divisor);
    case ReduceOp::min:
        return reduce<T, Min>(targets, sources, elements, divisor);
    case ReduceOp::max:
        return reduce<T, Max>(targets, sources, elements, divisor);
    }
}

} // namespace kernels

inline void Reduction::run(std::span<std::byte* const> targets,
                           std::span<const std::byte* const> sources, std::int64_t elements) const {
    switch (type) {
    case at::kComplexFloat:
        return kernels::reduce<float>(op, targets, sources, 2 * elements, divisor);
    case at::kComplexDouble:
        return kernels::reduce<double>(op, targets, sources, 2 * elements, divisor);
    case at::kFloat:
        return kernels::reduce<float>(op, targets, sources, elements, divisor);
    case at::kDouble:
        return kernels::reduce<double>(op, targets, sources, elements, divisor);
    case at::kHalf:
        return kernels::reduce<c10::Half>(op, targets, sources, elements, divisor);
    case at::kBFloat16:
        return kernels::reduce<c10::BFloat16>(op, targets, sources, elements, divisor);
    case at::kChar:
        return kernels::reduce<std::int8_t>(op, targets, sources, elements, divisor);
    case at::kByte:
        return kernels::reduce<std::uint8_t>(op, targets, sources, elements, divisor);
    case at::kBool: // true + true is true
        return kernels::reduce<std::uint8_t>(op == ReduceOp::sum ? ReduceOp::max : op, targets,
                                             sources, elements, divisor);
    case at::kShort:
        return kernels::reduce<std::int16_t>(op, targets, sources, elements, divisor);
    case at::kUInt16:
        return kernels::reduce<std::uint16_t>(op, targets, sources, elements, divisor);
    case at::kInt:
        return kernels::reduce<std::int32_t>(op, targets, sources, elements, divisor);
    case at::kUInt32:
        return kernels::reduce<std::uint32_t>(op, targets, sources, elements, divisor);
    case at::kLong:
        return kernels::reduce<std::int64_t>(op, targets, sources, elements, divisor);
    case at::kUInt64:
        return kernels::reduce<std::uint64_t>(op, targets, sources, elements, divisor);
    default:
        require_reducible(type, op);
    }
}

} // namespace rtrain::comm
