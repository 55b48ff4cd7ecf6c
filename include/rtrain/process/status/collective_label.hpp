// SPDX-License-Identifier: Apache-2.0
/// @file
/// Labels for the current reductions, so that errors and hang reports can name them.
/// Cost tier 0: std only; any room may include it.
#pragma once

#include <string>
#include <utility>

namespace rtrain {

/// @code
/// const Purpose purpose("gradients of \"0.weight\"");
/// auto reduction = backend.all_reduce_async(bucket, ReduceOp::sum); // is named so
/// @endcode
class CollectiveLabel {
public:
    explicit CollectiveLabel(std::string text)
        : outer_(std::exchange(mutable_current(), std::move(text))) {}
    CollectiveLabel(const CollectiveLabel&) = delete;
    CollectiveLabel& operator=(const CollectiveLabel&) = delete;
    ~CollectiveLabel() { mutable_current() = std::move(outer_); }

    /// The label of this thread; empty if there is none.
    [[nodiscard]] static const std::string& current() noexcept { return mutable_current(); }

private:
    [[nodiscard]] static std::string& mutable_current() noexcept {
        static thread_local std::string text;
        return text;
    }

    std::string outer_;
};

} // namespace rtrain
