// SPDX-License-Identifier: Apache-2.0
/// @file
/// What this process writes to standard error while it does something.
#pragma once

#include <cstdio>
#include <string>

#include <unistd.h>

namespace test {

class Stderr {
public:
    Stderr() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
        std::fflush(stderr);
        ::dup2(::fileno(file_), STDERR_FILENO);
    }
    Stderr(const Stderr&) = delete;
    Stderr& operator=(const Stderr&) = delete;
    ~Stderr() {
        restore();
        std::fclose(file_);
    }

    /// What was written so far. From now on, what is written goes where it went before.
    [[nodiscard]] std::string text() {
        restore();
        return text_so_far();
    }

    /// What was written so far; more may follow, also meanwhile.
    [[nodiscard]] std::string text_so_far() const {
        std::string text;
        char part[4096];
        for (ssize_t got = 0; (got = ::pread(::fileno(file_), part, sizeof part,
                                             static_cast<off_t>(text.size()))) > 0;) {
            text.append(part, static_cast<std::size_t>(got));
        }
        return text;
    }

private:
    void restore() {
        if (before_ >= 0) {
            std::fflush(stderr);
            ::dup2(before_, STDERR_FILENO);
            ::close(before_);
            before_ = -1;
        }
    }

    std::FILE* file_;
    int before_;
};

/// How often `part` is in `text`.
[[nodiscard]] inline int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++count;
    }
    return count;
}

} // namespace test
