// SPDX-License-Identifier: Apache-2.0
/// @file
/// SearchLink: rank 0 of a trial tells its search what it reports and saves, and hears whether it
/// goes on: as a condition of RunConfig::stop, and as a callback. Behind its end, it hears which
/// trial follows in the same ranks.
///
/// A line of JSON is a message.
///   to the search: result, saved, ended, begun
///   to rank 0: verdict, trial, end
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/manifest.hpp>
#include <rtrain/config/callback.hpp>
#include <rtrain/run/further_runs.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/saved_message.hpp>
#include <rtrain/tune/trial_task.hpp>
#include <rtrain/tune/verdict_socket.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <poll.h>

namespace rtrain::tune::internal {

/// Connects with the first word; so it may be in processes that have none to say.
class SearchLink {
public:
    explicit SearchLink(const TrialTask& task) : socket_(task.socket), known_(task.known) {}

    /// The trial that follows begins.
    void begin(const TrialTask& task) {
        const std::lock_guard lock(mutex_);
        known_ = task.known;
    }

    /// A line of result.json. Those that the search knows are heard again when a run is taken up,
    /// and say nothing. True when the run is to end here. Throws LaunchError [RT-L8], as all
    /// members do, when the search has gone.
    [[nodiscard]] bool ends_at(const Config& line) {
        const std::lock_guard lock(mutex_);
        const auto iteration = line.at("training_iteration").to_number<std::int64_t>();
        if (iteration <= known_) {
            return false;
        }
        known_ = iteration;
        Config metrics = line;
        metrics.erase("config");
        send({{"kind", "result"}, {"metrics", std::move(metrics)}});
        return !hear().at("goes_on").as_bool();
    }

    void say(const boost::json::object& message) {
        const std::lock_guard lock(mutex_);
        send(message);
    }

    /// What the search says next; none when a while has passed.
    [[nodiscard]] std::optional<boost::json::object> next() {
        constexpr std::chrono::milliseconds while_it_is_short{10'000};
        const std::lock_guard lock(mutex_);
        if (auto message = connection_->take()) {
            return message;
        }
        pollfd search{connection_->descriptor(), POLLIN, 0};
        if (::poll(&search, 1, static_cast<int>(while_it_is_short.count())) <= 0) {
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

    static LaunchError gone() { return {"RT-L8", "the search of this trial has gone"}; }

    std::mutex mutex_;
    std::string socket_;
    std::int64_t known_;
    std::optional<LineConnection> connection_;
};

struct TellOfCheckpoints {
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

/// The trials that one process, or its ranks, run one after the other.
class TrialRuns : public rtrain::detail::FurtherRuns {
public:
    using OptionsOf =
        std::function<TrainerOptions(const TrialTask&, const std::shared_ptr<SearchLink>&)>;

    /// `options_of`: a trial; called before each.
    TrialRuns(TrialTask first, OptionsOf options_of)
        : link_(std::make_shared<SearchLink>(first)), first_(std::move(first)),
          options_of_(std::move(options_of)) {}

    [[nodiscard]] TrainerOptions first() { return options_of_(first_, link_); }

    void ended() override { link_->say({{"kind", "ended"}}); }
    [[nodiscard]] std::optional<std::string> wait() override {
        const auto message = link_->next();
        if (!message) {
            return "";
        }
        const auto* const task = message->if_contains("task");
        return task != nullptr ? std::optional(json::serialize(*task)) : std::nullopt;
    }
    [[nodiscard]] TrainerOptions options(const std::string& run) override {
        const auto task = TrialTask::from(json::parse(run).as_object());
        link_->begin(task);
        return options_of_(task, link_);
    }
    void begun() override { link_->say({{"kind", "begun"}}); }

private:
    std::shared_ptr<SearchLink> link_;
    TrialTask first_;
    OptionsOf options_of_;
};

} // namespace rtrain::tune::internal
