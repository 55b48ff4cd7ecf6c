// SPDX-License-Identifier: Apache-2.0
/// @file
/// FreeCores: the cores of this machine that are not used by a trial.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace rtrain::tune::internal {

/// Any thread may call the members.
class FreeCores {
public:
    /// Holds cores, and frees them at its end.
    class Taken {
    public:
        Taken(FreeCores& from, std::vector<int> cores) : from_(from), cores_(std::move(cores)) {}
        Taken(const Taken&) = delete;
        Taken& operator=(const Taken&) = delete;
        ~Taken() { from_.give_back(cores_); }

        [[nodiscard]] const std::vector<int>& cores() const noexcept { return cores_; }

    private:
        FreeCores& from_;
        std::vector<int> cores_;
    };

    explicit FreeCores(std::vector<int> cores) : free_(std::move(cores)) {}

    /// Takes the first `count` free cores, so that similar trials get the same ones; none, if fewer
    /// are free.
    [[nodiscard]] Taken take(std::size_t count) {
        const std::lock_guard lock(mutex_);
        if (count > free_.size()) {
            return {*this, {}};
        }
        const auto end = free_.begin() + static_cast<std::ptrdiff_t>(count);
        std::vector<int> taken(free_.begin(), end);
        free_.erase(free_.begin(), end);
        return {*this, std::move(taken)};
    }

private:
    void give_back(const std::vector<int>& cores) {
        const std::lock_guard lock(mutex_);
        free_.insert(free_.end(), cores.begin(), cores.end());
        std::sort(free_.begin(), free_.end());
    }

    std::mutex mutex_;
    std::vector<int> free_;
};

} // namespace rtrain::tune::internal
