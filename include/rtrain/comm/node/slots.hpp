// SPDX-License-Identifier: Apache-2.0
/// @file
/// A reduce-scatter that runs in rounds, in fixed memory: the interface for a sharded model's
/// gradients, independent of how ranks communicate.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace rtrain::comm {

/// Owners of the blocks of a slot. Blocks are numbered by local rank, then by node, so that those
/// that a local rank sums for all nodes are adjacent. A local rank that not all nodes have owns
/// none.
struct BlockOwners {
    int places = 1; ///< local ranks of each node that own blocks
    int nodes = 1;
    int place = 0; ///< this rank's
    int node = 0;  ///< this rank's

    [[nodiscard]] int count() const noexcept { return places * nodes; }
    [[nodiscard]] bool owns() const noexcept { return place < places; }
    /// This rank's block, if it owns one.
    [[nodiscard]] int mine() const noexcept { return place * nodes + node; }
};

/// True if sums of a type are rounded to `sent_as`, if given, before they are sent.
[[nodiscard]] inline bool is_rounded(at::ScalarType type, std::optional<at::ScalarType> sent_as) {
    return sent_as && (type == at::kFloat || type == at::kDouble);
}

/// Two slots of each rank, used alternately.
class Slots {
public:
    Slots() = default;
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;
    virtual ~Slots() = default;

    /// This rank's slot of the next round, on its device. Blocks until its contents are no longer
    /// needed.
    [[nodiscard]] virtual std::byte* slot() = 0;
    /// Begins a round: the slot holds a block of `block` elements for each owner. The sum of this
    /// rank's block is written to `to`, of one dimension and as many elements. `to` must not be
    /// accessed until `then` is called, in poll(), slot() or wait(), unless this rank owns no
    /// block, or an empty one.
    virtual void publish(at::ScalarType type, std::int64_t block, const at::Tensor& to,
                         std::function<void()> then) = 0;
    /// Advances as far as the other ranks allow.
    virtual void poll() = 0;
    /// Blocks until all sums are complete.
    virtual void wait() = 0;
};

} // namespace rtrain::comm
