// SPDX-License-Identifier: Apache-2.0
/// @file
/// Units of weights that are gathered into slots on devices. Neither host nor device waits for
/// another rank's host: ranks check once per step that all have gathered the same units.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/sharded/device/device_exchange.hpp>
#include <rtrain/model/sharded/plan/unit_all_gather.hpp>
#include <rtrain/model/sharded/plan/unit_order.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::detail {

class DeviceAllGather final : public UnitAllGather {
public:
    /// `backend` outlives this object.
    DeviceAllGather(AnyBackend& backend, at::Device device, std::size_t slots, Weights weights)
        : backend_(backend), device_(device), weights_(std::move(weights)), slots_(slots) {}

    /// Waits for transfers that were never used before their memory is freed.
    ~DeviceAllGather() override {
        for (auto& one : slots_) {
            try {
                if (one) {
                    one->drop();
                }
            } catch (const std::exception&) { // no caller waits for it
            }
        }
    }

    /// Writes this rank's parts into the slot, after the device's pending work on the slot.
    void start(std::size_t unit, std::size_t slot, std::int64_t /*order*/) override {
        if (slots_[slot]) {
            slots_[slot]->drop();
        }
        started_ = hashed(hashed(started_, unit + 1), slot + 1);
        weights_.write_own(unit, slot);
        slots_[slot].emplace(backend_, device_, weights_.copies(unit, slot));
    }
    bool poll() override {
        for (auto& one : slots_) {
            if (one) {
                one->poll();
            }
        }
        return true; // the device continues by itself
    }
    std::optional<bool> wait(std::size_t slot) override {
        slots_[slot]->finish();
        slots_[slot].reset();
        return std::nullopt;
    }

    [[nodiscard]] std::optional<bool> agree(std::int64_t order) override {
        const at::Tensor all = backend_.all_gather(
            at::tensor({static_cast<std::int64_t>(std::exchange(started_, 0)), order}, at::kLong));
        bool same = true;
        for (std::int64_t rank = 1; rank < all.size(0); ++rank) {
            if (!all[rank][0].equal(all[0][0])) {
                throw ModelError(
                    "RT-M49", concat("rank ", rank,
                                     " has used the weights of a model in a different order than "
                                     "rank 0 since the last step; all ranks must run the same "
                                     "layers, in training and in evaluation, or prepare the "
                                     "model with level Shard::gradients"));
            }
            same = same && all[rank][1].equal(all[0][1]);
        }
        return same;
    }

private:
    AnyBackend& backend_;
    at::Device device_;
    Weights weights_;
    std::vector<std::optional<DeviceExchange>> slots_; ///< the transfer started into each
    std::uint64_t started_ = 0; ///< a hash of units and slots since ranks last agreed
};

} // namespace rtrain::detail
