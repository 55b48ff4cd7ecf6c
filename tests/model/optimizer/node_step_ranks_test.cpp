// SPDX-License-Identifier: Apache-2.0
// Steps that the ranks of a node make together, against steps that each rank makes alone.
#include "model/sharded/models.hpp"
#include "support/file_limit.hpp"

#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/local_sgd.hpp>
#include <rtrain/state/optimizer_state.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace test;

namespace {

using Mlp = DataParallel<MlpImpl, backend::Mpi>;

/// Layers above the least size of a common step, and one below.
std::shared_ptr<MlpImpl> make_wide() {
    return std::make_shared<MlpImpl>(std::vector<std::int64_t>{600, 1200, 700, 3});
}

/// True if the tensor is in memory of the node: a private mapping of rtrain's.
bool is_shared(const torch::Tensor& tensor) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream text(line);
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::string permissions;
        text >> std::hex >> begin >> dash >> end >> permissions;
        if (begin <= address && address < end) {
            return permissions == "rw-p" && line.find("memfd:rtrain") != std::string::npos;
        }
    }
    return false;
}

template <class O>
using Step = std::function<void(Mlp&, typename rtrain::detail::PreparedOptimizer<O>::type&, int)>;

/// The moments of all parameters, in order.
std::vector<torch::Tensor> moments_of(torch::optim::Optimizer& optimizer) {
    std::vector<torch::Tensor> moments;
    for (const auto& parameter : optimizer.param_groups()[0].params()) {
        checkpoint::visit_optimizer_state(
            optimizer, parameter,
            [&](const char* /*name*/, torch::Tensor& moment) { moments.push_back(moment); });
    }
    return moments;
}

/// Trains a model in both ways, by `step`.
template <class O, class Options>
void compare_ways(Ranks& ranks, const Options& options, const Step<O>& step,
                  DataParallelOptions how = {}) {
    how.step_together = true;
    auto together = ranks.prepare(make_wide(), how);
    how.step_together = false;
    auto alone = ranks.prepare(make_wide(), how);
    auto one = prepared(O(together->parameters(), options), together);
    auto other = prepared(O(alone->parameters(), options), alone);
    for (int i = 0; i < 5; ++i) {
        step(together, one, i);
        step(alone, other, i);
        require_same_parameters(*together, *alone);
    }
    const auto mine = moments_of(one);
    const auto theirs = moments_of(other);
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
        CHECK(mine[i].equal(theirs[i]));
    }
    const bool shares = ranks.mpi->local_size() > 1;
    CHECK(is_shared(together->parameters()[0]) == shares);
    CHECK_FALSE(is_shared(alone->parameters()[0]));
    ranks.mpi->barrier();
}

void pass(Ranks& ranks, Mlp& model, int i) {
    const auto x = random(ranks.rank(), i, {5, model->in});
    const auto y = random(ranks.rank(), 100 + i, {5, model->out});
    torch::mse_loss(model(x), y).backward();
}

template <class O>
Step<O> plain_step(Ranks& ranks) {
    return [&ranks](Mlp& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        pass(ranks, model, i);
        optimizer.step();
    };
}

} // namespace

TEST_CASE("NodeStep.has_the_bits_of_separate_steps_with_every_optimizer") {
    Ranks ranks;
    using namespace torch::optim;
    compare_ways<SGD>(ranks, SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true),
                      plain_step<SGD>(ranks));
    compare_ways<Adam>(ranks, AdamOptions(1e-2).amsgrad(true), plain_step<Adam>(ranks));
    compare_ways<AdamW>(ranks, AdamWOptions(1e-2), plain_step<AdamW>(ranks));
}

