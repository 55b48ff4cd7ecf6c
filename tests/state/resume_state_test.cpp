// SPDX-License-Identifier: Apache-2.0
// What a resumed run gets back where its program is built in another order, has changed while it
// ran, or uses classes that keep more than torch's.
#include "support/training.hpp"

#include <rtrain/model/optimizer/fused_optimizer.hpp>
#include <rtrain/testing/checkpoint_policy.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace resume_state_test {

using namespace rtrain;
using test::code_of;
using test::message_of;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;
using torch::optim::SGDOptions;

namespace {

checkpoint::Snapshot saved(const State& state) {
    checkpoint::Snapshot snapshot;
    state.save(snapshot);
    for (auto& [name, tensor] : snapshot.tensors) {
        tensor = tensor.detach().clone();
    }
    return snapshot;
}

/// Two layers of equal shape.
struct TwinsImpl : torch::nn::Module {
    explicit TwinsImpl(bool reversed = false) {
        for (const bool second : {reversed, !reversed}) {
            auto& layer = second ? b : a;
            layer = register_module(second ? "b" : "a", torch::nn::Linear(4, 4));
        }
        const torch::NoGradGuard no_grad;
        a->weight.copy_(torch::linspace(-1, 1, 16).view({4, 4}));
        b->weight.copy_(torch::linspace(1, 2, 16).view({4, 4}));
        a->bias.zero_();
        b->bias.fill_(0.5);
    }
    torch::Tensor forward(const torch::Tensor& x) { return b(torch::tanh(a(x))); }
    /// In an order of their own.
    [[nodiscard]] torch::Tensor values() const {
        return torch::cat({a->weight.flatten(), a->bias, b->weight.flatten(), b->bias}).detach();
    }
    torch::nn::Linear a{nullptr};
    torch::nn::Linear b{nullptr};
};
TORCH_MODULE(Twins);

void train(Twins& net, torch::optim::Optimizer& optimizer, int steps = 3) {
    for (int i = 0; i < steps; ++i) {
        optimizer.step([&] {
            net->zero_grad();
            auto loss = net(torch::linspace(-1, 1, 8).view({2, 4})).square().mean();
            loss.backward();
            return loss;
        });
    }
}

template <class Options>
OptimizerParamGroup group(const std::vector<torch::Tensor>& parameters, const Options& options) {
    return {parameters, std::make_unique<Options>(options)};
}

/// Trains to the end from a checkpoint loaded into a model that is registered in the other order,
/// and compares with one that never stopped.
void check_reversed(const std::function<std::unique_ptr<torch::optim::Optimizer>(Twins&)>& make) {
    Twins net;
    auto optimizer = make(net);
    train(net, *optimizer);
    const auto snapshot = saved(State{}.add("net", net).add("optimizer", *optimizer));
    train(net, *optimizer);
    Twins other(true);
    auto fresh = make(other);
    State{}.add("optimizer", *fresh).add("net", other).load(snapshot);
    train(other, *fresh);
    CHECK(net->values().equal(other->values()));
}

SGDOptions momentum(double lr = 0.05) {
    return SGDOptions(lr).momentum(0.9);
}

} // namespace

TEST_CASE("State.optimizers_find_parameters_by_name") {
    SUBCASE("SGD") {
        check_reversed(
            [](auto& net) { return std::make_unique<SGD>(net->parameters(), momentum()); });
    }
    SUBCASE("Adam") {
        check_reversed(
            [](auto& net) { return std::make_unique<Adam>(net->parameters(), AdamOptions(0.01)); });
    }
    SUBCASE("LBFGS, which keeps all parameters in one tensor") {
        check_reversed([](auto& net) {
            return std::make_unique<LBFGS>(net->parameters(), LBFGSOptions(0.1).max_iter(3));
        });
    }
    SUBCASE("prepared") {
        check_reversed([](auto& net) {
            return std::make_unique<FusedOptimizer<Adam>>(
                Adam(net->parameters(), AdamOptions(0.01)));
        });
    }
    SUBCASE("groups in the other order, of which each keeps its options") {
        check_reversed([](auto& net) {
            auto first = group(net->a->parameters(), momentum(0.01));
            auto second = group(net->b->parameters(), momentum(0.1));
            const bool reversed = net->children()[0] != net->a.ptr();
            return std::make_unique<SGD>(
                reversed ? std::vector{second, first} : std::vector{first, second}, SGDOptions(0));
        });
    }
}

