// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the background that are copied behind the report: what they hold is the state of
// the report, whatever comes first after it.
#include "support/training.hpp"

#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/weights.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rtrain;
using process::DeferredCopy;
using Saved = std::map<std::string, at::Tensor>;

namespace {

bool is_alone() {
    return launch::ranks().value_or(1) == 1;
}

/// The state in a checkpoint, whoever wrote what of it.
Saved read(const std::filesystem::path& directory) {
    const checkpoint::Snapshot snapshot = checkpoint::Sharded{}.read({directory, 0, 1});
    Saved saved;
    for (const auto& [name, tensor] : snapshot.tensors) {
        saved[name] = tensor.clone();
    }
    for (const auto& [name, whole] : snapshot.pieces) {
        saved[name] = checkpoint::assemble(whole);
    }
    return saved;
}

void require_same(const Saved& one, const Saved& other) {
    REQUIRE(one.size() == other.size());
    REQUIRE(one.size() > 10);
    for (const auto& [name, tensor] : one) {
        CAPTURE(name);
        REQUIRE(other.contains(name));
        CHECK(tensor.equal(other.at(name)));
    }
}

RunConfig run_in(const test::Directory& directory, const char* name,
                 std::optional<bool> late_copies = std::nullopt) {
    return {
        .name = name, .storage_path = directory.path(), .checkpoint = {.late_copies = late_copies}};
}

std::filesystem::path checkpoint_of(const RunConfig& run, int number) {
    return run.storage_path / run.name / ("checkpoint_00000" + std::to_string(number));
}

/// Trains, reports, and does `behind` with worker, model, optimizer and state; twice.
template <class Policy, class Options, class Behind>
void train(const RunConfig& run, const Options& options, Behind&& behind) {
    Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
        torch::manual_seed(1);
        auto model = worker.prepare(test::Net(0.0, true), options); // its buffers change in forward
        auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-2));
        int number = 0;
        auto state = State{}.add("net", model).add("optimizer", optimizer).add("number", number);
        const auto step = [&] {
            torch::manual_seed(static_cast<std::uint64_t>(10 * number + worker.rank()));
            optimizer.zero_grad();
            model(torch::randn({4, 784})).square().mean().backward();
            optimizer.step();
        };
        for (; number < 2; ++number) {
            step();
            worker.report({{"number", number}}, state);
            behind(worker, model, step, state);
        }
    });
}

template <class Policy, class Options, class Behind>
void require_checkpoints_of_the_report(const Options& options, std::optional<bool> late_copies,
                                       Behind&& behind) {
    const test::Directory directory("late");
    const RunConfig at_once = run_in(directory, "at-once");
    const RunConfig late = run_in(directory, "late", late_copies);
    train<checkpoint::Sharded>(at_once, options, behind);
    {
        const DeferredCopy::Held held;
        train<Policy>(late, options, behind);
    }
    for (int number = 0; number < 2; ++number) {
        require_same(read(checkpoint_of(late, number)), read(checkpoint_of(at_once, number)));
    }
}

/// As a user goes on.
const auto a_step = [](auto& /*worker*/, auto& /*model*/, const auto& step, auto& /*state*/) {
    step();
};

std::vector<ShardedOptions> kinds_of_sharding(const test::Directory& directory) {
    const DataParallelOptions autocast{.autocast = torch::kBFloat16};
    return {
        {.level = Shard::optimizer},
        {.level = Shard::gradients},
        {.level = Shard::gradients, .share = Share::none},
        {.level = Shard::parameters, .share = Share::none},
        {.level = Shard::gradients, .slot_bytes = 4096, .step_in_backward = true},
        {.level = Shard::gradients, .parameter_type = torch::kBFloat16, .data_parallel = autocast},
        {.level = Shard::gradients, .offload = offload::Disk{directory.path()}}};
}

bool comes_within(double seconds, const std::filesystem::path& file) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!std::filesystem::exists(file) && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::filesystem::exists(file);
}

} // namespace

TEST_CASE_TEMPLATE("LateCopy.holds_the_state_of_the_report_when_a_step_comes_first" *
                       doctest::timeout(300),
                   Policy, checkpoint::Async, checkpoint::AsyncSharded) {
    require_checkpoints_of_the_report<Policy>(DataParallelOptions{}, true, a_step);
}

