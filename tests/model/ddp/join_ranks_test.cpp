// SPDX-License-Identifier: Apache-2.0
// Ranks with unequally many batches, models of some ranks, parameters left out, hooks of one's own.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/comm/communicator.hpp>

#include <doctest/doctest.h>

#include <functional>

using namespace rtrain;
using test::Ranks;

namespace {

torch::Tensor batch_of(int rank, int step) {
    return torch::linspace(-1, 1, 24).view({4, 6}) * (rank + 1) + 0.1 * step;
}
int steps_of(int rank) {
    return 2 + (rank * 2) % 5;
} // 2, 4, 6, 3

struct JoiningImpl : torch::nn::Module {
    torch::nn::Embedding words = register_module(
        "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 6).sparse(true)));
    torch::nn::BatchNorm1d norm =
        register_module("norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(6)));
    torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 6));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(6, 2));
    torch::Tensor forward(const torch::Tensor& x, int step) {
        const auto rows = words(torch::tensor({step, 8}, torch::kLong)).sum(0);
        return out(torch::tanh(in(norm(x) + rows)));
    }
};

std::shared_ptr<JoiningImpl> make_joining() {
    torch::manual_seed(8);
    return std::make_shared<JoiningImpl>();
}

/// What training must give: in each step the mean over those that still have a batch.
void train_alone(JoiningImpl& module, torch::optim::Optimizer& optimizer, int size) {
    for (int step = 0; step < 6; ++step) {
        std::vector<torch::Tensor> sums;
        int active = 0;
        const auto buffers = module.norm->running_mean.clone();
        const auto variances = module.norm->running_var.clone();
        std::vector<torch::Tensor> first;
        for (int rank = 0; rank < size; ++rank) {
            if (step >= steps_of(rank)) {
                continue;
            }
            module.zero_grad();
            const torch::NoGradGuard no_grad;
            module.norm->running_mean.variable_data().copy_(buffers);
            module.norm->running_var.variable_data().copy_(variances);
            {
                const torch::AutoGradMode enable(true);
                module.forward(batch_of(rank, step), step).square().sum().backward();
            }
            std::size_t i = 0;
            for (auto& parameter : module.parameters()) {
                const auto mine = parameter.grad().to_dense().clone();
                active == 0 ? sums.push_back(mine) : void(sums[i] += mine);
                ++i;
            }
            if (active++ == 0) { // whose buffers all have from the next step on
                first = {module.norm->running_mean.clone(), module.norm->running_var.clone()};
            }
        }
        if (active == 0) {
            break;
        }
        const torch::NoGradGuard no_grad;
        std::size_t i = 0;
        for (auto& parameter : module.parameters()) {
            parameter.mutable_grad() = sums[i++] / active;
        }
        module.norm->running_mean.copy_(first[0]);
        module.norm->running_var.copy_(first[1]);
        optimizer.step();
    }
}

} // namespace

TEST_CASE("Join.of_ranks_with_unequally_many_batches" * doctest::timeout(60)) {
    Ranks ranks;
    for (const bool find_unused : {false, true}) {
        for (const bool view : {true, false}) {
            auto alone = make_joining();
            torch::optim::SGD expected(alone->parameters(), torch::optim::SGDOptions(0.01));
            train_alone(*alone, expected, ranks.size());

            auto module = make_joining();
            auto model = ranks.prepare(
                module, {.find_unused_parameters = find_unused, .gradient_as_bucket_view = view});
            torch::optim::SGD optimizer(module->parameters(), torch::optim::SGDOptions(0.01));
            for (int epoch = 0; epoch < 2; ++epoch) {
                int shadowed = 0;
                join(
                    [&] {
                        for (int step = 0; step < steps_of(ranks.rank()); ++step) {
                            optimizer.zero_grad();
                            const auto x = batch_of(ranks.rank(), step);
                            const auto y = view ? model(x, step) : model->forward(x, step);
                            y.square().sum().backward();
                            optimizer.step();
                        }
                    },
                    [&] {
                        optimizer.step();
                        ++shadowed;
                    },
                    model);
                int longest = 0;
                for (int rank = 0; rank < ranks.size(); ++rank) {
                    longest = std::max(longest, steps_of(rank));
                }
                CHECK(shadowed == longest - steps_of(ranks.rank()));
                for (const auto& item : module->named_parameters()) {
                    CAPTURE(item.key());
                    CHECK(ranks.agree(item.value()));
                    if (epoch == 0) {
                        CHECK(torch::allclose(item.value(), alone->named_parameters()[item.key()],
                                              1e-4, 1e-5));
                    }
                }
            }
            // Behind it, all ranks average again.
            optimizer.zero_grad();
            model(batch_of(ranks.rank(), 0), 0).square().sum().backward();
            CHECK(ranks.agree(module->in->weight.grad()));
        }
    }
}

