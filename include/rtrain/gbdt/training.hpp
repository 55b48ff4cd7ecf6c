// SPDX-License-Identifier: Apache-2.0
/// @file
/// Boosting in a training function: which ranks train, the loop over rounds, its reports and
/// checkpoints. The same for all libraries.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/gbdt/connection.hpp>
#include <rtrain/gbdt/early_stopping.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/parameters.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/training_ranks.hpp>
#include <rtrain/gbdt/training_table.hpp>
#include <rtrain/run/options/report_options.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/train/worker_loops.hpp>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// Returns the path of the model in a checkpoint. Throws CheckpointError [RT-G14], with `advice`,
/// if it has none.
[[nodiscard]] inline std::filesystem::path
model_file(const Checkpoint& checkpoint, const std::string& filename, const std::string& advice) {
    auto file = checkpoint.as_directory() / filename;
    if (!std::filesystem::exists(file)) {
        throw CheckpointError("RT-G14",
                              detail::concat(checkpoint.uri(), " has no ", filename, "; ", advice));
    }
    return file;
}

/// Returns the data sets of a worker that options name.
template <class Worker>
[[nodiscard]] std::map<std::string, data::Shard> shards_of(Worker& worker,
                                                           const TrainOptions& options) {
    std::map<std::string, data::Shard> shards;
    std::vector<std::string> names = options.evals;
    names.push_back(options.dtrain);
    for (const std::string& name : names) {
        shards.try_emplace(name, worker.dataset_shard(name));
    }
    return shards;
}

/// The training of one model, on all ranks of a run, in a loop over rounds that the caller writes.
/// Resumes from the model in worker.checkpoint(). Options of the loop, such as num_boost_round,
/// have no effect.
///
/// @code
/// rtrain::xgboost::Training training(worker, params, {.evals = {"valid"}, .label_column = "y"});
/// while (training.round() < 100) {
///     training.update();
///     worker.report(rtrain::gbdt::json_of(training.evaluate()));
/// }
/// const auto booster = training.booster();
/// @endcode
template <class Library>
class RoundTraining {
public:
    using Booster = typename Library::Booster;

    /// *Collective.* Throws like train(), which reads the data in the first round.
    template <class Worker>
    RoundTraining(Worker& worker, const Config& params, TrainOptions options)
        : worker_(worker), options_(std::move(options)) {
        require_usable(options_);
        const c10::NoGradGuard no_grad; // torch computes no gradients here
        ranks_.emplace(worker, communicator_of(worker), options_.ranks);
        Library::check(Library::parameters(params, ranks_->team()));
        filename_ = options_.report.filename.empty() ? Library::filename : options_.report.filename;
        resume();
        if (ranks_->trains()) {
            begin_ = [this, params, shards = shards_of(worker, options_)] {
                begin(params, shards);
            };
        }
    }
    RoundTraining(const RoundTraining&) = delete;
    RoundTraining& operator=(const RoundTraining&) = delete;

    /// The number of rounds so far, with those of the checkpoint.
    [[nodiscard]] int round() const noexcept { return round_; }
    /// Adds the trees of a round. *Collective.*
    void update() {
        if (Booster* const model = trained()) {
            model->update();
            content_.clear();
        }
        ++round_;
        worker_.heartbeat();
    }
    /// Returns the metrics of the data sets in `evals` after a round, on all ranks. *Collective.*
    [[nodiscard]] Metrics evaluate() {
        Booster* const model = trained();
        const Metrics metrics = model != nullptr ? model->eval() : Metrics();
        return metrics_of(worker_.broadcast(json_of(metrics)));
    }
    /// Returns the model on all ranks. *Collective.*
    [[nodiscard]] Booster booster() {
        if (round_ == 0) {
            (void)trained(); // all ranks make theirs together
        }
        return Booster(worker_.broadcast(worker_.rank() == 0 ? content() : std::string()));
    }
    /// The content of a model file; on rank 0.
    [[nodiscard]] const std::string& content() {
        if (booster_ && content_.empty()) {
            content_ = booster_->content();
        }
        return content_;
    }
    /// The model's name in checkpoints.
    [[nodiscard]] const std::string& filename() const noexcept { return filename_; }

private:
    using Engine = typename Library::Engine;

    /// Null on ranks that do not train. Made when first needed: a finished run reads no data.
    [[nodiscard]] Booster* trained() {
        if (begin_) {
            begin_();
            begin_ = nullptr;
        }
        return booster_ ? &*booster_ : nullptr;
    }

