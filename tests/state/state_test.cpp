// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/model/optimizer/fused_optimizer.hpp>
#include <rtrain/testing/checkpoint_policy.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;

namespace {

/// Through files and back, as a checkpoint goes: written by three ranks, read by one.
checkpoint::Snapshot through_disk(const checkpoint::Snapshot& snapshot) {
    const test::Directory directory("state");
    checkpoint::ThePolicy policy{checkpoint::Sharded{}};
    rtrain::testing::write_checkpoint(policy, directory.path(), snapshot, 3);
    return policy.read({directory.path(), 0, 1});
}

checkpoint::Snapshot saved(const State& state) {
    checkpoint::Snapshot snapshot;
    state.save(snapshot);
    return through_disk(snapshot);
}

void train(test::Net& net, torch::optim::Optimizer& optimizer, int steps) {
    static const auto rows = test::fashion_mnist(64).rows(torch::arange(64));
    for (int i = 0; i < steps; ++i) {
        optimizer.step([&] {
            optimizer.zero_grad();
            auto loss = torch::cross_entropy_loss(net(rows["image"]), rows["label"]);
            loss.backward();
            return loss;
        });
    }
}

/// Trains on, from a state saved half-way into fresh objects: the bits must be the same.
void check_resumes(
    const std::function<std::unique_ptr<torch::optim::Optimizer>(test::Net&)>& make) {
    torch::manual_seed(1);
    test::Net net;
    auto optimizer = make(net);
    train(net, *optimizer, 5);
    const auto snapshot = saved(State{}.add("net", net).add("optimizer", *optimizer));
    train(net, *optimizer, 5);

    test::Net other;
    auto fresh = make(other);
    for (auto& group : fresh->param_groups()) {
        group.options().set_lr(99); // to be overwritten
    }
    State{}.add("net", other).add("optimizer", *fresh).load(snapshot);
    train(other, *fresh, 5);
    CHECK(test::flat(*net).equal(test::flat(*other)));
}

} // namespace

TEST_CASE("State.every_optimizer_resumes_to_the_bit") {
    using namespace torch::optim;
    SUBCASE("SGD") {
        check_resumes([](auto& net) {
            return std::make_unique<SGD>(
                net->parameters(),
                SGDOptions(0.05).momentum(0.9).dampening(0.1).weight_decay(1e-4));
        });
    }
    SUBCASE("SGD without momentum") {
        check_resumes([](auto& net) { return std::make_unique<SGD>(net->parameters(), 0.05); });
    }
    SUBCASE("Adam") {
        check_resumes([](auto& net) {
            return std::make_unique<Adam>(net->parameters(), AdamOptions(1e-3).amsgrad(true));
        });
    }
    SUBCASE("AdamW in two groups") {
        check_resumes([](auto& net) {
            std::vector<OptimizerParamGroup> groups;
            groups.emplace_back(net->in->parameters(),
                                std::make_unique<AdamWOptions>(AdamWOptions(1e-3)));
            groups.emplace_back(net->out->parameters(),
                                std::make_unique<AdamWOptions>(AdamWOptions(3e-3)));
            return std::make_unique<AdamW>(std::move(groups), AdamWOptions(1e-3));
        });
    }
    SUBCASE("Adagrad") {
        check_resumes([](auto& net) {
            return std::make_unique<Adagrad>(net->parameters(),
                                             AdagradOptions(0.01).lr_decay(0.01));
        });
    }
    SUBCASE("RMSprop") {
        check_resumes([](auto& net) {
            return std::make_unique<RMSprop>(net->parameters(),
                                             RMSpropOptions(1e-3).momentum(0.5).centered(true));
        });
    }
    SUBCASE("LBFGS") {
        check_resumes([](auto& net) {
            return std::make_unique<LBFGS>(net->parameters(),
                                           LBFGSOptions(0.5).max_iter(4).history_size(3));
        });
    }
}

