// SPDX-License-Identifier: Apache-2.0
/// @file
/// PeerHangMonitor: watches for hangs within a rank, as the driver otherwise does. All ranks report
/// to its thread, which ends the job when they hang. For ranks that were not started by a driver;
/// see launch/watch/mutual_watch.hpp.
///
/// The thread makes no MPI call, because the training thread may be within MPI. To end the job, it
/// makes ranks exit with a code other than 0 and without MPI_Finalize. mpirun and `srun -K` treat
/// that as a failure of the job.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/overloaded.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/control/server.hpp>
#include <rtrain/launch/watch/hang_detector.hpp>
#include <rtrain/process/os/descriptor_limit.hpp>
#include <rtrain/process/os/others.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/process/stdio/output_tee.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

namespace rtrain::launch {

class PeerHangMonitor {
public:
    using Clock = std::chrono::steady_clock;

    struct Options {
        int rank = 0; ///< this one
        int size = 1;
        HangConfig hang{};
        /// Time for which a hang must last before this judge acts: another one may act first.
        Clock::duration patience{};
        /// Time between two checks.
        std::chrono::milliseconds interval{250};
        /// See ControlServer::Options.
        bool remote = false;
        std::vector<std::string> hosts{};
    };

    /// Time for ranks to exit on request; then those of this machine are killed.
    static constexpr std::chrono::seconds end_limit{2};

    /// Starts listening. Throws LaunchError [RT-L7], [RT-L17], StorageError [RT-S1], ConfigError
    /// [RT-C22].
    explicit PeerHangMonitor(Options options)
        : options_(with_room(std::move(options))),
          directory_(std::in_place, storage::temporary_directory(), "rtrain"),
          hangs_(
              options_.hang, options_.size, [this] { server_->send_all(event::Dump{}); },
              options_.patience),
          timer_(io_), server_(std::in_place, io_,
                               ControlServer::Options{.attempt = 0,
                                                      .size = options_.size,
                                                      .directory = directory_->path(),
                                                      .remote = options_.remote,
                                                      .hosts = options_.hosts},
                               handlers()),
          variables_(server_->variables()) {
        look_again();
        const SignalsBlocked none;
        thread_ = process::Thread([this] { work(); });
    }
    PeerHangMonitor(const PeerHangMonitor&) = delete;
    PeerHangMonitor& operator=(const PeerHangMonitor&) = delete;
    ~PeerHangMonitor() {
        if (!thread_.joinable()) { // forked: the thread does not exist here
            return;
        }
        boost::asio::post(io_, [this] {
            timer_.cancel();
            server_.reset();
            io_.stop();
        });
        thread_.join();
    }

    /// Address and token for ranks to join, for DriverLink::to_judge().
    [[nodiscard]] const std::string& address() const {
        return variables_.at(ControlAddress::variable);
    }
    [[nodiscard]] const std::string& token() const {
        return variables_.at(ControlAddress::token_variable);
    }

    /// All ranks have joined.
    void stop_listening() {
        boost::asio::post(io_, [this] {
            server_->stop_listening();
            directory_.reset();
        });
    }

private:
    struct Rank {
        pid_t local_process = 0; ///< 0: on another machine
        bool done = false;
    };

    /// Sockets of all ranks must not use up the descriptors that training needs for files.
    static Options with_room(Options options) {
        require_descriptors(descriptors_for_rank(options.size, open_descriptors()),
                            detail::concat("watching ", options.size, " ranks"));
        return options;
    }

    /// A rank whose connection ended before it was done.
    struct Lost {
        int rank;
        pid_t local_process; ///< 0: on another machine
        Clock::time_point since;
    };

