// SPDX-License-Identifier: Apache-2.0
/// @file
/// Curve: a metric over the iterations of a run, in bounded memory. Of many reports it keeps the
/// lowest and the highest per bucket, so that no spike is lost. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::track {

class Curve {
public:
    struct Point {
        std::int64_t iteration = 0;
        double value = 0; ///< also NaN and infinities
    };

    /// Keeps at most three points per bucket. A bucket holds one point, and twice as many each time
    /// the buckets would exceed `most_buckets`, which is even.
    explicit Curve(std::size_t most_buckets) : most_buckets_(most_buckets) {}

    void add(Point point) {
        if (in_last_ == per_bucket_ || buckets_.empty()) {
            if (buckets_.size() == most_buckets_) {
                merge_pairs();
            }
            buckets_.emplace_back();
            in_last_ = 0;
        }
        Bucket& bucket = buckets_.back();
        const std::size_t place = count_++;
        if (!std::isfinite(point.value)) {
            bucket.gap = bucket.gap ? bucket.gap : Kept{place, point};
        } else {
            lower(bucket.lowest, Kept{place, point});
            raise(bucket.highest, Kept{place, point});
        }
        ++in_last_;
        first_ = first_ ? first_ : Kept{place, point};
        last_ = Kept{place, point};
    }

    /// The kept points, in insertion order: the first, the last, and for each bucket the lowest,
    /// the highest, and the first that is not finite.
    [[nodiscard]] std::vector<Point> points() const {
        std::vector<Kept> kept;
        const auto keep = [&kept](const std::optional<Kept>& point) {
            if (point) {
                kept.push_back(*point);
            }
        };
        keep(first_);
        for (const Bucket& bucket : buckets_) {
            keep(bucket.lowest);
            keep(bucket.highest);
            keep(bucket.gap);
        }
        keep(last_);
        std::sort(kept.begin(), kept.end(),
                  [](const Kept& a, const Kept& b) { return a.place < b.place; });
        std::vector<Point> points;
        for (std::size_t i = 0; i < kept.size(); ++i) {
            if (i == 0 || kept[i].place != kept[i - 1].place) {
                points.push_back(kept[i].point);
            }
        }
        return points;
    }

    /// The lowest finite value.
    [[nodiscard]] std::optional<Point> lowest() const {
        std::optional<Kept> found;
        for (const Bucket& bucket : buckets_) {
            lower(found, bucket.lowest);
        }
        return found ? std::optional(found->point) : std::nullopt;
    }
    [[nodiscard]] std::optional<Point> highest() const {
        std::optional<Kept> found;
        for (const Bucket& bucket : buckets_) {
            raise(found, bucket.highest);
        }
        return found ? std::optional(found->point) : std::nullopt;
    }

    /// Number of reports per bucket.
    [[nodiscard]] std::size_t per_bucket() const noexcept { return per_bucket_; }

private:
    struct Kept {
        std::size_t place; ///< among all points
        Point point;
    };
    struct Bucket {
        std::optional<Kept> lowest{};
        std::optional<Kept> highest{};
        std::optional<Kept> gap{};
    };

    static void lower(std::optional<Kept>& lowest, const std::optional<Kept>& other) {
        if (other && (!lowest || other->point.value < lowest->point.value)) {
            lowest = other;
        }
    }
    static void raise(std::optional<Kept>& highest, const std::optional<Kept>& other) {
        if (other && (!highest || other->point.value > highest->point.value)) {
            highest = other;
        }
    }

    /// Requires that all buckets are full.
    void merge_pairs() {
        for (std::size_t i = 0; i < buckets_.size() / 2; ++i) {
            Bucket merged = buckets_[2 * i];
            const Bucket& next = buckets_[2 * i + 1];
            lower(merged.lowest, next.lowest);
            raise(merged.highest, next.highest);
            merged.gap = merged.gap ? merged.gap : next.gap;
            buckets_[i] = merged;
        }
        buckets_.resize(buckets_.size() / 2);
        per_bucket_ *= 2;
    }

    std::size_t most_buckets_;
    std::size_t per_bucket_ = 1;
    std::size_t in_last_ = 0; ///< points in the last bucket
    std::size_t count_ = 0;
    std::vector<Bucket> buckets_;
    std::optional<Kept> first_;
    std::optional<Kept> last_;
};

/// Appends a number with seven digits, more than a chart shows.
inline void append_number(std::string& text, double value) {
    if (std::isnan(value)) {
        text += "null";
    } else if (std::isinf(value)) {
        text += value > 0 ? "\"inf\"" : "\"-inf\"";
    } else {
        std::array<char, 32> digits{};
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                       std::chars_format::general, 7);
        text += std::string_view(digits.data(), end.ptr);
    }
}

/// `{"x": [...], "y": [...], "per": reports for two points}`, without NaN: see json::finite().
[[nodiscard]] inline std::string to_json(const Curve& curve) {
    std::string x;
    std::string y;
    for (const Curve::Point& point : curve.points()) {
        x += (x.empty() ? "" : ",") + std::to_string(point.iteration);
        y += y.empty() ? "" : ",";
        append_number(y, point.value);
    }
    return "{\"x\":[" + x + "],\"y\":[" + y + "],\"per\":" + std::to_string(curve.per_bucket()) +
           "}";
}

} // namespace rtrain::track
