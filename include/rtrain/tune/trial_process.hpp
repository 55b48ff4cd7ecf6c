// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialProcess: one trial of a trainer as the search runs it: this program once more, which drives
/// the trial's ranks as a program started alone does. Whatever happens to it touches no other
/// trial.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/launch/helper_process.hpp>
#include <rtrain/process/child.hpp>
#include <rtrain/process/descriptor.hpp>
#include <rtrain/process/environment.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/tune/generations.hpp>
#include <rtrain/tune/resources.hpp>
#include <rtrain/tune/trial.hpp>
#include <rtrain/tune/trial_task.hpp>
#include <rtrain/tune/verdict_socket.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::tune::internal {

/// Passes on what a pipe brings, line by line, with a name in front.
class NamedLines {
public:
    NamedLines(int pipe, std::FILE* to, std::string name)
        : pipe_(pipe), to_(to), name_(std::move(name)) {}

    [[nodiscard]] int descriptor() const noexcept { return pipe_.get(); }
    /// False at the end.
    bool pass_on() {
        char buffer[4096];
        const ssize_t got = ::read(pipe_.get(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) {
            return true;
        }
        text_.append(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        if (got <= 0 && !text_.empty()) {
            text_ += '\n';
        }
        for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
            const std::string line = "[" + name_ + "] " + text_.substr(0, end + 1);
            std::fwrite(line.data(), 1, line.size(), to_);
            text_.erase(0, end + 1);
        }
        std::fflush(to_);
        return got > 0;
    }

private:
    process::Descriptor pipe_;
    std::FILE* to_;
    std::string name_;
    std::string text_;
};

/// A child that does not outlive this object.
class OwnedChild {
public:
    explicit OwnedChild(pid_t pid) noexcept : pid_(pid) {}
    OwnedChild(const OwnedChild&) = delete;
    OwnedChild& operator=(const OwnedChild&) = delete;
    ~OwnedChild() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            (void)wait();
        }
    }
    /// As waitpid() gives it.
    int wait() {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
        return status;
    }

private:
    pid_t pid_;
};

/// Ends the process of a trial that goes on although the search has seen enough of it.
class Cleanup {
public:
    /// `limit_s`: that the trial has to return; 0: no limit.
    Cleanup(pid_t pid, double limit_s) : pid_(pid), limit_s_(limit_s) {}

    /// For poll(): how long nothing is to be done; does what is due.
    [[nodiscard]] int wait_ms(const Trial& trial) {
        if (limit_s_ == 0 || !trial.should_stop()) {
            return -1;
        }
        const auto now = Clock::now();
        if (!due_) {
            due_ = now + std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(std::min(limit_s_, longest_s)));
        } else if (now >= *due_) {
            strike(trial);
            due_ = now + again;
        }
        return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(*due_ - now).count());
    }
    [[nodiscard]] bool has_struck() const noexcept { return has_struck_; }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr double longest_s = 1e6; // which poll() can wait
    static constexpr std::chrono::seconds again{10};

    /// First as Ctrl-C does, which ends the ranks and leaves nothing.
    void strike(const Trial& trial) {
        if (!has_struck_) {
            console::warn("trial %s goes on %g s after the search has seen enough of it; its "
                          "processes are ended",
                          trial.id().c_str(), limit_s_);
        }
        ::kill(pid_, std::exchange(has_struck_, true) ? SIGKILL : SIGINT);
    }

    pid_t pid_;
    double limit_s_;
    std::optional<Clock::time_point> due_;
    bool has_struck_ = false;
};

} // namespace rtrain::tune::internal

namespace rtrain::tune {

class TrialProcess {
public:
    /// `session`: the directory of this program's session. `variables`: for the process.
    /// `cleanup_s`: see TuneConfig::force_trial_cleanup_s.
    TrialProcess(std::filesystem::path session, int fit,
                 std::map<std::string, std::string> variables, std::string trial_variable,
                 double cleanup_s)
        : session_(std::move(session)), fit_(fit), variables_(std::move(variables)),
          trial_variable_(std::move(trial_variable)), cleanup_s_(cleanup_s) {}

    /// Where the process says how its run has ended.
    [[nodiscard]] static std::filesystem::path outcome_of(const std::filesystem::path& task) {
        return task.string() + ".outcome";
    }