    ControlServer::Handlers handlers() {
        return {.joined =
                    [this](const Hello& hello) {
                        ranks_[hello.rank] = {.local_process = hello.local ? hello.pid : 0};
                        hangs_.joined(hello);
                    },
                .status = [this](const RankReport& report) { hangs_.on_report(report); },
                .event =
                    [this](int rank, const RankEvent& received) {
                        std::visit(detail::Overloaded{
                                       [&](const event::Stack& stack) {
                                           hangs_.on_stack(rank, stack.text);
                                       },
                                       [&](const event::Done&) { ranks_.at(rank).done = true; },
                                       [](const auto&) {}, // others are for a driver
                                   },
                                   received);
                    },
                .left = [this](int rank) { left(rank); }};
    }

    void left(int rank) {
        hangs_.left(rank);
        if (const Rank& gone = ranks_.at(rank); !gone.done) {
            lost_.push_back({rank, gone.local_process, Clock::now()});
        }
        ranks_.erase(rank);
    }

    /// Ranks that wait for a rank that died unnoticed by mpirun hang, too. But a rank may only be
    /// cut off from this judge and still compute: then no rank can be blamed, and this returns
    /// false.
    [[nodiscard]] bool resolve_lost() {
        constexpr std::chrono::seconds to_die{2}; // a process closes its connections first
        while (!lost_.empty()) {
            const Lost& lost = lost_.front();
            const bool dead =
                lost.local_process > 0 && !storage::process_is_alive(lost.local_process);
            if (dead) {
                hangs_.set_gone(lost.rank);
                lost_.pop_front();
            } else {
                return Clock::now() - lost.since < to_die;
            }
        }
        return true;
    }

    /// Warns with a delay: usually the whole job is about to end.
    void resign() {
        constexpr std::chrono::seconds moment{30};
        timer_.expires_after(moment);
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error) {
                console::warn("hangs of the ranks may go unnoticed: rank %d has lost its "
                              "connection to rank %d [RT-L19]",
                              options_.rank, lost_.front().rank);
            }
        });
    }

    void work() {
        try {
            io_.run();
        } catch (const std::exception& error) { // such as std::bad_alloc
            console::warn("rank %d no longer watches for hangs: %s", options_.rank, error.what());
        }
    }

    void look_again() {
        constexpr std::chrono::milliseconds often{10};
        timer_.expires_after(hangs_.is_waiting() ? often : options_.interval);
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (error) {
                return;
            }
            if (!resolve_lost()) {
                resign();
            } else if (const auto found = hangs_.look()) {
                end_job(*found);
            } else {
                look_again();
            }
        });
    }

    void end_job(const std::string& found) {
        const LaunchError error("RT-L14", "the ranks hang: " + found);
        console::error("%s", error.what());
        for (const auto& [rank, state] : ranks_) {
            if (rank != options_.rank) {
                server_->send(rank, event::End{});
                if (state.local_process > 0) {
                    ::kill(state.local_process, SIGCONT); // stopped ranks receive it, too
                }
            }
        }
        end_until_ = Clock::now() + end_limit;
        end_with_the_others();
    }

    /// Mpirun kills the others when this process exits, so it exits last.
    void end_with_the_others() {
        const std::size_t mine = ranks_.contains(options_.rank) ? 1 : 0;
        if (ranks_.size() <= mine || Clock::now() >= end_until_) {
            for (const auto& [rank, state] : ranks_) {
                if (rank != options_.rank && state.local_process > 0) {
                    ::kill(state.local_process, SIGKILL);
                }
            }
            process::OutputTee::settle_current();
            ::_exit(EXIT_FAILURE);
        }
        constexpr std::chrono::milliseconds often{10};
        timer_.expires_after(often);
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error) {
                end_with_the_others();
            }
        });
    }

    Options options_;
    std::optional<storage::ProcessDirectory> directory_; ///< of the socket, while it exists
    HangDetector hangs_;
    std::map<int, Rank> ranks_; ///< those that are connected
    std::deque<Lost> lost_;     ///< disconnected, maybe alive
    Clock::time_point end_until_;
    boost::asio::io_context io_;
    boost::asio::steady_timer timer_;
    std::optional<ControlServer> server_;
    std::map<std::string, std::string> variables_; ///< the server's
    process::Thread thread_;                       ///< last: uses everything above
};

} // namespace rtrain::launch