TEST_CASE("State.groups_added_during_a_run_come_back") {
    const auto add_second = [](Twins& net, SGD& optimizer) {
        optimizer.add_param_group(group(net->b->parameters(), momentum(0.02)));
    };
    Twins net;
    SGD optimizer(net->a->parameters(), momentum());
    train(net, optimizer);
    add_second(net, optimizer);
    train(net, optimizer);
    optimizer.param_groups()[1].options().set_lr(0.07);
    const auto snapshot = saved(State{}.add("net", net).add("optimizer", optimizer));
    train(net, optimizer);

    Twins other;
    SGD fresh(other->a->parameters(), momentum());
    const auto state = State{}.add("net", other).add("optimizer", fresh);
    state.load(snapshot);
    REQUIRE(fresh.param_groups().size() == 2);
    CHECK(fresh.param_groups()[1].options().get_lr() == 0.07);
    train(other, fresh);
    CHECK(net->values().equal(other->values()));

    // A group that is added all the same would be stepped twice.
    fresh.state().clear();
    add_second(other, fresh);
    CHECK(code_of([&] { (void)saved(state); }) == "RT-K30");

    // A parameter added to a group.
    Twins more;
    SGD grown(more->a->parameters(), momentum());
    for (const auto& parameter : more->b->parameters()) {
        grown.param_groups()[0].params().push_back(parameter);
    }
    train(more, grown);
    const auto of_grown = saved(State{}.add("net", more).add("optimizer", grown));
    Twins again;
    SGD small(again->a->parameters(), momentum());
    State{}.add("net", again).add("optimizer", small).load(of_grown);
    train(more, grown);
    train(again, small);
    CHECK(more->values().equal(again->values()));
}

TEST_CASE("Resume.a_run_has_the_groups_that_were_added_before_it_stopped") {
    const test::Directory directory("added-groups");
    const auto fit = [&](const std::string& name, int epochs) {
        torch::Tensor values;
        Trainer<backend::Local>({.run = {.name = name, .storage_path = directory.path()}})
            .fit([&](auto& worker) {
                Twins net;
                SGD optimizer(net->a->parameters(), momentum());
                auto state = State{}.add("net", net).add("optimizer", optimizer);
                for (const int epoch : worker.epochs(epochs, state)) {
                    if (epoch == 1) {
                        optimizer.add_param_group(group(net->b->parameters(), momentum(0.02)));
                    }
                    train(net, optimizer);
                    worker.report({{"epoch", epoch}}, state);
                }
                values = net->values();
            });
        return values;
    };
    (void)fit("stopped", 3);
    CHECK(fit("stopped", 5).equal(fit("whole", 5)));
}

TEST_CASE("State.parameters_that_an_optimizer_did_not_have_are_an_error") {
    Twins net;
    SGD first(net->a->parameters(), momentum());
    SGD both(net->parameters(), momentum());
    SGD apart({group(net->a->parameters(), momentum()), group(net->b->parameters(), momentum())},
              SGDOptions(0));
    train(net, both);
    train(net, apart);
    const auto of = [&](SGD& optimizer) {
        return saved(State{}.add("net", net).add("optimizer", optimizer));
    };
    const auto load = [&](SGD& optimizer, const checkpoint::Snapshot& snapshot) {
        return message_of(
            [&] { State{}.add("net", net).add("optimizer", optimizer).load(snapshot); });
    };
    CHECK(test::contains(load(both, of(first)), "\"net/b.weight\""));
    CHECK(test::contains(load(both, of(first)), "RT-K3"));
    CHECK(test::contains(load(apart, of(both)), "RT-K3"));
    CHECK(test::contains(load(both, of(apart)), "RT-K3"));
    CHECK(both.param_groups().size() == 1); // nothing has changed
    CHECK(!both.state().empty());

    // A group of a module that the state no longer has cannot be restored.
    torch::nn::Linear other(2, 2);
    apart.add_param_group(group(other->parameters(), momentum()));
    const auto snapshot =
        saved(State{}.add("net", net).add("other", other).add("optimizer", apart));
    CHECK(test::contains(load(both, snapshot), "\"other/weight\""));
}

