// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's side of the control channel: a thread reports to the driver what the rank does, also
/// while its other threads hang, and executes the driver's orders. It makes no MPI call and
/// receives no signal. The other side is launch/control/server.hpp. Ranks without a driver report
/// to each other (launch/watch/mutual_watch.hpp).
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/overloaded.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/launch/control/driver_answers.hpp>
#include <rtrain/launch/control/message.hpp>
#include <rtrain/launch/control/socket.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/os/token.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/process/stack/stack_dump.hpp>
#include <rtrain/process/stdio/output_tee.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rtrain::launch {

/// @code
/// auto link = DriverLink::from_environment(); // before main(); null without a driver
/// link->connect(rank, size);
/// link->say(event::Training{});
/// @endcode
///
/// Once connected, the process does not outlive its driver. When the connection ends, or receives
/// nothing for 10 s on TCP, it prints an error [RT-L10] and exits with code 1, without destructors.
/// Members are thread-safe, except that connect() must be called first, and once.
///
/// A link to another rank's PeerHangMonitor is looser: when the connection ends, the process
/// continues. It exits when the judge orders that.
class DriverLink {
public:
    static constexpr std::chrono::milliseconds default_report_interval{200};
    /// Time limit of connect(), while the driver is busy.
    static constexpr std::chrono::seconds connect_limit{30};
    /// On TCP, where the driver sends a message every second.
    static constexpr std::chrono::seconds silence_limit{10};
    /// Time for the destructor to send what is queued.
    static constexpr std::chrono::seconds patience{2};
    /// Time for the watched thread to provide its stack.
    static constexpr std::chrono::seconds stack_limit{1};

    /// Removes the driver's variables from the environment, so that programs started by this one do
    /// not inherit them. Null if there are none.
    [[nodiscard]] static std::unique_ptr<DriverLink> from_environment() {
        const int attempt = env_int(ControlAddress::attempt_variable).value_or(0);
        std::string address = take(ControlAddress::variable);
        std::string token = take(ControlAddress::token_variable);
        ::unsetenv(ControlAddress::attempt_variable);
        if (address.empty()) {
            return nullptr;
        }
        return std::unique_ptr<DriverLink>(
            new DriverLink(std::move(address), std::move(token), attempt));
    }

    /// Creates a link to the judge in a rank.
    [[nodiscard]] static std::unique_ptr<DriverLink>
    to_judge(std::string address, std::string token, std::chrono::milliseconds report_interval) {
        std::unique_ptr<DriverLink> link(new DriverLink(std::move(address), std::move(token), 0));
        link->is_driver_ = false;
        link->report_interval_ = report_interval;
        return link;
    }

    DriverLink(const DriverLink&) = delete;
    DriverLink& operator=(const DriverLink&) = delete;
    /// Sends what is queued, if possible within `patience`, and disconnects.
    ~DriverLink() {
        if (thread_.joinable()) {
            end_thread();
        }
        ::close(wake_);
    }

    /// Joins the driver within `limit` and starts the thread. Throws LaunchError [RT-L8] if the
    /// driver cannot be reached or refuses this rank.
    void connect(int rank, int size, std::chrono::milliseconds limit = connect_limit) {
        rank_ = rank;
        socket_ = ControlSocket::connect(address_, token_,
                                         {.rank = rank,
                                          .size = size,
                                          .attempt = attempt_,
                                          .pid = ::getpid(),
                                          .host = storage::host_name()},
                                         limit);
        control::wipe(token_);
        const SignalsBlocked none;
        thread_ = process::Thread([this] { work(); });
    }

    /// Queues an event and returns immediately; events queued before connect() are sent after it.
    void say(const RankEvent& event) {
        {
            std::string frame = encode(event);
            const std::lock_guard lock(mutex_);
            said_done_ = said_done_ || std::holds_alternative<event::Done>(event);
            queue_.push_back(std::move(frame));
        }
        wake();
    }

    /// The same for events that are soon outdated: dropped while others wait to be sent.
    void say_unless_behind(const RankEvent& event) {
        {
            const std::lock_guard lock(mutex_);
            if (!queue_.empty() || !all_sent_) {
                return;
            }
        }
        say(event);
    }

