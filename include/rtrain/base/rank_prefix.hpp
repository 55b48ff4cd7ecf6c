// SPDX-License-Identifier: Apache-2.0
/// The prefix "rank 1 of 4: " of an error names the rank that hit it. All ranks throw that rank's
/// error, so the text may have the prefix already; it is added only once.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace rtrain::detail {

/// An error, and the rank that hit it.
struct ErrorOfRank {
    int rank = 0;
    std::string_view text; ///< without the prefix
};

/// Splits a text that begins with the prefix of one of `size` ranks; nullopt for other texts.
[[nodiscard]] inline std::optional<ErrorOfRank> error_of_rank(std::string_view text, int size) {
    constexpr std::string_view begin = "rank ";
    if (!text.starts_with(begin)) {
        return std::nullopt;
    }
    ErrorOfRank error;
    const char* const number = text.data() + begin.size();
    const auto [end, failed] = std::from_chars(number, text.data() + text.size(), error.rank);
    if (failed != std::errc{} || error.rank < 0 || error.rank >= size) {
        return std::nullopt;
    }
    error.text = text.substr(static_cast<std::size_t>(end - text.data()));
    const std::string of_all = concat(" of ", size, ": ");
    if (!error.text.starts_with(of_all)) {
        return std::nullopt;
    }
    error.text.remove_prefix(of_all.size());
    return error;
}

/// Returns `text` with the prefix of `rank`, unless it already has a rank's prefix.
[[nodiscard]] inline std::string with_rank(int rank, int size, const std::string& text) {
    return error_of_rank(text, size) ? text : concat("rank ", rank, " of ", size, ": ", text);
}

} // namespace rtrain::detail
