// SPDX-License-Identifier: Apache-2.0
/// @file
/// Matrix: rows as XGBoost trains on them, read from a RowSource in blocks. Without libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/xgboost/call.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt::xgboost {

struct MatrixOptions {
    int max_bin = 256;
    int threads = 1;
    /// Keeps the values instead of their bins, for tree methods that need them: exact, approx.
    bool keeps_values = false;
};

/// A DMatrix: XGBoost's own copy, one byte per value if max_bin is 256 or less.
class Matrix {
public:
    /// With several ranks, collective among those that train: they get the same bins. `reference`:
    /// the training rows, whose bins these rows get; null for those themselves. Throws what the
    /// source throws, and ModelError [RT-G12].
    Matrix(RowSource<float>& source, const MatrixOptions& options,
           const Matrix* reference = nullptr) {
        options.keeps_values ? copy(source, options) : quantize(source, options, reference);
    }

    [[nodiscard]] DMatrixHandle get() const noexcept { return handle_.get(); }
    [[nodiscard]] std::int64_t rows() const {
        bst_ulong rows = 0;
        check(XGDMatrixNumRow(handle_.get(), &rows), "XGDMatrixNumRow");
        return static_cast<std::int64_t>(rows);
    }

private:
    using Owner = Handle<XGDMatrixFree>;
    static constexpr std::array<const char*, field_count> field_names{
        "label", "weight", "base_margin", "qid", "label_lower_bound", "label_upper_bound"};

    /// The argument of XGBoost's callbacks, through which exceptions must not pass.
    struct Reading {
        RowSource<float>& source;
        DMatrixHandle proxy;
        std::exception_ptr error = nullptr;

        static int next(DataIterHandle self) {
            return static_cast<Reading*>(self)->guarded([](Reading& reading) {
                const RowBlock<float> block = reading.source.next();
                if (block.rows == 0) {
                    return 0;
                }
                const auto columns = static_cast<std::int64_t>(reading.source.features().size());
                check(
                    XGProxyDMatrixSetDataDense(
                        reading.proxy, array_interface(block.values, block.rows, columns).c_str()),
                    "XGProxyDMatrixSetDataDense");
                set_features(reading.proxy, reading.source.features());
                set_fields(reading.proxy, block);
                return 1;
            });
        }
        static void reset(DataIterHandle self) {
            (void)static_cast<Reading*>(self)->guarded([](Reading& reading) {
                reading.source.rewind();
                return 0;
            });
        }
        template <class Action>
        int guarded(const Action& action) {
            try {
                return error ? 0 : action(*this);
            } catch (...) {
                error = std::current_exception();
                return 0;
            }
        }
        void finish(int result, const char* call) const {
            if (error) {
                std::rethrow_exception(error);
            }
            check(result, call);
        }
    };

    void quantize(RowSource<float>& source, const MatrixOptions& options, const Matrix* reference) {
        DMatrixHandle proxy = nullptr;
        check(XGProxyDMatrixCreate(&proxy), "XGProxyDMatrixCreate");
        const Owner owner(proxy);
        Reading reading{source, proxy};
        const std::string config = detail::concat("{\"missing\":NaN,\"max_bin\":", options.max_bin,
                                                  ",\"nthread\":", options.threads, '}');
        source.rewind();
        DMatrixHandle made = nullptr;
        const int result = XGQuantileDMatrixCreateFromCallback(
            &reading, proxy, reference != nullptr ? reference->get() : nullptr, &Reading::reset,
            &Reading::next, config.c_str(), &made);
        handle_.reset(result == 0 ? made : nullptr);
        reading.finish(result, "XGQuantileDMatrixCreateFromCallback");
    }

    void copy(RowSource<float>& source, const MatrixOptions& options) {
        std::vector<float> values;
        std::array<std::vector<double>, field_count> fields;
        RowBlock<float> all;
        source.rewind();
        for (RowBlock<float> block = source.next(); block.rows > 0; block = source.next()) {
            const auto count = static_cast<std::size_t>(block.rows) * source.features().size();
            values.insert(values.end(), block.values, block.values + count);
            for (std::size_t i = 0; i < field_count; ++i) {
                if (const FieldValues& part = block.fields[i]; part.data != nullptr) {
                    fields[i].insert(fields[i].end(), part.data,
                                     part.data + block.rows * part.width);
                    all.fields[i].width = part.width;
                }
            }
            all.rows += block.rows;
        }
        for (std::size_t i = 0; i < field_count; ++i) {
            all.fields[i].data = fields[i].empty() ? nullptr : fields[i].data();
        }
        const std::string config =
            detail::concat("{\"missing\":NaN,\"nthread\":", options.threads, '}');
        const auto columns = static_cast<std::int64_t>(source.features().size());
        DMatrixHandle made = nullptr;
        check(XGDMatrixCreateFromDense(array_interface(values.data(), all.rows, columns).c_str(),
                                       config.c_str(), &made),
              "XGDMatrixCreateFromDense");
        handle_.reset(made);
        set_features(made, source.features());
        set_fields(made, all);
    }

    static void set_features(DMatrixHandle matrix, const Features& features) {
        each_feature_text(features, [&](const char* field, const char** texts, bst_ulong size) {
            check(XGDMatrixSetStrFeatureInfo(matrix, field, texts, size),
                  "XGDMatrixSetStrFeatureInfo");
        });
    }
    static void set_fields(DMatrixHandle matrix, const RowBlock<float>& block) {
        for (std::size_t i = 0; i < field_count; ++i) {
            if (const FieldValues& field = block.fields[i]; field.data != nullptr) {
                check(XGDMatrixSetInfoFromInterface(
                          matrix, field_names[i],
                          array_interface(field.data, block.rows, field.width).c_str()),
                      "XGDMatrixSetInfoFromInterface");
            }
        }
    }

    Owner handle_;
};

} // namespace rtrain::gbdt::xgboost
