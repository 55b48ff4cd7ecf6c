// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an object is given to put itself into a snapshot and to take itself out again.
///
/// @code
/// struct RunningMean {
///     double sum = 0;
///     at::Tensor counts;
///     void save(rtrain::StateWriter& out) const {
///         out.value("sum", sum);
///         out.tensor("counts", counts);
///     }
///     void load(const rtrain::StateReader& in) {
///         sum = in.value("sum").to_number<double>();
///         counts = in.tensor("counts").clone();
///     }
/// };
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/pieces.hpp>
#include <rtrain/checkpoint/snapshot.hpp>

#include <ATen/core/Tensor.h>

#include <boost/json/value.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

/// Writes the parts of one named object; names are relative to it.
class StateWriter {
public:
    StateWriter(checkpoint::Snapshot& snapshot, std::string name)
        : snapshot_(snapshot), prefix_(std::move(name) + "/") {}

    /// Saves a defined tensor that has the same bits on all ranks; it is written before the object
    /// changes again. With checkpoint::Sharded each rank writes a share of it.
    void tensor(const std::string& name, at::Tensor tensor) {
        if (is_own_of_ranks(tensor)) {
            snapshot_.of_rank_0.insert(prefix_ + name);
        }
        snapshot_.tensors[prefix_ + name] = std::move(tensor);
    }
    /// The same for a tensor of which ranks may have other values: rank 0's are saved.
    void tensor_of_rank_0(const std::string& name, at::Tensor tensor) {
        this->tensor(name, std::move(tensor));
        snapshot_.of_rank_0.insert(prefix_ + name);
    }
    /// Saves rows begin, begin + 1, ... of a tensor of shape (total, ...) that is spread over the
    /// ranks; each rank gives its own. Needs checkpoint::Sharded. Throws CheckpointError [RT-K11]
    /// when the rows do not fit.
    void rows(const std::string& name, const at::Tensor& rows, std::int64_t begin,
              std::int64_t total) {
        if (rows.dim() == 0 || begin < 0 || begin + rows.size(0) > total) {
            throw CheckpointError(
                "RT-K11", detail::concat("\"", prefix_, name, "\": rows of shape ", rows.sizes(),
                                         " do not fit at row ", begin, " of ", total));
        }
        auto shape = rows.sizes().vec();
        shape[0] = 1;
        const std::int64_t of_row = checkpoint::element_count(shape);
        shape[0] = total;
        snapshot_.pieces[prefix_ + name] = {shape, {{begin * of_row, rows}}, true};
    }
    /// Saves the elements begin, begin + 1, ... of a tensor of `shape`, in row-major order, that is
    /// spread over the ranks; each rank gives its own in one dimension, maybe none. Needs
    /// checkpoint::Sharded. Throws CheckpointError [RT-K11] when they do not fit.
    void elements(const std::string& name, const std::vector<std::int64_t>& shape,
                  std::int64_t begin, const at::Tensor& flat) {
        const std::int64_t total = checkpoint::element_count(shape);
        if (flat.dim() != 1 || begin < 0 || begin + flat.numel() > total) {
            throw CheckpointError("RT-K11",
                                  detail::concat("\"", prefix_, name, "\": elements of shape ",
                                                 flat.sizes(), " do not fit at element ", begin,
                                                 " of ", total));
        }
        if (total == 0) {
            tensor(name, flat.view(shape));
            return;
        }
        checkpoint::Pieces whole{shape, {}, true};
        if (flat.numel() > 0) {
            whole.pieces.push_back({begin, flat});
        }
        snapshot_.pieces[prefix_ + name] = std::move(whole);
    }
    /// Saves bytes (at::kByte, of one dimension) of which each rank has others; all ranks save them
    /// under the same names.
    void bytes_of_rank(const std::string& name, const at::Tensor& bytes) {
        snapshot_.of_rank[prefix_ + name] = bytes;
        tensor(name + "/0", bytes);
    }
    /// Saves a number, string, or any JSON.
    void value(const std::string& name, boost::json::value value) {
        snapshot_.values[prefix_ + name] = std::move(value);
    }
    /// The tensor saved as `name` is only written by those who wait for copies under way
    /// (process/late_copy.hpp).
    void late(const std::string& name) { snapshot_.late.insert(prefix_ + name); }
    /// Whether that is true of a parameter, and of what prepared optimizers keep for it.
    [[nodiscard]] bool is_stepped(const at::Tensor& parameter) const {
        return snapshot_.stepped.contains(parameter.unsafeGetTensorImpl());
    }
    /// Whether ranks have other values of a parameter or buffer: a prepared model ignores it.
    [[nodiscard]] bool is_own_of_ranks(const at::Tensor& tensor) const {
        return snapshot_.own_of_ranks.contains(tensor.unsafeGetTensorImpl());
    }
    /// A writer for a part of this object.
    [[nodiscard]] StateWriter part(const std::string& name) const {
        return {snapshot_, prefix_ + name};
    }

private:
    checkpoint::Snapshot& snapshot_;
    std::string prefix_;
};