TEST_CASE("State.schedulers_resume") {
    const auto rates = [](int before, bool resume) {
        auto parameter = torch::zeros({1}, torch::requires_grad());
        torch::optim::SGD optimizer(std::vector<torch::Tensor>{parameter}, 1.0);
        torch::optim::StepLR step(optimizer, 3, 0.5);
        torch::optim::ReduceLROnPlateauScheduler plateau(
            optimizer, torch::optim::ReduceLROnPlateauScheduler::min, 0.1F, 2);
        std::vector<double> seen;
        checkpoint::Snapshot snapshot;
        for (int i = 0; i < 12; ++i) {
            if (resume && i == before) {
                snapshot = saved(
                    State{}.add("optimizer", optimizer).add("step", step).add("plateau", plateau));
                break;
            }
            step.step();
            plateau.step(1.0F);
            seen.push_back(optimizer.param_groups()[0].options().get_lr());
        }
        if (resume) {
            torch::optim::SGD other(std::vector<torch::Tensor>{parameter}, 1.0);
            torch::optim::StepLR other_step(other, 3, 0.5);
            torch::optim::ReduceLROnPlateauScheduler other_plateau(
                other, torch::optim::ReduceLROnPlateauScheduler::min, 0.1F, 2);
            State{}
                .add("optimizer", other)
                .add("step", other_step)
                .add("plateau", other_plateau)
                .load(snapshot);
            for (int i = before; i < 12; ++i) {
                other_step.step();
                other_plateau.step(1.0F);
                seen.push_back(other.param_groups()[0].options().get_lr());
            }
        }
        return seen;
    };
    const auto expected = rates(0, false);
    for (int before = 0; before < 12; ++before) {
        CHECK(rates(before, true) == expected);
    }
}

namespace {

struct Counter {
    int count = 0;
    torch::Tensor histogram = torch::zeros({3});
    void save(StateWriter& out) const {
        out.value("count", count);
        out.tensor("histogram", histogram);
    }
    void load(const StateReader& in) {
        count = in.value("count").to_number<int>();
        histogram = in.tensor("histogram").clone();
    }
};

} // namespace

TEST_CASE("State.user_values_come_back") {
    int steps = 7;
    double best = std::numeric_limits<double>::infinity();
    float small = 0.1F;
    bool flag = true;
    std::string text = "a \"quoted\" text";
    boost::json::object object{{"pi", 3.141592653589793}};
    auto tensor = torch::arange(4).to(torch::kFloat);
    auto generator = at::detail::createCPUGenerator(42);
    Counter counter{3, torch::ones({3})};
    auto state = State{}
                     .add("steps", steps)
                     .add("best", best)
                     .add("small", small)
                     .add("flag", flag)
                     .add("text", text)
                     .add("object", object)
                     .add("tensor", tensor)
                     .add("generator", generator)
                     .add("counter", counter);
    const auto snapshot = saved(state);
    const auto drawn = torch::rand({3}, generator);
    steps = 0;
    best = 0;
    small = 0;
    flag = false;
    text.clear();
    object.clear();
    const auto alias = tensor;
    tensor.zero_();
    counter = {};
    state.load(snapshot);
    CHECK(steps == 7);
    CHECK(std::isinf(best));
    CHECK(small == 0.1F);
    CHECK(flag);
    CHECK(text == "a \"quoted\" text");
    CHECK(object.at("pi") == 3.141592653589793);
    CHECK(alias.equal(torch::arange(4).to(torch::kFloat)));
    CHECK(torch::rand({3}, generator).equal(drawn));
    CHECK(counter.count == 3);
    CHECK(counter.histogram.equal(torch::ones({3})));
}

