// SPDX-License-Identifier: Apache-2.0
// Activations that are dropped and computed again: same bits, less memory, and what must not be.
#include "support/ranks.hpp"
#include "support/thrown.hpp"

#include <rtrain/model/activation/recompute.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace rtrain;
using test::Ranks;
using torch::Tensor;

namespace {

using Block = std::function<Tensor(Tensor)>;

/// Bytes of tensors that this thread has allocated and not yet freed.
class LiveBytes {
public:
    [[nodiscard]] std::int64_t now() const { return *counter_->bytes; }

private:
    struct Counter : c10::MemoryReportingInfoBase {
        std::shared_ptr<std::int64_t> bytes = std::make_shared<std::int64_t>(0);
        void reportMemoryUsage(void* /*at*/, std::int64_t size, std::size_t /*allocated*/,
                               std::size_t /*reserved*/, c10::Device /*device*/) override {
            *bytes += size;
        }
        [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
    };
    std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
    c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

/// x + dropout(down(gelu(up(norm(x))))), with a parameter that no node saves, and a batch norm.
struct ResidualImpl : torch::nn::Module {
    explicit ResidualImpl(int width, double dropout = 0.1, bool batch_norm = false)
        : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
          up(register_module("up", torch::nn::Linear(width, 4 * width))),
          down(register_module("down", torch::nn::Linear(4 * width, width))),
          drop(register_module("drop", torch::nn::Dropout(dropout))),
          shift(register_parameter("shift", torch::full({width}, 0.1))) {
        if (batch_norm) {
            batch = register_module("batch", torch::nn::BatchNorm1d(width));
        }
    }
    Tensor forward(const Tensor& x) {
        Tensor y = norm(x) + shift;
        if (batch) {
            y = batch(y);
        }
        return x + drop(down(torch::gelu(up(y))));
    }
    torch::nn::LayerNorm norm;
    torch::nn::Linear up, down;
    torch::nn::Dropout drop;
    torch::nn::BatchNorm1d batch{nullptr};
    Tensor shift;
};
TORCH_MODULE(Residual);

enum class How { plain, each, pairs, nested };

struct DeepImpl : torch::nn::Module {
    explicit DeepImpl(int depth, int width = 16, double dropout = 0.1, bool batch_norm = false) {
        torch::manual_seed(5);
        for (int i = 0; i < depth; ++i) {
            blocks->push_back(Residual(width, dropout, batch_norm));
        }
        register_module("blocks", blocks);
    }
    Tensor run(Tensor x, std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            x = blocks->at<ResidualImpl>(i).forward(x);
        }
        return x;
    }
    Tensor forward(Tensor x, How how = How::plain) {
        const std::size_t step = how == How::plain ? blocks->size() : how == How::each ? 1 : 2;
        for (std::size_t i = 0; i < blocks->size(); i += step) {
            const Block some = [this, i, step](const Tensor& y) { return run(y, i, i + step); };
            if (how == How::nested) {
                x = recompute(
                    [this, i](const Tensor& y) {
                        const Tensor middle =
                            recompute([this, i](const Tensor& z) { return run(z, i, i + 1); }, y);
                        return recompute(
                            [this, i](const Tensor& z) { return run(z, i + 1, i + 2); }, middle);
                    },
                    x);
            } else {
                x = how == How::plain ? some(x) : recompute(some, x);
            }
        }
        return x;
    }
    torch::nn::ModuleList blocks;
};

Tensor rows_of(int rank, int width = 16) {
    return torch::linspace(-1, 1, 12 * width).view({12, width}) * (rank + 1);
}

/// Gradients, buffers and the next random number behind a pass.
std::vector<Tensor> traces(torch::nn::Module& module, const std::function<Tensor()>& loss) {
    module.zero_grad();
    torch::manual_seed(9);
    std::vector<Tensor> all{loss()};
    all[0].backward();
    all[0] = all[0].detach();
    for (const auto& parameter : module.parameters()) {
        all.push_back(parameter.grad().defined() ? parameter.grad().clone()
                                                 : torch::zeros_like(parameter));
    }
    for (const auto& buffer : module.buffers()) {
        all.push_back(buffer.clone());
    }
    all.push_back(torch::rand({3}));
    return all;
}

void check_same(const std::vector<Tensor>& some, const std::vector<Tensor>& others) {
    REQUIRE(some.size() == others.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
        CAPTURE(i);
        CHECK(some[i].equal(others[i]));
    }
}

} // namespace

TEST_CASE("Recompute.same_bits_with_data_parallel") {
    Ranks ranks;
    for (const bool batch_norm : {false, true}) {
        for (const bool find_unused : {false, true}) {
            for (const std::int64_t bytes : {1, 1 << 20}) {
                const auto of = [&](How how, int passes) {
                    auto module = std::make_shared<DeepImpl>(4, 16, 0.2, batch_norm);
                    auto model = ranks.prepare(module, {.bucket_bytes = bytes,
                                                        .first_bucket_bytes = bytes,
                                                        .find_unused_parameters = find_unused});
                    std::vector<Tensor> all;
                    for (int pass = 0; pass < passes; ++pass) {
                        for (auto& trace : traces(*module, [&] {
                                 return model(rows_of(ranks.rank()), how).square().mean();
                             })) {
                            all.push_back(trace);
                        }
                    }
                    for (const auto& parameter : module->parameters()) {
                        CHECK(ranks.agree(parameter.grad()));
                    }
                    return all;
                };
                const auto plain = of(How::plain, 2);
                for (const How how : {How::each, How::pairs, How::nested}) {
                    CAPTURE(static_cast<int>(how));
                    CAPTURE(batch_norm);
                    CAPTURE(find_unused);
                    check_same(of(how, 2), plain);
                }
            }
        }
    }
}

TEST_CASE("Recompute.same_bits_accumulated_and_in_16_bits") {
    Ranks ranks;
    const auto of = [&](How how, bool autocast) {
        auto module = std::make_shared<DeepImpl>(4);
        auto model = ranks.prepare(
            module, {.autocast = autocast ? std::optional(at::kBFloat16) : std::nullopt});
        return traces(*module, [&] {
            {
                const auto alone = model.no_sync();
                model(rows_of(ranks.rank()) / 2, how).square().mean().backward();
            }
            return model(rows_of(ranks.rank()), how).square().mean();
        });
    };
    for (const bool autocast : {false, true}) {
        check_same(of(How::each, autocast), of(How::plain, autocast));
        check_same(of(How::nested, autocast), of(How::plain, autocast));
    }
}

TEST_CASE("Recompute.same_bits_with_sync_batch_norm_and_unused_parameters") {
    Ranks ranks;
    struct NetImpl : torch::nn::Module {
        torch::nn::Linear in = register_module("in", torch::nn::Linear(16, 8));
        SyncBatchNorm norm = register_module("norm", SyncBatchNorm(8));
        torch::nn::Linear spare = register_module("spare", torch::nn::Linear(8, 8));
        Tensor forward(const Tensor& x, bool again, bool with_spare) {
            const auto f = [this, with_spare](const Tensor& y) {
                const Tensor z = torch::relu(norm(in(y)));
                return with_spare ? spare(z) : z;
            };
            return again ? recompute(f, x) : f(x);
        }
    };
    const auto of = [&](bool again, bool some_ranks) {
        torch::manual_seed(3);
        auto module = std::make_shared<NetImpl>();
        auto model = ranks.prepare(module, {.find_unused_parameters = true});
        return traces(*module, [&] {
            return model(rows_of(ranks.rank()), again, some_ranks && ranks.rank() == 0)
                .square()
                .mean();
        });
    };
    check_same(of(true, false), of(false, false));
    check_same(of(true, true), of(false, true));
}

TEST_CASE("Recompute.keeps_no_activations") {
    const LiveBytes live;
    auto model = std::make_shared<DeepImpl>(8, 32, 0.1, true);
    const Tensor x = torch::randn({64, 32});
    (void)traces(*model, [&] { return model->forward(x).square().mean(); }); // allocates gradients
    std::map<How, std::int64_t> kept;
    for (const How how : {How::plain, How::each, How::pairs, How::nested}) {
        const std::int64_t before = live.now();
        const Tensor loss = model->forward(x, how).square().mean();
        kept[how] = live.now() - before;
        loss.backward();
        model->zero_grad();
    }
    CAPTURE(kept[How::plain]);
    const auto boundary = static_cast<std::int64_t>(x.nbytes()); // what goes from block to block
    CHECK(kept[How::plain] > 8 * 12 * boundary);
    CHECK(kept[How::each] < 8 * 2 * boundary); // and a generator's state each
    CHECK(kept[How::pairs] < kept[How::each]);
    CHECK(kept[How::nested] < kept[How::each]);
    // All is gone with the graph.
    const std::int64_t before = live.now();
    for (const How how : {How::each, How::nested}) {
        model->forward(x, how).square().mean().backward();
        model->zero_grad();
    }
    { const Tensor unused = model->forward(x, How::nested); }
    CHECK(live.now() == before);
}

TEST_CASE("Recompute.runs_f_no_further_than_needed") {
    auto up = torch::nn::Linear(4, 4);
    auto down = torch::nn::Linear(4, 4);
    int begun = 0;
    int ended = 0;
    const auto f = [&](const Tensor& x) {
        ++begun;
        const Tensor y = down(torch::tanh(up(x)));
        ++ended;
        return y;
    };
    recompute(f, torch::ones({2, 4})).sum().backward();
    CHECK(begun == 2);
    CHECK(ended == 1);
    // Without gradients, it runs once.
    {
        const torch::NoGradGuard no_grad;
        CHECK_FALSE(recompute(f, torch::ones({2, 4})).requires_grad());
    }
    CHECK(begun == 3);
    // Where nothing is saved, nothing is computed again.
    const Tensor x = torch::ones({2, 4}).requires_grad_();
    recompute([](const Tensor& a) { return a + 1; }, x).sum().backward();
    CHECK(x.grad().equal(torch::ones({2, 4})));
}

TEST_CASE("Recompute.several_arguments_and_results") {
    const auto weight = torch::linspace(0.5, 1, 4).requires_grad_();
    using Parts = std::tuple<Tensor, std::vector<Tensor>, int>;
    const auto f = [weight](const Tensor& x, const std::vector<Tensor>& others,
                            const std::optional<Tensor>& mask, double scale,
                            const Tensor& nothing) -> Parts {
        CHECK_FALSE(nothing.defined());
        Tensor y = torch::exp(x * weight) * scale;
        if (mask) {
            y = y * *mask;
        }
        return {y.sigmoid(), {others[0].tanh() * y, others[1].cos()}, 7};
    };
    const auto run = [&](bool again, bool all) {
        weight.mutable_grad().reset();
        const auto x = torch::linspace(-1, 1, 4).requires_grad_();
        const std::vector<Tensor> others{torch::linspace(1, 2, 4).requires_grad_(),
                                         torch::linspace(2, 3, 4).requires_grad_()};
        const std::optional<Tensor> mask = torch::tensor({1.0, 0.0, 1.0, 1.0});
        const auto [y, more, number] = again ? recompute(f, x, others, mask, 1.5, Tensor())
                                             : f(x, others, mask, 1.5, Tensor());
        CHECK(number == 7);
        (all ? y.sum() + more[0].sum() + more[1].sum() : more[0].sum()).backward();
        return std::vector<Tensor>{x.grad(), others[0].grad(), weight.grad(),
                                   all ? others[1].grad() : torch::zeros({1})};
    };
    check_same(run(true, true), run(false, true));
    check_same(run(true, false), run(false, false));
}

TEST_CASE("Recompute.what_f_captures_gets_gradients") {
    const auto run = [](bool again) {
        const auto leaf = torch::linspace(-1, 1, 6).requires_grad_();
        const Tensor context = leaf.sin();
        const auto f = [context](const Tensor& x) { return (x * context).exp() * context; };
        const Tensor x = leaf.cos();
        (again ? recompute(f, x) : f(x)).sum().backward();
        return std::vector<Tensor>{leaf.grad()};
    };
    check_same(run(true), run(false));
}

TEST_CASE("Recompute.backward_again_and_of_backward") {
    auto model = std::make_shared<DeepImpl>(4, 8, 0.3);
    const auto run = [&](How how) {
        model->zero_grad();
        torch::manual_seed(2);
        const Tensor x = rows_of(0, 8).requires_grad_();
        const Tensor loss = model->forward(x, how).square().mean();
        // Gradients of a gradient's norm, as penalties are written.
        const auto first = torch::autograd::grad({loss}, {x}, {}, true, true);
        const Tensor penalty = first[0].square().sum();
        std::vector<Tensor> all{first[0].detach()};
        penalty.backward({}, true);
        loss.backward({}, true);
        loss.backward();
        all.push_back(x.grad());
        for (const auto& parameter : model->parameters()) {
            all.push_back(parameter.grad().clone());
        }
        return all;
    };
    const auto plain = run(How::plain);
    check_same(run(How::each), plain);
    check_same(run(How::nested), plain);
}

TEST_CASE("Recompute.backward_within_f") {
    const auto weight = torch::linspace(0.5, 1, 4).requires_grad_();
    const auto f = [weight](const Tensor& x) { // x's energy and its slope, as in score models
        const Tensor energy = (x * weight).tanh().pow(3).sum();
        const Tensor slope = torch::autograd::grad({energy}, {x}, {}, true, true)[0];
        return slope.exp() * energy;
    };
    const auto run = [&](bool again) {
        weight.mutable_grad().reset();
        const auto x = torch::linspace(-1, 1, 4).requires_grad_();
        (again ? recompute(f, x) : f(x)).sum().backward();
        return std::vector<Tensor>{x.grad(), weight.grad()};
    };
    check_same(run(true), run(false));
}

TEST_CASE("Recompute.state_of_f_is_as_if_it_had_run_once") {
    struct Counted : torch::nn::Module {
        torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 4));
        torch::nn::BatchNorm1d mean{nullptr};
        Tensor average = register_buffer("average", torch::zeros({4}));
        Tensor calls = register_buffer("calls", torch::zeros({}, torch::kLong));
        Counted() {
            mean = register_module(
                "mean",
                torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).momentum(c10::nullopt)));
        }
        Tensor forward(const Tensor& x) {
            const Tensor y = mean(linear(x));
            {
                const torch::NoGradGuard no_grad;
                average.mul_(0.9).add_(y.mean(0), 0.1);
                calls += 1;
            }
            return torch::relu(y).square();
        }
    };
    const auto run = [](bool again) {
        torch::manual_seed(1);
        const auto module = std::make_shared<Counted>();
        std::vector<Tensor> all;
        for (int pass = 0; pass < 3; ++pass) {
            for (auto& trace : traces(*module, [&] {
                     Tensor x = torch::rand({5, 4});
                     for (int twice = 0; twice < 2; ++twice) {
                         x = again
                                 ? recompute(
                                       [module](const Tensor& y) { return module->forward(y); }, x)
                                 : module->forward(x);
                     }
                     return x.sum();
                 })) {
                all.push_back(trace);
            }
        }
        CHECK(module->calls.item<int>() == 6);
        return all;
    };
    check_same(run(true), run(false));
}

