// SPDX-License-Identifier: Apache-2.0
/// @file
/// Display: where a run shows itself. A Screen is one; a rank whose driver has the terminal has
/// another. Cost tier 0: std only.
#pragma once

#include <rtrain/console/bar.hpp>

#include <chrono>
#include <string_view>

namespace rtrain::console {

/// Any thread may call the members; none waits for who reads, but drain().
class Display {
public:
    Display() = default;
    Display(const Display&) = delete;
    Display& operator=(const Display&) = delete;
    virtual ~Display() = default;

    /// Whether a bar moves on it, so that several a second make sense.
    [[nodiscard]] virtual bool is_terminal() const = 0;
    [[nodiscard]] virtual int columns() const = 0;

    /// Lines that stay, above the bar.
    virtual void print(std::string_view lines) = 0;
    /// How far the run has come.
    virtual void show(const Progress& now) = 0;
    /// The bar is no more.
    virtual void take_off() = 0;
    /// Waits until all lines are written; false when `limit` came first.
    virtual bool drain(std::chrono::milliseconds limit) = 0;
};

} // namespace rtrain::console
