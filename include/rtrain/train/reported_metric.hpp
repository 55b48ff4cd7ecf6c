// SPDX-License-Identifier: Apache-2.0
/// @file
/// ReportedMetric: a metric in `worker.report({{"loss", loss}})`, which may be a tensor.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/run_info.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <boost/json/value.hpp>
#include <boost/json/value_ref.hpp>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace rtrain::detail {

class ReportedMetric {
public:
    ReportedMetric(boost::json::string_view name, boost::json::value_ref value)
        : name_(name), value_(value) {}
    /// Throws ConfigError [RT-C34] unless the tensor has one element.
    template <std::same_as<at::Tensor> T>
    ReportedMetric(boost::json::string_view name, const T& tensor) : name_(name) {
        if (!tensor.defined() || tensor.numel() != 1) {
            throw ConfigError("RT-C34",
                              concat("worker.report() got a tensor of ",
                                     tensor.defined() ? tensor.numel() : 0, " elements as \"",
                                     name_, "\"; expected one element"));
        }
        if (tensor.scalar_type() == at::kBool) {
            value_ = tensor.template item<bool>();
        } else if (c10::isIntegralType(tensor.scalar_type(), false)) {
            value_ = tensor.template item<std::int64_t>();
        } else {
            value_ = tensor.template item<double>();
        }
    }

    [[nodiscard]] static Config config_of(std::initializer_list<ReportedMetric> metrics) {
        Config config;
        for (const ReportedMetric& metric : metrics) {
            config[metric.name_] = metric.value_;
        }
        return config;
    }

private:
    std::string name_;
    boost::json::value value_;
};

} // namespace rtrain::detail
