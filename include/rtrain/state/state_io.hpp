// SPDX-License-Identifier: Apache-2.0
/// @file
/// StateWriter and StateReader: an object saves itself to a snapshot and loads itself from it.
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

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/layout/pieces.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/state/parameter_names.hpp>

#include <ATen/core/Tensor.h>

#include <boost/json/value.hpp>
#include <boost/system/system_error.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

/// The comparison by which ranks verify that a StateWriter saves the same on all of them.
enum class Comparison : unsigned char {
    whole,  ///< by all elements
    sample, ///< by some elements of a large tensor
    none    ///< ranks may differ, or it is checked elsewhere
};

/// Calls `load()`. Throws CheckpointError [RT-K3] if JSON has a different type than it reads.
template <class Load>
void load_fitting(const std::string& name, const Load& load) {
    const auto misfit = [&](const std::exception& error) {
        return CheckpointError(
            "RT-K3", concat("\"", name, "\" in the checkpoint does not fit: ", error.what()));
    };
    try {
        load();
    } catch (const boost::system::system_error& error) {
        throw misfit(error);
    } catch (const std::logic_error& error) { // from other versions of Boost
        throw misfit(error);
    }
}

} // namespace detail

/// Writes the parts of one named object; names are relative to it.
class StateWriter {
public:
    /// `names`: of parameters, for optimizers; null: unknown.
    StateWriter(checkpoint::Snapshot& snapshot, std::string name,
                const checkpoint::ParameterNames* names = nullptr)
        : snapshot_(snapshot), prefix_(std::move(name) + "/"), names_(names) {}

    /// Saves a defined tensor that has the same bits on all ranks; it is written before the object
    /// changes again. With checkpoint::Sharded each rank writes a share of it. The report throws
    /// CheckpointError [RT-K29] if the tensor differs between ranks.
    void tensor(const std::string& name, at::Tensor tensor) {
        if (is_own_of_ranks(tensor)) {
            snapshot_.of_rank_0.insert(prefix_ + name);
        } else {
            compare(name);
        }
        snapshot_.tensors[prefix_ + name] = std::move(tensor);
    }
    /// Saves a tensor that may differ between ranks: rank 0's is saved.
    void tensor_of_rank_0(const std::string& name, at::Tensor tensor) {
        snapshot_.tensors[prefix_ + name] = std::move(tensor);
        snapshot_.of_rank_0.insert(prefix_ + name);
    }
    /// Saves what `save` writes on each rank, which may differ; StateReader::per_rank() loads it on
    /// the same rank.
    void per_rank(const std::function<void(StateWriter&)>& save) {
        const std::string rank = std::to_string(snapshot_.rank);
        checkpoint::Snapshot mine;
        StateWriter own(mine, prefix_ + "tensors/" + rank, names_);
        save(own);
        if (!mine.pieces.empty()) {
            throw CheckpointError("RT-K11",
                                  detail::concat("\"", mine.pieces.begin()->first,
                                                 "\" is spread over ranks, and cannot be saved "
                                                 "per rank; use State::add()"));
        }
        mine.tensors[prefix_ + "values/" + rank] = detail::to_bytes(json::serialize(mine.values));
        for (auto& [name, tensor] : mine.tensors) {
            if (snapshot_.ranks == 1) {
                snapshot_.tensors[name] = tensor;
            } else if (tensor.defined() && tensor.layout() == at::kStrided) {
                snapshot_.pieces[name] = {
                    tensor.sizes().vec(), {{0, tensor.detach().reshape({-1})}}, tensor.dim() > 0};
            } else { // its rank reports the error when it is written
                snapshot_.pieces[name] = {{}, {{0, tensor}}, false};
            }
        }
    }
    /// Saves rows begin, begin + 1, ... of a tensor of shape (total, ...) that is spread over the
    /// ranks; each rank passes its own. Throws CheckpointError [RT-K11] if the rows do not fit.
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
    /// spread over the ranks; each rank passes its own in one dimension, possibly none. Throws
    /// CheckpointError [RT-K11] if they do not fit.
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
    /// Saves bytes (at::kByte, 1-D) that differ between ranks; all ranks save them under the same
    /// names.
    void bytes_of_rank(const std::string& name, const at::Tensor& bytes) {
        snapshot_.of_rank[prefix_ + name] = bytes;
        snapshot_.tensors[prefix_ + name + "/0"] = bytes;
    }
    /// Saves a number, string, or any JSON; must be the same on all ranks, as for tensor().
    void value(const std::string& name, boost::json::value value) {
        compare(name);
        snapshot_.values[prefix_ + name] = std::move(value);
    }
    /// Marks the tensor saved as `name`: only code that waits for copies in flight writes it
    /// (process/late_copy.hpp).
    void late(const std::string& name) { snapshot_.late.insert(prefix_ + name); }
    /// True if that holds for a parameter, and for the state that prepared optimizers keep for it.
    [[nodiscard]] bool is_stepped(const at::Tensor& parameter) const {
        return snapshot_.stepped.contains(parameter.unsafeGetTensorImpl());
    }
    /// True if a parameter or buffer may differ between ranks: a prepared model ignores it.
    [[nodiscard]] bool is_own_of_ranks(const at::Tensor& tensor) const {
        return snapshot_.own_of_ranks.contains(tensor.unsafeGetTensorImpl());
    }
    /// True if ranks compare a parameter anyway, because a prepared model has it.
    [[nodiscard]] bool is_prepared(const at::Tensor& parameter) const {
        return snapshot_.prepared.contains(parameter.unsafeGetTensorImpl());
    }
    /// Returns a writer for a part of this object.
    [[nodiscard]] StateWriter part(const std::string& name) const {
        StateWriter writer = *this;
        writer.prefix_ += name + "/";
        return writer;
    }
    /// Returns this writer with a different comparison of its parts between ranks.
    [[nodiscard]] StateWriter compared(detail::Comparison comparison) const {
        StateWriter writer = *this;
        writer.comparison_ = comparison;
        return writer;
    }
    /// Names of parameters; null if unknown.
    [[nodiscard]] const checkpoint::ParameterNames* names() const noexcept { return names_; }

private:
    void compare(const std::string& name) {
        if (snapshot_.ranks > 1 && comparison_ != detail::Comparison::none) {
            snapshot_.alike.emplace_back(prefix_ + name, comparison_ == detail::Comparison::sample);
        }
    }

