// SPDX-License-Identifier: Apache-2.0
// expect WRONG_PARAMETER: TrainFunction not met
// expect NO_PARAMETER: TrainFunction not met
// expect NO_FUNCTION: TrainFunction not met
// expect TEMPORARY_IN_STATE: [RT-A1]
// expect UNKNOWN_IN_STATE: [RT-A2]
// expect BACKEND: Backend not met: missing member `int size() const` [RT-B3]
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

struct NoSize {
    int rank() const { return 0; }
    void all_reduce(at::Tensor&, rtrain::ReduceOp) {}
    void broadcast(at::Tensor&, int) {}
#ifndef BACKEND
    int size() const {
        return 1;
    }
#endif
};

int main() {
    rtrain::Trainer<NoSize> trainer{{.config = {{"lr", 0.1}}, .run = {.name = "r"}}};
    const auto good = [](auto& worker, const rtrain::Config& config) {
        int epoch = 0;
        auto state = rtrain::State{}.add("epoch", epoch);
#ifdef TEMPORARY_IN_STATE
        state.add("other", 3);
#endif
#ifdef UNKNOWN_IN_STATE
        struct Unknown {
        } unknown;
        state.add("other", unknown);
#endif
        worker.report({{"lr", config.at("lr")}}, state);
    };
#if defined(WRONG_PARAMETER)
    rtrain::Result result = trainer.fit([](int) {});
#elif defined(NO_PARAMETER)
    rtrain::Result result = trainer.fit([] {});
#elif defined(NO_FUNCTION)
    rtrain::Result result = trainer.fit(42);
#else
    rtrain::Result result = trainer.fit(good);
#endif
    return result.metrics.contains("lr") ? 0 : 1;
}
