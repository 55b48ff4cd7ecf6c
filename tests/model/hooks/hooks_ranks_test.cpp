// SPDX-License-Identifier: Apache-2.0
// Communication hooks against what their definition gives in one process, and gradient clipping
// against torch's.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <torch/nn/utils/clip_grad.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace rtrain;
using test::Ranks;

namespace {

/// Parameters without a forward: a test sets gradients by loss = sum of parameter * wanted.
struct BagImpl : torch::nn::Module {
    BagImpl() {
        torch::manual_seed(7);
        wide = register_parameter("wide", torch::randn({12, 40}));
        conv = register_parameter("conv", torch::randn({16, 4, 3, 3}));
        turned = register_parameter("turned", torch::randn({30, 20}).t());
        bias = register_parameter("bias", torch::randn({17}));
        tiny = register_parameter("tiny", torch::randn({2, 2}));
        precise = register_parameter("precise", torch::randn({20, 20}, torch::kDouble));
    }
    torch::Tensor forward(const std::vector<torch::Tensor>& wanted) {
        torch::Tensor loss = torch::zeros({}, torch::kDouble);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            loss = loss + (parameters()[i] * wanted[i]).sum();
        }
        return loss;
    }
    torch::Tensor wide, conv, turned, bias, tiny, precise;
};

/// Gradients of one rank in one step, the same wherever they are computed.
std::vector<torch::Tensor> wanted(const BagImpl& bag, int rank, int step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 * step + rank));
    std::vector<torch::Tensor> all;
    for (const auto& parameter : bag.parameters()) {
        all.push_back(torch::randn_like(parameter));
    }
    return all;
}

std::vector<torch::Tensor> mean_wanted(const BagImpl& bag, int size, int step) {
    auto sum = wanted(bag, 0, step);
    for (int rank = 1; rank < size; ++rank) {
        const auto more = wanted(bag, rank, step);
        for (std::size_t i = 0; i < sum.size(); ++i) {
            sum[i] += more[i];
        }
    }
    for (auto& tensor : sum) {
        tensor /= size;
    }
    return sum;
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>();
}

} // namespace

TEST_CASE("Hooks.half_types_round_to_their_precision") {
    Ranks ranks;
    struct Case {
        Hook hook;
        double precision;
    };
    for (const auto& [hook, precision] :
         {Case{hook::Float16{}, 1.0 / 1024}, Case{hook::BFloat16{}, 1.0 / 128}}) {
        for (const bool view : {true, false}) {
            auto bag = std::make_shared<BagImpl>();
            auto model = ranks.prepare(
                bag, {.first_bucket_bytes = 3000, .gradient_as_bucket_view = view, .hook = hook});
            for (int step = 0; step < 3; ++step) {
                bag->zero_grad();
                model(wanted(*bag, ranks.rank(), step)).backward();
                const auto exact = mean_wanted(*bag, ranks.size(), step);
                for (std::size_t i = 0; i < exact.size(); ++i) {
                    const auto gradient = bag->parameters()[i].grad();
                    CHECK((gradient.scalar_type() == exact[i].scalar_type()));
                    CHECK(distance(gradient, exact[i]) < precision);
                    CHECK(ranks.agree(gradient));
                    // The values have travelled in the small type, where there was a way to go.
                    if (ranks.size() > 1) {
                        CHECK(distance(gradient, exact[i]) > precision / 1000);
                    }
                }
            }
        }
    }
}

TEST_CASE("Hooks.power_sgd_is_exact_at_first_and_at_full_rank") {
    Ranks ranks;
    for (const std::int64_t start : {2, 0}) {
        auto bag = std::make_shared<BagImpl>();
        auto model = ranks.prepare(
            bag, {.hook = hook::PowerSgd{.rank = start == 0 ? 100 : 1,
                                         .start_iteration = start,
                                         .min_compression_rate = start == 0 ? 0.01 : 2}});
        for (int step = 0; step < 2; ++step) {
            bag->zero_grad();
            model(wanted(*bag, ranks.rank(), step)).backward();
            const auto exact = mean_wanted(*bag, ranks.size(), step);
            for (std::size_t i = 0; i < exact.size(); ++i) {
                CHECK(distance(bag->parameters()[i].grad(), exact[i]) < 2e-6);
            }
        }
    }
}

