// SPDX-License-Identifier: Apache-2.0
// Ranks whose models drift apart, and models that are not prepared as one thinks: an error on all
// ranks, and nothing saved as if it were the model.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <functional>

using namespace rtrain;
using test::Ranks;

namespace {

int world_size() {
    return launch::ranks().value_or(1);
}

RunConfig run_in(const test::Directory& directory) {
    return {.name = "run", .storage_path = directory.path()};
}

/// What fit() throws, with each rank's part.
std::string error_of(Trainer<>& trainer, const std::function<void(Trainer<>::WorkerType&)>& body) {
    return test::message_of([&] { trainer.fit(body); });
}

void step(auto& model, torch::optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    model(torch::ones({2, 4})).square().sum().backward();
    optimizer.step();
}

std::size_t checkpoints_in(const std::filesystem::path& run) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(run)) {
        count += entry.path().filename().string().starts_with("checkpoint_") ? 1U : 0U;
    }
    return count;
}

} // namespace

TEST_CASE("Drift.is_found_at_a_report_before_it_saves" * doctest::timeout(60)) {
    const test::Directory directory("drift");
    Trainer<> trainer({.run = run_in(directory)});
    const auto message = error_of(trainer, [](auto& worker) {
        auto model = worker.prepare(torch::nn::Linear(4, 2));
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        const auto state = State{}.add("model", model);
        step(model, optimizer);
        worker.report({{"step", 1}}, state);
        if (worker.rank() == worker.size() - 1) { // such as a file that only this rank loads
            const torch::NoGradGuard no_grad;
            model->bias.add_(1e-6);
        }
        step(model, optimizer);
        worker.report({{"step", 2}}, state);
    });
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(checkpoints_in(directory.path() / "run") == (world_size() == 1 ? 2U : 1U));
    if (world_size() > 1) {
        CHECK(test::contains(message, "RT-M25"));
        CHECK(test::contains(message, "\"bias\""));
        CHECK(test::contains(message, "rank " + std::to_string(world_size() - 1)));
    }
}

TEST_CASE("Drift.is_found_before_the_last_checkpoint_of_a_stopped_run" * doctest::timeout(60)) {
    const test::Directory directory("stopped");
    Trainer<> trainer({.run = run_in(directory)});
    const auto message = error_of(trainer, [](auto& worker) {
        auto model = worker.prepare(torch::nn::Linear(4, 2));
        for (const int epoch : worker.epochs(5, State{}.add("model", model))) {
            const torch::NoGradGuard no_grad;
            model->bias.add_(epoch + worker.rank());
            worker.stop(); // and no report of a state saves that
        }
    });
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(checkpoints_in(directory.path() / "run") == (world_size() == 1 ? 1U : 0U));
    CHECK(test::contains(message, "RT-M25") == (world_size() > 1));
}

TEST_CASE("Drift.is_found_every_few_passes_and_not_under_no_sync" * doctest::timeout(60)) {
    const test::Directory directory("passes");
    Trainer<> trainer({.run = run_in(directory)});
    int passes = 0;
    const auto message = error_of(trainer, [&](auto& worker) {
        auto model = worker.prepare(torch::nn::Linear(4, 2), {.check_parameters = 3});
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        {
            const auto alone = model.no_sync(); // ranks may differ on purpose
            const torch::NoGradGuard no_grad;
            model->weight.add_(worker.rank());
            worker.report({{"step", 0}}, State{}.add("model", model));
            model->weight.sub_(worker.rank());
        }
        model.average_parameters();
        for (; passes < 9; ++passes) {
            if (passes == 4 && worker.rank() == 0) {
                const torch::NoGradGuard no_grad;
                model->weight.mul_(2);
            }
            step(model, optimizer);
        }
    });
    CHECK(passes == (world_size() == 1 ? 9 : 5)); // found in the sixth pass
    CHECK(test::contains(message, "RT-M25") == (world_size() > 1));
}

TEST_CASE("Drift.does_not_come_from_a_handle_that_was_let_go") {
    const test::Directory directory("let-go");
    Trainer<> trainer({.run = run_in(directory)});
    trainer.fit([](auto& worker) {
        auto net = std::make_shared<torch::nn::LinearImpl>(4, 2);
        (void)worker.prepare(net);
        net->forward(torch::full({1, 4}, worker.rank() + 1.0)).sum().backward();
        CHECK(net->weight.grad().allclose(torch::full({2, 4}, (worker.size() + 1) / 2.0)));
    });
}

namespace {

struct WithEncoderImpl : torch::nn::Module {
    explicit WithEncoderImpl(torch::nn::Linear shared) : encoder(std::move(shared)) {
        register_module("encoder", encoder);
        register_module("head", head);
    }
    torch::Tensor forward(const torch::Tensor& x) { return head(encoder(x)); }
    torch::nn::Linear encoder;
    torch::nn::Linear head{4, 2};
};

} // namespace

