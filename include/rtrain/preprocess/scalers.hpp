// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preprocessors that shift and scale numbers. Each element of a column's rows is scaled
/// separately, like a column. Rows without a value, and NaN, are ignored in fit(), and NaN after
/// transform(). Floats keep their type; other numbers become double. Works on any device.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/preprocess/moments.hpp>
#include <rtrain/preprocess/saved.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// (x - shift) / scale, for each column.
class Scaler {
public:
    /// Throws DataError [RT-D59].
    Scaler(std::string_view name, preprocess::Names columns, preprocess::Names output_columns)
        : name_(name), columns_(std::move(columns)),
          output_(output_names(columns_, std::move(output_columns))) {}

    /// `scaling(moments)` returns shift and scale.
    template <class Scaling>
    void fit(const data::Dataset& rows, HookRanks* ranks, const Scaling& scaling) {
        std::vector<Linear> fitted;
        gather(rows, ranks, OfColumns<Moments>(columns_))
            .each([&](const Moments& moments, const std::string& name) {
                if (moments.lacks_values()) {
                    throw nothing_to_fit(name);
                }
                fitted.push_back(scaling(moments));
            });
        fitted_ = std::move(fitted);
    }

    /// Throws DataError [RT-D2, RT-D55, RT-D56].
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        require_fitted(!fitted_.empty(), name_);
        ChangedBatch changed(batch);
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            const at::Tensor& column = numeric_column(batch, columns_[i]);
            const auto& [shift, scale] = fitted_[i];
            if (column.sizes().slice(1) != shift.sizes()) {
                throw wrong_column(columns_[i],
                                   concat("has rows of shape ", column.sizes().slice(1)),
                                   concat("rows of shape ", shift.sizes(), ", as in fit()"));
            }
            changed.set(output_[i], numbers(batch, columns_[i])
                                        .sub(shift.to(column.device()))
                                        .div(scale.to(column.device()))
                                        .to(real_type(column)));
        }
        return std::move(changed).finish();
    }

    void save(StateWriter& out) const {
        save_columns(out, columns_, !fitted_.empty(), [&](StateWriter& part, std::size_t i) {
            part.tensor("shift", fitted_[i].shift);
            part.tensor("scale", fitted_[i].scale);
        });
    }
    void load(const StateReader& in) {
        std::vector<Linear> fitted;
        static_cast<void>(load_columns(in, columns_, [&](const StateReader& part, std::size_t) {
            fitted.push_back({part.tensor("shift").clone(), part.tensor("scale").clone()});
        }));
        fitted_ = std::move(fitted);
    }

    struct Linear {
        at::Tensor shift; ///< double, in the shape of a row
        at::Tensor scale; ///< the same
    };
    /// Shift and scale of the column `name`. Throws DataError [RT-D2, RT-D55].
    [[nodiscard]] const Linear& of(std::string_view name) const {
        require_fitted(!fitted_.empty(), name_);
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (columns_[i] == name) {
                return fitted_[i];
            }
        }
        throw DataError("RT-D2", concat(name_, " has no column \"", name, "\""));
    }

private:
    std::string_view name_;
    preprocess::Names columns_;
    preprocess::Names output_;
    std::vector<Linear> fitted_; ///< empty before fit()
};

} // namespace rtrain::detail

namespace rtrain::preprocess {

/// (x - mean) / s, where s is the population standard deviation (divided by n). A constant column
/// becomes zeros: its s is 1. Matches scikit-learn's StandardScaler, which also treats columns as
/// constant that differ only in the last digits.
///
/// @code
/// rtrain::preprocess::StandardScaler scaler({"height", "weight"});
/// worker.fit(scaler, "train");
/// @endcode
class StandardScaler : rtrain::detail::Scaler {
public:
    /// Results replace the columns unless `output_columns` names others. Throws DataError [RT-D59].
    explicit StandardScaler(Names columns, Names output_columns = {})
        : Scaler("StandardScaler", std::move(columns), std::move(output_columns)) {}

    /// Throws DataError [RT-D2, RT-D56, RT-D57, RT-D58]. *Collective* if `ranks` is given.
    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        Scaler::fit(rows, ranks, [](const rtrain::detail::Moments& moments) {
            return Linear{moments.mean(), moments.scale()};
        });
    }

    /// Mean of a column, double in the shape of a row. Throws DataError [RT-D2, RT-D55].
    [[nodiscard]] const at::Tensor& mean(std::string_view column) const { return of(column).shift; }
    /// The divisor of a column.
    [[nodiscard]] const at::Tensor& scale(std::string_view column) const {
        return of(column).scale;
    }

    using Scaler::load;
    using Scaler::save;
    using Scaler::transform;
};

/// (x - min) / (max - min): from 0 to 1 on the fitted rows. A constant column becomes zeros.
class MinMaxScaler : rtrain::detail::Scaler {
public:
    /// Same parameters and errors as StandardScaler.
    explicit MinMaxScaler(Names columns, Names output_columns = {})
        : Scaler("MinMaxScaler", std::move(columns), std::move(output_columns)) {}

    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        Scaler::fit(rows, ranks, [](const rtrain::detail::Moments& moments) {
            return Linear{moments.least(), moments.range()};
        });
    }

    /// Minimum of a column.
    [[nodiscard]] const at::Tensor& min(std::string_view column) const { return of(column).shift; }
    /// The divisor of a column.
    [[nodiscard]] const at::Tensor& scale(std::string_view column) const {
        return of(column).scale;
    }

    using Scaler::load;
    using Scaler::save;
    using Scaler::transform;
};

} // namespace rtrain::preprocess
