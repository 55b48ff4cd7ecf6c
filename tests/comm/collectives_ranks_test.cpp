// SPDX-License-Identifier: Apache-2.0
// Every collective of comm::Communicator against a plain reference.
#include "support/training.hpp"

#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/pending.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>

using namespace rtrain;
using comm::Communicator;

namespace {

struct Ranks {
    explicit Ranks(bool check_calls = false)
        : mpi({.timeout = std::chrono::seconds(120), .check_calls = check_calls}) {
        mpi.start({});
    }
    ~Ranks() { (void)mpi.finish(outcome); }
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    Communicator* operator->() { return &mpi.communicator(); }

    backend::Mpi mpi;
    Outcome outcome;
};

const std::vector<at::ScalarType> types{
    torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kChar,
    torch::kByte,  torch::kShort,  torch::kInt,  torch::kLong,     torch::kBool};

/// Small integers, so that sums are exact in every type and in any order.
torch::Tensor values(int rank, std::int64_t elements, at::ScalarType type, int salt = 0) {
    return ((torch::arange(elements) * (rank + 3 + salt)) % 5 + rank % 3).to(type);
}

/// What ATen makes of all ranks' tensors.
torch::Tensor reference(const std::vector<torch::Tensor>& all, ReduceOp op) {
    torch::Tensor result = all[0].clone();
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        switch (op) {
        case ReduceOp::sum:
        case ReduceOp::mean:
            result = at::add(result, all[rank]);
            break;
        case ReduceOp::min:
            result = at::minimum(result, all[rank]);
            break;
        case ReduceOp::max:
            result = at::maximum(result, all[rank]);
            break;
        }
    }
    return op == ReduceOp::mean ? result.div(static_cast<double>(all.size())) : result;
}

std::vector<torch::Tensor> of_all(int size, std::int64_t elements, at::ScalarType type,
                                  int salt = 0) {
    std::vector<torch::Tensor> all;
    for (int rank = 0; rank < size; ++rank) {
        all.push_back(values(rank, elements, type, salt));
    }
    return all;
}

bool same(const torch::Tensor& result, const torch::Tensor& expected) {
    return at::isFloatingType(result.scalar_type()) ? result.allclose(expected, 1e-2, 1e-6)
                                                    : result.equal(expected);
}

} // namespace

TEST_CASE("Collectives.all_types_and_sizes") {
    Ranks ranks;
    const auto me = static_cast<std::size_t>(ranks->rank());
    for (const auto type : types) {
        const std::string type_name = c10::toString(type);
        CAPTURE(type_name);
        for (const std::int64_t elements : {0, 1, 7, 64, 1023, 40001, 300007}) {
            CAPTURE(elements);
            const auto all = of_all(ranks->size(), elements, type);
            for (const auto op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
                if (op == ReduceOp::mean && !at::isFloatingType(type)) {
                    continue;
                }
                const auto expected = reference(all, op);
                auto tensor = all[me].clone();
                ranks->all_reduce(tensor, op);
                CHECK(same(tensor, expected));
                auto bucket = ranks->allocate_bucket(elements, torch::TensorOptions(type));
                bucket.copy_(all[me]);
                ranks->all_reduce(bucket, op);
                CHECK(bucket.equal(tensor));
            }
            const auto gathered = ranks->all_gather(all[me]);
            CHECK(gathered.equal(torch::stack(all)));
            auto copy = all[me].clone();
            const int root = static_cast<int>(elements % ranks->size());
            ranks->broadcast(copy, root);
            CHECK(copy.equal(all[static_cast<std::size_t>(root)]));
        }
        std::vector<torch::Tensor> rows;
        for (int rank = 0; rank < ranks->size(); ++rank) {
            rows.push_back(values(rank, ranks->size() * 3001, type).view({ranks->size(), 3001}));
        }
        const auto row = ranks->reduce_scatter(rows[me], ReduceOp::max);
        CHECK(row.equal(reference(rows, ReduceOp::max)[ranks->rank()]));
    }
}

TEST_CASE("Collectives.a_hundred_megabytes") {
    Ranks ranks;
    const std::int64_t elements = 25'000'003;
    const auto total = static_cast<float>(ranks->size() * (ranks->size() + 1) / 2);
    auto tensor = torch::full({elements}, static_cast<float>(ranks->rank() + 1));
    ranks->all_reduce(tensor, ReduceOp::sum);
    CHECK(tensor.min().item<float>() == total);
    CHECK(tensor.max().item<float>() == total);
    tensor.fill_(static_cast<float>(ranks->rank()));
    ranks->broadcast(tensor, ranks->size() - 1);
    CHECK(tensor.min().item<float>() == static_cast<float>(ranks->size() - 1));
    auto bucket = ranks->allocate_bucket(elements, torch::kFloat);
    CHECK(bucket.count_nonzero().item<std::int64_t>() == 0);
    bucket.fill_(static_cast<float>(ranks->rank() + 1));
    ranks->all_reduce(bucket, ReduceOp::sum);
    CHECK(bucket.min().item<float>() == total);
    CHECK(bucket.max().item<float>() == total);
}

