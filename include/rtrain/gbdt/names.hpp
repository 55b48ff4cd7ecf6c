// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that are the same for all boosting libraries, and their messages. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::gbdt {

/// Throws ConfigError [RT-G1] for a library older than rtrain can use.
inline void require_version(std::string_view library, std::string_view package,
                            std::array<int, 2> found, std::array<int, 2> least) {
    if (found < least) {
        throw ConfigError("RT-G1",
                          detail::concat("this program uses ", library, ' ', found[0], '.',
                                         found[1], ", but rtrain needs ", least[0], '.', least[1],
                                         " or newer; run pip install --upgrade ", package));
    }
}

/// Returns the error for a parameter that the library does not have.
[[nodiscard]] inline ConfigError unknown_parameter(std::string_view library,
                                                   const std::string& name,
                                                   const std::vector<std::string>& known) {
    return {"RT-G6", detail::concat(library, " has no parameter \"", name, "\"; ",
                                    detail::did_you_mean(name, known),
                                    "its documentation lists all parameters")};
}

/// Returns the error for a parameter that rtrain sets.
[[nodiscard]] inline ConfigError reserved_parameter(const std::string& name,
                                                    std::string_view advice) {
    return {"RT-G10", detail::concat("the parameter \"", name, "\" is set by rtrain; ", advice)};
}

/// Throws DataError [RT-G4] for a label that no objective can learn, [RT-G7] for one outside of
/// `classes` classes, unless that is 0.
inline void check_label(double label, std::int64_t row, std::int64_t classes) {
    if (!std::isfinite(label)) {
        throw DataError("RT-G4", detail::concat("the label of row ", row, " is ", label,
                                                "; labels must be finite: remove the row, or "
                                                "fill it with a SimpleImputer"));
    }
    if (classes > 0 &&
        (label < 0 || label >= static_cast<double>(classes) || label != std::floor(label))) {
        throw DataError("RT-G7",
                        detail::concat("the label of row ", row, " is ", label, "; num_class is ",
                                       classes, ", so labels must be whole numbers from 0 to ",
                                       classes - 1));
    }
}

/// Throws DataError [RT-G5] if a table has other features than the one that was trained on.
inline void require_equal_features(const Features& trained, const Features& other,
                                   std::string_view name) {
    if (trained.names == other.names) {
        return;
    }
    const auto missing_in = [](const Features& from, const Features& in) {
        std::vector<std::string> names;
        std::ranges::copy_if(from.names, std::back_inserter(names), [&](const std::string& one) {
            return std::ranges::find(in.names, one) == in.names.end();
        });
        return detail::listed(names);
    };
    throw DataError("RT-G5", detail::concat("the columns of ", name,
                                            " differ from those of the training "
                                            "data; missing: ",
                                            missing_in(trained, other),
                                            "; additional: ", missing_in(other, trained),
                                            "; select the same columns, in the same order"));
}

} // namespace rtrain::gbdt
