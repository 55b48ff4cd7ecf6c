// SPDX-License-Identifier: Apache-2.0
/// @file
/// Description of the collective that a rank is about to run, in a few bytes sent along with its
/// data. Ranks that call different collectives, or pass different tensors, detect it before
/// anything is combined.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/kernels/reduce_op.hpp>
#include <rtrain/process/status/user_call.hpp>

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
    barrier,
    all_gather_parts,
    reduce_scatter_parts
};

struct Call {
    Collective collective = Collective::barrier;
    ReduceOp op = ReduceOp::sum;
    at::ScalarType type = at::kByte;
    bool finite : 1 = true;         ///< this rank's slice of a bucket's result, if ranks check it
    std::uint8_t user_call : 7 = 0; ///< UserCall::Name of the enclosing call
    /// Root of a broadcast; number of a repeatable all-reduce; bytes of an element of parts; else
    /// 0.
    std::uint16_t which = 0;
    std::uint16_t shape = 0;     ///< hash of the sizes
    std::uint32_t order = 0;     ///< calls of the communicator up to this one
    std::uint32_t user_step = 0; ///< UserCall::number
    std::int64_t elements = 0;

    /// Sets the user call, from UserCall::current().
    void set_user_call(const UserCall& call) noexcept {
        user_call = call.name & 0x7fU;
        user_step = call.number;
    }
    /// Returns this call for a tensor that is sent as a different type.
    [[nodiscard]] Call as(at::ScalarType travels) const {
        Call call = *this;
        call.type = travels;
        return call;
    }

    /// True if ranks do the same, regardless of the user call.
    friend bool operator==(const Call& a, const Call& b) {
        return a.collective == b.collective && a.op == b.op && a.finite == b.finite &&
               a.type == b.type && a.which == b.which && a.shape == b.shape && a.order == b.order &&
               a.elements == b.elements;
    }
};
static_assert(sizeof(Call) == 24); // two of them and a counter fill a cache line: stages.hpp

/// FNV-1a hash of the sizes.
[[nodiscard]] inline std::uint16_t hash_of(at::IntArrayRef sizes) {
    std::uint32_t hash = 2166136261U;
    for (const std::int64_t size : sizes) {
        hash = (hash ^ static_cast<std::uint32_t>(size)) * 16777619U;
    }
    return static_cast<std::uint16_t>(hash ^ hash >> 16);
}

[[nodiscard]] inline const char* name_of(Collective collective) {
    switch (collective) {
    case Collective::all_reduce:
        return "all_reduce";
    case Collective::all_reduce_bucket:
        return "all_reduce of a bucket";
    case Collective::reduce_scatter:
        return "reduce_scatter";
    case Collective::all_gather:
        return "all_gather";
    case Collective::broadcast:
        return "broadcast";
    case Collective::barrier:
        return "barrier";
    case Collective::all_gather_parts:
        return "all_gather of parts";
    case Collective::reduce_scatter_parts:
        return "reduce_scatter of parts";
    }
    return "unknown collective";
}

/// For example "all_reduce(sum) of 1000 Float". Calls describes the purpose of a repeatable one.
[[nodiscard]] inline std::string describe(const Call& call) {
    const auto elements = detail::concat(call.elements, " ", c10::toString(call.type));
    constexpr const char* ops[] = {"(sum)", "(mean)", "(min)", "(max)"};
    const char* const op = ops[static_cast<int>(call.op)];
    switch (call.collective) {
    case Collective::barrier:
        return name_of(call.collective);
    case Collective::broadcast:
        return detail::concat("broadcast from rank ", call.which, " of ", elements);
    case Collective::all_gather:
        return detail::concat("all_gather of ", elements);
    case Collective::all_gather_parts:
    case Collective::reduce_scatter_parts:
        return detail::concat(name_of(call.collective), ", in all ", call.elements, " elements of ",
                              call.which, " bytes");
    case Collective::all_reduce_bucket:
        return detail::concat("all_reduce", op, " of a bucket of ", elements);
    default:
        return detail::concat(name_of(call.collective), op, " of ", elements);
    }
}

} // namespace rtrain::comm