TEST_CASE("Join.of_two_models" * doctest::timeout(60)) {
    Ranks ranks;
    auto one = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(6, 2));
    auto two = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(6, 3));
    torch::optim::SGD first(one->parameters(), 0.01);
    torch::optim::SGD second(two->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
    join(
        [&] {
            for (int step = 0; step < steps_of(ranks.rank()); ++step) {
                first.zero_grad();
                one(batch_of(ranks.rank(), step)).square().sum().backward();
                first.step();
                second.zero_grad();
                two(batch_of(ranks.rank(), step)).square().sum().backward();
                second.step();
            }
        },
        [&](std::size_t model) { model == 0 ? first.step() : second.step(); }, one, two);
    CHECK(ranks.agree(one->weight));
    CHECK(ranks.agree(two->weight));
    const auto more = [](std::size_t /*model*/) {};
    CHECK(test::code_of([&] {
              if (ranks.size() == 1) {
                  throw ConfigError("RT-C12", "nothing to join");
              }
              auto other = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(6, 2),
                                         {.hook = hook::PowerSgd{}});
              join([] {}, more, other);
          }) == "RT-C12");
}

TEST_CASE("Join.ranks_that_do_different_things_are_told") {
    const Ranks ranks;
    const auto any = ranks.any();
    using rtrain::detail::JoinedRanks;
    JoinedRanks joined(*any);
    const auto announce = [&](JoinedRanks::Step step) {
        return test::code_of([&] { (void)joined.announce(step, 0); });
    };
    const bool is_first = ranks.rank() == 0;
    CHECK(announce(JoinedRanks::Step::backward).empty());
    CHECK(announce(is_first ? JoinedRanks::Step::backward : JoinedRanks::Step::none).empty());
    CHECK(announce(is_first ? JoinedRanks::Step::backward : JoinedRanks::Step::buffers) ==
          (ranks.size() == 1 ? "" : "RT-M27"));
}

TEST_CASE("Prepare.ignores_what_it_is_told_to") {
    Ranks ranks;
    auto module = make_joining();
    {
        const torch::NoGradGuard no_grad;
        module->in->bias.fill_(ranks.rank());
        module->norm->running_mean.fill_(ranks.rank());
    }
    auto model = ranks.prepare(module, {.ignore = {"in.bias", "norm.running_mean"}});
    CHECK(module->in->bias[0].item<double>() == ranks.rank()); // not spread from rank 0
    model(batch_of(ranks.rank(), 0), 0).square().sum().backward();
    CHECK(ranks.agree(module->in->weight.grad()));
    CHECK(ranks.agree(module->in->bias.grad()) == (ranks.size() == 1));
    CHECK(ranks.agree(module->norm->running_mean) == (ranks.size() == 1));
    CHECK(ranks.agree(module->norm->running_var) == (ranks.size() == 1)); // until the next forward
    (void)model(batch_of(0, 0), 0);
    CHECK(ranks.agree(module->norm->running_var));
    CHECK(test::code_of([&] {
              (void)ranks.prepare(std::make_shared<torch::nn::LinearImpl>(2, 2), {.ignore = {"x"}});
          }) == "RT-C27");
}

TEST_CASE("Prepare.for_a_group_of_ranks") {
    Ranks ranks;
    const int colour = ranks.rank() % 2;
    const std::shared_ptr<comm::Communicator> group = ranks.mpi->communicator().split(colour);
    torch::manual_seed(static_cast<std::uint64_t>(ranks.rank()));
    auto common = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(6, 6));
    auto expert = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(6, 2), {.group = group});
    // Each group has the model of its first rank, and the mean of its own gradients.
    expert(common(torch::full({1, 6}, ranks.rank() + 1.0))).sum().backward();
    CHECK(ranks.agree(common->weight.grad()));
    CHECK(ranks.agree(expert->weight) == (ranks.size() == 1));
    const auto weights = ranks.mpi->all_gather(expert->weight.detach());
    const auto gradients = ranks.mpi->all_gather(expert->bias.grad());
    const auto inputs = ranks.mpi->all_gather(expert->weight.grad());
    for (int rank = 2; rank < ranks.size(); ++rank) {
        CHECK(weights[rank].equal(weights[rank - 2]));
        CHECK(inputs[rank].equal(inputs[rank - 2]));
    }
    CHECK(gradients[0].allclose(torch::ones({2})));
}

namespace {

/// Ranks, but no groups of them.
struct OnlyAll {
    std::shared_ptr<backend::Mpi> mpi;
    [[nodiscard]] int rank() const { return mpi->rank(); }
    [[nodiscard]] int size() const { return mpi->size(); }
    void all_reduce(at::Tensor& tensor, ReduceOp op) { mpi->all_reduce(tensor, op); }
    void broadcast(at::Tensor& tensor, int root) { mpi->broadcast(tensor, root); }
};

} // namespace

TEST_CASE("Prepare.for_a_group_needs_a_backend_that_has_groups") {
    const Ranks ranks;
    const std::shared_ptr<comm::Communicator> group = ranks.mpi->communicator().split(0);
    CHECK(test::code_of([&] {
              const DataParallel<torch::nn::LinearImpl, OnlyAll> model(
                  std::make_shared<OnlyAll>(OnlyAll{ranks.mpi}),
                  std::make_shared<torch::nn::LinearImpl>(2, 2), {.group = group});
          }) == "RT-C28");
}

