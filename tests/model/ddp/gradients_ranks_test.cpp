// SPDX-License-Identifier: Apache-2.0
// Averaged gradients against those of one process that sees every rank's batch.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <functional>

using namespace rtrain;
using test::code_of;
using test::Ranks;

namespace {

torch::Tensor input_of(int rank) {
    return torch::linspace(-1, 1, 40).view({8, 5}) * (rank + 1) + 0.1 * rank;
}

/// One network with several kinds of parameters.
struct MixedImpl : torch::nn::Module {
    explicit MixedImpl(torch::ScalarType second = torch::kFloat) {
        torch::manual_seed(3);
        first = register_module("first", torch::nn::Linear(5, 7));
        tied = register_module("tied", torch::nn::Linear(7, 7));
        again = register_parameter("again", tied->weight); // shared: the same tensor by two names
        last = register_module("last", torch::nn::Linear(7, 2));
        last->to(second);
        strided = register_parameter("strided", torch::randn({7, 7}).t());
        frozen = register_parameter("frozen", torch::ones({7}), false);
    }
    torch::Tensor forward(const torch::Tensor& x) {
        auto h = tied(torch::relu(first(x)));
        h = torch::linear(torch::matmul(h, strided), again) * frozen;
        return last(h.to(last->weight.scalar_type()));
    }
    torch::nn::Linear first{nullptr}, tied{nullptr}, last{nullptr};
    torch::Tensor again, strided, frozen;
};

torch::Tensor loss_of(const torch::Tensor& output) {
    return output.to(torch::kFloat).square().mean();
}

/// Mean over ranks of the gradients that each rank's batch gives, by parameter.
std::vector<torch::Tensor> expected_gradients(MixedImpl& module, int size) {
    std::vector<torch::Tensor> sums;
    for (int rank = 0; rank < size; ++rank) {
        module.zero_grad();
        loss_of(module.forward(input_of(rank))).backward();
        std::size_t i = 0;
        for (auto& parameter : module.parameters()) {
            const auto gradient = parameter.grad().defined() ? parameter.grad().clone()
                                                             : torch::zeros_like(parameter);
            if (rank == 0) {
                sums.push_back(gradient / size);
            } else {
                sums[i] += gradient / size;
            }
            ++i;
        }
    }
    return sums;
}

void check_equal(MixedImpl& module, const std::vector<torch::Tensor>& expected) {
    const auto parameters = module.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        CAPTURE(module.named_parameters()[i].key());
        const auto gradient = parameters[i].grad().defined() ? parameters[i].grad()
                                                             : torch::zeros_like(parameters[i]);
        CHECK(gradient.sizes() == parameters[i].sizes());
        CHECK(torch::allclose(gradient, expected[i], 1e-5, 1e-6));
    }
}

} // namespace

TEST_CASE("Gradients.are_the_mean_over_ranks") {
    Ranks ranks;
    auto module = std::make_shared<MixedImpl>();
    const auto expected = expected_gradients(*module, ranks.size());
    for (const bool view : {true, false}) {
        for (const std::int64_t bytes : {1, 100, 1 << 20}) {
            CAPTURE(view);
            CAPTURE(bytes);
            auto model = ranks.prepare(module, {.bucket_bytes = bytes,
                                                .first_bucket_bytes = bytes,
                                                .gradient_as_bucket_view = view});
            for (const bool set_to_none : {true, false, true}) { // a plain zero_grad() works
                torch::optim::SGD optimizer(module->parameters(), 0.0);
                optimizer.zero_grad(set_to_none);
                loss_of(model(input_of(ranks.rank()))).backward();
                check_equal(*module, expected);
                optimizer.step();
            }
            if (ranks.size() > 1) {
                CHECK(model.bucket_count() == (bytes == 1 ? 7U : bytes == 100 ? 4U : 1U));
            }
        }
    }
}

TEST_CASE("Gradients.of_several_types") {
    Ranks ranks;
    auto module = std::make_shared<MixedImpl>(torch::kDouble);
    const auto expected = expected_gradients(*module, ranks.size());
    auto model = ranks.prepare(module);
    module->zero_grad();
    loss_of(model(input_of(ranks.rank()))).backward();
    check_equal(*module, expected);
}

TEST_CASE("Gradients.accumulate_under_no_sync") {
    Ranks ranks;
    auto module = std::make_shared<MixedImpl>();
    auto expected = expected_gradients(*module, ranks.size());
    for (auto& gradient : expected) {
        gradient *= 3;
    }
    for (const bool view : {true, false}) {
        auto model = ranks.prepare(module, {.gradient_as_bucket_view = view});
        for (int step = 0; step < 2; ++step) {
            module->zero_grad();
            {
                const auto guard = model.no_sync();
                loss_of(model(input_of(ranks.rank()))).backward();
                loss_of(model(input_of(ranks.rank()))).backward();
            }
            loss_of(model(input_of(ranks.rank()))).backward();
            check_equal(*module, expected);
        }
    }
}

