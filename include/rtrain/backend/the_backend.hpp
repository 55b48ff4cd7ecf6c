// SPDX-License-Identifier: Apache-2.0
/// @file
/// AnyBackend over a backend of one type: its optional members are found by name, missing ones are
/// emulated with those it has.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/capabilities.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/comm/kernels/exact_sum.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <concepts>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// A collective that blocks in start().
template <Backend B>
class BlockingReduction final : public AnyCollective {
public:
    /// `backend` outlives this object.
    BlockingReduction(B& backend, at::Tensor tensor)
        : backend_(backend), tensor_(std::move(tensor)) {}
    void start() override { backend_.all_reduce(tensor_, ReduceOp::sum); }
    void poll() override {}
    void wait() override {}

private:
    B& backend_;
    at::Tensor tensor_;
};

/// A collective over the handle of an AsyncBackend.
template <class Handle>
class AsyncCollective final : public AnyCollective {
public:
    AsyncCollective(Handle handle, [[maybe_unused]] bool check_finite)
        : handle_(std::move(handle)) {
        if constexpr (sees_finite) {
            if (check_finite) {
                handle_.check_finite();
            }
        }
    }
    void start() override { handle_.start(); }
    void poll() override { handle_.poll(); }
    void wait() override { handle_.wait(); }
    [[nodiscard]] std::optional<bool> finite() const override {
        if constexpr (sees_finite) {
            return handle_.finite();
        } else {
            return std::nullopt;
        }
    }
    [[nodiscard]] std::shared_ptr<comm::BucketPieces>
    make_pieces(std::vector<comm::Piece> pieces) override {
        if constexpr (requires { handle_.make_pieces(pieces); }) {
            return handle_.make_pieces(std::move(pieces));
        } else {
            return nullptr;
        }
    }

private:
    static constexpr bool sees_finite = requires(Handle & handle) {
        handle.check_finite();
        { handle.finite() } -> std::same_as<std::optional<bool>>;
    };
    Handle handle_;
};

template <Backend B>
class TheBackend final : public AnyBackend, RequireCapabilities<B> {
public:
    explicit TheBackend(std::shared_ptr<B> backend) : backend_(std::move(backend)) {}

