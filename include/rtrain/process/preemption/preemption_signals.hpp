// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sources of preemption notices: signals, and a function of the user.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/preemption_notice.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>

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

/// While it exists, the first SIGTERM, SIGUSR1 or SIGINT (Ctrl-C) is a preemption notice; the next
/// one ends the process as if without a handler. Signals that the program already handles are left
/// alone.
class PreemptionSignals {
public:
    static constexpr std::array signals{SIGTERM, SIGUSR1, SIGINT};

    /// `grace_s`: how long the process may then run, in seconds. `notice` outlives this object.
    PreemptionSignals(PreemptionNotice& notice, double grace_s)
        : outer_notice_(handled.notice.exchange(&notice)),
          outer_grace_s_(handled.grace_s.exchange(grace_s)) {
        handled.first = 0;
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
        handled.notice = outer_notice_;
        handled.grace_s = outer_grace_s_;
    }

    /// For a process that ends because of a notice. `srun -K` and others end a job as soon as one
    /// of its processes has ended; that must not change the others' exit code.
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
        // A job manager and mpirun may both forward the same signal. Ctrl-C may arrive twice, too,
        // but faster than a person presses it again.
        const std::int64_t echo_ns = signal == SIGINT ? 100'000'000 : 1'000'000'000;
        const std::int64_t now = PreemptionNotice::Clock::now().time_since_epoch().count();
        std::int64_t none = 0;
        if (!handled.first.compare_exchange_strong(none, now) && now - none > echo_ns) {
            ::signal(signal, SIG_DFL);
            ::raise(signal);
            return;
        }
        if (signal == SIGINT && none == 0 && !console::settings().json) {
            constexpr std::string_view line =
                "rtrain: interrupted: saving at the next step or report; Ctrl-C again ends the "
                "process immediately, without saving\n";
            console::say_in_signal(line.data(), line.size());
        }
        if (PreemptionNotice* const notice = handled.notice.load()) {
            notice->give(handled.grace_s.load());
        }
    }

    /// Used by the handlers; a process has one set of them.
    struct Handled {
        std::atomic<PreemptionNotice*> notice;
        std::atomic<double> grace_s;
        std::atomic<std::int64_t> first; ///< signal, in nanoseconds of the clock
    };
    static inline Handled handled{};

    PreemptionNotice* outer_notice_;
    double outer_grace_s_;
    std::array<bool, signals.size()> installed_{};
};

/// Polls a function in its own thread until it returns true, then calls `told` once.
class PreemptionPoller {
public:
    /// Does nothing if `notice` is empty.
    PreemptionPoller(std::function<bool()> notice, std::function<void()> told,
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
            console::warn("preemption_notice threw and is no longer called: %s", error.what());
        }
    }

    process::Thread thread_;
};

} // namespace rtrain::launch