TEST_CASE("Recompute.edits_between_the_passes_are_errors") {
    const auto code_after = [](const std::function<void(Tensor&, Residual&, Tensor&)>& edit,
                               bool nested) {
        Residual block(4, 0.0);
        Tensor x = torch::rand({3, 4}).requires_grad_() * 1;
        const auto f = [block](const Tensor& y) mutable { return torch::tanh(block(y)); };
        Tensor y = nested ? recompute([f](const Tensor& z) { return recompute(f, z).exp(); }, x)
                          : recompute(f, x);
        {
            const torch::NoGradGuard no_grad;
            edit(x, block, y);
        }
        return test::code_of([&] { y.sum().backward(); });
    };
    for (const bool nested : {false, true}) {
        CAPTURE(nested);
        CHECK(code_after([](Tensor&, Residual&, Tensor&) {}, nested).empty());
        CHECK(code_after([](Tensor& x, Residual&, Tensor&) { x.add_(1); }, nested) == "RT-M31");
        CHECK(code_after([](Tensor&, Residual& block, Tensor&) { block->up->weight.add_(1); },
                         nested) == "RT-M31");
        // That one is saved by no node.
        CHECK(code_after([](Tensor&, Residual& block, Tensor&) { block->shift.add_(1); }, nested) ==
              "RT-M31");
        CHECK(code_after([](Tensor&, Residual&, Tensor& y) { y.add_(1); }, nested) == "RT-M31");
    }
    // f's own edit of what tanh has saved; without recompute(), an error of torch's.
    const Tensor x = torch::rand({3}).requires_grad_();
    const Tensor y = recompute([](const Tensor& a) { return torch::tanh(a).mul_(2).exp(); }, x);
    CHECK(test::code_of([&] { y.sum().backward(); }) == "RT-M31");
    // f's edit of its argument.
    const Tensor z = x * 1;
    const Tensor w = recompute([](Tensor a) { return a.add_(1).tanh(); }, z);
    CHECK(test::code_of([&] { w.sum().backward(); }) == "RT-M31");
}

