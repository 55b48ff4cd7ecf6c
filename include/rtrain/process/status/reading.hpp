// SPDX-License-Identifier: Apache-2.0
/// @file
/// What threads of this process are reading, for hang detection: set where files are read, sent by
/// launch/control/driver_link.hpp. So a rank that waits for a slow file differs from one that waits
/// for nothing. Cost tier 0: std only; any room may include it.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <utility>

namespace rtrain {

/// While it exists, its thread reads something.
class Reading {
public:
    explicit Reading(std::string what) {
        const std::scoped_lock lock(all().mutex);
        place_ = all().begun.insert(all().begun.end(), std::move(what));
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() {
        const std::scoped_lock lock(all().mutex);
        all().begun.erase(place_);
    }

    /// The read that has taken longest so far; empty if there is none.
    [[nodiscard]] static std::string longest() {
        const std::scoped_lock lock(all().mutex);
        return all().begun.empty() ? std::string() : all().begun.front();
    }

private:
    struct All {
        std::mutex mutex;
        std::list<std::string> begun;
    };
    /// Never destroyed: threads may read until the process ends.
    [[nodiscard]] static All& all() {
        static auto* const of_process = new All;
        return *of_process;
    }

    std::list<std::string>::iterator place_;
};

} // namespace rtrain
