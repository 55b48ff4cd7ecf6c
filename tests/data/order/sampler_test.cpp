// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/data/order/sampler.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using test::code_of;

TEST_CASE("Sampler.equals_python") {
    const auto cases =
        json::parse(test::read(std::filesystem::path(RTRAIN_TEST_DATA) / "sampler/python.json"));
    REQUIRE(cases.as_array().size() > 500);
    for (const auto& item : cases.as_array()) {
        const auto& expected = item.as_object();
        CAPTURE(json::serialize(item));
        const auto order = data::distributed_order({
            .rows = expected.at("rows").as_int64(),
            .rank = expected.at("rank").to_number<int>(),
            .size = expected.at("size").to_number<int>(),
            .epoch = expected.at("epoch").as_int64(),
            .shuffle = expected.at("shuffle").as_bool(),
            .seed = expected.at("seed").to_number<std::uint64_t>(),
            .drop_last = expected.at("drop_last").as_bool(),
        });
        const auto python = boost::json::value_to<std::vector<std::int64_t>>(expected.at("order"));
        CHECK(std::vector<std::int64_t>(order.data_ptr<std::int64_t>(),
                                        order.data_ptr<std::int64_t>() + order.numel()) == python);
    }
    CHECK(code_of([] { (void)data::distributed_order({.rows = 0}); }) == "RT-D7");
}