namespace {

/// Sends the largest tenth of each bucket, and keeps the rest for the next step.
struct TopTenth {
    std::map<std::size_t, torch::Tensor> kept;

    void reduce(GradientBucket& bucket, HookRanks& ranks) {
        auto& rest = kept[bucket.index];
        if (rest.defined()) {
            bucket.gradients.add_(rest);
        }
        const auto few = std::max<std::int64_t>(1, bucket.gradients.numel() / 10);
        const auto places = std::get<1>(bucket.gradients.abs().topk(few));
        auto sent = torch::zeros_like(bucket.gradients);
        sent.index_put_({places}, bucket.gradients.index({places}));
        rest = bucket.gradients - sent;
        ranks.all_reduce(sent, ReduceOp::sum);
        bucket.gradients.copy_(sent);
    }
    void save(RankStateWriter& out) const {
        for (const auto& [index, rest] : kept) {
            out.own("rest" + std::to_string(index), rest);
        }
        out.value("count", kept.size());
    }
    void load(const StateReader& in) {
        const int rank = launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0);
        for (std::size_t i = 0; i < in.value("count").to_number<std::size_t>(); ++i) {
            kept[i] = in.tensor("rest" + std::to_string(i))[rank].clone();
        }
    }
};

struct NamesOfParts {
    std::vector<std::string>* names;
    void reduce(GradientBucket& bucket, HookRanks& ranks) {
        for (const auto& part : bucket.parts) {
            names->push_back(part.name);
            CHECK(part.gradient.numel() > 0);
        }
        ranks.all_reduce(bucket.gradients, ReduceOp::sum);
    }
};

int runs = 0;

/// Parameters behind `steps` steps of SGD; interrupted behind step `stop` and started again.
template <CheckpointPolicy C>
torch::Tensor train_with(const Hook& hook, int steps, int stop, const test::Directory& directory) {
    const TrainerOptions options{
        .run = {.name = "run" + std::to_string(runs++), .storage_path = directory.path()}};
    torch::Tensor parameters;
    for (const int until : {stop, steps}) {
        Trainer<backend::Mpi, data::Sharded, C> trainer(options);
        trainer.fit([&](auto& worker) {
            torch::manual_seed(1);
            torch::nn::Sequential net(torch::nn::Linear(20, 30), torch::nn::ReLU(),
                                      torch::nn::Linear(30, 10));
            auto model = worker.prepare(net, {.first_bucket_bytes = 100, .hook = hook});
            torch::optim::SGD optimizer(net->parameters(), 0.05);
            int step = 0;
            auto state = State{}.add("model", model).add("optimizer", optimizer).add("step", step);
            worker.restore(state);
            while (step < until) {
                optimizer.zero_grad();
                const auto x = torch::linspace(-1, 1, 60).view({3, 20}) *
                               (0.3 * worker.rank() + 0.1 * step + 1);
                model(x).square().mean().backward();
                optimizer.step();
                ++step;
                worker.report({{"step", step}}, state);
            }
            parameters = test::flat(*model);
        });
    }
    return parameters;
}

} // namespace

TEST_CASE("Hook.of_the_users_own") {
    Ranks ranks;
    std::vector<std::string> names;
    auto module = std::make_shared<torch::nn::LinearImpl>(6, 2);
    auto model = ranks.prepare(module, {.hook = hook::Custom(NamesOfParts{&names})});
    for (int step = 0; step < 2; ++step) {
        module->zero_grad();
        model(torch::full({1, 6}, ranks.rank() + 1.0)).sum().backward();
        CHECK(module->weight.grad().allclose(torch::full({2, 6}, (ranks.size() + 1) / 2.0)));
    }
    CHECK(names.size() == (ranks.size() == 1 ? 0U : 4U));
    // Each model has its own copy, so that what one keeps does not reach another.
    const Hook shared = hook::Custom(TopTenth{});
    auto first = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(6, 2), {.hook = shared});
    auto second = ranks.prepare(std::make_shared<torch::nn::LinearImpl>(9, 9), {.hook = shared});
    first(batch_of(ranks.rank(), 0)).sum().backward();
    second(torch::ones({1, 9})).sum().backward();
    CHECK(ranks.agree(first->weight.grad()));
}

TEST_CASE("Hook.goes_on_from_a_checkpoint_to_the_same_bits" * doctest::timeout(120)) {
    const test::Directory directory("hooks");
    for (const Hook& hook :
         {Hook(hook::PowerSgd{.rank = 2, .start_iteration = 2}), Hook(hook::Custom(TopTenth{}))}) {
        const auto never = train_with<checkpoint::Sync>(hook, 8, 8, directory);
        CHECK(train_with<checkpoint::Sync>(hook, 8, 1, directory).equal(never));
        CHECK(train_with<checkpoint::Sync>(hook, 8, 5, directory).equal(never));
        CHECK(train_with<checkpoint::AsyncSharded>(hook, 8, 5, directory).equal(never));
    }
}
