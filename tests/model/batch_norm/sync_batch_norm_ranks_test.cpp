// SPDX-License-Identifier: Apache-2.0
// Synchronised batch normalisation against torch::nn::BatchNorm over the batches of all ranks.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/model/batch_norm/connect_batch_norms.hpp>
#include <rtrain/model/batch_norm/convert_sync_batch_norm.hpp>

#include <doctest/doctest.h>

#include <functional>

using namespace rtrain;
using test::code_of;
using test::Ranks;

namespace {

/// torch's own, for an input of any number of dimensions.
struct PlainNormImpl : torch::nn::BatchNormImplBase<0, PlainNormImpl> {
    using torch::nn::BatchNormImplBase<0, PlainNormImpl>::BatchNormImplBase;
    void _check_input_dim(const torch::Tensor& /*input*/) override {}
};

/// A batch of `rows` rows with a mean far from 0 that differs between ranks.
torch::Tensor batch_of(int rank, std::int64_t rows, std::vector<std::int64_t> shape,
                       torch::ScalarType type) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + rank));
    shape.insert(shape.begin(), rows);
    return (torch::randn(shape, generator, torch::kDouble) * (rank + 1) + 3 * rank + 5).to(type);
}

/// A loss that tells rows and channels apart.
torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& input) {
    return (output.pow(3) + output * input.detach().sin()).sum();
}

bool close(const torch::Tensor& a, const torch::Tensor& b, torch::ScalarType type) {
    const double relative = type == torch::kDouble ? 1e-10 : 2e-4;
    return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
           (a.numel() == 0 ||
            (a - b).abs().max().item<double>() <= relative * (1 + b.abs().max().item<double>()));
}

struct Case {
    std::string name;
    std::vector<std::int64_t> shape;            ///< of a row
    std::function<std::int64_t(int rank)> rows; ///< of a rank
    torch::ScalarType type = torch::kDouble;
    torch::nn::BatchNormOptions options{0};
    bool channels_last = false;
};

/// Three training steps and an evaluation, on all ranks and in one process.
void compare(Ranks& ranks, const Case& item) {
    CAPTURE(item.name);
    auto options = item.options;
    options.num_features() = item.shape[0];
    auto synced = std::make_shared<SyncBatchNormImpl>(options);
    auto plain = std::make_shared<PlainNormImpl>(options);
    for (auto* module :
         {static_cast<torch::nn::Module*>(&*synced), static_cast<torch::nn::Module*>(&*plain)}) {
        const torch::NoGradGuard no_grad;
        for (auto& parameter : module->parameters()) {
            parameter.copy_(torch::linspace(0.5, 2, parameter.numel()));
        }
        module->to(item.type);
    }
    const auto connection = rtrain::detail::connect_batch_norms(ranks.any(), *synced);
    const int steps = options.track_running_stats() ? 3 : 2;
    for (int step = 0; step < steps; ++step) {
        CAPTURE(step);
        if (step == 2) { // running values: no communication
            synced->eval();
            plain->eval();
        }
        std::vector<torch::Tensor> batches;
        for (int rank = 0; rank < ranks.size(); ++rank) {
            auto batch = batch_of(rank + 10 * step, item.rows(rank), item.shape, item.type);
            batches.push_back(item.channels_last ? batch.contiguous(at::MemoryFormat::ChannelsLast)
                                                 : batch);
        }
        auto all = torch::cat(batches).requires_grad_();
        auto mine = batches[static_cast<std::size_t>(ranks.rank())].clone().requires_grad_();

        plain->zero_grad();
        const auto expected = plain->forward(all);
        loss_of(expected, all).backward();
        synced->zero_grad();
        const auto output = synced->forward(mine);
        loss_of(output, mine).backward();

        std::int64_t begin = 0;
        for (int rank = 0; rank < ranks.rank(); ++rank) {
            begin += item.rows(rank);
        }
        const std::int64_t end = begin + mine.size(0);
        CHECK(close(output, expected.slice(0, begin, end), item.type));
        CHECK((output.suggest_memory_format() == expected.suggest_memory_format()));
        CHECK(close(mine.grad(), all.grad().slice(0, begin, end), item.type));
        for (std::size_t i = 0; i < synced->parameters().size(); ++i) {
            auto sum = synced->parameters()[i].grad().clone(); // of this rank; a part of the whole
            ranks.mpi->all_reduce(sum, ReduceOp::sum);
            CHECK(close(sum, plain->parameters()[i].grad(), item.type));
        }
        REQUIRE(synced->buffers().size() == plain->buffers().size());
        for (std::size_t i = 0; i < synced->buffers().size(); ++i) {
            if (plain->buffers()[i].defined()) {
                CHECK(close(synced->buffers()[i], plain->buffers()[i], item.type));
            }
        }
    }
}

} // namespace