    /// Waits until all events are in the kernel: then they arrive even if this process dies.
    /// Returns false on timeout.
    bool flush(std::chrono::milliseconds limit) {
        std::unique_lock lock(mutex_);
        const auto sent = [&] { return queue_.empty() && all_sent_; };
        (void)changed_.wait_for(lock, limit, [&] { return ended_ || sent(); });
        return sent();
    }

    /// The driver's messages for threads that wait for them.
    [[nodiscard]] DriverAnswers& answers() noexcept { return answers_; }

    /// For a process that speaks for another one, as its parent: `report` replaces the status of
    /// this process, `dump` answers Dump with the text of a Stack. Both are called in the link's
    /// thread. Call before connect().
    void speak_for(std::function<RankReport(int rank)> report, std::function<std::string()> dump) {
        report_ = std::move(report);
        dump_ = std::move(dump);
    }

    /// Sets a function that is called in the link's thread for each preemption by the driver, and
    /// immediately for an earlier one. It must not throw.
    void on_preempt(std::function<void(double grace_s)> function) {
        {
            const std::lock_guard lock(mutex_);
            on_preempt_ = std::move(function);
        }
        wake();
    }

    /// Sets a function that is called in the link's thread before this process exits because its
    /// driver is gone. Call before connect().
    void before_exit(std::function<void()> function) { before_exit_ = std::move(function); }

private:
    using Clock = std::chrono::steady_clock;

    /// Thrown inside the thread when the driver is gone and no longer needed.
    struct Ended {};

    DriverLink(std::string address, std::string token, int attempt)
        : address_(std::move(address)), token_(std::move(token)), attempt_(attempt),
          wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

    /// Also overwrites it, because /proc shows the initial environment.
    static std::string take(const char* variable) {
        char* const value = std::getenv(variable);
        if (value == nullptr) {
            return "";
        }
        std::string text = value;
        ::explicit_bzero(value, text.size());
        ::unsetenv(variable);
        return text;
    }

    void wake() { (void)::eventfd_write(wake_, 1); }

    void end_thread() {
        (void)flush(patience);
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake();
        thread_.join();
    }

    void work() {
        try {
            try {
                communicate();
            } catch (const std::exception& error) { // such as std::bad_alloc
                driver_gone(error.what());
            }
        } catch (const Ended&) {
            const std::lock_guard lock(mutex_);
            ended_ = true;
        }
        changed_.notify_all();
    }

    void communicate() {
        std::string outgoing;
        auto next_report = Clock::now();
        last_heard_ = next_report;
        for (;;) {
            const bool stopping = take_queue(outgoing);
            if (outgoing.empty() && Clock::now() >= next_report) {
                outgoing = encode(report_(rank_));
                next_report = Clock::now() + report_interval_;
            }
            send(outgoing);
            if (stopping) {
                return;
            }
            call_on_preempt();
            wait(!outgoing.empty(), next_report);
            receive();
        }
    }

    /// Sends a fresh report before the events. Returns whether the destructor waits.
    bool take_queue(std::string& outgoing) {
        const std::lock_guard lock(mutex_);
        if (!queue_.empty()) {
            outgoing += encode(report_(rank_));
            for (; !queue_.empty(); queue_.pop_front()) {
                outgoing += queue_.front();
            }
            all_sent_ = false;
        }
        return stopping_;
    }

    void send(std::string& outgoing) {
        if (!socket_.send_some(outgoing)) {
            driver_gone("the connection has ended");
        }
        if (outgoing.empty()) {
            const std::lock_guard lock(mutex_);
            all_sent_ = true;
        }
        changed_.notify_all();
    }

