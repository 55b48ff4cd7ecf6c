// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a boosting library logs: collected while a caller listens, else printed as warnings.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/console.hpp>

#include <string>
#include <string_view>

namespace rtrain::gbdt {

/// The log of one library, of this thread: libraries register their callbacks per thread.
template <class Library>
class NativeLog {
public:
    /// The callback. LightGBM passes a line in pieces, XGBoost passes whole lines.
    static void write(const char* text) {
        std::string& line = pending();
        line += text;
        if (line.ends_with('\n')) {
            finish(line);
        }
    }

    /// Collects the lines of this thread while it exists.
    class Collecting {
    public:
        Collecting() { target() = &lines_; }
        Collecting(const Collecting&) = delete;
        Collecting& operator=(const Collecting&) = delete;
        ~Collecting() { target() = nullptr; }
        [[nodiscard]] const std::string& lines() const noexcept { return lines_; }

    private:
        std::string lines_;
    };

private:
    static void finish(std::string& line) {
        if (target() != nullptr) {
            *target() += line;
        } else if (line.find(" got rank ") == std::string::npos && line != "\n") {
            line.pop_back();
            console::warn("%s: %s", Library::name, line.c_str());
        }
        line.clear();
    }
    static std::string& pending() {
        thread_local std::string line;
        return line;
    }
    static std::string*& target() {
        thread_local std::string* lines = nullptr;
        return lines;
    }
};

} // namespace rtrain::gbdt
