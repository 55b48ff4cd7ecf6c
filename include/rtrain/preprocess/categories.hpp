// SPDX-License-Identifier: Apache-2.0
/// @file
/// Values of categorical columns: one string, integer or real number per row.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::preprocess {

/// A value of a column. Booleans are the integers 0 and 1.
using Value = std::variant<std::int64_t, double, std::string>;

} // namespace rtrain::preprocess

namespace rtrain::detail {

[[nodiscard]] inline const char* kind_of(const preprocess::Value& value) noexcept {
    constexpr const char* kinds[] = {"integers", "real numbers", "text"};
    return kinds[value.index()];
}

/// A column with one value per row.
class ValueColumn {
public:
    /// Throws DataError [RT-D2, RT-D56].
    ValueColumn(const data::Batch& batch, const std::string& name) {
        if (const at::Tensor valid = batch.valid(name); valid.defined()) {
            valid_ = valid.cpu().contiguous();
        }
        if (is_ragged(batch, name)) {
            const data::Ragged& column = batch.ragged(name);
            if (column.values.scalar_type() != at::kByte || column.values.dim() != 1) {
                throw wrong_column(name, "has lists", "one text or number in each row");
            }
            text_ = {column.values.cpu().contiguous(), column.offsets.cpu().contiguous()};
            rows_ = text_.size();
            return;
        }
        const at::Tensor& column = numeric_column(batch, name);
        if (column.numel() != column.size(0)) {
            throw wrong_column(name, concat("has shape ", column.sizes()),
                               "one text or number in each row");
        }
        rows_ = column.size(0);
        (column.is_floating_point() ? real_ : integer_) =
            column.flatten()
                .to(column.is_floating_point() ? at::kDouble : at::kLong)
                .cpu()
                .contiguous();
    }

    [[nodiscard]] std::int64_t size() const noexcept { return rows_; }

    /// Empty for a row without a value.
    [[nodiscard]] std::optional<preprocess::Value> operator[](std::int64_t row) const {
        if (valid_.defined() && !valid_.const_data_ptr<bool>()[row]) {
            return std::nullopt;
        }
        if (integer_.defined()) {
            return integer_.const_data_ptr<std::int64_t>()[row];
        }
        if (real_.defined()) {
            const double value = real_.const_data_ptr<double>()[row];
            return std::isnan(value) ? std::nullopt : std::optional<preprocess::Value>(value);
        }
        return std::string(text_.text(row));
    }

private:
    std::int64_t rows_ = 0;
    data::Ragged text_;
    at::Tensor integer_, real_, valid_;
};

/// Returns the error of an encoder for a row without a value.
[[nodiscard]] inline DataError missing_value(const std::string& name) {
    return DataError("RT-D57",
                     concat("column \"", name,
                            "\" has rows without a value; put a SimpleImputer before it, or "
                            "remove these rows"));
}

/// Counts the occurrences of each value in a column.
class Counts {
public:
    /// Throws DataError [RT-D2, RT-D56].
    void add(const data::Batch& batch, const std::string& name) {
        if (batch.size() == 0) {
            return;
        }
        const ValueColumn column(batch, name);
        for (std::int64_t row = 0; row < column.size(); ++row) {
            if (auto value = column[row]) {
                ++counts_[*std::move(value)];
            } else {
                ++missing_;
            }
        }
    }
    void merge(const Counts& next, const std::string& /*name*/) {
        for (const auto& [value, count] : next.counts_) {
            counts_[value] += count;
        }
        missing_ += next.missing_;
    }

    void pack(Packer& out) const {
        out.put(missing_);
        out.put(counts_.size());
        for (const auto& [value, count] : counts_) {
            out.put(value.index());
            std::visit([&](const auto& held) { out.put(held); }, value);
            out.put(count);
        }
    }
    void unpack(Unpacker& in) {
        missing_ = in.take<std::int64_t>();
        for (auto left = in.take<std::size_t>(); left > 0; --left) {
            const auto index = in.take<std::size_t>();
            preprocess::Value value = index == 0   ? preprocess::Value(in.take<std::int64_t>())
                                      : index == 1 ? preprocess::Value(in.take<double>())
                                                   : preprocess::Value(in.take_text());
            counts_[std::move(value)] = in.take<std::int64_t>();
        }
    }

    [[nodiscard]] std::int64_t missing() const noexcept { return missing_; }

