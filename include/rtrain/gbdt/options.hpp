// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of boosting in a training function; names and defaults follow Ray Train.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// Which ranks train.
enum class Ranks : std::uint8_t {
    /// On CPUs, the first rank of each node, with the threads and the rows of all ranks there; the
    /// others wait. On GPUs like `all`.
    one_per_node,
    all ///< each rank, with its part of the rows
};

/// The meaning of columns; all other columns of a table are features.
struct TableColumns {
    std::string label{};
    std::string weight{};
    std::vector<std::string> base_margin{}; ///< one for each class
    std::string query{};                    ///< its rows are consecutive: for ranking
    std::string lower_bound{};              ///< of the label: for survival analysis
    std::string upper_bound{};
    std::vector<std::string> categorical{}; ///< features whose numbers are categories

    /// The names of the columns that are not features.
    [[nodiscard]] std::vector<std::string> of_fields() const {
        std::vector<std::string> names = base_margin;
        for (const std::string* const name :
             {&label, &weight, &query, &lower_bound, &upper_bound}) {
            if (!name->empty()) {
                names.push_back(*name);
            }
        }
        return names;
    }
};

/// Reports and checkpoints of rounds; Ray's RayTrainReportCallback.
struct ReportCallback {
    std::vector<std::string> metrics{}; ///< names of those to report; empty: all
    std::string filename{};             ///< in checkpoints; empty: model.ubj or model.txt
    int frequency = 0;                  ///< rounds between two checkpoints; 0: none
    bool checkpoint_at_end = true;      ///< the last round saves one
    /// Changes what is reported; called on rank 0.
    std::function<Config(Config)> results_postprocessing_fn{};
};

/// A finished round of training.
struct Round {
    int number = 0; ///< from 0, also after a restart
    const Metrics& metrics;
};

/// Options of xgboost::train() and lightgbm::train(). All ranks pass the same ones.
struct TrainOptions {
    std::string dtrain = "train";     ///< the data set that is trained on
    std::vector<std::string> evals{}; ///< data sets that are evaluated after each round
    std::string label_column{};
    int num_boost_round = 10; ///< rounds, with those of the checkpoint that a run resumes from
    Ranks ranks = Ranks::one_per_node;
    /// Stops when the last metric of the last data set in `evals` has not improved for so many
    /// rounds.
    std::optional<int> early_stopping_rounds{};
    std::string weight_column{};
    std::vector<std::string> base_margin_columns{};
    std::string query_column{};
    std::string label_lower_bound_column{};
    std::string label_upper_bound_column{};
    std::vector<std::string> categorical_columns{};
    ReportCallback report{};
    /// Called on each rank after each round, before its report.
    std::vector<std::function<void(const Round&)>> callbacks{};

    [[nodiscard]] TableColumns columns() const {
        return {label_column,
                weight_column,
                base_margin_columns,
                query_column,
                label_lower_bound_column,
                label_upper_bound_column,
                categorical_columns};
    }
};

/// Throws ConfigError [RT-G8, RT-G15].
inline void require_usable(const TrainOptions& options) {
    if (options.num_boost_round < 1 || options.early_stopping_rounds.value_or(1) < 1 ||
        options.report.frequency < 0) {
        throw ConfigError("RT-G8", detail::concat("num_boost_round is ", options.num_boost_round,
                                                  ", early_stopping_rounds ",
                                                  options.early_stopping_rounds.value_or(1),
                                                  ", frequency ", options.report.frequency,
                                                  "; expected at least 1, 1 and 0"));
    }
    if (options.early_stopping_rounds && options.evals.empty()) {
        throw ConfigError("RT-G15", "early_stopping_rounds is set, but evals is empty; name a data "
                                    "set to watch");
    }
}

} // namespace rtrain::gbdt