TEST_CASE("LateCopy.holds_the_state_of_the_report_of_sharded_models" * doctest::timeout(300)) {
    const test::Directory directory("late-disk");
    int kind = 0;
    for (const ShardedOptions& options : kinds_of_sharding(directory)) {
        CAPTURE(kind++);
        const auto late_copies = is_alone() ? std::optional(true) : std::nullopt;
        require_checkpoints_of_the_report<checkpoint::AsyncSharded>(options, late_copies, a_step);
    }
}

TEST_CASE("LateCopy.edits_and_loads_wait_for_it" * doctest::timeout(300)) {
    const test::Directory directory("late-writes");
    const auto weights = directory.path() / "weights.safetensors";
    const auto edits = [](auto& /*worker*/, auto& model, const auto& step, auto& /*state*/) {
        model.edit([](auto& net) { torch::nn::init::ones_(net.out->weight); });
        step();
    };
    const auto loads_weights = [&](auto& worker, auto& model, const auto& step, auto& /*state*/) {
        if (worker.rank() == 0 && !std::filesystem::exists(weights)) {
            test::Net other(0.0, true);
            save_weights(weights, other);
        }
        worker.barrier();
        (void)load_weights(model, weights);
        step();
    };
    for (const auto& options : {ShardedOptions{}, ShardedOptions{.share = Share::none}}) {
        require_checkpoints_of_the_report<checkpoint::AsyncSharded>(options, true, edits);
        require_checkpoints_of_the_report<checkpoint::AsyncSharded>(options, true, loads_weights);
    }
    require_checkpoints_of_the_report<checkpoint::AsyncSharded>(DataParallelOptions{}, true,
                                                                loads_weights);
}

TEST_CASE_TEMPLATE("LateCopy.restoring_waits_for_it" * doctest::timeout(300), Options,
                   DataParallelOptions, ShardedOptions) {
    const test::Directory directory("late-restore");
    const RunConfig run = run_in(directory, "run", true);
    train<checkpoint::AsyncSharded>(
        run, Options{}, [&](auto& worker, auto& /*model*/, const auto& step, auto& state) {
            (void)worker.get_all_reported_checkpoints(ConsistencyMode::committed); // it is there
            step();
            step();
            const DeferredCopy::Held
                held; // the report of what is now is undone before it is copied
            worker.report({{"undone", 1}}, state);
            (void)worker.restore(state);
        });
    for (const int number : {0, 2}) { // each undone one has a step behind the one it went back to
        const Saved kept = read(checkpoint_of(run, number));
        const Saved undone = read(checkpoint_of(run, number + 1));
        CHECK_FALSE(kept.at("net/in.weight").equal(undone.at("net/in.weight")));
    }
}

TEST_CASE("LateCopy.is_after_the_report_where_options_say_so" * doctest::timeout(300)) {
    const auto is_late = [](const auto& options, std::optional<bool> late_copies) {
        const test::Directory directory("late-or-not");
        const RunConfig run = run_in(directory, "run", late_copies);
        const DeferredCopy::Held held;
        bool late = false;
        train<checkpoint::AsyncSharded>(
            run, options, [&](auto& worker, auto& /*model*/, const auto& step, auto& /*state*/) {
                const auto first = checkpoint_of(run, 0);
                const double patience = late_copies.value_or(true) ? 0.2 : 60;
                late = late || !worker.broadcast(comes_within(patience, first));
                worker.barrier();
                step();
            });
        return late;
    };
    CHECK(is_late(DataParallelOptions{}, true));
    CHECK_FALSE(is_late(DataParallelOptions{}, false));
    CHECK_FALSE(is_late(ShardedOptions{}, false));
    if (!is_alone()) {
        CHECK(is_late(ShardedOptions{}, std::nullopt));
    }
}

TEST_CASE("LateCopy.what_is_written_by_hand_meanwhile_is_an_error" * doctest::timeout(120)) {
    const test::Directory directory("late-by-hand");
    const RunConfig run = run_in(directory, "run", true);
    const auto message = test::message_of([&] {
        std::optional<DeferredCopy::Held> held(std::in_place);
        train<checkpoint::Async>(
            run, DataParallelOptions{},
            [&](auto& /*worker*/, auto& model, const auto& step, auto& /*state*/) {
                {
                    const torch::NoGradGuard no_grad;
                    model->out->bias.clamp_(-1e-3, 1e-3);
                }
                step();
                held.reset();
            });
    });
    CHECK(test::contains(message, "RT-K28"));
    CHECK(test::contains(message, "out.bias\" was written"));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_FALSE(std::filesystem::exists(checkpoint_of(run, 0)));
}

