// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preprocessors that number categories: text, integers or real numbers, one per row. Rows without
/// a value are an error in fit() and transform(), as in Ray: put a SimpleImputer before them. They
/// compute on the CPU; results are on the device of the batch's tensors.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/categories.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/preprocess/saved.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Base of the encoders: the categories of each column.
class Encoder {
public:
    /// Throws DataError [RT-D59].
    Encoder(std::string_view name, preprocess::Names columns, preprocess::Names output_columns)
        : name_(name), columns_(std::move(columns)),
          output_(output_names(columns_, std::move(output_columns))) {}

    /// `select(counted values, column)` returns the categories.
    template <class Select>
    void fit(const data::Dataset& rows, HookRanks* ranks, const Select& select) {
        std::vector<Categories> fitted;
        gather(rows, ranks, OfColumns<Counts>(columns_))
            .each([&](const Counts& counts, const std::string& name) {
                if (counts.missing() > 0) {
                    throw missing_value(name);
                }
                std::vector<preprocess::Value> values;
                for (auto& [value, count] : select(counts.sorted(name), name)) {
                    values.push_back(std::move(value));
                }
                fitted.emplace_back(std::move(values));
            });
        fitted_ = std::move(fitted);
    }

    /// Calls `set(changed batch, output column, numbers, number of categories)` for each column.
    template <class Set>
    [[nodiscard]] data::Batch transform(const data::Batch& batch, const Set& set) const {
        require_fitted(!fitted_.empty(), name_);
        ChangedBatch changed(batch);
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            const at::Device device = is_ragged(batch, columns_[i])
                                          ? batch.ragged(columns_[i]).values.device()
                                          : batch[columns_[i]].device();
            set(changed, output_[i], fitted_[i].numbers_of(batch, columns_[i]).to(device),
                static_cast<std::int64_t>(fitted_[i].values().size()));
        }
        return std::move(changed).finish();
    }

    void save(StateWriter& out) const {
        save_columns(out, columns_, !fitted_.empty(),
                     [&](StateWriter& part, std::size_t i) { fitted_[i].save(part); });
    }
    void load(const StateReader& in) {
        std::vector<Categories> fitted;
        static_cast<void>(load_columns(in, columns_, [&](const StateReader& part, std::size_t) {
            fitted.emplace_back().load(part);
        }));
        fitted_ = std::move(fitted);
    }

    /// The categories of the column `name`. Throws DataError [RT-D2, RT-D55].
    [[nodiscard]] const Categories& of(std::string_view name) const {
        require_fitted(!fitted_.empty(), name_);
        const auto found = std::ranges::find(columns_, name);
        if (found == columns_.end()) {
            throw DataError("RT-D2", concat(name_, " has no column \"", name, "\""));
        }
        return fitted_[static_cast<std::size_t>(found - columns_.begin())];
    }
    /// The categories of a column, by index. Throws DataError [RT-D2, RT-D55].
    [[nodiscard]] const std::vector<preprocess::Value>& categories(std::string_view name) const {
        return of(name).values();
    }
    [[nodiscard]] const preprocess::Names& columns() const noexcept { return columns_; }
    [[nodiscard]] const preprocess::Names& output() const noexcept { return output_; }

private:
    std::string_view name_;
    preprocess::Names columns_;
    preprocess::Names output_;
    std::vector<Categories> fitted_; ///< empty before fit()
};

/// Selects all categories, sorted by value.
[[nodiscard]] inline auto all_categories() {
    return [](auto counted, const std::string& /*name*/) { return counted; };
}

/// Sets int64 numbers; values unknown to fit() are -1, and masked as missing.
[[nodiscard]] inline auto set_numbers() {
    return [](ChangedBatch& changed, const std::string& name, const at::Tensor& numbers,
              std::int64_t /*categories*/) {
        const at::Tensor known = numbers.ge(0);
        changed.set(name, numbers, known.all().item<bool>() ? at::Tensor() : known);
    };
}

} // namespace rtrain::detail

namespace rtrain::preprocess {

/// Replaces categories by their index in sorted order: int64 of shape (rows). A value unknown to
/// fit() is -1 and counts as missing: batch.valid(column) is false there.
///
/// @code
/// rtrain::preprocess::OrdinalEncoder encoder({"level"}); // "L3", "L4", "L5" become 0, 1, 2
/// @endcode
class OrdinalEncoder : rtrain::detail::Encoder {
public:
    /// Results replace the columns unless `output_columns` names others. Throws DataError [RT-D59].
    explicit OrdinalEncoder(Names columns, Names output_columns = {})
        : Encoder("OrdinalEncoder", std::move(columns), std::move(output_columns)) {}

