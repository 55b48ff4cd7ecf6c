// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose copy is made while training goes on hold the state of their report all the
// same.
#include "../support.hpp"

#include <rtrain/checkpoint/host_copy.hpp>
#include <rtrain/checkpoint/state_files.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <concepts>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace rtrain;
using checkpoint::CopyWhen;
using checkpoint::HostCopy;
using checkpoint::Snapshot;
using test::code_of;

namespace {

constexpr std::int64_t width = 768; // 2.25 MiB a weight: more than is copied in one go

/// With a frozen weight, one that is used twice, by two names, and buffers that forward changes.
struct MixedImpl : torch::nn::Module {
    MixedImpl() {
        torch::manual_seed(3);
        frozen = register_module("frozen", torch::nn::Linear(width, width));
        norm = register_module("norm", torch::nn::BatchNorm1d(width));
        one = register_module("one", torch::nn::Linear(width, width));
        frozen->weight.set_requires_grad(false);
        again = register_parameter("again", one->weight);
    }
    torch::Tensor forward(const torch::Tensor& x) { return one(norm(frozen(x))).matmul(again); }

    torch::nn::Linear frozen{nullptr}, one{nullptr};
    torch::nn::BatchNorm1d norm{nullptr};
    torch::Tensor again;
};
TORCH_MODULE(Mixed);

Snapshot values_of(const State& state) {
    Snapshot values;
    state.save(values);
    for (auto& [name, tensor] : values.tensors) {
        tensor = tensor.detach().clone();
    }
    return values;
}

/// Writes to all of the state's memory, as no optimizer does, and puts its values back.
void scribble(const State& state) {
    const Snapshot before = values_of(state);
    Snapshot live;
    state.save(live);
    for (auto& [name, tensor] : live.tensors) {
        std::memset(const_cast<void*>(tensor.const_data_ptr()), 0x5a, tensor.nbytes());
    }
    state.load(before);
}

template <class O>
O make(const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> distinct;
    for (const auto& parameter : parameters) {
        if (std::ranges::none_of(distinct, [&](const auto& t) { return t.is_same(parameter); })) {
            distinct.push_back(parameter);
        }
    }
    if constexpr (std::same_as<O, torch::optim::SGD>) {
        return O(distinct, torch::optim::SGDOptions(0.01).momentum(0.9));
    } else {
        return O(distinct, torch::optim::AdamWOptions(0.01));
    }
}

/// Reports each of three steps; behind a report, `meanwhile(state)`.
template <class Policy, class O, class Meanwhile>
Result train(const RunConfig& run, Meanwhile&& meanwhile) {
    return Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
        auto model = worker.prepare(Mixed());
        auto optimizer = worker.prepare(make<O>(model->parameters()));
        int step = 0;
        auto state = State{}.add("net", model).add("optimizer", optimizer).add("step", step);
        (void)worker.restore(state);
        while (step < 3) {
            torch::manual_seed(static_cast<std::uint64_t>(10 * step + worker.rank()));
            optimizer.zero_grad();
            model(torch::randn({4, width})).square().mean().backward();
            optimizer.step();
            ++step;
            worker.report({{"step", step}}, state);
            meanwhile(state);
        }
    });
}

void require_same(const Checkpoint& one, const Checkpoint& other, bool with_statistics) {
    const Snapshot left = checkpoint::read_state(one.path);
    const Snapshot right = checkpoint::read_state(other.path);
    REQUIRE(left.tensors.size() == right.tensors.size());
    CHECK((left.values == right.values));
    for (const auto& [name, tensor] : left.tensors) {
        CAPTURE(name);
        CHECK((tensor.equal(right.tensors.at(name)) ||
               (!with_statistics && test::contains(name, "norm.running_"))));
    }
}

} // namespace

