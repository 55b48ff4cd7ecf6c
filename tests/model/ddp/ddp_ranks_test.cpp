// SPDX-License-Identifier: Apache-2.0
// The cases of PyTorch's own DistributedDataParallel tests (distributed_test.py in its wheel) that
// mean something in C++, under their names. docs/ddp-cases.md has the whole list.
#include "one_process.hpp"
#include "support/ranks.hpp"
#include "support/thrown.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp_test {

using namespace rtrain;
using test::check_gradients;
using test::contains;
using test::mean_gradients;
using test::message_of;
using test::Ranks;

namespace {

torch::nn::Linear linear(std::int64_t in, std::int64_t out, bool bias = true) {
    return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

/// PyTorch's Net: fc2 of a buffer-like parameter in the middle, no biases.
struct NetImpl : torch::nn::Module {
    NetImpl() {
        torch::manual_seed(1);
        fc1 = register_module("fc1", linear(2, 10, false));
        fc2 = register_module("fc2", linear(10, 50, false));
        fc3 = register_module("fc3", linear(50, 4, false));
        fixed = register_parameter("fixed", torch::arange(2, torch::kLong), false);
    }
    torch::Tensor forward(const torch::Tensor& x) {
        return torch::softmax(fc3(torch::relu(fc2(torch::relu(fc1(x))))), 1);
    }
    torch::nn::Linear fc1{nullptr}, fc2{nullptr}, fc3{nullptr};
    torch::Tensor fixed;
};

/// Two layers; forward says whether the second takes part.
struct TwoLayersImpl : torch::nn::Module {
    TwoLayersImpl() {
        torch::manual_seed(2);
        lin1 = register_module("lin1", linear(10, 10, false));
        lin2 = register_module("lin2", linear(10, 10, false));
    }
    torch::Tensor forward(const torch::Tensor& x, bool both) {
        const auto h = torch::relu(lin1(x));
        return both ? lin2(h) : h;
    }
    torch::nn::Linear lin1{nullptr}, lin2{nullptr};
};

torch::Tensor input_of(int rank, std::int64_t rows, std::int64_t columns) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + rank));
    return torch::randn({rows, columns});
}

/// What `pass` throws on this rank, which then tells the others.
template <class Pass>
std::string failure_of(Ranks& ranks, Pass&& pass) {
    try {
        pass();
    } catch (const std::exception& exception) {
        ranks.outcome = Failure{.message = exception.what()};
        return exception.what();
    }
    return "";
}

/// An identity whose backward throws.
struct SimulateError : torch::autograd::Function<SimulateError> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
        return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list&) {
        throw std::runtime_error("simulated");
    }
};

/// An identity that gives an undefined gradient.
struct UndefinedGradient : torch::autograd::Function<UndefinedGradient> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
        return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list&) {
        return {torch::Tensor()};
    }
};

} // namespace

TEST_CASE("Ddp.DistributedDataParallelCPU") {
    Ranks ranks;
    constexpr std::int64_t rows = 2; // of each rank
    for (const bool view : {true, false}) {
        auto base = std::make_shared<NetImpl>();
        auto module = std::make_shared<NetImpl>();
        auto model = ranks.prepare(module, {.gradient_as_bucket_view = view});
        torch::manual_seed(7);
        const auto x = torch::randn({rows * ranks.size(), 2});
        const auto target = torch::randn({rows * ranks.size(), 4});
        torch::optim::SGD base_optimizer(base->parameters(), 0.1);
        torch::optim::SGD optimizer(module->parameters(), 0.1);
        for (int step = 0; step < 5; ++step) {
            base_optimizer.zero_grad();
            torch::mse_loss(base->forward(x), target).backward();
            base_optimizer.step();
            optimizer.zero_grad();
            const auto mine =
                torch::indexing::Slice(rows * ranks.rank(), rows * (ranks.rank() + 1));
            torch::mse_loss(model(x.index({mine})), target.index({mine})).backward();
            optimizer.step();
            for (const auto& item : base->named_parameters()) {
                CAPTURE(item.key());
                CHECK(torch::allclose(module->named_parameters()[item.key()], item.value(), 1e-5,
                                      1e-6));
            }
        }
    }
}

TEST_CASE("Ddp.DistributedDataParallel_requires_grad") {
    Ranks ranks;
    const auto error = message_of([&] { ranks.prepare(std::make_shared<torch::nn::TanhImpl>()); });
    CHECK(contains(error, "RT-M1"));
}

