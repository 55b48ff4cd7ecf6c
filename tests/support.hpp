// SPDX-License-Identifier: Apache-2.0
/// @file
/// What several tests need: real data, a model, directories that vanish, comparison to the bit.
#pragma once

#include "thrown.hpp"

#include <rtrain/comm/mpi.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace test {

inline const std::filesystem::path fashion_mnist_files = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST's first training rows: columns "image" and "label".
inline rtrain::data::Dataset fashion_mnist(std::int64_t rows) {
    static const auto all =
        rtrain::data::fashion_mnist(fashion_mnist_files, rtrain::data::Split::train);
    auto batch = all.rows(torch::arange(rows));
    return rtrain::data::from_tensors({{"image", batch["image"]}, {"label", batch["label"]}});
}

/// A directory under the temporary one, removed at the end. Under mpirun, ranks share it: its name
/// comes from the job.
class Directory {
public:
    explicit Directory(const std::string& name) {
        const char* const job = std::getenv("OMPI_MCA_orte_hnp_uri");
        shared_ = rtrain::launch::ranks().has_value();
        const auto id =
            job != nullptr ? std::hash<std::string>{}(job) : static_cast<std::size_t>(::getpid());
        path_ = std::filesystem::temp_directory_path() /
                ("rtrain-test-" + std::to_string(id) + "-" + name);
        if (!shared_) {
            std::filesystem::remove_all(path_);
        }
        std::filesystem::create_directories(path_);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        std::error_code ignored;
        if (shared_ && std::uncaught_exceptions() == 0) { // else others may be elsewhere
            MPI_Barrier(MPI_COMM_WORLD);                  // others may still read
        }
        if (!shared_ || rtrain::launch::env_int("OMPI_COMM_WORLD_RANK") == 0) {
            std::filesystem::remove_all(path_, ignored);
        }
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
    bool shared_ = false;
};

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

inline std::string read(const std::filesystem::path& file) {
    return rtrain::storage::read_file(file);
}
inline void write(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
}

} // namespace test
