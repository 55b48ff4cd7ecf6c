// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots on devices, whose backend adds up their blocks. Device work runs in order, so the host
/// only waits for sums that it stores itself.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/comm/node/slots.hpp>
#include <rtrain/model/sharded/plan/shard_transport.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace rtrain::detail {

class DeviceSlots final : public comm::Slots {
public:
    /// Each rank owns a block. `backend` outlives this object. `sent_as`: the type in which ranks
    /// send float32 and float64.
    DeviceSlots(AnyBackend& backend, at::Device device, std::size_t bytes,
                std::optional<at::ScalarType> sent_as)
        : backend_(backend), device_(device), sent_as_(sent_as) {
        for (Round& round : rounds_) {
            round.slot = at::empty({static_cast<std::int64_t>(bytes)},
                                   at::TensorOptions(device).dtype(at::kByte));
        }
    }

    /// Waits for reductions of a failed pass before their memory is freed.
    ~DeviceSlots() override {
        for (Round& round : rounds_) {
            try {
                if (round.scatter) {
                    round.scatter->wait();
                }
            } catch (const std::exception&) { // no caller waits for it
            }
        }
    }

    [[nodiscard]] std::byte* slot() override {
        Round& next = rounds_[(round_ + 1) % 2];
        finish(next);
        return static_cast<std::byte*>(next.slot.data_ptr());
    }

    void publish(at::ScalarType type, std::int64_t block, const at::Tensor& to,
                 std::function<void()> then) override {
        Round& round = rounds_[++round_ % 2];
        if (block == 0) {
            return;
        }
        at::Tensor rows = tensor_at(static_cast<std::byte*>(round.slot.data_ptr()),
                                    {backend_.size(), block}, at::device(device_).dtype(type));
        if (comm::is_rounded(type, sent_as_)) {
            rows = rows.to(*sent_as_);
        }
        const bool is_there = to.device() == device_ && to.scalar_type() == rows.scalar_type();
        round.sum = is_there ? to : at::empty({block}, rows.options());
        round.to = to;
        round.then = std::move(then);
        round.scatter = backend_.make_reduce_scatter(rows, round.sum);
        round.scatter->start();
    }

    void poll() override {
        for (Round& round : rounds_) {
            if (round.scatter) {
                round.scatter->poll();
            }
        }
    }
    void wait() override {
        finish(rounds_[(round_ + 1) % 2]);
        finish(rounds_[round_ % 2]);
    }

private:
    struct Round {
        at::Tensor slot;
        std::unique_ptr<AnyCollective> scatter; ///< in flight
        at::Tensor sum;                         ///< of this rank's block
        at::Tensor to;                          ///< its destination: the same memory, or elsewhere
        std::function<void()> then;
    };

    static void finish(Round& round) {
        if (!round.scatter) {
            return;
        }
        std::exchange(round.scatter, nullptr)->wait();
        if (!round.to.is_same(round.sum)) {
            round.to.copy_(round.sum);
        }
        round.to.reset();
        round.sum.reset();
        std::exchange(round.then, nullptr)();
    }

    AnyBackend& backend_;
    at::Device device_;
    std::optional<at::ScalarType> sent_as_;
    std::array<Round, 2> rounds_; ///< the even and the odd one
    std::size_t round_ = 0;
};

} // namespace rtrain::detail
