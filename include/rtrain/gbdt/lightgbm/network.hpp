// SPDX-License-Identifier: Apache-2.0
/// @file
/// Network: LightGBM's communication by collectives of rtrain, without ports and machine lists.
/// Without libtorch.
#pragma once

#include <rtrain/comm/kernels/parts.hpp>
#include <rtrain/gbdt/lightgbm/call.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

namespace rtrain::gbdt::lightgbm {

/// The collectives that LightGBM calls, on the ranks that train.
class Collectives {
public:
    Collectives() = default;
    Collectives(const Collectives&) = delete;
    Collectives& operator=(const Collectives&) = delete;
    virtual ~Collectives() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    /// Sends every rank's part of `data` to all ranks.
    virtual void all_gather(std::byte* data, const comm::Parts& parts) = 0;
    /// Combines this rank's part of every rank's `data` into `own`.
    virtual void reduce_scatter(const std::byte* data, const comm::Parts& parts, std::byte* own,
                                const comm::Combining& combining) = 0;
};

/// The collectives of this thread: LightGBM passes none to its callbacks.
[[nodiscard]] inline Collectives*& current_collectives() {
    thread_local Collectives* ranks = nullptr;
    return ranks;
}

/// Runs a callback. LightGBM turns exceptions of certain classes into errors with their text.
template <class Action>
void guarded(const Action& action) {
    try {
        action();
    } catch (const std::exception& error) {
        network_error = std::current_exception();
        throw std::runtime_error(error.what());
    }
}

/// `lengths`: bytes of each rank's block; blocks are consecutive.
[[nodiscard]] inline comm::Parts parts_of(const std::int32_t* lengths, int count, int element) {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < count; ++rank) {
        counts.push_back(lengths[rank] / element);
    }
    return comm::Parts(std::move(counts));
}

extern "C" {

/// LightGBM's AllgatherFunction.
inline void rtrain_lightgbm_all_gather(char* input, std::int32_t bytes, const std::int32_t* begins,
                                       const std::int32_t* lengths, int count, char* output,
                                       std::int32_t /*output_bytes*/) {
    guarded([&] {
        Collectives& ranks = *current_collectives();
        std::memmove(output + begins[ranks.rank()], input, static_cast<std::size_t>(bytes));
        ranks.all_gather(reinterpret_cast<std::byte*>(output), parts_of(lengths, count, 1));
    });
}

/// LightGBM's ReduceScatterFunction.
inline void rtrain_lightgbm_reduce_scatter(
    char* input, std::int32_t /*input_bytes*/, int element, const std::int32_t* /*begins*/,
    const std::int32_t* lengths, int count, char* output, std::int32_t /*output_bytes*/,
    void (*const& reduce)(const char* from, char* to, int element, std::int32_t bytes)) {
    guarded([&] {
        const auto combine = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
            reduce(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to), element,
                   static_cast<std::int32_t>(bytes));
        };
        current_collectives()->reduce_scatter(
            reinterpret_cast<const std::byte*>(input), parts_of(lengths, count, element),
            reinterpret_cast<std::byte*>(output), {combine, static_cast<std::size_t>(element)});
    });
}

} // extern "C"

/// While it exists, LightGBM's functions on this thread train together with the other ranks.
class Network {
public:
    /// `ranks` outlives it.
    explicit Network(Collectives& ranks) {
        current_collectives() = &ranks;
        network_error = nullptr;
        check(
            LGBM_NetworkInitWithFunctions(ranks.size(), ranks.rank(),
                                          reinterpret_cast<void*>(&rtrain_lightgbm_reduce_scatter),
                                          reinterpret_cast<void*>(&rtrain_lightgbm_all_gather)),
            "LGBM_NetworkInitWithFunctions");
    }
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;
    ~Network() {
        (void)LGBM_NetworkFree();
        current_collectives() = nullptr;
    }
};

} // namespace rtrain::gbdt::lightgbm