    checkpoint::Snapshot& snapshot_;
    std::string prefix_;
    const checkpoint::ParameterNames* names_;
    detail::Comparison comparison_ = detail::Comparison::whole;
};

/// Reads what a StateWriter of the same name wrote. Throws CheckpointError [RT-K3] for an entry
/// that is not in the checkpoint.
class StateReader {
public:
    /// `names`: see StateWriter.
    StateReader(const checkpoint::Snapshot& snapshot, std::string name,
                const checkpoint::ParameterNames* names = nullptr)
        : snapshot_(snapshot), prefix_(std::move(name) + "/"), names_(names) {}

    /// Returns a tensor that maps the checkpoint's file; clone it to keep it.
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
    /// Returns a copy of rows begin to end - 1 of a tensor, regardless of how many ranks saved it.
    [[nodiscard]] at::Tensor rows(const std::string& name, std::int64_t begin,
                                  std::int64_t end) const {
        const auto pieces = snapshot_.pieces.find(prefix_ + name);
        return pieces == snapshot_.pieces.end()
                   ? tensor(name).slice(0, begin, end).clone()
                   : checkpoint::assemble_rows(pieces->second, begin, end);
    }
    /// Returns a copy of elements begin to end - 1 of a tensor, in row-major order and one
    /// dimension, regardless of how many ranks saved it. Throws CheckpointError [RT-K3] unless the
    /// tensor has shape `shape`.
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
    /// Returns what bytes_of_rank() saved on the ranks that this one continues: the same rank, or
    /// with a different number of ranks, none or several. No byte is returned on two ranks.
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
    /// Calls `load` with what StateWriter::per_rank() saved on this rank. A rank that did not exist
    /// then keeps its values, with a warning. From a checkpoint without per_rank(), all ranks load
    /// the same.
    void per_rank(const std::function<void(const StateReader&)>& load) const {
        const auto values = [](int rank) { return "values/" + std::to_string(rank); };
        if (!has_tensor(values(0))) {
            load(*this);
            return;
        }
        if (snapshot_.rank == 0 && has_tensor(values(snapshot_.ranks))) {
            console::warn("\"%s\" was saved on more than %d ranks; the values of the others are "
                          "dropped",
                          prefix_.c_str(), snapshot_.ranks);
        }
        if (!has_tensor(values(snapshot_.rank))) {
            console::warn("\"%s\" was saved on %d ranks or fewer, so rank %d keeps its own values",
                          prefix_.c_str(), snapshot_.rank, snapshot_.rank);
            return;
        }
        const std::string own = "tensors/" + std::to_string(snapshot_.rank);
        const std::string prefix = prefix_ + own + '/';
        checkpoint::Snapshot mine;
        mine.same_run = snapshot_.same_run;
        mine.values =
            json::parse(detail::to_string(tensor(values(snapshot_.rank)).contiguous())).as_object();
        const auto copy = [&](const auto& from, auto& to) {
            for (auto next = from.lower_bound(prefix);
                 next != from.end() && next->first.starts_with(prefix); ++next) {
                to.insert(*next);
            }
        };
        copy(snapshot_.tensors, mine.tensors);
        copy(snapshot_.pieces, mine.pieces);
        load({mine, prefix_ + own, names_});
    }
    /// Returns what StateWriter::value() saved under that name. Throws CheckpointError [RT-K3] if
    /// it is missing.
    [[nodiscard]] const boost::json::value& value(const std::string& name) const {
        const auto* const found = snapshot_.values.if_contains(prefix_ + name);
        if (found == nullptr) {
            throw missing("value", name);
        }
        return *found;
    }
    /// True if the checkpoint has this tensor.
    [[nodiscard]] bool has_tensor(const std::string& name) const {
        return snapshot_.tensors.contains(prefix_ + name) ||
               snapshot_.pieces.contains(prefix_ + name);
    }
    /// True if the checkpoint has this value.
    [[nodiscard]] bool has_value(const std::string& name) const {
        return snapshot_.values.contains(prefix_ + name);
    }
    /// Returns a reader of what StateWriter::part() saved under that name.
    [[nodiscard]] StateReader part(const std::string& name) const {
        return {snapshot_, prefix_ + name, names_};
    }
    /// Names of parameters; null if unknown.
    [[nodiscard]] const checkpoint::ParameterNames* names() const noexcept { return names_; }
    /// "model/": the prefix of the names of this object's parts.
    [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
    /// The whole snapshot that is read.
    [[nodiscard]] const checkpoint::Snapshot& snapshot() const noexcept { return snapshot_; }

private:
    [[nodiscard]] CheckpointError missing(const char* kind, const std::string& name) const {
        return CheckpointError(
            "RT-K3", detail::concat("the checkpoint holds no ", kind, " \"", prefix_, name,
                                    "\"; the checkpoint was made from a different state"));
    }
    const checkpoint::Snapshot& snapshot_;
    std::string prefix_;
    const checkpoint::ParameterNames* names_;
};

} // namespace rtrain
