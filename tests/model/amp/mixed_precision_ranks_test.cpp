// SPDX-License-Identifier: Apache-2.0
// Autocast and loss scaling.
#include "support/capture.hpp"
#include "support/mixed_precision.hpp"
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/data/batch/each_tensor.hpp>
#include <rtrain/model/amp/grad_scaler.hpp>
#include <rtrain/process/context.hpp>

#include <ATen/autocast_mode.h>

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::Ranks;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Records what its layers compute in.
struct PairImpl : torch::nn::Module {
    std::tuple<torch::Tensor, std::vector<torch::Tensor>> forward(const torch::Tensor& x) {
        const auto y = linear(x);
        type = y.scalar_type();
        return {y, {y, torch::ones({2}, torch::kLong)}};
    }
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 2));
    torch::ScalarType type = torch::kByte;
};

/// The losses of one pass over 960 rows in batches of 24, averaged over ranks, last ten.
double train(Ranks& ranks, const DataParallelOptions& options, bool scaled) {
    torch::manual_seed(2);
    test::Net net;
    auto model = ranks.prepare(net.ptr(), options);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    GradScaler scaler({.enabled = scaled});
    const auto rows = test::fashion_mnist(960);
    auto sum = torch::zeros({1}, torch::kDouble);
    for (int step = 0; step < 40; ++step) {
        auto batch =
            rows.rows(torch::arange(24 * step + ranks.rank(), 24 * (step + 1), ranks.size()));
        optimizer.zero_grad();
        const auto output = model(batch["image"]);
        CHECK((output.scalar_type() == torch::kFloat));
        const auto loss = torch::cross_entropy_loss(output, batch["label"]);
        scaler.scale(loss).backward();
        scaler.step(optimizer);
        scaler.update();
        if (step >= 30) {
            sum += loss.detach() / 10;
        }
    }
    CHECK(ranks.agree(test::flat(*net)));
    CHECK((net->in->weight.scalar_type() == torch::kFloat));
    ranks.mpi->all_reduce(sum, ReduceOp::mean);
    return sum.item<double>();
}

} // namespace

TEST_CASE("GradScaler.refuses_options_that_no_scale_can_follow") {
    for (const GradScalerOptions& options :
         {GradScalerOptions{.init_scale = 0}, GradScalerOptions{.growth_factor = 0.5},
          GradScalerOptions{.backoff_factor = 2}, GradScalerOptions{.growth_interval = 0},
          GradScalerOptions{.min_scale = -1}, GradScalerOptions{.init_scale = 1e39}}) {
        CHECK(test::code_of([&] { GradScaler{options}; }) == "RT-C11");
    }
}

TEST_CASE("GradScaler.trains_as_in_python_with_autocast_and_clipping") {
    namespace mixed_precision = test::mixed_precision;
    Ranks ranks;
    for (const auto& [type, name] : mixed_precision::types) {
        CAPTURE(name);
        const auto train = [&, type = type] {
            return mixed_precision::figures_of(
                type, at::kCPU, [&](const mixed_precision::Net& net, const auto& options) {
                    return ranks.prepare(net.ptr(), options);
                });
        };
        const auto figures = train();
        CHECK(mixed_precision::same_bits(train(), figures));
        CHECK(mixed_precision::difference_from(RTRAIN_TEST_DATA "/mixed_precision/cpu.txt", name,
                                               figures) < 1e-6);
    }
}

TEST_CASE("Autocast.runs_forward_in_16_bits_and_returns_float32") {
    Ranks ranks;
    const auto module = std::make_shared<PairImpl>();
    for (const auto type : {torch::kBFloat16, torch::kHalf}) {
        auto model = ranks.prepare(module, {.autocast = type});
        const auto [y, parts] = model(torch::ones({3, 4}));
        CHECK((module->type == type));
        CHECK((y.scalar_type() == torch::kFloat));
        CHECK((parts[0].scalar_type() == torch::kFloat));
        CHECK((parts[1].scalar_type() == torch::kLong));
        // Behind it, and in a model prepared without it, nothing has changed.
        CHECK((torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type() == torch::kFloat));
        auto plain = ranks.prepare(std::make_shared<PairImpl>());
        (void)plain(torch::ones({3, 4}));
        CHECK((plain->type == torch::kFloat));
    }
    auto wrong = ranks.prepare(module, {.autocast = torch::kDouble});
    CHECK(code_of([&] { (void)wrong(torch::ones({3, 4})); }) == "RT-M17");
}