TEST_CASE("Collectives.a_mean_has_a_place_where_its_sum_has_none") {
    Ranks ranks;
    const float value = 40000; // two of them are more than a float16 can be
    const auto x = torch::full({1000}, value, torch::kHalf);
    auto mean = x.clone();
    ranks->all_reduce(mean, ReduceOp::mean);
    CHECK(torch::allclose(mean, x, 1e-2));
    auto bucket = ranks->allocate_bucket(1000, torch::kHalf);
    bucket.fill_(value);
    ranks->all_reduce(bucket, ReduceOp::mean);
    CHECK(torch::allclose(bucket, x, 1e-2));
    const auto rows = torch::full({ranks->size(), 10}, value, torch::kHalf);
    CHECK(torch::allclose(ranks->reduce_scatter(rows, ReduceOp::mean), rows[0], 1e-2));
}

TEST_CASE("Collectives.nan_of_any_rank_is_the_result") {
    Ranks ranks;
    for (int culprit = 0; culprit < ranks->size(); ++culprit) {
        for (const auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
            auto tensor = torch::ones({3});
            if (ranks->rank() == culprit) {
                tensor[1] = std::nan("");
            }
            ranks->all_reduce(tensor, op);
            CHECK(tensor.isnan().equal(torch::tensor({false, true, false})));
        }
    }
}

TEST_CASE("Collectives.a_part_of_a_bucket") {
    Ranks ranks;
    auto bucket = ranks->allocate_bucket(1000, torch::kFloat);
    auto part = bucket.narrow(0, 100, 300);
    for (int step = 1; step <= 3; ++step) {
        bucket.fill_(step);
        ranks->all_reduce(part, ReduceOp::sum);
        CHECK(part.eq(step * ranks->size()).all().item<bool>());
        CHECK(bucket.sum().item<double>() == 700.0 * step + 300.0 * step * ranks->size());
        ranks->barrier(); // a neighbour may still be reading its bucket
    }
}

TEST_CASE("Collectives.under_way_in_any_order") {
    Ranks ranks;
    const int size = ranks->size();
    const int me = ranks->rank();
    for (int round = 0; round < 5; ++round) {
        auto bucket = ranks->allocate_bucket(5000, torch::kFloat);
        auto reduction = ranks->all_reduce_async(bucket, ReduceOp::mean);
        bucket.fill_(me);
        reduction.start();
        auto tensor = torch::full({5000}, me, torch::kLong);
        auto plain = ranks->all_reduce_async(tensor, ReduceOp::max);
        plain.start();
        auto text = values(me, 77, torch::kByte);
        auto broadcast = ranks->broadcast_async(text, size - 1);
        auto gather = ranks->all_gather_async(values(me, 9, torch::kInt));
        auto scatter = ranks->reduce_scatter_async(torch::full({size, 4}, me + 1.0), ReduceOp::sum);
        // A blocking one in between does not disturb those under way.
        auto blocking = torch::full({3}, 1.0);
        ranks->all_reduce(blocking, ReduceOp::sum);
        CHECK(blocking[0].item<double>() == size);
        CHECK(scatter.wait().eq(size * (size + 1) / 2.0).all().item<bool>());
        CHECK(gather.wait().equal(torch::stack(of_all(size, 9, torch::kInt))));
        broadcast.wait();
        CHECK(text.equal(values(size - 1, 77, torch::kByte)));
        plain.wait();
        CHECK(tensor.eq(size - 1).all().item<bool>());
        reduction.wait();
        CHECK(bucket.eq((size - 1) / 2.0).all().item<bool>());
    }
}

