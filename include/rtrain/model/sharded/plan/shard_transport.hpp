// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communication between the ranks of a sharded model: through memory that a node shares and by
/// messages (host_shards.hpp), or from device to device (device_shards.hpp).
#pragma once

#include <rtrain/comm/node/node_array.hpp>
#include <rtrain/comm/node/slots.hpp>
#include <rtrain/model/sharded/plan/unit_all_gather.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rtrain::detail {

/// Memory for weights: models read it at `read`; it is written at `write`.
struct WeightArray {
    std::shared_ptr<void> owner;
    std::byte* read = nullptr;
    std::byte* write = nullptr;
};

/// A tensor over memory of the options' device; `owner`, if given, keeps the memory alive.
[[nodiscard]] inline at::Tensor tensor_at(std::byte* memory, at::IntArrayRef sizes,
                                          const at::TensorOptions& options,
                                          at::OptionalIntArrayRef strides = std::nullopt,
                                          std::shared_ptr<void> owner = nullptr) {
    return at::for_blob(memory, sizes)
        .strides(strides)
        .deleter([owner = std::move(owner)](void* /*data*/) {})
        .options(options)
        .target_device(options.device())
        .make_tensor();
}

class ShardTransport {
public:
    ShardTransport() = default;
    ShardTransport(const ShardTransport&) = delete;
    ShardTransport& operator=(const ShardTransport&) = delete;
    virtual ~ShardTransport() = default;

    /// The owners of elements, of weights and of sums.
    [[nodiscard]] virtual comm::BlockOwners owners() const = 0;
    /// The device of the model, its weights and the slots.
    [[nodiscard]] virtual at::Device device() const = 0;
    /// True if the ranks of a node share one copy of what is allocated here.
    [[nodiscard]] virtual bool shares() const = 0;
    /// True if all ranks share one copy.
    [[nodiscard]] bool have_one_copy() const { return owners().nodes == 1 && shares(); }

    /// Zeroed. `parts`: messages for faults in the memory. *Collective.* Throws CommError [RT-X12].
    [[nodiscard]] virtual WeightArray allocate_array(std::size_t bytes,
                                                     std::vector<comm::NodeArray::Part> parts) = 0;
    /// Slots of `bytes`, a multiple of 64. `sent_as`: the type in which nodes send their sums of
    /// float32 and float64. *Collective.* Throws CommError [RT-X12].
    [[nodiscard]] virtual std::unique_ptr<comm::Slots>
    allocate_slots(std::size_t bytes, std::optional<at::ScalarType> sent_as) = 0;
    /// Sends what owners have written to all other copies. *Collective.*
    virtual void exchange(const std::vector<WeightCopy>& weights) = 0;
    /// For `slots` slots, which are in an array. *Collective.* Throws CommError [RT-X12].
    [[nodiscard]] virtual std::unique_ptr<UnitAllGather>
    allocate_gathering(std::size_t slots, UnitAllGather::Weights weights) = 0;
};

} // namespace rtrain::detail