TEST_CASE("Prepare.a_parameter_belongs_to_one_model") {
    Ranks ranks;
    torch::nn::Linear encoder(4, 4);
    auto one = std::make_shared<WithEncoderImpl>(encoder);
    auto two = std::make_shared<WithEncoderImpl>(encoder);
    {
        auto first = ranks.prepare(one);
        const auto message = test::message_of([&] { (void)ranks.prepare(two); });
        CHECK(test::contains(message, "RT-M5"));
        CHECK(test::contains(message, "\"encoder.weight\""));
        CHECK(test::code_of([&] { (void)ranks.prepare(encoder.ptr()); }) == "RT-M5");
        CHECK(test::code_of([&] { (void)ranks.prepare(one); }) == "RT-M5");
        // The first is as it was.
        first(torch::full({1, 4}, ranks.rank() + 1.0)).sum().backward();
        CHECK(ranks.agree(encoder->weight.grad()));
    }
    auto second = ranks.prepare(two); // the first is gone
    two->zero_grad();
    second(torch::full({1, 4}, ranks.rank() + 1.0)).sum().backward();
    CHECK(ranks.agree(encoder->weight.grad()));
}

TEST_CASE("Prepare.models_may_share_what_is_frozen_until_it_trains") {
    Ranks ranks;
    torch::nn::Linear encoder(4, 4);
    for (auto& parameter : encoder->parameters()) {
        parameter.set_requires_grad(false);
    }
    auto first = ranks.prepare(std::make_shared<WithEncoderImpl>(encoder));
    auto second = ranks.prepare(std::make_shared<WithEncoderImpl>(encoder));
    const auto x = torch::full({1, 4}, ranks.rank() + 1.0);
    (first(x).sum() + second(x).sum()).backward();
    CHECK(ranks.agree(first->head->weight.grad()));
    CHECK(ranks.agree(second->head->weight.grad()));
    if (ranks.size() > 1) {
        for (auto& parameter : encoder->parameters()) {
            parameter.set_requires_grad(true);
        }
        CHECK(test::code_of([&] { first(x).sum().backward(); }) == "RT-M5");
    }
}

TEST_CASE("Prepare.a_model_that_is_another_is_refused_in_the_same_step") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return;
    }
    const auto x = torch::full({1, 4}, ranks.rank() + 1.0);
    auto module = std::make_shared<WithEncoderImpl>(torch::nn::Linear(4, 4));
    auto model = ranks.prepare(module);
    torch::nn::Linear other(4, 2);
    module->replace_module("head", other);
    module->head = other;
    // By the handle, and without it as soon as any gradient comes by.
    const auto message = test::message_of([&] { (void)model(x); });
    CHECK(test::contains(message, "RT-M23"));
    CHECK(test::contains(message, "\"head.weight\""));
    CHECK(test::code_of([&] { module->forward(x).sum().backward(); }) == "RT-M23");
    const torch::NoGradGuard no_grad; // to look at it is allowed
    (void)model(x);
}

TEST_CASE("Drift.does_not_come_from_what_only_some_ranks_do" * doctest::timeout(120)) {
    if (world_size() == 1) {
        return;
    }
    const test::Directory directory("some");
    const auto message_of = [&](const std::string& name, auto&& body) {
        Trainer<> trainer({.run = {.name = name, .storage_path = directory.path()}});
        return test::message_of([&] { trainer.fit(body); });
    };
    // Ranks of rank 0's node see at once that it calls something else, and it says why. Ranks of
    // other nodes find it out in their own words.
    const bool seen_at_once = test::ranks_of_nodes().front() > 1;
    SUBCASE("freezing") {
        const auto message = message_of("freeze", [](auto& worker) {
            auto model = worker.prepare(test::Net());
            torch::optim::SGD optimizer(model->parameters(), 0.1);
            const auto x = torch::ones({2, 784});
            model(x).sum().backward();
            model->in->weight.set_requires_grad(worker.rank() != 0);
            for (int again = 0; again < 2; ++again) {
                model(x).sum().backward();
                optimizer.step();
            }
        });
        CHECK(!message.empty());
        CHECK((!seen_at_once || test::contains(message, "RT-M24")));
        CHECK((!seen_at_once || test::contains(message, "\"in.weight\"")));
    }
    SUBCASE("an exception in backward, caught") {
        const auto message = message_of("caught", [](auto& worker) {
            auto model = worker.prepare(test::Net(), {.bucket_bytes = 1, .first_bucket_bytes = 1});
            for (int again = 0; again < 3; ++again) {
                auto hidden = torch::relu(model->in(torch::ones({2, 784})));
                if (worker.rank() == 0 && again == 1) {
                    hidden.register_hook([](const torch::Tensor&) -> torch::Tensor {
                        throw std::runtime_error("too large for this rank's memory");
                    });
                }
                try {
                    model->out(hidden).sum().backward();
                } catch (const std::runtime_error& error) {
                    if (!test::contains(error.what(), "too large")) {
                        throw;
                    }
                }
            }
        });
        CHECK(!message.empty());
        CHECK((!seen_at_once || test::contains(message, "RT-M26")));
    }
}
