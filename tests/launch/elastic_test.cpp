// SPDX-License-Identifier: Apache-2.0
// Trainings that are killed in the middle of an epoch on n ranks and go on on m, as real processes.
// RTRAIN_TEST_ALL_PAIRS=1 in the environment takes every pair instead of a few (some minutes).
#include "support/programs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace test;

namespace {

const bool all_pairs = std::getenv("RTRAIN_TEST_ALL_PAIRS") != nullptr;

using Pairs = std::map<int, std::set<int>>; ///< ranks that are killed, and those that go on

Pairs pairs(const std::vector<int>& of, const Pairs& few) {
    if (!all_pairs) {
        return few;
    }
    Pairs all;
    for (const int ranks : of) {
        all[ranks] = {of.begin(), of.end()};
    }
    return all;
}

Ended elastic(int ranks, const std::string& variant, int killed_behind,
              const std::filesystem::path& storage) {
    return run_on(ranks, std::string(RTRAIN_ELASTIC) + " " + variant + " " +
                             std::to_string(killed_behind) + " " + storage.string());
}

/// How often ranks have taken each of `rows` rows in `epoch`.
std::vector<int> taken(const std::filesystem::path& storage, int epoch, std::size_t rows) {
    std::vector<int> counts(rows);
    for (const auto& entry : std::filesystem::directory_iterator(storage / "rows")) {
        if (entry.path().filename().string().starts_with(std::to_string(epoch) + "-")) {
            std::istringstream text(read(entry.path()));
            for (std::size_t row = 0; text >> row;) {
                ++counts.at(row);
            }
        }
    }
    return counts;
}

std::string bits_of(const Ended& ended) {
    const auto begin = ended.output.find("bits ");
    return begin == std::string::npos
               ? "none: " + ended.output
               : ended.output.substr(begin, ended.output.find('\n', begin) - begin);
}

/// A copy of what a killed run has left, for one that goes on.
std::filesystem::path copy_of(const std::filesystem::path& killed, int resumed_on) {
    const auto copy = killed.string() + "-on-" + std::to_string(resumed_on);
    std::filesystem::copy(killed, copy, std::filesystem::copy_options::recursive);
    return copy;
}

} // namespace

TEST_CASE("Elastic.the_bits_of_a_training_do_not_depend_on_ranks_or_kills") {
    std::vector<std::string> variants{"bits", "streamed-bits"};
#ifdef RTRAIN_TEST_CSV
    variants.emplace_back("streamed-csv-bits");
#endif
    for (const std::string& variant : variants) {
        CAPTURE(variant);
        const Directory directory("elastic-" + variant);
        // 8 steps an epoch, the last of 52 rows.
        const auto undisturbed = elastic(1, variant, 0, directory.path() / "undisturbed");
        REQUIRE(undisturbed.status == 0);
        REQUIRE(contains(undisturbed.output, "bits "));
        CHECK(taken(directory.path() / "undisturbed", 1, 500) == std::vector<int>(500, 1));
        if (all_pairs) {
            for (const int ranks : {2, 4}) {
                const auto other =
                    elastic(ranks, variant, 0, directory.path() / ("on-" + std::to_string(ranks)));
                CHECK(bits_of(other) == bits_of(undisturbed));
            }
        }
        const Pairs few =
            variant == "bits" ? Pairs{{1, {2}}, {2, {4}}, {4, {1, 2}}} : Pairs{{2, {1, 4}}};
        for (const auto& [killed_on, resumed_on_each] : pairs({1, 2, 4}, few)) {
            const auto killed = directory.path() / ("killed-on-" + std::to_string(killed_on));
            const auto end = elastic(killed_on, variant, 11, killed);
            CHECK(end.status != 0);
            CHECK(!contains(end.output, "bits "));
            for (const int resumed_on : resumed_on_each) {
                CAPTURE(killed_on);
                CAPTURE(resumed_on);
                const auto storage = copy_of(killed, resumed_on);
                CHECK(bits_of(elastic(resumed_on, variant, 0, storage)) == bits_of(undisturbed));
                CHECK(taken(storage, 1, 500) == std::vector<int>(500, 1));
            }
        }
    }
}