TEST_CASE("NodeStep.has_the_bits_of_separate_steps_with_every_option") {
    Ranks ranks;
    using torch::optim::AdamW;
    const torch::optim::AdamWOptions options(1e-2);
    SUBCASE("clipping, accumulation and a closure") {
        compare_ways<AdamW>(ranks, options, [&](Mlp& model, auto& optimizer, int i) {
            (void)optimizer.step([&] {
                optimizer.zero_grad();
                {
                    const auto alone = model.no_sync();
                    pass(ranks, model, 10 * i);
                }
                pass(ranks, model, 10 * i + 1);
                (void)model.clip_grad_norm_(0.01);
                return torch::zeros({});
            });
        });
    }
    SUBCASE("parameters that are frozen, and train again") {
        compare_ways<AdamW>(ranks, options, [&](Mlp& model, auto& optimizer, int i) {
            model->parameters()[2].set_requires_grad(i != 2);
            optimizer.zero_grad();
            pass(ranks, model, i);
            optimizer.step();
        });
    }
    SUBCASE("mixed precision") {
        compare_ways<AdamW>(ranks, options, plain_step<AdamW>(ranks), {.autocast = at::kBFloat16});
    }
    SUBCASE("a hook, and gradients apart from buckets") {
        compare_ways<AdamW>(ranks, options, plain_step<AdamW>(ranks),
                            {.gradient_as_bucket_view = false, .hook = hook::BFloat16{}});
    }
    SUBCASE("a learning rate that changes, and a parameter of another group") {
        compare_ways<AdamW>(ranks, options, [&](Mlp& model, auto& optimizer, int i) {
            optimizer.param_groups()[0].options().set_lr(0.1 / (i + 1));
            optimizer.zero_grad();
            pass(ranks, model, i);
            optimizer.step();
        });
    }
    SUBCASE("comparisons of parameters") {
        compare_ways<AdamW>(ranks, options, plain_step<AdamW>(ranks), {.check_parameters = 1});
    }
}

TEST_CASE("NodeStep.what_a_rank_writes_is_its_own_until_the_next_step") {
    Ranks ranks;
    using torch::optim::AdamW;
    compare_ways<AdamW>(ranks, torch::optim::AdamWOptions(1e-2),
                        [&](Mlp& model, auto& optimizer, int i) {
                            plain_step<AdamW>(ranks)(model, optimizer, i);
                            const torch::NoGradGuard no_grad;
                            for (auto& parameter : model->parameters()) {
                                parameter.data().mul_(0.9); // by all ranks, each in its memory
                                parameter.data_ptr<float>()[0] += 0.5F;
                            }
                            for (auto& moment : moments_of(optimizer)) {
                                moment.mul_(0.5);
                            }
                        });
    // A value that only one rank has is not seen by the others.
    auto model = ranks.prepare(make_wide(), {.step_together = true});
    auto optimizer = prepared(AdamW(model->parameters(), 1e-2), model);
    plain_step<AdamW>(ranks)(model, optimizer, 0);
    const auto before = model->parameters()[0].detach().clone();
    ranks.mpi->barrier();
    if (ranks.rank() == 0) {
        const torch::NoGradGuard no_grad;
        model->parameters()[0].fill_(7);
    }
    ranks.mpi->barrier();
    CHECK(model->parameters()[0].equal(ranks.rank() == 0 ? torch::full_like(before, 7) : before));
    ranks.mpi->barrier();
}

TEST_CASE("NodeStep.states_are_those_of_separate_steps") {
    Ranks ranks;
    using torch::optim::Adam;
    auto together = ranks.prepare(make_wide(), {.step_together = true});
    auto alone = ranks.prepare(make_wide(), {.step_together = false});
    auto one = prepared(Adam(together->parameters(), 1e-2), together);
    auto other = prepared(Adam(alone->parameters(), 1e-2), alone);
    const auto step = plain_step<Adam>(ranks);
    const auto move = [](auto& from_model, auto& from, auto& to_model, auto& to) {
        checkpoint::Snapshot saved;
        StateWriter out(saved, "m");
        checkpoint::save_module(*from_model, out);
        checkpoint::save_optimizer(from, StateWriter(saved, "o"));
        for (auto& [name, tensor] : saved.tensors) {
            tensor = tensor.clone(); // as if from a file
        }
        checkpoint::load_module(*to_model, StateReader(saved, "m"));
        checkpoint::load_optimizer(to, StateReader(saved, "o"));
    };
    for (int i = 0; i < 3; ++i) {
        step(together, one, i);
    }
    move(together, one, alone, other);
    for (int i = 3; i < 5; ++i) {
        step(together, one, i);
        step(alone, other, i);
        require_same_parameters(*together, *alone);
    }
    step(alone, other, 5);
    move(alone, other, together, one); // into memory of the node
    for (int i = 6; i < 9; ++i) {
        step(together, one, i);
        step(alone, other, i);
        require_same_parameters(*together, *alone);
    }
    // Another optimizer takes over, and parameters outlive all.
    {
        auto next = prepared(Adam(together->parameters(), 1e-3), together);
        auto next_alone = prepared(Adam(alone->parameters(), 1e-3), alone);
        step(together, next, 9);
        step(alone, next_alone, 9);
    }
    require_same_parameters(*together, *alone);
    ranks.mpi->barrier();
}