TEST_CASE("SyncBatchNorm.is_batch_norm_over_all_ranks") {
    Ranks ranks;
    const auto equal = [](int /*rank*/) { return 4; };
    const auto unequal = [](int rank) { return 3 + 2 * rank; };
    const auto single = [](int /*rank*/) { return 1; };
    const auto some_empty = [&](int rank) { return rank == ranks.size() - 1 ? 5 : rank % 2; };
    using Options = torch::nn::BatchNormOptions;
    for (const auto type : {torch::kDouble, torch::kFloat}) {
        compare(ranks, {"rows of channels", {6}, equal, type});
        compare(ranks, {"sequences", {3, 5}, unequal, type});
        compare(ranks, {"images", {4, 5, 3}, unequal, type});
        compare(ranks, {"images, channels last", {4, 5, 3}, equal, type, Options(0), true});
        compare(ranks, {"volumes", {2, 3, 2, 2}, equal, type});
        compare(ranks, {"one row each", {3, 2}, single, type});
        compare(ranks, {"no rows on some ranks", {3, 2}, some_empty, type});
        compare(ranks, {"no parameters", {3, 2}, unequal, type, Options(0).affine(false)});
        compare(
            ranks,
            {"no running values", {3, 2}, unequal, type, Options(0).track_running_stats(false)});
        compare(ranks, {"cumulative average",
                        {3, 2},
                        unequal,
                        type,
                        Options(0).momentum(std::nullopt).eps(1e-2)});
    }
    if (ranks.size() > 1) { // torch refuses one value in a channel; all ranks' are enough here
        compare(ranks, {"one value each", {6}, single});
    }
}

TEST_CASE("SyncBatchNorm.computes_16_bit_inputs_in_float32") {
    Ranks ranks;
    SyncBatchNorm norm(4);
    const auto connection = rtrain::detail::connect_batch_norms(ranks.any(), *norm);
    const auto input = batch_of(ranks.rank(), 8, {4, 3}, torch::kBFloat16);
    SyncBatchNorm precise(norm->options);
    const auto second = rtrain::detail::connect_batch_norms(ranks.any(), *precise);
    auto low = input.clone().requires_grad_();
    auto high = input.to(torch::kFloat).requires_grad_();
    const auto output = norm(low);
    CHECK((output.scalar_type() == torch::kBFloat16));
    loss_of(output.to(torch::kFloat), high).backward();
    const auto expected = precise(high);
    loss_of(expected, high).backward();
    CHECK((output - expected).abs().max().item<double>() < 0.02);
    CHECK((low.grad().scalar_type() == torch::kBFloat16));
    CHECK((low.grad() - high.grad()).abs().max().item<double>() <
          0.02 * high.grad().abs().max().item<double>());
    CHECK(norm->weight.grad().allclose(precise->weight.grad(), 0.02, 0.2));
    CHECK(norm->running_var.allclose(precise->running_var, 1e-3, 1e-3));
}

namespace {

struct SyncedNetImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& image) {
        return out(torch::relu(norm(in(image.flatten(1)))));
    }
    torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 16));
    SyncBatchNorm norm = register_module("norm", SyncBatchNorm(16));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(16, 10));
};
TORCH_MODULE(SyncedNet);

struct LayersImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& image) { return layers->forward(image); }
    torch::nn::Sequential layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 16),
                                        torch::nn::BatchNorm1d(16), torch::nn::ReLU(),
                                        torch::nn::Linear(16, 10)));
};
TORCH_MODULE(Layers);

/// Ten steps on this rank's part of batches of 24 rows; the flat parameters and running values.
template <class Model, class Net>
torch::Tensor train(Model& model, Net& net, int rank, int size) {
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const auto rows = test::fashion_mnist(240);
    for (int step = 0; step < 10; ++step) {
        auto batch = rows.rows(torch::arange(24 * step + rank, 24 * (step + 1), size));
        optimizer.zero_grad();
        torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
        optimizer.step();
    }
    return test::flat(*net);
}

