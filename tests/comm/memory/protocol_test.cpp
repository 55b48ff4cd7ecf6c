// SPDX-License-Identifier: Apache-2.0
// The protocols of shared memory with threads for ranks, so that ThreadSanitizer sees every access.
// It sees missing order between a rank's writes and the others' reads, on all interleavings that
// came up. It does not see what two processes do, nor anything that goes through MPI.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <rtrain/comm/memory/collective_log.hpp>
#include <rtrain/comm/memory/double_buffered_exchange.hpp>
#include <rtrain/comm/memory/shared_writer.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <sched.h>

using rtrain::comm::CollectiveLog;
using rtrain::comm::DoubleBufferedExchange;
using rtrain::comm::Stages;

namespace {

struct Call {
    std::uint64_t number = 0;
    friend bool operator==(const Call&, const Call&) = default;
};

/// Zeroed, on a cache line.
class Memory {
public:
    explicit Memory(std::size_t bytes) : lines_((bytes + 63) / 64) {}
    std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }

private:
    struct alignas(64) Line {
        std::byte bytes[64]{};
    };
    std::vector<Line> lines_;
};

template <class F>
void on_threads(int size, F&& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&body, rank] { body(rank); });
    }
    for (auto& thread : threads) {
        thread.join();
    }
}

template <class Progress>
void wait(Progress& progress) {
    while (!progress.poll()) {
        sched_yield();
    }
}

std::uint64_t value(int rank, std::uint64_t round, std::size_t i) {
    return static_cast<std::uint64_t>(rank) * 1000003 + round * 101 + i;
}

/// Some ranks are late, others early, differently each time.
void linger(std::minstd_rand& random) {
    for (auto n = random() % 4; n > 0; --n) {
        sched_yield();
    }
}

} // namespace

