// SPDX-License-Identifier: Apache-2.0
// PyTorch's own Reducer, the engine of DistributedDataParallel, as the oracle: at two ranks our
// averaged gradients must have the same bits.
#include "support/training.hpp"

#include <rtrain/backend/mpi.hpp>
#include <rtrain/model/data_parallel.hpp>

#include <doctest/doctest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

using namespace rtrain;

namespace {

/// A collective that is over when it is returned.
class Done : public c10d::Work {
public:
    explicit Done(std::vector<at::Tensor> tensors)
        : future_(c10::make_intrusive<c10::ivalue::Future>(
              c10::ListType::create(c10::TensorType::get()))) {
        finish();
        future_->markCompleted(c10::IValue(c10::List<at::Tensor>(tensors)));
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

private:
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// c10d over MPI's own blocking collectives.
class PlainMpi : public c10d::Backend {
public:
    PlainMpi(int rank, int size) : Backend(rank, size) {}
    const std::string getBackendName() const override { return "plain_mpi"; }
    c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                             const c10d::AllreduceOptions& /*options*/) override {
        at::Tensor& tensor = tensors.at(0);
        MPI_Allreduce(MPI_IN_PLACE, tensor.data_ptr(), static_cast<int>(tensor.numel()),
                      tensor.scalar_type() == at::kFloat ? MPI_FLOAT : MPI_INT, MPI_SUM,
                      MPI_COMM_WORLD);
        return c10::make_intrusive<Done>(tensors);
    }
    c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                             const c10d::BroadcastOptions& options) override {
        at::Tensor& tensor = tensors.at(0);
        MPI_Bcast(tensor.data_ptr(), static_cast<int>(tensor.nbytes()), MPI_BYTE,
                  static_cast<int>(options.rootRank), MPI_COMM_WORLD);
        return c10::make_intrusive<Done>(tensors);
    }
};

/// The gradients of `steps` passes over real data.
template <class Before>
std::vector<torch::Tensor> gradients(test::Net& net, int rank, int size, int steps,
                                     Before&& before) {
    const auto dataset = test::fashion_mnist(64 * steps);
    std::vector<torch::Tensor> all;
    for (int step = 0; step < steps; ++step) {
        auto batch = dataset.rows(torch::arange(64 * step + rank, 64 * (step + 1), size));
        before();
        net->zero_grad();
        torch::cross_entropy_loss(net(batch["image"]), batch["label"]).backward();
        const torch::NoGradGuard no_grad;
        for (auto& parameter : net->parameters()) {
            all.push_back(parameter.grad().clone());
            parameter.sub_(parameter.grad(), 0.1);
        }
    }
    return all;
}

} // namespace

TEST_CASE("Gradients.equal_those_of_torch_to_the_bit") {
    auto mpi = std::make_shared<backend::Mpi>();
    mpi->start({});
    const int rank = mpi->rank();
    const int size = mpi->size();
    constexpr int steps = 10;
    torch::manual_seed(1);
    test::Net ours;
    torch::manual_seed(1);
    test::Net theirs;

    auto model =
        DataParallel<test::NetImpl, backend::Mpi>(mpi, ours.ptr(), {.bucket_bytes = 1 << 16});
    const auto mine = gradients(ours, rank, size, steps, [] {});

    auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<PlainMpi>(rank, size));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    const auto parameters = theirs->parameters();
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        parameters, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap});
    std::reverse(buckets.begin(), buckets.end());
    c10d::Reducer reducer(
        parameters, buckets, group, std::vector<bool>(parameters.size(), false),
        c10d::kDefaultBucketBytesCap, false, false, std::unordered_map<std::size_t, std::string>{},
        c10d::kDefaultFirstBucketBytes, false, false, std::vector<std::int64_t>{});
    const auto oracle = gradients(theirs, rank, size, steps, [&] {
        reducer.prepare_for_forward();
        if (reducer.should_rebuild_buckets()) {
            reducer.rebuild_buckets();
        }
        reducer.prepare_for_backward({});
    });

    REQUIRE(mine.size() == oracle.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
        CAPTURE(i);
        if (size <= 2) {
            CHECK(mine[i].equal(oracle[i]));
        } else { // Open MPI adds in another order
            CHECK(torch::allclose(mine[i], oracle[i], 1e-4, 1e-6));
        }
    }
    (void)mpi->finish({});
}