    /// Returns values and counts sorted by value: numbers numerically, text by bytes. Throws
    /// DataError [RT-D56] if the column was text in one block and numbers in another, [RT-D58] if
    /// it has no value.
    [[nodiscard]] std::vector<std::pair<preprocess::Value, std::int64_t>>
    sorted(const std::string& name) const {
        std::vector<std::pair<preprocess::Value, std::int64_t>> values(counts_.begin(),
                                                                       counts_.end());
        std::ranges::sort(values);
        if (values.empty()) {
            throw nothing_to_fit(name);
        }
        if (values.front().first.index() != values.back().first.index()) {
            throw wrong_column(name,
                               concat("is ", kind_of(values.front().first), " in some rows and ",
                                      kind_of(values.back().first), " in others"),
                               "one type");
        }
        return values;
    }

private:
    std::unordered_map<preprocess::Value, std::int64_t> counts_;
    std::int64_t missing_ = 0;
};

/// The numbered categories of a column.
class Categories {
public:
    Categories() = default;
    /// `values`: at least one; all of one kind.
    explicit Categories(std::vector<preprocess::Value> values) : values_(std::move(values)) {
        for (const preprocess::Value& value : values_) {
            numbers_.emplace(value, static_cast<std::int64_t>(numbers_.size()));
        }
    }

    [[nodiscard]] const std::vector<preprocess::Value>& values() const noexcept { return values_; }

    /// Returns the category number of each row, int64 of shape (rows); -1 for an unknown value.
    /// Throws DataError [RT-D2, RT-D56, RT-D57].
    [[nodiscard]] at::Tensor numbers_of(const data::Batch& batch, const std::string& name) const {
        const ValueColumn column(batch, name);
        at::Tensor numbers = at::empty({column.size()}, at::kLong);
        auto* const number = numbers.mutable_data_ptr<std::int64_t>();
        for (std::int64_t row = 0; row < column.size(); ++row) {
            const auto value = column[row];
            if (!value) {
                throw missing_value(name);
            }
            if (value->index() != values_.front().index()) {
                throw wrong_column(name, concat("holds ", kind_of(*value)),
                                   concat(kind_of(values_.front()), ", as in fit()"));
            }
            const auto found = numbers_.find(*value);
            number[row] = found == numbers_.end() ? -1 : found->second;
        }
        return numbers;
    }

    /// Writes the values with these numbers as a column. Each number must be in [0,
    /// values().size()).
    void put_values(ChangedBatch& batch, const std::string& name, const at::Tensor& numbers) const {
        const auto* const number = numbers.const_data_ptr<std::int64_t>();
        std::vector<preprocess::Value> rows;
        for (std::int64_t row = 0; row < numbers.numel(); ++row) {
            rows.push_back(values_[static_cast<std::size_t>(number[row])]);
        }
        if (std::holds_alternative<std::string>(values_.front())) {
            batch.set(name, as_text(rows));
        } else {
            batch.set(name, as_tensor(rows, values_.front().index()));
        }
    }

    /// Saves text as bytes, so it need not be UTF-8.
    void save(StateWriter& out) const {
        if (std::holds_alternative<std::string>(values_.front())) {
            const data::Ragged text = as_text(values_);
            out.tensor("text", text.values);
            out.tensor("offsets", text.offsets);
        } else {
            out.tensor("values", as_tensor(values_, values_.front().index()));
        }
    }
    void load(const StateReader& in) {
        std::vector<preprocess::Value> values;
        if (in.has_tensor("offsets")) {
            const data::Ragged text{in.tensor("text").contiguous(),
                                    in.tensor("offsets").contiguous()};
            for (std::int64_t i = 0; i < text.size(); ++i) {
                values.emplace_back(std::string(text.text(i)));
            }
        } else {
            const at::Tensor numbers = in.tensor("values").contiguous();
            for (std::int64_t i = 0; i < numbers.numel(); ++i) {
                numbers.is_floating_point()
                    ? values.emplace_back(numbers.const_data_ptr<double>()[i])
                    : values.emplace_back(numbers.const_data_ptr<std::int64_t>()[i]);
            }
        }
        *this = Categories(std::move(values));
    }

    [[nodiscard]] static data::Ragged as_text(const std::vector<preprocess::Value>& values) {
        at::Tensor offsets = at::zeros({static_cast<std::int64_t>(values.size()) + 1}, at::kLong);
        auto* offset = offsets.mutable_data_ptr<std::int64_t>();
        std::string text;
        for (const preprocess::Value& value : values) {
            text += std::get<std::string>(value);
            *++offset = static_cast<std::int64_t>(text.size());
        }
        return {to_bytes(text), std::move(offsets)};
    }

private:
    [[nodiscard]] static at::Tensor as_tensor(const std::vector<preprocess::Value>& values,
                                              std::size_t kind) {
        at::Tensor numbers = at::empty({static_cast<std::int64_t>(values.size())},
                                       kind == 0 ? at::kLong : at::kDouble);
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (kind == 0) {
                numbers.mutable_data_ptr<std::int64_t>()[i] = std::get<std::int64_t>(values[i]);
            } else {
                numbers.mutable_data_ptr<double>()[i] = std::get<double>(values[i]);
            }
        }
        return numbers;
    }

    std::vector<preprocess::Value> values_;
    std::unordered_map<preprocess::Value, std::int64_t> numbers_;
};

} // namespace rtrain::detail
