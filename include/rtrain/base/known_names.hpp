// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of messages about a name that does not exist: the nearest existing name, and all of them.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::detail {

/// Number of edits between two names.
[[nodiscard]] inline std::size_t edits(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0]++;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t same = diagonal + (a[i] == b[j] ? 0U : 1U);
            diagonal = row[j + 1];
            row[j + 1] = std::min({same, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

/// Returns `did you mean "x"? ` for the known name nearest to `name`; "" if none is near.
[[nodiscard]] inline std::string did_you_mean(std::string_view name,
                                              const std::vector<std::string>& known) {
    std::string_view nearest;
    std::size_t least = std::min(std::max<std::size_t>(2, name.size() / 3) + 1, name.size());
    for (const std::string& other : known) {
        if (const std::size_t distance = edits(name, other); distance < least) {
            least = distance;
            nearest = other;
        }
    }
    return nearest.empty() ? "" : concat("did you mean \"", nearest, "\"? ");
}

/// Returns "a, b, c"; "none" for no names.
[[nodiscard]] inline std::string listed(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) {
        list += (list.empty() ? "" : ", ") + name;
    }
    return list.empty() ? "none" : list;
}

} // namespace rtrain::detail