    /// Returns when the run has ended; throws Error when it has failed.
    void run(Trial& trial) const {
        const auto file = session_ / ("trial-" + trial.id());
        const TrialTask task{.fit = fit_,
                             .socket = file.string() + ".socket",
                             .directory = trial.directory().string(),
                             .config = trial.config(),
                             .known = trial.reports() - trial.assignment().base_reports,
                             .resume_from = taken_over(trial),
                             .time_limit_s = trial.assignment().time_limit_s};
        std::filesystem::remove(outcome_of(file));
        task.write(file);
        const internal::VerdictListener listener(task.socket);
        auto variables = variables_;
        variables[trial_variable_] = file.string();
        if (!trial.gpus().empty()) {
            constexpr const char* devices = "CUDA_VISIBLE_DEVICES";
            const char* const visible = std::getenv(devices);
            variables[devices] = visible_devices(
                trial.gpus(),
                visible != nullptr ? std::optional<std::string>(visible) : std::nullopt);
        }
        const auto child = launch::Child::start(command_line(), variables, false);
        internal::OwnedChild process(child.pid);
        const bool ended_itself = serve(trial, listener, child);
        const int status = process.wait();
        if (ended_itself) {
            judge(status, outcome_of(file));
        }
    }

private:
    /// Where a trial's run begins anew, what the one before has left moves aside. Returns the
    /// checkpoint that it takes over; empty: it begins at the beginning.
    static std::string taken_over(const Trial& trial) {
        const Assignment& what = trial.assignment();
        if (what.taken_over == 0) {
            return "";
        }
        const std::string number = std::to_string(what.taken_over - 1);
        internal::move_aside(trial.directory(), number);
        return what.base_reports == 0
                   ? ""
                   : (trial.directory().parent_path() / "taken_over" / (trial.id() + "_" + number))
                         .string(); // as the controller has named it
    }

    /// This program, and no rank of the mpirun that has started it: env(1) takes the variables out
    /// that say so, and those that lead to other machines, and becomes the program.
    static std::vector<std::string> command_line() {
        const auto program = launch::own_command_line();
        if (!launch::ranks()) {
            return program;
        }
        const auto env = launch::find_program("env");
        if (!env) {
            throw LaunchError("RT-L1", "there is no env on the PATH, which starts the processes of "
                                       "trials under mpirun and srun");
        }
        std::vector<std::string> words{env->string()};
        for (const std::string& setting : launch::environment_with({})) {
            if (launch::is_rank_variable(setting) || setting.starts_with("SLURM_") ||
                setting.starts_with("PBS_") || setting.starts_with("PE_HOSTFILE=") ||
                setting.starts_with("LSB_")) {
                words.insert(words.end(), {"-u", setting.substr(0, setting.find('='))});
            }
        }
        words.insert(words.end(), program.begin(), program.end());
        return words;
    }

    /// Until the process has closed its output. False when it was ended because it has not ended
    /// when the search had seen enough of it.
    bool serve(Trial& trial, const internal::VerdictListener& listener,
               const launch::Child& child) const {
        internal::NamedLines out(child.out, stdout, trial.name());
        internal::NamedLines err(child.err, stderr, trial.name());
        std::optional<internal::LineConnection> rank;
        internal::Cleanup cleanup(child.pid, cleanup_s_);
        bool out_is_open = true;
        bool err_is_open = true;
        while (out_is_open || err_is_open) {
            std::array<pollfd, 4> ends{{{out_is_open ? out.descriptor() : -1, POLLIN, 0},
                                        {err_is_open ? err.descriptor() : -1, POLLIN, 0},
                                        {listener.descriptor(), POLLIN, 0},
                                        {rank ? rank->descriptor() : -1, POLLIN, 0}}};
            if (::poll(ends.data(), ends.size(), cleanup.wait_ms(trial)) <= 0) {
                continue;
            }
            if (ends[3].revents != 0 && !answer(trial, *rank)) {
                rank.reset();
            }
            if (ends[2].revents != 0) { // of a run that was restarted
                rank = listener.accept();
            }
            out_is_open = out_is_open && (ends[0].revents == 0 || out.pass_on());
            err_is_open = err_is_open && (ends[1].revents == 0 || err.pass_on());
        }
        return !cleanup.has_struck();
    }

    /// False when the rank has gone.
    static bool answer(Trial& trial, internal::LineConnection& rank) {
        if (!rank.fill()) {
            return false;
        }
        while (const auto message = rank.take()) {
            if (message->at("kind").as_string() == "saved") {
                trial.saved(std::string(message->at("checkpoint").as_string()));
            } else if (!rank.send(
                           {{"kind", "verdict"},
                            {"goes_on", trial.report(message->at("metrics").as_object())}})) {
                return false;
            }
        }
        return true;
    }

    static void judge(int status, const std::filesystem::path& outcome) {
        if (std::filesystem::exists(outcome)) {
            const auto told = json::parse(storage::read_file(outcome)).as_object();
            if (const auto* const message = told.if_contains("message")) {
                throw Error(std::string(told.at("code").as_string()),
                            std::string(message->as_string()));
            }
            return;
        }
        throw LaunchError(
            "RT-L2", WIFSIGNALED(status)
                         ? detail::concat("the process that drives the trial was killed by signal ",
                                          WTERMSIG(status))
                         : detail::concat("the process that drives the trial ended with exit code ",
                                          WEXITSTATUS(status), " before its run did"));
    }

    std::filesystem::path session_;
    int fit_;
    std::map<std::string, std::string> variables_;
    std::string trial_variable_;
    double cleanup_s_;
};

} // namespace rtrain::tune
