// SPDX-License-Identifier: Apache-2.0
/// @file
/// The settings of `worker.enable_reproducibility(seed)` in this process: Ray Train's
/// `train.torch.enable_reproducibility`.
#pragma once

#include <ATen/Context.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdlib>

namespace rtrain::detail {

inline void make_reproducible(std::uint64_t seed) {
    // cuBLAS reads the variable when it starts; without it, torch refuses matrix products on a GPU.
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    torch::manual_seed(seed);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
    // Otherwise a script's backward has other bits from its second call on, so a resumed run would
    // differ.
    torch::jit::setGraphExecutorOptimize(false);
}

} // namespace rtrain::detail
