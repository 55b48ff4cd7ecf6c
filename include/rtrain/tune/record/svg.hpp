// SPDX-License-Identifier: Apache-2.0
/// @file
/// Svg: a chart as inline SVG, with axes and shapes in data coordinates. No script.
#pragma once

#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/track/page/html.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune::internal {

/// The range of some numbers.
struct Extent {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();

    /// NaN and infinities are ignored.
    void add(double value) {
        if (std::isfinite(value)) {
            low = std::min(low, value);
            high = std::max(high, value);
        }
    }
    [[nodiscard]] bool empty() const noexcept { return low > high; }
    /// Position within the range, 0 to 1; 0.5 if all are equal.
    [[nodiscard]] double place(double value) const {
        return high > low ? (value - low) / (high - low) : 0.5;
    }
};

class Svg {
public:
    static constexpr double width = 720;
    static constexpr double height = 300;

    /// Creates axes labeled with the ends of both extents.
    Svg(Extent x, Extent y, const std::string& x_name, const std::string& y_name) : x_(x), y_(y) {
        shapes_ +=
            line(left, bottom, right, bottom, "grid") + line(left, top, left, bottom, "grid");
        text(left, bottom + 16, track::html::number(x.low), "start");
        text(right, bottom + 16, track::html::number(x.high), "end");
        text((left + right) / 2, bottom + 16, x_name, "middle");
        text(left - 6, bottom, track::html::number(y.low), "end");
        text(left - 6, top + 8, track::html::number(y.high), "end");
        text(left, top - 8, y_name, "start");
    }
    /// Creates a chart without axes.
    Svg() = default;

    [[nodiscard]] double at_x(double value) const {
        return left + x_.place(value) * (right - left);
    }
    [[nodiscard]] double at_y(double value) const {
        return bottom - y_.place(value) * (bottom - top);
    }

    /// Path through points in pixels; `of_class` is a class of the page's style, `more` are further
    /// attributes.
    void path(const std::vector<std::pair<double, double>>& points, const char* of_class,
              const std::string& title, const std::string& more = "") {
        if (points.empty()) {
            return;
        }
        std::string way;
        for (const auto& [x, y] : points) {
            way += (way.empty() ? "M" : "L") + pixels(x) + " " + pixels(y);
        }
        shapes_ += "<path class=\"" + std::string(of_class) + "\"" + more + " d=\"" + way + "\">" +
                   titled(title) + "</path>\n";
    }
    void dot(double x, double y, const std::string& title, const std::string& more = "") {
        shapes_ += "<circle cx=\"" + pixels(x) + "\" cy=\"" + pixels(y) + "\" r=\"3\"" + more +
                   ">" + titled(title) + "</circle>\n";
    }
    void text(double x, double y, const std::string& content, const char* anchor) {
        shapes_ += "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" text-anchor=\"" + anchor +
                   "\">" + track::html::escaped(content, longest_text) + "</text>\n";
    }
    void axis(double x) { shapes_ += line(x, top, x, bottom, "grid"); }

    /// The element; `label` describes it for screen readers.
    [[nodiscard]] std::string element(const std::string& label) const {
        return "<svg viewBox=\"0 0 720 300\" role=\"img\" aria-label=\"" +
               track::html::escaped(label) + "\">\n" + shapes_ + "</svg>\n";
    }

    static constexpr double left = 70;
    static constexpr double right = width - 20;
    static constexpr double top = 28;
    static constexpr double bottom = height - 30;

private:
    static constexpr std::size_t longest_text = 40;

    [[nodiscard]] static std::string pixels(double value) {
        return rtrain::detail::print("%.1f", value);
    }
    [[nodiscard]] static std::string titled(const std::string& title) {
        return title.empty() ? "" : "<title>" + track::html::escaped(title) + "</title>";
    }
    [[nodiscard]] static std::string line(double x, double y, double to_x, double to_y,
                                          const char* of_class) {
        return "<path class=\"" + std::string(of_class) + "\" d=\"M" + pixels(x) + " " + pixels(y) +
               "L" + pixels(to_x) + " " + pixels(to_y) + "\"/>\n";
    }

    Extent x_;
    Extent y_;
    std::string shapes_;
};

} // namespace rtrain::tune::internal
