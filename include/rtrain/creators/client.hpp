// SPDX-License-Identifier: Apache-2.0
/// @file
/// CallClient: main()'s side of a CreatorTrainer. It makes calls one after another, records their
/// answers, and owns the thread in which the run lives, or its driver.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/train/trainer_core.hpp>

#include <boost/json/object.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace rtrain {

namespace launch {
class CallBoard;
class CallRecord;
} // namespace launch

namespace detail {

class CallClient {
public:
    /// Counts as one fit() call of the program. In a rank that was launched for it, serves the
    /// calls with `function`, and exits. `type`: names the function. Throws ConfigError [RT-C23]
    /// inside a training function.
    CallClient(TrainerCore core, CallFunction function, const std::string& type);
    CallClient(const CallClient&) = delete;
    CallClient& operator=(const CallClient&) = delete;
    /// Like shutdown(), but warns instead of throwing.
    ~CallClient();

    /// Returns the answer of the ranks, or the recorded one. Throws the ranks' errors, ConfigError
    /// [RT-F31] for another call than the recorded one, [RT-F34] after the end, [RT-F35] in two
    /// threads at once. A preempted run ends the process.
    boost::json::object call(const std::string& name, boost::json::object arguments);

    /// The number of the next call, from 1.
    [[nodiscard]] std::int64_t next_number() const noexcept { return number_ + 1; }
    /// True if the answer of the next call is recorded.
    [[nodiscard]] bool knows_next() const;
    /// True in the process that writes files for the ranks: the driver, or rank 0.
    [[nodiscard]] bool leads() const;
    /// The directory of the run.
    [[nodiscard]] storage::Location run() const;

    /// Ends the run: its ranks finish what they write, and exit. Rethrows errors of that.
    void shutdown();

private:
    class OneCall;
    class Open;
    void start();
    void serve();
    void end();
    [[noreturn]] void leave_preempted(const Error& error);
    [[nodiscard]] boost::json::object recorded(const std::string& name,
                                               const boost::json::object& arguments) const;

    TrainerCore core_;
    CallFunction function_;
    int fit_ = 0;
    bool replays_ = false; ///< in a rank of a later run, or a helper
    std::int64_t number_ = 0;
    std::unique_ptr<launch::CallRecord> record_;
    std::unique_ptr<launch::CallBoard> board_;
    std::atomic<bool> is_calling_{false};
    bool has_started_ = false;
    bool is_shut_down_ = false;
    std::exception_ptr failure_; ///< what has ended the run
    std::exception_ptr at_end_;  ///< of the thread: an error after shutdown
    process::Thread thread_;     ///< last: uses the others
};

} // namespace detail
} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/creators/client_definitions.hpp>
#endif
