// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/model/ddp/batch_weight.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

#include <thread>

using namespace rtrain;

TEST_CASE("Batches.of_different_sizes_have_weights") {
    const std::vector<NamedParameter> none;
    for (const int rank : {0, 1}) {
        rtrain::detail::BatchWeight weight(none);
        data::Batches batches({.dataset = data::from_tensors({{"x", torch::arange(11)}}),
                               .policy = data::Sharded{},
                               .rank = rank,
                               .size = 2},
                              {.size = 4, .each_row_once = true},
                              std::make_shared<data::Position>());
        std::vector<double> weights;
        for (auto& batch : batches) { // of 4 and 4 rows, then 2 and 1
            CHECK(batch.size() == (weights.empty() ? 4 : 2 - rank));
            std::thread([&] { weight.follow(true); }).join(); // as CUDA's backward
            weights.push_back(weight.value());
        }
        CHECK(weights == std::vector{1.0, rank == 0 ? 4.0 / 3 : 2.0 / 3});
    }
}
