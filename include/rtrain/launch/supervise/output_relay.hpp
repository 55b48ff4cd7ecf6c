// SPDX-License-Identifier: Apache-2.0
/// @file
/// Forwards what ranks print, and keeps what their launcher itself prints.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/console/terminal.hpp>
#include <rtrain/launch/supervise/lifetime.hpp>
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
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::launch {

/// Reads the lines of a launcher or of ranks from their streams, prints those of ranks to one
/// target, and keeps the launcher's own last ones. While the output is not consumed, it stops
/// reading without blocking the thread: a pager or a stopped terminal holds up the ranks that
/// print, not the control channel.
class OutputRelay {
public:
    using Clock = std::chrono::steady_clock;
    /// Longer lines, such as a progress bar without line ends, are printed in pieces.
    static constexpr std::size_t longest_line = std::size_t{1} << 20;

    struct Handlers {
        std::function<void(const RankLine&)> line; ///< of a rank
        /// All streams have ended, and everything is printed; called once.
        std::function<void()> end;
    };

    /// Each line goes to `target` immediately, after what is in its buffer. `ranks`: the number of
    /// ranks that print. `name`: in front of each line; empty: nothing.
    OutputRelay(boost::asio::io_context& io, std::FILE* target, int ranks, Handlers handlers,
                const std::string& name = "")
        : io_(io), timer_(io), target_(target), terminal_(::fileno(target)), size_(ranks),
          begin_of_line_(named(name)), handlers_(std::move(handlers)) {}

    /// Reads a stream, which this object closes; call before the io_context runs. `rank` has
    /// printed all of it; empty: a launcher tags each line with its rank.
    void add(int descriptor, std::optional<int> rank) {
        streams_.emplace_back(io_, descriptor, rank);
        read(streams_.back());
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
        for (Stream& stream : streams_) {
            boost::system::error_code ignored;
            stream.source.close(ignored);
        }
    }
    /// Also stops waiting for the output to be consumed, and reports how many bytes are lost.
    void close() {
        is_closed_ = true;
        stop_reading();
        timer_.cancel();
    }

private:
    struct Stream {
        Stream(boost::asio::io_context& io, int descriptor, std::optional<int> rank_that_prints)
            : source(io, descriptor), rank(rank_that_prints) {}

        boost::asio::posix::stream_descriptor source;
        std::optional<int> rank; ///< empty: lines are tagged
        std::array<char, 4096> chunk{};
        std::string line; ///< without its end yet
        RankOutput tagged;
        bool is_read = false; ///< a read operation is pending
        bool has_ended = false;
    };

    void read(Stream& stream) {
        stream.is_read = true;
        stream.source.async_read_some(
            boost::asio::buffer(stream.chunk),
            lifetime_.guard(
                [this, &stream](const boost::system::error_code& error, std::size_t length) {
                    stream.is_read = false;
                    if (error) {
                        end(stream);
                    } else {
                        take(stream, {stream.chunk.data(), length});
                    }
                    active_at_ = Clock::now();
                    print();
                }));
    }

    void take(Stream& stream, std::string_view text) {
        for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;) {
            stream.line += text.substr(0, end);
            text.remove_prefix(end + 1);
            hear(stream, std::exchange(stream.line, {}));
        }
        stream.line += text;
        if (stream.line.size() >= longest_line) {
            hear_part(stream);
        }
    }

    void hear(Stream& stream, const std::string& line) {
        auto text = stream.rank ? RankLine{.rank = *stream.rank, .text = line}
                                : stream.tagged.complete(line);
        if (text) {
            const bool ends = text->take_end_of_run();
            if (!ends || !text->text.empty()) {
                tell(*text);
            }
            if (ends && ++ended_ == size_) {
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

    void hear_part(Stream& stream) {
        if (stream.rank) {
            hear(stream, std::exchange(stream.line, {}));
        } else if (const auto part = stream.tagged.complete_part(stream.line)) {
            tell(*part);
        } else {
            stream.line.clear(); // the launcher's own
        }
    }

    void tell(const RankLine& line) {
        handlers_.line(line);
        waiting_.append(line.readable(begin_of_line_)) += '\n';
    }

    /// The last line may lack its line end.
    void end(Stream& stream) {
        if (!stream.line.empty()) {
            take(stream, "\n");
        }
        for (const RankLine& line : stream.tagged.rest()) {
            tell(line);
        }
        stream.has_ended = true;
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
            print_later();
        } else {
            read_on();
        }
    }

    void print_later() {
        if (!std::exchange(is_due_, true)) {
            constexpr std::chrono::milliseconds pause{5};
            timer_.expires_after(pause);
            timer_.async_wait(lifetime_.guard([this](const boost::system::error_code&) {
                is_due_ = false;
                print();
            }));
        }
    }

    void read_on() {
        bool all_have_ended = true;
        for (Stream& stream : streams_) {
            all_have_ended = all_have_ended && stream.has_ended;
            if (!stream.has_ended && !stream.is_read) {
                read(stream);
            }
        }
        if (all_have_ended && !std::exchange(has_ended_, true)) {
            handlers_.end();
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

    boost::asio::io_context& io_;
    boost::asio::steady_timer timer_;
    std::FILE* target_;
    console::Terminal terminal_; ///< of target_
    int size_;                   ///< number of ranks
    std::string begin_of_line_;
    Handlers handlers_;
    std::list<Stream> streams_;
    int ended_ = 0;       ///< ranks that have printed end_of_run
    std::string waiting_; ///< to be printed
    std::deque<std::string> own_;
    bool is_due_ = false; ///< the timer will print
    bool is_closed_ = false;
    bool has_ended_ = false;
    bool has_lost_ = false; ///< output
    Clock::time_point active_at_ = Clock::now();
    Lifetime lifetime_;
};

} // namespace rtrain::launch
