// SPDX-License-Identifier: Apache-2.0
// A backend of one's own: three processes made by fork(), which share memory.
// Expected: "3 ranks agree on weight 3.0".
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// [backend]
struct ForkedRanks {
    struct Shared {
        pthread_barrier_t barrier;
        char slots[3][1 << 20]; // a tensor of each rank
    };
    Shared* shared = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int rank_ = 0;
    ForkedRanks() {
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attributes, 3);
        for (int child = 1; child < size() && rank_ == 0; ++child)
            rank_ = fork() == 0 ? child : 0;
    }
    int rank() const { return rank_; }
    int size() const { return 3; }
    at::Tensor gather(const at::Tensor& tensor) { // every rank's elements, as rows of a copy
        std::memcpy(shared->slots[rank_], tensor.contiguous().data_ptr(), tensor.nbytes());
        pthread_barrier_wait(&shared->barrier);
        const std::int64_t row = (1 << 20) / tensor.element_size();
        auto rows =
            at::from_blob(shared->slots, {3, tensor.numel()}, {row, 1}, tensor.options()).clone();
        pthread_barrier_wait(&shared->barrier);
        return rows;
    }
    void all_reduce(at::Tensor& tensor, rtrain::ReduceOp op) {
        const auto rows = gather(tensor);
        const auto sum = rows.sum(0, false, rows.scalar_type());
        const auto result = op == rtrain::ReduceOp::max    ? rows.amax(0)
                            : op == rtrain::ReduceOp::min  ? rows.amin(0)
                            : op == rtrain::ReduceOp::mean ? sum / size()
                                                           : sum;
        tensor.copy_(result.view(tensor.sizes()));
    }
    void broadcast(at::Tensor& t, int root) { t.copy_(gather(t)[root].view(t.sizes())); }
};
// [backend]

int main() {
    const auto x = torch::linspace(-1, 1, 999).unsqueeze(1);
    rtrain::Trainer<ForkedRanks> trainer{
        {.run = {.name = "custom-backend", .storage_path = "results"},
         .datasets = {{"train", rtrain::data::from_tensors({{"x", x}, {"y", 3 * x}})}}},
        ForkedRanks{}};
    double weight = 0;
    bool equal = false;
    int rank = 0;
    trainer.fit([&](auto& worker) {
        auto model = worker.prepare(torch::nn::Linear(1, 1));
        torch::optim::SGD optimizer(model->parameters(), 0.3);
        auto batches = worker.dataset_shard("train").batches({.size = 37});
        for (int epoch = 0; epoch < 20; ++epoch) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                torch::mse_loss(model(batch["x"]), batch["y"]).backward();
                optimizer.step();
            }
        }
        weight = model->weight.template item<double>();
        equal = worker.all_reduce(weight, rtrain::ReduceOp::min) ==
                worker.all_reduce(weight, rtrain::ReduceOp::max);
        rank = worker.rank();
        worker.report({{"weight", weight}});
    });
    if (rank == 0) {
        while (wait(nullptr) > 0) {
        }
        std::printf("3 ranks %s on weight %.1f\n", equal ? "agree" : "disagree", weight);
    }
    return equal && std::abs(weight - 3) < 0.01 ? 0 : 1;
}