namespace {

/// As a process has it that embeds Python.
struct OtherEngine final : torch::autograd::Engine {
    static Engine& get() {
        static auto* const engine = new OtherEngine; // its threads may outlive main()
        return *engine;
    }
};

} // namespace

TEST_CASE("Recompute.needs_torchs_own_engine") {
    const Tensor x = torch::rand({3}).requires_grad_();
    const auto f = [](const Tensor& y) { return y.exp(); };
    torch::autograd::set_default_engine_stub(&OtherEngine::get);
    CHECK(test::code_of([&] { (void)recompute(f, x); }) == "RT-M32");
    torch::autograd::set_default_engine_stub(&torch::autograd::Engine::get_base_engine);
    CHECK(test::code_of([&] { recompute(f, x).sum().backward(); }).empty());
    CHECK(x.grad().equal(x.detach().exp()));
}

TEST_CASE("Recompute.f_must_do_the_same_again") {
    int calls = 0;
    const auto code = [&](const std::function<Tensor(const Tensor&, int)>& f) {
        calls = 0;
        const Tensor x = torch::rand({3}).requires_grad_();
        const Tensor y = recompute([&](const Tensor& a) { return f(a, ++calls); }, x);
        return test::code_of([&] { y.sum().backward(); });
    };
    CHECK(code([](const Tensor& a, int call) { return call == 1 ? a.exp().sin() : a.exp(); }) ==
          "RT-M30"); // fewer
    CHECK(code([](const Tensor& a, int call) {
              return torch::cat({a, a}).narrow(0, 0, 3 + call).exp();
          }) == "RT-M30"); // of another shape
    CHECK(code([](const Tensor& a, int call) {
              return call == 1 ? a.exp() : a.to(torch::kDouble).exp();
          }) == "RT-M30"); // of another type
    CHECK(code([](const Tensor& a, int) { return a.exp(); }).empty());
    // Backward through another result of its first run.
    std::vector<Tensor> results;
    const Tensor x = torch::rand({3}).requires_grad_();
    const auto backward_through_first = [&](const Tensor& a) {
        if (!results.empty()) {
            (void)torch::autograd::grad({results[1].sum()}, {x}, {}, true);
        }
        return std::vector<Tensor>{a.exp(), a.tanh()};
    };
    results = recompute(backward_through_first, x);
    CHECK(test::code_of([&] { results[0].sum().backward(); }) == "RT-M30");
}