TEST_CASE("Autocast.nests_and_sees_new_parameters") {
    const auto product = [](const torch::Tensor& a) { return torch::mm(a, torch::ones({2, 2})); };
    auto parameter = torch::ones({2, 2}).requires_grad_();
    {
        const Autocast outer(torch::kBFloat16);
        CHECK((product(parameter).scalar_type() == torch::kBFloat16));
        {
            const Autocast inner(torch::kHalf);
            CHECK((product(parameter).scalar_type() == torch::kHalf));
        }
        CHECK((product(parameter).scalar_type() == torch::kBFloat16));
    }
    CHECK((product(parameter).scalar_type() == torch::kFloat));
    {
        const torch::NoGradGuard no_grad;
        parameter.fill_(3); // as an optimizer does between two forwards
    }
    const Autocast again(torch::kBFloat16);
    CHECK(product(parameter)[0][0].item<double>() == 6);
}

TEST_CASE("Autocast.trains_to_nearly_the_loss_of_float32") {
    Ranks ranks;
    const double expected = train(ranks, {}, false);
    CHECK(expected < 1.5); // it does learn: chance is 2.3
    CHECK(train(ranks, {}, true) == doctest::Approx(expected).epsilon(1e-4));
    const double bfloat16 = train(ranks, {.autocast = torch::kBFloat16}, false);
    const double half = train(ranks, {.autocast = torch::kHalf}, true);
    CHECK(bfloat16 == doctest::Approx(expected).epsilon(0.02));
    CHECK(half == doctest::Approx(expected).epsilon(0.02));
    CHECK(bfloat16 != expected); // autocast was at work
    CHECK(half != expected);
}

namespace {

/// The scales after steps whose gradients are finite ('.'), infinite ('i') or NaN ('n').
std::vector<float> scales_of(const std::string& steps, const GradScalerOptions& options) {
    GradScaler scaler(options);
    auto weight = torch::ones({2}).requires_grad_();
    torch::optim::SGD optimizer({weight}, 1.0);
    std::vector<float> scales;
    for (const char step : steps) {
        const auto before = weight.detach().clone();
        const double scale = scaler.current_scale();
        weight.mutable_grad() = torch::tensor({scale, step == 'i'   ? -infinity
                                                      : step == 'n' ? std::nan("")
                                                                    : scale},
                                              torch::kFloat);
        CHECK(scaler.step(optimizer) == (step == '.'));
        CHECK(weight.detach().allclose(before - (step == '.' ? 1 : 0))); // unscaled, or left alone
        scaler.update();
        scales.push_back(static_cast<float>(scaler.current_scale()));
    }
    return scales;
}

} // namespace

TEST_CASE("GradScaler.scales_as_in_python") {
    // What get_scale() of torch.amp.GradScaler("cpu", ...) gives, PyTorch 2.13.
    CHECK(scales_of("..i....n......ii...", {.growth_interval = 3}) ==
          std::vector<float>{65536, 65536, 32768, 32768, 32768, 65536, 65536, 32768, 32768, 32768,
                             65536, 65536, 65536, 131072, 65536, 32768, 32768, 32768, 65536});
    CHECK(scales_of("....", {.init_scale = 0x1p126, .growth_interval = 1}) ==
          std::vector<float>{0x1p127F, 0x1p127F, 0x1p127F, 0x1p127F});
    CHECK(scales_of(".i.i.", {.init_scale = 1000,
                              .growth_factor = 1.7,
                              .backoff_factor = 0.3,
                              .growth_interval = 1}) ==
          std::vector<float>{1700, 510, 867, 260.100006F, 442.170013F});
}

TEST_CASE("GradScaler.gives_up_when_no_scale_helps") {
    CHECK(scales_of("nnn.", {.init_scale = 4, .min_scale = 0.5}) ==
          std::vector<float>{2, 1, 0.5F, 0.5F});
    CHECK(code_of([] { scales_of("nini", {.init_scale = 4, .min_scale = 0.5}); }) == "RT-M22");
    CHECK(scales_of(std::string(35, 'n'), {}).back() == 0x1p-19F);
    CHECK(code_of([] { scales_of(std::string(36, 'n'), {}); }) == "RT-M22");
    CHECK(scales_of(std::string(40, 'n'), {.min_scale = 0}).back() == 0x1p-24F);
}

