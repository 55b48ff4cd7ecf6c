// SPDX-License-Identifier: Apache-2.0
/// @file
/// One program, several processes: Session lets the driver and its ranks agree on the current
/// `fit()` call and on how each has ended.
///
/// Every process runs the same main() and counts its fit() calls. The driver launches ranks for its
/// call number k. These answer earlier calls with the driver's records, train in call k, record its
/// outcome, and exit there, so that only the driver continues. A helper, which rank 0 starts to
/// validate checkpoints of its call k, does the same, but serves in call k.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/launch/control/decision.hpp>
#include <rtrain/launch/control/driver_link.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/fit_outcome.hpp>
#include <rtrain/launch/handed_input.hpp>
#include <rtrain/launch/helper.hpp>
#include <rtrain/launch/session_directory.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/process/os/file_size_limit.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/process/stack/stack_dump.hpp>
#include <rtrain/process/stdio/muted_stdout.hpp>
#include <rtrain/process/stdio/standard_streams.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/process_directory.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <unistd.h>

namespace rtrain::launch {

class Session {
public:
    static constexpr const char* directory_variable = "RTRAIN_SESSION";
    static constexpr const char* fit_variable = "RTRAIN_SESSION_FIT";
    static constexpr const char* name_variable = "RTRAIN_RUN_NAME";
    static constexpr const char* skip_variable = "RTRAIN_SKIP_CHECKPOINTS";
    static constexpr const char* columns_variable = "RTRAIN_DRIVER_COLUMNS";
    static constexpr const char* trial_variable = "RTRAIN_TUNE_TRIAL";

    /// The session of this process, which begins on the first call. Training code passes it on.
    [[nodiscard]] static Session& of_this_process() {
        static Session session;
        return session;
    }

    /// Returns the number of the fit() call that begins now.
    [[nodiscard]] int next_fit() {
        process::open_standard_streams(); // main() may have closed some, to become a daemon
        if (!target_) {                   // the parent knows what main() has read
            input_.look();
        }
        return fits_++;
    }

    /// The number of the next fit() call.
    [[nodiscard]] int upcoming_fit() const noexcept { return fits_; }

    /// For a process that drives a trial of a search, and its ranks: the file that describes it.
    [[nodiscard]] const std::filesystem::path& trial() const noexcept { return trial_; }

    /// The call in which a rank launched by a driver trains, or a helper serves.
    [[nodiscard]] const std::optional<int>& target() const noexcept { return target_; }

    /// For such a rank: the run's name from the driver, so that a restarted run is found again.
    [[nodiscard]] const std::string& run_name() const noexcept { return run_name_; }

    /// For such a rank: checkpoints not to resume from, because training failed from them
    /// repeatedly.
    [[nodiscard]] const std::vector<std::string>& skipped_checkpoints() const noexcept {
        return skipped_;
    }

    /// The configuration that the main() of a driver on this machine made for this call.
    [[nodiscard]] std::optional<boost::json::object> driver_config(int fit) {
        const auto text = target_ ? directory_.read(config_of(fit)) : std::nullopt;
        return text ? std::optional(json::parse(*text).as_object()) : std::nullopt;
    }
    /// In the driver: writes the configuration for the ranks.
    void leave_config(int fit, const boost::json::object& config) {
        directory_.write(config_of(fit), json::serialize(config));
    }

    /// The run that a CreatorTrainer's calls before this process belong to: their record is there.
    [[nodiscard]] std::optional<std::string> run_of_calls(int fit) const {
        return directory_.read(calls_of(fit));
    }
    /// In the process of main(): keeps it for processes that start later.
    void keep_run_of_calls(int fit, std::string run) {
        directory_.keep(calls_of(fit), std::move(run));
    }

    /// True if a driver watches this rank.
    [[nodiscard]] bool has_driver() const noexcept { return link_ != nullptr; }

    /// For a rank that is about to join the others, which may take it a second: kills it if its
    /// driver, on this machine, has died. mpirun gives its ranks a second longer. After connect(),
    /// the connection detects this.
    void watch_driver() {
        if (!link_ || connected_ || !std::filesystem::exists(directory_.known_path())) {
            return;
        }
        constexpr std::chrono::milliseconds interval{100};
        driver_watch_.emplace(
            [directory = directory_.known_path()] {
                return storage::ProcessDirectory::is_abandoned(directory, SessionDirectory::name);
            },
            [] {
                sweep_after_driver();
                ::_exit(EXIT_FAILURE);
            },
            interval);
    }

