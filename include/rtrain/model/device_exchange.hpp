// SPDX-License-Identifier: Apache-2.0
/// @file
/// How weights that ranks have stepped come to the devices of the others: packed into a row, one
/// all-gather of rows, unpacked.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/model/device_copies.hpp>
#include <rtrain/model/shard_ranks.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Some weights on their way. Ranks start it in the same order.
class DeviceExchange {
public:
    /// Sends what this rank owns of `weights`. `backend` outlives it.
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

    /// What the device is told from now on finds the weights of all.
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
    /// Nobody needs them: what the device is told from now on comes behind their way.
    void drop() { gather_->wait(); }
    /// Throws what has happened to the other ranks.
    void poll() { gather_->poll(); }

private:
    /// What a rank owns of each of the weights, and where it is in its row.
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
                              at::kByte, device_),
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
