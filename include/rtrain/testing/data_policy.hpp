// SPDX-License-Identifier: Apache-2.0
/// @file
/// The conformance suite of DataPolicy: tests what the concept cannot check, for custom types.
///
/// @code
/// #include <doctest/doctest.h>
/// #include <rtrain/testing/data_policy.hpp>
///
/// RTRAIN_TEST_DATA_POLICY(Newest, Newest{});
/// @endcode
///
/// defines test cases "DataPolicy.Newest.depends_on_the_request_alone" and so on, in one process.
/// Each ends at its first error.
#pragma once

#include <rtrain/data/order/policy.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/testing/passes.hpp>
#include <rtrain/testing/suite.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::testing {

/// Tests of rtrain's requirements for a data policy; run by RTRAIN_TEST_DATA_POLICY.
template <DataPolicy D>
class DataPolicySuite {
public:
    explicit DataPolicySuite(D policy) : policy_(std::make_shared<const D>(std::move(policy))) {}

    /// Type int64, one dimension, each element a row of the data set.
    void gives_rows_of_the_data_set() const {
        for_each_request([&](const data::EpochRequest& epoch) {
            check_rows(policy_->order(epoch), epoch.rows);
            if constexpr (detail::HasRest<D>) {
                check_rows(policy_->order(epoch, epoch.rows / 3), epoch.rows);
            }
            if constexpr (detail::HasRowsAt<D>) {
                const at::Tensor rows = policy_->rows_at(epoch, epoch.rows / 3, epoch.rows);
                check_rows(rows, epoch.rows);
                DOCTEST_REQUIRE(rows.numel() == epoch.rows - epoch.rows / 3);
                DOCTEST_REQUIRE(policy_->rows_at(epoch, epoch.rows, epoch.rows).numel() == 0);
            }
        });
    }

    /// Independent of earlier requests and of torch's random numbers.
    void depends_on_the_request_alone() const {
        std::vector<std::pair<data::EpochRequest, at::Tensor>> first;
        for_each_request([&](const data::EpochRequest& epoch) {
            first.emplace_back(epoch, policy_->order(epoch));
        });
        const at::Tensor random_state = at::detail::getDefaultCPUGenerator().get_state();
        std::reverse(first.begin(), first.end());
        for (const auto& [epoch, order] : first) {
            DOCTEST_REQUIRE(policy_->order(epoch).equal(order));
        }
        DOCTEST_REQUIRE(at::detail::getDefaultCPUGenerator().get_state().equal(random_state));
    }

    /// Otherwise some ranks would wait for the others. (With rows_at(), rtrain divides the rows.)
    void gives_all_ranks_equally_many() const {
        for_each_request([&](data::EpochRequest epoch) {
            const std::int64_t mine = detail::HasRowsAt<D> ? 0 : policy_->order(epoch).numel();
            epoch.rank = 0;
            DOCTEST_REQUIRE(mine == (detail::HasRowsAt<D> ? 0 : policy_->order(epoch).numel()));
            if constexpr (detail::HasRest<D>) {
                const std::int64_t first = policy_->order(epoch, epoch.rows / 2).numel();
                epoch.rank = epoch.size - 1;
                DOCTEST_REQUIRE(policy_->order(epoch, epoch.rows / 2).numel() == first);
            }
        });
    }

    /// Together these read what a single rank reads, except for rows that do not divide evenly.
    void is_shared_by_as_many_ranks_as_it_says() const {
        for_each_request([&](data::EpochRequest epoch) {
            const std::int64_t sharing = policy_->ranks_sharing(epoch.size);
            DOCTEST_REQUIRE(sharing >= 1);
            DOCTEST_REQUIRE(sharing <= epoch.size);
            DOCTEST_REQUIRE((!detail::HasRowsAt<D> || sharing == 1 || sharing == epoch.size));
            const std::int64_t together = sharing * policy_->order(epoch).numel();
            epoch.rank = 0;
            epoch.size = 1;
            const std::int64_t alone = policy_->order(epoch).numel();
            DOCTEST_REQUIRE(std::max(alone - together, together - alone) < sharing);
        });
    }

