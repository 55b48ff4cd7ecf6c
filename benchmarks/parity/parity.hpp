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
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace parity {

constexpr double learning_rate = 1e-3;
constexpr std::int64_t global_batch = 64;

/// The command line: `--name value` pairs.
struct Options {
    int epochs = 1;
    std::int64_t hidden = 512;       ///< units of each of the two hidden layers
    std::string optimizer = "sgd";   ///< or adam
    std::int64_t steps = 0;          ///< of an epoch; 0: all
    std::int64_t fused = 0;          ///< rtrain_parity: 1 prepares the optimizer, too
    std::int64_t verbose = 0;        ///< rtrain_parity: ConsoleConfig::verbose
    std::int64_t rank = 0, size = 1; ///< bare_parity: computes what this rank would
    std::string data = "/usr/share/datasets/fashion-mnist";
    std::string storage = "results"; ///< rtrain_parity: a fresh directory

    Options(int argc, char** argv) {
        for (int i = 1; i + 1 < argc; i += 2) {
            set(argv[i], argv[i + 1]);
        }
        if (argc % 2 == 0 || (optimizer != "sgd" && optimizer != "adam")) {
            throw std::invalid_argument("options are pairs of --name and value");
        }
    }

private:
    void set(const std::string& name, const char* value) {
        const std::map<std::string, std::int64_t*> numbers = {{"--hidden", &hidden},
                                                              {"--steps", &steps},
                                                              {"--fused", &fused},
                                                              {"--verbose", &verbose},
                                                              {"--rank", &rank},
                                                              {"--size", &size}};
        const std::map<std::string, std::string*> texts = {
            {"--optimizer", &optimizer}, {"--data", &data}, {"--storage", &storage}};
        if (name == "--epochs") {
            epochs = std::stoi(value);
        } else if (const auto number = numbers.find(name); number != numbers.end()) {
            *number->second = std::stoll(value);
        } else if (const auto text = texts.find(name); text != texts.end()) {
            *text->second = value;
        } else {
            throw std::invalid_argument("unknown option " + name);
        }
    }
};

/// The model of Ray Train's Fashion-MNIST example, with the ReLU that it has behind the last layer.
struct MlpImpl : torch::nn::Module {
    explicit MlpImpl(std::int64_t units) {
        in = register_module("in", torch::nn::Linear(784, units));
        hidden = register_module("hidden", torch::nn::Linear(units, units));
        out = register_module("out", torch::nn::Linear(units, 10));
    }
    torch::nn::Linear in{nullptr};
    torch::nn::Linear hidden{nullptr};
    torch::nn::Linear out{nullptr};

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

/// Calls `train` with the optimizer that was asked for.
template <class Train>
void with_optimizer(const std::string& name, std::vector<torch::Tensor> parameters, Train&& train) {
    if (name == "adam") {
        train(torch::optim::Adam(std::move(parameters), learning_rate));
    } else {
        train(torch::optim::SGD(std::move(parameters), learning_rate));
    }
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