TEST_CASE("Elastic.nor_do_they_where_nobody_counts_the_rows") {
    const Directory directory("elastic-filtered");
    const std::string variant = "streamed-filtered-bits";
    // Odd rows of 1000 in at least 7 steps of 64 an epoch.
    const auto undisturbed = elastic(1, variant, 0, directory.path() / "undisturbed");
    REQUIRE(undisturbed.status == 0);
    REQUIRE(contains(undisturbed.output, "bits "));
    const auto rows = taken(directory.path() / "undisturbed", 1, 1000);
    CHECK(std::count(rows.begin(), rows.end(), 1) >= 448);
    for (std::size_t row = 0; row < rows.size(); ++row) {
        CHECK(rows[row] <= static_cast<int>(row % 2));
    }
    for (const auto& [killed_on, resumed_on_each] : pairs({1, 2, 4}, {{2, {1, 4}}})) {
        const auto killed = directory.path() / ("killed-on-" + std::to_string(killed_on));
        CHECK(elastic(killed_on, variant, 11, killed).status != 0);
        for (const int resumed_on : resumed_on_each) {
            CAPTURE(killed_on);
            CAPTURE(resumed_on);
            const auto storage = copy_of(killed, resumed_on);
            CHECK(bits_of(elastic(resumed_on, variant, 0, storage)) == bits_of(undisturbed));
            CHECK(taken(storage, 1, 1000) == rows);
        }
    }
}

TEST_CASE("Elastic.each_row_is_taken_once_in_an_epoch_whatever_ranks_go_on") {
    for (const std::string variant : {"permuted", "streamed", "sharded"}) {
        const Directory directory("elastic-" + variant);
        // 509 rows, a prime; 7 a batch. Behind the last step but two of the first epoch.
        const Pairs few = variant == "permuted"   ? Pairs{{3, {5}}, {4, {1}}}
                          : variant == "streamed" ? Pairs{{2, {3}}}
                                                  : Pairs{{3, {4}}};
        for (const auto& [killed_on, resumed_on_each] : pairs({1, 2, 3, 4, 5, 6, 7, 8}, few)) {
            const auto killed = directory.path() / ("killed-on-" + std::to_string(killed_on));
            const int behind = 509 / (7 * killed_on) - 2;
            CHECK(elastic(killed_on, variant, behind, killed).status != 0);
            for (const int resumed_on : resumed_on_each) {
                CAPTURE(variant);
                CAPTURE(killed_on);
                CAPTURE(resumed_on);
                const auto storage = copy_of(killed, resumed_on);
                const auto ended = elastic(resumed_on, variant, 0, storage);
                CAPTURE(ended.output);
                CHECK(ended.status == 0);
                for (const int epoch : {0, 1}) {
                    const auto counts = taken(storage, epoch, 509);
                    const int left = epoch == 0 ? 509 - behind * 7 * killed_on : 509;
                    const int repeated =
                        variant == "sharded" ? (resumed_on - left % resumed_on) % resumed_on : 0;
                    CHECK(std::count(counts.begin(), counts.end(), 1) == 509 - repeated);
                    CHECK(std::count(counts.begin(), counts.end(), 2) == repeated);
                }
                std::filesystem::remove_all(storage);
            }
        }
    }
}

TEST_CASE("Elastic.sharded_models_are_killed_and_go_on_with_other_ranks") {
    const Directory directory("elastic-weights");
    const auto loss_of = [](const Ended& ended) {
        const auto begin = ended.output.find("loss ");
        REQUIRE(begin != std::string::npos);
        return std::stod(ended.output.substr(begin + 5));
    };
    const auto undisturbed = elastic(1, "whole-weights", 0, directory.path() / "undisturbed");
    REQUIRE(undisturbed.status == 0);
    std::string bits;
    for (const std::string variant : {"whole-weights", "shared-weights", "stepping-weights"}) {
        CAPTURE(variant);
        const auto storage = directory.path() / variant;
        CHECK(elastic(4, variant, 4, storage).status != 0);
        CHECK(elastic(2, variant, 8, storage).status != 0);
        const auto ended = elastic(3, variant, 0, storage);
        CAPTURE(ended.output);
        REQUIRE(ended.status == 0);
        CHECK(loss_of(ended) == doctest::Approx(loss_of(undisturbed)).epsilon(1e-4));
        bits = bits.empty() ? bits_of(ended) : bits;
        CHECK(bits_of(ended) == bits);
    }
}

TEST_CASE("Elastic.a_parameter_that_is_written_in_place_is_named") {
    const Directory directory("elastic-written");
    const auto ended = elastic(2, "written-weights", 2, directory.path());
    CHECK(ended.status != 0);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "parameter \"in.weight\" of a sharded model was written"));
    CHECK(contains(ended.output, "RT-M44"));
    CHECK(contains(ended.output, "Segmentation fault"));
}
