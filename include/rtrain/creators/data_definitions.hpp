// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door data.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/creators/data.hpp>
#include <rtrain/format/safetensors.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::detail {

RTRAIN_DOOR std::pair<at::Tensor, at::Tensor> pair_of(const data::Batch& batch,
                                                      const CreatorSettings& settings) {
    if (!settings.input_column.empty() && !settings.target_column.empty()) {
        return {batch[settings.input_column], batch[settings.target_column]};
    }
    constexpr std::array<std::string_view, 4> targets{"target", "label", "labels", "y"};
    const auto& columns = batch.columns();
    const auto is_target = [&](const auto& column) {
        return std::ranges::find(targets, column.first) != targets.end();
    };
    if (columns.size() != 2 || is_target(columns[0]) == is_target(columns[1])) {
        std::string names;
        for (const auto& [name, column] : columns) {
            names += concat(names.empty() ? "" : ", ", '"', name, '"');
        }
        throw ConfigError("RT-F36",
                          concat("which column is the target is not clear: the data have ",
                                 names.empty() ? "none" : names,
                                 "; set input_column and target_column"));
    }
    const std::size_t target = is_target(columns[0]) ? 0 : 1;
    return {columns[1 - target].second, columns[target].second};
}

RTRAIN_DOOR PairLoop loop_over(const data::Shard& shard, const data::BatchOptions& options,
                               const CreatorSettings& settings) {
    auto batches = std::make_shared<data::Batches>(shard.batches(options));
    return [batches, &settings](const UsePair& use) {
        for (auto& batch : *batches) {
            const auto [input, target] = pair_of(batch, settings);
            if (!use(input, target)) {
                break;
            }
        }
    };
}

RTRAIN_DOOR void write_rows(const data::Dataset& rows, const std::filesystem::path& file) {
    const data::Batch all = rows.rows(at::arange(rows.size()));
    checkpoint::safetensors::Tensors tensors;
    for (const auto& [name, column] : all.columns()) {
        tensors[name] = column;
    }
    if (!all.ragged_columns().empty() || !all.masks().empty()) {
        throw ConfigError("RT-F36", "set_data() takes data sets whose columns are tensors, without "
                                    "missing values and with rows of equal length");
    }
    const std::filesystem::path next = file.string() + ".new";
    checkpoint::safetensors::write(next, tensors);
    storage::rename_durably(next, file);
}

RTRAIN_DOOR data::Dataset read_rows(const std::filesystem::path& file) {
    data::Batch::Columns columns;
    for (auto& [name, tensor] : checkpoint::safetensors::read(file)) {
        columns.emplace_back(name, tensor);
    }
    return data::from_tensors(std::move(columns));
}

} // namespace rtrain::detail
