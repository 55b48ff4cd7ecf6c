// SPDX-License-Identifier: Apache-2.0
// What only a fake NCCL can be made to do: fail.
#include "gpu/fake.hpp"
#include "gpu/nccl_ranks.hpp"
#include "support/mixed_precision.hpp"
#include "support/training.hpp"

#include <rtrain/backend/nccl.hpp>
#include <rtrain/checkpoint/policy/host_copy.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;

namespace {

backend::Nccl patient(std::chrono::milliseconds timeout) {
    return backend::Nccl({.timeout = timeout,
                          .mpi = {.timeout = std::chrono::seconds(30),
                                  .failure_patience = std::chrono::seconds(10)}});
}

struct WithFaults {
    WithFaults() { fake::faults() = {}; }
    ~WithFaults() { fake::faults() = {}; }
    WithFaults(const WithFaults&) = delete;
    WithFaults& operator=(const WithFaults&) = delete;
};

bool last(const backend::Nccl& nccl) {
    return nccl.rank() == nccl.size() - 1;
}

int ranks() {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/// By rank, why a run fails that reduces for a while, and in which rank 0 calls `begin_failing`.
std::map<int, std::string> failures_of_reductions(const test::Directory& directory,
                                                  const std::string& name,
                                                  const std::function<void()>& begin_failing) {
    Trainer<backend::Nccl> trainer({.run = {.name = name, .storage_path = directory.path()}},
                                   patient(std::chrono::seconds(40)));
    try {
        trainer.fit([&](auto& worker) {
            auto tensor = torch::ones({10}).to(worker.device());
            worker.all_reduce(tensor);
            worker.barrier();
            if (worker.rank() == 0) {
                begin_failing();
            }
            for (int step = 0; step < 100; ++step) {
                worker.all_reduce(tensor);
                (void)tensor[0].template item<float>();
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
            }
        });
    } catch (const TrainingFailedError& error) {
        return error.worker_failures();
    }
    return {};
}

} // namespace

TEST_CASE("NcclFaults.ranks_take_the_devices_in_order") {
    auto nccl = patient(std::chrono::seconds(30));
    nccl.start({});
    CHECK(nccl.device() == at::Device(at::kCUDA, static_cast<at::DeviceIndex>(nccl.rank())));
    (void)nccl.finish({});
    nccl.start({.gpus_per_worker = 0.5});
    CHECK(nccl.device() == at::Device(at::kCUDA, static_cast<at::DeviceIndex>(nccl.rank() / 2)));
    if (nccl.size() > 1) {
        const bool alone = nccl.size() % 2 == 1 && last(nccl);
        CHECK(fake::host_id().empty() == alone);
        CHECK(std::getenv("NCCL_HOSTID") == nullptr); // child processes do not inherit it
        CHECK(std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") == nullptr);
    }
    (void)nccl.finish({});
    // More ranks than devices: all ranks throw what one of them met.
    const auto message = message_of([&] { nccl.start({.gpus_per_worker = 3}); });
    CHECK((contains(message, "RT-N2") == (nccl.size() > 1)));
}

TEST_CASE("NcclFaults.a_cgroup_gives_each_rank_its_own_device_number_0") {
    auto nccl = patient(std::chrono::seconds(30));
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ::setenv("FAKE_GPUS", "1", 1);
    ::setenv("FAKE_FIRST_GPU", std::to_string(rank).c_str(), 1);
    nccl.start({});
    CHECK(nccl.device() == at::Device(at::kCUDA, 0));
    CHECK(fake::host_id().empty());
    (void)nccl.finish({});
    ::unsetenv("FAKE_GPUS");
    ::unsetenv("FAKE_FIRST_GPU");
}

TEST_CASE("NcclFaults.ranks_whose_device_is_fixed_may_share_it") {
    backend::Nccl nccl({.timeout = std::chrono::seconds(30), .device = 1});
    nccl.start({});
    CHECK(nccl.device() == at::Device(at::kCUDA, 1));
    CHECK(fake::host_id().empty() == (nccl.size() == 1));
    (void)nccl.finish({});
}

TEST_CASE("NcclFaults.a_machine_without_usable_gpus_says_why") {
    auto nccl = patient(std::chrono::seconds(30));
    const auto why = [&](const char* driver, const char* visible) {
        ::setenv("FAKE_GPUS", "0", 1);
        ::setenv("FAKE_DRIVER", driver, 1);
        visible == nullptr ? ::unsetenv("CUDA_VISIBLE_DEVICES")
                           : ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        const auto message = message_of([&] { nccl.start({}); });
        ::unsetenv("FAKE_GPUS");
        ::unsetenv("FAKE_DRIVER");
        ::unsetenv("CUDA_VISIBLE_DEVICES");
        CHECK(contains(message, "RT-N1"));
        return message;
    };
    CHECK(contains(why("0", nullptr), "no NVIDIA driver is installed"));
    CHECK(contains(why("12020", nullptr),
                   "the driver supports CUDA up to 12.2, and this program's libtorch needs 13.0"));
    CHECK(contains(why("13000", ""), "CUDA_VISIBLE_DEVICES is \"\""));
    CHECK(contains(why("13000", nullptr), "CUDA_VISIBLE_DEVICES is not set"));
}

TEST_CASE("NcclFaults.a_different_nccl_is_refused_with_both_versions") {
    const WithFaults faults;
    auto nccl = patient(std::chrono::seconds(30));
    fake::faults().version = 31203;
    const auto message = message_of([&] { nccl.start({}); });
    CHECK(contains(message, "RT-N10"));
    CHECK(contains(message, "has loaded 3.12.3"));
}

TEST_CASE("NcclFaults.a_slow_abort_holds_nobody_up" * doctest::timeout(60)) {
    const WithFaults faults;
    const auto may_return = std::make_shared<std::atomic<bool>>(false);
    fake::faults().abort_may_return = may_return;
    comm::NcclCommunicator communicator(comm::new_nccl_id(), 0, 1);
    const int aborted = fake::aborted();
    std::atomic<bool> returned{false};
    std::thread watchdog([&] {
        communicator.abort();
        returned = true;
    });
    while (fake::aborted() == aborted) {
        std::this_thread::yield();
    }
    CHECK(communicator.state() == ncclInvalidUsage);
    CHECK_FALSE(returned);
    *may_return = true;
    watchdog.join();
}

TEST_CASE("NcclFaults.a_communicator_that_is_aborted_while_it_connects_is_aborted_once") {
    const WithFaults faults;
    fake::faults().never_connects = true;
    const int aborted = fake::aborted();
    {
        comm::NcclCommunicator communicator(comm::new_nccl_id(), 0, 1);
        communicator.abort();
        CHECK(communicator.state() == ncclInvalidUsage);
    }
    CHECK(fake::aborted() == aborted + 1);
}

TEST_CASE("NcclFaults.a_communicator_that_cannot_connect_is_given_up_by_all" *
          doctest::timeout(30)) {
    const WithFaults faults;
    if (ranks() > 1) {
        auto nccl = patient(std::chrono::milliseconds(500));
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        fake::faults().never_connects = rank == 0;
        const auto message = message_of([&] { nccl.start({}); });
        CHECK(contains(message, "rank 0 of"));
        CHECK(contains(message, "RT-N6"));

        fake::faults().never_connects = false;
        fake::faults().breaks = rank == ranks() - 1 ? ncclSystemError : 0;
        auto other = patient(std::chrono::seconds(30));
        const auto broken = message_of([&] { other.start({}); });
        CHECK(contains(broken, "RT-N5"));
        CHECK(contains(broken, "the fake says so"));
    }
}

TEST_CASE("NcclFaults.a_collective_may_take_time_to_reach_its_stream" * doctest::timeout(30)) {
    const WithFaults faults;
    auto nccl = patient(std::chrono::seconds(20));
    nccl.start({});
    fake::faults().connects_slowly = 300;
    for (int step = 0; step < 3; ++step) {
        auto tensor = torch::ones({10}).to(nccl.device());
        auto handle = nccl.all_reduce_async(tensor, ReduceOp::sum);
        handle.start();
        handle.wait();
        CHECK(tensor.cpu().eq(nccl.size()).all().item<bool>());
    }
    (void)nccl.finish({});
}

TEST_CASE("NcclFaults.a_reduction_comes_behind_the_current_stream" * doctest::timeout(30)) {
    auto nccl = patient(std::chrono::seconds(20));
    nccl.start({});
    auto tensor = torch::zeros({10}).to(nccl.device());
    auto* const values = tensor.mutable_data_ptr<float>();
    const c10::Stream current =
        c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(nccl.device());
    for (const bool asynchronous : {false, true}) {
        fake::enqueue(current.native_handle(), [values] { // a slow kernel
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            std::fill(values, values + 10, 1.0F);
        });
        if (asynchronous) {
            auto handle = nccl.all_reduce_async(tensor, ReduceOp::sum);
            handle.start();
            handle.wait();
        } else {
            nccl.all_reduce(tensor, ReduceOp::sum);
        }
        CHECK(tensor.cpu().eq(nccl.size()).all().item<bool>());
    }
    (void)nccl.finish({});
}

TEST_CASE("NcclFaults.an_orderly_end_destroys_and_a_failure_aborts" * doctest::timeout(30)) {
    if (ranks() > 1) {
        const int destroyed = fake::destroyed();
        const int aborted = fake::aborted();
        const int relaxed = fake::relaxed_threads();
        auto nccl = patient(std::chrono::seconds(20));
        nccl.start({});
        auto tensor = torch::ones({10}).to(nccl.device());
        nccl.all_reduce(tensor, ReduceOp::sum);
        (void)nccl.finish({});
        CHECK(fake::relaxed_threads() == relaxed + 1); // the watchdog, for graphs that are captured
        CHECK(fake::destroyed() == destroyed + 1);
        CHECK(fake::aborted() == aborted);
        nccl.start({});
        (void)nccl.finish(Failure{.message = "by intent"});
        CHECK(fake::destroyed() == destroyed + 1);
        CHECK(fake::aborted() == aborted + 1);
    }
}

TEST_CASE("NcclFaults.ranks_that_cannot_connect_again_say_why_they_failed" * doctest::timeout(60)) {
    const WithFaults faults;
    const test::Directory directory("nccl-rejoin");
    if (ranks() > 1) {
        const int aborted = fake::aborted();
        Trainer<backend::Nccl> trainer({.run = {.name = "run",
                                                .storage_path = directory.path(),
                                                .failure = {.max_failures = 2, .backoff_s = 0}}},
                                       patient(std::chrono::milliseconds(500)));
        int attempts = 0;
        std::map<int, std::string> failures;
        try {
            trainer.fit([&](auto& worker) {
                ++attempts;
                fake::faults().never_connects = true;
                if (worker.rank() == worker.size() - 1) {
                    throw std::runtime_error("bad luck");
                }
                worker.barrier();
            });
        } catch (const TrainingFailedError& error) {
            failures = error.worker_failures();
        }
        CHECK(attempts == 1);
        REQUIRE(failures.size() == 1);
        CHECK(contains(failures.begin()->second, "bad luck"));
        CHECK(fake::aborted() == aborted + 2); // the one that was used, and the one that was not
    }
}

TEST_CASE("NcclFaults.an_error_of_nccl_is_told_with_its_text" * doctest::timeout(60)) {
    const WithFaults faults;
    const test::Directory directory("nccl-faults");
    if (ranks() > 1) {
        for (const bool asynchronous : {false, true}) {
            const auto begun = std::chrono::steady_clock::now();
            const auto failures =
                failures_of_reductions(directory, asynchronous ? "later" : "at-once", [&] {
                    (asynchronous ? fake::faults().breaks : fake::faults().refuses) =
                        ncclSystemError;
                });
            fake::faults() = {};
            REQUIRE(failures.size() == 1); // the others were interrupted
            CHECK(contains(failures.at(0), "unhandled system error"));
            CHECK(contains(failures.at(0), "RT-N5"));
            CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(15));
        }
    }
}

TEST_CASE("NcclFaults.copies_to_the_device_run_ahead_but_places_do_not") {
    const auto rows = torch::arange(20, torch::kFloat);
    int reads = 0;
    const auto dataset = data::lazy([&] { return data::from_tensors({{"x", rows}}); });
    auto position = std::make_shared<data::Position>();
    data::Batches batches(
        {.dataset = dataset, .policy = data::Sharded{}, .device = at::Device(at::kCUDA, 0)},
        {.size = 6}, position);
    std::vector<torch::Tensor> seen;
    for (auto& batch : batches) {
        CHECK(batch["x"].is_cuda());
        seen.push_back(batch["x"].cpu());
        ++reads;
        CHECK(position->samples == std::min(20, 6 * reads));
        CHECK(position->iterating);
    }
    CHECK(torch::cat(seen).equal(rows));
    CHECK(position->epoch == 1);
    CHECK_FALSE(position->iterating);
    // A loop that is left early ends its epoch; one that resumes begins behind the place.
    for ([[maybe_unused]] auto& batch : batches) {
        break;
    }
    CHECK(position->epoch == 2);
    position->samples = 12;
    auto resumed = batches.begin();
    CHECK((*resumed)["x"].cpu().equal(rows.slice(0, 12, 18)));
}

TEST_CASE("NcclFaults.every_tensor_of_a_torch_batch_reaches_the_device") {
    struct Pairs : torch::data::datasets::Dataset<Pairs> {
        torch::data::Example<> get(std::size_t index) override {
            return {torch::full({2}, static_cast<double>(index)), torch::full({1}, 1.0)};
        }
        [[nodiscard]] std::optional<std::size_t> size() const override { return 10; }
    };
    auto loader = data::make_distributed_loader(Pairs(), torch::data::DataLoaderOptions(4),
                                                {.epoch = {},
                                                 .device = at::Device(at::kCUDA, 0),
                                                 .position = std::make_shared<data::Position>()});
    double total = 0;
    std::size_t examples = 0;
    for (auto& batch : loader) {
        for (const auto& example : batch) {
            CHECK(example.data.is_cuda());
            CHECK(example.target.is_cuda());
            total += example.data[0].template item<double>();
            ++examples;
        }
    }
    CHECK(examples == 10);
    CHECK(total == 45);
}

TEST_CASE("NcclFaults.the_copies_of_all_passes_share_one_stream" * doctest::timeout(60)) {
    const auto rows = torch::arange(8, torch::kFloat);
    const auto dataset = data::lazy([&] { return data::from_tensors({{"x", rows}}); });
    auto position = std::make_shared<data::Position>();
    data::Batches batches(
        {.dataset = dataset, .policy = data::Sharded{}, .device = at::Device(at::kCUDA, 0)},
        {.size = 2}, position);
    const auto pass = [&] {
        for (auto& batch : batches) {
            CHECK(batch["x"].cpu().isfinite().all().item<bool>());
        }
    };
    pass();
    const int streams = fake::streams();
    pass();
    pass();
    CHECK(fake::streams() == streams);
}

TEST_CASE("NcclFaults.a_batch_is_not_overwritten_while_the_device_reads_it" *
          doctest::timeout(60)) {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const at::Device device(at::kCUDA, 0);
    const auto rows = torch::arange(64, torch::kFloat);
    const auto dataset = data::lazy([&] { return data::from_tensors({{"x", rows}}); });
    data::Batches batches({.dataset = dataset, .policy = data::Sharded{}, .device = device},
                          {.size = 4}, std::make_shared<data::Position>());
    fake::slow_down(guard.getStream(device), std::chrono::milliseconds(2));
    auto total = torch::zeros({4}, device);
    for (auto& batch : batches) { // the host is ahead of the device
        total.add_(batch["x"]);
    }
    fake::slow_down(guard.getStream(device), std::chrono::microseconds(0));
    CHECK(total.sum().item<float>() == rows.sum().item<float>());
}

TEST_CASE("NcclFaults.training_does_not_depend_on_which_stream_is_first" * doctest::timeout(240)) {
    const test::Directory directory("nccl-order");
    const auto x = torch::randn({32, 784});
    const auto y = torch::randint(10, {32});
    const auto train = [&](unsigned seed) {
        fake::shuffle(seed);
        TrainerOptions options = test::options_in(directory);
        options.run.name = "run" + std::to_string(seed);
        options.datasets.emplace("train", data::from_tensors({{"x", x}, {"y", y}}));
        torch::Tensor trained;
        Trainer<backend::Nccl> trainer(std::move(options), patient(std::chrono::seconds(60)));
        trainer.fit([&](auto& worker) {
            torch::manual_seed(7);
            test::Net net;
            auto model = worker.prepare(
                net, {.bucket_bytes = 4096, .first_bucket_bytes = 1024, .check_parameters = 2});
            auto optimizer = worker.prepare(torch::optim::Adam(net->parameters(), 1e-3));
            for (auto& batch : worker.dataset_shard("train").batches({.size = 4})) {
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(batch["x"]), batch["y"]).backward();
                (void)model.clip_grad_norm_(1.0);
                optimizer.step();
            }
            worker.report({{"loss", 1}});
            trained = test::flat(*net).cpu().clone();
        });
        fake::shuffle(0);
        return trained;
    };
    const auto expected = train(0);
    CHECK(expected.isfinite().all().item<bool>());
    for (unsigned seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        CHECK(train(seed).equal(expected));
    }
}

