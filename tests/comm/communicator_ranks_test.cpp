// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/pending.hpp>
#include <rtrain/testing/backend.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

using namespace rtrain;
using test::code_of;

namespace {

backend::Mpi started(std::chrono::seconds timeout = std::chrono::seconds(60)) {
    backend::Mpi mpi({.timeout = timeout, .failure_patience = std::chrono::seconds(10)});
    mpi.start({});
    return mpi;
}

/// What an optional member is replaced by, on ranks: only what the concept asks for, and the end.
class Plain {
public:
    void start(const ScalingConfig& scaling) { mpi_->start(scaling); }
    std::vector<Outcome> finish(const Outcome& mine) { return mpi_->finish(mine); }
    [[nodiscard]] int rank() const { return mpi_->rank(); }
    [[nodiscard]] int size() const { return mpi_->size(); }
    void all_reduce(at::Tensor& tensor, ReduceOp op) { mpi_->all_reduce(tensor, op); }
    void broadcast(at::Tensor& tensor, int root) { mpi_->broadcast(tensor, root); }

private:
    std::shared_ptr<backend::Mpi> mpi_ =
        std::make_shared<backend::Mpi>(backend::Mpi::Options{.timeout = std::chrono::seconds(60)});
};

struct SitsOnOnePlace : Plain {
    [[nodiscard]] int local_rank() const { return 1; }
};
struct AddsOne : Plain {
    void all_reduce(at::Tensor& tensor, ReduceOp op) {
        Plain::all_reduce(tensor, op);
        tensor += 1;
    }
};
struct Drifts : Plain {
    void all_reduce(at::Tensor& tensor, ReduceOp op) {
        Plain::all_reduce(tensor, op);
        tensor += ++calls;
    }
    int calls = 0;
};
struct WritesBetween : Plain {
    void all_reduce(at::Tensor& tensor, ReduceOp op) {
        Plain::all_reduce(tensor, op);
        if (!tensor.is_contiguous()) {
            tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset()).fill_(1);
        }
    }
};
struct BroadcastsZeros : Plain {
    void broadcast(at::Tensor& tensor, int /*root*/) { tensor.zero_(); }
};
struct GathersOnesOwn : Plain {
    at::Tensor all_gather(const at::Tensor& tensor) {
        return at::stack(std::vector<at::Tensor>(static_cast<std::size_t>(size()), tensor.neg()));
    }
};
struct ReducesInput : Plain {
    at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) {
        at::Tensor alias = tensor;
        all_reduce(alias, op);
        return alias[rank()].neg();
    }
};
struct ReducesOnce : Plain {
    struct Handle {
        Plain* backend;
        at::Tensor tensor;
        int passes = 0;
        void start() {
            backend->all_reduce(tensor, ReduceOp::sum);
            tensor += passes++;
        }
        void poll() {}
        void wait() {}
    };
    Handle all_reduce_async(at::Tensor& tensor, ReduceOp /*op*/) { return {this, tensor}; }
};
struct CallsAllFinite : ReducesOnce {
    struct Handle : ReducesOnce::Handle {
        void check_finite() {}
        [[nodiscard]] std::optional<bool> finite() const { return true; }
    };
    Handle all_reduce_async(at::Tensor& tensor, ReduceOp /*op*/) { return {{this, tensor}}; }
};
struct ForgetsOutcomes : Plain {
    std::vector<Outcome> finish(const Outcome& mine) {
        return std::vector<Outcome>(Plain::finish(mine).size());
    }
};

} // namespace

RTRAIN_TEST_BACKEND(Mpi, backend::Mpi({.timeout = std::chrono::seconds(60),
                                       .failure_patience = std::chrono::seconds(10)}));
RTRAIN_TEST_BACKEND(Plain, Plain{});

#define MUST_FAIL(type, holds)                                                                     \
    TEST_CASE("Backend.suite_notices." #type* doctest::should_fail()) {                            \
        rtrain::testing::BackendSuite(type{}).holds();                                             \
    }