/// Reads what a StateWriter of the same name wrote. Throws CheckpointError [RT-K3] for what is not
/// in the checkpoint.
class StateReader {
public:
    StateReader(const checkpoint::Snapshot& snapshot, std::string name)
        : snapshot_(snapshot), prefix_(std::move(name) + "/") {}

    /// The tensor; it maps the checkpoint's file, so clone what is to be kept.
    [[nodiscard]] at::Tensor tensor(const std::string& name) const {
        if (const auto found = snapshot_.tensors.find(prefix_ + name);
            found != snapshot_.tensors.end()) {
            return found->second;
        }
        const auto pieces = snapshot_.pieces.find(prefix_ + name);
        if (pieces == snapshot_.pieces.end()) {
            throw missing("tensor", name);
        }
        return checkpoint::assemble(pieces->second);
    }
    /// Rows begin to end - 1 of a tensor, however many ranks saved it; a copy.
    [[nodiscard]] at::Tensor rows(const std::string& name, std::int64_t begin,
                                  std::int64_t end) const {
        const auto pieces = snapshot_.pieces.find(prefix_ + name);
        return pieces == snapshot_.pieces.end()
                   ? tensor(name).slice(0, begin, end).clone()
                   : checkpoint::assemble_rows(pieces->second, begin, end);
    }
    /// Elements begin to end - 1 of a tensor, in row-major order and one dimension, however many
    /// ranks saved it; a copy. Throws CheckpointError [RT-K3] unless the tensor is of `shape`.
    [[nodiscard]] at::Tensor elements(const std::string& name,
                                      const std::vector<std::int64_t>& shape, std::int64_t begin,
                                      std::int64_t end) const {
        const auto pieces = snapshot_.pieces.find(prefix_ + name);
        const bool whole = pieces == snapshot_.pieces.end();
        const at::Tensor saved = whole ? tensor(name) : at::Tensor();
        if (whole ? saved.sizes() != at::IntArrayRef(shape) : pieces->second.shape != shape) {
            throw CheckpointError(
                "RT-K3",
                detail::concat("\"", prefix_, name, "\" is ",
                               whole ? saved.sizes() : at::IntArrayRef(pieces->second.shape),
                               " in the checkpoint, but ", at::IntArrayRef(shape),
                               " in the program"));
        }
        return whole ? saved.reshape({-1}).slice(0, begin, end).clone()
                     : checkpoint::assemble_elements(pieces->second, begin, end);
    }
    /// What bytes_of_rank() saved on the ranks that this one goes on for: the same rank, or with
    /// another number of ranks, none or several. No byte is given to two ranks.
    [[nodiscard]] std::vector<at::Tensor> bytes_of_rank(const std::string& name) const {
        std::vector<at::Tensor> mine;
        for (int rank = 0; rank == 0 || has_tensor(name + '/' + std::to_string(rank)); ++rank) {
            const at::Tensor bytes = tensor(name + '/' + std::to_string(rank));
            if (rank % snapshot_.ranks == snapshot_.rank) {
                mine.push_back(bytes);
            }
        }
        return mine;
    }
    /// What StateWriter::value() has saved under that name. Throws CheckpointError [RT-K3] when it
    /// is not there.
    [[nodiscard]] const boost::json::value& value(const std::string& name) const {
        const auto* const found = snapshot_.values.if_contains(prefix_ + name);
        if (found == nullptr) {
            throw missing("value", name);
        }
        return *found;
    }
    /// Whether there is such a tensor.
    [[nodiscard]] bool has_tensor(const std::string& name) const {
        return snapshot_.tensors.contains(prefix_ + name) ||
               snapshot_.pieces.contains(prefix_ + name);
    }
    /// Whether there is such a value.
    [[nodiscard]] bool has_value(const std::string& name) const {
        return snapshot_.values.contains(prefix_ + name);
    }
    /// What StateWriter::part() has saved under that name.
    [[nodiscard]] StateReader part(const std::string& name) const {
        return {snapshot_, prefix_ + name};
    }
    /// "model/": what the names of this object's parts begin with.
    [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
    /// The whole of what was read.
    [[nodiscard]] const checkpoint::Snapshot& snapshot() const noexcept { return snapshot_; }

private:
    [[nodiscard]] CheckpointError missing(const char* kind, const std::string& name) const {
        return CheckpointError("RT-K3",
                               detail::concat("the checkpoint holds no ", kind, " \"", prefix_,
                                              name, "\"; it was made from another state"));
    }
    const checkpoint::Snapshot& snapshot_;
    std::string prefix_;
};

} // namespace rtrain