TEST_CASE("Gradients.accumulate_with_sync") {
    Ranks ranks;
    auto module = std::make_shared<MixedImpl>();
    auto expected = expected_gradients(*module, ranks.size());
    for (auto& gradient : expected) {
        gradient *= 2;
    }
    auto model = ranks.prepare(module);
    module->zero_grad();
    loss_of(model(input_of(ranks.rank()))).backward();
    loss_of(model(input_of(ranks.rank()))).backward();
    check_equal(*module, expected);
}

namespace {

/// Uses a different half on each rank, or none of its parameters at all.
struct BranchesImpl : torch::nn::Module {
    torch::nn::Linear left = register_module("left", torch::nn::Linear(5, 2));
    torch::nn::Linear right = register_module("right", torch::nn::Linear(5, 2));
    torch::nn::Linear nobody = register_module("nobody", torch::nn::Linear(5, 2));
    torch::Tensor forward(const torch::Tensor& x, bool go_left) {
        return go_left ? left(x) : right(x);
    }
};

} // namespace

TEST_CASE("Gradients.of_unused_parameters") {
    Ranks ranks;
    const int size = ranks.size();
    const bool left = ranks.rank() == 0;
    auto module = std::make_shared<BranchesImpl>();
    auto model = ranks.prepare(module, {.first_bucket_bytes = 1, .find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
        module->zero_grad();
        module->nobody->weight.mutable_grad() = torch::full({2, 5}, 7.0);
        model(torch::ones({4, 5}), left).sum().backward();
        CHECK(module->left->weight.grad().allclose(torch::full({2, 5}, 4.0 / size)));
        if (size > 1) {
            CHECK(module->right->weight.grad().allclose(
                torch::full({2, 5}, 4.0 * (size - 1) / size)));
        }
        CHECK(module->nobody->weight.grad().eq(7.0).all().item<bool>());
        CHECK(!module->nobody->bias.grad().defined());
    }
}

TEST_CASE("Gradients.unused_parameters_are_an_error_unless_asked_for") {
    auto mpi = std::make_shared<backend::Mpi>();
    mpi->start({});
    Outcome mine;
    if (mpi->size() > 1) {
        auto module = std::make_shared<BranchesImpl>();
        DataParallel<BranchesImpl, backend::Mpi> model(mpi, module, {});
        const auto message = test::message_of([&] {
            model(torch::ones({4, 5}), true).sum().backward();
        });
        CHECK(test::contains(message, "RT-M3"));
        CHECK(test::contains(message, "\"nobody.weight\""));
        CHECK(test::contains(message, "\"right.bias\""));
        mine = Failure{.message = message};
    }
    (void)mpi->finish(mine);
}

TEST_CASE("Gradients.of_a_sparse_embedding") {
    Ranks ranks;
    struct WordsImpl : torch::nn::Module {
        torch::nn::Embedding words = register_module(
            "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 3).sparse(true)));
        torch::Tensor forward(const torch::Tensor& x) { return words(x); }
    };
    auto module = std::make_shared<WordsImpl>();
    auto model = ranks.prepare(module);
    const int size = ranks.size();
    for (int step = 0; step < 2; ++step) {
        module->zero_grad();
        model(torch::tensor({ranks.rank(), 5}, torch::kLong)).sum().backward();
        const auto gradient = module->words->weight.grad().to_dense();
        CHECK(gradient[0][0].item<double>() == doctest::Approx(1.0 / size));
        CHECK(gradient[5][2].item<double>() == doctest::Approx(1.0));
    }
}

TEST_CASE("Gradients.two_models_in_one_backward") {
    Ranks ranks;
    auto one = std::make_shared<MixedImpl>();
    auto two = std::make_shared<MixedImpl>();
    const auto expected = expected_gradients(*one, ranks.size());
    auto first = ranks.prepare(one);
    auto second = ranks.prepare(two);
    one->zero_grad();
    two->zero_grad();
    const auto x = input_of(ranks.rank());
    (loss_of(first(x)) + loss_of(second(x))).backward();
    check_equal(*one, expected);
    check_equal(*two, expected);
}

TEST_CASE("Gradients.of_two_models_whose_passes_interleave") {
    Ranks ranks;
    auto one = std::make_shared<MixedImpl>();
    auto two = std::make_shared<MixedImpl>();
    const auto expected = expected_gradients(*one, ranks.size());
    auto first = ranks.prepare(one, {.bucket_bytes = 100, .first_bucket_bytes = 100});
    auto second = ranks.prepare(two);
    const auto x = input_of(ranks.rank());
    for (int step = 0; step < 2; ++step) {
        one->zero_grad();
        two->zero_grad();
        const auto loss_one = loss_of(first(x));
        {
            const auto guard = second.no_sync(); // of the second only
            loss_of(second(x)).backward();
        }
        const auto loss_two = loss_of(second(x));
        loss_one.backward();
        check_equal(*one, expected);
        loss_two.backward();
        auto twice = expected;
        for (auto& gradient : twice) {
            gradient = gradient * 2;
        }
        check_equal(*one, expected);
        check_equal(*two, twice);
    }
}

TEST_CASE("Gradients.of_a_model_prepared_again") {
    Ranks ranks;
    auto module = std::make_shared<MixedImpl>();
    const auto expected = expected_gradients(*module, ranks.size());
    const auto x = input_of(ranks.rank());
    torch::Tensor kept;
    for (const bool view : {true, false, true}) {
        auto model = ranks.prepare(module, {.gradient_as_bucket_view = view});
        for (const bool set_to_none : {false, true}) { // gradients of the last handle are there
            module->zero_grad(set_to_none);
            loss_of(model(x)).backward();
            check_equal(*module, expected);
        }
        kept = module->first->weight.grad();
    }
    // Without a handle: this rank's own gradients, in the memory that the handle left.
    CHECK(module->first->weight.grad().is_same(kept));
    module->zero_grad(false);
    loss_of(module->forward(x)).backward();
    auto alone = std::make_shared<MixedImpl>();
    loss_of(alone->forward(x)).backward();
    CHECK(torch::allclose(kept, alone->first->weight.grad(), 1e-5, 1e-6));
}

TEST_CASE("Gradients.of_frozen_parameters_stay_undefined") {
    Ranks ranks;
    auto module = std::make_shared<MixedImpl>();
    auto model = ranks.prepare(module);
    loss_of(model(input_of(ranks.rank()))).backward();
    CHECK(!module->frozen.grad().defined());
    CHECK(module->again.is_same(module->tied->weight)); // still one tensor by two names
    CHECK(module->again.grad().is_same(module->tied->weight.grad()));
}

TEST_CASE("Gradients.accumulate_although_the_last_pass_leaves_parameters_out") {
    Ranks ranks;
    const int size = ranks.size();
    for (const bool view : {true, false}) {
        auto module = std::make_shared<BranchesImpl>();
        auto model = ranks.prepare(
            module, {.find_unused_parameters = true, .gradient_as_bucket_view = view});
        const auto x = torch::ones({4, 5});
        for (const bool set_to_none : {true, false}) {
            module->zero_grad(set_to_none);
            {
                const auto guard = model.no_sync(); // ranks differ: 4 * (rank + 1)
                (model(x, true).sum() * (ranks.rank() + 1)).backward();
            }
            model(x, false).sum().backward();
            const double mean = 4 * (size + 1) / 2.0;
            CHECK(module->left->weight.grad().allclose(torch::full({2, 5}, mean)));
            CHECK(module->right->weight.grad().allclose(torch::full({2, 5}, 4.0)));
            // A second averaged pass adds to what is there.
            model(x, false).sum().backward();
            CHECK(module->left->weight.grad().allclose(torch::full({2, 5}, mean)));
            CHECK(module->right->weight.grad().allclose(torch::full({2, 5}, 8.0)));
            CHECK((!module->nobody->weight.grad().defined()));
        }
    }
}

TEST_CASE("Gradients.sparse_ones_accumulate") {
    Ranks ranks;
    const int size = ranks.size();
    auto module =
        std::make_shared<torch::nn::EmbeddingImpl>(torch::nn::EmbeddingOptions(6, 3).sparse(true));
    auto model = ranks.prepare(module);
    const auto mine = torch::tensor({ranks.rank(), 5}, torch::kLong);
    torch::optim::SGD optimizer(module->parameters(), 1.0);
    for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        {
            const auto guard = model.no_sync();
            model(mine).sum().backward();
        }
        model(mine).sum().backward();
        model(mine).sum().backward(); // to the dense mean of the passes before
        const auto gradient = module->weight.grad().to_dense();
        CHECK(gradient[0][0].item<double>() == doctest::Approx(3.0 / size));
        CHECK(gradient[5][2].item<double>() == doctest::Approx(3.0));
        const auto before = module->weight.detach().clone();
        optimizer.step();
        CHECK(torch::allclose(module->weight, before - gradient));
        CHECK(ranks.agree(module->weight));
    }
}

TEST_CASE("Prepare.parameters_and_buffers_become_those_of_rank_0") {
    Ranks ranks;
    torch::manual_seed(static_cast<std::uint64_t>(ranks.rank()));
    test::Net net(0.0, true);
    net->batch_norm->running_mean.fill_(ranks.rank() + 1);
    auto model = ranks.prepare(net.ptr());
    const auto all = ranks.mpi->all_gather(test::flat(*net));
    for (int rank = 0; rank < ranks.size(); ++rank) {
        CHECK(all[rank].equal(all[0]));
    }
    CHECK(net->batch_norm->running_mean[0].item<float>() == 1);

    // In training, each forward begins with rank 0's buffers.
    (void)model(torch::randn({16, 784}));
    (void)model(torch::zeros({16, 784}));
    const auto means = ranks.mpi->all_gather(net->batch_norm->running_mean);
    net->eval();
    (void)model(torch::randn({4, 784}));
    CHECK(ranks.mpi->all_gather(net->batch_norm->running_mean).equal(means));
}

TEST_CASE("Prepare.different_models_are_an_error") {
    auto mpi = std::make_shared<backend::Mpi>();
    mpi->start({});
    if (mpi->size() > 1) {
        auto module =
            std::make_shared<torch::nn::LinearImpl>(mpi->rank() == mpi->size() - 1 ? 4 : 3, 2);
        const auto message = test::message_of(
            [&] { DataParallel<torch::nn::LinearImpl, backend::Mpi> model(mpi, module, {}); });
        CHECK(test::contains(message, "RT-M2"));
        CHECK(test::contains(message, "weight"));
        CHECK(test::contains(message, "rank " + std::to_string(mpi->size() - 1)));
        auto frozen = std::make_shared<torch::nn::LinearImpl>(2, 2);
        frozen->weight.set_requires_grad(false);
        frozen->bias.set_requires_grad(false);
        CHECK(code_of([&] {
                  DataParallel<torch::nn::LinearImpl, backend::Mpi> model(mpi, frozen, {});
              }) == "RT-M1");
    }
    (void)mpi->finish({});
}

namespace {

torch::Tensor call_holder(test::Net& net, const torch::Tensor& image) {
    return net->forward(image);
}
torch::Tensor call_impl(test::NetImpl& net, const torch::Tensor& image) {
    return net.forward(image);
}

} // namespace

TEST_CASE("Prepare.a_model_called_without_its_handle_trains_alike") {
    Ranks ranks;
    enum class Way { handle, arrow, holder, impl };
    const auto train = [&](Way way) {
        torch::manual_seed(4);
        test::Net net(0.0, true);
        auto model = ranks.prepare(net.ptr());
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        for (int step = 0; step < 3; ++step) {
            torch::manual_seed(static_cast<std::uint64_t>(10 * step + ranks.rank()));
            const auto image = torch::randn({16, 784});
            optimizer.zero_grad();
            const auto output = way == Way::handle   ? model(image)
                                : way == Way::arrow  ? model->forward(image)
                                : way == Way::holder ? call_holder(model, image)
                                                     : call_impl(model, image);
            loss_of(output).backward();
            optimizer.step();
        }
        if (way != Way::handle) {
            CHECK(ranks.agree(net->batch_norm->running_mean));
            CHECK(ranks.agree(net->batch_norm->running_var));
        }
        const auto parameters = torch::nn::utils::parameters_to_vector(net->parameters()).detach();
        CHECK(ranks.agree(parameters));
        auto mean = net->batch_norm->running_mean.clone();
        ranks.mpi->broadcast(mean, 0);
        return torch::cat({parameters, mean});
    };
    const auto expected = train(Way::handle);
    for (const Way way : {Way::arrow, Way::holder, Way::impl}) {
        CHECK(train(way).equal(expected));
    }
}

TEST_CASE("Prepare.autocast_needs_the_handle") {
    Ranks ranks;
    auto model = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(4, 3),
                               {.autocast = torch::kBFloat16});
    const auto backward = [&](const torch::Tensor& output) { output.sum().backward(); };
    CHECK(code_of([&] { backward(model->forward(torch::ones({2, 4}))); }) == "RT-M61");
    auto other = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(4, 3),
                               {.autocast = torch::kBFloat16});
    CHECK(code_of([&] {
              const auto output = other(torch::ones({2, 4}));
              output.sum().backward({}, /*retain_graph=*/true);
              output.sum().backward();
          }).empty());
}

TEST_CASE("Prepare.a_handle_is_saved_and_loaded_as_its_module") {
    Ranks ranks;
    const test::Directory directory("handle");
    torch::nn::Linear linear(4, 3);
    auto model = ranks.prepare(linear.ptr());
    const auto file = (directory.path() / ("rank" + std::to_string(ranks.rank()))).string();
    std::filesystem::create_directories(directory.path());
    torch::save(model, file);
    const auto before = test::flat(*linear).clone();
    {
        const torch::NoGradGuard no_grad;
        linear->weight.zero_();
    }
    torch::load(model, file);
    CHECK(test::flat(*linear).equal(before));
    torch::nn::Linear same(4, 3);
    torch::load(same, file);
    CHECK(test::flat(*same).equal(before));
}