/// On ranks, against the bare model in one process.
template <class Net>
void check_training(Ranks& ranks, Net net, Net alone, const DataParallelOptions& options = {}) {
    auto model = ranks.prepare(net.ptr(), options);
    const auto found = train(model, net, ranks.rank(), ranks.size());
    auto single = [&](const torch::Tensor& image) { return alone->forward(image); };
    const auto expected = train(single, alone, 0, 1);
    CHECK((found - expected).abs().max().template item<double>() < 1e-4);
    CHECK(ranks.agree(found));
}

} // namespace

TEST_CASE("SyncBatchNorm.training_on_ranks_is_training_on_one") {
    Ranks ranks;
    for (const std::int64_t bytes : {1, 1 << 20}) { // 1: buckets are under way when it communicates
        torch::manual_seed(1);
        SyncedNet net;
        torch::manual_seed(1);
        check_training(ranks, net, SyncedNet(),
                       {.bucket_bytes = bytes, .first_bucket_bytes = bytes});
    }
}

TEST_CASE("SyncBatchNorm.trains_under_autocast") {
    Ranks ranks;
    torch::manual_seed(1);
    SyncedNet net;
    auto model = ranks.prepare(net.ptr(), {.autocast = torch::kBFloat16});
    const auto low = train(model, net, ranks.rank(), ranks.size());
    torch::manual_seed(1);
    SyncedNet precise;
    auto plain = ranks.prepare(precise.ptr());
    const auto high = train(plain, precise, ranks.rank(), ranks.size());
    CHECK(ranks.agree(low));
    CHECK(!low.equal(high));
    CHECK((low - high).abs().mean().item<double>() < 0.02 * high.abs().mean().item<double>());
}

TEST_CASE("SyncBatchNorm.replaces_batch_norm_in_sequential") {
    Ranks ranks;
    torch::manual_seed(1);
    Layers net;
    torch::manual_seed(1);
    const Layers alone;
    const auto before = test::flat(*net);
    const auto weight = net->parameters()[2];
    convert_sync_batch_norm(*net);
    CHECK(test::flat(*net).equal(before));
    CHECK(net->parameters()[2].is_same(weight)); // an optimizer made before still trains it
    CHECK(net->layers->children()[2]->as<SyncBatchNorm>() != nullptr);
    check_training(ranks, net, alone);

    test::Net member(0.0, true);
    const auto message = test::message_of([&] { convert_sync_batch_norm(*member); });
    CHECK(test::contains(message, "RT-M16"));
    CHECK(test::contains(message, "\"norm\""));
    CHECK(code_of([] { convert_sync_batch_norm(*torch::nn::BatchNorm2d(3)); }) == "RT-M16");
}

TEST_CASE("SyncBatchNorm.says_what_it_cannot_do") {
    Ranks ranks;
    SyncBatchNorm norm(3);
    const auto model = ranks.prepare(norm.ptr());
    if (ranks.size() > 1) {
        CHECK(code_of([&] { norm(torch::ones({4, 2})); }) == "RT-M13");
        CHECK(code_of([&] { norm(torch::ones({3})); }) == "RT-M13");
        CHECK(code_of([&] { norm(torch::ones({ranks.rank() == 0, 3})); }) == "RT-M14");
        CHECK(code_of([&] { norm(torch::ones({0, 3})); }) == "RT-M14");
        auto input = torch::randn({4, 3}).requires_grad_();
        const auto loss = norm(input).pow(3).sum();
        CHECK(code_of([&] { torch::autograd::grad({loss}, {input}, {}, true, true); }) == "RT-M15");
    }
}

TEST_CASE("SyncBatchNorm.is_on_its_own_without_a_handle") {
    Ranks ranks;
    SyncBatchNorm norm(3);
    torch::nn::BatchNorm1d plain(3);
    const auto input = torch::randn({4, 3}) + ranks.rank();
    const auto expected = plain(input);
    CHECK(norm(input).equal(expected));
    {
        const auto model = ranks.prepare(norm.ptr());
        CHECK(norm(input).equal(expected) == (ranks.size() == 1));
        if (ranks.rank() == 0) { // a clone does not communicate
            const auto clone = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
            CHECK(clone->forward(input).equal(expected));
        }
    }
    if (ranks.rank() == 0) {
        CHECK(norm(input).equal(expected));
    }
}