TEST_CASE("Ddp.zero_output_features") {
    Ranks ranks;
    struct ToyImpl : torch::nn::Module {
        torch::nn::Linear net1 = register_module("net1", linear(10, 10));
        torch::nn::Linear net2 = register_module("net2", linear(10, 0));
        torch::Tensor forward(const torch::Tensor& x) {
            const auto h = net1(x);
            return h.sum() + net2(h).sum();
        }
    };
    for (const std::int64_t bytes : {1, 1 << 20}) {
        auto module = std::make_shared<ToyImpl>();
        auto model = ranks.prepare(module, {.bucket_bytes = bytes, .first_bucket_bytes = bytes});
        for (int step = 0; step < 2; ++step) {
            module->zero_grad();
            model(torch::full({1, 10}, ranks.rank() + 1.0)).backward();
            const double mean = (ranks.size() + 1) / 2.0;
            CHECK(module->net1->weight.grad().allclose(torch::full({10, 10}, mean)));
            CHECK((module->net2->weight.grad().sizes() == torch::IntArrayRef{0, 10}));
        }
    }
}

TEST_CASE("Ddp.create_graph") {
    Ranks ranks;
    struct PowerImpl : torch::nn::Module {
        torch::Tensor p = register_parameter("p", torch::tensor(1.0));
        torch::Tensor forward(double factor) { return p.pow(2) * factor; }
    };
    for (const bool view : {true, false}) {
        auto module = std::make_shared<PowerImpl>();
        auto model = ranks.prepare(module, {.gradient_as_bucket_view = view});
        const double mean = (ranks.size() + 1) / 2.0;
        for (int pass = 1; pass <= 6; ++pass) {
            model(ranks.rank() + 1.0).backward({}, std::nullopt, true);
            CHECK(module->p.requires_grad());
            CHECK(module->p.grad().item<double>() == doctest::Approx(2 * mean * pass));
        }
    }
}

TEST_CASE("Ddp.shared_grad_acc_unused_params") {
    Ranks ranks;
    struct ToyImpl : torch::nn::Module {
        torch::nn::Linear net1 = register_module("net1", linear(10, 5, false));
        torch::Tensor bias = register_parameter("bias", torch::zeros({5}));
        torch::nn::Linear net2 = register_module("net2", linear(10, 5));
        ToyImpl() { net1->bias = net1->register_parameter("shared", bias); }
        torch::Tensor forward(const torch::Tensor& x) { return net2(x).sum(); }
    };
    auto module = std::make_shared<ToyImpl>();
    auto twin = std::make_shared<ToyImpl>();
    auto model = ranks.prepare(module, {.find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
        module->zero_grad();
        const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
            (twin->forward(input_of(rank, 20, 10)) / 10).backward();
        });
        (model(input_of(ranks.rank(), 20, 10)) / 10).backward();
        check_gradients(*module, expected);
        CHECK(!module->bias.grad().defined());
        CHECK(!module->net1->weight.grad().defined());
    }
}

TEST_CASE("Ddp.control_flow_same_across_ranks") {
    Ranks ranks;
    for (const bool view : {true, false}) {
        auto module = std::make_shared<TwoLayersImpl>();
        auto twin = std::make_shared<TwoLayersImpl>();
        auto model = ranks.prepare(
            module, {.find_unused_parameters = true, .gradient_as_bucket_view = view});
        for (int step = 0; step < 6; ++step) {
            module->zero_grad();
            const bool both = step % 2 != 0;
            const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
                twin->forward(input_of(rank, 20, 10), both).sum().backward();
            });
            model(input_of(ranks.rank(), 20, 10), both).sum().backward();
            check_gradients(*module, expected);
            CHECK(module->lin2->weight.grad().defined() == both);
        }
    }
}

