// SPDX-License-Identifier: Apache-2.0
// Ranks that call collectives in different orders: each is told its own call and another's.
#include "support/training.hpp"

#include <rtrain/backend/mpi.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/pending.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>

namespace call_order_test {

using namespace rtrain;
using comm::Communicator;

namespace {

constexpr std::chrono::seconds limit{120};

/// What all ranks prepare, and in different orders use.
struct Ranks {
    explicit Ranks(bool check_calls) : mpi({.timeout = limit, .check_calls = check_calls}) {
        mpi.start({});
    }
    Communicator& operator*() { return mpi.communicator(); }
    Communicator* operator->() { return &mpi.communicator(); }

    comm::AllReduce reduction(const std::string& name) {
        const CollectiveLabel purpose(name);
        tensors.push_back(mpi.allocate_bucket(1000, torch::kFloat));
        return mpi.all_reduce_async(tensors.back(), ReduceOp::sum);
    }

    backend::Mpi mpi;
    std::vector<at::Tensor> tensors;
};

using Act = std::function<void(Ranks&, comm::AllReduce& first, comm::AllReduce& second)>;

/// Lets rank 0 act in one way and the others in another, behind steps that agree; returns what
/// this rank was told.
std::string clash(bool check_calls, const Act& act_of_0, const Act& act_of_others) {
    Ranks ranks(check_calls);
    auto first = ranks.reduction("gradients of the first");
    auto second = ranks.reduction("gradients of the second");
    for (int step = 0; step < 3; ++step) {
        first.start();
        second.start();
        first.wait();
        second.wait();
        ranks->barrier();
    }
    const bool is_0 = ranks->rank() == 0;
    const auto message =
        test::message_of([&] { (is_0 ? act_of_0 : act_of_others)(ranks, first, second); });
    (void)ranks.mpi.finish(Failure{.message = message});
    return message;
}

void reduce(comm::AllReduce& reduction) {
    reduction.start();
    reduction.wait();
}

bool is_alone() {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size == 1;
}

void check_that_both_are_named(const std::string& message, const std::string& call_of_0,
                               const std::string& call_of_others) {
    CAPTURE(message);
    CHECK(test::contains(message, "RT-X10"));
    CHECK(test::contains(message, call_of_0));
    CHECK(test::contains(message, call_of_others));
    CHECK(test::contains(message, "rank 0"));
}

const Act first_then_second = [](Ranks&, auto& first, auto& second) {
    reduce(first);
    reduce(second);
};
const Act second_then_first = [](Ranks&, auto& first, auto& second) {
    reduce(second);
    reduce(first);
};

} // namespace

TEST_CASE("CallOrder.of_bucket_reductions_that_differs_is_told" * doctest::timeout(180)) {
    for (const bool check_calls : {false, true}) {
        if (!is_alone()) {
            CAPTURE(check_calls);
            check_that_both_are_named(clash(check_calls, first_then_second, second_then_first),
                                      "of a bucket of 1000 Float (gradients of the first, ",
                                      "of a bucket of 1000 Float (gradients of the second, ");
        }
    }
}

// Each could end, because all are started before any is waited for.
TEST_CASE("CallOrder.that_differs_is_told_also_where_nobody_would_wait_for_ever" *
          doctest::timeout(180)) {
    const auto both = [](auto& one, auto& other) {
        one.start();
        other.start();
        one.wait();
        other.wait();
    };
    for (const bool check_calls : {false, true}) {
        if (!is_alone()) {
            CAPTURE(check_calls);
            const auto message = clash(
                check_calls, [&](Ranks&, auto& first, auto& second) { both(first, second); },
                [&](Ranks&, auto& first, auto& second) { both(second, first); });
            CHECK(test::contains(message, "RT-X10"));
        }
    }
}

TEST_CASE("CallOrder.a_skipped_all_reduce_is_told" * doctest::timeout(180)) {
    auto ones = torch::ones({7});
    for (const bool check_calls : {false, true}) {
        if (!is_alone()) {
            Ranks probe(false);
            const bool one_node = probe->local_size() == probe->size();
            (void)probe.mpi.finish({});
            if (!one_node && !check_calls) {
                continue; // between nodes, messages of another size are all that is seen
            }
            check_that_both_are_named(clash(
                                          check_calls,
                                          [&](Ranks&, auto& first, auto&) { reduce(first); },
                                          [&](Ranks& ranks, auto& first, auto&) {
                                              ranks->all_reduce(ones, ReduceOp::max);
                                              reduce(first);
                                          }),
                                      "of a bucket of 1000 Float (gradients of the first, ",
                                      "all_reduce(max) of 7 Float");
        }
    }
}

// Messages, which look alike.
TEST_CASE("CallOrder.of_other_tensors_is_told" * doctest::timeout(180)) {
    for (const bool check_calls : {false, true}) {
        if (!is_alone()) {
            CAPTURE(check_calls);
            Ranks ranks(check_calls);
            std::vector<at::Tensor> tensors{torch::ones({9}), torch::ones({9})};
            auto first = ranks->all_reduce_async(tensors[0], ReduceOp::sum);
            auto second = ranks->all_reduce_async(tensors[1], ReduceOp::sum);
            const auto message =
                test::message_of([&] { reduce(ranks->rank() == 0 ? first : second); });
            (void)ranks.mpi.finish(Failure{.message = message});
            check_that_both_are_named(message, "reduction 1)", "reduction 2)");
        }
    }
}

TEST_CASE("CallOrder.within_a_group_is_its_own" * doctest::timeout(180)) {
    Ranks ranks(true);
    const auto group = ranks->split(ranks->rank() % 2);
    auto ones = torch::ones({5});
    for (int i = 0; i < 3 + 4 * (ranks->rank() % 2); ++i) { // not equally many in each group
        group->all_reduce(ones, ReduceOp::max);
    }
    ranks->all_reduce(ones, ReduceOp::max);
    CHECK(ones.eq(1).all().item<bool>());
    (void)ranks.mpi.finish({});
}

} // namespace call_order_test
