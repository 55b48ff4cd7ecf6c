// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order in which passes use units of weights, and so which one is next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// A hash of what `hash` is one of, and of `number` behind it: FNV-1a, a number at a time.
[[nodiscard]] constexpr std::uint64_t hashed(std::uint64_t hash, std::uint64_t number) {
    return (hash ^ number) * 1099511628211U;
}

/// Units that were gathered so far.
struct GatherCounts {
    std::int64_t all = 0;
    std::int64_t ahead = 0; ///< of them, started before their use
};

/// A pass follows the order of the one before, until it goes elsewhere or further; then its own is
/// the order, from the next pass on. One that ends early, as an evaluation, changes nothing.
class UnitOrder {
public:
    static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

    /// A unit is used, another than before.
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

    /// What is used from now on is another pass.
    void begin_pass() {
        if (!follows_) {
            order_ = std::exchange(seen_, {});
            hash_ = hash_of(order_);
            is_agreed_ = false;
        }
        follows_ = true;
        position_ = 0;
    }

    /// Two of them differ where orders do.
    [[nodiscard]] std::int64_t hash() const noexcept { return hash_; }
    /// Whether all ranks have the same hash(); not known of an order that is new.
    void agree(bool same) { is_agreed_ = same; }

    /// Whether the pass goes as before, on all ranks.
    [[nodiscard]] bool is_followed() const { return follows_ && is_agreed_ && !order_.empty(); }
    /// Of an order that is followed: how many uses of others come before that of a unit; never.
    [[nodiscard]] std::size_t until(std::size_t unit) const {
        for (std::size_t i = position_; i < order_.size(); ++i) {
            if (order_[i] == unit) {
                return i - position_;
            }
        }
        return never;
    }
    /// The first unit to come that is not `here`; never.
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
    static constexpr std::size_t most = std::size_t{1} << 16; ///< that are kept of a pass

    [[nodiscard]] static std::int64_t hash_of(const std::vector<std::size_t>& units) {
        std::uint64_t hash = 14695981039346656037U;
        for (const std::size_t unit : units) {
            hash = hashed(hash, unit);
        }
        return static_cast<std::int64_t>(hash);
    }

    std::vector<std::size_t> order_;
    std::int64_t hash_ = hash_of(order_); ///< each gather asks for it
    std::size_t position_ = 0;            ///< in it, while this pass follows it
    bool follows_ = true;
    bool is_agreed_ = false;
    std::vector<std::size_t> seen_; ///< by a pass that does not
};

} // namespace rtrain::detail
