// SPDX-License-Identifier: Apache-2.0
/// @file
/// Table: rows as LightGBM trains on them, read from a RowSource in blocks. Without libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/lightgbm/call.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace rtrain::gbdt::lightgbm {

/// Values of sampled rows that are not 0, by column, and their places in the sample. Columns
/// without a 0 share the list of all places.
class Sample {
public:
    struct Pointers {
        std::vector<double*> values;
        std::vector<int*> places;
        std::vector<int> counts;
    };

    Sample(std::size_t columns, std::size_t rows) : values_(columns), places_(columns), all_(rows) {
        std::iota(all_.begin(), all_.end(), 0);
        for (std::vector<double>& column : values_) {
            column.reserve(rows); // growing needs more memory
        }
    }

    void add(const double* row) {
        for (std::size_t i = 0; i < values_.size(); ++i) {
            const bool is_value = std::fabs(row[i]) > is_zero || std::isnan(row[i]);
            const bool is_dense = values_[i].size() == rows_; // so far
            if (is_value) {
                values_[i].push_back(row[i]);
            }
            if (is_value && !is_dense) {
                places_[i].push_back(static_cast<int>(rows_));
            } else if (!is_value && is_dense) {
                places_[i].assign(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(rows_));
            }
        }
        ++rows_;
    }
    [[nodiscard]] std::size_t rows() const noexcept { return rows_; }

    /// Valid while the sample exists.
    [[nodiscard]] Pointers pointers() {
        Pointers all;
        for (std::size_t i = 0; i < values_.size(); ++i) {
            const bool is_dense = values_[i].size() == rows_;
            all.values.push_back(values_[i].data());
            all.places.push_back(is_dense ? all_.data() : places_[i].data());
            all.counts.push_back(static_cast<int>(values_[i].size()));
        }
        return all;
    }

private:
    static constexpr double is_zero = 1e-35F; ///< LightGBM's kZeroThreshold
    std::vector<std::vector<double>> values_;
    std::vector<std::vector<int>> places_; ///< of columns that have a 0
    std::vector<int> all_;
    std::size_t rows_ = 0;
};

/// A Dataset of LightGBM: its own copy, one byte per value if max_bin is 255 or less.
class Table {
public:
    /// With several ranks, collective among those that train: they get the same bins. `reference`:
    /// the training rows, whose bins these rows get; null for those themselves. Throws what the
    /// source throws, ModelError [RT-G12], DataError [RT-G9].
    Table(RowSource<double>& source, const std::string& parameters,
          const Table* reference = nullptr)
        : rows_(narrow(source.rows())) {
        DatasetHandle made = nullptr;
        if (reference == nullptr) {
            made = sampled(source, parameters);
        } else {
            check(LGBM_DatasetCreateByReference(reference->get(), rows_, &made),
                  "LGBM_DatasetCreateByReference");
        }
        handle_.reset(made);
        push(source);
    }

    [[nodiscard]] DatasetHandle get() const noexcept { return handle_.get(); }

private:
    struct Free {
        void operator()(void* handle) const noexcept { (void)LGBM_DatasetFree(handle); }
    };

    [[nodiscard]] static std::int32_t narrow(std::int64_t rows) {
        if (rows < 1 || rows > std::numeric_limits<std::int32_t>::max()) {
            throw DataError("RT-G9", detail::concat("a rank trains LightGBM on ", rows,
                                                    " rows; expected 1 to ",
                                                    std::numeric_limits<std::int32_t>::max()));
        }
        return static_cast<std::int32_t>(rows);
    }