MUST_FAIL(SitsOnOnePlace, numbers_ranks_and_nodes)
MUST_FAIL(AddsOne, reduces_tensors_of_all_types_and_sizes)
MUST_FAIL(Drifts, reduces_to_the_same_bits_everywhere)
MUST_FAIL(WritesBetween, takes_strided_tensors)
MUST_FAIL(BroadcastsZeros, broadcasts_from_every_root)
MUST_FAIL(GathersOnesOwn, stacks_the_tensors_of_all_ranks)
MUST_FAIL(ReducesInput, gives_each_rank_its_row_of_a_reduction)
MUST_FAIL(ReducesOnce, reduces_several_buckets_again_and_again)
MUST_FAIL(CallsAllFinite, tells_whether_a_reduction_is_finite)
MUST_FAIL(ForgetsOutcomes, tells_all_ranks_how_each_has_ended)

TEST_CASE("Communicator.refuses_what_it_cannot_reduce") {
    auto mpi = started();
    auto integers = torch::ones({2}, torch::kLong);
    CHECK(code_of([&] { mpi.all_reduce(integers, ReduceOp::mean); }) == "RT-X7");
    auto meta = torch::ones({2}, torch::kMeta);
    CHECK(code_of([&] { mpi.all_reduce(meta, ReduceOp::sum); }) == "RT-X6");
    (void)mpi.finish({});
}

TEST_CASE("Communicator.says_what_mpi_refuses") {
    const auto refused = [] { comm::check_mpi(MPI_ERR_COUNT, "MPI_Isend"); };
    CHECK(code_of(refused) == "RT-X3");
    CHECK(test::contains(test::message_of(refused), "MPI_Isend failed: "));
}

TEST_CASE("Communicator.has_no_more_memory_than_the_machine") {
    auto mpi = started();
    if (mpi.size() > mpi.local_size() || mpi.size() == 1) {
        return; // ranks that share none take what torch gives
    }
    constexpr std::int64_t exabyte = std::int64_t{1} << 60;
    const auto bucket = [&] { (void)mpi.communicator().allocate_bucket(exabyte, torch::kByte); };
    CHECK(code_of(bucket) == "RT-X12"); // on all ranks
    auto ones = torch::ones({3});
    mpi.all_reduce(ones, ReduceOp::sum);
    CHECK(ones.equal(torch::full({3}, static_cast<float>(mpi.size()))));
}

TEST_CASE("Collectives.texts_of_every_root_and_length") {
    auto mpi = started();
    rtrain::detail::TheBackend any(std::make_shared<rtrain::backend::Mpi>(mpi));
    for (int root = 0; root < mpi.size(); ++root) {
        CHECK(rtrain::detail::broadcast(any, "from " + std::to_string(mpi.rank()), root) ==
              "from " + std::to_string(root));
    }
    const auto texts =
        rtrain::detail::all_gather(any, std::string(static_cast<std::size_t>(mpi.rank()), 'x'));
    for (int rank = 0; rank < mpi.size(); ++rank) {
        CHECK(texts.at(static_cast<std::size_t>(rank)) ==
              std::string(static_cast<std::size_t>(rank), 'x'));
    }
    (void)mpi.finish({});
}

TEST_CASE("Communicator.a_rank_that_left_is_noticed" * doctest::timeout(60)) {
    auto mpi = started();
    const int gone = mpi.size() - 1;
    Outcome mine;
    if (mpi.rank() != gone) {
        auto tensor = torch::ones({10});
        const auto message = test::message_of([&] { mpi.all_reduce(tensor, ReduceOp::sum); });
        CHECK(test::contains(message, "rank " + std::to_string(gone) + " has returned"));
        mine = Failure{.message = message};
    }
    (void)mpi.finish(mine);
}

