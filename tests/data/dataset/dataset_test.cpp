// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using test::code_of;

TEST_CASE("Dataset.from_tensors") {
    const auto x = torch::arange(10).unsqueeze(1);
    const auto points = data::from_tensors({{"x", x}, {"y", 2 * x}});
    CHECK(points.size() == 10);
    const auto batch = points.rows(torch::tensor({7, 0}, torch::kLong));
    CHECK(batch.size() == 2);
    CHECK(batch["y"].equal(torch::tensor({{14}, {0}}, torch::kLong)));
    CHECK(code_of([&] { (void)batch["z"]; }) == "RT-D2");
    CHECK(test::contains(test::message_of([&] { (void)batch["z"]; }), "\"x\", \"y\""));
    CHECK(code_of([&] { (void)data::from_tensors({{"x", x}, {"y", x.slice(0, 1)}}); }) == "RT-D6");
    CHECK(code_of([] { (void)data::from_tensors({}); }) == "RT-D6");
}
