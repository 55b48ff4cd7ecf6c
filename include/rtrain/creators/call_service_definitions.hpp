// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door call_service.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/config/typed_config.hpp>
#include <rtrain/creators/call_service.hpp>
#include <rtrain/launch/calls/call_record.hpp>
#include <rtrain/process/context.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

RTRAIN_DOOR void CallService::Progress::save(StateWriter& out) const {
    out.value("calls", calls);
    out.value("answer", answer);
    out.value("open", open);
    out.value("epochs", epochs);
    out.value("train", boost::json::string(train));
    out.value("validation", boost::json::string(validation));
}
RTRAIN_DOOR void CallService::Progress::load(const StateReader& in) {
    calls = in.value("calls").to_number<std::int64_t>();
    answer = in.value("answer").as_object();
    open = in.value("open").to_number<std::int64_t>();
    epochs = in.value("epochs").to_number<int>();
    train = in.value("train").as_string();
    validation = in.value("validation").as_string();
}

RTRAIN_DOOR CallService::CallService(Parts parts)
    : worker_(parts.worker), ranks_(parts.ranks), replica_(parts.replica), calls_(parts.calls),
      settings_(parts.settings), record_(std::move(parts.run)) {
    replica_.add_model_to(weights_);
    replica_.add_to(objects_);
    replica_.add_to(state_);
    state_.add("calls", progress_).add_per_rank("call_sums", sums_);
}

RTRAIN_DOOR void CallService::serve() {
    while (serve_epochs() == Next::epochs) {
    }
}

/// Serves calls until another checkpoint is restored, or until the end.
RTRAIN_DOOR CallService::Next CallService::serve_epochs() {
    Epochs epochs = worker_.epochs(std::numeric_limits<int>::max(), state_);
    replica_.use_data(file_of(progress_.train), file_of(progress_.validation));
    auto epoch = epochs.begin();
    Next then = Next::call;
    while (then == Next::call) {
        then = perform(next(), epoch);
    }
    epochs.leave();
    return then;
}

RTRAIN_DOOR CallService::Next CallService::perform(const launch::Call& call,
                                                   Epochs::Iterator& epoch) {
    if (call.number == progress_.calls) { // its answer was lost
        calls_.answer({.number = call.number, .values = progress_.answer});
        return Next::call;
    }
    const std::string_view name = call.name;
    if (name == launch::shutdown_call) {
        calls_.answer({.number = call.number});
        return Next::end;
    }
    const bool restores = name == "restore";
    const launch::CallReply done = name == "train"              ? train(call, epoch)
                                   : name == "validate"         ? validate(call)
                                   : name == "save"             ? save(call)
                                   : name == "load" || restores ? load(call, !restores)
                                   : name == "update_scheduler" ? update_scheduler(call)
                                                                : set_data(call);
    progress_.calls = call.number;
    progress_.answer = done.values;
    calls_.answer(done);
    return restores && !done.refusal ? Next::epochs : Next::call;
}

/// Waits for the next call; empty if this rank is preempted first.
RTRAIN_DOOR std::optional<launch::Call> CallService::wait() const {
    constexpr std::chrono::milliseconds often{100};
    ProcessContext& context = ProcessContext::current();
    const RankStatus::In waiting(context.status, Phase::waiting);
    for (;;) {
        if (auto call = calls_.wait(has_served_ ? progress_.calls + 1 : 1, often)) {
            return call;
        }
        if (context.notice.given()) {
            return std::nullopt;
        }
    }
}

