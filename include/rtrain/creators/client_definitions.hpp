// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door client.hpp.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/creators/client.hpp>
#include <rtrain/launch/calls/call_board.hpp>
#include <rtrain/launch/calls/call_record.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/fit_guard.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/train/process_end.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain::detail {

/// The clients of this process that have started a run, for exit().
class CallClient::Open {
public:
    static void add(CallClient& client) {
        const std::lock_guard lock(clients.mutex_);
        if (!std::exchange(clients.is_awaited_, true)) {
            std::atexit([] { clients.end(); });
        }
        clients.open_.push_back(&client);
    }
    static void remove(const CallClient& client) {
        const std::lock_guard lock(clients.mutex_);
        std::erase(clients.open_, &client);
    }

private:
    /// The newest first, as destructors would.
    void end() {
        for (;;) {
            CallClient* client = nullptr;
            {
                const std::lock_guard lock(mutex_);
                if (open_.empty()) {
                    return;
                }
                client = open_.back();
                open_.pop_back();
            }
            client->end();
        }
    }

    static Open clients;
    std::mutex mutex_;
    std::vector<CallClient*> open_;
    bool is_awaited_ = false;
};
inline CallClient::Open CallClient::Open::clients;

/// While it exists, a call is being made.
class CallClient::OneCall {
public:
    explicit OneCall(CallClient& client) : client_(client) {
        if (client_.is_calling_.exchange(true)) {
            throw ConfigError("RT-F35", "a CreatorTrainer was called in two threads at once; its "
                                        "calls are made one after another");
        }
    }
    OneCall(const OneCall&) = delete;
    OneCall& operator=(const OneCall&) = delete;
    ~OneCall() { client_.is_calling_ = false; }

private:
    CallClient& client_;
};

RTRAIN_DOOR CallClient::CallClient(TrainerCore core, CallFunction function, const std::string& type)
    : core_(std::move(core)), function_(std::move(function)),
      fit_(core_.begin_calls(function_, type)), board_(std::make_unique<launch::CallBoard>()) {
    launch::Session& session = core_.session();
    const auto run = session.run_of_calls(fit_);
    replays_ = run && (session.target() || !session.trial().empty());
    const auto at = replays_ ? storage::locate(*run, core_.options().run.transfer) : this->run();
    record_ = std::make_unique<launch::CallRecord>(at);
    if (replays_ || core_.options().run.resume != Resume::never) {
        record_->read();
    }
    if (!replays_) {
        session.keep_run_of_calls(fit_, at.filesystem.uri(at.path));
    }
}

RTRAIN_DOOR CallClient::~CallClient() {
    end();
}

RTRAIN_DOOR void CallClient::end() {
    try {
        shutdown();
    } catch (const std::exception& error) {
        console::warn("at the end of a CreatorTrainer: %s", error.what());
    }
}

RTRAIN_DOOR storage::Location CallClient::run() const {
    return core_.location();
}
RTRAIN_DOOR bool CallClient::leads() const {
    return !replays_ && core_.leads();
}
RTRAIN_DOOR bool CallClient::knows_next() const {
    return replays_ || record_->find(number_ + 1) != nullptr;
}

/// The recorded answer to the call with number_.
RTRAIN_DOOR boost::json::object CallClient::recorded(const std::string& name,
                                                     const boost::json::object& arguments) const {
    const launch::AnsweredCall* const known = record_->find(number_);
    if (known == nullptr) {
        FitGuard::require_none(ProcessContext::current());
        if (const auto ending = core_.session().recorded(fit_); ending && ending->failure) {
            (void)ending->get(std::nullopt);
        }
        throw LaunchError("RT-F37",
                          concat("in this rank, main() has made call ", number_, ", ", name,
                                 "(), of a CreatorTrainer that has answered only ", record_->size(),
                                 "; main() must make the same calls in every process"));
    }
    const launch::Call now{.number = number_, .name = name, .arguments = arguments};
    if (known->call != now) {
        throw ConfigError("RT-F31",
                          concat("call ", number_, " of this CreatorTrainer is ", now.text(),
                                 ", but the run ", run().path, " recorded ", known->call.text(),
                                 "; make the same calls, or give the run a new name"));
    }
    if (known->answer.refusal) {
        throw_error(*known->answer.refusal);
    }
    return known->answer.values;
}

RTRAIN_DOOR boost::json::object CallClient::call(const std::string& name,
                                                 boost::json::object arguments) {
    const OneCall one(*this);
    if (is_shut_down_) {
        throw ConfigError("RT-F34", concat(name, "() was called after shutdown()"));
    }
    if (failure_) {
        const auto failure = failure_in([&] { std::rethrow_exception(failure_); });
        throw ConfigError(
            "RT-F34", concat(name, "() was called after the run had failed: ", failure->message));
    }
    ++number_;
    if (replays_ || record_->find(number_) != nullptr) {
        return recorded(name, arguments);
    }
    start();
    launch::AnsweredCall answered{
        .call = {.number = number_, .name = name, .arguments = std::move(arguments)}, .answer = {}};
    try {
        answered.answer = board_->call(answered.call);
    } catch (const PreemptionError& error) {
        leave_preempted(error);
    } catch (...) {
        failure_ = std::current_exception();
        throw;
    }
    if (core_.leads()) {
        record_->append(answered);
    }
    if (answered.answer.refusal) {
        throw_error(*answered.answer.refusal);
    }
    return std::move(answered.answer.values);
}

RTRAIN_DOOR void CallClient::start() {
    if (has_started_) {
        return;
    }
    FitGuard::require_none(ProcessContext::current());
    thread_ = process::Thread([this] { serve(); });
    has_started_ = true;
    Open::add(*this);
}

/// The thread of the run.
RTRAIN_DOOR void CallClient::serve() {
    std::exception_ptr why;
    try {
        (void)core_.serve(fit_, function_, *board_);
        why = std::make_exception_ptr(ConfigError("RT-F34", "the run has ended"));
    } catch (const PreemptionError& error) {
        if (!board_->end(std::current_exception())) { // main() is elsewhere
            core_.say_preempted(error);
            std::fflush(nullptr);
            ::_exit(preempted_exit_code);
        }
        return;
    } catch (...) {
        at_end_ = why = std::current_exception();
    }
    (void)board_->end(why);
}

RTRAIN_DOOR void CallClient::leave_preempted(const Error& error) {
    is_shut_down_ = true;
    core_.say_preempted(error);
    thread_.join();
    exit_preempted();
}

RTRAIN_DOOR void CallClient::shutdown() {
    if (is_shut_down_) {
        return;
    }
    const OneCall one(*this);
    Open::remove(*this);
    is_shut_down_ = true;
    if (!has_started_) {
        return;
    }
    try {
        (void)board_->call({.number = number_ + 1, .name = launch::shutdown_call});
    } catch (const PreemptionError& error) {
        leave_preempted(error);
    } catch (const std::exception&) { // reported below
    }
    thread_.join();
    if (at_end_ && !failure_) {
        std::rethrow_exception(at_end_);
    }
}

} // namespace rtrain::detail