    void resume() {
        if (const auto checkpoint = worker_.checkpoint()) {
            const auto file =
                model_file(*checkpoint, filename_,
                           detail::concat("resume from a checkpoint of ", Library::name));
            content_ = storage::read_file(file);
            round_ = Booster(content_, file.string()).rounds();
        }
    }

    void begin(const Config& params, const std::map<std::string, data::Shard>& shards) {
        connection_.emplace(ranks_->team());
        const TrainingTable<Engine> train(*connection_, shards.at(options_.dtrain),
                                          options_.columns(), params, content_);
        EvaluatedTables<Engine> evals;
        for (const std::string& name : options_.evals) {
            evals.emplace_back(name,
                               name == options_.dtrain
                                   ? train
                                   : train.create_valid(shards.at(name),
                                                        detail::concat("data set \"", name, '"')));
        }
        booster_.emplace(params, train, std::move(evals));
    }

    WorkerLoops& worker_;
    TrainOptions options_;
    std::optional<TrainingRanks> ranks_;
    std::string filename_;
    int round_ = 0;                                ///< the next one
    std::string content_;                          ///< of the model in that round, if it is known
    std::optional<Connection<Engine>> connection_; ///< outlives the booster
    std::optional<Booster> booster_;
    std::function<void()> begin_; ///< makes the booster; null once it was called
};

/// The loop over rounds of train(): reports, checkpoints and early stopping.
template <class Library>
class Boosting {
public:
    /// Collective.
    template <class Worker>
    Boosting(Worker& worker, const Config& params, const TrainOptions& options)
        : worker_(worker), options_(options), training_(worker, params, options) {
        if (const auto checkpoint = worker_.checkpoint()) {
            saved_round_ = training_.round();
            early_.restore(checkpoint->metadata());
        }
    }

    /// Trains the remaining rounds; returns the model on all ranks. Collective.
    [[nodiscard]] typename Library::Booster run() {
        while (training_.round() < options_.num_boost_round && !early_.has_stopped() &&
               !worker_.should_stop()) {
            train_round();
        }
        if (options_.report.checkpoint_at_end && saved_round_ != training_.round()) {
            report(true); // RunConfig::stop has ended the run after a round that did not save
        }
        return training_.booster();
    }

private:
    void train_round() {
        training_.update();
        const Metrics metrics = training_.evaluate();
        metrics_ = json_of(metrics);
        const int round = training_.round();
        if (options_.early_stopping_rounds && !metrics.empty()) {
            early_.observe(round - 1, metrics.back(), *options_.early_stopping_rounds);
        }
        for (const auto& callback : options_.callbacks) {
            callback({.number = round - 1, .metrics = metrics});
        }
        const bool is_last = round == options_.num_boost_round || early_.has_stopped();
        const bool is_due = options_.report.frequency > 0 && round % options_.report.frequency == 0;
        report(is_due || worker_.preemption() || (is_last && options_.report.checkpoint_at_end));
    }

    /// Reports the newest metrics; with `saves`, also a checkpoint of rank 0's model, which is
    /// written while the next rounds train.
    void report(bool saves) {
        Config reported;
        std::map<std::string, std::string> files;
        if (worker_.rank() == 0) {
            reported = reported_metrics();
            if (saves) {
                files.emplace(training_.filename(), training_.content());
            }
        }
        if (saves) {
            worker_.report_files(reported, std::move(files),
                                 {.checkpoint_upload_mode = CheckpointUploadMode::async,
                                  .metadata = early_.saved()});
            saved_round_ = training_.round();
        } else {
            worker_.report(reported);
        }
    }

    [[nodiscard]] Config reported_metrics() const {
        Config reported;
        for (const auto& [name, value] : metrics_) {
            if (options_.report.metrics.empty() ||
                std::ranges::find(options_.report.metrics, std::string(name)) !=
                    options_.report.metrics.end()) {
                reported[name] = value;
            }
        }
        reported["round"] = training_.round();
        return options_.report.results_postprocessing_fn
                   ? options_.report.results_postprocessing_fn(std::move(reported))
                   : reported;
    }

    WorkerLoops& worker_;
    TrainOptions options_;
    RoundTraining<Library> training_;
    int saved_round_ = -1;
    Config metrics_; ///< of the previous round
    EarlyStopping early_;
};

/// Trains a model in a training function: `xgboost::train()` and `lightgbm::train()`.
template <class Library, class Worker>
[[nodiscard]] typename Library::Booster train(Worker& worker, const Config& params,
                                              const TrainOptions& options) {
    return Boosting<Library>(worker, params, options).run();
}

} // namespace rtrain::gbdt
