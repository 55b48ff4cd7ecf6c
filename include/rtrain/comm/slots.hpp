// SPDX-License-Identifier: Apache-2.0
/// @file
/// A reduce-scatter that goes on round after round, in memory that stays: what a sharded model's
/// gradients need of it, however ranks reach each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace rtrain::comm {

/// Which block of a slot is whose. Blocks are numbered by place on the node, then by node, so that
/// those that a place adds up for all nodes lie side by side. A place that not all nodes have owns
/// none.
struct BlockOwners {
    int places = 1; ///< of each node that own blocks
    int nodes = 1;
    int place = 0; ///< this rank's
    int node = 0;  ///< this rank's

    [[nodiscard]] int count() const noexcept { return places * nodes; }
    [[nodiscard]] bool owns() const noexcept { return place < places; }
    /// This rank's block, if it owns one.
    [[nodiscard]] int mine() const noexcept { return place * nodes + node; }
};

/// Whether sums of a type are rounded to `sent_as`, if that is given, to be sent.
[[nodiscard]] inline bool is_rounded(at::ScalarType type, std::optional<at::ScalarType> sent_as) {
    return sent_as && (type == at::kFloat || type == at::kDouble);
}

/// Two of each rank, in turns.
class Slots {
public:
    Slots() = default;
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;
    virtual ~Slots() = default;

    /// This rank's slot of the round to come, on the device that it computes on. Waits until nobody
    /// needs what is in it.
    [[nodiscard]] virtual std::byte* slot() = 0;
    /// Begins a round: the slot holds a block of `block` elements for each owner. The sum of this
    /// rank's goes `to` one dimension of as many, which must not be touched until `then` is called,
    /// in poll(), slot() or wait(), unless this rank owns no block, or one without elements.
    virtual void publish(at::ScalarType type, std::int64_t block, const at::Tensor& to,
                         std::function<void()> then) = 0;
    /// Goes on as far as the others have got.
    virtual void poll() = 0;
    /// Returns when all sums are there.
    virtual void wait() = 0;
};

} // namespace rtrain::comm
