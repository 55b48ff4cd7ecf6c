// SPDX-License-Identifier: Apache-2.0
/// @file
/// Screen: a run's output to one descriptor: permanent lines, and below them, on a terminal, a
/// moving bar. Elsewhere the bar is a line every 10 s.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/console/bar.hpp>
#include <rtrain/console/display.hpp>
#include <rtrain/console/terminal.hpp>
#include <rtrain/console/text.hpp>
#include <rtrain/process/os/owner.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace rtrain::console {

class Screen final : public Display {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds between_bars{100};
    static constexpr std::chrono::seconds between_lines{10};
    /// Bytes that may wait for a reader; further lines are only counted.
    static constexpr std::size_t most_waiting = std::size_t{1} << 20;

    /// The screen on the current standard error.
    [[nodiscard]] static std::shared_ptr<Screen> of_stderr() {
        return std::make_shared<Screen>(STDERR_FILENO, bar_is_up);
    }
    /// The driver's screen.
    [[nodiscard]] static Screen& current() {
        static const std::shared_ptr<Screen> screen = of_stderr();
        return *screen;
    }

    /// `descriptor` and `is_up` outlive this object. `is_up` notifies other writers of the bar.
    Screen(int descriptor, std::atomic<bool>& is_up) : terminal_(descriptor), is_up_(is_up) {}
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;
    ~Screen() override {
        if (owner_.is_this_process()) {
            clear_bar();
        }
    }

    [[nodiscard]] bool is_terminal() const noexcept override { return terminal_.is_terminal(); }
    [[nodiscard]] int columns() const noexcept override { return terminal_.columns(); }

    /// Lines of level info, and JSON records if say() writes those.
    void print(std::string_view lines) override {
        const std::scoped_lock lock(mutex_);
        if (Level::info >= settings().least && waiting_.size() + lines.size() <= most_waiting) {
            waiting_ += above_bar() + (settings().json ? records(lines) : printable_lines(lines));
        } else if (Level::info >= settings().least) {
            lost_lines_ += 1 + std::count(lines.begin(), lines.end(), '\n');
        }
        flush();
        draw_again();
    }

    /// Prints a line unchanged, at any log level.
    void say(std::string_view line) {
        const std::scoped_lock lock(mutex_);
        if (waiting_.size() + line.size() <= most_waiting) {
            waiting_.append(above_bar()).append(line) += '\n';
        } else {
            ++lost_lines_;
        }
        flush();
        draw_again();
    }

    /// Rate-limited.
    void show(const Progress& now) override { show(now, Clock::now()); }
    void show(const Progress& now, Clock::time_point when) {
        const std::scoped_lock lock(mutex_);
        now_ = now;
        const auto pause = is_terminal() ? Clock::duration(between_bars) : between_lines;
        if (shown_ && when - *shown_ < pause) {
            return;
        }
        if (is_terminal()) {
            shown_ = when;
            draw();
        } else if (std::exchange(shown_, when) && Level::info >= settings().least) {
            waiting_ += line_of(Level::info, progress_line(now).c_str()) + '\n';
            flush();
        } // not immediately: short runs need no such line
    }

    /// Calls `write()`, which prints whole lines, to this terminal if it `is_here`; then redraws
    /// the bar below them.
    template <class Write>
    void around(bool is_here, Write&& write) {
        const std::scoped_lock lock(mutex_);
        if (is_here) {
            waiting_ += above_bar();
            flush();
        }
        write();
        if (is_here) {
            draw_again();
        }
    }

    void take_off() override { clear_bar(); }

    bool drain(std::chrono::milliseconds limit) override {
        const auto end = Clock::now() + limit;
        for (;;) {
            {
                const std::scoped_lock lock(mutex_);
                if (flush()) {
                    return true;
                }
            }
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
            if (left.count() <= 0) {
                return false;
            }
            terminal_.wait(static_cast<int>(left.count()));
        }
    }

private:
    /// Sequence that clears the bar's line, if there may be a bar.
    [[nodiscard]] std::string above_bar() const { return is_up_ ? clear : ""; }

    void clear_bar() {
        const std::scoped_lock lock(mutex_);
        waiting_ += above_bar();
        now_.reset();
        shown_.reset();
        is_up_ = false;
        flush();
    }

    [[nodiscard]] static std::string records(std::string_view lines) {
        std::string text;
        while (!lines.empty()) {
            const std::size_t end = std::min(lines.find('\n'), lines.size());
            text += record(settings().rank, Level::info, lines.substr(0, end)) + '\n';
            lines.remove_prefix(std::min(end + 1, lines.size()));
        }
        return text;
    }

    bool flush() {
        waiting_.erase(0, terminal_.write_some(waiting_));
        if (waiting_.empty() && lost_lines_ > 0) {
            const std::string lost = std::to_string(std::exchange(lost_lines_, 0)) +
                                     " lines are missing here: the reader "
                                     "was too slow";
            waiting_ = above_bar() + line_of(Level::info, lost.c_str()) + '\n';
            waiting_.erase(0, terminal_.write_some(waiting_));
        }
        return waiting_.empty();
    }

    /// Redraws the bar, which new lines may have overwritten.
    void draw_again() {
        const auto now = Clock::now();
        if (is_terminal() && now_ && now - *shown_ >= between_bars) {
            shown_ = now;
            draw();
        }
    }

    /// Skips a bar that does not fit in the buffer: the next follows soon.
    void draw() {
        if (!flush()) {
            return;
        }
        is_up_ = true;
        const std::string bar = clear + bar_line(*now_, terminal_.style());
        (void)terminal_.write_some(bar);
    }

    static constexpr const char* clear = "\r\x1b[K";

    process::Owner owner_;
    std::mutex mutex_;
    Terminal terminal_;
    std::atomic<bool>& is_up_;
    std::string waiting_; ///< lines not written yet
    std::ptrdiff_t lost_lines_ = 0;
    std::optional<Progress> now_;
    std::optional<Clock::time_point> shown_;
};

} // namespace rtrain::console