    /// Creates the table from a sample of rows, which determines the bins; LightGBM takes values
    /// that are not 0, by column.
    [[nodiscard]] DatasetHandle sampled(RowSource<double>& source,
                                        const std::string& parameters) const {
        int count = 0;
        check(LGBM_GetSampleCount(rows_, parameters.c_str(), &count), "LGBM_GetSampleCount");
        std::vector<std::int32_t> chosen(static_cast<std::size_t>(count));
        check(LGBM_SampleIndices(rows_, parameters.c_str(), chosen.data(), &count),
              "LGBM_SampleIndices");
        chosen.resize(static_cast<std::size_t>(count));
        const std::size_t columns = source.features().size();
        Sample sample(columns, chosen.size());
        std::int64_t first = 0;
        source.rewind();
        for (auto block = source.next(); block.rows > 0; block = source.next()) {
            while (sample.rows() < chosen.size() && chosen[sample.rows()] < first + block.rows) {
                const auto row = static_cast<std::size_t>(chosen[sample.rows()] - first);
                sample.add(block.values + row * columns);
            }
            first += block.rows;
        }
        Sample::Pointers parts = sample.pointers();
        DatasetHandle made = nullptr;
        check(LGBM_DatasetCreateFromSampledColumn(
                  parts.values.data(), parts.places.data(), static_cast<std::int32_t>(columns),
                  parts.counts.data(), count, rows_, rows_, parameters.c_str(), &made),
              "LGBM_DatasetCreateFromSampledColumn");
        return made;
    }

    void push(RowSource<double>& source) {
        const auto columns = static_cast<std::int32_t>(source.features().size());
        std::vector<std::vector<double>> fields(field_count);
        std::int32_t first = 0;
        source.rewind();
        for (auto block = source.next(); block.rows > 0; block = source.next()) {
            check(LGBM_DatasetPushRows(handle_.get(), block.values, static_cast<int>(Type::float64),
                                       static_cast<std::int32_t>(block.rows), columns, first),
                  "LGBM_DatasetPushRows");
            for (std::size_t i = 0; i < field_count; ++i) {
                const FieldValues& part = block.fields[i];
                if (part.data != nullptr) {
                    fields[i].insert(fields[i].end(), part.data,
                                     part.data + block.rows * part.width);
                }
            }
            first += static_cast<std::int32_t>(block.rows);
        }
        set_fields(fields);
        std::vector<const char*> names;
        for (const std::string& name : source.features().names) {
            names.push_back(name.c_str());
        }
        check(LGBM_DatasetSetFeatureNames(handle_.get(), names.data(), columns),
              "LGBM_DatasetSetFeatureNames");
    }

    void set_fields(const std::vector<std::vector<double>>& fields) {
        const auto at = [&](Field field) -> const std::vector<double>& {
            return fields[static_cast<std::size_t>(field)];
        };
        set("label", std::vector<float>(at(Field::label).begin(), at(Field::label).end()),
            Type::float32);
        set("weight", std::vector<float>(at(Field::weight).begin(), at(Field::weight).end()),
            Type::float32);
        set("init_score", by_class(at(Field::base_margin)), Type::float64);
        set("group", sizes_of_queries(at(Field::query)), Type::int32);
    }
    template <class T>
    void set(const char* field, const std::vector<T>& values, Type type) {
        if (!values.empty()) {
            check(LGBM_DatasetSetField(handle_.get(), field, values.data(),
                                       static_cast<int>(values.size()), static_cast<int>(type)),
                  "LGBM_DatasetSetField");
        }
    }

    /// LightGBM has margins class by class, a table row by row.
    [[nodiscard]] std::vector<double> by_class(const std::vector<double>& margins) const {
        const auto rows = static_cast<std::size_t>(rows_);
        const std::size_t classes = margins.size() / rows;
        std::vector<double> scores(margins.size());
        for (std::size_t i = 0; i < margins.size(); ++i) {
            scores[i % classes * rows + i / classes] = margins[i];
        }
        return scores;
    }
    /// Rows of a query are consecutive.
    [[nodiscard]] static std::vector<std::int32_t>
    sizes_of_queries(const std::vector<double>& queries) {
        std::vector<std::int32_t> sizes;
        for (std::size_t i = 0; i < queries.size(); ++i) {
            if (i == 0 || queries[i] != queries[i - 1]) {
                sizes.push_back(0);
            }
            ++sizes.back();
        }
        return sizes;
    }

    std::int32_t rows_;
    std::unique_ptr<void, Free> handle_;
};

} // namespace rtrain::gbdt::lightgbm
