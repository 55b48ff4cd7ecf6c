// SPDX-License-Identifier: Apache-2.0
/// @file
/// What several tests need: real data, a model, comparison to the bit.
#pragma once

#include "files.hpp"
#include "thrown.hpp"

#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace test {

inline const std::filesystem::path fashion_mnist_files = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST's first training rows: columns "image" and "label".
inline rtrain::data::Dataset fashion_mnist(std::int64_t rows) {
    static const auto all =
        rtrain::data::fashion_mnist(fashion_mnist_files, rtrain::data::Split::train);
    auto batch = all.rows(torch::arange(rows));
    return rtrain::data::from_tensors({{"image", batch["image"]}, {"label", batch["label"]}});
}

/// How many ranks each node has: RTRAIN_NODES, which nodes/nodes.py sets, or all on one.
inline std::vector<int> ranks_of_nodes() {
    const char* const nodes = std::getenv("RTRAIN_NODES");
    if (nodes == nullptr) {
        return {rtrain::launch::ranks().value_or(1)};
    }
    std::vector<int> ranks;
    std::istringstream text(nodes);
    for (std::string word; std::getline(text, word, ',');) {
        ranks.push_back(std::stoi(word));
    }
    return ranks;
}

/// Where this rank must find itself: mpirun fills one node after the other.
struct Place {
    int local_rank, local_size, node_rank;
};
inline Place expected_place() {
    Place place{rtrain::launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0), 0, 0};
    for (const int ranks : ranks_of_nodes()) {
        place.local_size = ranks;
        if (place.local_rank < ranks) {
            break;
        }
        place.local_rank -= ranks;
        ++place.node_rank;
    }
    return place;
}

/// A small classifier with every kind of state: batch norm has buffers, dropout draws random
/// numbers.
struct NetImpl : torch::nn::Module {
    explicit NetImpl(double dropout = 0, bool norm = false) {
        in = register_module("in", torch::nn::Linear(784, 32));
        out = register_module("out", torch::nn::Linear(32, 10));
        drop = register_module("drop", torch::nn::Dropout(dropout));
        if (norm) {
            batch_norm = register_module("norm", torch::nn::BatchNorm1d(32));
        }
    }
    torch::Tensor forward(const torch::Tensor& image) {
        auto x = in(image.flatten(1));
        if (batch_norm) {
            x = batch_norm(x);
        }
        return out(drop(torch::relu(x)));
    }
    torch::nn::Linear in{nullptr};
    torch::nn::Linear out{nullptr};
    torch::nn::Dropout drop{nullptr};
    torch::nn::BatchNorm1d batch_norm{nullptr};
};
TORCH_MODULE(Net);

/// All parameters and buffers in one vector.
inline torch::Tensor flat(const torch::nn::Module& module) {
    std::vector<torch::Tensor> parts;
    for (const auto& parameter : module.parameters()) {
        parts.push_back(parameter.detach().flatten().to(torch::kDouble));
    }
    for (const auto& buffer : module.buffers()) {
        parts.push_back(buffer.detach().flatten().to(torch::kDouble));
    }
    return torch::cat(parts);
}

/// Ranks share a directory, and others may still read when one is done with it.
inline const bool ranks_wait_for_each_other = [] {
    wait_for_ranks = [] { MPI_Barrier(MPI_COMM_WORLD); };
    return true;
}();

} // namespace test
