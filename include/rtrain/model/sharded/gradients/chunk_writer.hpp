// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes gradients into slots: every owner's block of each chunk (shard_plan.hpp).
#pragma once

#include <rtrain/model/reduction/device_copies.hpp>
#include <rtrain/model/reduction/gradient_writer.hpp>
#include <rtrain/model/sharded/plan/shard_plan.hpp>
#include <rtrain/model/sharded/plan/shard_transport.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rtrain::detail {

class ChunkWriter {
public:
    /// `parameters` outlive this object. `device`: where gradients and slots are.
    ChunkWriter(const std::vector<NamedParameter>& parameters, int owners, at::Device device)
        : parameters_(parameters), owners_(owners), device_(device) {}

    /// Divides by `divisor`. `gradient_of(i)`: the gradient of a parameter, flat
    /// (in_memory_order()); zeros where it is undefined.
    template <class GradientOf>
    void write(const Chunk& chunk, std::byte* slot, double divisor, GradientOf&& gradient_of) {
        at::Tensor blocks =
            tensor_at(slot, {owners_ * chunk.block}, at::device(device_).dtype(chunk.type));
        const at::Tensor scale = scale_for(divisor, chunk.type);
        for (const Chunk::Member& member : chunk.members) {
            const at::Tensor flat = gradient_of(member.parameter);
            const comm::Slices slices = slices_of(parameters_[member.parameter].tensor, owners_);
            for (int owner = 0; owner < owners_; ++owner) {
                const std::int64_t count =
                    std::clamp<std::int64_t>(slices.count(owner) - member.from, 0, member.count);
                if (count == 0) {
                    continue;
                }
                at::Tensor to = blocks.narrow(0, owner * chunk.block + member.offset, count);
                if (!flat.defined()) {
                    to.zero_();
                } else if (const at::Tensor from =
                               flat.narrow(0, slices.begin(owner) + member.from, count);
                           device_.is_cpu()) {
                    writer_.scale_into(to, from, scale);
                } else { // one kernel per copy would cost more than the copy
                    copies_.add(std::move(to), from);
                }
            }
        }
        if (!device_.is_cpu()) {
            copies_.run();
            blocks.mul_(scale);
        }
    }

private:
    const std::vector<NamedParameter>& parameters_;
    int owners_;
    at::Device device_;
    GradientWriter writer_;
    DeviceCopies copies_;
};

} // namespace rtrain::detail
