// SPDX-License-Identifier: Apache-2.0
// ReductionOrder::micro_batches: on 1, 2 and 4 ranks the bits of one binary tree, which each
// process also computes on its own.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <doctest/doctest.h>

using namespace rtrain;
using test::Ranks;

namespace {

constexpr int micro_batches = 8;

struct TwoWaysImpl : torch::nn::Module {
    TwoWaysImpl() {
        torch::manual_seed(11);
        first = register_module("first", torch::nn::Linear(6, 9));
        even = register_module("even", torch::nn::Linear(9, 3));
        odd = register_module("odd", torch::nn::Linear(9, 3));
        nobody = register_parameter("nobody", torch::ones({3}));
    }
    /// Every second micro-batch leaves parameters out.
    torch::Tensor forward(int number) {
        torch::manual_seed(static_cast<std::uint64_t>(1000 + number));
        const auto hidden = torch::tanh(first(torch::randn({5, 6})));
        return (number % 2 == 0 ? even(hidden) : odd(hidden)).square().mean();
    }
    torch::nn::Linear first{nullptr}, even{nullptr}, odd{nullptr};
    torch::Tensor nobody; ///< the first of parameters(); index 1 is first->weight
};

/// Gradients of every micro-batch of a step; zeros for parameters that it leaves out.
std::vector<std::vector<torch::Tensor>> leaves(TwoWaysImpl& module, int step) {
    std::vector<std::vector<torch::Tensor>> all;
    for (int i = 0; i < micro_batches; ++i) {
        module.zero_grad();
        module.forward(step * micro_batches + i).backward();
        all.emplace_back();
        for (const auto& parameter : module.parameters()) {
            all.back().push_back(parameter.grad().defined() ? parameter.grad().clone()
                                                            : torch::zeros_like(parameter));
        }
    }
    module.zero_grad();
    return all;
}

std::vector<torch::Tensor> add(const std::vector<torch::Tensor>& a,
                               const std::vector<torch::Tensor>& b) {
    std::vector<torch::Tensor> sum;
    for (std::size_t i = 0; i < a.size(); ++i) {
        sum.push_back(a[i] + b[i]);
    }
    return sum;
}

std::vector<torch::Tensor> tree(const std::vector<std::vector<torch::Tensor>>& all,
                                std::size_t begin, std::size_t end) {
    if (end - begin == 1) {
        return all[begin];
    }
    const std::size_t middle = (begin + end) / 2;
    return add(tree(all, begin, middle), tree(all, middle, end));
}

} // namespace

TEST_CASE("Order.by_micro_batch_gives_the_bits_of_one_tree_on_1_2_and_4_ranks") {
    Ranks ranks;
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    for (const bool view : {true, false}) {
        for (const bool set_to_none : {true, false}) {
            auto module = std::make_shared<TwoWaysImpl>();
            auto reference = std::make_shared<TwoWaysImpl>();
            auto model = ranks.prepare(module, {.first_bucket_bytes = 100,
                                                .find_unused_parameters = true,
                                                .gradient_as_bucket_view = view,
                                                .reduction_order = ReductionOrder::micro_batches});
            const bool power_of_two = ranks.size() != 3;
            const int passes = power_of_two ? micro_batches / ranks.size() : 2;
            torch::optim::SGD mine(module->parameters(), torch::optim::SGDOptions(0.5));
            torch::optim::SGD theirs(reference->parameters(), torch::optim::SGDOptions(0.5));
            for (int step = 0; step < 3; ++step) {
                const auto all = leaves(*reference, step);
                auto expected = tree(all, 0, all.size());
                auto in_turn = all[0];
                for (std::size_t i = 1; i < all.size(); ++i) {
                    in_turn = add(in_turn, all[i]);
                }
                CHECK(!in_turn[1].equal(expected[1])); // else nothing would be shown

                mine.zero_grad(set_to_none);
                const int begin = step * micro_batches + ranks.rank() * passes;
                {
                    const auto guard = model.no_sync();
                    for (int pass = 0; pass + 1 < passes; ++pass) {
                        (model(begin + pass) / passes).backward();
                        CHECK(!module->first->weight.grad().defined());
                    }
                }
                (model(begin + passes - 1) / passes).backward();

                CHECK(!module->nobody.grad().defined());
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    CAPTURE(module->named_parameters()[i].key());
                    auto parameter = reference->parameters()[i];
                    parameter.mutable_grad() = expected[i] / micro_batches;
                    const auto gradient = module->parameters()[i].grad();
                    if (gradient.defined()) {
                        CHECK(ranks.agree(gradient));
                        CHECK((!power_of_two || gradient.equal(parameter.grad())));
                    }
                }
                if (power_of_two) {
                    mine.step();
                    theirs.step();
                }
            }
        }
    }
    at::set_num_threads(threads);
}

TEST_CASE("Order.by_micro_batch_is_a_mean_over_any_number_of_ranks_and_passes") {
    Ranks ranks;
    auto module = std::make_shared<TwoWaysImpl>();
    auto model = ranks.prepare(
        module, {.find_unused_parameters = true, .reduction_order = ReductionOrder::micro_batches});
    auto reference = std::make_shared<TwoWaysImpl>();
    const auto all = leaves(*reference, 0);
    for (const int passes : {1, 3, 5}) {
        module->zero_grad();
        {
            const auto guard = model.no_sync();
            for (int pass = 0; pass + 1 < passes; ++pass) {
                model(pass).backward();
            }
        }
        model(passes - 1 + ranks.rank()).backward();
        // Ranks differ in the last pass only.
        auto expected = torch::zeros_like(all[0][1]);
        for (int pass = 0; pass + 1 < passes; ++pass) {
            expected += all[static_cast<std::size_t>(pass)][1];
        }
        for (int rank = 0; rank < ranks.size(); ++rank) {
            expected += all[static_cast<std::size_t>(passes - 1 + rank)][1] / ranks.size();
        }
        CHECK(torch::allclose(module->parameters()[1].grad(), expected, 1e-5, 1e-7));
    }
}
