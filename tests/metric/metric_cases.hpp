// SPDX-License-Identifier: Apache-2.0
/// @file
/// What torchmetrics says of many metrics (tests/fixtures/metric/torchmetrics.json), and ours for
/// them.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/metrics.hpp>
#include <rtrain/storage/file/file.hpp>

#include <torch/torch.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value_to.hpp>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test {

struct MetricBatch {
    at::Tensor predictions;
    at::Tensor targets;
};

/// One metric of ours, and what torchmetrics says after all batches of a data set.
struct MetricCase {
    std::string name; ///< "Accuracy of classes {...}"
    std::string data;
    bool is_of_counts = false; ///< its bits do not depend on who sees which rows
    std::vector<double> expected;
    std::unique_ptr<rtrain::metric::Metric> metric;

    void see(const MetricBatch& batch) const {
        namespace m = rtrain::metric;
        if (auto* const comparison = dynamic_cast<m::Comparison*>(metric.get())) {
            comparison->update(batch.predictions, batch.targets);
        } else if (auto* const mean = dynamic_cast<m::Mean*>(metric.get())) {
            mean->update(batch.predictions, batch.targets.abs());
        } else if (auto* const sum = dynamic_cast<m::Sum*>(metric.get())) {
            sum->update(batch.predictions);
        } else if (auto* const min = dynamic_cast<m::Min*>(metric.get())) {
            min->update(batch.predictions);
        } else {
            dynamic_cast<m::Max&>(*metric).update(batch.predictions);
        }
    }
};

/// Reads options as torchmetrics.json has them.
class MetricOptions {
public:
    explicit MetricOptions(const boost::json::object& options) : options_(options) {}

    template <class T>
    [[nodiscard]] T get(const char* name, T otherwise) const {
        const auto* const found = options_.if_contains(name);
        return found != nullptr ? boost::json::value_to<T>(*found) : otherwise;
    }
    template <class T>
    [[nodiscard]] T one_of(const char* name, const std::map<std::string, T>& values,
                           const std::string& otherwise) const {
        return values.at(get<std::string>(name, otherwise));
    }
    [[nodiscard]] std::optional<std::int64_t> ignore_index() const {
        return options_.contains("ignore_index")
                   ? std::optional(get<std::int64_t>("ignore_index", 0))
                   : std::nullopt;
    }
    [[nodiscard]] rtrain::metric::Average average() const {
        using rtrain::metric::Average;
        return one_of<Average>("average",
                               {{"micro", Average::micro},
                                {"macro", Average::macro},
                                {"weighted", Average::weighted},
                                {"none", Average::none}},
                               "micro");
    }

private:
    const boost::json::object& options_;
};