    /// Starts to report to the driver what this rank does; does nothing without a driver. Throws
    /// LaunchError [RT-L8] if the driver refuses this rank.
    void connect(int rank, int size) {
        if (link_ && !connected_) {
            watch_this_thread();
            link_->on_preempt([this](double grace_s) { context_.notice.give(grace_s); });
            link_->before_exit([] { sweep_after_driver(); });
            link_->connect(rank, size);
            connected_ = true;
            driver_watch_.reset();
        }
    }

    /// Sends an event to the driver; does nothing without one.
    void tell(const RankEvent& event) {
        if (link_) {
            link_->say(event);
        }
    }
    /// The same for events that are soon outdated: dropped while others wait to be sent.
    void tell_unless_behind(const RankEvent& event) {
        if (link_) {
            link_->say_unless_behind(event);
        }
    }
    /// Waits until all events are sent; returns false on timeout.
    bool flush(std::chrono::milliseconds limit) { return !link_ || link_->flush(limit); }

    /// Width of the driver's terminal when it started this rank; 0: it has none.
    [[nodiscard]] int driver_columns() const noexcept { return driver_columns_; }

    /// Lets the driver decide what follows a failure that all ranks but the `lost` ones, as
    /// numbered at the start of the job, have survived. `checkpoint`: see FailurePolicy.
    [[nodiscard]] Decision ask_driver(const Failure& failure, const std::string& checkpoint,
                                      const std::vector<int>& lost) {
        constexpr std::chrono::seconds limit{60};
        tell(event::Failed{.failure = failure, .checkpoint = checkpoint, .lost = lost});
        return answers().wait_for_decision(limit).value_or(
            Decision{.reason = "the driver did not answer"});
    }

    /// The driver's messages for threads that wait for them. Only with a driver.
    [[nodiscard]] DriverAnswers& answers() noexcept { return link_->answers(); }

    /// Sends the driver this rank's final error; waits until it is sent.
    void last_words(const std::exception& error) {
        constexpr std::chrono::seconds limit{2};
        if (link_) {
            tell(event::LastWords{detail::failure_of(error)});
            (void)link_->flush(limit);
        }
    }

    /// Variables for a helper: the call to serve in, how those before it have ended, and what
    /// main() has read.
    [[nodiscard]] std::map<std::string, std::string> helper_variables(int fit) {
        auto variables = input_variables();
        variables[fit_variable] = std::to_string(fit);
        if (!trial_.empty()) {
            variables[trial_variable] = trial_.string();
        }
        if (fit > 0) {
            variables[directory_variable] = directory_.path().string();
        }
        return variables;
    }

    /// Variables that pass the standard input that main() has read before fit() to processes on
    /// this machine; empty if it has read none. Throws ConfigError [RT-C24].
    [[nodiscard]] HandedInput::Variables input_variables() {
        return input_.variables([this] { return directory_.path(); });
    }
    /// The same for ranks: see HandedInput.
    [[nodiscard]] HandedInput::Variables rank_variables(bool remote) {
        return input_.rank_variables(remote, [this] { return directory_.path(); });
    }

    /// The directory that driver, ranks and helper share on one node.
    [[nodiscard]] SessionDirectory& directory() noexcept { return directory_; }

    /// Restores this process's output: see Session().
    void unmute() { muted_.end(); }

    /// Records it for processes that are started later.
    void record(int fit, const FitOutcome& ending) {
        std::string text = json::serialize(to_json(ending));
        const auto path = directory_.known_path();
        if (link_ && !path.empty() && !std::filesystem::exists(path)) { // on another machine
            tell(event::Ending{text});
            connect_at_last();
        } else {
            directory_.keep(name_of(fit), std::move(text));
        }
    }

    /// The same for a rank that cannot access the directory.
    void record_text(int fit, const std::string& ending) { directory_.write(name_of(fit), ending); }

