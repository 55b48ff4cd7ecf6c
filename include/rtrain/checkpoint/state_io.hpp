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

#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/error.hpp>

#include <ATen/core/Tensor.h>

#include <boost/json/value.hpp>

#include <string>
#include <utility>

namespace rtrain {

/// Writes the parts of one named object; names are relative to it.
class StateWriter {
public:
    StateWriter(checkpoint::Snapshot& snapshot, std::string name)
        : snapshot_(snapshot), prefix_(std::move(name) + "/") {}

    /// Saves a defined tensor; it is written before the object changes again.
    void tensor(const std::string& name, at::Tensor tensor) {
        snapshot_.tensors[prefix_ + name] = std::move(tensor);
    }
    /// Saves a number, string, or any JSON.
    void value(const std::string& name, boost::json::value value) {
        snapshot_.values[prefix_ + name] = std::move(value);
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
        const auto found = snapshot_.tensors.find(prefix_ + name);
        if (found == snapshot_.tensors.end()) {
            throw missing("tensor", name);
        }
        return found->second;
    }
    [[nodiscard]] const boost::json::value& value(const std::string& name) const {
        const auto* const found = snapshot_.values.if_contains(prefix_ + name);
        if (found == nullptr) {
            throw missing("value", name);
        }
        return *found;
    }
    [[nodiscard]] bool has_tensor(const std::string& name) const {
        return snapshot_.tensors.contains(prefix_ + name);
    }
    [[nodiscard]] bool has_value(const std::string& name) const {
        return snapshot_.values.contains(prefix_ + name);
    }
    [[nodiscard]] StateReader part(const std::string& name) const {
        return {snapshot_, prefix_ + name};
    }
    /// "model/": what the names of this object's parts begin with.
    [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
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
