// SPDX-License-Identifier: Apache-2.0
/// @file
/// SearchLink: rank 0 of a trial sends its reports and checkpoints to its search, and receives
/// whether it continues: as a condition of RunConfig::stop, and as a callback. After its end it
/// receives the next trial for the same ranks.
///
/// A line of JSON is a message.
///   to the search: result, saved, ended, begun
///   to rank 0: verdict, trial, end
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/config/callback.hpp>
#include <rtrain/launch/calls/call.hpp>
#include <rtrain/launch/calls/call_source.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/controller/trial_message.hpp>
#include <rtrain/tune/processes/trial_channel.hpp>
#include <rtrain/tune/processes/trial_task.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <poll.h>

namespace rtrain::tune::internal {

/// Connects at the first message, so processes that send none may have one.
class SearchLink {
public:
    explicit SearchLink(const TrialTask& task) : socket_(task.socket), known_(task.known) {}

    /// Starts the next trial.
    void begin(const TrialTask& task) {
        const std::lock_guard lock(mutex_);
        known_ = task.known;
    }

    /// Sends a line of result.json; lines that the search already has, which a resumed run repeats,
    /// are skipped. True when the run must end here. Throws LaunchError [RT-L8], as all members do,
    /// when the search is gone.
    [[nodiscard]] bool report(const Config& line) {
        const std::lock_guard lock(mutex_);
        const auto iteration = line.at("training_iteration").to_number<std::int64_t>();
        if (iteration <= known_) {
            return false;
        }
        known_ = iteration;
        Config metrics = line;
        metrics.erase("config");
        send({{"kind", message_names[MessageKind::result]}, {"metrics", std::move(metrics)}});
        return !hear().at("goes_on").as_bool();
    }

    void say(const boost::json::object& message) {
        const std::lock_guard lock(mutex_);
        send(message);
    }

    /// The next message of the search; none after a timeout.
    [[nodiscard]] std::optional<boost::json::object> next(std::chrono::milliseconds limit) {
        const std::lock_guard lock(mutex_);
        if (auto message = connection_->take()) {
            return message;
        }
        pollfd search{connection_->descriptor(), POLLIN, 0};
        if (::poll(&search, 1, static_cast<int>(limit.count())) <= 0) {
            return std::nullopt;
        }
        return hear();
    }

private:
    void send(const boost::json::object& message) {
        if (!connection_) {
            connection_ = connect_to_search(socket_);
        }
        if (!connection_->send(message)) {
            throw gone();
        }
    }

    boost::json::object hear() {
        for (;;) {
            if (auto message = connection_->take()) {
                return *std::move(message);
            }
            if (!connection_->fill()) {
                throw gone();
            }
        }
    }

    static LaunchError gone() { return {"RT-L8", "the search of this trial is gone"}; }

    std::mutex mutex_;
    std::string socket_;
    std::int64_t known_;
    std::optional<LineConnection> connection_;
};

struct CheckpointNotifier {
    std::shared_ptr<SearchLink> link;
    void after_checkpoint(const track::RunInfo& /*run*/, const Checkpoint& checkpoint) const {
        const auto manifest = checkpoint::parse_manifest(
            storage::read_file(checkpoint.path / checkpoint::manifest_file));
        const auto number = [&](const char* name) {
            return number_at(manifest.metrics, name).value_or(0);
        };
        link->say(saved_message({.name = checkpoint.path.filename().string(),
                                 .reports = static_cast<std::int64_t>(number("training_iteration")),
                                 .time_s = number("time_total_s")}));
    }
};

/// The trials that run one after the other in one process or its ranks, as calls to them. Each is
/// answered by the end of its run.
class TrialCalls final : public launch::CallSource {
public:
    /// `first`: the trial that these processes were started for.
    explicit TrialCalls(const TrialTask& first)
        : first_{1, "trial", first.to_json()}, search_(std::make_shared<SearchLink>(first)) {}

    [[nodiscard]] const launch::Call& first() const noexcept { return first_; }

    [[nodiscard]] const std::shared_ptr<SearchLink>& search() const noexcept { return search_; }

    /// Begins the trial of a call.
    [[nodiscard]] TrialTask begin(const launch::Call& call) {
        auto task = TrialTask::from(call.arguments);
        search_->begin(task);
        return task;
    }

    [[nodiscard]] std::optional<launch::Call> wait(std::int64_t number,
                                                   std::chrono::milliseconds limit) override {
        const auto message = search_->next(limit);
        if (!message) {
            return std::nullopt;
        }
        return kind_of(*message) == MessageKind::trial
                   ? launch::Call{number, "trial", message->at("task").as_object()}
                   : launch::Call{number, launch::shutdown_call};
    }
    void begun(const launch::Call& /*call*/) override {
        search_->say({{"kind", message_names[MessageKind::begun]}});
    }
    void answer(const launch::CallReply& /*answer*/) override {
        search_->say({{"kind", message_names[MessageKind::ended]}});
    }

private:
    launch::Call first_;
    std::shared_ptr<SearchLink> search_;
};

} // namespace rtrain::tune::internal
