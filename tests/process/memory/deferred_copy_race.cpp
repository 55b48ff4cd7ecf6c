// SPDX-License-Identifier: Apache-2.0
// A copy that a thread makes beside a writer, who waits for it: all bytes are those of before.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <rtrain/process/memory/deferred_copy.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

using rtrain::process::DeferredCopy;

namespace {

std::vector<std::byte> numbered(std::size_t bytes) {
    std::vector<std::byte> memory(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        memory[i] = static_cast<std::byte>(i * 2654435761U >> 13U);
    }
    return memory;
}

} // namespace

TEST_CASE("LateCopy.writers_wait_and_help" * doctest::timeout(120)) {
    for (int round = 0; round < 30; ++round) {
        std::vector<std::byte> live = numbered((std::size_t{3} << 20) + 5);
        const std::vector<std::byte> then = live;
        std::vector<std::byte> copy(live.size());
        std::uint32_t sum = 0;
        int calls = 0;
        const auto late = DeferredCopy::begin({{live.data(), copy.data(), 7},
                                               {live.data() + 7, copy.data() + 7, live.size() - 7},
                                               {live.data(), nullptr, live.size(), &sum}},
                                              [&] { ++calls; });
        std::thread beside([&] { late->finish_beside(); });
        std::thread other([] { DeferredCopy::finish_all(); });
        DeferredCopy::finish_all();
        CHECK(calls == 1);
        std::fill(live.begin(), live.end(), std::byte{1}); // a step
        CHECK(copy == then);
        CHECK(sum == rtrain::checkpoint::sum_of_sums(then.data(), then.size()));
        beside.join();
        other.join();
        CHECK(calls == 1);
    }
}

TEST_CASE("LateCopy.while_it_is_held_only_a_writer_copies" * doctest::timeout(120)) {
    std::vector<std::byte> live = numbered(1000);
    std::vector<std::byte> copy(live.size());
    const DeferredCopy::Held held;
    const auto late = DeferredCopy::begin({{live.data(), copy.data(), live.size()}}, [] {});
    std::thread beside([&] { late->finish_beside(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::fill(live.begin(), live.end(), std::byte{2}); // by who does not wait
    DeferredCopy::finish_all();
    beside.join();
    CHECK(copy == live);
}
