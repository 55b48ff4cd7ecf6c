// SPDX-License-Identifier: Apache-2.0
/// @file
/// Progress of a run, as a line in tqdm's format:
/// `epoch 3/10:  45%|####4     | 450/1000 [00:12<00:15, 36.2it/s, loss=0.123]`.
#pragma once

#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/console/numbers.hpp>
#include <rtrain/console/text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::console {

struct Progress {
    std::int64_t epoch = 0;  ///< from 1; 0: none
    std::int64_t epochs = 0; ///< 0: unknown
    bool in_steps = false;   ///< both count steps
    std::int64_t done = 0;   ///< batches, or steps
    std::int64_t total = 0;  ///< 0: unknown
    double elapsed_s = 0;
    double rate = 0;       ///< per second; 0: unknown
    std::string metrics{}; ///< "loss=0.123, accuracy=0.98"

    bool operator==(const Progress&) const = default;
};

/// Drawing settings of a terminal.
struct Style {
    int columns = 80;
    bool utf8 = false;  ///< else ASCII
    bool color = false; ///< with SGR sequences
};

namespace internal {

[[nodiscard]] inline std::string head_of(const Progress& now) {
    std::string text;
    if (now.epoch > 0) {
        text = (now.in_steps ? "step " : "epoch ") + std::to_string(now.epoch);
        text += now.epochs > 0 ? "/" + std::to_string(now.epochs) + ": " : ": ";
    }
    if (now.total > 0) {
        const auto percent = static_cast<int>(
            std::clamp(static_cast<double>(now.done) / static_cast<double>(now.total), 0.0, 1.0) *
            100);
        std::string number = std::to_string(percent);
        text += std::string(3 - number.size(), ' ') + number + '%';
    }
    return text;
}

[[nodiscard]] inline std::string count_of(const Progress& now) {
    return std::to_string(now.done) + (now.total > 0 ? "/" + std::to_string(now.total) : "it");
}

[[nodiscard]] inline std::string times_of(const Progress& now) {
    std::string text = duration(now.elapsed_s);
    if (now.total > 0) {
        const auto left = static_cast<double>(std::max<std::int64_t>(now.total - now.done, 0));
        text += "<" + (now.rate > 0 ? duration(left / now.rate) : "?");
    }
    return text;
}

[[nodiscard]] inline std::string rate_of(const Progress& now) {
    if (now.rate <= 0) {
        return "?it/s";
    }
    return now.rate >= 1 ? rtrain::detail::print("%.1fit/s", now.rate)
                         : rtrain::detail::print("%.1fs/it", 1 / now.rate);
}

/// The texts that may follow the bar, longest first.
[[nodiscard]] inline std::vector<std::string> tails_of(const Progress& now) {
    const std::string times = "[" + times_of(now);
    const std::string counted = count_of(now) + " " + times + ", " + rate_of(now);
    std::vector<std::string> tails;
    for (std::string metrics = printable(now.metrics); !metrics.empty();) {
        tails.push_back(counted + ", " + metrics + "]");
        const std::size_t last = metrics.rfind(", ");
        metrics.resize(last == std::string::npos ? 0 : last);
    }
    tails.push_back(counted + "]");
    tails.push_back(count_of(now) + " " + times + "]");
    tails.push_back(now.total > 0 ? times + "]" : count_of(now));
    return tails;
}

/// A bar of `cells` columns, filled to the eighth (UTF-8) or tenth (ASCII) of a column.
[[nodiscard]] inline std::string cells_of(const Progress& now, int cells, const Style& style) {
    constexpr std::array<std::string_view, 9> blocks{
        " ", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589", "\u2588"};
    constexpr std::array<std::string_view, 11> digits{" ", "1", "2", "3", "4", "5",
                                                      "6", "7", "8", "9", "#"};
    const int parts =
        style.utf8 ? static_cast<int>(blocks.size()) - 1 : static_cast<int>(digits.size()) - 1;
    const auto glyph = [&](int part) {
        const auto at = static_cast<std::size_t>(part);
        return style.utf8 ? blocks[at] : digits[at];
    };
    const double share =
        std::clamp(static_cast<double>(now.done) / static_cast<double>(now.total), 0.0, 1.0);
    const auto filled = static_cast<int>(share * cells * parts);
    std::string text;
    for (int cell = 0; cell < cells; ++cell) {
        text += glyph(std::clamp(filled - cell * parts, 0, parts));
    }
    if (!style.color) {
        return text;
    }
    constexpr std::string_view green = "\x1b[32m";
    constexpr std::string_view plain = "\x1b[0m";
    return std::string(green) + text + std::string(plain);
}

} // namespace internal

/// A log line: no bar and no length limit.
[[nodiscard]] inline std::string progress_line(const Progress& now) {
    const std::string head = internal::head_of(now);
    const std::string gap = head.empty() || head.ends_with(' ') ? "" : " ";
    return head + gap + internal::tails_of(now).front();
}

/// At most `style.columns - 1` columns, because a full line would move the cursor on some
/// terminals. Metrics are dropped first, from the last on, then the rate, then the count.
[[nodiscard]] inline std::string bar_line(const Progress& now, const Style& style) {
    constexpr int shortest_bar = 6;
    const int columns = std::max(style.columns - 1, 0);
    const std::string head = internal::head_of(now);
    for (const std::string& tail : internal::tails_of(now)) {
        const int rest = columns - columns_of(head) - columns_of(tail);
        if (now.total <= 0 && rest >= 0) {
            return head + tail;
        }
        const int cells = rest - 3; // "|", "| "
        if (now.total > 0 && cells >= shortest_bar) {
            return head + "|" + internal::cells_of(now, cells, style) + "| " + tail;
        }
    }
    return cut(head.empty() ? internal::count_of(now) : head, columns);
}

} // namespace rtrain::console
