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

/// The training of one model, on all ranks of a run.
template <class Library>
class Boosting {
public:
    using Booster = typename Library::Booster;

    /// `data`: all data sets that `options` names. Collective.
    Boosting(WorkerLoops& worker, comm::Communicator* all, const Config& params,
             TrainOptions options, const data::Datasets& data)
        : worker_(worker), options_(std::move(options)) {
        require_usable(options_);
        const c10::NoGradGuard no_grad; // torch computes no gradients here
        ranks_.emplace(worker, all, options_.ranks);
        const Parameters parameters = Library::parameters(params, ranks_->team());
        Library::check(parameters);
        filename_ = options_.report.filename.empty() ? Library::filename : options_.report.filename;
        resume();
        if (ranks_->trains() && round_ < options_.num_boost_round) {
            learner_ = std::make_unique<typename Library::Learner>(input(parameters, data));
        }
    }

    /// Trains the remaining rounds; returns the model on all ranks. Collective.
    [[nodiscard]] Booster run() {
        while (round_ < options_.num_boost_round && !early_.has_stopped() &&
               !worker_.should_stop()) {
            train_round();
        }
        if (learner_ && saved_round_ != round_) {
            content_ = learner_->saved();
        }
        if (options_.report.checkpoint_at_end && saved_round_ != round_) {
            report(true); // RunConfig::stop has ended the run after a round that did not save
        }
        return Booster(worker_.broadcast(content_));
    }

private:
    using Value = typename Library::Value;

    void resume() {
        const auto checkpoint = worker_.checkpoint();
        if (!checkpoint) {
            return;
        }
        const auto file = model_file(*checkpoint, filename_,
                                     detail::concat("resume from a checkpoint of ", Library::name));
        content_ = storage::read_file(file);
        const Booster resumed(content_, file.string());
        round_ = resumed.rounds();
        saved_round_ = round_;
        early_.restore(checkpoint->metadata());
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

    void train_round() {
        Metrics metrics;
        if (learner_) {
            learner_->update(round_);
            metrics = learner_->evaluate(round_);
        }
        worker_.heartbeat();
        metrics_ = worker_.broadcast(json_of(metrics));
        metrics = metrics_of(metrics_);
        if (options_.early_stopping_rounds && !metrics.empty()) {
            early_.observe(round_, metrics.back(), *options_.early_stopping_rounds);
        }
        for (const auto& callback : options_.callbacks) {
            callback({.number = round_, .metrics = metrics});
        }
        ++round_;
        const bool is_last = round_ == options_.num_boost_round || early_.has_stopped();
        const bool is_due =
            options_.report.frequency > 0 && round_ % options_.report.frequency == 0;
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
            reported["round"] = round_;
            if (options_.report.results_postprocessing_fn) {
                reported = options_.report.results_postprocessing_fn(std::move(reported));
            }
        }
        if (!saves || (worker_.rank() != 0 && !leaves)) {
            worker_.report(reported);
            saved_round_ = saves ? round_ : saved_round_;
            return;
        }
        if (learner_) {
            content_ = learner_->saved();
        }
        if (!directory_) {
            directory_.emplace(storage::temporary_directory(), "rtrain-boosting");
        }
        if (worker_.rank() == 0) {
            storage::replace_file_unsynced(directory_->path() / filename_, content_);
        }
        worker_.report(reported, Checkpoint::from_directory(directory_->path()),
                       {.metadata = early_.saved()});
        saved_round_ = round_;
    }

    WorkerLoops& worker_;
    TrainOptions options_;
    std::optional<TrainingRanks> ranks_;
    std::string filename_;
    int round_ = 0; ///< the next one
    int saved_round_ = -1;
    Config metrics_; ///< of the previous round
    EarlyStopping early_;
    std::string content_; ///< of the newest saved model; on rank 0
    std::optional<storage::ProcessDirectory> directory_;
    std::unique_ptr<Learner> learner_; ///< null on ranks that do not train
};

/// Trains a model in a training function: `xgboost::train()` and `lightgbm::train()`.
template <class Library, class Worker>
[[nodiscard]] typename Library::Booster train(Worker& worker, const Config& params,
                                              const TrainOptions& options) {
    data::Datasets data;
    std::vector<std::string> names = options.evals;
    names.push_back(options.dtrain);
    for (const std::string& name : names) {
        data.emplace(name, worker.dataset_shard(name).dataset());
    }
    comm::Communicator* all = nullptr;
    if constexpr (requires { worker.communicator(); }) {
        all = &worker.communicator();
    }
    return Boosting<Library>(worker, all, params, options, data).run();
}

} // namespace rtrain::gbdt
