// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of different sizes, and combining them by a function of the caller. Both take the places
/// of Slices and Reduction, whose slices are equal and whose elements are tensors'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// A part for each rank, consecutive in memory.
class Parts {
public:
    /// `counts`: elements of each rank's part.
    explicit Parts(std::vector<std::int64_t> counts)
        : longest(counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end())),
          counts_(std::move(counts)), begins_(counts_.size()) {
        std::exclusive_scan(counts_.begin(), counts_.end(), begins_.begin(), std::int64_t{0});
    }

    std::int64_t longest; ///< elements of the longest part

    [[nodiscard]] std::int64_t begin(int part) const {
        return begins_[static_cast<std::size_t>(part)];
    }
    [[nodiscard]] std::int64_t count(int part) const {
        return counts_[static_cast<std::size_t>(part)];
    }
    /// Elements of all parts.
    [[nodiscard]] std::int64_t elements() const {
        return counts_.empty() ? 0 : begins_.back() + counts_.back();
    }
    [[nodiscard]] const std::vector<std::int64_t>& counts() const noexcept { return counts_; }

private:
    std::vector<std::int64_t> counts_;
    std::vector<std::int64_t> begins_;
};

/// A reduction by a function of the caller, in the order of ranks.
struct Combining {
    /// Replaces `to` by `to` combined with `from`, both of so many bytes.
    std::function<void(std::byte* to, const std::byte* from, std::size_t bytes)> combine;
    std::size_t element; ///< bytes of one element; the function gets whole elements

    /// Like Reduction::run(), for one target, which overlaps no source but the first.
    void run(std::span<std::byte* const> targets, std::span<const std::byte* const> sources,
             std::int64_t elements) const {
        const std::size_t bytes = static_cast<std::size_t>(elements) * element;
        if (targets[0] != sources[0]) {
            std::memmove(targets[0], sources[0], bytes);
        }
        for (const std::byte* const source : sources.subspan(1)) {
            combine(targets[0], source, bytes);
        }
    }
};

} // namespace rtrain::comm
