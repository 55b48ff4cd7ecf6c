// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handling of rows that readers cannot read. Includes no libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Handling of a row that cannot be read.
enum class OnError : unsigned char {
    raise, ///< the first bad row is an error
    skip,  ///< replace it by the previous good row, so that batches keep their size
};

/// Counts the bad rows of a data set, each once however often it is read. The next report includes
/// the new ones.
class BadRows {
public:
    BadRows(OnError on_error, std::int64_t max_errors)
        : on_error_(on_error), max_errors_(max_errors) {}

    /// Throws `error` unless bad rows are skipped, DataError [RT-D34] if there are too many.
    void add(const DataError& error, const std::string& file, std::int64_t row) const {
        if (on_error_ == OnError::raise) {
            throw error;
        }
        const std::scoped_lock lock(mutex_);
        const bool is_new = met_.emplace(file, row).second;
        if (static_cast<std::int64_t>(met_.size()) > max_errors_) {
            throw DataError(
                "RT-D34", detail::concat("more than max_errors = ", max_errors_,
                                         " rows cannot be read; the last one: ", error.message()));
        }
        if (is_new) {
            ProcessContext::current().clock.add_skipped();
        }
    }
    /// The number of bad rows so far.
    [[nodiscard]] std::int64_t count() const {
        const std::scoped_lock lock(mutex_);
        return static_cast<std::int64_t>(met_.size());
    }

private:
    OnError on_error_;
    std::int64_t max_errors_;
    mutable std::mutex mutex_;
    mutable std::set<std::pair<std::string, std::int64_t>> met_;
};

/// Maps each row of a block to a good one: itself, or the last good one before it; if there is
/// none, the first good one.
class ReplacementRows {
public:
    /// Records whether the next row could be read.
    void add(bool is_good) {
        good_ += is_good ? 1 : 0;
        all_are_good_ = all_are_good_ && is_good;
        rows_.push_back(good_ > 0 ? good_ - 1 : 0);
    }
    /// True if all recorded rows could be read.
    [[nodiscard]] bool all_are_good() const noexcept { return all_are_good_; }
    /// Throws DataError [RT-D34] if none of the recorded rows is good. `first` names the first, and
    /// `what` a row.
    void require_good(const std::string& first, const char* what) const {
        if (!rows_.empty() && good_ == 0) {
            throw DataError("RT-D34", detail::concat(first, " and all ", rows_.size(), ' ', what,
                                                     "s after it cannot be read, so that no good ",
                                                     what, " can replace them"));
        }
    }
    /// For each row, the number of a good one.
    [[nodiscard]] const std::vector<std::int64_t>& rows() const noexcept { return rows_; }

private:
    bool all_are_good_ = true;
    std::int64_t good_ = 0;
    std::vector<std::int64_t> rows_;
};

} // namespace rtrain::data
