// SPDX-License-Identifier: Apache-2.0
/// @file
/// The standard input that main() has read before fit(). Ranks run main(), too, and must read the
/// same. But what was read from a pipe is gone, and mpirun forwards the rest to rank 0 only.
///
/// A file can be read again. A pipe whose writers have ended before main() begins, as in
/// `echo '{"lr": 0.1}' | program`, is copied then without consuming it. For other input, only
/// whether it was read is known.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/stdio/standard_streams.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::launch {

class StandardInput {
public:
    /// Longer input is not forwarded.
    static constexpr std::size_t limit = std::size_t{64} << 20;

    /// Create before main() begins. Consumes no input.
    StandardInput() {
        process::open_standard_streams();
        struct stat found {};
        if (::fstat(STDIN_FILENO, &found) != 0) {
            return;
        }
        if (S_ISREG(found.st_mode)) {
            kind_ = Kind::file;
            begin_ = last_ = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
        } else if (S_ISFIFO(found.st_mode)) {
            kind_ = Kind::pipe;
            last_ = left_in_pipe();
            copy_ = copy_of_complete_pipe(static_cast<std::size_t>(last_));
        } else if (S_ISSOCK(found.st_mode) || ::isatty(STDIN_FILENO) != 0) {
            kind_ = Kind::stream;
        }
    }

    /// Records what main() has read; call when fit() begins.
    void look() {
        switch (kind_) {
        case Kind::nothing:
            return;
        case Kind::file:
            was_read_ = was_read_ || ::lseek(STDIN_FILENO, 0, SEEK_CUR) != last_ ||
                        streams_have_read(); // and returned to the start
            return;
        case Kind::pipe:
            was_read_ = was_read_ || left_in_pipe() < last_ || (copy_ != "" && streams_have_read());
            return;
        case Kind::stream:
            was_read_ = was_read_ || streams_have_read();
        }
    }

    [[nodiscard]] bool was_read() const noexcept { return was_read_; }

    /// Another process reads it from now on, so that reads can no longer be detected.
    void give_away() noexcept {
        if (!was_read_) {
            kind_ = Kind::nothing;
        }
    }

    /// All of it, from its position when main() began. Throws ConfigError [RT-C24] if it cannot be
    /// read again.
    [[nodiscard]] std::string bytes() const {
        if (copy_) {
            return *copy_;
        }
        if (kind_ != Kind::file) {
            refuse("it is not a file, and what was read is gone");
        }
        std::string text;
        std::array<char, 65536> part{};
        for (;;) {
            const ssize_t got = ::pread(STDIN_FILENO, part.data(), part.size(),
                                        begin_ + static_cast<off_t>(text.size()));
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0) {
                refuse("it cannot be read again");
            }
            if (got == 0) {
                return text;
            }
            text.append(part.data(), static_cast<std::size_t>(got));
            if (text.size() > limit) {
                refuse(detail::concat("it is longer than ", limit, " bytes"));
            }
        }
    }

    /// From now on this process reads a file, from its beginning.
    static void read_from(const std::string& path) noexcept {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            ::dup2(file, STDIN_FILENO);
            ::close(file);
        }
    }

    /// Throws ConfigError [RT-C24].
    [[noreturn]] static void refuse(const std::string& why) {
        throw ConfigError(
            "RT-C24",
            detail::concat("main() has read from standard input before fit(); the processes that "
                           "fit() starts run main(), too, and cannot be given the same input: ",
                           why,
                           "; name a file on the command line, or redirect one (program < file)"));
    }

private:
    enum class Kind : unsigned char {
        nothing, ///< closed, or empty for all processes like /dev/null
        file,
        pipe,
        stream ///< a terminal or a socket
    };

    [[nodiscard]] static off_t left_in_pipe() noexcept {
        int bytes = 0;
        return ::ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 ? bytes : 0;
    }

    /// True if C's or C++'s own streams have read; they allocate a buffer for the first bytes.
    [[nodiscard]] static bool streams_have_read() {
        return ::__fbufsize(stdin) > 0 || std::cin.eof();
    }

    /// The content of the pipe, if no writers are left.
    [[nodiscard]] static std::optional<std::string> copy_of_complete_pipe(std::size_t size) {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        if (::poll(&input, 1, 0) < 0 || (input.revents & POLLHUP) == 0) {
            return std::nullopt;
        }
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) {
            return std::nullopt;
        }
        (void)::fcntl(ends[1], F_SETPIPE_SZ, ::fcntl(STDIN_FILENO, F_GETPIPE_SZ));
        std::string text(size, '\0');
        ssize_t got = 0;
        if (size > 0) {
            got = ::tee(STDIN_FILENO, ends[1], size, SPLICE_F_NONBLOCK);
            got = got > 0 ? ::read(ends[0], text.data(), size) : got;
        }
        ::close(ends[0]);
        ::close(ends[1]);
        return got == static_cast<ssize_t>(size) ? std::optional(text) : std::nullopt;
    }

    Kind kind_ = Kind::nothing;
    off_t begin_ = 0;                 ///< of a file: position when main() began
    off_t last_ = 0;                  ///< of a file: last position; of a pipe: bytes left in it
    std::optional<std::string> copy_; ///< of a pipe
    bool was_read_ = false;
};

} // namespace rtrain::launch
