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
        std::string text;
        std::rewind(file_);
        for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) {
            text += static_cast<char>(c);
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