    [[nodiscard]] int rank() const override { return std::as_const(*backend_).rank(); }
    [[nodiscard]] int size() const override { return std::as_const(*backend_).size(); }
    void all_reduce(at::Tensor& tensor, ReduceOp op) override {
        if (!sums_wrap_around(tensor, op)) {
            backend_->all_reduce(tensor, op);
            return;
        }
        tensor.copy_(comm::reduced_exactly(tensor, op, size(), [&](at::Tensor wide) {
            backend_->all_reduce(wide, op);
            return wide;
        }));
    }
    void broadcast(at::Tensor& tensor, int root) override { backend_->broadcast(tensor, root); }

    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) override {
        if constexpr (backend::CanAllGather<B>) {
            return backend_->all_gather(tensor);
        } else {
            std::vector<std::int64_t> shape = tensor.sizes().vec();
            shape.insert(shape.begin(), size());
            at::Tensor gathered = at::zeros(shape, tensor.options());
            gathered.select(0, rank()).copy_(tensor);
            all_reduce(gathered, ReduceOp::sum); // x + 0 + ... + 0 is x
            return gathered;
        }
    }
    [[nodiscard]] std::vector<at::Tensor> all_gather_parts(const at::Tensor& part) override {
        if constexpr (backend::CanAllGatherParts<B>) {
            return backend_->all_gather_parts(part);
        } else {
            return AnyBackend::all_gather_parts(part);
        }
    }
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) override {
        if constexpr (backend::CanReduceScatter<B>) {
            const auto reduce = [&](const at::Tensor& rows) {
                return backend_->reduce_scatter(rows, op);
            };
            return sums_wrap_around(tensor, op) ? comm::reduced_exactly(tensor, op, size(), reduce)
                                                : reduce(tensor);
        } else {
            at::Tensor copy = tensor.clone();
            all_reduce(copy, op);
            return copy[rank()];
        }
    }
    void barrier() override {
        if constexpr (backend::HasBarrier<B>) {
            backend_->barrier();
        } else {
            (void)all_gather(at::zeros({1}, at::kByte));
        }
    }

    [[nodiscard]] std::unique_ptr<AnyCollective>
    make_reduction(at::Tensor& tensor, [[maybe_unused]] bool check_finite) override {
        static_assert(!backend::HasAllReduceAsync<B> || AsyncBackend<B>,
                      "rtrain: this backend's `all_reduce_async` does not return a handle with "
                      "`start()`, `poll()` and `wait()` [RT-B10]");
        if constexpr (AsyncBackend<B>) {
            return later(backend_->all_reduce_async(tensor, ReduceOp::sum), check_finite);
        } else {
            return std::make_unique<BlockingReduction<B>>(*backend_, tensor);
        }
    }
    [[nodiscard]] bool shards_on_device() const override { return backend::CanShardOnDevice<B>; }
    [[nodiscard]] std::unique_ptr<AnyCollective> make_reduce_scatter(const at::Tensor& rows,
                                                                     at::Tensor& row) override {
        static_assert(!backend::HasCollectivesOfRows<B> || backend::CanShardOnDevice<B>,
                      "rtrain: this backend's `reduce_scatter_async` and `all_gather_async` do not "
                      "both take a `const at::Tensor&` and an `at::Tensor&`, or do not return a "
                      "handle with `start()`, `poll()` and `wait()`; or it has no `device()` "
                      "[RT-B11]");
        if constexpr (backend::CanShardOnDevice<B>) {
            return later(backend_->reduce_scatter_async(rows, row, ReduceOp::sum));
        } else {
            return nullptr;
        }
    }
    [[nodiscard]] std::unique_ptr<AnyCollective> make_all_gather(const at::Tensor& row,
                                                                 at::Tensor& rows) override {
        if constexpr (backend::CanShardOnDevice<B>) {
            return later(backend_->all_gather_async(row, rows));
        } else {
            return nullptr;
        }
    }
    [[nodiscard]] at::Tensor make_bucket(std::int64_t elements,
                                         const at::TensorOptions& type) override {
        if constexpr (backend::CanAllocateBuckets<B>) {
            return backend_->allocate_bucket(elements, type);
        } else {
            return at::zeros({elements}, type);
        }
    }

    [[nodiscard]] int local_rank() const override {
        if constexpr (backend::KnowsLocalRank<B>) {
            return backend_->local_rank();
        } else {
            return rank();
        }
    }
    [[nodiscard]] int local_size() const override {
        if constexpr (backend::KnowsLocalSize<B>) {
            return backend_->local_size();
        } else {
            return size();
        }
    }
    [[nodiscard]] int node_rank() const override {
        if constexpr (backend::KnowsNodeRank<B>) {
            return backend_->node_rank();
        } else {
            return 0;
        }
    }
    [[nodiscard]] std::optional<at::Device> device() const override {
        if constexpr (backend::HasDevice<B>) {
            return backend_->device();
        } else {
            return std::nullopt;
        }
    }

    [[nodiscard]] std::shared_ptr<AnyBackend>
    over(const std::shared_ptr<comm::Communicator>& group) const override {
        if constexpr (backend::HasGroups<B>) {
            return std::make_shared<TheBackend>(std::make_shared<B>(backend_->over(group)));
        } else {
            throw ConfigError(
                "RT-C28",
                "a model cannot be prepared for a group of ranks: this backend has no groups; use "
                "backend::Mpi, or give the backend `B over(std::shared_ptr<comm::Communicator>)`");
        }
    }

    [[nodiscard]] std::unique_ptr<comm::DeviceGraph> make_graph() override {
        if constexpr (backend::HasGraphs<B>) {
            return backend_->make_graph();
        } else {
            return nullptr;
        }
    }

    [[nodiscard]] comm::Communicator* communicator() const override {
        if constexpr (backend::HasCommunicator<B>) {
            return &std::as_const(*backend_).communicator();
        } else {
            return nullptr;
        }
    }

    [[nodiscard]] bool can_be_launched() const override { return backend::CanBeLaunched<B>; }
    [[nodiscard]] std::optional<int> launched_ranks() const override {
        if constexpr (backend::CanBeLaunched<B>) {
            return B::launched_ranks();
        } else {
            return std::nullopt;
        }
    }

    [[nodiscard]] int local_devices() const override {
        if constexpr (backend::CountsDevices<B>) {
            return B::local_devices();
        } else {
            return 0;
        }
    }

    void stay_joined() override {
        if constexpr (backend::StaysJoined<B>) {
            backend_->stay_joined();
        }
    }
    void start(const ScalingConfig& scaling) override {
        if constexpr (backend::CanStart<B>) {
            backend_->start(scaling);
        }
    }
    [[nodiscard]] std::optional<std::vector<Outcome>> finish(const Outcome& mine) override {
        if constexpr (backend::CanFinish<B>) {
            return backend_->finish(mine);
        } else {
            return std::nullopt;
        }
    }
    [[nodiscard]] bool can_rejoin() const override { return backend::CanRejoin<B>; }
    std::vector<int> rejoin() override {
        if constexpr (requires {
                          { backend_->rejoin() } -> std::same_as<std::vector<int>>;
                      }) {
            return backend_->rejoin();
        } else if constexpr (backend::CanRejoin<B>) {
            backend_->rejoin();
        }
        return {};
    }
    [[nodiscard]] bool can_survive_deaths() const override {
        return backend::can_survive_deaths<B>();
    }
    [[nodiscard]] bool survives_deaths() const override {
        if constexpr (backend::CanSurviveDeaths<B>) {
            return backend_->survives_deaths();
        } else {
            return false;
        }
    }

private:
    /// A communicator's own sums are exact.
    [[nodiscard]] bool sums_wrap_around(const at::Tensor& tensor, ReduceOp op) const {
        return size() > 1 && tensor.defined() && comm::can_overflow(tensor.scalar_type(), op) &&
               !(backend::HasCommunicator<B> && tensor.is_cpu());
    }

    template <class Handle>
    [[nodiscard]] static std::unique_ptr<AnyCollective> later(Handle handle,
                                                              bool check_finite = false) {
        return std::make_unique<AsyncCollective<Handle>>(std::move(handle), check_finite);
    }

    std::shared_ptr<B> backend_;
};

/// Erases the type of a backend.
template <Backend B>
[[nodiscard]] std::shared_ptr<AnyBackend> any_backend(std::shared_ptr<B> backend) {
    return std::make_shared<TheBackend<B>>(std::move(backend));
}

} // namespace rtrain::detail
