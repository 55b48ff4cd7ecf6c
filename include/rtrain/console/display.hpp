// SPDX-License-Identifier: Apache-2.0
/// @file
/// Display: the output of a run. A Screen is one; a rank whose driver owns the terminal uses a
/// different one. Cost tier 0: std only.
#pragma once

#include <rtrain/console/bar.hpp>

#include <chrono>
#include <string_view>

namespace rtrain::console {

/// The members are thread-safe; only drain() waits for a reader.
class Display {
public:
    Display() = default;
    Display(const Display&) = delete;
    Display& operator=(const Display&) = delete;
    virtual ~Display() = default;

    /// True if it shows a moving bar, so that several updates a second make sense.
    [[nodiscard]] virtual bool is_terminal() const = 0;
    [[nodiscard]] virtual int columns() const = 0;

    /// Prints permanent lines above the bar.
    virtual void print(std::string_view lines) = 0;
    /// Shows the progress of the run.
    virtual void show(const Progress& now) = 0;
    /// Removes the bar.
    virtual void take_off() = 0;
    /// Blocks until all lines are written; false after `limit`.
    virtual bool drain(std::chrono::milliseconds limit) = 0;
};

} // namespace rtrain::console
