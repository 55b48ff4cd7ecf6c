// SPDX-License-Identifier: Apache-2.0
#include "../support.hpp"

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/comm/pending.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using test::code_of;

namespace {

backend::Mpi started(std::chrono::seconds timeout = std::chrono::seconds(60)) {
    backend::Mpi mpi({.timeout = timeout, .failure_patience = std::chrono::seconds(10)});
    mpi.start({});
    return mpi;
}

/// What `rank` contributes in these tests: small integers, so that sums are exact in every type.
torch::Tensor contribution(int rank, at::IntArrayRef shape, at::ScalarType type) {
    std::int64_t elements = 1;
    for (const auto size : shape) {
        elements *= size;
    }
    return ((torch::arange(elements) * (rank + 3)) % 7 + rank).view(shape).to(type);
}

} // namespace

TEST_CASE("Communicator.all_reduce_equals_a_plain_sum") {
    auto mpi = started();
    for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16,
                            torch::kInt, torch::kLong, torch::kByte}) {
        for (const std::int64_t elements : {0, 1, 2, 15, 16, 17, 1000, 100003}) {
            CAPTURE(elements);
            const std::vector<std::int64_t> shape{elements};
            std::vector<torch::Tensor> all;
            for (int rank = 0; rank < mpi.size(); ++rank) {
                all.push_back(contribution(rank, shape, type));
            }
            const auto stacked = torch::stack(all);
            auto tensor = all[static_cast<std::size_t>(mpi.rank())].clone();
            mpi.all_reduce(tensor, ReduceOp::sum);
            CHECK(tensor.equal(stacked.sum(0, false, type)));
            if (elements > 0) {
                tensor = all[static_cast<std::size_t>(mpi.rank())].clone();
                mpi.all_reduce(tensor, ReduceOp::min);
                CHECK(tensor.equal(stacked.amin(0)));
                tensor = all[static_cast<std::size_t>(mpi.rank())].clone();
                mpi.all_reduce(tensor, ReduceOp::max);
                CHECK(tensor.equal(stacked.amax(0)));
            }
        }
    }
    auto mean = torch::full({5}, static_cast<double>(mpi.rank()));
    mpi.all_reduce(mean, ReduceOp::mean);
    CHECK(mean.allclose(torch::full({5}, (mpi.size() - 1) / 2.0)));
    auto integers = torch::ones({2}, torch::kLong);
    CHECK(code_of([&] { mpi.all_reduce(integers, ReduceOp::mean); }) == "RT-X7");
    auto meta = torch::ones({2}, torch::kMeta);
    CHECK(code_of([&] { mpi.all_reduce(meta, ReduceOp::sum); }) == "RT-X6");
    (void)mpi.finish({});
}

TEST_CASE("Communicator.all_reduce_has_the_same_bits_everywhere") {
    auto mpi = started();
    torch::manual_seed(static_cast<std::uint64_t>(mpi.rank()));
    auto tensor = torch::randn({12345});
    const auto mine = tensor.clone();
    mpi.all_reduce(tensor, ReduceOp::sum);
    const auto all = mpi.all_gather(tensor);
    for (int rank = 0; rank < mpi.size(); ++rank) {
        CHECK(all[rank].equal(tensor));
    }
    auto again = mine.clone();
    mpi.all_reduce(again, ReduceOp::sum);
    CHECK(again.equal(tensor));
    (void)mpi.finish({});
}

TEST_CASE("Communicator.strided_tensors") {
    auto mpi = started();
    auto matrix = torch::zeros({4, 6});
    auto column = matrix.select(1, 2);
    column.fill_(mpi.rank() + 1);
    mpi.all_reduce(column, ReduceOp::sum);
    const double sum = mpi.size() * (mpi.size() + 1) / 2.0;
    CHECK(matrix.sum().item<double>() == 4 * sum);
    column.fill_(mpi.rank());
    mpi.broadcast(column, mpi.size() - 1);
    CHECK(matrix.sum().item<double>() == 4.0 * (mpi.size() - 1));
    (void)mpi.finish({});
}

