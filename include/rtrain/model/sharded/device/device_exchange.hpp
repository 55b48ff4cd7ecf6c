// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sends weights that ranks have stepped to the devices of the others: packed into a row, one
/// all-gather of rows, unpacked.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/model/reduction/device_copies.hpp>
#include <rtrain/model/sharded/plan/shard_transport.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// A transfer of some weights. Ranks start transfers in the same order.
class DeviceExchange {
public:
    /// Sends this rank's slices of `weights`. `backend` outlives this object.
    DeviceExchange(AnyBackend& backend, at::Device device, std::vector<WeightCopy> weights)
        : device_(device), mine_(backend.rank()), weights_(std::move(weights)) {
        std::int64_t bytes = 0;
        for (const WeightCopy& weight : weights_) {
            bytes += weight.row_bytes();
        }
        rows_ = at::empty({backend.size(), bytes}, at::TensorOptions(device).dtype(at::kByte));
        add(mine_, [this](at::Tensor in_copy, at::Tensor in_row) {
            copies_.add(std::move(in_row), std::move(in_copy));
        });
        copies_.run();
        gather_ = backend.make_all_gather(rows_[mine_], rows_);
        gather_->start();
    }

    /// Device work queued after this call sees the weights of all ranks.
    void finish() {
        gather_->wait();
        for (int rank = 0; rank < rows_.size(0); ++rank) {
            if (rank != mine_) {
                add(rank, [this](at::Tensor in_copy, at::Tensor in_row) {
                    copies_.add(std::move(in_copy), std::move(in_row));
                });
            }
        }
        copies_.run();
    }
    /// Discards the weights; device work queued after this call runs after the transfer.
    void drop() { gather_->wait(); }
    /// Throws errors of the other ranks.
    void poll() { gather_->poll(); }

private:
    /// Adds a rank's slice of each weight, and its place in the rank's row.
    template <class Add>
    void add(int rank, Add&& add) {
        std::int64_t begin = 0;
        for (const WeightCopy& weight : weights_) {
            const auto bytes_for = [&](std::int64_t elements) {
                return elements * static_cast<std::int64_t>(weight.element_bytes);
            };
            const std::int64_t bytes = bytes_for(weight.slices.count(rank));
            if (bytes > 0) {
                add(tensor_at(weight.memory + bytes_for(weight.slices.begin(rank)), {bytes},
                              at::device(device_).dtype(at::kByte)),
                    rows_[rank].narrow(0, begin, bytes));
                begin += bytes;
            }
        }
    }

    at::Device device_;
    int mine_;
    std::vector<WeightCopy> weights_;
    at::Tensor rows_;
    std::unique_ptr<AnyCollective> gather_;
    DeviceCopies copies_;
};

} // namespace rtrain::detail
