// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver: a program started alone launches `mpirun` on itself, passes on what the ranks print
/// and what signals it gets, and starts them again when they fail.
#pragma once

#include <rtrain/backend/outcome.hpp>
#include <rtrain/config.hpp>
#include <rtrain/error.hpp>
#include <rtrain/launch/child.hpp>
#include <rtrain/launch/rank_output.hpp>
#include <rtrain/launch/session.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/signal_set.hpp>

#include <csignal>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::launch {

/// Reads lines of one of mpirun's streams, prints those of ranks, and keeps mpirun's own last ones.
class OutputRelay {
public:
    OutputRelay(boost::asio::io_context& io, int descriptor, std::FILE* target)
        : stream_(io, descriptor), target_(target) {}

    void start() {
        boost::asio::async_read_until(
            stream_, boost::asio::dynamic_buffer(buffer_), '\n',
            [this](const boost::system::error_code& error, std::size_t length) {
                if (error) {
                    end();
                    return;
                }
                print(buffer_.substr(0, length - 1));
                buffer_.erase(0, length);
                start();
            });
    }

    /// What mpirun itself said last.
    [[nodiscard]] const std::deque<std::string>& own_lines() const noexcept { return own_; }

private:
    void print(const std::string& line) {
        if (const auto text = ranks_.complete(line)) {
            write(*text);
        } else if (!line.empty()) {
            constexpr std::size_t kept = 40;
            own_.push_back(line);
            if (own_.size() > kept) {
                own_.pop_front();
            }
        }
    }

    /// A last line may lack its end.
    void end() {
        if (!buffer_.empty()) {
            print(buffer_);
        }
        for (const std::string& line : ranks_.rest()) {
            write(line);
        }
    }

    void write(const std::string& line) {
        std::fprintf(target_, "%s\n", line.c_str());
        std::fflush(target_);
    }

    boost::asio::posix::stream_descriptor stream_;
    RankOutput ranks_;
    std::FILE* target_;
    std::string buffer_;
    std::deque<std::string> own_;
};