TEST_CASE("State.what_does_not_fit_is_an_error") {
    test::Net net;
    int value = 0;
    CHECK(code_of([&] { State{}.add("a", value).add("a", value); }) == "RT-K8");
    CHECK(code_of([&] { State{}.add("rtrain", value); }) == "RT-K8");
    CHECK(code_of([&] { State{}.add("../a", value); }) == "RT-K8");
    CHECK(code_of([&] { State{}.add("", value); }) == "RT-K8");

    const auto snapshot = saved(State{}.add("net", net));
    test::Net with_norm(0.0, true);
    CHECK(code_of([&] { State{}.add("net", with_norm).load(snapshot); }) == "RT-K3");
    torch::nn::Linear smaller(784, 32);
    CHECK(code_of([&] { State{}.add("net", smaller).load(snapshot); }) == "RT-K3");
    CHECK(code_of([&] { State{}.add("other", net).load(snapshot); }) == "RT-K3");
    std::string text = "seven";
    const auto of_text = saved(State{}.add("value", text));
    const auto of_number = saved(State{}.add("value", value));
    bool flag = false;
    CHECK(code_of([&] { State{}.add("value", value).load(of_text); }) == "RT-K3");
    CHECK(code_of([&] { State{}.add("value", text).load(of_number); }) == "RT-K3");
    CHECK(code_of([&] { State{}.add("value", flag).load(of_number); }) == "RT-K3");
    const auto bigger = saved(State{}.add("net", with_norm));
    const auto before = test::flat(*net);
    CHECK(code_of([&] { State{}.add("net", net).load(bigger); }) == "RT-K3");
    CHECK(test::flat(*net).equal(before));

    torch::optim::SGD sgd(net->parameters(), 0.1);
    torch::optim::Adam adam(net->parameters(), 0.1);
    const auto optimizer = saved(State{}.add("optimizer", sgd));
    CHECK(code_of([&] { State{}.add("optimizer", adam).load(optimizer); }) == "RT-K3");
    torch::optim::SGD fewer(net->in->parameters(), 0.1);
    CHECK(code_of([&] { State{}.add("optimizer", fewer).load(optimizer); }) == "RT-K3");
}

TEST_CASE("State.of_an_optimizer_must_have_the_shapes_of_its_parameters") {
    using namespace torch::optim;
    const auto check = [](const auto& make) {
        const auto stepped = [&](std::vector<std::int64_t> shape) {
            auto weight = torch::ones(shape).set_requires_grad(true);
            auto optimizer = make(weight);
            for (int i = 0; i < 3; ++i) {
                optimizer.step([&] {
                    optimizer.zero_grad();
                    auto loss = (weight * weight * weight * weight).sum();
                    loss.backward();
                    return loss;
                });
            }
            return optimizer;
        };
        auto large = stepped({64, 64});
        const auto snapshot = saved(State{}.add("optimizer", large));
        CHECK(code_of([&] { State{}.add("optimizer", large).load(snapshot); }).empty());
        for (const auto& shape : {std::vector<std::int64_t>{2, 3}, {65, 64}}) {
            auto other = stepped(shape);
            CHECK(code_of([&] { State{}.add("optimizer", other).load(snapshot); }) == "RT-K3");
        }
    };
    check([](auto& weight) { return SGD({weight}, SGDOptions(0.01).momentum(0.9)); });
    check([](auto& weight) { return Adam({weight}, AdamOptions(0.01).amsgrad(true)); });
    check([](auto& weight) { return AdamW({weight}, AdamWOptions(0.01)); });
    check([](auto& weight) { return Adagrad({weight}, AdagradOptions(0.01)); });
    check([](auto& weight) { return RMSprop({weight}, RMSpropOptions(0.01)); });
    check([](auto& weight) { return LBFGS({weight}, LBFGSOptions(0.01)); });
    check([](auto& weight) { return FusedOptimizer<Adam>(Adam({weight}, AdamOptions(0.01))); });
}

