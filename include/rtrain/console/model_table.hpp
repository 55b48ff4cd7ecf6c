// SPDX-License-Identifier: Apache-2.0
/// @file
/// A table of a model's parts. Cost tier 0: std only.
#pragma once

#include <rtrain/console/numbers.hpp>
#include <rtrain/console/table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rtrain::console {

/// A module of a model. Numbers include its submodules, and count shared parameters once.
struct ModelPart {
    std::string name{};
    std::string type{};
    int depth = 0;               ///< 0: the model
    std::int64_t parameters = 0; ///< elements
    std::int64_t trainable = 0;  ///< elements that get gradients
    std::int64_t bytes = 0;      ///< of parameters and buffers
};

/// The model, which is first in `parts`, is the last row. Parts deeper than `depth` are not shown,
/// and of very many only the first.
[[nodiscard]] inline std::string model_table(const std::vector<ModelPart>& parts, int depth,
                                             int columns) {
    constexpr std::size_t most_rows = 100;
    Table table({{.title = "part"},
                 {.title = "type", .leaves = 2},
                 {.title = "parameters", .is_number = true},
                 {.title = "trainable", .is_number = true, .leaves = 1},
                 {.title = "bytes", .is_number = true, .leaves = 3}});
    const auto add = [&](const ModelPart& part, const std::string& name) {
        table.add({name, part.type, grouped(part.parameters), grouped(part.trainable),
                   scaled(static_cast<double>(part.bytes), "B")});
    };
    std::size_t rows = 0;
    for (const ModelPart& part : parts) {
        if (part.depth > 0 && part.depth <= depth && ++rows <= most_rows) {
            const auto indent = static_cast<std::size_t>(2 * (part.depth - 1));
            add(part, std::string(indent, ' ') + part.name);
        }
    }
    if (rows > most_rows) {
        table.add({std::to_string(rows - most_rows) + " more", "", "", "", ""});
    }
    if (!parts.empty()) {
        add(parts.front(), "all");
    }
    return table.text(columns);
}

} // namespace rtrain::console
