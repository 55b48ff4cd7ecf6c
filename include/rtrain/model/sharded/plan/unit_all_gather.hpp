// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gathers units of weights, of which each rank has its parts, whole into slots: several at a time,
/// without waiting. All ranks start the same ones in the same order, for the same slots.
#pragma once

#include <rtrain/comm/kernels/slices.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::detail {

/// This rank's copy of a parameter, on the device of the weights.
struct WeightCopy {
    std::byte* memory = nullptr;
    comm::Slices slices; ///< one for each owner
    std::size_t element_bytes = 0;

    /// Bytes of the longest slice: what the weight adds to each rank's row of a message.
    [[nodiscard]] std::int64_t row_bytes() const {
        return slices.longest * static_cast<std::int64_t>(element_bytes);
    }
};

class UnitAllGather {
public:
    struct Weights {
        /// The copies of a unit's weights in a slot.
        std::function<std::vector<WeightCopy>(std::size_t unit, std::size_t slot)> copies;
        /// Writes this rank's parts into the slot.
        std::function<void(std::size_t unit, std::size_t slot)> write_own;
        std::function<const std::string&(std::size_t unit)> name;
    };

    UnitAllGather() = default;
    UnitAllGather(const UnitAllGather&) = delete;
    UnitAllGather& operator=(const UnitAllGather&) = delete;
    virtual ~UnitAllGather() = default;

    /// Starts to gather; this rank no longer needs the contents of the slot. `order`: a hash of the
    /// order that this rank follows.
    virtual void start(std::size_t unit, std::size_t slot, std::int64_t order) = 0;
    /// Polls all gatherings, without waiting; returns whether all are complete.
    virtual bool poll() = 0;
    /// Returns when the slot is ready for its next use, with whether all ranks have started it in
    /// the same order, where that is known. Throws ModelError [RT-M49], on all ranks the same.
    virtual std::optional<bool> wait(std::size_t slot) = 0;
    /// Between passes: returns whether the next order is the same on all ranks, unless the next
    /// wait() does. *Collective.* Throws ModelError [RT-M49], on all ranks the same.
    [[nodiscard]] virtual std::optional<bool> agree(std::int64_t order) = 0;
};

} // namespace rtrain::detail