TEST_CASE("State.without_names_the_place_of_a_parameter_counts") {
    Twins net;
    Adam optimizer(net->parameters(), AdamOptions(0.01));
    train(net, optimizer);
    auto older = saved(State{}.add("net", net).add("optimizer", optimizer));
    const auto only_optimizer = saved(State{}.add("optimizer", optimizer));
    REQUIRE(older.values.erase("optimizer/0/names") == 1);
    older.values.erase("net/frozen");
    const auto kept = [](Adam& of, const torch::Tensor& parameter) {
        return static_cast<torch::optim::AdamParamState&>(
                   *of.state().at(parameter.unsafeGetTensorImpl()))
            .exp_avg();
    };
    Twins other;
    Adam fresh(other->parameters(), AdamOptions(0.01));
    State{}.add("net", other).add("optimizer", fresh).load(older);
    CHECK(kept(fresh, other->b->weight).equal(kept(optimizer, net->b->weight)));
    fresh.state().clear();
    State{}.add("optimizer", fresh).load(only_optimizer);
    CHECK(kept(fresh, other->b->weight).equal(kept(optimizer, net->b->weight)));
    Adam half(other->a->parameters(), AdamOptions(0.01));
    CHECK(code_of([&] { State{}.add("optimizer", half).load(only_optimizer); }) == "RT-K3");
}

TEST_CASE("State.shared_parameters_have_several_names") {
    struct TiedImpl : torch::nn::Module {
        explicit TiedImpl(bool reversed) {
            weight = torch::linspace(-1, 1, 16).view({4, 4}).requires_grad_();
            for (const char* name : {reversed ? "out" : "in", reversed ? "in" : "out"}) {
                register_parameter(name, weight);
            }
            bias = register_parameter("bias", torch::zeros({4, 4}));
        }
        torch::Tensor weight, bias;
    };
    const auto step = [](TiedImpl& net, Adam& optimizer) {
        optimizer.zero_grad();
        (net.weight.matmul(net.weight) + net.bias).square().mean().backward();
        optimizer.step();
    };
    const auto net = std::make_shared<TiedImpl>(false);
    const auto other = std::make_shared<TiedImpl>(true);
    Adam optimizer(net->parameters(), AdamOptions(0.01));
    Adam fresh(other->parameters(), AdamOptions(0.01));
    step(*net, optimizer);
    State{}
        .add("net", other)
        .add("optimizer", fresh)
        .load(saved(State{}.add("net", net).add("optimizer", optimizer)));
    step(*net, optimizer);
    step(*other, fresh);
    CHECK(net->weight.equal(other->weight));
    CHECK(net->bias.equal(other->bias));
}