TEST_CASE("Messages.around_a_ring") {
    Ranks ranks;
    const int next = (ranks->rank() + 1) % ranks->size();
    const int previous = (ranks->rank() + ranks->size() - 1) % ranks->size();
    auto first = torch::full({4}, ranks->rank());
    auto second = torch::full({100000}, ranks->rank() + 0.5);
    auto sent_second = ranks->send_async(second, next, 2);
    auto sent_first = ranks->send_async(first, next, 1);
    auto from_first = torch::empty({4}, torch::kLong);
    auto from_second = torch::empty({100000});
    ranks->receive(from_first, previous, 1); // tags tell messages apart, not their order
    ranks->receive(from_second, previous, 2);
    sent_first.wait();
    sent_second.wait();
    CHECK(from_first[3].item<int>() == previous);
    CHECK(from_second[99999].item<double>() == previous + 0.5);
    CHECK(test::code_of([&] { ranks->send(first, ranks->size()); }) == "RT-X13");
    CHECK(test::code_of([&] { ranks->send(first, 0, 5000); }) == "RT-X13");
    CHECK(test::code_of([&] {
              (void)ranks->reduce_scatter(torch::ones({ranks->size() + 1}), ReduceOp::sum);
          }) == "RT-X13");
    auto complex = torch::ones({3}, torch::kComplexFloat);
    CHECK(test::code_of([&] { ranks->all_reduce(complex, ReduceOp::max); }) == "RT-X11");
}

TEST_CASE("Groups.by_colour_and_key") {
    Ranks ranks;
    const int me = ranks->rank();
    const auto group = ranks->split(me % 2, -me); // odd and even, last first
    std::vector<int> expected;
    for (int rank = ranks->size() - 1; rank >= 0; --rank) {
        if (rank % 2 == me % 2) {
            expected.push_back(rank);
        }
    }
    CHECK(group->members() == expected);
    CHECK(expected.at(static_cast<std::size_t>(group->rank())) == me);
    auto tensor = torch::full({50000}, me + 1.0);
    group->all_reduce(tensor, ReduceOp::sum);
    double sum = 0;
    for (const int rank : expected) {
        sum += rank + 1;
    }
    CHECK(tensor.eq(sum).all().item<bool>());
    // Groups and the whole work side by side, and groups of groups.
    auto whole = torch::ones({10});
    ranks->all_reduce(whole, ReduceOp::sum);
    CHECK(whole[0].item<int>() == ranks->size());
    const auto alone = group->split(group->rank());
    CHECK(alone->size() == 1);
    alone->barrier();
    auto bucket = group->allocate_bucket(1000, torch::kDouble);
    bucket.fill_(1);
    group->all_reduce(bucket, ReduceOp::sum);
    CHECK(bucket[0].item<int>() == group->size());
}

TEST_CASE("Groups.within_and_across_nodes") {
    Ranks ranks;
    const auto node = ranks->split_by_node();
    const auto across = ranks->split_across_nodes();
    CHECK(node->size() == ranks.mpi.local_size());
    CHECK(node->rank() == ranks.mpi.local_rank());
    for (const int member : node->members()) {
        CHECK(ranks->world().node_of(member) == ranks.mpi.node_rank());
    }
    std::set<int> nodes;
    for (const int member : across->members()) {
        CHECK(nodes.insert(ranks->world().node_of(member)).second);
    }
    auto tensor = torch::ones({1});
    across->all_reduce(tensor, ReduceOp::sum);
    CHECK(tensor.item<int>() == across->size());
}

// Ranks are late and early in turn, sizes and kinds change, reductions overlap: for a minute in CI
// at 4 ranks, for a second elsewhere.
TEST_CASE("Collectives.random_interleavings") {
    const int seconds = launch::env_int("RTRAIN_TEST_SECONDS").value_or(1);
    Ranks ranks;
    const int size = ranks->size();
    const int me = ranks->rank();
    std::minstd_rand common(7);                                // the same on all ranks
    std::minstd_rand own(static_cast<unsigned>(me) * 100 + 1); // when this one dawdles
    std::vector<torch::Tensor> buckets;
    std::vector<comm::AllReduce> reductions;
    for (int i = 0; i < 4; ++i) {
        buckets.push_back(ranks->allocate_bucket(1 + 4999 * i, torch::kFloat));
        reductions.push_back(ranks->all_reduce_async(buckets.back(), ReduceOp::sum));
    }
    const double sum_of_ranks = size * (size - 1) / 2.0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    int rounds = 0;
    for (bool more = true; more; ++rounds) {
        const auto dawdle = [&] {
            if (own() % 8 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
            }
        };
        for (std::size_t i = 0; i < buckets.size(); ++i) {
            buckets[i].fill_(me + rounds % 100);
            dawdle();
            reductions[i].start();
            for (auto& reduction : reductions) {
                if (own() % 2 == 0) {
                    reduction.poll();
                }
            }
        }
        const auto elements = static_cast<std::int64_t>(common() % 60000);
        const auto type = types[common() % types.size()];
        const auto op = common() % 2 == 0 ? ReduceOp::max : ReduceOp::sum;
        const int salt = static_cast<int>(common() % 5);
        const auto all = of_all(size, elements, type, salt);
        auto tensor = all[static_cast<std::size_t>(me)].clone();
        switch (common() % 5) {
        case 0:
            ranks->all_reduce(tensor, op);
            REQUIRE(same(tensor, reference(all, op)));
            break;
        case 1:
            REQUIRE(ranks->all_gather(tensor).equal(torch::stack(all)));
            break;
        case 2: {
            const int root = static_cast<int>(common() % static_cast<unsigned>(size));
            ranks->broadcast(tensor, root);
            REQUIRE(tensor.equal(all[static_cast<std::size_t>(root)]));
            break;
        }
        case 3: {
            auto under_way = ranks->all_reduce_async(tensor, op);
            under_way.start();
            dawdle();
            under_way.wait();
            REQUIRE(same(tensor, reference(all, op)));
            break;
        }
        default:
            ranks->barrier();
        }
        for (std::size_t i = buckets.size(); i-- > 0;) {
            dawdle();
            reductions[i].wait();
            REQUIRE(buckets[i].eq(sum_of_ranks + rounds % 100 * size).all().item<bool>());
        }
        auto over = torch::full({1}, std::chrono::steady_clock::now() > end ? 1 : 0);
        ranks->all_reduce(over, ReduceOp::max);
        more = over.item<int>() == 0;
    }
    CHECK(rounds > 1);
}

