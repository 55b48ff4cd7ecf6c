// SPDX-License-Identifier: Apache-2.0
// prepare(model, {.check_gradients = true}): all ranks throw in the pass in which an averaged
// gradient is not finite.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/model/reduction/finite.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

namespace finite_test {

using namespace rtrain;
using test::Ranks;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Parameters whose gradients are what forward is given.
struct ThreeImpl : torch::nn::Module {
    explicit ThreeImpl(torch::ScalarType type = torch::kFloat) {
        for (const char* name : {"one", "two", "three"}) {
            all.push_back(register_parameter(name, torch::ones({60, 50}, type)));
        }
    }
    /// The loss whose gradient is `values[i]` in the last element of parameter i, 1 in the others.
    torch::Tensor forward(const std::vector<double>& values) {
        auto loss = torch::zeros({}, torch::kDouble);
        for (std::size_t i = 0; i < values.size(); ++i) {
            auto factor = torch::ones_like(all[i]);
            factor[-1][-1] = values[i];
            loss = loss + (all[i] * factor).sum().to(torch::kDouble);
        }
        return loss;
    }
    std::vector<torch::Tensor> all;
};

/// What backward throws, as "code: message"; empty when it does not.
template <class Model>
std::string backward(Model& model, const std::vector<double>& values) {
    const auto loss = model(values);
    try {
        loss.backward();
        return "";
    } catch (const ModelError& error) {
        return error.code() + ": " + error.what();
    }
}

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

const std::vector<double> good{1, 1, 1};

} // namespace

TEST_CASE("Finite.one_bad_element_is_found_wherever_it_is") {
    for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16,
                            torch::kComplexFloat, torch::kComplexDouble}) {
        CAPTURE(type);
        const auto real = c10::toRealValueType(type);
        const auto limits = torch::tensor({real == torch::kHalf     ? 65504.0
                                           : real == torch::kDouble ? 1.7e308
                                                                    : 3.38e38,
                                           real == torch::kHalf ? 6e-8 : 1e-45, -0.0},
                                          real);
        CHECK(rtrain::detail::all_finite(limits));
        CHECK(rtrain::detail::all_finite(torch::empty({0}, type)));
        for (const std::int64_t elements : {1, 33, 4096, 10001}) {
            CAPTURE(elements);
            auto tensor = torch::full({elements}, -3.5, type);
            CHECK(rtrain::detail::all_finite(tensor));
            for (const std::int64_t place : {std::int64_t{0}, elements / 2, elements - 1}) {
                for (const double bad : {not_a_number, infinity, -infinity}) {
                    tensor[place] = bad;
                    CHECK_FALSE(rtrain::detail::all_finite(tensor));
                    CHECK_FALSE(rtrain::detail::all_finite(torch::stack({tensor, tensor}).t()));
                    tensor[place] = 1;
                }
            }
            CHECK(rtrain::detail::all_finite(tensor));
        }
        auto gaps = torch::ones({8, 8}, type);
        gaps[0][7] = not_a_number;
        CHECK(rtrain::detail::all_finite(gaps.slice(1, 0, 7)));
        CHECK_FALSE(rtrain::detail::all_finite(gaps.slice(1, 1, 8)));
    }
}

TEST_CASE("CheckGradients.all_ranks_throw_in_the_same_pass_and_can_go_on") {
    Ranks ranks;
    for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kDouble}) {
        for (const int culprit : std::set{0, ranks.size() - 1}) {
            for (const bool view : {true, false}) {
                CAPTURE(type);
                CAPTURE(culprit);
                CAPTURE(view);
                auto module = std::make_shared<ThreeImpl>(type);
                auto model = ranks.prepare(
                    module, {.gradient_as_bucket_view = view, .check_gradients = true});
                torch::optim::SGD optimizer(module->parameters(), 0.125);
                const auto pass = [&](double bad) {
                    optimizer.zero_grad();
                    const auto error =
                        backward(model, ranks.rank() == culprit
                                            ? std::vector<double>{1, bad, std::isnan(bad) ? bad : 1}
                                            : good);
                    if (error.empty()) {
                        optimizer.step();
                    }
                    return error;
                };
                CHECK(pass(1).empty());
                CHECK(pass(1).empty());
                const std::string undefined = pass(not_a_number);
                CHECK(holds(undefined, "RT-M21: "));
                CHECK(holds(undefined, "\"two\" holds NaN after backward pass 3 "));
                const std::string infinite = pass(-infinity);
                CHECK(holds(infinite, "\"two\" holds an infinity after backward pass 4 "));
                for (const auto& parameter : module->parameters()) {
                    CHECK(parameter.eq(0.75).all().item<bool>());
                }
                CHECK(pass(1).empty());
                for (const auto& parameter : module->parameters()) {
                    CHECK(parameter.eq(0.625).all().item<bool>());
                    CHECK(parameter.grad().eq(1).all().item<bool>());
                }
            }
        }
    }
}

