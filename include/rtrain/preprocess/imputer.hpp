// SPDX-License-Identifier: Apache-2.0
/// @file
/// SimpleImputer: fills in missing values. Rows that batch.valid() excludes, and NaN, are missing.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/categories.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/preprocess/moments.hpp>
#include <rtrain/preprocess/saved.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::preprocess {

/// Strategy of a SimpleImputer.
enum class Impute : unsigned char {
    mean,          ///< of each element; a column that is not floating-point becomes double
    most_frequent, ///< of texts or numbers, one per row; ties: the smallest
    constant,      ///< Options::fill_value; nothing is fitted
};

/// Replaces missing values.
///
/// @code
/// rtrain::preprocess::SimpleImputer ages({"age"}); // with the mean
/// rtrain::preprocess::SimpleImputer cities(
///     {"city"}, {.strategy = rtrain::preprocess::Impute::constant, .fill_value = "unknown"});
/// @endcode
class SimpleImputer {
public:
    /// Options of SimpleImputer.
    struct Options {
        Impute strategy = Impute::mean;                 ///< which value to fill in
        std::optional<Value> fill_value = std::nullopt; ///< for Impute::constant
        Names output_columns = {};
    };

    /// Throws DataError [RT-D59], also if strategy and fill_value are inconsistent.
    explicit SimpleImputer(Names columns) : SimpleImputer(std::move(columns), Options()) {}
    SimpleImputer(Names columns, Options options)
        : columns_(std::move(columns)), strategy_(options.strategy),
          output_(rtrain::detail::output_names(columns_, std::move(options.output_columns))) {
        if ((strategy_ == Impute::constant) != options.fill_value.has_value()) {
            throw DataError("RT-D59", "SimpleImputer needs a fill_value for the strategy constant, "
                                      "and supports it for no other");
        }
        if (options.fill_value) {
            fitted_.assign(columns_.size(), Fill{{}, *std::move(options.fill_value)});
        }
    }

    /// Throws DataError [RT-D2, RT-D56, RT-D57, RT-D58]. *Collective* if `ranks` is given. Reads
    /// nothing for Impute::constant.
    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        using namespace rtrain::detail;
        std::vector<Fill> fitted;
        if (strategy_ == Impute::mean) {
            gather(rows, ranks, OfColumns<Moments>(columns_))
                .each([&](const Moments& moments, const std::string& name) {
                    if (moments.lacks_values()) {
                        throw nothing_to_fit(name);
                    }
                    fitted.push_back({moments.mean(), {}});
                });
        } else if (strategy_ == Impute::most_frequent) {
            gather(rows, ranks, OfColumns<Counts>(columns_))
                .each([&](const Counts& counts, const std::string& name) {
                    const auto counted = counts.sorted(name);
                    fitted.push_back(
                        {{}, std::ranges::max_element(counted, {}, [](const auto& value) {
                                 return value.second;
                             })->first});
                });
        } else {
            return;
        }
        fitted_ = std::move(fitted);
    }

    /// Throws DataError [RT-D2, RT-D55], and [RT-D56] if the fill value and the column differ in
    /// type.
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        using namespace rtrain::detail;
        require_fitted(!fitted_.empty(), "SimpleImputer");
        ChangedBatch changed(batch);
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (is_ragged(batch, columns_[i])) {
                changed.set(output_[i], filled_text(batch, columns_[i], fitted_[i]));
            } else {
                changed.set(output_[i], filled(batch, columns_[i], fitted_[i]));
            }
        }
        return std::move(changed).finish();
    }

    void save(StateWriter& out) const {
        rtrain::detail::save_columns(
            out, columns_, !fitted_.empty(), [&](StateWriter& part, std::size_t i) {
                if (fitted_[i].mean.defined()) {
                    part.tensor("mean", fitted_[i].mean);
                } else {
                    rtrain::detail::Categories({fitted_[i].value}).save(part);
                }
            });
    }
    void load(const StateReader& in) {
        std::vector<Fill> fitted;
        static_cast<void>(
            rtrain::detail::load_columns(in, columns_, [&](const StateReader& part, std::size_t) {
                if (part.has_tensor("mean")) {
                    fitted.push_back({part.tensor("mean").clone(), {}});
                } else {
                    rtrain::detail::Categories value;
                    value.load(part);
                    fitted.push_back({{}, value.values().front()});
                }
            }));
        fitted_ = std::move(fitted);
    }

private:
    /// Fill value: means in the shape of a row, or a single value.
    struct Fill {
        at::Tensor mean;
        Value value;
    };

    [[nodiscard]] static at::Tensor filled(const data::Batch& batch, const std::string& name,
                                           const Fill& fill) {
        using namespace rtrain::detail;
        const at::Tensor& column = numeric_column(batch, name);
        at::Tensor missing = column.isnan();
        if (const at::Tensor valid = batch.valid(name); valid.defined()) {
            missing = missing.logical_or(as_rows(valid.logical_not(), column));
        }
        if (fill.mean.defined()) {
            if (column.sizes().slice(1) != fill.mean.sizes()) {
                throw wrong_column(name, concat("has rows of shape ", column.sizes().slice(1)),
                                   concat("rows of shape ", fill.mean.sizes(), ", as in fit()"));
            }
            const auto type = real_type(column);
            return at::where(missing, fill.mean.to(column.device()).to(type), column.to(type));
        }
        if (const auto* const integer = std::get_if<std::int64_t>(&fill.value)) {
            return column.masked_fill(missing, *integer);
        }
        if (const auto* const real = std::get_if<double>(&fill.value);
            real != nullptr && column.is_floating_point()) {
            return column.masked_fill(missing, *real);
        }
        throw wrong_column(name, "has numbers of a different type than the fill value",
                           kind_of(fill.value));
    }

    [[nodiscard]] static data::Ragged filled_text(const data::Batch& batch, const std::string& name,
                                                  const Fill& fill) {
        using namespace rtrain::detail;
        const auto* const text = std::get_if<std::string>(&fill.value);
        if (fill.mean.defined() || text == nullptr) {
            throw wrong_column(name, "is ragged", "numbers, like the fill value");
        }
        const ValueColumn column(batch, name);
        std::vector<Value> rows;
        for (std::int64_t row = 0; row < column.size(); ++row) {
            rows.push_back(column[row].value_or(*text));
        }
        data::Ragged whole = Categories::as_text(rows);
        const at::Device device = batch.ragged(name).values.device();
        return {whole.values.to(device), whole.offsets.to(device)};
    }

    Names columns_;
    Impute strategy_;
    Names output_;
    std::vector<Fill> fitted_; ///< empty before fit()
};

} // namespace rtrain::preprocess