TEST_CASE("Hooks.power_sgd_gives_what_the_paper_defines") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return; // nothing is sent
    }
    for (const bool feedback : {true, false}) {
        for (const std::int64_t rank : {1, 3}) {
            const hook::PowerSgd options{.rank = rank,
                                         .start_iteration = 0,
                                         .min_compression_rate = 1.5,
                                         .use_error_feedback = feedback};
            auto bag = std::make_shared<BagImpl>();
            auto model = ranks.prepare(bag, {.hook = options});

            // All ranks in this process. The first Q is not known from outside, but one step of
            // power iteration leaves M Q Q' for it, so it is read back from the first result.
            const auto n = static_cast<double>(ranks.size());
            std::vector<torch::Tensor> q; // by parameter, undefined where not compressed
            std::vector<std::vector<torch::Tensor>> errors(static_cast<std::size_t>(ranks.size()));
            for (int step = 0; step < 4; ++step) {
                bag->zero_grad();
                model(wanted(*bag, ranks.rank(), step)).backward();
                for (std::size_t i = 0; i < bag->parameters().size(); ++i) {
                    const auto gradient = bag->parameters()[i].grad();
                    CHECK(ranks.agree(gradient));
                    const bool turned = i == 2;
                    const auto matrix = [&](const torch::Tensor& tensor) {
                        return (turned ? tensor.t() : tensor).flatten(1).to(torch::kDouble);
                    };
                    if (gradient.dim() < 2 || gradient.numel() < 10 ||
                        gradient.scalar_type() == torch::kDouble) {
                        continue; // below
                    }
                    torch::Tensor mean;
                    std::vector<torch::Tensor> fed;
                    for (int other = 0; other < ranks.size(); ++other) {
                        auto& own = errors[static_cast<std::size_t>(other)];
                        own.resize(bag->parameters().size());
                        auto m = matrix(wanted(*bag, other, step)[i]);
                        if (feedback && own[i].defined()) {
                            m += own[i];
                        }
                        fed.push_back(m);
                        mean = mean.defined() ? mean + m / n : m / n;
                    }
                    const auto ours = matrix(gradient);
                    q.resize(bag->parameters().size());
                    if (q[i].defined()) {
                        const auto p = std::get<0>(
                            torch::linalg_qr(mean.mm(std::get<0>(torch::linalg_qr(q[i])))));
                        q[i] = mean.t().mm(p);
                        CHECK(distance(ours, p.mm(q[i].t())) < 1e-4);
                    } else { // a projection of the mean on `rank` directions
                        const auto p = std::get<0>(torch::linalg_svd(ours, false))
                                           .slice(1, 0, rank)
                                           .contiguous();
                        q[i] = mean.t().mm(p);
                        CHECK(distance(ours, p.mm(q[i].t())) < 1e-4);
                        CHECK(distance(ours, mean) > 0.1);
                    }
                    for (std::size_t other = 0; other < fed.size(); ++other) {
                        errors[other][i] = fed[other] - ours;
                    }
                }
                const auto exact = mean_wanted(*bag, ranks.size(), step);
                CHECK(distance(bag->bias.grad(), exact[3]) < 1e-6);
                CHECK(distance(bag->tiny.grad(), exact[4]) < 1e-6);
            }
        }
    }
}

TEST_CASE("Hooks.power_sgd_converges_with_error_feedback") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return;
    }
    // A gradient of full rank that stays the same: what is left out must be made up for later.
    struct TargetImpl : torch::nn::Module {
        torch::Tensor weight = register_parameter("weight", torch::zeros({16, 16}));
        torch::Tensor forward(const torch::Tensor& target) {
            return (weight - target).square().sum() / 2;
        }
    };
    torch::manual_seed(5);
    const auto target = torch::randn({16, 16});
    const auto mine = target + (ranks.rank() - (ranks.size() - 1) / 2.0); // target on average
    double left[2];
    for (const bool feedback : {false, true}) {
        auto module = std::make_shared<TargetImpl>();
        auto model = ranks.prepare(module, {.hook = hook::PowerSgd{.rank = 1,
                                                                   .start_iteration = 0,
                                                                   .use_error_feedback = feedback,
                                                                   .warm_start = true}});
        torch::optim::SGD optimizer(module->parameters(), 0.05);
        for (int step = 0; step < 300; ++step) {
            optimizer.zero_grad();
            model(mine).backward();
            optimizer.step();
        }
        left[feedback] = distance(module->weight.detach(), target);
        CHECK(ranks.agree(module->weight));
    }
    CHECK(left[1] < 0.01);
    CHECK(left[0] > 2 * left[1]);
}

TEST_CASE("Hooks.power_sgd_recovers_from_infinite_and_zero_gradients") {
    Ranks ranks;
    auto bag = std::make_shared<BagImpl>();
    auto model = ranks.prepare(bag, {.hook = hook::PowerSgd{.rank = 2, .start_iteration = 0}});
    for (int step = 0; step < 4; ++step) {
        bag->zero_grad();
        auto mine = wanted(*bag, ranks.rank(), step);
        if (step == 1) {
            mine[0][3][4] = std::numeric_limits<float>::infinity();
        }
        if (step == 2) {
            mine[0].zero_();
        }
        model(mine).backward();
        const bool finite = bag->wide.grad().isfinite().all().item<bool>();
        CHECK(finite == (step != 1));
        if (step == 2) {
            CHECK(bag->wide.grad().abs().max().item<double>() < 1e-5);
        }
    }
}

