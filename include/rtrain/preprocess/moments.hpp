// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mean, variance and range of each element of a column's rows, ignoring missing values and NaN.
/// Sums are plain loops in double: torch's own would depend on the number of threads.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/preprocess/columns.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace rtrain::detail {

class Moments {
public:
    /// Throws DataError [RT-D2, RT-D56, RT-D57].
    void add(const data::Batch& batch, const std::string& name) {
        if (batch.size() == 0) {
            return;
        }
        const at::Tensor rows = numbers(batch, name).cpu().contiguous();
        Moments piece(rows.sizes().slice(1).vec());
        const auto width = piece.elements_.size();
        const auto* const values = rows.const_data_ptr<double>();
        const auto count = static_cast<std::size_t>(rows.numel());
        for (std::size_t i = 0; i < count; ++i) {
            piece.elements_[i % width].see(values[i], name);
        }
        for (Element& element : piece.elements_) {
            element.mean = element.count > 0
                               ? element.first + element.mean / static_cast<double>(element.count)
                               : 0;
        }
        for (std::size_t i = 0; i < count; ++i) {
            piece.elements_[i % width].see_deviation(values[i]);
        }
        merge(piece, name);
    }

    /// Pairwise, following T. Chan, G. Golub, R. LeVeque: Updating formulae and a pairwise
    /// algorithm for computing sample variances, 1979. Throws DataError [RT-D56] if rows differ in
    /// shape.
    void merge(const Moments& next, const std::string& name) {
        if (next.is_empty_) {
            return;
        }
        if (is_empty_) {
            *this = next;
            return;
        }
        if (shape_ != next.shape_) {
            throw wrong_column(name,
                               concat("has rows of shapes ", at::IntArrayRef(shape_), " and ",
                                      at::IntArrayRef(next.shape_)),
                               "one shape");
        }
        for (std::size_t i = 0; i < elements_.size(); ++i) {
            elements_[i].merge(next.elements_[i]);
        }
    }

    void pack(Packer& out) const {
        out.put(is_empty_);
        out.put(shape_);
        for (const auto& [count, mean, squares, least, most, first] : elements_) {
            out.put(count);
            out.put(mean);
            out.put(squares);
            out.put(least);
            out.put(most);
        }
    }
    void unpack(Unpacker& in) {
        is_empty_ = in.take<bool>();
        shape_ = in.take_vector<std::int64_t>();
        elements_.resize(is_empty_ ? 0 : width_of(shape_));
        for (auto& [count, mean, squares, least, most, first] : elements_) {
            count = in.take<std::int64_t>();
            mean = in.take<double>();
            squares = in.take<double>();
            least = in.take<double>();
            most = in.take<double>();
        }
    }

    /// True if an element has no value in any row.
    [[nodiscard]] bool lacks_values() const {
        bool lacks = is_empty_;
        for (const Element& element : elements_) {
            lacks = lacks || element.count == 0;
        }
        return lacks;
    }

    /// Mean of each element, double in the shape of a row.
    [[nodiscard]] at::Tensor mean() const {
        return each([](const Element& element) { return element.mean; });
    }
    /// Population standard deviation of each element; 1 if all values are equal.
    [[nodiscard]] at::Tensor scale() const {
        return each([](const Element& element) {
            const double scale = std::sqrt(element.squares / static_cast<double>(element.count));
            return scale > 0 ? scale : 1.0;
        });
    }
    [[nodiscard]] at::Tensor least() const {
        return each([](const Element& element) { return element.least; });
    }
    /// Maximum minus minimum of each element; 1 if they are equal.
    [[nodiscard]] at::Tensor range() const {
        return each([](const Element& element) {
            return element.most > element.least ? element.most - element.least : 1.0;
        });
    }

    Moments() = default;

private:
    struct Element {
        std::int64_t count = 0;
        double mean = 0;    ///< while a piece is summed: sum of differences from `first`
        double squares = 0; ///< sum of squared deviations from the mean
        double least = std::numeric_limits<double>::infinity();
        double most = -std::numeric_limits<double>::infinity();
        double first = 0; ///< first value of a piece; shifts its sums to avoid cancellation

        void see(double value, const std::string& name) {
            if (std::isinf(value)) {
                throw DataError("RT-D57",
                                concat("column \"", name,
                                       "\" holds an infinite value, which has no mean and "
                                       "no range; map it to a number, or to NaN"));
            }
            if (!std::isnan(value)) {
                first = count++ == 0 ? value : first;
                mean += value - first;
                least = std::fmin(least, value);
                most = std::fmax(most, value);
            }
        }
        void see_deviation(double value) {
            if (!std::isnan(value)) {
                squares += (value - mean) * (value - mean);
            }
        }
        void merge(const Element& next) {
            if (next.count == 0) {
                return;
            }
            const auto mine = static_cast<double>(count);
            const auto its = static_cast<double>(next.count);
            const double away = next.mean - mean;
            count += next.count;
            mean += away * (its / (mine + its));
            squares += next.squares + away * away * (mine * its / (mine + its));
            least = std::fmin(least, next.least);
            most = std::fmax(most, next.most);
        }
    };

    explicit Moments(std::vector<std::int64_t> shape)
        : is_empty_(false), shape_(std::move(shape)), elements_(width_of(shape_)) {}

    [[nodiscard]] static std::size_t width_of(const std::vector<std::int64_t>& shape) {
        std::int64_t width = 1;
        for (const std::int64_t size : shape) {
            width *= size;
        }
        return static_cast<std::size_t>(width);
    }

    template <class Of>
    [[nodiscard]] at::Tensor each(const Of& of) const {
        at::Tensor values = at::empty(shape_, at::kDouble);
        auto* const value = values.mutable_data_ptr<double>();
        for (std::size_t i = 0; i < elements_.size(); ++i) {
            value[i] = of(elements_[i]);
        }
        return values;
    }

    bool is_empty_ = true;
    std::vector<std::int64_t> shape_; ///< of a row
    std::vector<Element> elements_;   ///< of a row
};

} // namespace rtrain::detail