TEST_CASE("Rounds.all_see_what_all_wrote") {
    constexpr std::size_t words = 64;
    for (const int size : {1, 2, 3, 5, 8}) {
        Memory memory(DoubleBufferedExchange<Call>::bytes_for(size, words * 8));
        std::atomic<int> wrong = 0;
        on_threads(size, [&](int rank) {
            std::minstd_rand random(static_cast<unsigned>(rank));
            DoubleBufferedExchange<Call> rounds(memory.data(), rank, size, words * 8);
            for (std::uint64_t round = 1; round <= 400; ++round) {
                auto* const slot = reinterpret_cast<std::uint64_t*>(rounds.next_slot());
                for (std::size_t i = 0; i < words; ++i) {
                    slot[i] = value(rank, round, i);
                }
                rounds.publish({round});
                wait(rounds.stages());
                wrong += rounds.stages().disagreeing().has_value() ? 1 : 0;
                for (int peer = 0; peer < size; ++peer) {
                    const auto* const theirs =
                        reinterpret_cast<const std::uint64_t*>(rounds.published_slot(peer));
                    for (std::size_t i = 0; i < words; ++i) {
                        wrong += theirs[i] != value(peer, round, i) ? 1 : 0;
                    }
                }
                linger(random);
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Rounds.a_call_that_differs_is_seen_by_all") {
    Memory memory(DoubleBufferedExchange<Call>::bytes_for(3, 64));
    std::atomic<int> seen = 0;
    on_threads(3, [&](int rank) {
        DoubleBufferedExchange<Call> rounds(memory.data(), rank, 3, 64);
        rounds.publish({7});
        wait(rounds.stages());
        CHECK_FALSE(rounds.stages().disagreeing().has_value());
        rounds.publish({rank == 2 ? 9U : 8U});
        wait(rounds.stages());
        const auto other = rounds.stages().disagreeing();
        seen += other && *other == (rank == 2 ? 0 : 2) ? 1 : 0;
    });
    CHECK(seen == 3);
}

// As BucketAllReduce does it: everybody's slice of all buckets, twice a stage for one reduction.
TEST_CASE("Stages.buckets_reduced_in_place") {
    constexpr std::size_t words = 120;
    for (const int size : {2, 3, 5, 8}) {
        const auto ranks = static_cast<std::size_t>(size);
        Memory lines(Stages<Call>::bytes_for(size));
        std::vector<std::vector<std::uint64_t>> buckets(ranks, std::vector<std::uint64_t>(words));
        std::atomic<int> wrong = 0;
        on_threads(size, [&](int rank) {
            std::minstd_rand random(static_cast<unsigned>(rank + 10));
            Stages<Call> stages(lines.data(), rank, size);
            const std::size_t begin = words * static_cast<std::size_t>(rank) / ranks;
            const std::size_t end = words * static_cast<std::size_t>(rank + 1) / ranks;
            auto& mine = buckets[static_cast<std::size_t>(rank)];
            for (std::uint64_t step = 1; step <= 400; ++step) {
                for (std::size_t i = 0; i < words; ++i) {
                    mine[i] = value(rank, step, i);
                }
                linger(random);
                stages.publish({step});
                wait(stages);
                for (std::size_t i = begin; i < end; ++i) {
                    std::uint64_t sum = 0;
                    for (const auto& bucket : buckets) {
                        sum += bucket[i];
                    }
                    for (auto& bucket : buckets) {
                        bucket[i] = sum;
                    }
                }
                stages.publish({step});
                wait(stages);
                for (std::size_t i = 0; i < words; ++i) {
                    std::uint64_t sum = 0;
                    for (int peer = 0; peer < size; ++peer) {
                        sum += value(peer, step, i);
                    }
                    wrong += mine[i] != sum ? 1 : 0;
                }
            }
        });
        CHECK(wrong == 0);
    }
}

// Ranks are up to several times as many calls ahead as are kept, and look at each other meanwhile.
TEST_CASE("CallRecord.what_is_overwritten_is_not_compared") {
    for (const int size : {2, 3, 8}) {
        Memory memory(CollectiveLog<Call>::bytes_for(size));
        std::atomic<int> wrong = 0;
        on_threads(size, [&](int rank) {
            std::minstd_rand random(static_cast<unsigned>(rank) + 20);
            CollectiveLog<Call> record(memory.data(), rank, size);
            for (std::uint64_t number = 1; number <= 6 * CollectiveLog<Call>::kept; ++number) {
                record.add({number});
                if (random() % 64 == 0) {
                    linger(random);
                    wrong += record.find().has_value() ? 1 : 0;
                }
            }
            wrong += record.find().has_value() ? 1 : 0;
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("CallRecord.the_first_call_that_differs_is_found") {
    Memory memory(CollectiveLog<Call>::bytes_for(3));
    std::atomic<int> right = 0;
    on_threads(3, [&](int rank) {
        CollectiveLog<Call> record(memory.data(), rank, 3);
        for (std::uint64_t number = 1; number <= 50; ++number) {
            record.add({rank == 1 && number >= 20 ? 1000 + number : number});
        }
        for (;;) { // the others may be late
            const auto found = record.find();
            if (found) {
                const std::uint64_t other = rank == 1 ? 20 : 1020;
                right +=
                    found->peer == (rank == 1 ? 0 : 1) && found->theirs.number == other ? 1 : 0;
                break;
            }
            sched_yield();
        }
    });
    CHECK(right == 3);
}

// Each size several times: the first writes go through the caches, the next around them.
TEST_CASE("SharedWriter.both_ways_write_the_same") {
    rtrain::comm::SharedWriter writer;
    std::vector<float> from(30000);
    for (std::size_t i = 0; i < from.size(); ++i) {
        from[i] = static_cast<float>(i);
    }
    for (const std::size_t elements : {0U, 1U, 5000U, 4096U, 29983U}) {
        for (std::size_t begin = 0; begin < 4; ++begin) { // 4 bytes apart
            std::vector<float> to(30001, -1.0F);
            for (int again = 0; again < 3; ++again) {
                writer.scale(to.data() + begin, from.data(), 0.5F,
                             static_cast<std::int64_t>(elements), [&] {
                                 for (std::size_t i = 0; i < elements; ++i) {
                                     to[begin + i] = from[i] * 0.5F;
                                 }
                             });
                bool right = to[begin + elements] == -1.0F; // not a word more
                for (std::size_t i = 0; i < elements; ++i) {
                    right = right && to[begin + i] == from[i] * 0.5F;
                }
                CHECK(right);
                std::fill(to.begin(), to.end(), -1.0F);
            }
        }
        for (const std::size_t bytes : {elements, std::min(elements * 4, std::size_t{119000})}) {
            Memory to(bytes + 64);
            for (int again = 0; again < 3; ++again) {
                writer.copy(to.data(), reinterpret_cast<const std::byte*>(from.data()) + 1, bytes);
                CHECK(std::memcmp(to.data(), reinterpret_cast<const std::byte*>(from.data()) + 1,
                                  bytes) == 0);
                CHECK(to.data()[bytes] == std::byte{0});
                std::fill(to.data(), to.data() + bytes, std::byte{0});
            }
        }
    }
}

TEST_CASE("Stages.name_the_ranks_that_are_absent") {
    constexpr int size = 3;
    Memory memory(Stages<Call>::bytes_for(size));
    std::vector<Stages<Call>> ranks;
    for (int rank = 0; rank < size; ++rank) {
        ranks.emplace_back(memory.data(), rank, size);
    }
    CHECK(ranks[0].absent().empty());
    ranks[0].publish({1});
    CHECK(ranks[0].absent() == std::vector{1, 2});
    ranks[2].publish({1});
    CHECK(ranks[0].absent() == std::vector{1}); // rank 2 may leave now
    CHECK(ranks[2].absent() == std::vector{1});
    CHECK_FALSE(ranks[0].poll());
    ranks[1].publish({1});
    CHECK(ranks[0].absent().empty());
    CHECK(ranks[0].poll());
}
