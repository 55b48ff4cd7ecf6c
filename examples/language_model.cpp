// SPDX-License-Identifier: Apache-2.0
// A GPT of characters, learned from the King James Bible, with one copy of the weights on each rank
// or on each node:
//
//   bible -f gen1:1-rev22:21 > kjv.txt          Debian's bible-kjv and bible-kjv-text
//   ./language_model kjv.txt sharded            or data_parallel
//   ./language_model kjv.txt sharded 1000 512 8         steps, width, layers
//
// Both engines train alike. What differs is the memory, which it prints before it begins.
#include <rtrain/data/text.hpp>
#include <rtrain/preprocess.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

namespace {

namespace nn = torch::nn;

constexpr std::int64_t context = 128; ///< characters that are looked back at

struct BlockImpl : nn::Module {
    BlockImpl(std::int64_t width, std::int64_t head_count)
        : heads(head_count), norm_in(register_module("norm_in", nn::LayerNorm(shape(width)))),
          norm_out(register_module("norm_out", nn::LayerNorm(shape(width)))),
          qkv(register_module("qkv", nn::Linear(width, 3 * width))),
          mix(register_module("mix", nn::Linear(width, width))),
          up(register_module("up", nn::Linear(width, 4 * width))),
          down(register_module("down", nn::Linear(4 * width, width))) {}

    /// `x` is (batch, length, width).
    torch::Tensor forward(const torch::Tensor& x) {
        const auto mixed = x + attend(norm_in(x));
        return mixed + down(torch::gelu(up(norm_out(mixed))));
    }

    std::int64_t heads;
    nn::LayerNorm norm_in, norm_out;
    nn::Linear qkv, mix, up, down;

private:
    static nn::LayerNormOptions shape(std::int64_t width) { return nn::LayerNormOptions({width}); }

    torch::Tensor attend(const torch::Tensor& x) {
        const auto split = [&](const torch::Tensor& part) {
            return part.unflatten(2, {heads, -1}).transpose(1, 2);
        };
        const auto parts = qkv(x).chunk(3, 2);
        const auto seen = torch::scaled_dot_product_attention(
            split(parts[0]), split(parts[1]), split(parts[2]), {}, 0.0, /*is_causal=*/true);
        return mix(seen.transpose(1, 2).flatten(2));
    }
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
    GptImpl(std::int64_t alphabet, std::int64_t width, std::int64_t layers)
        : characters(register_module("characters", nn::Embedding(alphabet, width))),
          places(register_module("places", nn::Embedding(context, width))),
          norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))) {
        constexpr std::int64_t head = 32;
        for (std::int64_t i = 0; i < layers; ++i) {
            blocks->push_back(Block(width, width / head));
        }
        register_module("blocks", blocks);
        const torch::NoGradGuard no_grad;
        characters->weight.mul_(0.05); // they are also what the last layer multiplies with
        places->weight.mul_(0.05);
    }

    /// `ids` is (batch, length), the result (batch, length, characters).
    torch::Tensor forward(const torch::Tensor& ids) {
        const auto x = characters(ids) + places(torch::arange(ids.size(1)));
        return norm(blocks->forward(x)).matmul(characters->weight.t());
    }

    nn::Embedding characters, places;
    nn::Sequential blocks;
    nn::LayerNorm norm;
};
TORCH_MODULE(Gpt);

using Trainer =
    rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, rtrain::checkpoint::Sharded>;
using Worker =
    rtrain::Worker<rtrain::backend::Mpi, rtrain::data::Sharded, rtrain::checkpoint::Sharded>;

struct TrainGpt {
    void operator()(Worker& worker, const rtrain::Config& config) const {
        if (config.at("engine").as_string() == "sharded") {
            train(worker, config, rtrain::ShardedOptions{});
        } else {
            train(worker, config, rtrain::DataParallelOptions{});
        }
    }

private:
    template <class Options>
    static void train(Worker& worker, const rtrain::Config& config, const Options& options) {
        rtrain::preprocess::CharacterTokenizer tokenizer({"text"});
        worker.fit(tokenizer, "train");
        torch::manual_seed(0);
        Gpt gpt(tokenizer.size(), config.at("width").to_number<int>(),
                config.at("layers").to_number<int>());
        if (worker.rank() == 0) {
            const auto needed = rtrain::memory_needed(*gpt, options, 1, worker.size());
            std::cout << "memory: " << needed.rank() / 1'000'000 << " MB a rank, "
                      << needed.node() / 1'000'000 << " MB a node, beside activations" << std::endl;
        }
        auto model = worker.prepare(gpt, options);
        auto optimizer = worker.prepare(torch::optim::AdamW(
            model->parameters(), torch::optim::AdamWOptions(config.at("lr").to_number<double>())));
        int step = 0;
        auto state = rtrain::State{}
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("tokenizer", tokenizer)
                         .add("step", step);
        auto batches =
            worker.dataset_shard("train").batches({.size = 64, .shuffle = true, .drop_last = true});
        const int steps = config.at("steps").to_number<int>();
        double loss = 0;
        for (const int epoch : worker.epochs(1000, state)) {
            for (const auto& verses : batches) {
                const auto ids = tokenizer.transform(verses).ragged("text").values;
                optimizer.zero_grad();
                auto step_loss = loss_of(model, windows_of(ids, context + 1));
                step_loss.backward();
                model.clip_grad_norm_(1);
                optimizer.step();
                loss = step == 0 ? step_loss.template item<double>()
                                 : 0.9 * loss + 0.1 * step_loss.template item<double>();
                if (++step == steps) {
                    break;
                }
            }
            if (step == steps) {
                worker.stop();
            }
            loss = worker.all_reduce(loss, rtrain::ReduceOp::mean);
            worker.report({{"epoch", epoch}, {"step", step}, {"loss", loss}}, state);
        }
    }

    /// `windows` is (batch, context + 1).
    static torch::Tensor loss_of(auto& model, const torch::Tensor& windows) {
        const auto logits = model(windows.slice(1, 0, context));
        return nn::functional::cross_entropy(logits.flatten(0, 1), windows.slice(1, 1).flatten());
    }

    /// The characters of all verses, one after the other, in rows of `length`.
    static torch::Tensor windows_of(const torch::Tensor& ids, std::int64_t length) {
        const std::int64_t windows = ids.size(0) / length;
        return ids.slice(0, 0, windows * length).view({windows, length});
    }
};

} // namespace

int main(int argc, char** argv) {
    const auto number = [&](int place, int otherwise) {
        return argc > place ? std::atoi(argv[place]) : otherwise;
    };
    const std::string engine = argc > 2 ? argv[2] : "sharded";
    if (engine != "sharded" && engine != "data_parallel") {
        std::cerr << "language_model: the engine is sharded or data_parallel" << std::endl;
        return EXIT_FAILURE;
    }
    try {
        Trainer trainer{{
            .config = {{"engine", engine},
                       {"lr", 1e-3},
                       {"steps", number(3, 300)},
                       {"width", number(4, 256)},
                       {"layers", number(5, 4)}},
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
            .run = {.name = "language-model-" + engine, .storage_path = "results"},
            .datasets = {{"train",
                          rtrain::data::read_text(argc > 1 ? argv[1] : "kjv.txt").shuffle(1)}},
        }};
        const auto result = trainer.fit(TrainGpt{});
        std::cout << "loss " << result.metric("loss") << std::endl;
    } catch (const rtrain::Error& error) {
        std::cerr << "language_model: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
