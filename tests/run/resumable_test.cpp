// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/run/resumable.hpp>
#include <rtrain/storage/local.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

using namespace rtrain;
using Names = std::vector<std::string>;

namespace {

void add(checkpoint::Store& store, const Config& metrics) {
    const std::string name = store.next_name("");
    store.staging().stage(name, 0);
    checkpoint::CheckedFile file(store.staging().directory_of(name, 0), "a");
    file.write("1");
    store.commit(name, 1, {{file.finish()}, {}}, metrics);
}

} // namespace

TEST_CASE("Resumable.the_newest_comes_first_and_those_to_skip_last") {
    const test::Directory directory("resumable");
    checkpoint::Store store(
        checkpoint::Staging({storage::Local{}, directory.path().string()}, "attempt", {}, {}), {});
    store.open();
    for (int i = 1; i <= 3; ++i) {
        add(store, {{"training_iteration", i}, {"time_total_s", 1}});
    }
    add(store, {{"loss", 1}}); // of another program
    CHECK(detail::names_to_resume_from(store, {}) ==
          Names{"checkpoint_000002", "checkpoint_000001", "checkpoint_000000"});
    CHECK(detail::names_to_resume_from(store, {"checkpoint_000002"}) ==
          Names{"checkpoint_000001", "checkpoint_000000", "checkpoint_000002"});
    REQUIRE(store.listing().damaged.size() == 1);
    detail::warn_of_damage(store, store.checkpoint("checkpoint_000002"));
    CHECK(test::code_of([&] { detail::warn_of_damage(store, std::nullopt); }) == "RT-K2");
}
