// SPDX-License-Identifier: Apache-2.0
// Runs that RunConfig::stop ends, on processes that are killed.
#include "support/programs.hpp"

#include <doctest/doctest.h>

#include <string>

using test::contains;
using test::Ended;

namespace {

Ended alone(const std::string& kills, const test::Directory& storage) {
    return test::run("timeout 60 " RTRAIN_STOPPING " " + kills + " " + storage.path().string());
}

std::string weights_in(const std::string& output) {
    const auto at = output.find("WEIGHTS ");
    REQUIRE(at != std::string::npos);
    return output.substr(at, output.find('\n', at) - at);
}

} // namespace

TEST_CASE("Stop.a_run_whose_ranks_are_killed_stops_at_the_same_report") {
    const test::Directory whole("stopping-whole");
    const Ended expected = alone("-", whole);
    CAPTURE(expected.output);
    CHECK(expected.status == 0);
    const std::string result =
        "RESULT 10 10 EarlyStopping: loss has not improved on 3 in 3 reports";
    CHECK(contains(expected.output, result));
    CHECK(contains(expected.output, "the run stops at report 10"));
    // Within an epoch and behind one; at the best report; before the last; at the last itself.
    const test::Directory killed("stopping-killed");
    const Ended survived = alone("3,4,7,9,10", killed);
    CAPTURE(survived.output);
    CHECK(survived.status == 0);
    CHECK(contains(survived.output, result));
    CHECK(test::count(survived.output, "the run stops at report 10") >= 1);
    CHECK(weights_in(survived.output) == weights_in(expected.output));
    for (const int step : {3, 4, 7, 9, 10}) {
        CHECK(std::filesystem::exists(killed.path() / ("killed-" + std::to_string(step))));
    }
    // Ranks that are dead tell nobody, but their driver does: once for each of the five.
    CHECK(test::count(survived.output, "TOLD r rank ") == 5);
    CHECK(contains(survived.output, "TOLD r rank 0: rank 0 "));
    CHECK(contains(survived.output, "TOLD r rank 1: rank 1 "));
    // The same command again.
    const Ended again = alone("-", killed);
    CAPTURE(again.output);
    CHECK(again.status == 0);
    CHECK(contains(again.output, result));
    CHECK(weights_in(again.output) == weights_in(expected.output));
    CHECK(!contains(again.output, "the run stops"));
}