TEST_CASE("Collectives.a_rank_that_throws_ends_each" * doctest::timeout(120)) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) {
        return;
    }
    using Collective = std::function<void(Communicator&)>;
    auto tensor = torch::ones({100000});
    const std::vector<Collective> collectives{
        [&](Communicator& ranks) { ranks.all_reduce(tensor, ReduceOp::sum); },
        [&](Communicator& ranks) { ranks.broadcast(tensor, 0); },
        [&](Communicator& ranks) { (void)ranks.all_gather(tensor); },
        [&](Communicator& ranks) { ranks.barrier(); },
        [&](Communicator& ranks) { ranks.receive(tensor, 0); },
        [&](Communicator& ranks) {
            auto bucket = ranks.allocate_bucket(1000, torch::kFloat); // among a node's ranks only
            ranks.all_reduce(bucket, ReduceOp::sum);
        },
        [&](Communicator& ranks) { (void)ranks.split(0); },
        [&](Communicator& ranks) {
            auto reduction = ranks.all_reduce_async(tensor, ReduceOp::sum);
            reduction.start();
            reduction.wait();
        },
    };
    for (const Collective& collective : collectives) {
        Ranks ranks;
        if (ranks->rank() == 0) {
            ranks.outcome = Failure{.message = "cause"};
            continue; // leaves, and says so
        }
        const auto begin = std::chrono::steady_clock::now();
        const auto message = test::message_of([&] { collective(ranks.mpi.communicator()); });
        CHECK(test::contains(message, "rank 0 failed"));
        CHECK(test::contains(message, "cause"));
        CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
        ranks.outcome = Failure{.kind = Failure::Kind::interrupted, .message = message};
    }
}

namespace {

/// Lets rank 0 make one call and the others another; returns what this rank was told.
std::string clash(bool check_calls, const std::function<void(Communicator&)>& call_of_0,
                  const std::function<void(Communicator&)>& call_of_others) {
    Ranks ranks(check_calls);
    const auto message = test::message_of(
        [&] { (ranks->rank() == 0 ? call_of_0 : call_of_others)(ranks.mpi.communicator()); });
    ranks.outcome = Failure{.message = message};
    return message;
}

} // namespace

TEST_CASE("Calls.that_differ_are_named" * doctest::timeout(120)) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) {
        return;
    }
    auto ones = torch::ones({10});
    auto matrix = torch::ones({5, 2});
    auto doubles = torch::ones({10}, torch::kDouble);
    const auto sum = [](torch::Tensor& tensor) {
        return [&tensor](Communicator& ranks) { ranks.all_reduce(tensor, ReduceOp::sum); };
    };
    auto message = clash(true, sum(ones), sum(doubles));
    CHECK(test::contains(message, "RT-X10"));
    CHECK(test::contains(message, "all_reduce(sum) of 10 Float"));
    CHECK(test::contains(message, "all_reduce(sum) of 10 Double"));
    CHECK(test::contains(message, "rank 0"));
    CHECK(test::contains(message, ", while rank "));
    message = clash(true, sum(ones), sum(matrix));
    CHECK(test::contains(message, "of a different shape"));
    message = clash(true, sum(ones), [&](Communicator& ranks) { ranks.broadcast(ones, 0); });
    CHECK(test::contains(message, "broadcast from rank 0 of 10 Float"));
    message =
        clash(true, sum(ones), [&](Communicator& ranks) { ranks.all_reduce(ones, ReduceOp::max); });
    CHECK(test::contains(message, "all_reduce(max)"));
    // A bucket under way against a blocking call.
    message = clash(
        true,
        [&](Communicator& ranks) {
            auto reduction = ranks.all_reduce_async(ones, ReduceOp::sum);
            reduction.start();
            reduction.wait();
        },
        [&](Communicator& ranks) { ranks.barrier(); });
    CHECK(test::contains(message, "RT-X10"));
}

