// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collects what tests find wrong: the first of each sort is shown, the others are counted.
#pragma once

#include "trace.hpp"

#include <cstddef>
#include <cstdio>
#include <map>
#include <string>

namespace crash {

class Violations {
public:
    /// `what` is "kind: text"; sorts differ in more than numbers.
    void add(const std::string& what, const std::string& where) {
        ++kinds_[what.substr(0, what.find(':'))];
        if (sorts_[without_numbers(what)]++ == 0) {
            std::printf("VIOLATION %s\n    %s\n", what.c_str(), where.c_str());
            std::fflush(stdout);
        }
    }
    void tell() const {
        for (const auto& [sort, count] : sorts_) {
            std::printf("%6zu x %s\n", count, sort.c_str());
        }
    }
    /// Members of a JSON object, a kind each; they begin with a comma.
    [[nodiscard]] std::string json() const {
        std::string text;
        for (const auto& [kind, count] : kinds_) {
            text += ", \"" + kind + "\": " + std::to_string(count);
        }
        return text;
    }
    [[nodiscard]] bool none() const { return kinds_.empty(); }

private:
    std::map<std::string, std::size_t> sorts_;
    std::map<std::string, std::size_t> kinds_;
};

} // namespace crash