TEST_CASE("NcclFaults.an_error_of_any_cuda_call_ends_the_attempt_with_its_text" *
          doctest::timeout(240)) {
    const test::Directory directory("nccl-cuda-faults");
    if (ranks() > 1) {
        int number = 0;
        for (const char* const call :
             {"cudaEventRecord", "cudaEventQuery", "cudaStreamWaitEvent", "cudaLaunchKernel"}) {
            for (const int after : {0, 3, 10}) {
                CAPTURE(call);
                CAPTURE(after);
                const auto failures = failures_of_reductions(
                    directory, "run" + std::to_string(number++), [&] { fake::fail(call, after); });
                fake::fail(nullptr, 0);
                REQUIRE(failures.size() == 1);
                CHECK(contains(failures.at(0), std::string("the fake fails in ") + call));
            }
        }
    }
}

TEST_CASE("NcclFaults.a_bucket_that_two_streams_fill_is_reduced_after_both" *
          doctest::timeout(60)) {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    struct TwoStreamsImpl : torch::nn::Module {
        explicit TwoStreamsImpl(c10::Stream stream) : side(stream) {
            a = register_module("a", torch::nn::Linear(8, 8));
            b = register_module("b", torch::nn::Linear(8, 8));
        }
        at::Tensor forward(const at::Tensor& x) {
            at::Tensor other;
            {
                const c10::StreamGuard on(side);
                other = b(x);
            }
            const c10::impl::VirtualGuardImpl streams(c10::DeviceType::CUDA);
            streams.synchronizeStream(side);
            return a(x) + other;
        }
        c10::Stream side;
        torch::nn::Linear a{nullptr}, b{nullptr};
    };
    TORCH_MODULE(TwoStreams);
    const test::Directory directory("nccl-two-streams");
    Trainer<backend::Nccl> trainer(test::options_in(directory), patient(std::chrono::seconds(60)));
    trainer.fit([&](auto& worker) {
        torch::manual_seed(3);
        TwoStreams net(guard.getStreamFromGlobalPool(worker.device()));
        fake::slow_down(net->side, std::chrono::milliseconds(5));
        auto model = worker.prepare(net);
        const auto x = torch::ones({2, 8}).to(worker.device());
        for (int step = 0; step < 3; ++step) {
            net->zero_grad();
            model(x).sum().backward();
            for (const auto& parameter : net->parameters()) { // the same on all ranks: the mean
                CHECK(parameter.grad().cpu().allclose(torch::full_like(parameter.grad().cpu(), 2)));
            }
        }
        fake::slow_down(net->side, std::chrono::microseconds(0));
    });
}

