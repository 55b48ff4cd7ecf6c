// SPDX-License-Identifier: Apache-2.0
#include <rtrain/launch/supervise/lifetime.hpp>

#include <doctest/doctest.h>

#include <optional>

using namespace rtrain::launch;

TEST_CASE("Lifetime.a_guarded_handler_does_nothing_once_its_object_is_destroyed") {
    std::optional<Lifetime> lifetime;
    lifetime.emplace();
    int sum = 0;
    const auto add = lifetime->guard([&](int a, int b) { sum += a + b; });
    add(1, 2);
    CHECK(sum == 3);
    lifetime.reset();
    add(1, 2);
    CHECK(sum == 3);
}
