// SPDX-License-Identifier: Apache-2.0
/// @file
/// The output of ranks as mpirun --tag-output prints it, made readable: `[1,0]<stdout>:text` of
/// Open MPI 4, `[prterun-host-1@1,0]<stdout>: text` of Open MPI 5, become `[rank 0] text`.
#pragma once

#include <cctype>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain::launch {

/// A tag at the beginning of `text`.
struct RankTag {
    std::string rank;
    std::size_t length = 0;

    [[nodiscard]] static std::optional<RankTag> at_begin_of(std::string_view text) {
        const auto close = text.find("]<std");
        const auto comma = text.rfind(',', close);
        if (text.empty() || text[0] != '[' || close == std::string_view::npos ||
            comma == std::string_view::npos || comma + 1 == close) {
            return std::nullopt;
        }
        const std::string_view rank = text.substr(comma + 1, close - comma - 1);
        for (const char c : rank) {
            if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
                return std::nullopt;
            }
        }
        for (const std::string_view stream : {"]<stdout>:", "]<stderr>:"}) {
            if (text.substr(close).starts_with(stream)) {
                std::size_t length = close + stream.size();
                if (comma > 2 && text.substr(length).starts_with(' ')) {
                    ++length; // Open MPI 5 separates tag and text
                }
                return RankTag{std::string(rank), length};
            }
        }
        return std::nullopt;
    }
};

/// One line of mpirun's output. Empty when it is mpirun's own and no rank's.
[[nodiscard]] inline std::optional<std::string> readable_line(std::string_view line) {
    const auto first = RankTag::at_begin_of(line);
    if (!first) {
        return std::nullopt;
    }
    std::string rank = first->rank;
    std::string text = "[rank " + rank + "] ";
    line.remove_prefix(first->length);
    // A line that a rank printed in pieces is tagged in front of each piece.
    while (!line.empty()) {
        const auto tag = line[0] == '[' ? RankTag::at_begin_of(line) : std::nullopt;
        if (!tag) {
            text += line[0];
            line.remove_prefix(1);
            continue;
        }
        if (tag->rank != rank) {
            rank = tag->rank;
            text += "\n[rank " + rank + "] ";
        }
        line.remove_prefix(tag->length);
    }
    return text;
}

} // namespace rtrain::launch