TEST_CASE("GradScaler.one_ranks_overflow_is_everybodys") {
    Ranks ranks;
    for (const double bad : {infinity, -infinity, std::nan("")}) {
        auto module = std::make_shared<torch::nn::LinearImpl>(3, 2);
        auto model = ranks.prepare(module);
        torch::optim::SGD optimizer(module->parameters(), 0.1);
        GradScaler scaler;
        for (int step = 0; step < 4; ++step) {
            const auto before = test::flat(*module);
            auto input = torch::ones({4, 3});
            const int culprit = step % 2 == 0 ? -1 : ranks.size() - 1;
            if (ranks.rank() == culprit) {
                input[0][0] = bad;
            }
            optimizer.zero_grad();
            scaler.scale(model(input).sum()).backward();
            CHECK(scaler.step(optimizer) == (culprit < 0));
            scaler.update();
            CHECK(test::flat(*module).equal(before) == (culprit >= 0));
            CHECK(ranks.agree(test::flat(*module)));
        }
        CHECK(scaler.current_scale() == 16384);
    }
}

TEST_CASE("GradScaler.unscales_once_for_code_between") {
    auto dense = torch::ones({3}).requires_grad_();
    auto wide = torch::ones({2}, torch::kDouble).requires_grad_();
    torch::nn::Embedding words(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    torch::optim::SGD optimizer({dense, wide, words->weight}, 1.0);
    torch::optim::SGD other({torch::ones({1}).requires_grad_()}, 1.0);
    GradScaler scaler({.init_scale = 1024});
    const auto loss = (dense * 2).sum() + (wide * 3).sum() + words(torch::tensor({1, 1})).sum();
    scaler.scale(loss).backward();
    CHECK(dense.grad()[0].item<double>() == 2048);
    scaler.unscale_(optimizer);
    CHECK(dense.grad().eq(2).all().item<bool>());
    CHECK(wide.grad().eq(3).all().item<bool>());
    CHECK(words->weight.grad().to_dense()[1].eq(2).all().item<bool>());
    CHECK(code_of([&] { scaler.unscale_(optimizer); }) == "RT-M18");
    CHECK(scaler.step(optimizer));
    CHECK(dense[0].item<double>() == -1); // not unscaled again
    CHECK(code_of([&] { scaler.step(optimizer); }) == "RT-M18");
    CHECK(code_of([&] { scaler.unscale_(optimizer); }) == "RT-M18");
    CHECK(code_of([&] { scaler.step(other); }) == "RT-M18"); // no gradients
    scaler.update();
    CHECK(code_of([&] { scaler.update(); }) == "RT-M18"); // nothing new was looked at
    dense.mutable_grad().fill_(infinity);
    scaler.unscale_(optimizer); // a new iteration, whose step the caller leaves out
    scaler.update();
    CHECK(scaler.current_scale() == 512);

    auto half = torch::ones({1}, torch::kHalf).requires_grad_();
    half.mutable_grad() = torch::ones({1}, torch::kHalf);
    torch::optim::SGD of_half({half}, 1.0);
    CHECK(code_of([&] { scaler.step(of_half); }) == "RT-M19");

    GradScaler off({.enabled = false});
    dense.mutable_grad() = torch::full({3}, infinity);
    CHECK(off.scale(loss).is_same(loss));
    CHECK(off.step(optimizer));
    off.update();
    CHECK(off.current_scale() == 1);
}

TEST_CASE("GradScaler.goes_on_from_a_checkpoint") {
    const auto step = [](GradScaler& scaler, double gradient) {
        auto weight = torch::ones({1}).requires_grad_();
        torch::optim::SGD optimizer({weight}, 1.0);
        weight.mutable_grad() = torch::full({1}, gradient);
        scaler.step(optimizer);
        scaler.update();
    };
    GradScaler first({.growth_interval = 3});
    step(first, infinity);
    step(first, 1);
    step(first, 1);
    checkpoint::Snapshot snapshot;
    State{}.add("scaler", first).save(snapshot);
    GradScaler second({.growth_interval = 3});
    State{}.add("scaler", second).load(snapshot);
    CHECK(second.current_scale() == 32768);
    step(second, 1);
    CHECK(second.current_scale() == 65536);
}

namespace forward_outputs_test {

namespace {

struct Inner {
    int count = 3;
    torch::Tensor logits;
};
struct Outputs {
    torch::Tensor logits;
    std::optional<torch::Tensor> aux;
    std::vector<Inner> layers;
    std::map<std::string, torch::Tensor> by_name;
    torch::Tensor pair[2];
    std::string note;
};
class Own {
public:
    explicit Own(torch::Tensor tensor) : tensor_(std::move(tensor)) {}
    template <class Visit>
    void each_tensor(const Visit& visit) {
        visit(tensor_);
    }

private:
    torch::Tensor tensor_;
};
class Closed {
public:
    explicit Closed(torch::Tensor tensor) : tensor_(std::move(tensor)) {}
    torch::Tensor tensor_;
};

/// Returns what `Make` makes of what its layer gives.
template <class Make>
struct ReturnsImpl : torch::nn::Module {
    auto forward(const torch::Tensor& x) { return Make{}(linear(x)); }
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 2));
};

/// The types of the tensors in what a model returns, and how many steps the clock saw in backward.
template <class Make>
std::pair<std::vector<torch::ScalarType>, std::int64_t> returned(Ranks& ranks) {
    auto model =
        ranks.prepare(std::make_shared<ReturnsImpl<Make>>(), {.autocast = torch::kBFloat16});
    auto output = model(torch::ones({3, 4}));
    CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    std::vector<torch::ScalarType> types;
    torch::Tensor sum = torch::zeros({});
    rtrain::detail::each_tensor(output, [&](torch::Tensor& tensor) {
        types.push_back(tensor.scalar_type());
        sum = sum + tensor.sum();
    });
    const auto before = ProcessContext::current().clock.steps();
    if (sum.requires_grad()) {
        sum.backward();
    }
    return {types, ProcessContext::current().clock.steps() - before};
}

constexpr auto as_pair = [](const torch::Tensor& y) { return std::pair(y, 2 * y); };
constexpr auto as_tuple = [](const torch::Tensor& y) { return std::tuple(1, y, std::array{y, y}); };
constexpr auto as_struct = [](const torch::Tensor& y) {
    return Outputs{y, y, {{1, y}, {2, y}}, {{"a", y}}, {y, y}, "text"};
};
constexpr auto as_optional = [](const torch::Tensor& y) { return std::optional(y); };
constexpr auto as_pointer = [](const torch::Tensor& y) {
    return std::make_shared<Inner>(Inner{1, y});
};
constexpr auto as_variant = [](const torch::Tensor& y) {
    return std::variant<int, torch::Tensor>(y);
};
constexpr auto as_own = [](const torch::Tensor& y) { return Own(y); };
constexpr auto as_closed = [](const torch::Tensor& y) { return Closed(y); };

} // namespace

