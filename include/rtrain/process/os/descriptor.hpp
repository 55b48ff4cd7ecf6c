// SPDX-License-Identifier: Apache-2.0
/// @file
/// A file descriptor with an owner. Cost tier 0: std only.
#pragma once

#include <utility>

#include <unistd.h>

namespace rtrain::process {

/// Closes its descriptor on destruction.
class Descriptor {
public:
    explicit Descriptor(int number = -1) noexcept : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() {
        if (number_ >= 0) {
            ::close(number_);
        }
    }
    [[nodiscard]] int get() const noexcept { return number_; }

private:
    int number_;
};

} // namespace rtrain::process