namespace {

/// Keeps more than SGD, and does not say so.
struct Counting : SGD {
    using SGD::SGD;
    torch::Tensor step(LossClosure closure = nullptr) override {
        ++steps;
        return SGD::step(std::move(closure));
    }
    int steps = 0;
};
/// Says so.
struct Saving : Counting {
    using Counting::Counting;
    void save(StateWriter& out) const {
        checkpoint::save_as<SGD>(*this, out);
        out.value("steps", steps);
    }
    void load(const StateReader& in) {
        checkpoint::load_as<SGD>(*this, in);
        steps = in.value("steps").to_number<int>();
    }
};

struct Warmup : torch::optim::LRScheduler {
    explicit Warmup(torch::optim::Optimizer& optimizer) : LRScheduler(optimizer) {}
    std::vector<double> get_lrs() override {
        return std::vector<double>(get_current_lrs().size(), 0.1 * ++calls);
    }
    int calls = 0;
};
struct SavingWarmup : Warmup {
    using Warmup::Warmup;
    void save(StateWriter& out) const {
        checkpoint::save_as<torch::optim::LRScheduler>(*this, out);
        out.value("calls", calls);
    }
    void load(const StateReader& in) {
        checkpoint::load_as<torch::optim::LRScheduler>(*this, in);
        calls = in.value("calls").to_number<int>();
    }
};
struct Plateau : torch::optim::ReduceLROnPlateauScheduler {
    using ReduceLROnPlateauScheduler::ReduceLROnPlateauScheduler;
};

/// A module that torch saves with more than parameters and buffers.
struct CountsImpl : torch::nn::Module {
    CountsImpl() { weight = register_parameter("weight", torch::ones({2})); }
    void save(torch::serialize::OutputArchive& archive) const override {
        Module::save(archive);
        archive.write("calls", c10::IValue(calls));
    }
    torch::Tensor forward(const torch::Tensor& x) {
        ++calls;
        return x * weight;
    }
    torch::Tensor weight;
    std::int64_t calls = 0;
};
TORCH_MODULE(Counts);
struct SavingCountsImpl : torch::nn::Module {
    SavingCountsImpl() { weight = register_parameter("weight", torch::ones({2})); }
    void save(StateWriter& out) const {
        out.value("calls", calls);
        out.tensor("seen", torch::full({3}, calls));
    }
    void load(const StateReader& in) {
        calls = in.value("calls").to_number<std::int64_t>();
        CHECK(in.tensor("seen").equal(torch::full({3}, calls)));
    }
    using torch::nn::Module::load;
    using torch::nn::Module::save;
    torch::Tensor weight;
    std::int64_t calls = 0;
};
TORCH_MODULE(SavingCounts);

} // namespace

TEST_CASE("State.a_class_that_may_keep_more_than_its_base_is_refused") {
    Twins net;
    Counting counting(net->parameters(), momentum());
    const auto refused = message_of([&] { (void)saved(State{}.add("optimizer", counting)); });
    for (const char* part : {"Counting", "save(rtrain::StateWriter& out) const",
                             "save_as<Base>(*this, out)", "RT-K7"}) {
        CHECK(test::contains(refused, part));
    }
    auto& as_base = static_cast<torch::optim::Optimizer&>(counting);
    CHECK(code_of([&] { (void)saved(State{}.add("optimizer", as_base)); }) == "RT-K7");
    SGD plain(net->parameters(), momentum());
    const auto of_plain = saved(State{}.add("optimizer", plain));
    CHECK(code_of([&] { State{}.add("optimizer", counting).load(of_plain); }) == "RT-K7");

    Warmup warmup(plain);
    CHECK(code_of([&] { (void)saved(State{}.add("schedule", warmup)); }) == "RT-K7");
    Plateau plateau(plain);
    CHECK(code_of([&] { (void)saved(State{}.add("schedule", plateau)); }) == "RT-K7");
    torch::optim::StepLR steps(plain, 2);
    torch::optim::ReduceLROnPlateauScheduler torchs(plain);
    CHECK_NOTHROW((void)saved(State{}.add("steps", steps).add("plateau", torchs)));

    CHECK(code_of([&] { (void)saved(State{}.add("module", Counts())); }) == "RT-K7");
    const auto nested = std::make_shared<torch::nn::Module>();
    nested->register_module("inner", torch::nn::Sequential(torch::nn::Linear(2, 2), Counts()));
    const auto inside = message_of([&] { (void)saved(State{}.add("module", nested)); });
    CHECK(test::contains(inside, "CountsImpl"));
    CHECK(test::contains(inside, "\"calls\""));
}