TEST_CASE_TEMPLATE("LateCopy.checkpoints_have_the_bits_of_their_report", Case,
                   std::pair<checkpoint::Async, torch::optim::SGD>,
                   std::pair<checkpoint::Async, torch::optim::AdamW>,
                   std::pair<checkpoint::AsyncSharded, torch::optim::SGD>,
                   std::pair<checkpoint::AsyncSharded, torch::optim::AdamW>) {
    using Policy = typename Case::first_type;
    using O = typename Case::second_type;
    const test::Directory directory("late");
    const auto run = [&](const char* name) {
        return RunConfig{.name = name, .storage_path = directory.path()};
    };
    // Behind a forward, ranks have buffers of their own, and who saves one depends on the policy.
    using Waiting = std::conditional_t<std::derived_from<Policy, checkpoint::Sharded>,
                                       checkpoint::Sharded, checkpoint::Sync>;
    const Result expected = train<Waiting, O>(run("waiting"), [](const State&) {});
    const auto as_expected = [&](const Result& late, bool with_statistics) {
        REQUIRE(late.best_checkpoints.size() == 3);
        for (std::size_t i = 0; i < 3; ++i) {
            CAPTURE(i);
            require_same(late.best_checkpoints[i].first, expected.best_checkpoints[i].first,
                         with_statistics);
        }
    };
    as_expected(train<Policy, O>(run("quiet"), [](const State&) {}), true);
    as_expected(train<Policy, O>(run("written"), scribble), true);

    // An exception right behind a report, with the state changed; then the run goes on.
    int reports = 0;
    CHECK(code_of([&] {
              (void)train<Policy, O>(run("thrown"), [&](const State& state) {
                  scribble(state);
                  if (++reports == 2) {
                      throw std::runtime_error("for the test");
                  }
              });
          }) == "RT-T1");
    // All ranks then have the statistics of one, with a sharded policy not always rank 0's.
    as_expected(train<Policy, O>(run("thrown"), scribble), std::same_as<Waiting, checkpoint::Sync>);
}

TEST_CASE("LateCopy.copies_late_what_only_computing_changes") {
    const torch::NoGradGuard no_grad;
    const auto before = torch::randn({500, 500});
    Snapshot live;
    for (const char* name : {"late", "tied", "other", "strided", "mapped"}) {
        live.tensors[name] = before.clone();
    }
    live.tensors["tied"] = live.tensors["late"];
    live.tensors["strided"] = before.t().contiguous().t();
    std::vector<float> own(250'000);
    live.tensors["mapped"] = torch::from_blob(own.data(), {500, 500}).copy_(before);
    live.computed = {"late", "tied", "strided", "mapped"};
    const auto zeros = [](const at::Tensor& tensor) {
        return tensor[250].eq(0).all().item<bool>();
    };
    HostCopy copy;
    for (const CopyWhen when : {CopyWhen::late, CopyWhen::now, CopyWhen::late}) {
        HostCopy fresh;
        const Snapshot saved = fresh(live, when);
        for (const auto& [name, tensor] : saved.tensors) {
            CAPTURE(name);
            const bool late = when == CopyWhen::late && (name == "late" || name == "tied");
            CHECK(zeros(tensor) == late);
        }
        for (const auto& [name, tensor] : live.tensors) {
            tensor.neg_();
        }
        live.tensors["late"].neg_(); // it is "tied", too
        fresh.finish();
        for (const auto& [name, tensor] : saved.tensors) {
            CAPTURE(name);
            CHECK(tensor.equal(before));
        }
        for (const auto& [name, tensor] : live.tensors) {
            tensor.copy_(before);
        }
        CHECK(copy(live, when).tensors.size() == saved.tensors.size()); // memory that is kept
        copy.finish();
    }
}

TEST_CASE("LateCopy.says_when_memory_was_replaced_under_it") {
    Snapshot live;
    live.tensors["weight"] = torch::ones({500, 500});
    live.computed = {"weight"};
    HostCopy copy;
    (void)copy(live, CopyWhen::late);
    const auto old = live.tensors["weight"].storage().set_data_ptr(
        c10::GetAllocator(c10::kCPU)->allocate(1'000'000));
    const auto message = test::message_of([&] { copy.finish(); });
    CHECK(test::contains(message, "RT-K28"));
    CHECK(test::contains(message, "\"weight\""));
    live.tensors["weight"].fill_(2);
    (void)copy(live, CopyWhen::late); // it goes on
    copy.finish();
    // A tensor that gets other memory is another matter: the old one is kept.
    const Snapshot saved = copy(live, CopyWhen::late);
    live.tensors["weight"].set_data(torch::zeros({500, 500}));
    copy.finish();
    CHECK(saved.tensors.at("weight").eq(2).all().item<bool>());
}