/// Runs mpirun once, to its end.
class Mpirun {
public:
    Mpirun(const ScalingConfig& scaling, const std::map<std::string, std::string>& variables) {
        const auto program = find_program("mpirun");
        if (!program) {
            throw LaunchError("RT-L1", "mpirun is not on PATH; install it (Debian: apt-get install "
                                       "openmpi-bin), or start the program with your own launcher");
        }
        std::vector<std::string> words{program->string(), "-n",
                                       std::to_string(scaling.num_workers.value_or(1)),
                                       "--tag-output"};
        for (const auto& [name, value] : variables) { // for ranks on other nodes
            words.insert(words.end(), {"-x", name});
        }
        words.insert(words.end(), scaling.mpirun_args.begin(), scaling.mpirun_args.end());
        const auto self = own_command_line();
        words.insert(words.end(), self.begin(), self.end());
        auto settings = variables;
        // More ranks than cores, and a rank's threads on cores of their own, for Open MPI 4 and 5.
        settings.merge(std::map<std::string, std::string>{
            {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
            {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
            {"OMPI_MCA_hwloc_base_binding_policy", "none"},
            {"PRTE_MCA_hwloc_default_binding_policy", "none"}});
        if (::geteuid() == 0) {
            settings["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
            settings["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
        }
        child_ = Child::start(words, settings);
    }

    /// Passes on output and signals until mpirun ends. Returns its exit status as the shell gives
    /// it: 128 + n for signal n.
    int wait() {
        boost::asio::io_context io;
        OutputRelay out(io, child_.out, stdout);
        OutputRelay err(io, child_.err, stderr);
        out.start();
        err.start();
        boost::asio::signal_set signals(io, SIGINT, SIGTERM, SIGCHLD);
        std::optional<int> status;
        forward(signals, status);
        io.run();
        for (const auto* relay : {&out, &err}) {
            for (const std::string& line : relay->own_lines()) {
                own_output_ += line + "\n";
            }
        }
        return status.value_or(0);
    }

    /// The signal that the driver was told to end by, if it was.
    [[nodiscard]] std::optional<int> interrupted() const noexcept { return interrupted_; }
    /// What mpirun said about the ranks.
    [[nodiscard]] const std::string& own_output() const noexcept { return own_output_; }

private:
    void forward(boost::asio::signal_set& signals, std::optional<int>& status) {
        signals.async_wait([&](const boost::system::error_code& error, int signal) {
            if (error) {
                return;
            }
            if (signal != SIGCHLD) {
                interrupted_ = signal;
                ::kill(child_.pid, SIGTERM);
            }
            int raw = 0;
            if (::waitpid(child_.pid, &raw, WNOHANG) == child_.pid) {
                status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
                return; // the streams end by themselves
            }
            forward(signals, status);
        });
    }

    Child child_;
    std::optional<int> interrupted_;
    std::string own_output_;
};

/// What killed the job, in words, from what mpirun says and from its exit status.
[[nodiscard]] inline LaunchError describe_death(int status, const std::string& mpirun_says) {
    static const std::regex signalled(
        R"(process rank (\d+)[^\n]*\n?[^\n]*on signal (\d+) \(([^)]*)\))");
    static const std::regex exited(R"(Process name: \[\[[^\]]*\],(\d+)\]\s*Exit code:\s*(\d+))");
    std::smatch match;
    if (std::regex_search(mpirun_says, match, signalled)) {
        return {"RT-L2", detail::concat("rank ", match[1].str(), " was killed by signal ",
                                        match[2].str(), " (", match[3].str(), ")")};
    }
    if (std::regex_search(mpirun_says, match, exited)) {
        return {"RT-L2", detail::concat("rank ", match[1].str(), " ended with exit code ",
                                        match[2].str(), " before the training function returned")};
    }
    return {"RT-L2", detail::concat("the ranks ended early, mpirun's exit status is ", status,
                                    mpirun_says.empty() ? "" : "; it says:\n", mpirun_says)};
}

/// Launches the ranks for call number `fit` and returns how they ended; after a failure, as often
/// as `failure` allows, launches them again.
[[nodiscard]] inline Ending drive(int fit, const ScalingConfig& scaling, const RunConfig& run) {
    Session& session = Session::current();
    const std::map<std::string, std::string> variables{
        {Session::directory_variable, session.directory().string()},
        {Session::fit_variable, std::to_string(fit)},
        {Session::name_variable, run.name}};
    for (int failures = 0;; ++failures) {
        Mpirun mpirun(scaling, variables);
        const int status = mpirun.wait();
        if (mpirun.interrupted()) {
            ::signal(*mpirun.interrupted(), SIG_DFL);
            ::raise(*mpirun.interrupted());
        }
        Ending ending;
        const auto recorded = session.recorded(fit);
        // Ranks may notice that another has died before mpirun ends them; only mpirun knows why.
        const bool died = recorded && recorded->message.find(Outcome::died) != std::string::npos;
        if (recorded && !(died && status != 0)) {
            ending = *recorded;
        } else if (status == 0) {
            ending = Ending::of(LaunchError(
                "RT-L3",
                detail::concat("the ranks ended without reaching fit() call number ", fit + 1,
                               " of this program; main() must make the "
                               "same calls in every process")));
        } else {
            ending = Ending::of(describe_death(status, mpirun.own_output()));
        }
        const bool may_recur = ending.code == "RT-T1" || ending.code == "RT-L2";
        const int allowed = run.failure.max_failures;
        if (!may_recur || (allowed >= 0 && failures >= allowed)) {
            session.record(fit, ending);
            return ending;
        }
        session.forget(fit);
        std::fprintf(stderr, "rtrain: %s\nrtrain: restart %d%s from the newest checkpoint\n",
                     ending.message.c_str(), failures + 1,
                     allowed < 0 ? "" : detail::concat(" of ", allowed).c_str());
    }
}

} // namespace rtrain::launch
