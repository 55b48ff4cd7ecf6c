// SPDX-License-Identifier: Apache-2.0
/// @file
/// What rtrain_parity and bare_parity share, so that they differ in rtrain alone: the model, the
/// data and the lines they print. Includes nothing of rtrain. ddp_parity.py is its Python twin.
#pragma once

#include <torch/torch.h>

#include <zlib.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace parity {

constexpr const char* default_data = "/usr/share/datasets/fashion-mnist";
constexpr double learning_rate = 1e-3;
constexpr std::int64_t global_batch = 64;

/// The model of Ray Train's Fashion-MNIST example, with the ReLU that it has behind the last layer.
struct MlpImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 512));
    torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(512, 512));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(512, 10));

    torch::Tensor forward(const torch::Tensor& image) {
        const auto x = torch::relu(in(image.flatten(1)));
        return torch::relu(out(torch::relu(hidden(x))));
    }
};
TORCH_MODULE(Mlp);

/// The bytes of an IDX file, plain or gzip, whose header gives `shape`.
inline torch::Tensor read_idx(std::filesystem::path path, const std::vector<std::int64_t>& shape) {
    if (!std::filesystem::exists(path)) {
        path += ".gz";
    }
    const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
    auto bytes = torch::empty(shape, torch::kByte);
    const auto size = static_cast<unsigned>(bytes.numel());
    const auto header = static_cast<long>(4 + 4 * shape.size());
    if (!file || gzseek(file.get(), header, SEEK_SET) != header ||
        gzread(file.get(), bytes.data_ptr(), size) != static_cast<int>(size)) {
        throw std::runtime_error("cannot read " + path.string());
    }
    return bytes;
}

struct Data {
    static constexpr std::int64_t rows = 60000;
    torch::Tensor image; ///< float32, normalised, shape (rows, 28, 28)
    torch::Tensor label; ///< int64
};

inline Data load(const std::filesystem::path& directory) {
    const auto pixels = read_idx(directory / "train-images-idx3-ubyte", {Data::rows, 28, 28});
    const auto labels = read_idx(directory / "train-labels-idx1-ubyte", {Data::rows});
    return {pixels.to(torch::kFloat).div_(255.0).sub_(0.5).div_(0.5), labels.to(torch::kLong)};
}

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds since 1970, to compare with the clock of the process that launched this one.
inline double unix_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

/// This process's share of the memory it uses: pages that n processes map count 1/n.
inline double pss_mb() {
    std::ifstream file("/proc/self/smaps_rollup");
    std::string word;
    while (file >> word && word != "Pss:") {
    }
    double kib = 0.0;
    file >> kib;
    return kib * 1024 / 1e6;
}

inline void print_epoch(int epoch, double seconds, double loss) {
    std::printf("{\"epoch\": %d, \"seconds\": %.6f, \"loss\": %.9f}\n", epoch, seconds, loss);
    std::fflush(stdout);
}

inline void print_end(double first_step, double pss) {
    std::printf("{\"first_step\": %.6f, \"pss_mb\": %.3f}\n", first_step, pss);
    std::fflush(stdout);
}

} // namespace parity