    /// Throws DataError [RT-D2, RT-D56, RT-D57, RT-D58]. *Collective* if `ranks` is given.
    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        Encoder::fit(rows, ranks, rtrain::detail::all_categories());
    }
    /// Throws DataError [RT-D2, RT-D55, RT-D56, RT-D57].
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        return Encoder::transform(batch, rtrain::detail::set_numbers());
    }
    using Encoder::categories;

    using Encoder::load;
    using Encoder::save;
};

/// One-hot encoding: uint8 of shape (rows, categories), in the order of the categories. A value
/// that is unknown to fit(), or too rare, is all zeros.
class OneHotEncoder : rtrain::detail::Encoder {
public:
    /// Options of OneHotEncoder.
    struct Options {
        /// Maximum number of categories of a column: the most frequent ones, in descending
        /// frequency; ties in ascending order of value.
        std::map<std::string, std::int64_t> max_categories = {};
        Names output_columns = {};
    };

    /// Throws DataError [RT-D59].
    explicit OneHotEncoder(Names columns) : OneHotEncoder(std::move(columns), Options()) {}
    OneHotEncoder(Names columns, Options options)
        : Encoder("OneHotEncoder", std::move(columns), std::move(options.output_columns)),
          max_categories_(std::move(options.max_categories)) {
        for (const auto& [name, most] : max_categories_) {
            if (most < 1 ||
                std::ranges::find(Encoder::columns(), name) == Encoder::columns().end()) {
                throw DataError("RT-D59",
                                rtrain::detail::concat("OneHotEncoder: max_categories has ", most,
                                                       " for \"", name,
                                                       "\"; expected at least 1, for one of its "
                                                       "columns"));
            }
        }
    }

    /// Same as OrdinalEncoder::fit().
    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        Encoder::fit(rows, ranks, [&](auto counted, const std::string& name) {
            if (const auto most = max_categories_.find(name); most != max_categories_.end()) {
                std::ranges::stable_sort(
                    counted, [](const auto& a, const auto& b) { return a.second > b.second; });
                counted.resize(std::min(counted.size(), static_cast<std::size_t>(most->second)));
            }
            return counted;
        });
    }
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        return Encoder::transform(batch, [](rtrain::detail::ChangedBatch& changed,
                                            const std::string& name, const at::Tensor& numbers,
                                            std::int64_t categories) {
            changed.set(
                name,
                at::arange(categories, numbers.options()).eq(numbers.unsqueeze(1)).to(at::kByte));
        });
    }
    using Encoder::categories;

    using Encoder::load;
    using Encoder::save;

private:
    std::map<std::string, std::int64_t> max_categories_;
};

/// Maps the labels of a classifier to numbers and back. Like OrdinalEncoder, for one column.
class LabelEncoder : rtrain::detail::Encoder {
public:
    explicit LabelEncoder(std::string label_column, std::string output_column = "")
        : Encoder("LabelEncoder", {std::move(label_column)},
                  output_column.empty() ? Names() : Names{std::move(output_column)}) {}

    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        Encoder::fit(rows, ranks, rtrain::detail::all_categories());
    }
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        return Encoder::transform(batch, rtrain::detail::set_numbers());
    }
    /// Maps numbers, such as predictions, back to labels. Throws DataError [RT-D2, RT-D55], and
    /// [RT-D56] for an invalid label number.
    [[nodiscard]] data::Batch inverse_transform(const data::Batch& batch) const {
        const auto& categories = of(columns().front());
        const std::string& name = output().front();
        const at::Tensor numbers =
            rtrain::detail::numeric_column(batch, name).to(at::kLong).cpu().contiguous();
        const auto labels = static_cast<std::int64_t>(categories.values().size());
        if (numbers.dim() != 1 || numbers.lt(0).logical_or(numbers.ge(labels)).any().item<bool>()) {
            throw rtrain::detail::wrong_column(
                name, "has values that are not label numbers",
                rtrain::detail::concat("one number in each row, from 0 to ", labels - 1));
        }
        rtrain::detail::ChangedBatch changed(batch);
        categories.put_values(changed, columns().front(), numbers);
        return std::move(changed).finish();
    }
    /// The labels, by number. Throws DataError [RT-D55].
    [[nodiscard]] const std::vector<Value>& labels() const {
        return of(columns().front()).values();
    }

    using Encoder::load;
    using Encoder::save;
};

} // namespace rtrain::preprocess
