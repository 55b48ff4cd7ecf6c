// SPDX-License-Identifier: Apache-2.0
/// @file
/// A state at one moment, taken apart: tensors by name, and everything else as JSON. What a
/// checkpoint policy writes and reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <boost/json/object.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// A tensor that is not in one place.
struct Pieces {
    struct Piece {
        std::int64_t begin = 0; ///< its first element's number in the whole, in row-major order
        at::Tensor elements;
    };
    std::vector<std::int64_t> shape; ///< of the whole
    std::vector<Piece> pieces;
    /// The user's: rank by rank some rows of a tensor that no rank holds as a whole. Else a tensor
    /// of all ranks, cut so that each writes a part.
    bool rows = false;
};

/// Parameters, by name, whose checksums ranks compare while training goes on.
using Compared = std::vector<std::pair<std::string, at::Tensor>>;

/// Tensors may be those of the live model, so a policy that returns before they are written copies
/// them first. One name is in one of the three maps.
struct Snapshot {
    std::map<std::string, at::Tensor> tensors;
    std::map<std::string, Pieces> pieces;
    boost::json::object values;
    /// Those of `tensors` that are this rank's, without the "/<rank>" at their names' end. Other
    /// ranks' are put beside them before anything is written.
    std::map<std::string, at::Tensor> of_rank;
    /// Those of `tensors` that ranks may have other values of, such as the running means of batch
    /// norm: rank 0's are saved.
    std::set<std::string> of_rank_0;
    /// While it is taken: tensors of the program that are each rank's own, such as parameters that
    /// a prepared model ignores.
    std::set<const void*> own_of_ranks;
    /// While it is taken: tensors of the program that are parameters, or stand for such in an
    /// optimizer, and that only those write who wait for copies under way: prepared optimizers,
    /// edit(), loading.
    std::set<const void*> stepped;
    /// Names of tensors and pieces of which the same is true: a copy for the background is made
    /// while training goes on.
    std::set<std::string> late;
    /// While it is taken: parameters that ranks compare anyway, those of prepared models.
    std::set<const void*> prepared;
    /// Names of tensors and values that have to be the same on all ranks; true: of a large tensor
    /// some elements are compared, not all.
    std::vector<std::pair<std::string, bool>> alike;
    /// Parameters that are compared with those of the other ranks before the checkpoint is
    /// committed, for policies that write in the background.
    Compared compared;
    int rank = 0; ///< of those that save or load it
    int ranks = 1;
    bool same_run = true; ///< when loaded: as the one that has saved it
};

} // namespace rtrain::checkpoint
