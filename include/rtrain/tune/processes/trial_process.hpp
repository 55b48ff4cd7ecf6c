// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialProcess: another process of this program that runs trials of a trainer, one after the other
/// until a failure. It drives the trials' ranks as a program started alone does. A failure affects
/// only the trial that it runs.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/launch/helper_process.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/tune/controller/generations.hpp>
#include <rtrain/tune/controller/trial_message.hpp>
#include <rtrain/tune/processes/trial_channel.hpp>
#include <rtrain/tune/processes/trial_child.hpp>
#include <rtrain/tune/processes/trial_task.hpp>
#include <rtrain/tune/resources/this_machine.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/wait.h>

namespace rtrain::tune {

namespace internal {

/// The command line of this program, outside the mpirun that has started it: env(1) unsets the
/// variables of the launcher and those that lead to other machines, then executes the program.
[[nodiscard]] inline std::vector<std::string> command_line_of_trials() {
    auto program = launch::own_command_line();
    if (!launch::ranks()) {
        return program;
    }
    const auto env = launch::find_program("env");
    if (!env) {
        throw LaunchError("RT-L1", "no env on the PATH, but mpirun and srun need it to start the "
                                   "processes of trials; add its directory to PATH");
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

} // namespace internal

/// Settings shared by the processes for the trials of a search.
struct TrialLaunch {
    std::shared_ptr<const void> session_use{}; ///< keeps the session's directory
    std::filesystem::path session{};           ///< the directory of this program's session
    int fit = 0;                               ///< the number of the search's fit() call
    std::map<std::string, std::string> variables{};
    std::string trial_variable{}; ///< names a process's task
    double cleanup_s = 0;         ///< TuneConfig::force_trial_cleanup_s
    bool reuse = true;            ///< TuneConfig::reuse_workers
    int max_failures = 0;         ///< processes that a trial may lose; -1: no limit
};

/// The process was killed, or exited without reporting the outcome of the trial's run.
class ProcessLost : public LaunchError {
    using LaunchError::LaunchError;
};

class TrialProcess {
public:
    /// `launch` outlives this object. `name`: unique in the session.
    TrialProcess(const TrialLaunch& launch, const std::string& name)
        : launch_(launch), file_(launch.session / name), listener_(file_.string() + ".socket") {}
    TrialProcess(const TrialProcess&) = delete;
    TrialProcess& operator=(const TrialProcess&) = delete;
    /// Ends the process.
    ~TrialProcess() {
        if (is_ready_ && rank_ &&
            rank_->send({{"kind", internal::message_names[MessageKind::end]}})) {
            constexpr std::chrono::seconds patience{10};
            auto until = Clock::now() + patience;
            while (is_open() && Clock::now() < until) {
                (void)wait(ms_until(until));
                if (ends_[4].revents != 0) { // its children may keep the output open
                    has_exited_ = true;
                    until = std::min(until, Clock::now() + patience / 10);
                }
                pass_on();
            }
            if (!is_open()) {
                (void)process_->wait();
            }
        }
    }

    /// The file to which the process writes the outcome of its run.
    [[nodiscard]] static std::filesystem::path outcome_of(const std::filesystem::path& task) {
        return task.string() + ".outcome";
    }

    /// Returns when the trial's run has ended; throws Error when it has failed, ProcessLost. False:
    /// the process, which had run other trials, was gone before this one began. `known`: reports of
    /// the run that the search has received.
    [[nodiscard]] bool run(Trial& trial, std::int64_t& known) {
        const TrialTask task = task_of(trial, known);
        storage::replace_file_unsynced(file_,
                                       json::serialize(task.to_json())); // for ranks that restart
        std::filesystem::remove(outcome_of(file_));
        known_ = &known;
        has_begun_ = !process_;
        has_ended_ = is_ready_ = false;
        if (!process_) {
            start(trial);
        } else if (!rank_ || !rank_->send({{"kind", internal::message_names[MessageKind::trial]},
                                           {"task", task.to_json()}})) {
            return false;
        }
        out_->begin(trial.name());
        err_->begin(trial.name());
        const bool ended_itself = serve(trial);
        if (is_ready_) {
            return true;
        }
        const int status = process_->wait();
        if (!has_begun_) {
            return false;
        }
        if (ended_itself && !has_ended_) { // failures after the end of the run do not count
            judge(status);
        }
        return true;
    }

    /// True if another trial may follow in the same ranks.
    [[nodiscard]] bool is_ready() const noexcept { return is_ready_; }

private:
    using Clock = std::chrono::steady_clock;
    using MessageKind = internal::MessageKind;

    [[nodiscard]] TrialTask task_of(const Trial& trial, std::int64_t known) const {
        return {.fit = launch_.fit,
                .socket = file_.string() + ".socket",
                .directory = trial.directory().string(),
                .config = trial.config(),
                .known = known,
                .resume_from = internal::start_over(trial.assignment()),
                .time_limit_s = trial.assignment().time_limit_s};
    }

    void start(const Trial& trial) {
        auto variables = launch_.variables;
        variables[launch_.trial_variable] = file_.string();
        if (!trial.gpus().empty()) {
            variables["CUDA_VISIBLE_DEVICES"] = detail::visible_devices_of(trial.gpus());
        }
        const auto child =
            launch::Child::start(internal::command_line_of_trials(), variables, false);
        process_.emplace(child.pid);
        pid_ = child.pid;
        out_.emplace(child.out, stdout);
        err_.emplace(child.err, stderr);
    }

    [[nodiscard]] bool is_open() const { return out_->is_open() || err_->is_open(); }

    /// Waits for output or a message of the process.
    bool wait(int timeout_ms) {
        ends_ = {{{out_->descriptor(), POLLIN, 0},
                  {err_->descriptor(), POLLIN, 0},
                  {listener_.descriptor(), POLLIN, 0},
                  {rank_ ? rank_->descriptor() : -1, POLLIN, 0},
                  {has_exited_ ? -1 : process_->end(), POLLIN, 0}}};
        return ::poll(ends_.data(), ends_.size(), timeout_ms) > 0;
    }
    void pass_on() {
        if (ends_[0].revents != 0) {
            out_->pass_on();
        }
        if (ends_[1].revents != 0) {
            err_->pass_on();
        }
    }
    [[nodiscard]] static int ms_until(Clock::time_point until) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
        return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }

    /// Serves the process until one of these: its run has ended well and it is ready for another,
    /// its output is closed, or it has exited and its children keep the output. False when it was
    /// killed.
    bool serve(Trial& trial) {
        internal::Cleanup cleanup(pid_, launch_.cleanup_s);
        // Closing the output is not reported as an exit, and children may keep the output open.
        constexpr std::chrono::seconds patience{1};
        std::optional<Clock::time_point> until;
        while (is_open() && !(has_exited_ && Clock::now() >= *until)) {
            const bool waits_for_output = until && (rank_ || has_exited_);
            const bool came = wait(waits_for_output ? ms_until(*until) : cleanup.wait_ms(trial));
            if (came) {
                if (ends_[3].revents != 0 && !answer(trial)) {
                    rank_.reset();
                }
                if (ends_[2].revents != 0) { // from a restarted run
                    rank_ = listener_.accept();
                }
                if (ends_[4].revents != 0) {
                    has_exited_ = true;
                    until = until.value_or(Clock::now() + patience);
                }
                pass_on();
            }
            if (has_ended_ && !has_exited_ && launch_.reuse) {
                until = until.value_or(Clock::now() + patience);
                is_ready_ = rank_ && ((out_->has_run_ended() && err_->has_run_ended()) ||
                                      Clock::now() >= *until);
                if (is_ready_) {
                    return true;
                }
            }
        }
        return !cleanup.has_struck();
    }

    /// False when rank 0 has disconnected.
    bool answer(Trial& trial) {
        if (!rank_->fill()) {
            return false;
        }
        while (const auto message = rank_->take()) {
            const auto kind = internal::kind_of(*message);
            if (kind == MessageKind::result) {
                const bool goes_on = hear(trial, message->at("metrics").as_object());
                if (!rank_->send({{"kind", internal::message_names[MessageKind::verdict]},
                                  {"goes_on", goes_on}})) {
                    return false;
                }
            } else if (kind == MessageKind::saved) {
                trial.saved(internal::saved_state_from(*message));
            } else if (kind == MessageKind::begun) {
                has_begun_ = true;
            } else if (kind == MessageKind::ended) {
                has_ended_ = true;
                if (!launch_.reuse &&
                    !rank_->send({{"kind", internal::message_names[MessageKind::end]}})) {
                    return false;
                }
            }
        }
        return true;
    }

    /// Restarted ranks repeat known reports.
    bool hear(Trial& trial, const Config& metrics) {
        const auto iteration = metrics.at("training_iteration").to_number<std::int64_t>();
        if (iteration <= *known_) {
            return !trial.should_stop();
        }
        *known_ = iteration;
        return trial.report(metrics);
    }

    /// Ranks may exit after the process that drives them; until then they may write to the run's
    /// directory.
    void wait_for_rank() {
        constexpr std::chrono::seconds patience{10};
        const auto until = Clock::now() + patience;
        while (rank_ && Clock::now() < until) {
            pollfd end{rank_->descriptor(), POLLIN, 0};
            if (::poll(&end, 1, ms_until(until)) > 0 && !rank_->fill()) {
                rank_.reset();
            }
        }
    }

    void judge(int status) {
        const auto outcome = outcome_of(file_);
        if (std::filesystem::exists(outcome)) {
            const auto told = json::parse(storage::read_file(outcome)).as_object();
            if (!told.empty()) {
                detail::throw_error(failure_from(told));
            }
            return;
        }
        wait_for_rank();
        throw ProcessLost(
            "RT-L2", WIFSIGNALED(status)
                         ? detail::concat("the process that drives the trial was killed by signal ",
                                          WTERMSIG(status))
                         : detail::concat("the process that drives the trial ended with exit code ",
                                          WEXITSTATUS(status), " before its run did"));
    }

    const TrialLaunch& launch_;
    std::filesystem::path file_; ///< the task of the current trial
    internal::TrialChannelListener listener_;
    std::optional<internal::OwnedChild> process_;
    pid_t pid_ = -1;
    std::optional<internal::NamedLines> out_;
    std::optional<internal::NamedLines> err_;
    std::optional<internal::LineConnection> rank_; ///< rank 0
    std::array<pollfd, 5> ends_{};
    std::int64_t* known_ = nullptr; ///< argument of run()
    bool has_begun_ = false;        ///< the current trial
    bool has_ended_ = false;        ///< its run has ended well
    bool is_ready_ = false;
    bool has_exited_ = false; ///< the process has exited
};

} // namespace rtrain::tune
