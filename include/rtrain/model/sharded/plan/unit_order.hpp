// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order in which passes use units of weights, which predicts the next unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// The hash of an empty sequence, for hashed().
inline constexpr std::uint64_t hash_of_nothing = 14695981039346656037U;
/// Appends `number` to the sequence that `hash` is a hash of: FNV-1a, a number at a time.
[[nodiscard]] constexpr std::uint64_t hashed(std::uint64_t hash, std::uint64_t number) {
    return (hash ^ number) * 1099511628211U;
}

/// Counts of the units gathered so far.
struct GatherCounts {
    std::int64_t all = 0;
    std::int64_t ahead = 0; ///< of these, started before their use
};

/// A pass follows the order of the previous one until it deviates or continues further; then its
/// own is the order, from the next pass on. One that ends early, such as an evaluation, changes
/// nothing.
class UnitOrder {
public:
    static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

    /// Records the use of a unit other than the last one.
    void use(std::size_t unit) {
        if (follows_) {
            if (position_ < order_.size() && order_[position_] == unit) {
                ++position_;
                return;
            }
            follows_ = false;
            seen_.assign(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(position_));
        }
        if (seen_.size() < most) {
            seen_.push_back(unit);
        }
    }

    /// Begins another pass.
    void begin_pass() {
        if (!follows_) {
            order_ = std::exchange(seen_, {});
            hash_ = hash_of(order_);
            is_agreed_ = false;
        }
        follows_ = true;
        position_ = 0;
    }

    /// Differs where orders differ.
    [[nodiscard]] std::int64_t hash() const noexcept { return hash_; }
    /// Sets whether all ranks have the same hash(); unknown for a new order.
    void agree(bool same) { is_agreed_ = same; }

    /// True if the pass follows the previous order, on all ranks.
    [[nodiscard]] bool is_followed() const { return follows_ && is_agreed_ && !order_.empty(); }
    /// In an order that is followed: the number of uses of others before that of a unit; `never` if
    /// none.
    [[nodiscard]] std::size_t until(std::size_t unit) const {
        for (std::size_t i = position_; i < order_.size(); ++i) {
            if (order_[i] == unit) {
                return i - position_;
            }
        }
        return never;
    }
    /// The next unit that is not `here`; `never` if none.
    template <class Here>
    [[nodiscard]] std::size_t next_without(Here&& here) const {
        for (std::size_t i = position_; i < order_.size(); ++i) {
            if (!here(order_[i])) {
                return order_[i];
            }
        }
        return never;
    }

private:
    static constexpr std::size_t most = std::size_t{1} << 16; ///< recorded per pass

    [[nodiscard]] static std::int64_t hash_of(const std::vector<std::size_t>& units) {
        std::uint64_t hash = hash_of_nothing;
        for (const std::size_t unit : units) {
            hash = hashed(hash, unit);
        }
        return static_cast<std::int64_t>(hash);
    }

    std::vector<std::size_t> order_;
    std::int64_t hash_ = hash_of(order_); ///< each gather reads it
    std::size_t position_ = 0;            ///< in it, while this pass follows it
    bool follows_ = true;
    bool is_agreed_ = false;
    std::vector<std::size_t> seen_; ///< by a pass that deviates
};

} // namespace rtrain::detail