TEST_CASE("State.a_class_saves_itself_and_what_its_base_keeps") {
    Twins net;
    Saving optimizer(net->parameters(), momentum());
    SavingWarmup warmup(optimizer);
    SavingCounts counts;
    counts->calls = 7;
    train(net, optimizer);
    warmup.step();
    warmup.step();
    const auto snapshot = saved(State{}
                                    .add("net", net)
                                    .add("optimizer", optimizer)
                                    .add("warmup", warmup)
                                    .add("counts", counts));
    train(net, optimizer);
    Twins other(true); // and finds parameters by name
    Saving fresh(other->parameters(), momentum());
    SavingWarmup fresh_warmup(fresh);
    SavingCounts fresh_counts;
    State{}
        .add("net", other)
        .add("optimizer", fresh)
        .add("warmup", fresh_warmup)
        .add("counts", fresh_counts)
        .load(snapshot);
    CHECK(fresh.steps == 3);
    train(other, fresh);
    CHECK(net->values().equal(other->values()));
    CHECK(fresh_warmup.calls == 2);
    CHECK(fresh_counts->calls == 7);
    auto older = snapshot; // of before modules could do so
    older.values.erase("counts/.own");
    older.tensors.erase("counts/.own/seen");
    fresh_counts->calls = 1;
    State{}.add("counts", fresh_counts).load(older);
    CHECK(fresh_counts->calls == 1);
}

TEST_CASE("State.no_module_of_torch_is_refused") {
    using namespace torch::nn;
    std::vector<std::shared_ptr<Module>> modules{
        Sequential(Linear(2, 2), Functional(torch::relu), Dropout(0.5)).ptr(),
        BatchNorm1d(BatchNorm1dOptions(2).track_running_stats(false)).ptr(),
        InstanceNorm2d(InstanceNorm2dOptions(3).affine(true).track_running_stats(true)).ptr(),
        LSTM(LSTMOptions(2, 3).num_layers(2).bidirectional(true)).ptr(),
        GRU(2, 3).ptr(),
        LSTMCell(2, 3).ptr(),
        MultiheadAttention(4, 2).ptr(),
        TransformerEncoder(TransformerEncoderLayer(4, 2), 2).ptr(),
        AdaptiveLogSoftmaxWithLoss(AdaptiveLogSoftmaxWithLossOptions(16, 10, {2, 5})).ptr(),
        EmbeddingBag(4, 3).ptr(),
        PReLU().ptr(),
        CrossEntropyLoss(CrossEntropyLossOptions().weight(torch::ones({3}))).ptr(),
        ParameterList(torch::ones({2}), torch::ones({3})).ptr(),
        ModuleList(Linear(2, 2), Conv2d(1, 1, 1)).ptr()};
    for (const auto& module : modules) {
        CAPTURE(module->name());
        CHECK_NOTHROW((void)saved(State{}.add("module", module)));
    }
}

TEST_CASE("State.what_trains_comes_back") {
    Twins net;
    net->a->weight.set_requires_grad(false);
    auto tensor = torch::ones({2});
    auto snapshot = saved(State{}.add("net", net).add("tensor", tensor));
    Twins other;
    other->b->bias.set_requires_grad(false);
    auto other_tensor = torch::ones({2}, torch::requires_grad());
    const auto state = State{}.add("net", other).add("tensor", other_tensor);
    state.load(snapshot);
    CHECK(!other->a->weight.requires_grad());
    CHECK(other->b->bias.requires_grad());
    CHECK(!other_tensor.requires_grad());

    // The checkpoint of another run does not decide; an older one does not know.
    other->a->weight.set_requires_grad(true);
    snapshot.same_run = false;
    state.load(snapshot);
    CHECK(other->a->weight.requires_grad());
    snapshot.same_run = true;
    snapshot.values.erase("net/frozen");
    state.load(snapshot);
    CHECK(other->a->weight.requires_grad());
}

TEST_CASE("Resume.a_run_trains_what_was_unfrozen_before_it_stopped") {
    const test::Directory directory("unfrozen");
    const auto fit = [&](const std::string& name, int epochs, int unfreeze_at) {
        torch::Tensor values;
        Trainer<backend::Local>({.run = {.name = name, .storage_path = directory.path()}})
            .fit([&](auto& worker) {
                Twins net;
                const auto freeze = [&](bool frozen) {
                    for (auto& parameter : net->a->parameters()) {
                        parameter.set_requires_grad(!frozen);
                    }
                };
                freeze(true);
                auto model = worker.prepare(net);
                auto optimizer = worker.prepare(Adam(net->parameters(), AdamOptions(0.01)));
                auto state = State{}.add("net", model).add("optimizer", optimizer);
                for (const int epoch : worker.epochs(epochs, state)) {
                    if (epoch == unfreeze_at) {
                        freeze(false);
                    }
                    train(net, optimizer);
                    worker.report({{"epoch", epoch}}, state);
                }
                values = net->values().clone();
            });
        return values;
    };
    (void)fit("stopped", 4, 2);
    const auto whole = fit("whole", 6, 2);
    CHECK(fit("stopped", 6, 2).equal(whole));
    CHECK(!fit("frozen", 6, 9).equal(whole));
}