TEST_CASE("NcclFaults.two_threads_may_communicate" * doctest::timeout(60)) {
    auto nccl = patient(std::chrono::seconds(20));
    nccl.start({});
    std::atomic<int> wrong{0};
    const auto reduce = [&] {
        for (int i = 0; i < 100; ++i) { // the same sum, whichever tensors meet
            auto tensor = torch::ones({8}).to(nccl.device());
            nccl.all_reduce(tensor, ReduceOp::sum);
            wrong += tensor.cpu().eq(nccl.size()).all().item<bool>() ? 0 : 1;
        }
    };
    std::thread other(reduce);
    reduce();
    other.join();
    CHECK(wrong == 0);
    // It ends only if the watchdog knows the event of each.
    const auto outcomes = nccl.finish({});
    CHECK(std::none_of(outcomes.begin(), outcomes.end(),
                       [](const Outcome& outcome) { return outcome.has_value(); }));
}

TEST_CASE("NcclFaults.a_step_waits_for_the_device_only_for_a_norm_that_it_returns" *
          doctest::timeout(60)) {
    struct NormedImpl : torch::nn::Module {
        at::Tensor forward(const at::Tensor& x) { return second(linear(first(x))); }
        SyncBatchNorm first = register_module("first", SyncBatchNorm(6));
        torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 6));
        SyncBatchNorm second = register_module(
            "second", SyncBatchNorm(torch::nn::BatchNormOptions(6).momentum(std::nullopt)));
    };
    TORCH_MODULE(Normed);
    const test::Directory directory("nccl-waits");
    Trainer<backend::Nccl> trainer(test::options_in(directory), patient(std::chrono::seconds(60)));
    trainer.fit([&](auto& worker) {
        torch::manual_seed(5);
        Normed net;
        auto model = worker.prepare(net);
        auto optimizer = worker.prepare(torch::optim::SGD(net->parameters(), 1e-3));
        const auto x = torch::randn({16, 6}).to(worker.device()); // the same on all ranks
        const auto waits = [&](bool clips) {
            const int before = fake::host_waits();
            optimizer.zero_grad();
            model(x).square().mean().backward();
            if (clips) {
                (void)model.clip_grad_norm_(1.0);
            }
            optimizer.step();
            return fake::host_waits() - before;
        };
        (void)waits(true);
        (void)waits(true);
        if (worker.size() > 1) { // a single rank's is torch::nn::BatchNorm
            CHECK(waits(false) == 0);
            CHECK(waits(true) == 1);
            CHECK(net->first->running_mean.cpu().allclose(x.mean(0).cpu() * (1 - std::pow(0.9, 4)),
                                                          1e-4, 1e-6));
            CHECK(net->second->num_batches_tracked.template item<int>() == 4);
        }
    });
}