TEST_CASE("Ddp.control_flow_different_across_ranks") {
    {
        Ranks ranks;
        const int last = ranks.size() - 1;
        auto module = std::make_shared<TwoLayersImpl>();
        auto twin = std::make_shared<TwoLayersImpl>();
        auto model = ranks.prepare(module, {.find_unused_parameters = true});
        for (int step = 0; step < 6; ++step) {
            module->zero_grad();
            const bool second = step % 2 != 0; // used on the last rank only
            const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
                twin->forward(input_of(rank, 20, 10), second && rank == last).sum().backward();
            });
            model(input_of(ranks.rank(), 20, 10), second && ranks.rank() == last).sum().backward();
            check_gradients(*module, expected);
            CHECK(module->lin2->weight.grad().defined() == second);
        }
    }
    Ranks ranks;
    if (ranks.size() > 1) {
        auto module = std::make_shared<TwoLayersImpl>();
        auto model = ranks.prepare(module);
        const bool both = ranks.rank() == ranks.size() - 1;
        const auto error =
            failure_of(ranks, [&] { model(input_of(0, 20, 10), both).sum().backward(); });
        CAPTURE(error);
        CHECK(!error.empty()); // of the others on the rank that used both
        CHECK((both || (contains(error, "RT-M3") && contains(error, "\"lin2.weight\""))));
        CHECK((both || !contains(error, "\"lin1.weight\"")));
    }
}

TEST_CASE("Ddp.model_diff_num_params_across_ranks") {
    Ranks ranks;
    if (ranks.size() > 1) {
        auto module = std::make_shared<torch::nn::SequentialImpl>(linear(2, 3));
        if (ranks.rank() == ranks.size() - 1) {
            module->push_back(linear(3, 3));
        }
        const auto error = message_of([&] { ranks.prepare(module); });
        CHECK(contains(error, "RT-M2"));
        CHECK(contains(error, "1.weight"));
    }
}

TEST_CASE("Ddp.multiple_nested_unused_params_error") {
    struct SubModuleImpl : torch::nn::Module {
        torch::nn::Embedding embedding = register_module(
            "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)));
        torch::nn::Linear a = register_module("a", linear(10, 10, false));
        torch::nn::Linear b = register_module("b", linear(10, 10, false));
        torch::nn::BatchNorm1d bn = register_module("bn", torch::nn::BatchNorm1d(10));
    };
    struct MyImpl : torch::nn::Module {
        std::shared_ptr<SubModuleImpl> sub =
            register_module("sub", std::make_shared<SubModuleImpl>());
        torch::Tensor forward(const torch::Tensor& x) { return sub->a(sub->bn(x)); }
    };
    Ranks ranks;
    if (ranks.size() > 1) {
        auto model = ranks.prepare(std::make_shared<MyImpl>());
        const auto error = failure_of(ranks, [&] {
            model(torch::randn({10, 10})).sum().backward();
        });
        CAPTURE(error);
        CHECK(contains(error, "RT-M3"));
        for (const char* unused : {"\"sub.embedding.weight\"", "\"sub.b.weight\""}) {
            CHECK(contains(error, unused));
        }
        for (const char* used : {"\"sub.a.weight\"", "\"sub.bn.weight\"", "\"sub.bn.bias\""}) {
            CHECK(!contains(error, used));
        }
    }
}

TEST_CASE("Ddp.inference") {
    Ranks ranks;
    auto module =
        std::make_shared<torch::nn::SequentialImpl>(linear(2, 4), torch::nn::BatchNorm1d(4));
    auto model = ranks.prepare(module);
    if (ranks.rank() == 0) { // alone: evaluating needs no other rank
        module->eval();
        for (int pass = 0; pass < 6; ++pass) {
            const torch::NoGradGuard no_grad;
            const auto x = torch::randn({10, 2});
            CHECK(model(x).equal(module->forward(x)));
        }
        module->train();
    }
    model(torch::ones({3, 2})).sum().backward();
}

TEST_CASE("Ddp.namedtuple") {
    struct Inputs {
        torch::Tensor a;
        std::map<std::string, std::vector<torch::Tensor>> more;
    };
    struct Outputs {
        torch::Tensor out;
        std::optional<torch::Tensor> nothing;
        std::vector<torch::Tensor> list;
    };
    struct ModuleImpl : torch::nn::Module {
        torch::nn::Linear lin = register_module("lin", linear(10, 1));
        Outputs forward(const Inputs& input, std::unique_ptr<int> moved) {
            return {lin(input.a * input.more.at("b").at(0)), std::nullopt, {lin(input.a) * *moved}};
        }
    };
    Ranks ranks;
    auto module = std::make_shared<ModuleImpl>();
    auto model = ranks.prepare(module);
    auto output = model(Inputs{torch::ones({5, 10}), {{"b", {torch::full({5, 10}, 2.0)}}}},
                        std::make_unique<int>(ranks.rank()));
    (output.out.sum() + output.list[0].sum()).backward();
    const double mean = 5 * (2 + (ranks.size() - 1) / 2.0);
    CHECK(module->lin->weight.grad().allclose(torch::full({1, 10}, mean)));
}

TEST_CASE("Ddp.returns_tensor_with_no_grad") {
    struct MyImpl : torch::nn::Module {
        torch::nn::Linear fc1 = register_module("fc1", linear(10, 10, false));
        torch::nn::Linear fc2 = register_module("fc2", linear(10, 10, false));
        std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
            const auto h = fc2(torch::relu(fc1(x)));
            return {h.detach(), h.clone()};
        }
    };
    Ranks ranks;
    for (const bool find_unused : {true, false}) {
        auto module = std::make_shared<MyImpl>();
        auto model = ranks.prepare(module, {.find_unused_parameters = find_unused});
        for (int step = 0; step < 6; ++step) {
            const auto [without, with] = model(input_of(ranks.rank(), 1, 10));
            CHECK(!without.requires_grad());
            (without + with).sum().backward();
            CHECK(ranks.agree(module->fc1->weight.grad()));
        }
    }
}

