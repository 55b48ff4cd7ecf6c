// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using test::code_of;

namespace {

/// Text, a list and numbers, the second row without a number.
data::Batch three_rows() {
    const auto offsets = torch::tensor({0, 3, 3, 5}, torch::kLong);
    return {{{"x", torch::tensor({7, 0, 9}, torch::kLong)}},
            {{"text", {torch::tensor({'o', 'n', 'e', 'h', 'i'}, torch::kByte), offsets}},
             {"list", {torch::arange(10).reshape({5, 2}), offsets}}},
            {{"x", torch::tensor({true, false, true})}}};
}

} // namespace

TEST_CASE("Batch.names_the_columns_of_either_kind") {
    const data::Batch batch = three_rows();
    CHECK(batch.size() == 3);
    CHECK(batch.ragged("text").text(0) == "one");
    CHECK(batch.ragged("text").text(1).empty());
    CHECK(batch.ragged("list")[2].equal(torch::tensor({{6, 7}, {8, 9}}, torch::kLong)));
    CHECK_FALSE(batch.valid("text").defined());
    CHECK(test::message_of([&] { (void)batch["text"]; }) ==
          "the batch has no column \"text\"; it has \"x\"; with batch.ragged(): \"text\", \"list\" "
          "[RT-D2]");
    CHECK(code_of([&] { (void)batch.ragged("x"); }) == "RT-D2");
    CHECK(code_of([&] { (void)batch.valid("y"); }) == "RT-D2");
}

TEST_CASE("Batch.rows_are_selected_sliced_and_joined") {
    const data::Batch batch = three_rows();
    const data::Batch selected = data::select_rows(batch, torch::tensor({2, 2, 1}, torch::kLong));
    CHECK(selected["x"].equal(torch::tensor({9, 9, 0}, torch::kLong)));
    CHECK(selected.ragged("text").text(1) == "hi");
    CHECK(selected.ragged("text").text(2).empty());
    CHECK(selected.ragged("list")[0].equal(torch::tensor({{6, 7}, {8, 9}}, torch::kLong)));
    CHECK(selected.valid("x").equal(torch::tensor({true, true, false})));

    const data::Batch sliced = data::slice_rows(batch, 1, 3);
    CHECK(sliced.size() == 2);
    CHECK(sliced.ragged("text").text(1) == "hi");

    const data::Batch unmasked({{"x", torch::tensor({4}, torch::kLong)}},
                               {{"text", batch.ragged("text")}, {"list", batch.ragged("list")}});
    const data::Batch joined = data::concatenate({sliced, data::slice_rows(batch, 0, 1)});
    CHECK(joined["x"].equal(torch::tensor({0, 9, 7}, torch::kLong)));
    CHECK(joined.ragged("text").text(2) == "one");
    CHECK(joined.ragged("list")[1].equal(torch::tensor({{6, 7}, {8, 9}}, torch::kLong)));
    CHECK(
        data::concatenate({sliced, unmasked}).valid("x").equal(torch::tensor({false, true, true})));
    CHECK(code_of([&] {
              (void)data::concatenate({batch, data::Batch({{"y", torch::arange(3)}})});
          }) == "RT-D19");
}
