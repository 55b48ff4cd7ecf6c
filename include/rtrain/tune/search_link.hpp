// SPDX-License-Identifier: Apache-2.0
/// @file
/// SearchLink: rank 0 of a trial tells its search what it reports and saves, and hears whether it
/// goes on: as a condition of RunConfig::stop, and as a callback.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/callback.hpp>
#include <rtrain/tune/trial_task.hpp>
#include <rtrain/tune/verdict_socket.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::tune::internal {

/// Connects with the first word; so it may be in processes that have none to say.
class SearchLink {
public:
    explicit SearchLink(const TrialTask& task) : socket_(task.socket), known_(task.known) {}

    /// A line of result.json. Those that the search knows are heard again when a run is taken up,
    /// and say nothing. True when the run is to end here. Throws LaunchError [RT-L8] when the
    /// search has gone.
    [[nodiscard]] bool ends_at(const Config& line) {
        const std::lock_guard lock(mutex_);
        const auto iteration = line.at("training_iteration").to_number<std::int64_t>();
        if (iteration <= known_) {
            return false;
        }
        known_ = iteration;
        Config metrics = line;
        metrics.erase("config");
        say({{"kind", "result"}, {"metrics", std::move(metrics)}});
        for (;;) {
            if (const auto verdict = connection_->take()) {
                return !verdict->at("goes_on").as_bool();
            }
            if (!connection_->fill()) {
                throw LaunchError("RT-L8", "the search of this trial has gone");
            }
        }
    }

    void saved(const std::string& checkpoint) {
        const std::lock_guard lock(mutex_);
        say({{"kind", "saved"}, {"checkpoint", checkpoint}});
    }

private:
    void say(const boost::json::object& message) {
        if (!connection_) {
            connection_ = connect_to_search(socket_);
        }
        if (!connection_->send(message)) {
            throw LaunchError("RT-L8", "the search of this trial has gone");
        }
    }

    std::mutex mutex_;
    std::string socket_;
    std::int64_t known_;
    std::optional<LineConnection> connection_;
};

struct TellOfCheckpoints {
    std::shared_ptr<SearchLink> link;
    void after_checkpoint(const track::RunInfo& /*run*/, const Checkpoint& checkpoint) const {
        link->saved(checkpoint.path.filename().string());
    }
};

} // namespace rtrain::tune::internal