TEST_CASE("Ddp.new_tensor_in_fwd") {
    struct MyImpl : torch::nn::Module {
        torch::nn::Linear fc = register_module("fc", linear(10, 10, false));
        std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x,
                                                        const torch::Tensor& optional) {
            return {fc(x), optional.defined() ? optional : torch::randn({1, 10})};
        }
    };
    Ranks ranks;
    for (const bool find_unused : {true, false}) {
        auto module = std::make_shared<MyImpl>();
        auto model = ranks.prepare(
            module, {.find_unused_parameters = find_unused, .broadcast_buffers = false});
        torch::Tensor kept;
        for (int step = 0; step < 2; ++step) {
            module->zero_grad();
            auto [out, created] = model(torch::randn({1, 10}), kept);
            CHECK((step == 0 || created.is_same(kept))); // nothing is wrapped or copied
            CHECK(created.grad_fn() == nullptr);
            kept = created;
            out.mean().backward();
        }
    }
}

TEST_CASE("Ddp.remove_autograd_hooks") {
    struct MyImpl : torch::nn::Module {
        torch::nn::Linear fc1 = register_module("fc1", linear(10, 10));
        torch::nn::Linear fc2 = register_module("fc2", linear(10, 10));
        torch::Tensor forward(const torch::Tensor& x, bool error) {
            const auto h = fc1(x);
            return fc2(error ? SimulateError::apply(h) : h);
        }
    };
    Ranks ranks;
    for (const bool view : {true, false}) {
        auto module = std::make_shared<MyImpl>();
        auto twin = std::make_shared<MyImpl>();
        for (const auto& item : module->named_parameters()) {
            twin->named_parameters()[item.key()].set_data(item.value().detach().clone());
        }
        const auto pass = [](auto&& model, int rank, bool error) {
            model(input_of(rank, 5, 10), error).sum().backward();
        };
        {
            auto model =
                ranks.prepare(module, {.first_bucket_bytes = 1, .gradient_as_bucket_view = view});
            CHECK_THROWS_WITH(pass(model, ranks.rank(), true), "simulated");
        }
        module->zero_grad();
        auto model = ranks.prepare(module, {.gradient_as_bucket_view = view});
        for (const auto& item : module->named_parameters()) { // rank 0's since the first prepare
            twin->named_parameters()[item.key()].set_data(item.value().detach().clone());
        }
        const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
            pass([&](auto&&... x) { return twin->forward(x...); }, rank, false);
        });
        pass(model, ranks.rank(), false);
        check_gradients(*module, expected);
    }
}