    /// Returns the recorded ending of a call; empty if there is none.
    [[nodiscard]] std::optional<FitOutcome> recorded(int fit) const {
        const auto text = recorded_text(fit);
        return text ? std::optional(ending_from(json::parse(*text).as_object())) : std::nullopt;
    }
    /// The same as text.
    [[nodiscard]] std::optional<std::string> recorded_text(int fit) const {
        return directory_.read(name_of(fit));
    }

    void forget(int fit) { directory_.forget(name_of(fit)); }

    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

private:
    /// In child processes, output of main() before its call is muted: the parent has printed it.
    Session() {
        process::survive_file_size_limit();
        const char* const directory = std::getenv(directory_variable);
        const char* const trial = std::getenv(trial_variable);
        trial_ = trial != nullptr ? trial : "";
        if (!Helper::is_this_process() && !ranks() && !trial_.empty()) {
            begin_trial();
            return;
        }
        if (!Helper::is_this_process() && (directory == nullptr || !ranks())) {
            return;
        }
        directory_.join(directory != nullptr ? directory : "");
        target_ = env_int(fit_variable);
        const char* const name = std::getenv(name_variable);
        run_name_ = name != nullptr ? name : "";
        const char* const skipped = std::getenv(skip_variable);
        auto names = detail::strict(std::istringstream(skipped != nullptr ? skipped : ""));
        for (std::string each; std::getline(names, each, ',');) {
            skipped_.push_back(each);
        }
        driver_columns_ = env_int(columns_variable).value_or(0);
        input_.take();
        for (const char* variable : {directory_variable, fit_variable, name_variable, skip_variable,
                                     columns_variable, trial_variable}) {
            ::unsetenv(variable); // programs started by this one are not in the session
        }
        if (!Helper::is_this_process()) {
            if (!is_sole_rank()) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL); // mpirun is gone: nothing would end this rank
            }
            link_ = DriverLink::from_environment();
        }
        if (target_) {
            muted_.begin();
        }
    }

    /// A process that drives a trial reads the endings of the calls before the search; otherwise it
    /// is a driver like any other.
    void begin_trial() {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        input_.take();
        for (const auto& entry : std::filesystem::directory_iterator(trial_.parent_path())) {
            const std::string name = entry.path().filename().string();
            if (name.starts_with(endings) || name.starts_with(runs_of_calls)) {
                directory_.keep(name, storage::read_file(entry.path()));
            }
        }
        (void)directory_.path();
        muted_.begin();
    }
    /// Cleans up for a driver that was killed. Its connections end shortly before it does.
    static void sweep_after_driver() noexcept {
        constexpr std::chrono::milliseconds moment{100};
        std::this_thread::sleep_for(moment);
        SessionDirectory::sweep();
    }

    /// For a rank that ends before it has joined: otherwise its driver would miss the cause.
    void connect_at_last() {
        const auto number = rank();
        const auto size = ranks();
        if (!connected_ && number && size) {
            try {
                connect(*number, *size);
            } catch (const LaunchError& error) {
                console::warn("%s", error.what());
            }
        }
    }

    static constexpr std::string_view endings = "fit-";
    static constexpr std::string_view runs_of_calls = "calls-";
    static std::string name_of(int fit) { return rtrain::detail::concat(endings, fit, ".json"); }
    static std::string config_of(int fit) {
        return rtrain::detail::concat("config-", fit, ".json");
    }
    static std::string calls_of(int fit) { return rtrain::detail::concat(runs_of_calls, fit); }

    ProcessContext& context_ = ProcessContext::current();
    int fits_ = 0;
    HandedInput input_;
    std::optional<int> target_;
    std::filesystem::path trial_;
    std::string run_name_;
    std::vector<std::string> skipped_;
    int driver_columns_ = 0;
    std::unique_ptr<DriverLink> link_;
    bool connected_ = false;
    std::optional<PreemptionPoller> driver_watch_;                 ///< until connected
    SessionDirectory directory_{[this] { input_.forget_file(); }}; // it was there
    process::MutedStdout muted_;
};

/// One fit() call.
struct FitCall {
    Session& session;
    int number;             ///< in the session's count
    bool follows = false;   ///< its ranks have completed a run before and stay for this one
    std::string function{}; ///< type of the training function; empty: unknown
    ProcessContext& context = ProcessContext::current();
};

} // namespace rtrain::launch