inline std::unique_ptr<rtrain::metric::Metric> make_metric(const std::string& kind,
                                                           const MetricOptions& given) {
    namespace m = rtrain::metric;
    const auto classes = given.get<std::int64_t>("num_classes", 0);
    const auto labels = given.get<std::int64_t>("num_labels", 0);
    const m::ScoreOptions score{.num_classes = classes,
                                .num_labels = labels,
                                .ignore_index = given.ignore_index(),
                                .average = given.average(),
                                .top_k = given.get<std::int64_t>("top_k", 1),
                                .threshold = given.get("threshold", 0.5),
                                .zero_division = given.get("zero_division", 0.0)};
    const m::CurveOptions curve{.num_classes = classes,
                                .num_labels = labels,
                                .ignore_index = given.ignore_index(),
                                .average = given.average(),
                                .thresholds = given.get<std::int64_t>("thresholds", 0),
                                .threshold_values =
                                    given.get<std::vector<double>>("threshold_values", {})};
    const m::ConfusionOptions confusion{
        .num_classes = classes,
        .num_labels = labels,
        .ignore_index = given.ignore_index(),
        .normalize = given.one_of<m::Normalize>("normalize",
                                                {{"none", m::Normalize::none},
                                                 {"targets", m::Normalize::targets},
                                                 {"predictions", m::Normalize::predictions},
                                                 {"all", m::Normalize::all}},
                                                "none")};
    const m::CalibrationOptions calibration{
        .num_classes = classes,
        .ignore_index = given.ignore_index(),
        .bins = given.get<std::int64_t>("bins", 15),
        .norm = given.one_of<m::CalibrationNorm>("norm",
                                                 {{"l1", m::CalibrationNorm::l1},
                                                  {"l2", m::CalibrationNorm::l2},
                                                  {"max", m::CalibrationNorm::max}},
                                                 "l1")};
    const m::ErrorOptions error{.num_outputs = given.get<std::int64_t>("num_outputs", 1),
                                .squared = given.get("squared", true)};
    const m::R2Options r2{.num_outputs = error.num_outputs,
                          .adjusted = given.get<std::int64_t>("adjusted", 0),
                          .multioutput = given.one_of<m::MultiOutput>(
                              "multioutput",
                              {{"uniform_average", m::MultiOutput::uniform_average},
                               {"raw_values", m::MultiOutput::raw_values},
                               {"variance_weighted", m::MultiOutput::variance_weighted}},
                              "uniform_average")};
    const std::map<std::string, std::function<std::unique_ptr<m::Metric>()>> makers{
        {"Accuracy", [&] { return std::make_unique<m::Accuracy>(score); }},
        {"Precision", [&] { return std::make_unique<m::Precision>(score); }},
        {"Recall", [&] { return std::make_unique<m::Recall>(score); }},
        {"F1", [&] { return std::make_unique<m::F1>(score); }},
        {"ConfusionMatrix", [&] { return std::make_unique<m::ConfusionMatrix>(confusion); }},
        {"Auroc", [&] { return std::make_unique<m::Auroc>(curve); }},
        {"AveragePrecision", [&] { return std::make_unique<m::AveragePrecision>(curve); }},
        {"CalibrationError", [&] { return std::make_unique<m::CalibrationError>(calibration); }},
        {"Mean", [] { return std::make_unique<m::Mean>(); }},
        {"Sum", [] { return std::make_unique<m::Sum>(); }},
        {"Min", [] { return std::make_unique<m::Min>(); }},
        {"Max", [] { return std::make_unique<m::Max>(); }},
        {"MeanSquaredError", [&] { return std::make_unique<m::MeanSquaredError>(error); }},
        {"MeanAbsoluteError", [&] { return std::make_unique<m::MeanAbsoluteError>(error); }},
        {"R2Score", [&] { return std::make_unique<m::R2Score>(r2); }},
        {"Perplexity",
         [&] {
             return std::make_unique<m::Perplexity>(
                 m::PerplexityOptions{.ignore_index = given.ignore_index()});
         }},
    };
    return makers.at(kind)();
}

class MetricFixtures {
public:
    explicit MetricFixtures(const std::filesystem::path& file)
        : json_(rtrain::json::parse(rtrain::storage::read_file(file)).as_object()) {
        for (const auto& item : json_.at("data").as_object()) {
            for (const auto& batch : item.value().as_array()) {
                batches_[item.key()].push_back(
                    {tensor(batch.as_object(), "predictions", "shape", "floating"),
                     tensor(batch.as_object(), "targets", "target_shape", "target_floating")});
            }
        }
    }

    [[nodiscard]] const std::vector<MetricBatch>& batches(const std::string& data) const {
        return batches_.at(data);
    }

    /// New ones each time.
    [[nodiscard]] std::vector<MetricCase> cases() const {
        std::vector<MetricCase> cases;
        for (const auto& item : json_.at("cases").as_array()) {
            const auto& values = item.as_object();
            const std::string kind(values.at("metric").as_string());
            const std::string data(values.at("data").as_string());
            const auto& options = values.at("options").as_object();
            auto& made = cases.emplace_back();
            made.name = kind + " of " + data + " " + rtrain::json::serialize(options);
            made.data = data;
            made.is_of_counts = kind != "CalibrationError" && data != "numbers" &&
                                data != "columns" && kind != "Perplexity";
            for (const auto& number : values.at("value").as_array()) {
                made.expected.push_back(number.is_null() ? std::nan("")
                                                         : number.to_number<double>());
            }
            made.metric = make_metric(kind, MetricOptions(options));
        }
        return cases;
    }

private:
    static at::Tensor tensor(const boost::json::object& batch, const char* values,
                             const char* shape, const char* is_floating) {
        const auto numbers = boost::json::value_to<std::vector<double>>(batch.at(values));
        return at::tensor(numbers, at::kDouble)
            .reshape(boost::json::value_to<std::vector<std::int64_t>>(batch.at(shape)))
            .to(batch.at(is_floating).as_bool() ? at::kDouble : at::kLong);
    }

    boost::json::object json_;
    std::map<std::string, std::vector<MetricBatch>> batches_;
};

} // namespace test
