// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows of a table in memory, as boosting libraries read them, and their sources. Cost tier 0: std
/// only, so that the code that calls the libraries compiles without libtorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// The meaning of a column that is not a feature.
enum class Field : std::uint8_t { label, weight, base_margin, query, lower_bound, upper_bound };
inline constexpr std::size_t field_count = 6;

/// A column of a Field, for the rows of a block; null if the table has none.
struct FieldValues {
    const double* data = nullptr;
    std::int64_t width = 1; ///< values per row
};

/// Consecutive rows; `T` is float or double. Valid until the source is read again.
template <class T>
struct RowBlock {
    std::int64_t rows = 0;
    const T* values = nullptr; ///< rows × features, row by row; NaN for missing values
    std::array<FieldValues, field_count> fields{};

    [[nodiscard]] const FieldValues& operator[](Field field) const {
        return fields[static_cast<std::size_t>(field)];
    }
};

/// The features of a table.
struct Features {
    std::vector<std::string> names{};
    std::vector<bool> categorical{};

    [[nodiscard]] std::size_t size() const noexcept { return names.size(); }
    bool operator==(const Features&) const = default;
};

/// A table that is read in several passes.
template <class T>
class RowSource {
public:
    RowSource() = default;
    RowSource(const RowSource&) = delete;
    RowSource& operator=(const RowSource&) = delete;
    virtual ~RowSource() = default;

    [[nodiscard]] virtual const Features& features() const = 0;
    /// The number of rows of a pass.
    [[nodiscard]] virtual std::int64_t rows() = 0;
    /// Begins a pass.
    virtual void rewind() = 0;
    /// The next rows; none at the end of the pass.
    [[nodiscard]] virtual RowBlock<T> next() = 0;
};

/// Names and values of a round's metrics, such as "train-logloss".
using Metrics = std::vector<std::pair<std::string, double>>;

/// Names and texts of parameters, in the order in which a library gets them.
using Parameters = std::vector<std::pair<std::string, std::string>>;

} // namespace rtrain::gbdt
