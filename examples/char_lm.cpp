// SPDX-License-Identifier: Apache-2.0
// A language model of characters, learned from the King James Bible, a verse a line:
//
//   bible -f gen1:1-rev22:21 > kjv.txt          Debian's bible-kjv and bible-kjv-text
//   ./char_lm kjv.txt
//
// Expected at the end: below 2.2 nats a character; 2.9 is what their frequencies alone give.
#include <rtrain/data/text.hpp>
#include <rtrain/preprocess.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <tuple>

namespace {

struct CharLmImpl : torch::nn::Module {
    explicit CharLmImpl(std::int64_t characters)
        : embedding(register_module("embedding", torch::nn::Embedding(characters, 32))),
          rnn(register_module("rnn", torch::nn::GRU(torch::nn::GRUOptions(32, 128)))),
          out(register_module("out", torch::nn::Linear(128, characters))) {}

    /// `ids` is (length, batch), the result (length, batch, characters).
    torch::Tensor forward(const torch::Tensor& ids) {
        return out(std::get<0>(rnn(embedding(ids))));
    }
    torch::nn::Embedding embedding;
    torch::nn::GRU rnn;
    torch::nn::Linear out;
};
TORCH_MODULE(CharLm);

struct TrainCharLm {
    void operator()(rtrain::Worker<>& worker, const rtrain::Config& config) const {
        rtrain::preprocess::CharacterTokenizer tokenizer({"text"});
        worker.fit(tokenizer, "train"); // each rank reads some of the verses
        torch::manual_seed(0);
        auto model = worker.prepare(CharLm(tokenizer.size()));
        torch::optim::Adam optimizer(model->parameters(), config.at("lr").to_number<double>());
        auto state = rtrain::State{}
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("tokenizer", tokenizer);
        auto batches =
            worker.dataset_shard("train").batches({.size = 64, .shuffle = true, .drop_last = true});

        for (const int epoch : worker.epochs(config.at("epochs").to_number<int>(), state)) {
            double loss = 0;
            for (const auto& verses : batches) {
                const auto ids = tokenizer.transform(verses).ragged("text").values;
                const auto windows = windows_of(ids, 65);
                optimizer.zero_grad();
                const auto logits = model(windows.slice(0, 0, 64));
                auto step_loss = torch::nn::functional::cross_entropy(
                    logits.flatten(0, 1), windows.slice(0, 1).flatten());
                step_loss.backward();
                optimizer.step();
                loss = 0.9 * loss + 0.1 * step_loss.item<double>(); // of the last steps
            }
            loss = worker.all_reduce(loss, rtrain::ReduceOp::mean);
            worker.report({{"epoch", epoch}, {"loss", loss}}, state);
        }
    }

    /// The characters of all verses, one after the other, in columns of `length`.
    static torch::Tensor windows_of(const torch::Tensor& ids, std::int64_t length) {
        const std::int64_t windows = ids.size(0) / length;
        return ids.slice(0, 0, windows * length).view({windows, length}).t().contiguous();
    }
};

} // namespace

int main(int argc, char** argv) {
    const char* const file = argc > 1 ? argv[1] : "kjv.txt";
    const int epochs = argc > 2 ? std::atoi(argv[2]) : 3;
    const std::int64_t verses = argc > 3 ? std::atoi(argv[3]) : std::numeric_limits<int>::max();
    try {
        rtrain::Trainer<> trainer{{
            .config = {{"lr", 5e-3}, {"epochs", epochs}},
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
            .run = {.name = "char-lm", .storage_path = "results"},
            .datasets = {{"train", rtrain::data::read_text(file).shuffle(1).limit(verses)}},
        }};
        std::cout << "loss " << trainer.fit(TrainCharLm{}).metric("loss") << std::endl;
    } catch (const rtrain::Error& error) {
        std::cerr << "char_lm: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
