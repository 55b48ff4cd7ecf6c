// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses the output of mpirun --tag-output: `[1,0]<stdout>:text` of Open MPI 4, and
/// `[prterun-host-1@1,0]<stdout>: text` of Open MPI 5, are `text` of rank 0. MPICH's mpirun gets a
/// pattern that yields the tags of Open MPI 4.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/stdio/end_of_run.hpp>

#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rtrain::launch {

/// The beginning of the lines of a task.
[[nodiscard]] inline std::string named(const std::string& task) {
    return task.empty() ? "" : detail::concat('[', task, "] ");
}

/// A line that a rank has printed.
struct RankLine {
    int rank = 0;
    std::string text; ///< without its end

    /// Removes `end_of_run` from its end; returns whether it was found.
    bool take_end_of_run() {
        const bool ends = text.ends_with(end_of_run);
        text.resize(text.size() - (ends ? end_of_run.size() : 0));
        return ends;
    }

    /// With `begin` and "[rank 0] " in front, except JSON records of rtrain, which contain the
    /// rank.
    [[nodiscard]] std::string readable(const std::string& begin = "") const {
        return console::settings().json && text.starts_with(console::begin_of_record)
                   ? text
                   : detail::concat(begin, "[rank ", rank, "] ", text);
    }
};

/// A tag at the beginning of `text`.
struct RankTag {
    int rank = 0;
    std::size_t length = 0;

    [[nodiscard]] static std::optional<RankTag> at_begin_of(std::string_view text) {
        const auto close = text.find("]<std");
        const auto comma = text.rfind(',', close);
        if (text.empty() || text[0] != '[' || close == std::string_view::npos ||
            comma == std::string_view::npos || comma + 1 == close) {
            return std::nullopt;
        }
        if (text.substr(0, close).find('[', 1) != std::string_view::npos) {
            return std::nullopt; // a rank's own bracket, before a tag
        }
        int rank = 0;
        const auto [end, error] = std::from_chars(&text[comma + 1], &text[close], rank);
        if (error != std::errc{} || end != &text[close] || rank < 0) {
            return std::nullopt;
        }
        for (const std::string_view stream : {"]<stdout>:", "]<stderr>:"}) {
            if (text.substr(close).starts_with(stream)) {
                std::size_t length = close + stream.size();
                if (comma > 2 && text.substr(length).starts_with(' ')) {
                    ++length; // Open MPI 5 separates tag and text
                }
                return RankTag{rank, length};
            }
        }
        return std::nullopt;
    }
};

/// Reassembles the lines of each rank: mpirun forwards long lines in pieces, those of several ranks
/// interleaved, each with a tag.
class RankOutput {
public:
    /// Consumes one line of mpirun's output and returns what it completes; empty if the line is
    /// mpirun's own.
    [[nodiscard]] std::optional<RankLine> complete(std::string_view line) {
        auto tag = RankTag::at_begin_of(line);
        if (!tag) {
            return std::nullopt;
        }
        while (true) {
            line.remove_prefix(tag->length);
            std::string& text = unfinished_[tag->rank];
            auto next = find_tag(line);
            if (!next) {
                text += line;
                return RankLine{tag->rank, std::exchange(text, {})};
            }
            text += line.substr(0, next->first);
            line.remove_prefix(next->first);
            tag = next->second;
        }
    }

    /// The same for the available part of an unfinished line. The rest in `line` starts with a tag
    /// again.
    [[nodiscard]] std::optional<RankLine> complete_part(std::string& line) {
        constexpr std::size_t longest_tag = 256; // its beginning may be at the end
        const std::size_t bracket = line.rfind('[');
        const bool may_be_tag = bracket != std::string::npos && line.size() - bracket < longest_tag;
        const std::size_t end = may_be_tag ? bracket : line.size();
        auto part = complete(std::string_view(line).substr(0, end));
        if (part) {
            line.replace(0, end, detail::concat("[1,", part->rank, "]<stdout>:"));
        }
        return part;
    }

    /// Returns what ranks have printed since their last line end.
    [[nodiscard]] std::vector<RankLine> rest() {
        std::vector<RankLine> lines;
        for (auto& [rank, text] : std::exchange(unfinished_, {})) {
            if (!text.empty()) {
                lines.push_back({rank, text});
            }
        }
        return lines;
    }

private:
    static std::optional<std::pair<std::size_t, RankTag>> find_tag(std::string_view text) {
        for (auto at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1)) {
            if (auto tag = RankTag::at_begin_of(text.substr(at))) {
                return std::pair(at, *tag);
            }
        }
        return std::nullopt;
    }

    std::map<int, std::string> unfinished_; ///< by rank
};

} // namespace rtrain::launch