    /// Tests order(epoch, taken) and rows_at(), which divide one order.
    void divides_one_order() const {
        for_each_request([&](const data::EpochRequest& epoch) {
            if constexpr (detail::HasRest<D>) {
                DOCTEST_REQUIRE(policy_->order(epoch, 0).equal(policy_->order(epoch)));
            }
            if constexpr (detail::HasRowsAt<D>) {
                const at::Tensor whole = policy_->rows_at(epoch, 0, epoch.rows);
                data::EpochRequest other = epoch;
                other.rank = 0;
                other.size = 1;
                const std::int64_t middle = epoch.rows / 2;
                const at::Tensor parts = at::cat({policy_->rows_at(epoch, 0, middle),
                                                  policy_->rows_at(other, middle, epoch.rows)});
                DOCTEST_REQUIRE(parts.equal(whole));
            }
        });
    }

    /// Every rank continues at its position.
    void goes_on_where_a_run_was_stopped() const {
        for_each_loops([](const auto& loops) {
            for (const int size : {1, 2, 3}) {
                for (const int steps : {1, 2, 5}) {
                    DOCTEST_CAPTURE(size);
                    DOCTEST_CAPTURE(steps);
                    data::Position undisturbed;
                    const auto whole = take_apart(undisturbed, size, to_the_end, loops, column_x);
                    data::Position position;
                    auto taken = take_apart(position, size, steps, loops, column_x);
                    const auto rest = take_apart(position, size, to_the_end, loops, column_x);
                    for (std::size_t rank = 0; rank < taken.size(); ++rank) {
                        taken[rank].insert(taken[rank].end(), rest[rank].begin(), rest[rank].end());
                    }
                    DOCTEST_REQUIRE((taken == whole));
                }
            }
        });
    }

    /// With order(epoch, taken) or rows_at(): no row is left out, and none is read twice except
    /// those that do not divide evenly.
    void goes_on_on_another_number_of_ranks() const {
        if constexpr (!detail::HasRest<D> && !detail::HasRowsAt<D>) {
            DOCTEST_MESSAGE("the policy only resumes on the same number of ranks");
        } else {
            for_each_loops([&](const auto& loops) {
                if (policy_->ranks_sharing(2) > 1) {
                    resume_on_any(loops, column_x, detail::HasRest<D>);
                } else {
                    resume_each_on_its_own(loops);
                }
            });
        }
    }

private:
    /// A policy need not be copyable.
    struct Shared {
        std::shared_ptr<const D> policy;
        [[nodiscard]] at::Tensor order(const data::EpochRequest& epoch) const {
            return policy->order(epoch);
        }
        [[nodiscard]] at::Tensor order(const data::EpochRequest& epoch,
                                       std::int64_t taken) const requires detail::HasRest<D> {
            return policy->order(epoch, taken);
        }
        [[nodiscard]] at::Tensor rows_at(const data::EpochRequest& epoch, std::int64_t begin,
                                         std::int64_t end) const requires detail::HasRowsAt<D> {
            return policy->rows_at(epoch, begin, end);
        }
        [[nodiscard]] std::int64_t ranks_sharing(int size) const {
            return policy->ranks_sharing(size);
        }
    };

    struct SharedInLanes : Shared {
        std::int64_t lanes = 1;
    };

    /// Shuffled and not, over rows by index and, if the policy has lanes, over blocks.
    template <class Use>
    void for_each_loops(const Use& use) const {
        for (const bool shuffle : {true, false}) {
            DOCTEST_CAPTURE(shuffle);
            data::BatchOptions options{.size = 4, .shuffle = shuffle, .seed = 5};
            use(loops_over<Shared>(numbers(103), options, Shared{policy_}));
            if constexpr (detail::HasLanes<D>) {
                const std::int64_t lanes = policy_->lanes;
                options.memory_bytes = 2 * lanes * number_bytes * 2; // windows of two rows
                use(loops_over<SharedInLanes>(numbers_in_blocks({40, 0, 3, 59, 1}), options,
                                              SharedInLanes{{policy_}, lanes}));
            }
        }
    }

