// SPDX-License-Identifier: Apache-2.0
/// @file
/// Agreement: something that all ranks know of this process, since they were at the same place.
/// Cost tier 0: std only.
#pragma once

namespace rtrain {

namespace data {
struct Position;
} // namespace data

/// Of the training thread.
class Agreement {
public:
    /// All ranks know; `pass`: the loop over batches that all of them are in, or null. The first
    /// counts.
    void agree(const data::Position* pass) noexcept {
        if (!agreed_) {
            agreed_ = true;
            agreed_in_ = pass;
        }
    }
    [[nodiscard]] bool agreed() const noexcept { return agreed_; }
    /// Whether all ranks have agreed in the loop over batches that `pass` is the place of.
    [[nodiscard]] bool agreed_in(const data::Position& pass) const noexcept {
        return agreed_ && agreed_in_ == &pass;
    }

protected:
    void forget() noexcept { *this = Agreement(); }

private:
    bool agreed_ = false;
    const data::Position* agreed_in_ = nullptr;
};

} // namespace rtrain
