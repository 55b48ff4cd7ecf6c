// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a process hears that its run is to make room: signals, and a function of the user's.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/process/preemption_notice.hpp>
#include <rtrain/process/signals_blocked.hpp>
#include <rtrain/process/thread.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>

#include <signal.h>

namespace rtrain::launch {

/// While it lives, the first SIGTERM, SIGUSR1 or SIGINT (Ctrl-C) is a notice; the next one ends the
/// process as if there were no handler. A signal for which the program has a handler of its own is
/// left to it.
class PreemptionSignals {
public:
    static constexpr std::array signals{SIGTERM, SIGUSR1, SIGINT};

    /// `grace_s`: how long the process may then take, in seconds.
    explicit PreemptionSignals(double grace_s) {
        (void)PreemptionNotice::current(); // made here, not in the handler
        first = 0;
        grace() = grace_s;
        for (std::size_t i = 0; i < signals.size(); ++i) {
            struct sigaction now {};
            ::sigaction(signals[i], nullptr, &now);
            installed_[i] = now.sa_handler == SIG_DFL;
            if (installed_[i]) {
                struct sigaction handler {};
                handler.sa_handler = &hear;
                handler.sa_flags = SA_RESTART;
                ::sigaction(signals[i], &handler, nullptr);
            }
        }
    }
    PreemptionSignals(const PreemptionSignals&) = delete;
    PreemptionSignals& operator=(const PreemptionSignals&) = delete;
    ~PreemptionSignals() {
        for (std::size_t i = 0; i < signals.size(); ++i) {
            if (installed_[i]) {
                ::signal(signals[i], SIG_DFL);
            }
        }
    }

    /// For a process that ends because of a notice. Whoever ends a job as soon as one of its
    /// processes has ended, as `srun -K` does, must not take the others' exit code from them.
    static void ignore() {
        for (const int signal : {SIGTERM, SIGUSR1}) { // Ctrl-C still ends it
            struct sigaction now {};
            ::sigaction(signal, nullptr, &now);
            if (now.sa_handler == SIG_DFL) {
                ::signal(signal, SIG_IGN);
            }
        }
    }

private:
    static void hear(int signal) {
        // A job manager and mpirun may both pass on the same signal.
        // Ctrl-C may come twice, too, but sooner than a person presses it again.
        const std::int64_t echo_ns = signal == SIGINT ? 100'000'000 : 1'000'000'000;
        const std::int64_t now = PreemptionNotice::Clock::now().time_since_epoch().count();
        std::int64_t none = 0;
        if (!first.compare_exchange_strong(none, now) && now - none > echo_ns) {
            ::signal(signal, SIG_DFL);
            ::raise(signal);
            return;
        }
        if (signal == SIGINT && none == 0 && !console::manner.json) {
            constexpr std::string_view line =
                "rtrain: interrupted: saving at the next step or report; Ctrl-C again ends the "
                "process at once, without saving\n";
            console::say_in_signal(line.data(), line.size());
        }
        PreemptionNotice::current().give(grace().load());
    }
    static inline std::atomic<std::int64_t> first{0}; ///< signal, in nanoseconds of the clock
    static std::atomic<double>& grace() {
        static std::atomic<double> seconds{0};
        return seconds;
    }

    std::array<bool, signals.size()> installed_{};
};

/// Calls a function again and again, in a thread of its own, until it returns true; then `told`,
/// once.
class NoticeWatch {
public:
    /// Watches nothing when `notice` is empty.
    NoticeWatch(std::function<bool()> notice, std::function<void()> told,
                std::chrono::milliseconds interval = std::chrono::seconds(1)) {
        if (!notice) {
            return;
        }
        const SignalsBlocked none;
        thread_ = process::Thread(
            [notice = std::move(notice), told = std::move(told),
             interval](const std::stop_token& stop) { watch(notice, told, interval, stop); });
    }

private:
    static void watch(const std::function<bool()>& notice, const std::function<void()>& told,
                      std::chrono::milliseconds interval, const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        try {
            while (!stop.stop_requested()) {
                if (notice()) {
                    told();
                    return;
                }
                wake.wait_for(lock, stop, interval, [] { return false; });
            }
        } catch (const std::exception& error) {
            console::warn("preemption_notice threw, and is not called any more: %s", error.what());
        }
    }

    process::Thread thread_;
};

} // namespace rtrain::launch
