// SPDX-License-Identifier: Apache-2.0
/// @file
/// `--name value` and `--flag` of the crash tests' programs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>
#include <string>
#include <vector>

namespace crash {

class Arguments {
public:
    Arguments(int count, char** values) : all_(values + 1, values + count) {}

    [[nodiscard]] long number(const std::string& name, long otherwise) {
        const std::string text = this->text(name);
        return text.empty() ? otherwise : std::stol(text);
    }
    [[nodiscard]] std::string text(const std::string& name) {
        known_ += " " + name + " VALUE";
        for (std::size_t i = 0; i + 1 < all_.size(); ++i) {
            if (all_[i] == name) {
                used_.insert({i, i + 1});
                return all_[i + 1];
            }
        }
        return "";
    }
    [[nodiscard]] bool flag(const std::string& name) {
        known_ += " " + name;
        for (std::size_t i = 0; i < all_.size(); ++i) {
            if (all_[i] == name) {
                used_.insert(i);
                return true;
            }
        }
        return false;
    }
    /// Ends the program when an argument was not asked for.
    void done() const {
        if (used_.size() != all_.size()) {
            std::cerr << "arguments:" << known_ << '\n';
            std::exit(2);
        }
    }

private:
    std::vector<std::string> all_;
    std::set<std::size_t> used_;
    std::string known_;
};

} // namespace crash