TEST_CASE("State.what_ranks_have_saved_in_pieces_is_loaded_whole") {
    const auto made = [] { return torch::ones({1, 2, 1, 2, 1, 3}, torch::requires_grad()); };
    const auto saved = made();
    torch::optim::Adam adam({saved}, 0.1);
    saved.mutable_grad() = torch::ones_like(saved);
    adam.step();
    checkpoint::Snapshot snapshot;
    State{}.add("optimizer", adam).save(snapshot);
    for (auto& [name, tensor] : std::exchange(snapshot.tensors, {})) {
        const auto flat = tensor.flatten();
        const auto rest = flat.numel() - 5;
        snapshot.pieces[name] = {
            tensor.sizes().vec(), {{0, flat.narrow(0, 0, 5)}, {5, flat.narrow(0, 5, rest)}}, true};
    }
    torch::optim::Adam other({made()}, 0.1);
    State{}.add("optimizer", other).load(snapshot);
    checkpoint::Snapshot again;
    State{}.add("optimizer", other).save(again);
    REQUIRE(again.tensors.size() == snapshot.pieces.size());
    for (const auto& [name, tensor] : again.tensors) {
        CHECK(
            tensor.flatten().slice(0, 0, 5).equal(snapshot.pieces.at(name).pieces.at(0).elements));
    }
}

RTRAIN_TEST_CHECKPOINT_POLICY(None, checkpoint::None{});
RTRAIN_TEST_CHECKPOINT_POLICY(Sync, checkpoint::Sync{});
RTRAIN_TEST_CHECKPOINT_POLICY(Async, checkpoint::Async{});
RTRAIN_TEST_CHECKPOINT_POLICY(Sharded, checkpoint::Sharded{});
RTRAIN_TEST_CHECKPOINT_POLICY(AsyncSharded, checkpoint::AsyncSharded{});

namespace {

using checkpoint::Contents;
using checkpoint::Part;
using checkpoint::Snapshot;

/// The smallest one of docs/architecture.md, which says nowhere that it saves nothing.
struct Forgetful {
    void write(const Snapshot& /*state*/, const Part& /*part*/) {}
    Snapshot read(const Part& /*part*/) { return {}; }
};
/// All ranks write into one file.
struct SharesAFile : checkpoint::Sharded {
    [[nodiscard]] Contents write(const Snapshot& mine, const Part& part) const {
        return Sharded::write(mine, {part.directory, 0, part.size});
    }
};
struct WritesAfterwards : checkpoint::Sync {
    static constexpr bool writes_in_background = true;
    Snapshot live;
    [[nodiscard]] Snapshot select(Snapshot state, const Part& part) {
        live = Sync::select(std::move(state), part);
        return live;
    }
    [[nodiscard]] Contents write(const Snapshot& /*mine*/, const Part& part) const {
        return Sync::write(live, part);
    }
};
struct DropsRows : checkpoint::Sync {
    [[nodiscard]] Snapshot select(Snapshot state, const Part& part) const {
        state.pieces.clear();
        return Sync::select(std::move(state), part);
    }
};
struct BeginsAnew : checkpoint::Sync {
    [[nodiscard]] Snapshot read(const Part& part) const {
        return std::filesystem::is_empty(part.directory) ? Snapshot{} : Sync::read(part);
    }
};
struct Copies : checkpoint::Sync {
    [[nodiscard]] Snapshot select(Snapshot state, const Part& part) const {
        for (auto& [name, tensor] : state.tensors) {
            tensor = tensor.clone();
        }
        return Sync::select(std::move(state), part);
    }
};

} // namespace

#define MUST_FAIL(type, holds)                                                                     \
    TEST_CASE("CheckpointPolicy.suite_notices." #type* doctest::should_fail()) {                   \
        rtrain::testing::CheckpointPolicySuite(type{}).holds();                                    \
    }
