// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a rank is about to do, in a few bytes that travel with its data: ranks that call different
/// collectives, or pass different tensors, learn it from each other before anything is combined.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/error.hpp>

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>

namespace rtrain::comm {

enum class Collective : std::uint8_t {
    all_reduce,
    all_reduce_bucket,
    reduce_scatter,
    all_gather,
    broadcast,
    barrier
};

struct Call {
    Collective collective = Collective::barrier;
    ReduceOp op = ReduceOp::sum;
    at::ScalarType type = at::kByte;
    std::int16_t root = 0;
    bool finite = true;      ///< of a bucket's result: this rank's slice, if ranks check it
    std::uint32_t shape = 0; ///< hash of the sizes
    std::int64_t elements = 0;

    friend bool operator==(const Call&, const Call&) = default;
};

/// FNV-1a over the sizes.
[[nodiscard]] inline std::uint32_t hash_of(at::IntArrayRef sizes) {
    std::uint32_t hash = 2166136261U;
    for (const std::int64_t size : sizes) {
        hash = (hash ^ static_cast<std::uint32_t>(size)) * 16777619U;
    }
    return hash;
}

[[nodiscard]] inline const char* name_of(Collective collective) {
    switch (collective) {
    case Collective::all_reduce:
        return "all_reduce";
    case Collective::all_reduce_bucket:
        return "all_reduce of a gradient bucket";
    case Collective::reduce_scatter:
        return "reduce_scatter";
    case Collective::all_gather:
        return "all_gather";
    case Collective::broadcast:
        return "broadcast";
    case Collective::barrier:
        return "barrier";
    }
    return "unknown collective";
}

/// For example "all_reduce(sum) of 1000 Float".
[[nodiscard]] inline std::string describe(const Call& call) {
    std::string text = name_of(call.collective);
    switch (call.collective) {
    case Collective::barrier:
        return text;
    case Collective::broadcast:
        text += detail::concat(" from rank ", call.root);
        break;
    case Collective::all_gather:
        break;
    default: {
        constexpr const char* ops[] = {"(sum)", "(mean)", "(min)", "(max)"};
        text += ops[static_cast<int>(call.op)];
    }
    }
    return text + detail::concat(" of ", call.elements, " ", c10::toString(call.type));
}

[[noreturn]] inline void throw_calls_differ(int rank, const Call& mine, int peer,
                                            const Call& theirs) {
    const bool alike = describe(mine) == describe(theirs);
    throw CommError("RT-X10",
                    detail::concat("rank ", rank, " called ", describe(mine), ", while rank ", peer,
                                   " called ", describe(theirs), alike ? " of another shape" : "",
                                   "; all ranks must make the same calls in the same "
                                   "order, with tensors of equal shape and type"));
}

} // namespace rtrain::comm
