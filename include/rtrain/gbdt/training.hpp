// SPDX-License-Identifier: Apache-2.0
/// @file
/// Boosting in a training function: which ranks train, the loop over rounds, its reports and
/// checkpoints. The same for all libraries.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/gbdt/early_stopping.hpp>
#include <rtrain/gbdt/learner.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/parameters.hpp>
#include <rtrain/gbdt/table_reader.hpp>
#include <rtrain/run/options/report_options.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>
#include <rtrain/train/worker_loops.hpp>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// The ranks that train, from any of them: a team, and the communicator of its members.
class TrainingRanks {
public:
    /// `all`: the communicator of all ranks; null if the backend has none. Collective. Throws
    /// ConfigError [RT-G13].
    TrainingRanks(WorkerLoops& worker, comm::Communicator* all, Ranks which) {
        const bool on_gpu = worker.device().is_cuda();
        const bool each = which == Ranks::all || on_gpu;
        trains_ = each || worker.local_rank() == 0;
        const std::vector<int> trains = worker.all_gather(trains_ ? 1 : 0);
        const std::vector<int> nodes = worker.all_gather(worker.node_rank());
        const std::vector<int> threads = worker.all_gather(at::get_num_threads());
        team_.size = 0;
        team_.threads = each ? at::get_num_threads() : 0;
        for (int rank = 0; rank < worker.size(); ++rank) {
            const auto i = static_cast<std::size_t>(rank);
            team_.rank += trains[i] != 0 && rank < worker.rank() ? 1 : 0;
            team_.size += trains[i] != 0 ? 1 : 0;
            team_.threads += !each && nodes[i] == worker.node_rank() ? threads[i] : 0;
            team_.on_one_node = team_.on_one_node && nodes[i] == nodes.front();
        }
        if (on_gpu) {
            team_.device = detail::concat("cuda:", static_cast<int>(worker.device().index()));
        }
        if (team_.size > 1) {
            if (all == nullptr) {
                throw ConfigError("RT-G13",
                                  detail::concat(team_.size, " ranks train, but their "
                                                             "backend has no communicator; use "
                                                             "backend::Mpi, or one rank"));
            }
            members_ = all->split(trains_ ? 0 : 1);
            team_.ranks = members_.get();
        }
    }

    /// True if this rank trains.
    [[nodiscard]] bool trains() const noexcept { return trains_; }
    [[nodiscard]] const Team& team() const noexcept { return team_; }

private:
    bool trains_ = false;
    Team team_;
    std::unique_ptr<comm::Communicator> members_;
};

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
[[nodiscard]] data::Datasets datasets_of(Worker& worker, const TrainOptions& options) {
    data::Datasets data;
    std::vector<std::string> names = options.evals;
    names.push_back(options.dtrain);
    for (const std::string& name : names) {
        data.emplace(name, worker.dataset_shard(name).dataset());
    }
    return data;
}

/// Returns the communicator of all ranks; null if the backend has none.
template <class Worker>
[[nodiscard]] comm::Communicator* communicator_of([[maybe_unused]] Worker& worker) {
    if constexpr (requires { worker.communicator(); }) {
        return &worker.communicator();
    } else {
        return nullptr;
    }
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
        const Parameters parameters = Library::parameters(params, ranks_->team());
        Library::check(parameters);
        filename_ = options_.report.filename.empty() ? Library::filename : options_.report.filename;
        resume();
        if (ranks_->trains()) {
            make_learner_ = [this, parameters, data = datasets_of(worker, options_)] {
                return std::make_unique<Learner>(input(parameters, data));
            };
        }
    }
    RoundTraining(const RoundTraining&) = delete;
    RoundTraining& operator=(const RoundTraining&) = delete;

    /// The number of rounds so far, with those of the checkpoint.
    [[nodiscard]] int round() const noexcept { return round_; }
    /// Adds the trees of a round. *Collective.*
    void update() {
        if (Learner* const it = learner()) {
            it->update(round_);
            content_.clear();
        }
        ++round_;
        worker_.heartbeat();
    }
    /// Returns the metrics of the data sets in `evals` after a round, on all ranks. *Collective.*
    [[nodiscard]] Metrics evaluate() {
        Learner* const it = learner();
        const Metrics metrics = it != nullptr ? it->evaluate(round_ - 1) : Metrics();
        return metrics_of(worker_.broadcast(json_of(metrics)));
    }
    /// Returns the model on all ranks. *Collective.*
    [[nodiscard]] Booster booster() {
        if (round_ == 0) {
            (void)learner(); // all ranks make theirs together
        }
        return Booster(worker_.broadcast(worker_.rank() == 0 ? content() : std::string()));
    }
    /// The content of a model file; on rank 0.
    [[nodiscard]] const std::string& content() {
        if (learner_ && content_.empty()) {
            content_ = learner_->saved();
        }
        return content_;
    }
    /// The model's name in checkpoints.
    [[nodiscard]] const std::string& filename() const noexcept { return filename_; }

