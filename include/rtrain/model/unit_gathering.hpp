// SPDX-License-Identifier: Apache-2.0
/// @file
/// Brings units of weights, of which each rank has its parts, whole into slots: several at a time,
/// without waiting. All ranks start the same ones in the same order, for the same slots.
#pragma once

#include <rtrain/comm/slices.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::detail {

/// A parameter where this rank has its copy, on the device of the weights.
struct WeightCopy {
    std::byte* memory = nullptr;
    comm::Slices slices; ///< one for each owner
    std::size_t element_bytes = 0;

    /// Of the longest slice: what it adds to each rank's row of a message.
    [[nodiscard]] std::int64_t row_bytes() const {
        return slices.longest * static_cast<std::int64_t>(element_bytes);
    }
};

class UnitGathering {
public:
    struct Weights {
        /// Of a unit, for a slot.
        std::function<std::vector<WeightCopy>(std::size_t unit, std::size_t slot)> copies;
        /// Writes this rank's parts there.
        std::function<void(std::size_t unit, std::size_t slot)> write_own;
        std::function<const std::string&(std::size_t unit)> name;
    };

    UnitGathering() = default;
    UnitGathering(const UnitGathering&) = delete;
    UnitGathering& operator=(const UnitGathering&) = delete;
    virtual ~UnitGathering() = default;

    /// This rank needs no more what is in the slot. `order`: a hash of the one that this rank
    /// follows.
    virtual void start(std::size_t unit, std::size_t slot, std::int64_t order) = 0;
    /// Goes on as far as possible with all of them, without waiting; whether all are there.
    virtual bool poll() = 0;
    /// Returns when it is, for those who use it next; and whether all ranks have started it in the
    /// same order, where that is known. Throws ModelError [RT-M49], on all ranks the same.
    virtual std::optional<bool> wait(std::size_t slot) = 0;
    /// Between passes: whether the order to come is the same on all ranks, where the next wait()
    /// does not tell. *Collective.* Throws ModelError [RT-M49], on all ranks the same.
    [[nodiscard]] virtual std::optional<bool> agree(std::int64_t order) = 0;
};

} // namespace rtrain::detail
