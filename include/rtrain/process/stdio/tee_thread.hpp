// SPDX-License-Identifier: Apache-2.0
/// @file
/// The thread of an OutputTee: it forwards the content of two pipes, and hands over lines.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/stdio/standard_streams.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rtrain {

/// The stream that a line was written to.
enum class OutputStream : unsigned char { out, err };

namespace process {

/// Writes all of it, unless the reader is gone. Safe in a signal handler.
inline void write_all(int descriptor, std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written > 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (written < 0 && errno == EAGAIN) {
            pollfd room{descriptor, POLLOUT, 0};
            (void)::poll(&room, 1, -1);
        } else if (written == 0 || errno != EINTR) {
            return;
        }
    }
}

/// One teed stream: a pipe that the process writes to, and the previous destination.
struct TeeStream {
    static constexpr std::size_t longest_line = std::size_t{1}
                                                << 20; ///< bytes; longer ones are cut

    Descriptor before;  ///< the original stream
    Descriptor pipe;    ///< to read from
    std::string line{}; ///< the unfinished line
};

/// State of a tee's thread, which may outlive the tee.
class TeeThread {
public:
    using Hear = std::function<void(OutputStream, std::string_view)>;
    /// Longer than it takes to forward what pipes hold, if it is read there.
    static constexpr std::chrono::seconds patience{2};

    TeeThread(std::array<TeeStream, 2> streams, Hear hear)
        : streams_(std::move(streams)), hear_(std::move(hear)),
          wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

    /// Runs until no writer is left, which may be a child process.
    void run() noexcept {
        thread_ = ::pthread_self();
        std::array<pollfd, 3> ready{pollfd{streams_[0].pipe.get(), POLLIN, 0},
                                    pollfd{streams_[1].pipe.get(), POLLIN, 0},
                                    pollfd{wake_.get(), POLLIN, 0}};
        while (ready[0].fd >= 0 || ready[1].fd >= 0) {
            if (::poll(ready.data(), ready.size(), -1) < 0) {
                continue; // EINTR
            }
            const std::uint64_t asked = asked_.load(); // load before reading
            const bool settles = asked != settled_.load();
            const int most_reads = settles ? 64 : 1; // the streams take turns
            for (std::size_t i = 0; i < streams_.size(); ++i) {
                if (ready[i].fd >= 0 && !pass_on(static_cast<OutputStream>(i), most_reads)) {
                    ready[i].fd = -1;
                }
            }
            if (settles) {
                std::uint64_t ignored = 0;
                (void)!::read(wake_.get(), &ignored, sizeof ignored);
                for (std::size_t i = 0; i < streams_.size(); ++i) {
                    end_line(static_cast<OutputStream>(i));
                }
                settled_.store(asked);
            }
        }
        for (std::size_t i = 0; i < streams_.size(); ++i) {
            end_line(static_cast<OutputStream>(i));
        }
        has_ended_.store(true);
    }

    /// Waits until everything written so far is forwarded. Like any program, it waits for the
    /// reader; for a thread that hangs, at most `patience`. Safe in a signal handler.
    void settle() noexcept {
        if (::pthread_equal(::pthread_self(), thread_.load()) != 0) {
            return;
        }
        const std::uint64_t mine = asked_.fetch_add(1) + 1;
        const std::uint64_t one = 1;
        (void)!::write(wake_.get(), &one, sizeof one);
        constexpr timespec moment{0, 200'000};
        timespec now{};
        ::clock_gettime(CLOCK_MONOTONIC, &now);
        std::time_t end = now.tv_sec + patience.count();
        while (settled_.load() < mine && !has_ended_.load() && now.tv_sec <= end) {
            ::nanosleep(&moment, nullptr);
            ::clock_gettime(CLOCK_MONOTONIC, &now);
            if (is_output_blocked(streams_[0].before.get(), streams_[1].before.get())) {
                end = now.tv_sec + patience.count();
            }
        }
    }

    /// From now on lines are forwarded, but not handed over.
    void forget() noexcept { is_heard_.store(false); }

    [[nodiscard]] const TeeStream& stream(OutputStream which) const noexcept {
        return streams_[static_cast<std::size_t>(which)];
    }

private:
    /// Forwards what is in a pipe now; returns false if no writer is left.
    bool pass_on(OutputStream which, int most_reads) noexcept {
        TeeStream& stream = streams_[static_cast<std::size_t>(which)];
        for (int reads = 0; reads < most_reads; ++reads) {
            const ssize_t got = ::read(stream.pipe.get(), buffer_.data(), buffer_.size());
            if (got <= 0) {
                return got < 0 && (errno == EAGAIN || errno == EINTR);
            }
            const std::string_view text(buffer_.data(), static_cast<std::size_t>(got));
            write_all(stream.before.get(), text);
            take_lines(which, stream, text);
        }
        return true;
    }

    void take_lines(OutputStream which, TeeStream& stream, std::string_view text) noexcept {
        try {
            while (!text.empty()) {
                const std::size_t end = text.find('\n');
                stream.line += text.substr(0, end);
                if (end == std::string_view::npos) {
                    break;
                }
                hear(which, stream.line);
                text.remove_prefix(end + 1);
            }
            if (stream.line.size() >= TeeStream::longest_line) {
                hear(which, stream.line);
            }
        } catch (const std::exception&) { // memory
            stream.line.clear();
        }
    }

    void hear(OutputStream which, std::string& line) {
        if (is_heard_.load()) {
            hear_(which, line);
        }
        line.clear();
    }

    void end_line(OutputStream which) noexcept {
        TeeStream& stream = streams_[static_cast<std::size_t>(which)];
        if (!stream.line.empty()) {
            take_lines(which, stream, "\n");
        }
    }

    std::array<TeeStream, 2> streams_;
    Hear hear_;
    Descriptor wake_;
    std::array<char, std::size_t{1} << 16> buffer_{};
    std::atomic<pthread_t> thread_{};
    std::atomic<std::uint64_t> asked_{0};
    std::atomic<std::uint64_t> settled_{0};
    std::atomic<bool> is_heard_{true};
    std::atomic<bool> has_ended_{false};
};

} // namespace process
} // namespace rtrain