private:
    using Value = typename Library::Value;
    using Learner = typename Library::Learner;

    /// Null on ranks that do not train. Made when first needed: a finished run reads no data.
    [[nodiscard]] Learner* learner() {
        if (make_learner_) {
            const c10::NoGradGuard no_grad; // torch computes no gradients here
            learner_ = make_learner_();
            make_learner_ = nullptr;
        }
        return learner_.get();
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

    [[nodiscard]] LearnerInput<Value> input(const Parameters& parameters,
                                            const data::Datasets& data) const {
        LearnerInput<Value> input{.parameters = parameters, .team = ranks_->team()};
        input.resumed = content_;
        std::vector<std::string> names{options_.dtrain};
        for (const std::string& name : options_.evals) {
            if (std::ranges::find(names, name) == names.end()) {
                names.push_back(name);
            }
            input.evaluated.push_back(
                static_cast<std::size_t>(std::ranges::find(names, name) - names.begin()));
        }
        const Team& team = ranks_->team();
        const typename TableReader<Value>::Part part{.number = team.rank, .of = team.size};
        for (const std::string& name : names) {
            auto rows = std::make_unique<TableReader<Value>>(data.at(name), options_.columns(),
                                                             part, Library::classes(parameters));
            if (!input.tables.empty()) {
                require_equal_features(input.tables.front().second->features(), rows->features(),
                                       detail::concat("data set \"", name, '"'));
            }
            if (team.size > 1) {
                rows->check(); // within the library, an error would leave other ranks waiting
            }
            input.tables.emplace_back(name, std::move(rows));
        }
        if (team.size > 1) {
            team.ranks->barrier(); // no rank communicates in the library before all have checked
        }
        return input;
    }

    WorkerLoops& worker_;
    TrainOptions options_;
    std::optional<TrainingRanks> ranks_;
    std::string filename_;
    int round_ = 0;       ///< the next one
    std::string content_; ///< of the model in that round, if it is known
    std::unique_ptr<Learner> learner_;
    std::function<std::unique_ptr<Learner>()> make_learner_; ///< null once it was called
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
        const bool is_preempted = worker_.preemption().has_value();
        report(is_due || is_preempted || (is_last && options_.report.checkpoint_at_end),
               is_preempted);
    }

    /// Reports the newest metrics; with `saves`, also a checkpoint of rank 0's model. With
    /// `leaves`, the report of a checkpoint is the last on all ranks, so each makes one, empty on
    /// the others.
    void report(bool saves, bool leaves = false) {
        Config reported;
        if (worker_.rank() == 0) {
            for (const auto& [name, value] : metrics_) {
                if (options_.report.metrics.empty() ||
                    std::ranges::find(options_.report.metrics, std::string(name)) !=
                        options_.report.metrics.end()) {
                    reported[name] = value;
                }
            }
            reported["round"] = training_.round();
            if (options_.report.results_postprocessing_fn) {
                reported = options_.report.results_postprocessing_fn(std::move(reported));
            }
        }
        if (!saves || (worker_.rank() != 0 && !leaves)) {
            worker_.report(reported);
            saved_round_ = saves ? training_.round() : saved_round_;
            return;
        }
        if (!directory_) {
            directory_.emplace(storage::temporary_directory(), "rtrain-boosting");
        }
        if (worker_.rank() == 0) {
            storage::replace_file_unsynced(directory_->path() / training_.filename(),
                                           training_.content());
        }
        worker_.report(reported, Checkpoint::from_directory(directory_->path()),
                       {.metadata = early_.saved()});
        saved_round_ = training_.round();
    }

    WorkerLoops& worker_;
    TrainOptions options_;
    RoundTraining<Library> training_;
    int saved_round_ = -1;
    Config metrics_; ///< of the previous round
    EarlyStopping early_;
    std::optional<storage::ProcessDirectory> directory_;
};

/// Trains a model in a training function: `xgboost::train()` and `lightgbm::train()`.
template <class Library, class Worker>
[[nodiscard]] typename Library::Booster train(Worker& worker, const Config& params,
                                              const TrainOptions& options) {
    return Boosting<Library>(worker, params, options).run();
}

} // namespace rtrain::gbdt
