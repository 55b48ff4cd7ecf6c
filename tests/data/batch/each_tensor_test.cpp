// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/data/batch/each_tensor.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

using namespace rtrain;

TEST_CASE("EachTensor.visits_batches_and_examples_whatever_holds_them") {
    const auto tensors_in = [](auto value) {
        int count = 0;
        rtrain::detail::each_tensor(value, [&](torch::Tensor&) { ++count; });
        return count;
    };
    using Example = torch::data::Example<>;
    const torch::Tensor x = torch::ones({2});
    CHECK(tensors_in(data::Batch({{"x", x}, {"y", x}})) == 2);
    CHECK(tensors_in(Example(x, x)) == 2);
    CHECK(tensors_in(std::vector<Example>{{x, x}, {x, x}}) == 4);
    CHECK(tensors_in(torch::data::TensorExample(x)) == 1);
    CHECK(tensors_in(std::pair(data::Batch({{"x", x}}), std::optional(x))) == 2);
    CHECK(tensors_in(std::vector<int>{1, 2}) == 0);
}
