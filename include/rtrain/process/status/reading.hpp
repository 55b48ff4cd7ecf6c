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

class Readings {
public:
    /// The read that has taken longest so far; empty if there is none.
    [[nodiscard]] std::string longest() const {
        const std::scoped_lock lock(mutex_);
        return begun_.empty() ? std::string() : begun_.front();
    }

private:
    friend class Reading;

    mutable std::mutex mutex_;
    std::list<std::string> begun_;
};

/// While it exists, its thread reads something.
class Reading {
public:
    Reading(Readings& all, std::string what) : all_(all) {
        const std::scoped_lock lock(all_.mutex_);
        place_ = all_.begun_.insert(all_.begun_.end(), std::move(what));
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() {
        const std::scoped_lock lock(all_.mutex_);
        all_.begun_.erase(place_);
    }

private:
    Readings& all_;
    std::list<std::string>::iterator place_;
};

} // namespace rtrain
