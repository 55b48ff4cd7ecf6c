// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks of a model that is sharded on the CPU.
#pragma once

#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/sharded/host/host_all_gather.hpp>
#include <rtrain/model/sharded/host/weight_exchange.hpp>
#include <rtrain/model/sharded/plan/shard_transport.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::detail {

class HostTransport final : public ShardTransport {
public:
    /// `ranks` outlives this object. `shares`: the ranks of a node share one copy.
    HostTransport(comm::Communicator& ranks, bool shares)
        : ranks_(ranks), owners_(ranks.block_owners()), shares_(shares), exchange_(ranks, shares) {}

    [[nodiscard]] comm::BlockOwners owners() const override { return owners_; }
    [[nodiscard]] at::Device device() const override { return at::kCPU; }
    [[nodiscard]] bool shares() const override { return shares_; }

    [[nodiscard]] WeightArray allocate_array(std::size_t bytes,
                                             std::vector<comm::NodeArray::Part> parts) override {
        const auto array = ranks_.allocate_array(bytes, std::move(parts), shares_);
        return {array, array->read(), array->write()};
    }
    [[nodiscard]] std::unique_ptr<comm::Slots>
    allocate_slots(std::size_t bytes, std::optional<at::ScalarType> sent_as) override {
        return ranks_.allocate_slots(bytes, sent_as);
    }
    void exchange(const std::vector<WeightCopy>& weights) override { exchange_.run(weights); }
    [[nodiscard]] std::unique_ptr<UnitAllGather>
    allocate_gathering(std::size_t slots, UnitAllGather::Weights weights) override {
        return std::make_unique<HostAllGather>(ranks_, exchange_, shares_, slots,
                                               std::move(weights));
    }

private:
    comm::Communicator& ranks_;
    comm::BlockOwners owners_;
    bool shares_;
    WeightExchange exchange_;
};

} // namespace rtrain::detail