namespace {

/// Of each rank its own, of any shape and name.
struct Replay {
    std::vector<torch::Tensor> episodes{};
    std::int64_t steps = 0;
    void save(StateWriter& out) const {
        out.value("steps", steps);
        for (std::size_t i = 0; i < episodes.size(); ++i) {
            out.tensor("episode/" + std::to_string(i), episodes[i]);
        }
    }
    void load(const StateReader& in) {
        steps = in.value("steps").to_number<std::int64_t>();
        episodes.clear();
        while (in.has_tensor("episode/" + std::to_string(episodes.size()))) {
            episodes.push_back(in.tensor("episode/" + std::to_string(episodes.size())).clone());
        }
    }
};

/// What rank `rank` adds to its state.
struct OwnState {
    explicit OwnState(int rank, bool is_filled = true) : actor(3, rank + 1) {
        if (is_filled) {
            replay.steps = 10 + rank;
            for (int i = 0; i < rank; ++i) {
                replay.episodes.push_back(torch::full({i, 2}, rank));
            }
            losses = torch::full({rank + 1}, rank);
            best = rank + 0.5;
        }
    }
    State state() {
        return State{}
            .add("step", step)
            .add_per_rank("replay", replay)
            .add_per_rank("losses", losses)
            .add_per_rank("best", best)
            .add_per_rank("actor", actor)
            .add("generator", generator);
    }
    int step = 0;
    Replay replay;
    torch::Tensor losses;
    double best = 0;
    torch::nn::Linear actor; ///< ranks have other shapes
    at::Generator generator = at::detail::createCPUGenerator(1);
};

} // namespace

TEST_CASE_TEMPLATE("State.each_rank_gets_its_own_back", Policy, checkpoint::Sync,
                   checkpoint::Sharded) {
    const test::Directory directory("per-rank");
    constexpr int ranks = 3;
    checkpoint::ThePolicy policy{Policy{}};
    std::vector<checkpoint::Contents> contents;
    std::vector<torch::Tensor> drawn;
    std::vector<torch::Tensor> weights;
    for (int rank = 0; rank < ranks; ++rank) {
        OwnState own(rank);
        own.step = 4;
        own.generator.set_current_seed(static_cast<std::uint64_t>(100 + rank));
        checkpoint::Snapshot snapshot;
        snapshot.rank = rank;
        snapshot.ranks = ranks;
        own.state().save(snapshot);
        for (int other = 0; other < ranks; ++other) { // as add_bytes_of_ranks() does
            auto theirs = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + other));
            snapshot.tensors["generator/state/" + std::to_string(other)] = theirs.get_state();
        }
        const checkpoint::Part part{directory.path(), rank, ranks};
        contents.push_back(policy.write(policy.select(std::move(snapshot), part), part));
        drawn.push_back(torch::rand({3}, own.generator));
        weights.push_back(own.actor->weight.detach().clone());
    }
    rtrain::testing::commit(directory.path(), std::move(contents));
    auto snapshot = policy.read({directory.path(), 0, 1});
    for (const int now : {1, ranks, 5}) {
        snapshot.ranks = now;
        for (int rank = 0; rank < now; ++rank) {
            CAPTURE(now);
            CAPTURE(rank);
            OwnState own(rank, false);
            const auto before = own.actor->weight.detach().clone();
            snapshot.rank = rank;
            own.state().load(snapshot);
            CHECK(own.step == 4);
            const bool existed = rank < ranks;
            const OwnState expected(rank, existed);
            CHECK(own.replay.steps == expected.replay.steps);
            REQUIRE(own.replay.episodes.size() == expected.replay.episodes.size());
            for (std::size_t i = 0; i < expected.replay.episodes.size(); ++i) {
                CHECK(own.replay.episodes[i].equal(expected.replay.episodes[i]));
            }
            CHECK(own.losses.defined() == existed);
            CHECK((!existed || own.losses.equal(expected.losses)));
            CHECK(own.best == expected.best);
            CHECK(own.actor->weight.equal(existed ? weights[static_cast<std::size_t>(rank)]
                                                  : before));
            const auto next = torch::rand({3}, own.generator);
            CHECK((!existed || next.equal(drawn[static_cast<std::size_t>(rank)])));
            CHECK((existed || !next.equal(drawn[0])));
        }
    }
}