TEST_CASE("NodeStep.ranks_that_differ_step_alone") {
    Ranks ranks;
    using torch::optim::AdamW;
    const torch::optim::AdamWOptions options(1e-2);
    const auto ordinary = plain_step<AdamW>(ranks);
    SUBCASE("under no_sync, then averaged") {
        compare_ways<AdamW>(ranks, options, [&](Mlp& model, auto& optimizer, int i) {
            if (i % 2 == 0) {
                ordinary(model, optimizer, i);
                return;
            }
            {
                const auto alone = model.no_sync();
                for (int k = 0; k < 1 + ranks.rank(); ++k) { // as often as the rank likes
                    ordinary(model, optimizer, 10 * i + k);
                }
            }
            CHECK((ranks.size() == 1 || !ranks.agree(model->parameters()[0])));
            model.average_parameters();
            for (auto& moment : moments_of(optimizer)) {
                moment.zero_();
            }
            for (const auto& parameter : model->parameters()) {
                auto& state = *optimizer.state().at(parameter.unsafeGetTensorImpl());
                static_cast<torch::optim::AdamWParamState&>(state).step(i);
            }
        });
    }
    SUBCASE("with memory that they have set later") {
        auto model = ranks.prepare(make_wide(), {.step_together = true});
        auto twin = ranks.prepare(make_wide(), {.step_together = false});
        auto optimizer = prepared(AdamW(model->parameters(), options), model);
        auto other = prepared(AdamW(twin->parameters(), options), twin);
        for (int i = 0; i < 4; ++i) {
            ordinary(model, optimizer, i);
            ordinary(twin, other, i);
            require_same_parameters(*model, *twin);
            if (i == 1 && ranks.rank() == 0) {
                auto parameter = model->parameters()[2];
                parameter.set_data(parameter.detach().clone());
            }
        }
        ranks.mpi->barrier();
    }
    SUBCASE("with different learning rates") {
        auto model = ranks.prepare(make_wide(), {.step_together = true});
        auto optimizer = prepared(AdamW(model->parameters(), options), model);
        ordinary(model, optimizer, 0);
        optimizer.param_groups()[0].options().set_lr(1e-2 + 1e-3 * ranks.rank());
        ordinary(model, optimizer, 1);
        CHECK((ranks.size() == 1 || !ranks.agree(model->parameters()[0]))); // as without: RT-M25
        ranks.mpi->barrier();
    }
}

TEST_CASE("NodeStep.without_memory_each_rank_steps_all") {
    Ranks ranks;
    auto model = ranks.prepare(make_wide(), {.step_together = true});
    auto optimizer = prepared(torch::optim::AdamW(model->parameters(), 1e-2), model);
    optimizer.zero_grad();
    pass(ranks, model, 0);
    {
        const FileLimit limit(1 << 20);
        optimizer.step();
    }
    CHECK_FALSE(is_shared(model->parameters()[0]));
    CHECK(ranks.agree(model->parameters()[0]));
    plain_step<torch::optim::AdamW>(ranks)(model, optimizer, 1);
    CHECK(ranks.agree(model->parameters()[0]));
}

TEST_CASE("NodeStep.small_models_are_stepped_by_each_rank") {
    Ranks ranks;
    auto model = ranks.prepare(make_wide());
    auto optimizer = prepared(torch::optim::AdamW(model->parameters(), 1e-2), model);
    plain_step<torch::optim::AdamW>(ranks)(model, optimizer, 0);
    CHECK_FALSE(is_shared(model->parameters()[0]));
}

TEST_CASE("NodeStep.parameters_in_other_memory_are_stepped_by_each_rank") {
    Ranks ranks;
    const auto train = [&](bool moves) {
        auto module = make_wide();
        if (moves) {
            const torch::NoGradGuard no_grad;
            auto parameter = module->parameters()[0];
            const auto kept = parameter.detach().clone();
            parameter.set_data(torch::from_blob(
                kept.data_ptr(), kept.sizes(), [kept](void* /*data*/) {}, kept.options()));
        }
        auto model = ranks.prepare(module, {.step_together = true});
        auto optimizer = prepared(torch::optim::AdamW(model->parameters(), 1e-2), model);
        for (int i = 0; i < 3; ++i) {
            plain_step<torch::optim::AdamW>(ranks)(model, optimizer, i);
        }
        const bool shares = ranks.mpi->local_size() > 1;
        CHECK(is_shared(module->parameters()[0]) == (shares && !moves));
        CHECK(is_shared(module->parameters()[2]) == shares);
        return module;
    };
    require_same_parameters(*train(false), *train(true));
    ranks.mpi->barrier();
}