TEST_CASE("NcclFaults.a_copy_of_a_device_is_complete_and_waits_seldom" * doctest::timeout(60)) {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const at::Device device(at::kCUDA, 0);
    const auto large = torch::arange(9'000'000, torch::kDouble); // more than two buffers of 32 MiB
    std::map<std::string, torch::Tensor> expected{
        {"large", large},
        {"empty", torch::zeros({0, 3})},
        {"scalar", torch::tensor(7)},
        {"flags", torch::arange(5).eq(2)},
        {"strided", torch::arange(12, torch::kFloat).view({3, 4}).t()}};
    for (int i = 0; i < 50; ++i) {
        expected["small" + std::to_string(i)] = torch::full({5}, i, torch::kHalf);
    }
    checkpoint::HostCopy copy;
    for (int round = 0; round < 2; ++round) {
        checkpoint::Snapshot live;
        for (auto& [name, tensor] : expected) {
            tensor = round == 0 ? tensor : tensor.eq(0).to(tensor.scalar_type());
            live.tensors.emplace(name, tensor.to(device));
        }
        fake::slow_down(guard.getStream(device), std::chrono::milliseconds(1));
        const int before = fake::host_waits();
        const auto copied = copy(live);
        CHECK(fake::host_waits() - before == 3); // one a buffer
        fake::slow_down(guard.getStream(device), std::chrono::microseconds(0));
        for (const auto& [name, tensor] : expected) {
            CAPTURE(name);
            CHECK(copied.tensors.at(name).is_contiguous());
            CHECK(copied.tensors.at(name).equal(tensor));
        }
    }
}