TEST_CASE("Recompute.what_f_throws_comes_out_of_backward") {
    auto model = std::make_shared<DeepImpl>(2, 8, 0.3, true);
    int throws_at = 0;
    int calls = 0;
    const auto f = [&](const Tensor& x) {
        const Autocast autocast(at::kBFloat16);
        const Tensor y = model->run(x, 0, 1);
        if (++calls == throws_at) {
            throw std::out_of_range("f has thrown");
        }
        return model->run(y, 1, 2);
    };
    const Tensor x = rows_of(0, 8);
    throws_at = 1;
    CHECK_THROWS_AS((void)recompute(f, x), std::out_of_range);
    calls = 0;
    throws_at = 0;
    torch::manual_seed(4);
    const auto expected = [&] {
        model->zero_grad();
        recompute(f, x).sum().backward();
        return model->parameters()[0].grad().clone();
    }();
    model->zero_grad();
    calls = 0;
    throws_at = 2;
    torch::manual_seed(4);
    const Tensor loss = recompute(f, x).sum();
    const auto buffers = [&] {
        std::vector<Tensor> all{at::detail::getDefaultCPUGenerator().get_state().clone()};
        for (const auto& buffer : model->buffers()) {
            all.push_back(buffer.clone());
        }
        return all;
    };
    const auto before = buffers();
    CHECK_THROWS_WITH_AS(loss.backward({}, true), "f has thrown", std::out_of_range);
    check_same(buffers(), before);
    CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    // Afterwards tensors are saved as usual, also by that graph.
    loss.backward();
    CHECK(model->parameters()[0].grad().equal(expected));
}

