// SPDX-License-Identifier: Apache-2.0
/// @file
/// Forwards what ranks print, and keeps what their launcher itself prints.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/console/terminal.hpp>
#include <rtrain/launch/supervise/rank_output.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::launch {

/// Reads lines of one of a launcher's streams, prints those of ranks, and keeps the launcher's own
/// last ones. While the output is not consumed, it stops reading without blocking the thread: a
/// pager or a stopped terminal holds up the ranks that print, not the control channel.
class OutputRelay {
public:
    struct Lines {
        int ranks = 1;      ///< number of ranks that print
        bool tagged = true; ///< with the rank; otherwise all lines are rank 0's
    };
    using Clock = std::chrono::steady_clock;
    /// Longer lines, such as a progress bar without line ends, are printed in pieces.
    static constexpr std::size_t longest_line = std::size_t{1} << 20;

    struct Handlers {
        std::function<void(const RankLine&)> line; ///< of a rank
        std::function<void()> end; ///< the stream has ended, and all of it is printed
    };

    /// Each line goes to `target` immediately, after what is in its buffer.
    OutputRelay(boost::asio::io_context& io, int descriptor, std::FILE* target, Lines lines,
                Handlers handlers)
        : stream_(io, descriptor), timer_(io), target_(target), terminal_(::fileno(target)),
          lines_(lines), handlers_(std::move(handlers)) {
        read();
    }

    /// The launcher's own last lines.
    [[nodiscard]] const std::deque<std::string>& own_lines() const noexcept { return own_; }

    /// True if output waits to be consumed.
    [[nodiscard]] bool is_behind() const noexcept { return !waiting_.empty(); }

    /// Time since unprinted output last arrived or was waiting.
    [[nodiscard]] Clock::duration quiet_for() const {
        return is_behind() ? Clock::duration::zero() : Clock::now() - active_at_;
    }

    /// Stops reading. What was read is still printed.
    void stop_reading() {
        boost::system::error_code ignored;
        stream_.close(ignored);
    }
    /// Also stops waiting for the output to be consumed, and reports how many bytes are lost.
    void close() {
        is_closed_ = true;
        stop_reading();
        timer_.cancel();
    }

private:
    void read() {
        stream_.async_read_some(boost::asio::buffer(chunk_),
                                [this](const boost::system::error_code& error, std::size_t length) {
                                    if (error) {
                                        end();
                                    } else {
                                        take({chunk_.data(), length});
                                    }
                                    active_at_ = Clock::now();
                                    print();
                                });
    }

    void take(std::string_view text) {
        for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
            line_ += text.substr(0, end);
            text.remove_prefix(end + 1);
            hear(std::exchange(line_, {}));
        }
        line_ += text;
        if (line_.size() >= longest_line) {
            hear_part();
        }
    }

    void hear(const std::string& line) {
        auto text = lines_.tagged ? ranks_.complete(line) : RankLine{.rank = 0, .text = line};
        if (text) {
            const bool ends = text->take_end_of_run();
            if (!ends || !text->text.empty()) {
                tell(*text);
            }
            if (ends && ++ended_ == lines_.ranks) {
                ended_ = 0;
                waiting_.append(end_of_run) += '\n';
            }
        } else if (!line.empty()) {
            constexpr std::size_t kept = 40;
            own_.push_back(line);
            if (own_.size() > kept) {
                own_.pop_front();
            }
        }
    }

    void hear_part() {
        if (!lines_.tagged) {
            hear(std::exchange(line_, {}));
        } else if (const auto part = ranks_.complete_part(line_)) {
            tell(*part);
        } else {
            line_.clear(); // the launcher's own
        }
    }

    void tell(const RankLine& line) {
        handlers_.line(line);
        waiting_.append(line.readable()) += '\n';
    }

    /// The last line may lack its line end.
    void end() {
        if (!line_.empty()) {
            take("\n");
        }
        for (const RankLine& line : ranks_.rest()) {
            tell(line);
        }
        has_ended_ = true;
    }

    /// Prints what is available, then continues reading.
    void print() {
        if (is_closed_ && !waiting_.empty()) {
            console::Screen::current().print(rtrain::detail::concat(
                "the last ", waiting_.size(),
                " bytes that ranks printed are not shown: the output was not read"));
            waiting_.clear();
        }
        if (!waiting_.empty()) {
            console::Screen::current().around(terminal_.is_terminal(), [this] {
                std::fflush(target_);
                waiting_.erase(0, terminal_.write_some(waiting_));
            });
            if (terminal_.is_broken_pipe()) {
                ::raise(SIGPIPE); // the terminal suppresses it
            }
            say_loss();
        }
        if (!waiting_.empty()) {
            active_at_ = Clock::now();
            constexpr std::chrono::milliseconds pause{5};
            timer_.expires_after(pause);
            timer_.async_wait([this](const boost::system::error_code&) { print(); });
        } else if (has_ended_) {
            handlers_.end();
        } else {
            read();
        }
    }

    /// Warns once that output was lost, as on a full disk.
    void say_loss() {
        if (const int error = terminal_.loss(); error != 0 && !std::exchange(has_lost_, true)) {
            console::warn(
                "cannot write all output of the ranks to standard %s: %s; the run continues "
                "without it",
                target_ == stderr ? "error" : "output", std::strerror(error));
        }
    }

    boost::asio::posix::stream_descriptor stream_;
    boost::asio::steady_timer timer_;
    std::FILE* target_;
    console::Terminal terminal_; ///< of target_
    Lines lines_;
    Handlers handlers_;
    std::array<char, 4096> chunk_{};
    std::string line_; ///< without its end yet
    RankOutput ranks_;
    int ended_ = 0;       ///< ranks that have printed end_of_run
    std::string waiting_; ///< to be printed
    std::deque<std::string> own_;
    bool has_ended_ = false;
    bool is_closed_ = false;
    bool has_lost_ = false; ///< output
    Clock::time_point active_at_ = Clock::now();
};

} // namespace rtrain::launch
