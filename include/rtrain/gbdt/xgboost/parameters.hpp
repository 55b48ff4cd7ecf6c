// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of XGBoost's parameters before training: XGBoost itself ignores unknown ones, with a
/// warning. Without libtorch.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/native_log.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/xgboost/call.hpp>
#include <rtrain/gbdt/xgboost/model.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::gbdt::xgboost {

/// Adds the names of the parameters in a part of XGBoost's configuration.
inline void add_parameter_names(const boost::json::value& config, std::vector<std::string>& names) {
    if (const auto* const array = config.if_array()) {
        for (const auto& item : *array) {
            add_parameter_names(item, names);
        }
    } else if (const auto* const object = config.if_object()) {
        for (const auto& [name, value] : *object) {
            const auto* const inner = value.if_object();
            if (inner != nullptr && name.ends_with("_param")) {
                for (const auto& parameter : *inner) {
                    names.emplace_back(parameter.key());
                }
            } else {
                add_parameter_names(value, names);
            }
        }
    }
}

/// Throws ConfigError [RT-G6] for a parameter that XGBoost does not have, and ModelError [RT-G12]
/// for a value that it refuses. Communicates with no rank.
inline void require_known(const Parameters& parameters) {
    begin();
    constexpr std::array<float, 1> value{0};
    DMatrixHandle made = nullptr;
    check(XGDMatrixCreateFromDense(array_interface(value.data(), 1, 1).c_str(),
                                   "{\"missing\":NaN,\"nthread\":1}", &made),
          "XGDMatrixCreateFromDense");
    const Handle<XGDMatrixFree> matrix(made);
    const NativeLog<Log>::Collecting log;
    Model model({made});
    model.set({{"validate_parameters", "1"}});
    model.set(parameters);
    const std::string config = model.config();
    constexpr std::string_view before = "Parameters: { \"";
    if (const auto at = log.lines().find(before); at != std::string::npos) {
        const std::size_t begin = at + before.size();
        std::vector<std::string> names{"eval_metric"};
        add_parameter_names(json::parse(config), names);
        throw unknown_parameter(
            "XGBoost", log.lines().substr(begin, log.lines().find('"', begin) - begin), names);
    }
}

} // namespace rtrain::gbdt::xgboost
