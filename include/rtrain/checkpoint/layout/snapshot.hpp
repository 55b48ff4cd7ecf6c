// SPDX-License-Identifier: Apache-2.0
/// @file
/// A state at one moment: tensors by name, and everything else as JSON. Checkpoint policies write
/// and read it.
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

/// A tensor stored in several places.
struct Pieces {
    struct Piece {
        std::int64_t begin = 0; ///< index of its first element in the whole, in row-major order
        at::Tensor elements;
    };
    std::vector<std::int64_t> shape; ///< of the whole
    std::vector<Piece> pieces;
    /// True for a tensor saved by rows, which no rank holds as a whole. False for a tensor of all
    /// ranks, cut so that each writes a part.
    bool rows = false;
};

/// Parameters, by name, whose checksums ranks compare while training continues.
using Compared = std::vector<std::pair<std::string, at::Tensor>>;

/// Tensors may belong to the live model, so a policy that returns before they are written copies
/// them first. Each name is in one of the three maps.
struct Snapshot {
    std::map<std::string, at::Tensor> tensors;
    std::map<std::string, Pieces> pieces;
    boost::json::object values;
    /// Per-rank tensors of this rank, without the "/<rank>" at the end of their names. Those of
    /// other ranks are added before anything is written.
    std::map<std::string, at::Tensor> of_rank;
    /// Names in `tensors` that may differ between ranks, such as the running means of batch norm:
    /// rank 0's are saved.
    std::set<std::string> of_rank_0;
    /// While it is taken: tensors of the program that may differ between ranks, such as parameters
    /// that a prepared model ignores.
    std::set<const void*> own_of_ranks;
    /// While it is taken: tensors of the program that are parameters, or represent them in an
    /// optimizer, and are only written by code that waits for copies in flight: prepared
    /// optimizers, edit(), loading.
    std::set<const void*> stepped;
    /// Names of tensors and pieces for which the same holds: a copy for the background is made
    /// while training continues.
    std::set<std::string> late;
    /// While it is taken: parameters that ranks compare anyway, those of prepared models.
    std::set<const void*> prepared;
    /// Names of tensors and values that must be the same on all ranks; true: only some elements of
    /// a large tensor are compared.
    std::vector<std::pair<std::string, bool>> alike;
    /// Parameters that are compared with those of the other ranks before the checkpoint is
    /// committed, for policies that write in the background.
    Compared compared;
    int rank = 0; ///< of those that save or load it
    int ranks = 1;
    bool same_run = true; ///< when loaded: by the run that saved it
};

} // namespace rtrain::checkpoint
