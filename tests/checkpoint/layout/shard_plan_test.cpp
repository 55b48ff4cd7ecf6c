// SPDX-License-Identifier: Apache-2.0

#include <rtrain/checkpoint/layout/shard_plan.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

using namespace rtrain;

TEST_CASE("ShardPlan.every_element_once_in_equal_shares") {
    std::mt19937 random(5);
    for (int trial = 0; trial < 2000; ++trial) {
        std::vector<checkpoint::TensorSize> tensors(random() % 8);
        std::int64_t total = 0;
        for (auto& tensor : tensors) {
            tensor = {random() % 5 == 0 ? 0 : static_cast<std::int64_t>(random() % 1000),
                      std::int64_t{1} << (random() % 4)};
            total += tensor.elements * tensor.element_bytes;
        }
        const int ranks = 1 + static_cast<int>(random() % 6);
        std::vector<std::int64_t> next(tensors.size());
        std::vector<int> owners(tensors.size());
        for (int rank = 0; rank < ranks; ++rank) {
            std::int64_t mine = 0;
            for (const auto& slice : checkpoint::plan_shards(tensors, rank, ranks)) {
                CHECK(slice.begin == next[slice.tensor]);
                next[slice.tensor] += slice.count;
                mine += slice.count * tensors[slice.tensor].element_bytes;
                ++owners[slice.tensor];
            }
            CHECK(mine <= total / ranks + total / ranks / 32 + 16);
        }
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            CHECK(next[i] == tensors[i].elements);
            CHECK(owners[i] >= 1);
            CHECK((tensors[i].elements > 0 || owners[i] == 1));
        }
    }
    using Slices = std::vector<checkpoint::Slice>;
    const std::vector<checkpoint::TensorSize> nearly{{100000, 4}, {200, 4}, {100000, 4}};
    CHECK(
        (checkpoint::plan_shards(nearly, 0, 2) == Slices{{0, 0, 100000}, {1, 0, 200}})); // not cut
    CHECK((checkpoint::plan_shards(nearly, 1, 2) == Slices{{2, 0, 100000}}));
}
