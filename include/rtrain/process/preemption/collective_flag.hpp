// SPDX-License-Identifier: Apache-2.0
/// @file
/// Agreement: a condition of this process on which all ranks have agreed at the same point. Cost
/// tier 0: std only.
#pragma once

namespace rtrain {

namespace data {
struct Position;
} // namespace data

/// Used by the training thread only.
class CollectiveFlag {
public:
    /// All ranks have agreed. `pass`: the loop over batches that all of them are in, or null. The
    /// first call counts.
    void agree(const data::Position* pass) noexcept {
        if (!agreed_) {
            agreed_ = true;
            agreed_in_ = pass;
        }
    }
    [[nodiscard]] bool agreed() const noexcept { return agreed_; }
    /// True if all ranks have agreed in the loop over batches at position `pass`.
    [[nodiscard]] bool agreed_in(const data::Position& pass) const noexcept {
        return agreed_ && agreed_in_ == &pass;
    }

protected:
    void forget() noexcept { *this = CollectiveFlag(); }

private:
    bool agreed_ = false;
    const data::Position* agreed_in_ = nullptr;
};

} // namespace rtrain