TEST_CASE("Ddp.update_process_group_grad_undefined") {
    struct MyImpl : torch::nn::Module {
        MyImpl() {
            torch::manual_seed(3);
            fc1 = register_module("fc1", linear(10, 10));
            fc2 = register_module("fc2", linear(10, 10));
            fc3 = register_module("fc3", linear(10, 10));
        }
        torch::Tensor forward(const torch::Tensor& x, bool error) {
            return error ? fc3(fc2(SimulateError::apply(fc1(x)))) : fc2(fc1(x));
        }
        torch::nn::Linear fc1{nullptr}, fc2{nullptr}, fc3{nullptr};
    };
    Ranks ranks;
    auto module = std::make_shared<MyImpl>();
    auto twin = std::make_shared<MyImpl>();
    auto model = ranks.prepare(module, {.first_bucket_bytes = 1, .find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
        CHECK_THROWS_WITH(model(input_of(ranks.rank(), 5, 10), true).sum().backward(), "simulated");
        module->zero_grad();
        const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
            twin->forward(input_of(rank, 5, 10), false).sum().backward();
        });
        model(input_of(ranks.rank(), 5, 10), false).sum().backward();
        check_gradients(*module, expected);
        CHECK(!module->fc3->weight.grad().defined());
    }
}

// What the pass that was cut short has brought is forgotten, and what others bring is not.
TEST_CASE("Ddp.an_exception_in_backward_and_then_no_sync") {
    Ranks ranks;
    for (const bool find_unused : {true, false}) {
        for (const bool view : {true, false}) {
            auto module = std::make_shared<TwoLayersImpl>();
            auto twin = std::make_shared<TwoLayersImpl>();
            auto model = ranks.prepare(module, {.first_bucket_bytes = 1,
                                                .find_unused_parameters = find_unused,
                                                .gradient_as_bucket_view = view});
            const auto pass = [](auto&& forward, int rank, bool both) {
                return forward(input_of(rank, 5, 10), both).square().sum();
            };
            const auto plain = [&](const torch::Tensor& x, bool both) {
                return twin->forward(x, both);
            };
            for (const bool last_uses_both : {false, true}) {
                if (!last_uses_both && !find_unused) {
                    continue;
                }
                const auto hook = module->lin1->weight.register_hook(
                    [](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("no"); });
                CHECK_THROWS_WITH(pass(model, ranks.rank(), true).backward(), "no");
                module->lin1->weight.remove_hook(hook);
                module->zero_grad();
                const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
                    pass(plain, rank, true).backward();
                    pass(plain, rank, last_uses_both).backward();
                });
                {
                    const auto guard = model.no_sync();
                    pass(model, ranks.rank(), true).backward();
                }
                pass(model, ranks.rank(), last_uses_both).backward();
                check_gradients(*module, expected);
            }
        }
    }
}

namespace {

struct WithBufferImpl : torch::nn::Module {
    torch::nn::Linear a = register_module("a", linear(10, 10, false));
    torch::Tensor buffer = register_buffer("buffer", torch::randn({10}));
    torch::Tensor forward(const torch::Tensor& x) { return a(x) + buffer; }
};

} // namespace

TEST_CASE("Ddp.broadcast_buffer") {
    Ranks ranks;
    torch::manual_seed(static_cast<std::uint64_t>(ranks.rank()));
    auto module = std::make_shared<WithBufferImpl>();
    auto model = ranks.prepare(module);
    for (int step = 0; step < 2; ++step) {
        if (ranks.rank() == 0) {
            module->buffer.set_data(module->buffer + 1);
        }
        model(torch::randn({2, 10})).sum().backward();
        CHECK(ranks.agree(module->buffer));
    }
}

TEST_CASE("Ddp.init_sync_buffers_with_forward_sync_buffers_false") {
    Ranks ranks;
    torch::manual_seed(static_cast<std::uint64_t>(ranks.rank()));
    auto module = std::make_shared<WithBufferImpl>();
    auto model = ranks.prepare(module, {.broadcast_buffers = false});
    CHECK(ranks.agree(module->buffer));
    if (ranks.rank() == 0) {
        module->buffer += 1;
    }
    model(torch::randn({2, 10})).sum().backward();
    CHECK(ranks.agree(module->buffer) == (ranks.size() == 1));
}

