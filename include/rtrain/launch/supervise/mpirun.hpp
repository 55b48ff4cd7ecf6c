// SPDX-License-Identifier: Apache-2.0
/// @file
/// One mpirun: its command line, its output, and what it says about ranks that died.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/launch/supervise/mpirun_version.hpp>
#include <rtrain/launch/supervise/output_relay.hpp>
#include <rtrain/launch/supervise/program.hpp>
#include <rtrain/process/child.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::launch {

/// What mpirun is to start.
struct MpirunCommand {
    int ranks = 1;
    std::vector<std::string> arguments{}; ///< the user's, and where ranks go
    Program program{};
    std::map<std::string, std::string> variables{}; ///< for the ranks
    /// Where Open MPI keeps its files, when all ranks are on this machine; so none is left behind
    /// when mpirun is killed.
    std::optional<std::filesystem::path> scratch{};
    std::optional<std::filesystem::path> shared_memory{};
    /// Whether the others are to live on when a rank dies; Open MPI 5 with ULFM only.
    bool survive_deaths = false;
    /// Whether this process's standard input stays its own. Else mpirun hands it on to rank 0.
    bool keeps_input = false;
    /// Hears each line of the ranks; throws nothing.
    Heard heard{};
};

/// The command line of an mpirun.
[[nodiscard]] inline std::vector<std::string> mpirun_words(const std::filesystem::path& mpirun,
                                                           const MpirunCommand& command,
                                                           const MpirunVersion& version) {
    std::vector<std::string> words{mpirun.string(), "-n", std::to_string(command.ranks)};
    if (version.is_hydra) { // it gives all ranks all variables, and tags lines as it is told
        words.insert(words.end(), {"-prepend-pattern", "[1,%r]<stdout>:"});
    } else {
        words.emplace_back("--tag-output");
        if (command.survive_deaths) {
            words.insert(words.end(), {"--with-ft", "ulfm"});
        }
        for (const auto& [name, value] : command.variables) { // for ranks on other nodes
            words.insert(words.end(), {"-x", name});
        }
    }
    words.insert(words.end(), command.arguments.begin(), command.arguments.end());
    words.insert(words.end(), command.program.words.begin(), command.program.words.end());
    return words;
}

class Mpirun {
public:
    /// Starts the program on ranks. `when_ended` is called, from the `io` that is run, when mpirun
    /// has ended and all of its output is passed on. Throws LaunchError [RT-L1].
    Mpirun(boost::asio::io_context& io, const MpirunCommand& command,
           std::function<void()> when_ended)
        : when_ended_(std::move(when_ended)), timer_(io),
          child_(Child::start(words_of(command), environment_of(command), !command.keeps_input)) {
        const auto at_end = [this] {
            ++streams_ended_;
            tell();
        };
        try {
            const auto hear = [&](OutputStream stream) {
                return [stream, heard = command.heard](const RankLine& line) {
                    if (heard) {
                        heard(stream, line);
                    }
                };
            };
            out_ = std::make_unique<OutputRelay>(io, child_.out, stdout, command.ranks,
                                                 hear(OutputStream::out), at_end);
            err_ = std::make_unique<OutputRelay>(io, child_.err, stderr, command.ranks,
                                                 hear(OutputStream::err), at_end);
        } catch (...) {
            end();
            throw;
        }
    }
    Mpirun(const Mpirun&) = delete;
    Mpirun& operator=(const Mpirun&) = delete;
    /// When the driver has failed, no mpirun outlives it; ranks die with theirs.
    ~Mpirun() { end(); }

    /// To be called when a child process has ended.
    void reap() {
        int raw = 0;
        if (!status_ && ::waitpid(child_.pid, &raw, WNOHANG) == child_.pid) {
            status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
            tell();
            close_streams_later();
        }
    }

    void kill(int signal) const {
        if (!status_) {
            ::kill(child_.pid, signal);
        }
    }

    /// Its exit status as the shell gives it: 128 + n for signal n. Empty while it runs.
    [[nodiscard]] const std::optional<int>& status() const noexcept { return status_; }
    [[nodiscard]] bool ended() const noexcept { return status_ && streams_ended_ == 2; }

    /// What it said about the ranks.
    [[nodiscard]] std::string own_output() const {
        std::string text;
        for (const auto* relay : {out_.get(), err_.get()}) {
            for (const std::string& line : relay->own_lines()) {
                text += line + "\n";
            }
        }
        return text;
    }

private:
    static std::vector<std::string> words_of(const MpirunCommand& command) {
        const auto program = find_program("mpirun");
        if (!program) {
            throw LaunchError("RT-L1", "mpirun is not on PATH; install it (Debian: apt-get install "
                                       "openmpi-bin), or start the program with your own launcher");
        }
        return mpirun_words(*program, command, MpirunVersion::on_path());
    }