    template <class Use>
    static void for_each_request(const Use& use) {
        for (const std::int64_t rows : {1, 7, 103}) {
            for (const int size : {1, 2, 3, 5}) {
                for (int variant = 0; variant < 8 * size; ++variant) {
                    const data::EpochRequest epoch{.rows = rows,
                                                   .rank = variant / 8,
                                                   .size = size,
                                                   .epoch = variant % 2,
                                                   .shuffle = variant / 2 % 2 == 1,
                                                   .seed = 5,
                                                   .drop_last = variant / 4 % 2 == 1};
                    DOCTEST_CAPTURE(rows);
                    DOCTEST_CAPTURE(epoch.rank);
                    DOCTEST_CAPTURE(epoch.size);
                    DOCTEST_CAPTURE(epoch.drop_last);
                    use(epoch);
                }
            }
        }
    }

    static void check_rows(const at::Tensor& rows, std::int64_t of) {
        DOCTEST_REQUIRE((rows.scalar_type() == at::kLong));
        DOCTEST_REQUIRE(rows.dim() == 1);
        DOCTEST_REQUIRE((rows.numel() == 0 || (rows.min().item<std::int64_t>() >= 0 &&
                                               rows.max().item<std::int64_t>() < of)));
    }

    /// For policies where every rank reads everything.
    template <class LoopStack>
    static void resume_each_on_its_own(const LoopStack& loops) {
        data::Position undisturbed;
        const Rows whole = take(undisturbed, 1, to_the_end, loops, column_x);
        for (const int saved_on : {1, 2, 5}) {
            for (const int resumed_on : {1, 3, 4}) {
                data::Position position;
                auto taken = take_apart(position, saved_on, 2, loops, column_x).back();
                const auto rest = take_apart(position, resumed_on, to_the_end, loops, column_x);
                taken.insert(taken.end(), rest.back().begin(), rest.back().end());
                Rows rows;
                for (const Rows& batch : taken) {
                    rows.insert(rows.end(), batch.begin(), batch.end());
                }
                DOCTEST_REQUIRE(counts_of(rows, 103) == counts_of(whole, 103));
            }
        }
    }

    std::shared_ptr<const D> policy_;
};

} // namespace rtrain::testing

/// RTRAIN_TEST_DATA_POLICY(name, expression);
/// `expression` constructs a policy.
#define RTRAIN_TEST_DATA_POLICY(NAME, ...)                                                         \
    RTRAIN_TESTING_DATA_POLICY(NAME, gives_rows_of_the_data_set, __VA_ARGS__)                      \
    RTRAIN_TESTING_DATA_POLICY(NAME, depends_on_the_request_alone, __VA_ARGS__)                    \
    RTRAIN_TESTING_DATA_POLICY(NAME, gives_all_ranks_equally_many, __VA_ARGS__)                    \
    RTRAIN_TESTING_DATA_POLICY(NAME, is_shared_by_as_many_ranks_as_it_says, __VA_ARGS__)           \
    RTRAIN_TESTING_DATA_POLICY(NAME, divides_one_order, __VA_ARGS__)                               \
    RTRAIN_TESTING_DATA_POLICY(NAME, goes_on_where_a_run_was_stopped, __VA_ARGS__)                 \
    RTRAIN_TESTING_DATA_POLICY(NAME, goes_on_on_another_number_of_ranks, __VA_ARGS__)              \
    static_assert(true)
/// One test case of RTRAIN_TEST_DATA_POLICY.
#define RTRAIN_TESTING_DATA_POLICY(NAME, HOLDS, ...)                                               \
    RTRAIN_TESTING_CASE("DataPolicy", NAME, DataPolicySuite, HOLDS, __VA_ARGS__)