TEST_CASE("Communicator.who_has_nothing_more_to_send_may_leave" * doctest::timeout(60)) {
    auto mpi = started();
    auto& ranks = mpi.communicator();
    constexpr std::chrono::seconds longer_than_the_grace{3};
    auto x = torch::full({4}, mpi.rank());
    SUBCASE("while rank 0 receives from another") {
        const int last = mpi.size() - 1;
        if (mpi.rank() > 0) {
            if (mpi.rank() == last) {
                std::this_thread::sleep_for(longer_than_the_grace);
            }
            ranks.send(x, 0);
        }
        for (int rank = 1; mpi.rank() == 0 && rank <= last; ++rank) {
            ranks.receive(x, rank);
            CHECK(x[0].item<int>() == rank);
        }
    }
    SUBCASE("while a broadcast follows it") { // from 0 by 2 to 3
        if (mpi.rank() == 2) {
            std::this_thread::sleep_for(longer_than_the_grace);
        }
        CHECK(ranks.broadcast_async(x, 0).wait()[0].item<int>() == 0);
    }
    for (const Outcome& outcome : mpi.finish({})) {
        CHECK(!outcome);
    }
}

TEST_CASE("Communicator.a_broadcast_begins_at_once") {
    auto mpi = started();
    auto& ranks = mpi.communicator();
    auto x = torch::full({4}, mpi.rank());
    auto y = torch::zeros({1});
    auto broadcast = ranks.broadcast_async(x, 0);
    if (mpi.rank() == 1) { // the root's other end
        broadcast.wait();
        ranks.send(y, 0);
    } else if (mpi.rank() == 0 && mpi.size() > 1) {
        ranks.receive(y, 1);
    }
    if (mpi.rank() != 1) {
        broadcast.wait();
    }
    CHECK(x[0].item<int>() == 0);
    CHECK(!mpi.finish({})[0]);
}