TEST_CASE("Ddp.grads_same_across_ranks_with_no_sync") {
    struct ConditionalImpl : torch::nn::Module {
        std::vector<torch::nn::Linear> nn;
        ConditionalImpl() {
            for (const char* name : {"nn1", "nn2", "nn3", "nn4"}) {
                nn.push_back(register_module(name, linear(1, 1)));
            }
        }
        torch::Tensor forward(const torch::Tensor& x, int way) {
            return nn[static_cast<std::size_t>(way)](x);
        }
    };
    Ranks ranks;
    auto module = std::make_shared<ConditionalImpl>();
    auto model = ranks.prepare(module, {.find_unused_parameters = true});
    const int first = ranks.rank() == 0 ? 0 : 2;
    {
        const auto guard = model.no_sync();
        torch::mse_loss(model(torch::ones({1}), first), torch::zeros({1})).backward();
    }
    torch::mse_loss(model(torch::ones({1}), first + 1), torch::zeros({1})).backward();
    for (const auto& item : module->named_parameters()) {
        CAPTURE(item.key());
        CHECK(item.value().grad().defined() == (ranks.size() > 1 || item.key() < "nn3"));
        CHECK(ranks.agree(item.value().grad().defined() ? item.value().grad() : torch::zeros({1})));
    }
}

TEST_CASE("Ddp.output_unused_in_loss") {
    struct TwoOutputsImpl : torch::nn::Module {
        TwoOutputsImpl() {
            torch::manual_seed(4);
            a = register_module("a", linear(10, 10, false));
            b = register_module("b", linear(10, 10, false));
        }
        std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
            return {a(x), b(x)};
        }
        torch::nn::Linear a{nullptr}, b{nullptr};
    };
    Ranks ranks;
    const auto loss_of = [](const std::pair<torch::Tensor, torch::Tensor>& out, bool both) {
        return both ? torch::matmul(out.first, out.second).sum() : out.second.sum();
    };
    for (const bool view : {true, false}) {
        auto module = std::make_shared<TwoOutputsImpl>();
        auto twin = std::make_shared<TwoOutputsImpl>();
        auto model = ranks.prepare(
            module, {.find_unused_parameters = true, .gradient_as_bucket_view = view});
        loss_of(model(input_of(ranks.rank(), 10, 10)), false).backward();
        CHECK(!module->a->weight.grad().defined());
        module->zero_grad();
        test::Gradients sums; // gradients add up over steps
        for (int step = 0; step < 6; ++step) {
            const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
                loss_of(twin->forward(input_of(rank, 10, 10)), step < 2).backward();
            });
            for (const auto& [name, gradient] : expected) {
                if (gradient.defined()) {
                    sums[name] = sums[name].defined() ? sums[name] + gradient : gradient;
                }
            }
            loss_of(model(input_of(ranks.rank(), 10, 10)), step < 2).backward();
            check_gradients(*module, sums);
        }
    }
}

TEST_CASE("Ddp.undefined_grad_parity_unused_parameters") {
    struct MyImpl : torch::nn::Module {
        torch::Tensor scale = register_parameter("scale", torch::ones({10}));
        torch::nn::Linear fc = register_module("fc", linear(10, 10));
        torch::Tensor forward(const torch::Tensor& x, bool undefined) {
            return fc(x) * (undefined ? UndefinedGradient::apply(scale) : scale);
        }
    };
    for (const bool find_unused : {true, false}) {
        CAPTURE(find_unused);
        Ranks ranks;
        for (const bool view : {true, false}) {
            CAPTURE(view);
            auto module = std::make_shared<MyImpl>();
            auto model = ranks.prepare(module, {.first_bucket_bytes = 1,
                                                .find_unused_parameters = find_unused,
                                                .gradient_as_bucket_view = view});
            const int size = ranks.size();
            for (int step = 0; step < 2; ++step) {
                module->zero_grad();
                model(torch::ones({1, 10}), true).sum().backward();
                const auto& gradient = module->scale.grad();
                if (find_unused || size == 1) { // one rank alone runs the bare model
                    CHECK(!gradient.defined());
                } else {
                    CHECK((gradient.defined() && gradient.eq(0).all().item<bool>()));
                }
                CHECK(module->fc->bias.grad().allclose(module->scale));
                // Undefined on all ranks but one.
                module->zero_grad();
                const auto out = model(torch::ones({1, 10}), ranks.rank() != 0);
                out.sum().backward();
                const auto expected =
                    (torch::linear(torch::ones({1, 10}), module->fc->weight, module->fc->bias)
                         .squeeze(0) /
                     size)
                        .detach();
                CHECK(torch::allclose(module->scale.grad(), expected, 1e-5, 1e-6));
            }
        }
    }
    Ranks ranks; // nothing at all gets a gradient
    auto module = std::make_shared<MyImpl>();
    auto model = ranks.prepare(module, {.find_unused_parameters = true});
    UndefinedGradient::apply(model(torch::ones({1, 10}), false).sum()).backward();
    for (const auto& parameter : module->parameters()) {
        CHECK(!parameter.grad().defined());
    }
    model(torch::ones({1, 10}), false).sum().backward();
    CHECK(ranks.agree(module->scale.grad()));
}

