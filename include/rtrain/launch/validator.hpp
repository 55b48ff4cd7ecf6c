// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validator: rank 0's queue of checkpoints to validate, and the protocol with the helper process
/// that works on it (launch/helper_process.hpp). It never makes rank 0 wait, nor uses its cores:
/// one thread sleeps until the helper answers. The helper's side is launch/helper.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/helper.hpp>
#include <rtrain/launch/helper_process.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::launch {

/// One checkpoint to validate.
struct ValidationRequest {
    std::int64_t id = 0;
    std::string checkpoint{}; ///< path or URI
    Config task{};
    std::optional<double> timeout_s{};
};

/// Outcome of a validation.
struct Verdict {
    std::int64_t id = 0;
    CheckpointStatus status = CheckpointStatus::validated; ///< or _failed, or _timeout
    Config metrics{};                                      ///< returned by the function
    std::optional<Failure> failure{};                      ///< set if it returned none
};

/// Validates in the order of requests, one at a time. The process is started for the first request
/// and reused; one that has died or was killed after a timeout is replaced at the next request.
class Validator {
public:
    /// `when_ended` is called with each verdict, in the order of requests, in the validator's
    /// thread; it must not throw.
    Validator(HelperProgram program, std::function<void(Verdict)> when_ended)
        : program_(std::move(program)), when_ended_(std::move(when_ended)) {}
    Validator(const Validator&) = delete;
    Validator& operator=(const Validator&) = delete;
    /// Kills the helper; pending requests are lost.
    ~Validator() {
        if (thread_.joinable()) {
            {
                const std::lock_guard lock(mutex_);
                stopping_ = true;
            }
            changed_.notify_all();
            (void)::eventfd_write(stop_event_, 1);
            thread_.join();
        }
        ::close(stop_event_);
    }

    /// Returns immediately; thread-safe. Throws ConfigError [RT-C17] if the limit is not above 0,
    /// or the task is longer than Helper::max_line.
    void submit(ValidationRequest request) {
        detail::check_validation_timeout(request.timeout_s);
        if (line_of(request).size() > Helper::max_line) {
            throw ConfigError("RT-C17", detail::concat("the task of a validation is longer than ",
                                                       Helper::max_line, " bytes of JSON"));
        }
        {
            const std::lock_guard lock(mutex_);
            if (!thread_.joinable()) {
                start_thread();
            }
            queue_.push_back(std::move(request));
            ++unanswered_;
        }
        changed_.notify_all();
    }

    /// Waits until `when_ended` has returned for everything submitted, or for `limit_s` seconds;
    /// returns whether it has.
    bool wait_all(std::optional<double> limit_s = std::nullopt) {
        std::unique_lock lock(mutex_);
        const auto done = [&] { return unanswered_ == 0; };
        if (!limit_s) {
            changed_.wait(lock, done);
            return true;
        }
        return changed_.wait_until(lock, deadline_after(limit_s).value_or(Clock::time_point::max()),
                                   done);
    }

private:
    static constexpr const char* took_too_long = "RT-L6";

    using Clock = std::chrono::steady_clock;

    /// Thrown inside the thread when the validator is destroyed.
    struct Stopped {};

    static std::string line_of(const ValidationRequest& request) {
        return json::serialize({{"id", request.id},
                                {"checkpoint", request.checkpoint},
                                {"task", request.task}}) +
               "\n";
    }

    /// Empty for no limit, and for limits of more than a year.
    static std::optional<Clock::time_point> deadline_after(const std::optional<double>& seconds) {
        constexpr double year = 365 * 86400.0;
        if (!seconds || !(*seconds < year)) {
            return std::nullopt;
        }
        return Clock::now() + detail::duration_of(*seconds);
    }

    void start_thread() {
        stop_event_ = stop_event_ < 0 ? ::eventfd(0, EFD_CLOEXEC) : stop_event_;
        const SignalsBlocked none;
        thread_ = process::Thread([this] { work(); });
    }