TEST_CASE("LateCopy.what_is_stepped_by_optimizers_that_are_not_prepared_is_copied_at_once" *
          doctest::timeout(120)) {
    const test::Directory directory("late-plain");
    const auto train_plainly = [](const RunConfig& run, auto policy) {
        Trainer<backend::Mpi, data::Sharded, decltype(policy)>({.run = run}).fit([](auto& worker) {
            torch::manual_seed(1);
            auto model = worker.prepare(test::Net());
            torch::optim::Adam optimizer(model->parameters(), 0.1); // writes past autograd
            const auto state = State{}.add("net", model).add("optimizer", optimizer);
            for (int number = 0; number < 2; ++number) {
                optimizer.zero_grad();
                model(torch::ones({4, 784})).square().mean().backward();
                optimizer.step();
                worker.report({{"number", number}}, state);
            }
            model(torch::ones({4, 784})).square().mean().backward();
            optimizer.step();
        });
    };
    const RunConfig at_once = run_in(directory, "at-once");
    const RunConfig late = run_in(directory, "late", true);
    train_plainly(at_once, checkpoint::Sync{});
    {
        const DeferredCopy::Held held; // nobody would copy what is late
        train_plainly(late, checkpoint::Async{});
    }
    for (int number = 0; number < 2; ++number) {
        require_same(read(checkpoint_of(late, number)), read(checkpoint_of(at_once, number)));
    }
}

TEST_CASE_TEMPLATE("LateCopy.ranks_that_have_drifted_apart_save_nothing" * doctest::timeout(120),
                   Policy, checkpoint::Async, checkpoint::AsyncSharded) {
    const test::Directory directory("late-drift");
    const RunConfig run = run_in(directory, "run", true);
    const auto message = test::message_of([&] {
        Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
            auto model = worker.prepare(test::Net());
            auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 0.1));
            const auto state = State{}.add("net", model).add("optimizer", optimizer);
            if (worker.rank() == worker.size() - 1) {
                const torch::NoGradGuard no_grad;
                model->out->bias.add_(1e-3);
            }
            const DeferredCopy::Held held; // a step has to wait for the comparison, too
            worker.report({{"step", 0}}, state);
            model(torch::ones({4, 784})).square().mean().backward();
            optimizer.step();
        });
    });
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(std::filesystem::exists(checkpoint_of(run, 0)) == is_alone());
    CHECK(test::contains(message, "RT-M25") == !is_alone());
    CHECK(test::contains(message, "parameter \"out.bias\" of rank ") == !is_alone());
}

TEST_CASE_TEMPLATE("LateCopy.an_exception_or_the_end_behind_a_report_waits_for_it" *
                       doctest::timeout(120),
                   Options, DataParallelOptions, ShardedOptions) {
    const test::Directory directory("late-end");
    const RunConfig at_once = run_in(directory, "at-once");
    const RunConfig ended = run_in(directory, "ended", true);
    const RunConfig thrown = run_in(directory, "thrown", true);
    const auto nothing = [](auto&... /*ignored*/) {};
    const auto throws = [](auto&... /*ignored*/) { throw std::runtime_error("behind the report"); };
    train<checkpoint::Sharded>(at_once, Options{}, nothing);
    train<checkpoint::AsyncSharded>(ended, Options{}, nothing);
    for (int number = 0; number < 2; ++number) {
        require_same(read(checkpoint_of(ended, number)), read(checkpoint_of(at_once, number)));
    }
    const auto message =
        test::message_of([&] { train<checkpoint::AsyncSharded>(thrown, Options{}, throws); });
    CHECK(test::contains(message, "behind the report"));
    MPI_Barrier(MPI_COMM_WORLD);
    if (std::filesystem::exists(checkpoint_of(thrown, 0))) {
        require_same(read(checkpoint_of(thrown, 0)), read(checkpoint_of(at_once, 0)));
    }
}
