// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data policy: determines which rows of a data set a rank reads, and in which order.
///
/// The smallest type that satisfies the concept; every rank reads all rows in order:
/// @code
/// struct Everything {
///     at::Tensor order(const rtrain::data::EpochRequest& epoch) const {
///         return at::arange(epoch.rows, at::kLong);
///     }
///     std::int64_t ranks_sharing(int size) const { return 1; }
/// };
/// @endcode
///
/// A run that was stopped within an epoch resumes at row `samples / ranks_sharing(size)` of
/// `order(epoch)`, which is exact on the same number of ranks. Either of two more members makes it
/// exact on any number:
/// @code
/// // The rest of this rank's rows, after all ranks together have taken `taken` rows.
/// at::Tensor order(const rtrain::data::EpochRequest& epoch, std::int64_t taken) const;
/// // The rows at positions [begin, end) of the order in which all ranks together read the epoch;
/// // rtrain assigns them to ranks. ranks_sharing(size) is 1 or size. No whole order is ever made.
/// at::Tensor rows_at(const rtrain::data::EpochRequest& epoch, std::int64_t begin,
///                    std::int64_t end) const;
/// @endcode
/// A policy with rows_at() and a number of `lanes` reads data sets in blocks in that many lanes, as
/// data::Streaming does. rows_at() is then used for other data sets.
///
/// A policy with a `static constexpr const char* name` is protected against resuming in a different
/// order than its checkpoint (RT-D13). Cost tier 0: std only.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>

namespace at {
class Tensor;
} // namespace at

namespace rtrain {
namespace data {

/// One epoch of one rank's shard.
struct EpochRequest {
    std::int64_t rows = 0;  ///< rows of the whole data set
    int rank = 0;           ///< this rank
    int size = 1;           ///< number of ranks
    std::int64_t epoch = 0; ///< incremented with each pass through the data
    bool shuffle = false;   ///< rows are permuted
    std::uint64_t seed = 0; ///< equal on all ranks
    bool drop_last = false; ///< drop what does not divide evenly between ranks, else repeat rows
    bool each_once = false; ///< repeat no row: ranks may have one row less than others, or none
};

/// The name of an order in a saved position, to be compared with that of the resumed run.
[[nodiscard]] inline std::string order_name(const char* policy, const EpochRequest& epoch) {
    return policy +
           (epoch.shuffle ? ", shuffled with seed " + std::to_string(epoch.seed) : ", in order");
}

} // namespace data

namespace detail {

// decltype alone allows at::Tensor to be incomplete.
template <class D>
concept HasOrder = std::same_as<decltype(std::declval<const D&>().order(
                                    std::declval<const data::EpochRequest&>())),
                                at::Tensor>;
template <class D>
concept HasRanksSharing = requires(const D& policy) {
    { policy.ranks_sharing(2) } -> std::convertible_to<std::int64_t>;
};
template <class D>
concept HasRest = std::same_as<decltype(std::declval<const D&>().order(
                                   std::declval<const data::EpochRequest&>(), std::int64_t{})),
                               at::Tensor>;
template <class D>
concept HasRowsAt =
    std::same_as<decltype(std::declval<const D&>().rows_at(
                     std::declval<const data::EpochRequest&>(), std::int64_t{}, std::int64_t{})),
                 at::Tensor>;
template <class D>
concept HasLanes = HasRowsAt<D> && requires(const D& policy) {
    { policy.lanes } -> std::convertible_to<std::int64_t>;
};
template <class D>
concept HasOrderName = requires {
    { D::name } -> std::convertible_to<std::string>;
};

} // namespace detail

/// A data policy. `order(epoch)` is the rows (int64, one dimension) that a rank reads in an epoch.
/// `ranks_sharing(size)` is the number of ranks that split one pass through the rows (1 if each
/// reads everything); a resumed run computes its position from it.
template <class D>
concept DataPolicy = std::movable<D> && detail::HasOrder<D> && detail::HasRanksSharing<D>;

/// Explains why `D` is not a data policy: one sentence for each unmet requirement.
template <class D>
struct ExplainDataPolicy {
    static_assert(std::movable<D>, "rtrain: DataPolicy not met: the type must be movable [RT-P1]");
    static_assert(detail::HasOrder<D>, "rtrain: DataPolicy not met: missing member "
                                       "`at::Tensor order(const EpochRequest&) const` [RT-P2]");
    static_assert(detail::HasRanksSharing<D>,
                  "rtrain: DataPolicy not met: missing member "
                  "`std::int64_t ranks_sharing(int size) const` [RT-P3]");
};

} // namespace rtrain