MUST_FAIL(Forgetful, gives_back_the_whole_state)
MUST_FAIL(SharesAFile, does_without_a_directory_of_all_ranks)
MUST_FAIL(WritesAfterwards, keeps_the_state_of_its_moment)
MUST_FAIL(DropsRows, saves_rows_of_ranks_or_refuses_them)
MUST_FAIL(BeginsAnew, refuses_a_directory_without_a_checkpoint)
MUST_FAIL(Copies, selects_views)
#undef MUST_FAIL

TEST_CASE("Policy.any_reads_what_another_wrote_and_no_byte_is_written_twice") {
    Snapshot state;
    state.tensors["a"] = torch::randn({7, 3});
    state.tensors["b"] = torch::arange(1001, torch::kLong);
    state.tensors["c"] = torch::randn({64, 64}).t().to(torch::kBFloat16);
    checkpoint::ThePolicy sharded{checkpoint::Sharded{}};
    checkpoint::ThePolicy sync{checkpoint::Sync{}};
    const auto same_as_state = [&](const Snapshot& loaded) {
        REQUIRE(loaded.tensors.size() == state.tensors.size());
        for (const auto& [name, tensor] : state.tensors) {
            CAPTURE(name);
            CHECK(loaded.tensors.at(name).equal(tensor));
        }
    };
    for (int ranks = 1; ranks <= 9; ++ranks) {
        CAPTURE(ranks);
        const test::Directory directory("ranks");
        rtrain::testing::write_checkpoint(sharded, directory.path(), state, ranks);
        same_as_state(sync.read({directory.path(), 0, 1}));
        std::uintmax_t bytes = 0;
        for (const auto& file : checkpoint::read_manifest(directory.path()).contents.files) {
            bytes += file.size;
        }
        std::uintmax_t least = 0;
        for (const auto& [name, tensor] : state.tensors) {
            least += tensor.nbytes();
        }
        CHECK(bytes < least + 1024 * static_cast<unsigned>(ranks) + 100);
    }
    const test::Directory directory("sync");
    rtrain::testing::write_checkpoint(sync, directory.path(), state, 2);
    same_as_state(sharded.read({directory.path(), 3, 4}));
}

TEST_CASE("Policy.rows_of_ranks_make_one_tensor") {
    const test::Directory directory("rows");
    const auto table = torch::randn({10, 3});
    const std::vector<std::int64_t> begins{0, 3, 3, 9, 10}; // uneven, one rank has none
    const checkpoint::Sharded policy;
    checkpoint::Manifest manifest;
    for (int rank = 3; rank >= 0; --rank) {
        const auto begin = begins[static_cast<std::size_t>(rank)];
        const auto end = begins[static_cast<std::size_t>(rank) + 1];
        checkpoint::Snapshot state;
        StateWriter(state, "table").rows("weight", table.slice(0, begin, end), begin, 10);
        const checkpoint::Part part{directory.path(), rank, 4};
        checkpoint::merge(manifest.contents, policy.write(policy.select(state, part), part));
    }
    checkpoint::check(manifest.contents, checkpoint::Listed::completely);
    test::write(directory.path() / checkpoint::manifest_file, checkpoint::manifest_text(manifest));
    const auto snapshot = policy.read({directory.path(), 0, 1});
    const StateReader in(snapshot, "table");
    CHECK(in.has_tensor("weight"));
    CHECK(in.tensor("weight").equal(table));
    for (std::int64_t begin = 0; begin <= 10; ++begin) {
        for (std::int64_t end = begin; end <= 10; ++end) {
            CHECK(in.rows("weight", begin, end).equal(table.slice(0, begin, end)));
        }
    }
    checkpoint::Snapshot whole;
    whole.tensors["table/weight"] = table;
    CHECK(StateReader(whole, "table").rows("weight", 2, 5).equal(table.slice(0, 2, 5)));
    checkpoint::Snapshot unused;
    CHECK(code_of([&] { StateWriter(unused, "t").rows("w", table, 1, 10); }) == "RT-K11");
}