/// Returns the call that all ranks perform now. If one is preempted, all save, and leave the
/// training function. *Collective.*
RTRAIN_DOOR launch::Call CallService::next() {
    const auto call = wait();
    const std::string mine = call ? json::serialize(to_json(*call)) : "";
    const std::vector<std::string> texts = all_gather(ranks_, mine);
    if (std::ranges::find(texts, "") != texts.end()) {
        worker_.save(state_);
    }
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] != texts[0]) {
            const launch::Call first = launch::call_in(texts[0]);
            const launch::Call other = launch::call_in(texts[rank]);
            throw ConfigError("RT-F31",
                              concat("rank 0 makes call ", first.number, ", ", first.text(),
                                     ", of a CreatorTrainer, but rank ", rank, " makes call ",
                                     other.number, ", ", other.text(),
                                     "; main() must decide alike on all ranks"));
        }
    }
    has_served_ = true;
    if (call->number < progress_.calls) {
        throw LaunchError("RT-F37",
                          concat("main() makes call ", call->number, ", ", call->text(),
                                 ", but the newest checkpoint contains call ", progress_.calls,
                                 "; start the run over under a new name"));
    }
    return call->number <= progress_.calls + 1 ? *call : missed_call();
}

/// The next call of the record, because the checkpoint is older. *Collective.*
RTRAIN_DOOR launch::Call CallService::missed_call() {
    std::string text;
    succeed_together(ranks_, [&] {
        if (worker_.rank() != 0) {
            return;
        }
        record_.read();
        const launch::AnsweredCall* const known = record_.find(progress_.calls + 1);
        if (known == nullptr) {
            throw LaunchError("RT-F37", concat("call ", progress_.calls + 1,
                                               " is not in calls.jsonl of the run, and no "
                                               "checkpoint contains it; start the run over under "
                                               "a new name"));
        }
        text = json::serialize(to_json(known->call));
    });
    return launch::call_in(broadcast(ranks_, text, 0));
}

/// Runs `action` on all ranks; empty if it succeeds on all. *Collective.*
RTRAIN_DOOR std::optional<Failure> CallService::refusal(const std::function<void()>& action) {
    try {
        succeed_together(ranks_, action);
        return std::nullopt;
    } catch (const PeerError&) {
        throw;
    } catch (const Error& error) {
        return failure_of(error);
    }
}

RTRAIN_DOOR launch::CallReply CallService::train(const launch::Call& call,
                                                 Epochs::Iterator& epoch) {
    const auto request = from_config<TrainCall>(call.arguments);
    if (auto refused = refusal([&] {
            if (request.epochs < 1 || request.num_steps.value_or(1) < 1) {
                throw ConfigError("RT-F32",
                                  concat("train() has epochs = ", request.epochs,
                                         " and num_steps = ", request.num_steps.value_or(1),
                                         "; expected at least 1"));
            }
            if (epoch == std::default_sentinel) {
                throw ConfigError("RT-F40", "RunConfig::stop has ended the training, or its time "
                                            "limit; train() cannot continue");
            }
        })) {
        return {.number = call.number, .refusal = std::move(refused)};
    }
    if (progress_.open != call.number) {
        progress_.open = call.number;
        progress_.epochs = 0;
        sums_ = {};
    }
    while (progress_.open == call.number) {
        const int number = *epoch;
        replica_.train_epoch(sums_, request.num_steps);
        ++progress_.epochs;
        end_epoch_of(call, number, progress_.epochs >= request.epochs);
        ++epoch;
        if (progress_.open == call.number && epoch == std::default_sentinel) { // was stopped
            progress_.open = 0;
        }
    }
    return {.number = call.number, .values = progress_.answer};
}

/// Reports an epoch. The checkpoint of the last one ends the call.
RTRAIN_DOOR void CallService::end_epoch_of(const launch::Call& call, int epoch, bool is_last) {
    progress_.answer = to_config(train_stats(worker_, sums_, replica_.learning_rate()));
    replica_.end_epoch();
    if (is_last) {
        progress_.open = 0;
        progress_.calls = call.number;
    }
    Config metrics = progress_.answer;
    metrics["epoch"] = epoch;
    settings_.saves_every_call ? worker_.report(metrics, state_) : worker_.report(metrics);
    if (ProcessContext::current().notice.agreed()) { // a report of metrics alone saves nothing
        worker_.save(state_);
    }
}