TEST_CASE("Autocast.finds_tensors_in_whatever_forward_returns") {
    Ranks ranks;
    const auto check = [&](const auto& result, std::size_t tensors) {
        CHECK(result.first == std::vector(tensors, torch::kFloat));
        CHECK(result.second == 1);
    };
    check(returned<decltype(as_pair)>(ranks), 2);
    check(returned<decltype(as_tuple)>(ranks), 3);
    check(returned<decltype(as_struct)>(ranks), 7);
    check(returned<decltype(as_optional)>(ranks), 1);
    check(returned<decltype(as_pointer)>(ranks), 1);
    check(returned<decltype(as_variant)>(ranks), 1);
    check(returned<decltype(as_own)>(ranks), 1);
}

TEST_CASE("Autocast.says_once_that_it_finds_no_tensor") {
    Ranks ranks;
    auto model = ranks.prepare(std::make_shared<ReturnsImpl<decltype(as_closed)>>());
    test::Stderr written;
    (void)model(torch::ones({3, 4}));
    (void)model(torch::ones({3, 4}));
    const std::string text = written.text();
    const auto first = text.find("RT-M62");
    CHECK((first != std::string::npos) == (ranks.rank() == 0));
    CHECK((ranks.rank() != 0 || text.find("RT-M62", first + 1) == std::string::npos));
}

} // namespace forward_outputs_test
