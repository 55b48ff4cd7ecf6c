// SPDX-License-Identifier: Apache-2.0
/// @file
/// SearchPages: views of a search for other tools: tune.html, an Optuna journal, Pbt's policy logs.
/// They are derived from the events and the state of the trials. Each start of a search rewrites
/// them, so a crash loses nothing.
#pragma once

#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/controller/controller.hpp>
#include <rtrain/tune/controller/event_log.hpp>
#include <rtrain/tune/controller/search_op.hpp>
#include <rtrain/tune/record/optuna_journal.hpp>
#include <rtrain/tune/record/policy_log.hpp>
#include <rtrain/tune/record/tune_page.hpp>
#include <rtrain/tune/record/tuner_state.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

namespace rtrain::tune {

class SearchPages {
public:
    /// `directory`: the search's directory, whose name becomes the title.
    SearchPages(std::filesystem::path directory, const Goal& goal)
        : directory_(std::move(directory)), name_(directory_.filename().string()) {
        namespace fs = std::filesystem;
        fs::remove(directory_ / pbt_global_file);
        for (const auto& entry : fs::directory_iterator(directory_)) {
            if (entry.path().filename().string().starts_with("pbt_policy_")) {
                fs::remove(entry.path());
            }
        }
        journal_ = std::make_unique<OptunaJournal>(directory_, name_, goal);
    }

    /// Updates the pages to the events in the search's file.
    void write(const Controller& controller, const TunerState& state) {
        log_takeovers(controller);
        hear_events(controller.plan().space, state);
        write_tune_page(directory_, state, name_);
    }

private:
    void log_takeovers(const Controller& controller) {
        for (; logged_ < controller.taken_over().size(); ++logged_) {
            const auto& [trial, exploit] = controller.taken_over()[logged_];
            if (exploit.log) {
                log_exploit(directory_, {.trial = trial,
                                         .donor = exploit.donor,
                                         .iteration = exploit.iteration,
                                         .donor_iteration = exploit.donor_iteration,
                                         .donor_config = exploit.donor_config,
                                         .config = exploit.config});
            }
        }
    }

    void hear_events(const Space& space, const TunerState& state) {
        heard_ = EventLog::read(directory_, heard_, [&](const boost::json::object& event) {
            const auto op = internal::op_of(event);
            const std::string trial(event.at("trial").as_string());
            if (op == internal::SearchOp::at) {
                begun_at_s_ = event.at("time_s").to_number<double>();
            } else if (op == internal::SearchOp::add) {
                journal_->add(trial, event.at("config").as_object(), space,
                              begun_at_s_ + event.at("t").to_number<double>());
            } else if (op == internal::SearchOp::report) {
                const auto score = number_at(event.at("metrics").as_object(), state.goal.metric);
                if (score) {
                    journal_->report(trial, event.at("iteration").to_number<std::int64_t>(),
                                     *score);
                }
            }
        });
        for (const TrialRecord& trial : state.trials) {
            if (is_over(trial.state) && ended_.insert(trial.id).second) {
                const TrialEnd end = trial.state == TrialState::errored ? TrialEnd::errored
                                     : trial.early                      ? TrialEnd::stopped
                                                                        : TrialEnd::completed;
                journal_->end(trial.id, end, number_at(trial.metrics, state.goal.metric),
                              trial.ended_s);
            }
        }
        journal_->flush();
    }

    std::filesystem::path directory_;
    std::string name_;
    std::unique_ptr<OptunaJournal> journal_;
    std::size_t logged_ = 0;                ///< takeovers already logged
    std::uint64_t heard_ = 0;               ///< bytes of events already read
    double begun_at_s_ = 0;                 ///< since 1970, of the start that the events belong to
    std::unordered_set<std::string> ended_; ///< trials whose end is in the journal
};

} // namespace rtrain::tune