    /// The helper is started from this thread, does not outlive it, and dies with it.
    void work() {
        for (;;) {
            ValidationRequest request;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
                if (stopping_) {
                    break;
                }
                request = std::move(queue_.front());
                queue_.pop_front();
            }
            try {
                when_ended_(validate(request));
                const std::lock_guard lock(mutex_);
                --unanswered_;
            } catch (const Stopped&) {
                break;
            }
            changed_.notify_all();
        }
        helper_.reset();
    }

    Verdict validate(const ValidationRequest& request) {
        Verdict verdict{.id = request.id};
        try {
            start_helper();
            verdict.metrics = ask(request);
        } catch (const std::exception& error) {
            verdict.failure = detail::failure_of(error);
        }
        if (verdict.failure) {
            verdict.status = verdict.failure->code == took_too_long
                                 ? CheckpointStatus::validation_timeout
                                 : CheckpointStatus::validation_failed;
        }
        return verdict;
    }

    /// Keeps a helper that waits for requests; replaces one that has died since, or sent
    /// unsolicited data.
    void start_helper() {
        if (helper_) {
            pollfd state{helper_->socket(), POLLIN, 0};
            if (!incoming_.empty() || ::poll(&state, 1, 0) != 0) {
                helper_.reset();
            }
        }
        if (!helper_) {
            incoming_.clear();
            ready_ = false;
            helper_.emplace(program_);
        }
    }

    /// Returns the metrics; throws an error that describes the failure. Keeps the helper only if it
    /// has answered properly.
    Config ask(const ValidationRequest& request) {
        std::string outgoing = line_of(request);
        auto deadline = deadline_after(request.timeout_s);
        for (;;) {
            if (const auto line = take_line()) {
                if (*line != R"({"ready":true})" || ready_) {
                    return metrics_in(*line, request.id);
                }
                ready_ = true;
                deadline = deadline_after(request.timeout_s);
            }
            if (deadline && Clock::now() >= *deadline) {
                helper_.reset();
                throw LaunchError(took_too_long, detail::concat("the validation took longer than ",
                                                                *request.timeout_s, " s"));
            }
            if (incoming_.find('\n') == std::string::npos) {
                wait(!outgoing.empty(), deadline);
                send(outgoing);
                receive();
            }
        }
    }

    /// Sleeps until the helper's socket is ready, or the deadline.
    void wait(bool to_write, const std::optional<Clock::time_point>& deadline) {
        int limit_ms = -1;
        if (deadline) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
            limit_ms =
                static_cast<int>(std::clamp<long long>(left, 0, std::numeric_limits<int>::max()));
        }
        const auto events = static_cast<short>(POLLIN | (to_write ? POLLOUT : 0));
        std::array<pollfd, 2> ends{{{helper_->socket(), events, 0}, {stop_event_, POLLIN, 0}}};
        (void)::poll(ends.data(), ends.size(), limit_ms);
        if (ends[1].revents != 0) {
            throw Stopped{};
        }
    }

    void send(std::string& outgoing) {
        while (!outgoing.empty()) {
            const ssize_t sent =
                ::send(helper_->socket(), outgoing.data(), outgoing.size(), MSG_NOSIGNAL);
            if (sent < 0) {
                return; // not writable now; if it is dead, receive() detects that
            }
            outgoing.erase(0, static_cast<std::size_t>(sent));
        }
    }

    void receive() {
        for (;;) {
            std::array<char, 65536> part; // NOLINT: recv fills it
            const ssize_t got = ::recv(helper_->socket(), part.data(), part.size(), 0);
            if (got > 0) {
                incoming_.append(part.data(), static_cast<std::size_t>(got));
                if (incoming_.size() > Helper::max_line) {
                    refuse(detail::concat("more than ", Helper::max_line, " bytes"));
                }
            } else if (got < 0 && errno == EINTR) {
                continue;
            } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                return;
            } else if (incoming_.find('\n') != std::string::npos) {
                return; // an answer from before its death
            } else {
                throw death();
            }
        }
    }

    std::optional<std::string> take_line() {
        const auto end = incoming_.find('\n');
        if (end == std::string::npos) {
            return std::nullopt;
        }
        std::string line = incoming_.substr(0, end);
        incoming_.erase(0, end + 1);
        return line;
    }

    Config metrics_in(const std::string& line, std::int64_t id) {
        boost::json::value answer;
        try {
            answer = json::parse(line);
        } catch (const std::exception& error) {
            refuse(error.what());
        }
        const auto* const object = answer.if_object();
        const auto* const of = object != nullptr ? object->if_contains("id") : nullptr;
        if (of == nullptr || *of != id) {
            refuse("a line that does not answer the request");
        }
        if (const auto* const error = object->if_contains("error");
            error != nullptr && error->is_string()) {
            throw std::runtime_error("the validation function threw: " +
                                     std::string(error->as_string()));
        }
        const auto* const metrics = object->if_contains("metrics");
        if (metrics == nullptr || !metrics->is_object()) {
            refuse("no metrics");
        }
        return metrics->get_object();
    }

    /// Kills a helper that violates the protocol.
    [[noreturn]] void refuse(const std::string& what) {
        helper_.reset();
        throw LaunchError("RT-L5", "the validation process sent " + what +
                                       "; check that no other code uses descriptor 3");
    }

    /// Describes how a helper that has closed the socket ended.
    LaunchError death() {
        const auto status = helper_->end();
        std::string how = "ended";
        if (status && WIFSIGNALED(*status)) {
            how = detail::concat("was killed by signal ", WTERMSIG(*status), " (",
                                 ::strsignal(WTERMSIG(*status)), ")");
        } else if (status && WIFEXITED(*status)) {
            how = detail::concat("ended with exit code ", WEXITSTATUS(*status));
        }
        helper_.reset();
        if (!ready_) {
            return {"RT-L4",
                    detail::concat("the validation process ", how,
                                   " before it reached this fit() call; main() must make the same "
                                   "calls in every process")};
        }
        return {"RT-L5", detail::concat("the validation process ", how)};
    }

    HelperProgram program_;
    std::function<void(Verdict)> when_ended_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<ValidationRequest> queue_;
    std::size_t unanswered_ = 0;
    bool stopping_ = false;
    int stop_event_ = -1;
    process::Thread thread_;

    // Accessed only by the thread.
    std::optional<HelperProcess> helper_;
    std::string incoming_;
    bool ready_ = false; ///< the helper has reached its fit() call
};

} // namespace rtrain::launch
