// SPDX-License-Identifier: Apache-2.0
/// @file
/// SavedSignalHandlers: saves this process's handlers of some signals and restores them later. Cost
/// tier 0: std only.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <signal.h>

namespace rtrain::process {

/// The destructor restores the handlers from construction.
class SavedSignalHandlers {
public:
    explicit SavedSignalHandlers(const std::vector<int>& signals) {
        for (const int signal : signals) {
            ::sigaction(signal, nullptr, &before_[signal]);
        }
    }
    SavedSignalHandlers(const SavedSignalHandlers&) = delete;
    SavedSignalHandlers& operator=(const SavedSignalHandlers&) = delete;
    ~SavedSignalHandlers() {
        for (const auto& [signal, action] : before_) {
            ::sigaction(signal, &action, nullptr);
        }
    }

    /// Shared by all that exist at a time and handle the same signals: the last one restores the
    /// handlers, in whichever order they end.
    [[nodiscard]] static std::shared_ptr<const SavedSignalHandlers>
    shared(const std::vector<int>& signals) {
        static std::mutex mutex;
        static std::weak_ptr<const SavedSignalHandlers> users;
        const std::lock_guard lock(mutex);
        auto user = users.lock();
        if (!user) {
            user = std::make_shared<const SavedSignalHandlers>(signals);
            users = user;
        }
        return user;
    }

    /// Those that this process's parent did not make it ignore, as nohup and `&` do.
    [[nodiscard]] std::vector<int> heeded() const {
        std::vector<int> signals;
        for (const auto& [signal, action] : before_) {
            if (action.sa_handler != SIG_IGN) {
                signals.push_back(signal);
            }
        }
        return signals;
    }

private:
    std::map<int, struct sigaction> before_;
};

} // namespace rtrain::process