namespace {

/// Two ranks, of which the other has the same.
struct Doubled {
    int rank() const { return 0; }
    int size() const { return 2; }
    void all_reduce(at::Tensor& tensor, ReduceOp op) {
        if (op == ReduceOp::sum) {
            tensor.add_(tensor);
        }
    }
    void broadcast(at::Tensor& /*tensor*/, int /*root*/) {}
};

/// Of this rank so much that the sum over ranks is `sum`.
torch::Tensor part_of(std::int64_t sum, int rank, int size, at::ScalarType type) {
    const std::int64_t part = sum / size;
    return torch::tensor({std::int64_t{1}, rank == 0 ? sum - part * (size - 1) : part}).to(type);
}

} // namespace

TEST_CASE("Collectives.integers_never_wrap_around") {
    Ranks ranks;
    const int me = ranks->rank();
    const int size = ranks->size();
    const std::vector<std::pair<at::ScalarType, std::int64_t>> largest{
        {torch::kByte, 255},          {torch::kChar, 127},
        {torch::kShort, 32767},       {torch::kInt, 2147483647},
        {torch::kUInt32, 4294967295}, {torch::kLong, std::numeric_limits<std::int64_t>::max()}};
    for (const auto& [type, most] : largest) {
        const std::string type_name = c10::toString(type);
        CAPTURE(type_name);
        auto fits = part_of(most, me, size, type);
        ranks->all_reduce(fits, ReduceOp::sum);
        CHECK(fits[1].item<std::int64_t>() == most);
        CHECK(fits[0].item<std::int64_t>() == size);
        const auto code = size > 1 ? "RT-X26" : "";
        auto wraps = torch::full({2}, most).to(type);
        CHECK(test::code_of([&] { ranks->all_reduce(wraps, ReduceOp::sum); }) == code);
        wraps = torch::full({2}, most).to(type);
        auto async = ranks->all_reduce_async(wraps, ReduceOp::sum);
        async.start();
        CHECK(test::code_of([&] { async.wait(); }) == code);
        // Each rank whose row overflows.
        auto rows = torch::full({size, 2}, most).to(type);
        CHECK(test::code_of([&] { (void)ranks->reduce_scatter(rows, ReduceOp::sum); }) == code);
        CHECK(test::code_of(
                  [&] { (void)ranks->reduce_scatter_async(rows, ReduceOp::sum).wait(); }) == code);
    }
    auto low = torch::full({3}, std::numeric_limits<std::int64_t>::min(), torch::kLong);
    auto zero = torch::zeros({3}, torch::kLong);
    ranks->all_reduce(me == 0 ? low : zero, ReduceOp::sum);
    CHECK((me == 0 ? low : zero)[2].item<std::int64_t>() ==
          std::numeric_limits<std::int64_t>::min());
    auto later_sum = torch::full({5}, me + 1, torch::kInt);
    auto later = ranks->all_reduce_async(later_sum, ReduceOp::sum);
    for (int round = 0; round < 2; ++round) {
        later_sum.fill_(me + 1 + round);
        later.start();
        later.wait();
        CHECK(later_sum[4].item<int>() == size * (size + 1) / 2 + round * size);
    }
    auto truth = torch::ones({2}, torch::kBool);
    ranks->all_reduce(truth, ReduceOp::sum);
    CHECK(truth[0].item<bool>());

    // A backend that knows nothing of this.
    rtrain::detail::TheBackend<Doubled> doubled(std::make_shared<Doubled>());
    auto bytes = torch::full({2}, 200, torch::kByte);
    CHECK(test::code_of([&] { doubled.all_reduce(bytes, ReduceOp::sum); }) == "RT-X26");
    auto ints = torch::full({2}, 1000000000, torch::kInt);
    doubled.all_reduce(ints, ReduceOp::sum);
    CHECK(ints[1].item<int>() == 2000000000);
}