TEST_CASE("Communicator.broadcast_and_gather_from_every_root") {
    auto mpi = started();
    rtrain::detail::TheBackend any(std::make_shared<rtrain::backend::Mpi>(mpi));
    for (int root = 0; root < mpi.size(); ++root) {
        auto tensor = contribution(mpi.rank(), {3, 5}, torch::kFloat);
        mpi.broadcast(tensor, root);
        CHECK(tensor.equal(contribution(root, {3, 5}, torch::kFloat)));
        CHECK(rtrain::detail::broadcast(any, "from " + std::to_string(mpi.rank()), root) ==
              "from " + std::to_string(root));
    }
    const auto all = mpi.all_gather(contribution(mpi.rank(), {2, 2}, torch::kLong));
    const auto texts =
        rtrain::detail::all_gather(any, std::string(static_cast<std::size_t>(mpi.rank()), 'x'));
    for (int rank = 0; rank < mpi.size(); ++rank) {
        CHECK(all[rank].equal(contribution(rank, {2, 2}, torch::kLong)));
        CHECK(texts.at(static_cast<std::size_t>(rank)) ==
              std::string(static_cast<std::size_t>(rank), 'x'));
    }
    (void)mpi.finish({});
}

TEST_CASE("Communicator.several_reductions_under_way") {
    auto mpi = started();
    std::vector<torch::Tensor> tensors;
    std::vector<comm::AllReduce> reductions;
    for (int i = 0; i < 20; ++i) {
        tensors.push_back(torch::full({1000 * i + 1}, static_cast<double>(mpi.rank() + i)));
        reductions.push_back(mpi.all_reduce_async(tensors.back(), ReduceOp::sum));
    }
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 20; ++i) {
            tensors[static_cast<std::size_t>(i)].fill_(mpi.rank() + i);
        }
        for (auto& reduction : reductions) {
            reduction.start();
        }
        for (auto& reduction : reductions) {
            reduction.wait();
        }
        const double ranks = mpi.size() * (mpi.size() - 1) / 2.0;
        for (int i = 0; i < 20; ++i) {
            CHECK(
                tensors[static_cast<std::size_t>(i)].eq(ranks + i * mpi.size()).all().item<bool>());
        }
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
        mine = {Outcome::Kind::failed, message};
    }
    (void)mpi.finish(mine);
}

TEST_CASE("Communicator.a_rank_that_failed_is_noticed" * doctest::timeout(60)) {
    auto mpi = started();
    Outcome mine;
    if (mpi.size() > 1 && mpi.rank() == 0) {
        mine = {Outcome::Kind::failed, "cause"};
    } else if (mpi.size() > 1) {
        auto tensor = torch::ones({1 << 20});
        const auto message = test::message_of([&] { mpi.all_reduce(tensor, ReduceOp::sum); });
        CHECK(test::contains(message, "RT-X1"));
        CHECK(test::contains(message, "cause"));
        mine = {Outcome::Kind::interrupted, message};
    }
    const auto outcomes = mpi.finish(mine);
    REQUIRE(outcomes.size() == static_cast<std::size_t>(mpi.size()));
    CHECK((outcomes[0].kind == (mpi.size() > 1 ? Outcome::Kind::failed : Outcome::Kind::finished)));
    // The next communicator is not disturbed by what the last one left.
    auto next = started();
    auto tensor = torch::ones({1 << 20});
    next.all_reduce(tensor, ReduceOp::sum);
    CHECK(tensor[5].item<float>() == static_cast<float>(next.size()));
    (void)next.finish({});
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
            mine = {Outcome::Kind::failed, message};
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
        mine = {Outcome::Kind::failed, message};
    }
    const auto outcomes = mpi.finish(mine);
    bool named = mpi.size() == 1;
    for (const auto& outcome : outcomes) {
        named = named || test::contains(outcome.message, "RT-X10") ||
                test::contains(outcome.message, "RT-X5");
    }
    CHECK(named);
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