TEST_CASE("CheckGradients.is_off_unless_asked_for") {
    Ranks ranks;
    auto module = std::make_shared<ThreeImpl>();
    auto model = ranks.prepare(module);
    CHECK(backward(model, {1, not_a_number, 1}).empty());
    CHECK(module->all[1].grad()[-1][-1].isnan().item<bool>());
}

TEST_CASE("CheckGradients.sees_what_was_accumulated_when_it_is_averaged") {
    Ranks ranks;
    for (const auto order : {ReductionOrder::ranks, ReductionOrder::micro_batches}) {
        CAPTURE(static_cast<int>(order));
        auto module = std::make_shared<ThreeImpl>();
        auto model = ranks.prepare(module, {.reduction_order = order, .check_gradients = true});
        const auto step = [&](double first) {
            module->zero_grad();
            {
                const auto guard = model.no_sync();
                CHECK(backward(model, {first, 1, 1}).empty());
            }
            return backward(model, good);
        };
        CHECK(step(1).empty());
        CHECK(holds(step(ranks.rank() == 0 ? infinity : 1),
                    "\"one\" holds an infinity after backward pass 2 "));
        CHECK(step(1).empty());
        CHECK(module->all[0].grad().eq(2).all().item<bool>());
    }
}

TEST_CASE("CheckGradients.ignores_gradients_that_no_rank_has_brought") {
    Ranks ranks;
    auto module = std::make_shared<ThreeImpl>();
    auto model = ranks.prepare(
        module, {.find_unused_parameters = ranks.size() > 1, .check_gradients = true});
    const bool last = ranks.rank() == ranks.size() - 1;
    module->all[2].mutable_grad() = torch::full({60, 50}, not_a_number); // stays what it was
    CHECK(backward(model, {1, 1}).empty());
    CHECK(module->all[2].grad().isnan().all().item<bool>());
    module->zero_grad();
    CHECK(holds(
        backward(model, last ? std::vector<double>{1, 1, not_a_number} : std::vector<double>{1, 1}),
        "\"three\" holds NaN after backward pass 2 "));
    module->zero_grad();
    CHECK(backward(model, {1, 1}).empty());
    CHECK_FALSE(module->all[2].grad().defined());
}

TEST_CASE("CheckGradients.looks_at_what_a_hook_has_made_of_them") {
    Ranks ranks;
    const std::vector<Hook> hooks{hook::Float16{}, hook::BFloat16{},
                                  hook::PowerSgd{.start_iteration = 0, .min_compression_rate = 1}};
    for (const Hook& hook : hooks) {
        CAPTURE(hook.index());
        auto module = std::make_shared<ThreeImpl>();
        auto model = ranks.prepare(module, {.hook = hook, .check_gradients = true});
        CHECK(backward(model, good).empty());
        module->zero_grad();
        CHECK(holds(
            backward(model, ranks.rank() == 0 ? std::vector<double>{not_a_number, 1, 1} : good),
            "\"one\" holds NaN after backward pass 2 "));
        module->zero_grad();
        CHECK(backward(model, good).empty());
        module->zero_grad();
        // More than float16 can hold.
        const bool overflows = std::holds_alternative<hook::Float16>(hook) && ranks.size() > 1;
        CHECK(holds(backward(model, {1e6, 1, 1}), "holds an infinity") == overflows);
    }
}

} // namespace finite_test
