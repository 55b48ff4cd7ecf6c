// SPDX-License-Identifier: Apache-2.0
/// @file
/// Terminal: non-blocking writes to standard error or another descriptor. A reader that exits does
/// not end this process.
#pragma once

#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/console/bar.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace rtrain::console {

namespace internal {

[[nodiscard]] inline std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
}

/// True if the locale in the environment uses UTF-8.
[[nodiscard]] inline bool shows_utf8() {
    for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        if (std::string locale = variable(name); !locale.empty()) {
            std::transform(locale.begin(), locale.end(), locale.begin(),
                           [](char c) { return rtrain::detail::lower(c); });
            return locale.find("utf-8") != std::string::npos ||
                   locale.find("utf8") != std::string::npos;
        }
    }
    return false;
}

/// Blocks SIGPIPE in this thread during its lifetime, and discards one that arrives meanwhile.
class NoSigpipe {
public:
    NoSigpipe() noexcept {
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        sigset_t pending{};
        ::sigpending(&pending);
        was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;
    ~NoSigpipe() {
        if (!was_pending_) {
            const timespec now{};
            while (::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
            }
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

private:
    sigset_t pipe_{};
    sigset_t before_{};
    bool was_pending_ = false;
};

} // namespace internal

class Terminal {
public:
    /// The caller keeps ownership of `descriptor`.
    explicit Terminal(int descriptor)
        : descriptor_(descriptor),
          is_terminal_(::isatty(descriptor) == 1 && internal::variable("TERM") != "dumb"),
          is_utf8_(internal::shows_utf8()),
          is_colored_(is_terminal_ && internal::variable("NO_COLOR").empty()) {
        // Its own file description can be non-blocking; the existing one is shared with other
        // processes.
        const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
        own_ =
            is_terminal_ ? ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;
    ~Terminal() {
        if (own_ >= 0) {
            ::close(own_);
        }
    }

    /// True if the cursor can be moved.
    [[nodiscard]] bool is_terminal() const noexcept { return is_terminal_; }

    /// Current width, since people resize terminals. `if_unknown` if not available.
    [[nodiscard]] int columns(int if_unknown = 80) const noexcept {
        winsize size{};
        const bool known = ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        return known ? size.ws_col : if_unknown;
    }
    [[nodiscard]] Style style() const noexcept {
        return {.columns = columns(), .utf8 = is_utf8_, .color = is_colored_};
    }

    /// True if it is a pipe whose other end is closed.
    [[nodiscard]] bool is_broken_pipe() const noexcept { return error_ == EPIPE; }
    /// errno of the last failed write; 0: none failed.
    [[nodiscard]] int loss() const noexcept { return loss_; }

    /// Writes as much from the beginning of `text` as possible without blocking, and returns the
    /// number of bytes. Returns all of it without a reader or if the disk is full.
    std::size_t write_some(std::string_view text) noexcept {
        constexpr std::size_t most = 4096; // poll() guarantees this much space in a pipe
        std::size_t written = 0;
        const internal::NoSigpipe no_signal;
        while (written < text.size() && error_ == 0) {
            if (!can_write(0)) {
                return written;
            }
            const std::string_view part = text.substr(written, most);
            const auto got = ::write(own_ >= 0 ? own_ : descriptor_, part.data(), part.size());
            if (got >= 0) {
                written += static_cast<std::size_t>(got);
            } else if (errno == EAGAIN) {
                return written;
            } else if (errno == ENOSPC || errno == EDQUOT) {
                loss_ = errno;
                break; // space may be freed later
            } else if (errno != EINTR) {
                loss_ = error_ = errno;
            }
        }
        return text.size();
    }

    /// Blocks until something can be written or the reader is gone; at most that long.
    void wait(int milliseconds) const noexcept { (void)can_write(milliseconds); }

private:
    [[nodiscard]] bool can_write(int milliseconds) const noexcept {
        pollfd end{own_ >= 0 ? own_ : descriptor_, POLLOUT, 0};
        return ::poll(&end, 1, milliseconds) == 1; // an error is reported by the write
    }

    int descriptor_;
    int own_ = -1;
    bool is_terminal_;
    bool is_utf8_;
    bool is_colored_;
    int error_ = 0; ///< permanent: nothing more can be written
    int loss_ = 0;
};

} // namespace rtrain::console