    /// Sleeps until the driver sends, an event is queued, or a report is due.
    void wait(bool to_write, Clock::time_point next_report) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(next_report - Clock::now()).count();
        // With bytes unsent, the next report waits for them.
        const auto limit_ms = static_cast<int>(std::clamp<long long>(
            left, to_write ? report_interval_.count() : 0, report_interval_.count()));
        const auto events = static_cast<short>(POLLIN | (to_write ? POLLOUT : 0));
        std::array<pollfd, 2> ends{{{socket_.descriptor(), events, 0}, {wake_, POLLIN, 0}}};
        (void)::poll(ends.data(), ends.size(), limit_ms);
        eventfd_t ignored = 0;
        (void)::eventfd_read(wake_, &ignored);
    }

    void receive() {
        const auto before = Clock::now(); // this process may be stopped between any two lines
        const auto received = socket_.receive();
        if (received != ControlSocket::Received::nothing) {
            last_heard_ = before;
        }
        try {
            while (const auto event = socket_.next()) {
                handle(*event);
            }
        } catch (const LaunchError& error) {
            driver_gone(error.message());
        }
        if (received == ControlSocket::Received::end) {
            driver_gone("the connection has ended");
        }
        if (is_driver_ && !socket_.is_local() && before - last_heard_ > silence_limit) {
            driver_gone(detail::concat("it has been silent for ", silence_limit.count(), " s"));
        }
    }

    void handle(const DriverEvent& received) {
        std::visit(
            detail::Overloaded{
                [this](const event::Dump&) {
                    // A driver kills all ranks together.
                    context_.status.condemned = !is_driver_;
                    say(event::Stack{dump_()});
                },
                [](const event::End&) {
                    process::OutputTee::settle_current();
                    ::_exit(EXIT_FAILURE); // without destructors: the thread that trains hangs
                },
                [this](const event::Preempt& preempt) {
                    preempt_asked_ = preempt.grace_s;
                    call_on_preempt();
                },
                [this](const Decision& decision) { answers_.add(decision); },
                [this](const event::Addresses& addresses) { answers_.add(addresses); },
                [this](const event::Call& call) { answers_.add(call); },
                [this](const event::Store& answer) { answers_.add(CallAnswer(answer)); },
                [this](const event::Reported& answer) { answers_.add(CallAnswer(answer)); },
                [this](const event::Met& answer) { answers_.add(CallAnswer(answer)); },
                [this](const event::CallFailed& answer) { answers_.add(CallAnswer(answer)); },
                [](const event::Ping&) {},
                [](const event::Welcome&) {}, // ControlSocket::connect() has received the answer
                [](const event::Refused&) {},
            },
            received);
    }

    void call_on_preempt() {
        std::function<void(double)> function;
        {
            const std::lock_guard lock(mutex_);
            function = on_preempt_;
        }
        if (function && preempt_asked_) {
            function(*std::exchange(preempt_asked_, std::nullopt));
        }
    }

    /// An attempt must not outlive its driver, which may start another one on the same files. A
    /// rank that is done may exit normally; one without a driver continues.
    void driver_gone(const std::string& how) {
        {
            const std::lock_guard lock(mutex_);
            if (stopping_ || said_done_ || !is_driver_) {
                throw Ended{};
            }
        }
        console::error("rank %d has lost its driver (%s) and exits, too [RT-L10]", rank_,
                       how.c_str());
        if (before_exit_) {
            before_exit_();
        }
        ::_exit(EXIT_FAILURE);
    }

    std::function<void()> before_exit_;
    ProcessContext& context_ = ProcessContext::current(); ///< which it reports
    std::function<RankReport(int)> report_ = [this](int rank) {
        return RankReport::now(rank, context_);
    };
    std::function<std::string()> dump_ = [] { return stack_of_watched_thread(stack_limit); };
    std::string address_;
    std::string token_;
    int attempt_;
    bool is_driver_ = true; ///< the other side
    std::chrono::milliseconds report_interval_ = default_report_interval;
    int wake_; ///< an eventfd
    int rank_ = -1;
    ControlSocket socket_;
    DriverAnswers answers_;
    process::Thread thread_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::string> queue_; ///< frames to send
    std::function<void(double)> on_preempt_;
    bool all_sent_ = true; ///< what was taken from the queue
    bool said_done_ = false;
    bool ended_ = false; ///< the thread has ended early
    bool stopping_ = false;

    // Accessed only by the thread.
    Clock::time_point last_heard_;
    std::optional<double> preempt_asked_;
};

} // namespace rtrain::launch