    /// Settings of Open MPI 4 and of 5.
    static std::map<std::string, std::string> environment_of(const MpirunCommand& command) {
        auto settings = command.variables;
        // More ranks than cores, and a rank's threads on cores of their own.
        settings.merge(std::map<std::string, std::string>{
            {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
            {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
            {"OMPI_MCA_hwloc_base_binding_policy", "none"},
            {"PRTE_MCA_hwloc_default_binding_policy", "none"},
            // MPI spins where it waits by itself, as for ranks that join. Two ranks that the kernel
            // has put on one core would have each message wait for the end of a time slice.
            {"OMPI_MCA_mpi_yield_when_idle", "1"},
            // What ranks know of each other, PMIx keeps in memory that they share, behind a lock. A
            // rank that is killed while it holds that keeps mpirun from ending.
            {"PMIX_MCA_gds", "hash"}});
        if (command.survive_deaths) {
            settings["OMPI_MCA_pml"] = "ob1"; // the only one that survives deaths
        }
        if (command.scratch) {
            settings["OMPI_MCA_orte_tmpdir_base"] = command.scratch->string();
            settings["PRTE_MCA_prte_tmpdir_base"] = command.scratch->string();
        }
        if (command.shared_memory) {
            settings["OMPI_MCA_btl_vader_backing_directory"] = command.shared_memory->string();
            settings["OMPI_MCA_btl_sm_backing_directory"] = command.shared_memory->string();
        }
        if (::geteuid() == 0) {
            settings["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
            settings["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
        }
        return settings;
    }

    void end() noexcept {
        if (!status_) {
            ::kill(child_.pid, SIGKILL);
            (void)::waitpid(child_.pid, nullptr, 0);
        }
    }

    /// What mpirun has started to reach other hosts may live on there and hold them open.
    void close_streams_later() {
        constexpr std::chrono::milliseconds patience{500};
        timer_.expires_after(patience);
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error) {
                out_->close();
                err_->close();
            }
        });
    }

    void tell() {
        if (ended()) {
            when_ended_();
        }
    }

    std::function<void()> when_ended_;
    boost::asio::steady_timer timer_;
    Child child_;
    std::unique_ptr<OutputRelay> out_;
    std::unique_ptr<OutputRelay> err_;
    int streams_ended_ = 0;
    std::optional<int> status_;
};

/// A rank's death as mpirun tells it.
struct Death {
    std::string text;          ///< "rank 1 was killed by signal 9 (Killed)"
    std::optional<int> signal; ///< that killed it
    int rank = -1;             ///< -1: that is not told
};

/// What ended the job, in words, from what mpirun says and from its exit status.
[[nodiscard]] inline Death describe_death(int status, const std::string& mpirun_says) {
    const auto from = [](const char* text, const char* words) {
        const char* const found = std::strstr(text, words);
        return found ? found : "";
    };
    int rank = 0;
    int number = 0;
    std::array<char, 64> signal{};
    const char* const process = from(mpirun_says.c_str(), "process rank ");
    if (std::sscanf(process, "process rank %d", &rank) == 1 &&
        std::sscanf(from(process, "on signal "), "on signal %d (%63[^)])", &number,
                    signal.data()) == 2) {
        return {detail::concat("rank ", rank, " was killed by signal ", number, " (", signal.data(),
                               ")"),
                number, rank};
    }
    if (std::sscanf(from(mpirun_says.c_str(), "EXIT STRING: "), "EXIT STRING: %63[^(](signal %d)",
                    signal.data(), &number) == 2) { // hydra
        std::string name = signal.data();           // "Killed "
        name.erase(name.find_last_not_of(' ') + 1);
        return {detail::concat("a rank was killed by signal ", number, " (", name, ")"), number};
    }
    if (std::sscanf(from(mpirun_says.c_str(), "Process name: [["),
                    "Process name: [[%*[^]]],%d] Exit code: %d", &rank, &number) == 2) {
        return {detail::concat("rank ", rank, " ended with exit code ", number,
                               " before the training function returned"),
                std::nullopt, rank};
    }
    return {detail::concat("the ranks ended early, mpirun's exit status is ", status,
                           mpirun_says.empty() ? "" : "; it says:\n", mpirun_says),
            std::nullopt};
}

} // namespace rtrain::launch