TEST_CASE("Hooks.wrong_options_are_an_error") {
    Ranks ranks;
    const auto code = [&](const DataParallelOptions& options) {
        return test::code_of([&] { (void)ranks.prepare(std::make_shared<BagImpl>(), options); });
    };
    CHECK(code({.hook = hook::PowerSgd{.rank = 0}}) == "RT-C11");
    CHECK(code({.hook = hook::PowerSgd{.min_compression_rate = std::nan("")}}) == "RT-C11");
    CHECK(code({.hook = hook::Float16{}, .reduction_order = ReductionOrder::micro_batches}) ==
          "RT-C12");
    if (ranks.size() > 1) {
        const auto message = test::message_of([&] {
            (void)ranks.prepare(std::make_shared<BagImpl>(),
                                {.hook = hook::PowerSgd{.rank = ranks.rank() == 0 ? 1 : 2}});
        });
        CHECK(test::contains(message, "RT-M2"));
        CHECK(test::contains(message, "the option `rank 2` against `rank 1`"));
    }
}

TEST_CASE("Clip.equals_torchs_on_averaged_gradients") {
    Ranks ranks;
    const double infinity = std::numeric_limits<double>::infinity();
    for (const bool view : {true, false}) {
        for (const double norm_type : {2.0, 1.0, 3.0, infinity}) {
            for (const double max_norm : {0.5, 1e6}) {
                auto bag = std::make_shared<BagImpl>();
                auto reference = std::make_shared<BagImpl>();
                auto model = ranks.prepare(bag, {.first_bucket_bytes = 3000,
                                                 .find_unused_parameters = true,
                                                 .gradient_as_bucket_view = view});
                auto mine = wanted(*bag, ranks.rank(), 0);
                mine.pop_back(); // `precise` has no gradient
                model(mine).backward();
                reference->forward(mean_wanted(*bag, ranks.size(), 0)).backward();
                reference->precise.mutable_grad() = torch::Tensor();
                const double expected =
                    torch::nn::utils::clip_grad_norm_(reference->parameters(), max_norm, norm_type);
                const double norm = model.clip_grad_norm_(max_norm, norm_type);
                CHECK(norm == doctest::Approx(expected).epsilon(1e-5));
                CHECK(ranks.agree(torch::tensor({norm}, torch::kDouble)));
                CHECK(!bag->precise.grad().defined());
                for (std::size_t i = 0; i + 1 < bag->parameters().size(); ++i) {
                    CHECK(distance(bag->parameters()[i].grad(), reference->parameters()[i].grad()) <
                          1e-6);
                    CHECK(ranks.agree(bag->parameters()[i].grad()));
                }
            }
        }
    }
}

TEST_CASE("Clip.of_non_finite_gradients_and_impossible_norms") {
    Ranks ranks;
    auto bag = std::make_shared<BagImpl>();
    auto model = ranks.prepare(bag);
    CHECK(model.clip_grad_norm_(1) == 0); // no gradients yet
    auto mine = wanted(*bag, ranks.rank(), 0);
    if (ranks.rank() == 0) {
        mine[0][0][0] = std::numeric_limits<float>::infinity();
    }
    model(mine).backward();
    CHECK(test::code_of([&] { model.clip_grad_norm_(1, 2, true); }) == "RT-M6");
    CHECK(bag->bias.grad().norm().item<double>() > 0.1); // as they were
    CHECK(std::isinf(model.clip_grad_norm_(1)));
    CHECK(bag->bias.grad().norm().item<double>() == 0); // as torch: scaled by 1 / infinity
    CHECK(test::code_of([&] { model.clip_grad_norm_(1, 0); }) == "RT-C11");
    CHECK(test::code_of([&] { model.clip_grad_norm_(-1); }) == "RT-C11");
}

TEST_CASE("Clip.of_large_and_sparse_gradients") {
    Ranks ranks;
    struct WordsImpl : torch::nn::Module {
        torch::nn::Embedding words = register_module(
            "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(1000, 1000).sparse(true)));
        torch::Tensor forward(const torch::Tensor& x) { return words(x); }
    };
    auto module = std::make_shared<WordsImpl>();
    auto model = ranks.prepare(module);
    const auto ids = torch::arange(990).repeat({2});
    model(ids).sum().backward(); // every element of 990 rows is 2
    CHECK(model.clip_grad_norm_(1) == doctest::Approx(2 * std::sqrt(990e3)).epsilon(1e-7));
    CHECK(module->words->weight.grad().to_dense().to(torch::kDouble).norm().item<double>() ==
          doctest::Approx(1).epsilon(1e-6));
}
