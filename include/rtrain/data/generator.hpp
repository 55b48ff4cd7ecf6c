// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows that a function makes as training goes, such as a simulator's.
#pragma once

#include <rtrain/data/dataset.hpp>
#include <rtrain/data/uncounted.hpp>

#include <memory>
#include <utility>

namespace rtrain::data {

/// A data set that `begin` fills: for each lane of an epoch it gives a function, which gives
/// batches of any number of rows until it ends, or for ever. data::Streaming reads it: see
/// docs/data-order.md for lanes, and who takes what. A run that goes on asks for the rows behind
/// the `first_row` that it has taken of a lane; they have to be those that would have followed.
/// `begin` may be called by several threads.
///
/// @code
/// auto games = rtrain::data::from_generator([](const rtrain::data::GeneratorRequest& from) {
///     return [game = Game(hash_of(from.seed, from.epoch, from.lane)), move = from.first_row]()
///     mutable {
///         return std::optional(game.positions(move++)); // a batch of one row
///     };
/// });
/// @endcode
[[nodiscard]] inline Dataset from_generator(GeneratorBegin begin) {
    return Dataset(std::make_shared<UncountedRows>(Uncounted(std::move(begin))));
}

} // namespace rtrain::data