TEST_CASE("NcclFaults.out_of_memory_names_the_rank_what_it_requested_and_what_needs_less" *
          doctest::timeout(120)) {
    const test::Directory directory("nccl-memory");
    for (const bool in_step : {false, true}) {
        TrainerOptions options = test::options_in(directory);
        options.run.name = in_step ? "step" : "prepare";
        Trainer<backend::Nccl> trainer(std::move(options), patient(std::chrono::seconds(30)));
        std::map<int, std::string> failures;
        bool prepared = false;
        const auto message = message_of([&] {
            try {
                trainer.fit([&](auto& worker) {
                    const auto run_out = [&](bool now) {
                        if (now && worker.rank() == worker.size() - 1) {
                            fake::fail("cudaMalloc", 1);
                        }
                    };
                    run_out(!in_step);
                    auto model = worker.prepare(test::Net());
                    prepared = true;
                    const auto x = torch::randn({4, 784}).to(worker.device());
                    run_out(in_step);
                    for (int step = 0; step < 2; ++step) {
                        model(x).sum().backward();
                    }
                });
            } catch (const TrainingFailedError& error) {
                failures = error.worker_failures();
                throw;
            }
        });
        fake::fail(nullptr, 0);
        CHECK(prepared == in_step);
        CAPTURE(message);
        CHECK((ranks() == 1 || contains(message, "rank " + std::to_string(ranks() - 1))));
        REQUIRE(failures.size() == 1);
        CHECK(contains(failures.at(ranks() - 1), "Tried to allocate 2.00 MiB"));
        CHECK(
            contains(failures.at(ranks() - 1), "recompute() and ShardedOptions need less memory"));
    }
}

