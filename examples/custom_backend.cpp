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
    static constexpr std::size_t most_bytes = std::size_t{1} << 20; // of one tensor
    struct Shared {
        pthread_barrier_t barrier;
        char slots[3][most_bytes];
    };
    Shared* shared;
    int rank_ = 0;

    ForkedRanks()
        : shared(static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attributes, 3);
        for (int child = 1; child < size() && rank_ == 0; ++child) {
            rank_ = fork() == 0 ? child : 0;
        }
    }
    int rank() const { return rank_; }
    int size() const { return 3; }

    std::vector<at::Tensor> gather(const at::Tensor& tensor) { // every rank's, as copies
        std::memcpy(shared->slots[rank_], tensor.contiguous().data_ptr(), tensor.nbytes());
        pthread_barrier_wait(&shared->barrier);
        std::vector<at::Tensor> all;
        for (auto* slot : shared->slots) {
            all.push_back(at::from_blob(slot, tensor.sizes(), tensor.options()).clone());
        }
        pthread_barrier_wait(&shared->barrier);
        return all;
    }
    void all_reduce(at::Tensor& tensor, rtrain::ReduceOp op) {
        const at::Tensor all = at::stack(gather(tensor));
        tensor.copy_(op == rtrain::ReduceOp::max   ? all.amax(0)
                     : op == rtrain::ReduceOp::min ? all.amin(0)
                                                   : all.sum(0, false, all.scalar_type()));
        if (op == rtrain::ReduceOp::mean)
            tensor.div_(size());
    }
    void broadcast(at::Tensor& tensor, int root) {
        tensor.copy_(gather(tensor).at(static_cast<std::size_t>(root)));
    }
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