RTRAIN_DOOR launch::CallReply CallService::validate(const launch::Call& call) {
    if (auto refused = refusal([&] {
            if (!replica_.can_validate()) {
                throw ConfigError("RT-F33", "validate() has no data: data_creator returned only "
                                            "training data; return a pair, or call set_data()");
            }
        })) {
        return {.number = call.number, .refusal = std::move(refused)};
    }
    BatchSums sums;
    replica_.validate(sums);
    const ValidationStats stats = validation_stats(worker_, sums);
    worker_.report(metrics_of(stats));
    return {.number = call.number, .values = to_config(stats)};
}

/// Saves a checkpoint, and copies it to the path of the call, if it has one.
RTRAIN_DOOR launch::CallReply CallService::save(const launch::Call& call) {
    worker_.save(state_);
    const auto newest = worker_.checkpoint();
    const auto* const given = call.arguments.if_contains("path");
    auto refused = refusal([&] {
        if (!newest) {
            throw CheckpointError("RT-F39", "this run saves no checkpoints: fast_dev_run is set");
        }
        if (given == nullptr || worker_.rank() != 0) {
            return;
        }
        const std::filesystem::path path(given->as_string().c_str());
        if (std::filesystem::exists(path) &&
            !std::filesystem::exists(path / checkpoint::manifest_file)) {
            throw CheckpointError("RT-F39", concat(path.string(), " exists and is not a "
                                                                  "checkpoint, so save() does not "
                                                                  "replace it"));
        }
        const auto next = std::filesystem::path(path.string() + ".saving");
        std::filesystem::remove_all(next);
        (void)newest->to_directory(next);
        std::filesystem::remove_all(path);
        std::filesystem::rename(next, path);
    });
    boost::json::object values{{"checkpoint", newest ? newest->uri() : ""}};
    return {.number = call.number, .values = std::move(values), .refusal = std::move(refused)};
}

/// Loads a checkpoint. If that fails, all is as before.
RTRAIN_DOOR launch::CallReply CallService::load(const launch::Call& call, bool only_weights) {
    const Checkpoint from(std::string(call.arguments.at("path").as_string()));
    worker_.save(state_);
    std::optional<Failure> refused;
    if (only_weights) {
        refused = refusal([&] { weights_.load_from(from); });
    } else {
        try {
            worker_.restore(objects_, from);
        } catch (const PeerError&) {
            throw;
        } catch (const CheckpointError& error) {
            refused = failure_of(error);
        }
    }
    if (refused) {
        (void)worker_.restore(state_);
    } else if (!only_weights) { // the loop over epochs begins again from it
        progress_.calls = call.number;
        progress_.answer = {};
        worker_.save(state_);
    }
    return {.number = call.number, .refusal = std::move(refused)};
}

RTRAIN_DOOR launch::CallReply CallService::update_scheduler(const launch::Call& call) {
    const auto* const metric = call.arguments.if_contains("metric");
    auto refused = refusal([&] {
        if (!replica_.step_schedule(metric != nullptr ? json::number(*metric) : std::nullopt)) {
            throw ConfigError("RT-F41", "update_scheduler() needs a scheduler_creator, with "
                                        "scheduler_step_freq = SchedulerStep::manual");
        }
    });
    return {.number = call.number, .refusal = std::move(refused)};
}

/// The path of a file in the run's directory; "" for none.
RTRAIN_DOOR std::string CallService::file_of(const std::string& name) const {
    return name.empty() ? "" : (worker_.run_path() / name).string();
}

RTRAIN_DOOR launch::CallReply CallService::set_data(const launch::Call& call) {
    const auto text = [&](const char* name) {
        return std::string(call.arguments.at(name).as_string());
    };
    auto refused =
        refusal([&] { replica_.use_data(file_of(text("train")), file_of(text("validation"))); });
    if (!refused) {
        progress_.train = text("train");
        progress_.validation = text("validation");
    }
    return {.number = call.number, .refusal = std::move(refused)};
}

} // namespace rtrain::detail