TEST_CASE("NcclFaults.a_model_elsewhere_is_moved_to_the_device_of_its_rank" *
          doctest::timeout(60)) {
    const test::Directory directory("nccl-elsewhere");
    Trainer<backend::Nccl> trainer(test::options_in(directory), patient(std::chrono::seconds(60)));
    trainer.fit([&](auto& worker) {
        test::Net net;
        net->out->to(at::Device(at::kCUDA, 3)); // the rest is on the CPU
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        auto model = worker.prepare(net);
        for (const auto& parameter : optimizer.param_groups()[0].params()) {
            CHECK(parameter.device() == worker.device());
        }
        model(torch::randn({4, 784}).to(worker.device())).sum().backward();
        optimizer.step();
        if (worker.size() > 1) { // a single rank runs the model as it is
            net->out->to(at::kCPU);
            const auto x = torch::randn({4, 784}).to(worker.device());
            CHECK(code_of([&] { (void)model(x); }) == "RT-M23");
        }
    });
}

TEST_CASE("NcclFaults.ranks_that_rejoin_in_another_thread_compute_on_their_device" *
          doctest::timeout(60)) {
    auto nccl = patient(std::chrono::seconds(30));
    nccl.start({});
    (void)nccl.finish(Failure{.message = "by intent"});
    at::Device current(at::kCPU);
    std::thread([&] {
        nccl.rejoin();
        current = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
    }).join();
    CHECK(current == nccl.device());
    (void)nccl.finish({});
}

TEST_CASE("NcclFaults.scaled_and_clipped_steps_have_the_same_bits_and_pythons_figures" *
          doctest::timeout(120)) {
    namespace mixed_precision = test::mixed_precision;
    const test::Directory directory("nccl-scaled");
    Trainer<backend::Nccl> trainer(test::options_in(directory), patient(std::chrono::seconds(60)));
    trainer.fit([&](auto& worker) {
        const auto train = [&](unsigned seed) {
            fake::shuffle(seed);
            auto figures = mixed_precision::figures_of(
                at::kFloat, worker.device(),
                [&](const auto& net, const auto& options) { return worker.prepare(net, options); });
            fake::shuffle(0);
            return figures;
        };
        const auto figures = train(0);
        CHECK(mixed_precision::same_bits(train(3), figures));
        CHECK(mixed_precision::difference_from(RTRAIN_TEST_DATA "/mixed_precision/cpu.txt",
                                               "float32", figures) < 1e-6);
    });
}