TEST_CASE("Communicator.may_wait_for_ever" * doctest::timeout(60)) {
    auto mpi = started(std::chrono::seconds::max());
    auto x = torch::ones({1});
    if (mpi.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    mpi.all_reduce(x, ReduceOp::sum);
    CHECK(x.item<int>() == mpi.size());
    CHECK(!mpi.finish({})[0]);
}

TEST_CASE("Communicator.waiting_has_a_limit" * doctest::timeout(60)) {
    auto mpi = started(std::chrono::seconds(1));
    Outcome mine;
    if (mpi.size() > 1) {
        if (mpi.rank() == 0) {
            std::this_thread::sleep_for(std::chrono::seconds(3));
        } else {
            auto tensor = torch::ones({3});
            const auto message = test::message_of([&] { mpi.broadcast(tensor, 0); });
            CHECK(test::contains(message, "RT-X2"));
            mine = Failure{.message = message};
        }
    }
    (void)mpi.finish(mine);
}

TEST_CASE("Communicator.different_shapes_are_noticed" * doctest::timeout(60)) {
    auto mpi = started(std::chrono::seconds(5));
    Outcome mine;
    if (mpi.size() > 1) {
        auto tensor = torch::ones({mpi.rank() == 0 ? 1000 : 2000});
        const auto message = test::message_of([&] { mpi.all_reduce(tensor, ReduceOp::sum); });
        CHECK(test::contains(message, "RT-X"));
        mine = Failure{.message = message};
    }
    const auto outcomes = mpi.finish(mine);
    bool named = mpi.size() == 1;
    for (const auto& outcome : outcomes) {
        named = named || (outcome && (test::contains(outcome->message, "RT-X10") ||
                                      test::contains(outcome->message, "RT-X5")));
    }
    CHECK(named);
}

TEST_CASE("Communicator.runs_follow_each_other_in_what_ranks_have_joined_by") {
    auto mpi = started();
    mpi.stay_joined();
    const int next = (mpi.rank() + 1) % mpi.size();
    const int last = (mpi.rank() + mpi.size() - 1) % mpi.size();
    for (int run = 0; run < 5; ++run) {
        if (run > 0) {
            mpi.start({});
        }
        CAPTURE(run);
        comm::Communicator& all = mpi.communicator();
        // Different numbers of calls in each run, of each kind, with a message that nobody
        // receives.
        for (int i = 0; i <= run; ++i) {
            for (const std::int64_t length : {3, 100'000, 1'000'000}) {
                auto tensor = torch::full({length}, run + mpi.rank());
                all.all_reduce(tensor, ReduceOp::sum);
                const int sum = mpi.size() * run + mpi.size() * (mpi.size() - 1) / 2;
                CHECK(tensor.eq(sum).all().item<bool>());
                auto root = torch::full({length}, 10 * run + mpi.rank());
                all.broadcast(root, mpi.size() - 1);
                CHECK(root.eq(10 * run + mpi.size() - 1).all().item<bool>());
            }
        }
        auto bucket = all.allocate_bucket(1000, torch::kFloat);
        bucket.fill_(run);
        all.all_reduce(bucket, ReduceOp::sum);
        CHECK(bucket.eq(run * mpi.size()).all().item<bool>());
        if (mpi.size() > 1) {
            const auto halves = all.split(mpi.rank() % 2);
            halves->barrier();
            auto sent = torch::full({2}, run);
            auto received = torch::zeros({2}, torch::kLong);
            auto lost = torch::full({2}, -1 - run);
            auto sending = all.send_async(sent.to(torch::kLong), next, 7);
            all.receive(received, last, 7);
            sending.wait();
            all.send(lost.to(torch::kLong), next, 7); // which would be the next run's first
            CHECK(received.eq(run).all().item<bool>());
        }
        const auto outcomes = mpi.finish({});
        CHECK(std::none_of(outcomes.begin(), outcomes.end(),
                           [](const Outcome& outcome) { return outcome.has_value(); }));
        CHECK(all.is_kept());
    }
}

TEST_CASE("Communicator.nothing_is_kept_behind_a_failure" * doctest::timeout(60)) {
    SUBCASE("that the user has forgiven on one rank") {
        auto mpi = started(std::chrono::seconds(5));
        mpi.stay_joined();
        if (mpi.size() > 1) {
            auto tensor = torch::ones({mpi.rank() == 0 ? 1000 : 2000});
            (void)test::message_of([&] { mpi.all_reduce(tensor, ReduceOp::sum); });
        }
        (void)mpi.finish({});
        CHECK(mpi.communicator().is_kept() == (mpi.size() == 1));
        mpi.start({});
        auto tensor = torch::ones({10});
        mpi.all_reduce(tensor, ReduceOp::sum);
        CHECK(tensor.eq(mpi.size()).all().item<bool>());
        (void)mpi.finish({});
        CHECK(mpi.communicator().is_kept());
    }
    SUBCASE("that has ended one rank") {
        auto mpi = started();
        mpi.stay_joined();
        (void)mpi.finish(mpi.rank() == mpi.size() - 1 ? Outcome(Failure{.message = "by intent"})
                                                      : Outcome());
        CHECK(!mpi.communicator().is_kept());
        mpi.start({});
        mpi.barrier();
        (void)mpi.finish({});
    }
    SUBCASE("nor where no run follows") {
        auto mpi = started();
        (void)mpi.finish({});
        CHECK(!mpi.communicator().is_kept());
    }
}

TEST_CASE("Collectives.fail_on_all_ranks_or_none") {
    auto mpi = started();
    rtrain::detail::TheBackend any(std::make_shared<rtrain::backend::Mpi>(mpi));
    for (int culprit = 0; culprit < mpi.size(); ++culprit) {
        const auto message = test::message_of([&] {
            rtrain::detail::succeed_together(any, [&] {
                if (mpi.rank() >= culprit) {
                    throw DataError("RT-D1", "no " + std::to_string(mpi.rank()));
                }
            });
        });
        CHECK(test::contains(message, "no " + std::to_string(culprit)));
        if (mpi.size() > 1) {
            CHECK(test::contains(message, "rank " + std::to_string(culprit) + " of"));
        }
    }
    rtrain::detail::succeed_together(any, [] {});
    (void)mpi.finish({});
}
