// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lifetime: keeps pending operations from calling an object that is destroyed.
#pragma once

#include <memory>
#include <utility>

namespace rtrain::launch {

/// A member of an object whose handlers an io_context calls, all in the thread that destroys the
/// object. Cancelling an operation is not enough: its handler may already be queued.
class Lifetime {
public:
    Lifetime() = default;
    Lifetime(const Lifetime&) = delete;
    Lifetime& operator=(const Lifetime&) = delete;
    ~Lifetime() = default;

    /// Returns a handler that calls `action`, or does nothing once this object is destroyed.
    template <class F>
    [[nodiscard]] auto guard(F action) const {
        return [alive = std::weak_ptr<const bool>(alive_),
                action = std::move(action)](const auto&... arguments) {
            if (!alive.expired()) {
                action(arguments...);
            }
        };
    }

private:
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

} // namespace rtrain::launch