TEST_CASE("Recompute.in_threads_of_their_own") {
    const auto pass = [](int seed) {
        auto model = std::make_shared<DeepImpl>(2, 8, 0.0, true);
        const Tensor x = rows_of(seed, 8);
        std::vector<Tensor> all;
        for (const How how : {How::plain, How::each, How::nested}) {
            model->zero_grad();
            model->forward(x, how).square().mean().backward();
            all.push_back(model->parameters()[1].grad().clone());
        }
        return all;
    };
    std::vector<std::vector<Tensor>> got(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < got.size(); ++i) {
        threads.emplace_back([&, i] {
            for (int k = 0; k < 5; ++k) {
                got[i] = pass(static_cast<int>(i));
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    for (const auto& all : got) {
        CHECK(all[1].equal(all[0]));
        CHECK(all[2].equal(all[0]));
    }
}

TEST_CASE("Recompute.a_graph_of_one_thread_backward_in_another") {
    auto model = std::make_shared<DeepImpl>(2, 8);
    const auto run = [&](How how) {
        model->zero_grad();
        torch::manual_seed(6);
        const Tensor loss = model->forward(rows_of(0, 8), how).square().mean();
        std::thread([&] { loss.backward(); }).join();
        return std::vector<Tensor>{model->parameters()[0].grad().clone(), torch::rand({2})};
    };
    check_same(run(How::each), run(How::plain));
}

TEST_CASE("Recompute.custom_functions_may_ask_twice") {
    struct Twice : torch::autograd::Function<Twice> {
        static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
            const Tensor y = x.exp();
            context->save_for_backward({x, y});
            return y * 2;
        }
        static std::vector<Tensor> backward(torch::autograd::AutogradContext* context,
                                            const std::vector<Tensor>& gradients) {
            const Tensor y = context->get_saved_variables()[1];
            CHECK(context->get_saved_variables()[0].exp().equal(y));
            return {gradients[0] * 2 * y};
        }
    };
    const Tensor x = torch::rand({3}).requires_grad_();
    recompute([](const Tensor& a) { return Twice::apply(a.sin()); }, x).sum().backward();
    CHECK(x.grad().allclose(2 * x.detach().sin().exp() * x.detach().cos()));
}