TEST_CASE_TEMPLATE("State.what_a_rank_cannot_save_of_its_own_is_its_error", Policy,
                   checkpoint::Sync, checkpoint::Sharded) {
    const test::Directory directory("per-rank-refused");
    checkpoint::ThePolicy policy{Policy{}};
    for (auto tensor : {torch::Tensor(), torch::ones({2}).to_sparse()}) {
        CAPTURE(tensor.defined());
        checkpoint::Snapshot snapshot;
        snapshot.rank = 1;
        snapshot.ranks = 2;
        State{}.add_per_rank("own", tensor).save(snapshot);
        const checkpoint::Part part{directory.path(), 1, 2};
        CHECK(code_of([&] { policy.write(policy.select(std::move(snapshot), part), part); }) ==
              "RT-K6");
    }
}

TEST_CASE("State.what_all_ranks_shared_goes_to_each_rank") {
    auto tensor = torch::ones({2});
    auto generator = at::detail::createCPUGenerator(3);
    auto older = saved(State{}.add("tensor", tensor));
    older.tensors["generator/state"] = generator.get_state();
    auto other = torch::zeros({2});
    auto other_generator = at::detail::createCPUGenerator(4);
    older.rank = 1;
    older.ranks = 2;
    State{}.add_per_rank("tensor", other).add("generator", other_generator).load(older);
    CHECK(other.equal(tensor));
    CHECK(torch::rand({2}, other_generator).equal(torch::rand({2}, generator)));
}

TEST_CASE("Epochs.what_cannot_be_saved_fails_before_the_first") {
    const test::Directory directory("unsaved");
    int number = 0;
    const auto fit = [&](const auto& add) {
        int epochs = 0;
        const auto message = message_of([&] {
            Trainer<backend::Local>(
                {.run = {.name = std::to_string(number++), .storage_path = directory.path()}})
                .fit([&](auto& worker) {
                    State state;
                    add(state);
                    for (const int epoch : worker.epochs(2, state)) {
                        epochs += 1 + 0 * epoch;
                    }
                });
        });
        CHECK(epochs == (message.empty() ? 2 : 0));
        return message;
    };
    Twins net;
    Counting optimizer(net->parameters(), momentum());
    CHECK(test::contains(fit([&](State& state) { state.add("optimizer", optimizer); }), "RT-K7"));
    auto complex = torch::zeros({2}, torch::kComplexDouble);
    CHECK(test::contains(fit([&](State& state) { state.add("complex", complex); }), "RT-K6"));
    CHECK(test::contains(fit([&](State& state) { state.add_per_rank("complex", complex); }),
                         "RT-K6"));
    auto sparse = torch::ones({2}).to_sparse();
    CHECK(test::contains(fit([&](State& state) { state.add("sparse", sparse); }), "RT-K6"));
    auto tensor = torch::zeros({2});
    CHECK(test::contains(fit([&](State& state) { state.add(std::string(600, 'a'), tensor); }),
                         "RT-K20"));
    struct Throws {
        void save(StateWriter& /*out*/) const { throw std::runtime_error("not today"); }
        void load(const StateReader& /*in*/) {}
    } throws;
    CHECK(test::contains(fit([&](State& state) { state.add("throws", throws); }), "not today"));
    at::Tensor later; // may be defined by then
    CHECK(fit([&](State& state) { state.add("later", later); }).empty());
}

} // namespace resume_state_test
