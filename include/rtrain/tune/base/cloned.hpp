// SPDX-License-Identifier: Apache-2.0
/// @file
/// A copyable value of a type chosen at run time. Cost tier 0: std only.
#pragma once

#include <memory>
#include <utility>

namespace rtrain::tune::internal {

/// Owns an `Interface`; copies are made with its `clone()`.
template <class Interface>
class Cloned {
public:
    Cloned() = default;
    explicit Cloned(std::unique_ptr<Interface> object) noexcept : object_(std::move(object)) {}
    Cloned(const Cloned& other) : object_(other.object_->clone()) {}
    Cloned(Cloned&&) noexcept = default;
    Cloned& operator=(Cloned other) noexcept {
        object_ = std::move(other.object_);
        return *this;
    }
    ~Cloned() = default;

    [[nodiscard]] Interface* operator->() noexcept { return object_.get(); }
    [[nodiscard]] const Interface* operator->() const noexcept { return object_.get(); }

private:
    std::unique_ptr<Interface> object_;
};

} // namespace rtrain::tune::internal
