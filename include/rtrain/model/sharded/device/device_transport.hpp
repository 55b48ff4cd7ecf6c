// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks of a model that is sharded on devices, where each rank counts as a node.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/model/sharded/device/device_all_gather.hpp>
#include <rtrain/model/sharded/device/device_exchange.hpp>
#include <rtrain/model/sharded/device/device_slots.hpp>
#include <rtrain/model/sharded/plan/shard_plan.hpp>
#include <rtrain/model/sharded/plan/shard_transport.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::detail {

class DeviceTransport final : public ShardTransport {
public:
    /// `backend` outlives this object and satisfies shards_on_device().
    explicit DeviceTransport(AnyBackend& backend) : backend_(backend), device_(*backend.device()) {}

    [[nodiscard]] comm::BlockOwners owners() const override {
        return {.nodes = backend_.size(), .node = backend_.rank()};
    }
    [[nodiscard]] at::Device device() const override { return device_; }
    [[nodiscard]] bool shares() const override { return false; }

    [[nodiscard]] WeightArray
    allocate_array(std::size_t bytes, std::vector<comm::NodeArray::Part> /*parts*/) override {
        const auto memory = std::make_shared<at::Tensor>(at::zeros(
            {static_cast<std::int64_t>(bytes)}, at::TensorOptions(device_).dtype(at::kByte)));
        auto* const data = static_cast<std::byte*>(memory->data_ptr());
        return {memory, data, data};
    }
    [[nodiscard]] std::unique_ptr<comm::Slots>
    allocate_slots(std::size_t bytes, std::optional<at::ScalarType> sent_as) override {
        return std::make_unique<DeviceSlots>(backend_, device_, bytes, sent_as);
    }
    void exchange(const std::vector<WeightCopy>& weights) override {
        std::optional<DeviceExchange> last; // in flight while the next one is packed
        for_each_weight_message(
            weights.size(), [&](std::size_t i) { return weights[i].row_bytes(); },
            [&](std::size_t begin, std::size_t end, std::int64_t /*bytes*/) {
                DeviceExchange next(
                    backend_, device_,
                    std::vector<WeightCopy>(weights.data() + begin, weights.data() + end));
                if (last) {
                    last->finish();
                }
                last.emplace(std::move(next));
            });
        if (last) {
            last->finish();
        }
    }
    [[nodiscard]] std::unique_ptr<UnitAllGather>
    allocate_gathering(std::size_t slots, UnitAllGather::Weights weights) override {
        return std::make_unique<DeviceAllGather>(backend_, device_, slots, std::move(weights));
    }

private:
    AnyBackend& backend_;
    at::Device device_;
};

} // namespace rtrain::detail