TEST_CASE("Ddp.static_graph_multi_forward") {
    struct NormedImpl : torch::nn::Module {
        NormedImpl() {
            torch::manual_seed(5);
            lin = register_module("lin", linear(10, 10));
            norm = register_module("norm", torch::nn::BatchNorm1d(10));
        }
        torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(norm(lin(x))); }
        torch::nn::Linear lin{nullptr};
        torch::nn::BatchNorm1d norm{nullptr};
    };
    Ranks ranks;
    for (const bool find_unused : {true, false}) {
        for (const bool in_training : {true, false}) {
            auto module = std::make_shared<NormedImpl>();
            auto twin = std::make_shared<NormedImpl>();
            auto model = ranks.prepare(module, {.find_unused_parameters = find_unused});
            module->norm->train(in_training);
            twin->norm->train(in_training);
            const auto loss = [](auto&& forward, int rank) {
                const auto first = forward(input_of(rank, 8, 10));
                {
                    const torch::NoGradGuard no_grad; // broadcasts buffers, too
                    (void)forward(input_of(rank, 8, 10));
                }
                const auto second = forward(input_of(rank + 50, 8, 10));
                return first.square().sum() + second.square().sum();
            };
            for (int step = 0; step < 3; ++step) {
                module->zero_grad();
                const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
                    loss([&](const auto& x) { return twin->forward(x); }, rank).backward();
                });
                loss(model, ranks.rank()).backward();
                check_gradients(*module, expected);
            }
        }
    }
}

// Cases of test_c10d_common.py, which the wheel leaves out.

namespace {

/// Keeps no graph in forward; backward computes it anew and runs a backward inside of its own.
struct Recompute : torch::autograd::Function<Recompute> {
    using Block = std::function<torch::Tensor(const torch::Tensor&)>;
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                                 const Block* block) {
        context->saved_data["x"] = x.detach();
        context->saved_data["block"] = reinterpret_cast<std::int64_t>(block);
        return (*block)(x);
    }
    static torch::autograd::variable_list
    backward(torch::autograd::AutogradContext* context,
             const torch::autograd::variable_list& gradients) {
        const torch::AutoGradMode with_grad(true);
        const auto x = context->saved_data["x"].toTensor().detach().requires_grad_();
        const auto* block = reinterpret_cast<const Block*>(context->saved_data["block"].toInt());
        (*block)(x).backward(gradients.at(0));
        return {x.grad(), torch::Tensor()};
    }
};

/// How a pass runs each of the three layers.
enum class Run { plain, recomputed, recomputed_twice, left_out };

struct LayersImpl : torch::nn::Module {
    explicit LayersImpl(bool sharing = false) {
        torch::manual_seed(6);
        for (const char* name : {"first", "middle", "last"}) {
            layers.push_back(register_module(name, linear(10, 10)));
        }
        for (std::size_t i = 0; i < layers.size(); ++i) {
            // With sharing, the middle layer runs with the last one's weight as well.
            blocks.push_back([this, i, sharing](const torch::Tensor& x) {
                const auto h = torch::tanh(layers[i](x));
                return sharing && i == 1 ? torch::matmul(h, layers[2]->weight) : h;
            });
        }
    }
    /// `checkpoints`: false computes the same without recomputing.
    torch::Tensor forward(const torch::Tensor& input, const std::vector<Run>& runs,
                          bool checkpoints = true) {
        auto x = input.detach().requires_grad_();
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            for (int left = times(runs[i]); left > 0; --left) {
                x = checkpoints && runs[i] != Run::plain ? Recompute::apply(x, &blocks[i])
                                                         : blocks[i](x);
            }
        }
        return x;
    }
    static int times(Run run) {
        return run == Run::left_out ? 0 : run == Run::recomputed_twice ? 2 : 1;
    }
    std::vector<torch::nn::Linear> layers;
    std::vector<Recompute::Block> blocks;
};

