// SPDX-License-Identifier: Apache-2.0
/// @file
/// Passes on what ranks print, and keeps what their launcher itself says.
#pragma once

#include <rtrain/console/screen.hpp>
#include <rtrain/launch/supervise/rank_output.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>

#include <cstdio>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include <unistd.h>

namespace rtrain::launch {

/// Reads lines of one of a launcher's streams, prints those of ranks, and keeps its own last ones.
class OutputRelay {
public:
    struct Lines {
        int ranks = 1;      ///< so many print
        bool tagged = true; ///< each with its rank; else all are rank 0's
    };

    /// `heard` is called with each line of a rank, `at_end` when the stream has ended.
    OutputRelay(boost::asio::io_context& io, int descriptor, std::FILE* target, Lines lines,
                std::function<void(const RankLine&)> heard, std::function<void()> at_end)
        : stream_(io, descriptor), target_(target), is_terminal_(::isatty(::fileno(target)) == 1),
          lines_(lines), heard_(std::move(heard)), at_end_(std::move(at_end)) {
        read();
    }

    /// What the launcher itself said last.
    [[nodiscard]] const std::deque<std::string>& own_lines() const noexcept { return own_; }

    /// Stops reading.
    void close() {
        boost::system::error_code ignored;
        stream_.close(ignored);
    }

private:
    void read() {
        boost::asio::async_read_until(
            stream_, boost::asio::dynamic_buffer(buffer_), '\n',
            [this](const boost::system::error_code& error, std::size_t length) {
                if (error) {
                    end();
                    return;
                }
                print(buffer_.substr(0, length - 1));
                buffer_.erase(0, length);
                read();
            });
    }

    void print(const std::string& line) {
        auto text = lines_.tagged ? ranks_.complete(line) : RankLine{.rank = 0, .text = line};
        if (text) {
            const bool ends = text->take_end_of_run();
            if (!ends || !text->text.empty()) {
                tell(*text);
            }
            if (ends && ++ended_ == lines_.ranks) {
                ended_ = 0;
                std::fprintf(target_, "%s\n", end_of_run.data());
                std::fflush(target_);
            }
        } else if (!line.empty()) {
            constexpr std::size_t kept = 40;
            own_.push_back(line);
            if (own_.size() > kept) {
                own_.pop_front();
            }
        }
    }

    /// A last line may lack its end.
    void end() {
        if (!buffer_.empty()) {
            print(buffer_);
        }
        for (const RankLine& line : ranks_.rest()) {
            tell(line);
        }
        at_end_();
    }

    void tell(const RankLine& line) {
        heard_(line);
        console::Screen::current().around(is_terminal_, [&] {
            std::fprintf(target_, "%s\n", line.readable().c_str());
            std::fflush(target_);
        });
    }

    boost::asio::posix::stream_descriptor stream_;
    RankOutput ranks_;
    std::FILE* target_;
    bool is_terminal_; ///< where the bar may be
    Lines lines_;
    int ended_ = 0; ///< ranks that have printed end_of_run
    std::function<void(const RankLine&)> heard_;
    std::function<void()> at_end_;
    std::string buffer_;
    std::deque<std::string> own_;
};

} // namespace rtrain::launch
