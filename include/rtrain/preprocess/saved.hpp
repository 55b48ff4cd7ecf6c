// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoint layout of a fitted preprocessor: its column names, and one part per column.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/state/state_io.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <string>

namespace rtrain::detail {

/// Calls `save(part, i)` for each column i, if there is anything to save.
template <class Save>
void save_columns(StateWriter& out, const preprocess::Names& columns, bool is_fitted,
                  const Save& save) {
    boost::json::array names;
    for (const std::string& name : columns) {
        names.emplace_back(name);
    }
    out.value("columns", std::move(names));
    out.value("fitted", is_fitted);
    for (std::size_t i = 0; is_fitted && i < columns.size(); ++i) {
        StateWriter part = out.part(std::to_string(i));
        save(part, i);
    }
}

/// Calls `load(part, i)` for each column; returns false if nothing was saved. Throws
/// CheckpointError [RT-K3] if different columns were saved.
template <class Load>
[[nodiscard]] bool load_columns(const StateReader& in, const preprocess::Names& columns,
                                const Load& load) {
    const boost::json::array* const saved = in.value("columns").if_array();
    bool is_same = saved != nullptr && saved->size() == columns.size();
    for (std::size_t i = 0; is_same && i < columns.size(); ++i) {
        const auto* const name = (*saved)[i].if_string();
        is_same = name != nullptr && std::string_view(*name) == columns[i];
    }
    if (!is_same) {
        throw CheckpointError(
            "RT-K3", concat("the preprocessor \"", in.prefix(),
                            "\" was saved with different columns; give it the same columns, "
                            "in the same order"));
    }
    const bool is_fitted = in.value("fitted").as_bool();
    for (std::size_t i = 0; is_fitted && i < columns.size(); ++i) {
        load(in.part(std::to_string(i)), i);
    }
    return is_fitted;
}

} // namespace rtrain::detail