/// Three steps against one process without checkpoints; returns what ranks throw.
std::string checkpointing(const std::vector<Run>& runs, bool find_unused, bool sharing = false) {
    Ranks ranks;
    auto module = std::make_shared<LayersImpl>(sharing);
    auto twin = std::make_shared<LayersImpl>(sharing);
    return failure_of(ranks, [&] {
        auto model = ranks.prepare(
            module,
            {.bucket_bytes = 200, .first_bucket_bytes = 1, .find_unused_parameters = find_unused});
        for (int step = 0; step < 3; ++step) {
            module->zero_grad();
            const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
                twin->forward(input_of(rank, 4, 10), runs, false).square().sum().backward();
            });
            model(input_of(ranks.rank(), 4, 10), runs).square().sum().backward();
            check_gradients(*module, expected);
        }
    });
}

} // namespace

TEST_CASE("Ddp.checkpointing_once") {
    constexpr Run inside = Run::recomputed;
    for (const bool find_unused : {false, true}) {
        CAPTURE(find_unused);
        for (const auto& runs : {std::vector{inside, inside, inside},
                                 {inside, Run::plain, Run::plain},
                                 {Run::plain, inside, Run::plain},
                                 {Run::plain, Run::plain, inside},
                                 {inside, Run::plain, inside}}) {
            CHECK(checkpointing(runs, find_unused) == "");
        }
    }
}

TEST_CASE("Ddp.checkpointing_unused_params") {
    const std::vector runs{Run::recomputed, Run::left_out, Run::recomputed};
    CHECK(checkpointing(runs, true) == "");
    if (const auto error = checkpointing(runs, false); !error.empty()) {
        CHECK(contains(error, "RT-M3"));
        CHECK(contains(error, "\"middle.weight\""));
        CHECK(!contains(error, "\"first.weight\""));
    }
}

// A parameter whose gradient comes in two parts, each of a backward of its own. PyTorch refuses it
// unless the graph is static.
TEST_CASE("Ddp.checkpointing_twice") {
    for (const bool find_unused : {false, true}) {
        const auto error =
            checkpointing({Run::plain, Run::recomputed_twice, Run::plain}, find_unused);
        CHECK((error.empty() || contains(error, "RT-M4")));
    }
}

TEST_CASE("Ddp.checkpointing_weight_sharing") {
    for (const bool find_unused : {false, true}) {
        const auto error =
            checkpointing({Run::plain, Run::recomputed, Run::recomputed}, find_unused, true);
        CHECK((error.empty() || contains(error, "RT-M4")));
    }
}

TEST_CASE("Ddp.sparse_gradients") {
    struct WordsImpl : torch::nn::Module {
        WordsImpl() {
            torch::manual_seed(8);
            words = register_module(
                "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 3).sparse(true)));
            bags = register_module(
                "bags", torch::nn::EmbeddingBag(
                            torch::nn::EmbeddingBagOptions(6, 3).sparse(true).mode(torch::kSum)));
            dense = register_module("dense", linear(3, 2));
        }
        torch::Tensor forward(const torch::Tensor& x) {
            return dense(words(x)).square().sum() + dense(bags(x)).square().sum();
        }
        torch::nn::Embedding words{nullptr};
        torch::nn::EmbeddingBag bags{nullptr};
        torch::nn::Linear dense{nullptr};
    };
    // Ranks have different numbers of rows; the first has none.
    const auto rows_of = [](int rank) {
        return torch::arange(rank * 4, torch::kLong).remainder(6).view({rank, 4});
    };
    Ranks ranks;
    for (const bool view : {true, false}) {
        for (const bool find_unused : {true, false}) {
            auto module = std::make_shared<WordsImpl>();
            auto twin = std::make_shared<WordsImpl>();
            auto model = ranks.prepare(
                module, {.find_unused_parameters = find_unused, .gradient_as_bucket_view = view});
            for (const bool set_to_none : {true, false, true}) {
                module->zero_grad(set_to_none);
                const auto expected = mean_gradients(*twin, ranks.size(), [&](int rank) {
                    twin->forward(rows_of(rank)).backward();
                });
                model(rows_of(ranks.rank())).backward();
                check_gradients(*module, expected);
                for (const auto& gradient :
                     {module->words->weight.grad(), module->bags->weight.grad()}) {
                    CHECK(gradient.is_sparse());
                    CHECK((ranks.size() == 1 || gradient.is_coalesced()));
                }
                CHECK(!module->dense->weight.grad().is_sparse());
            }
        }
    }
}

} // namespace ddp_test
