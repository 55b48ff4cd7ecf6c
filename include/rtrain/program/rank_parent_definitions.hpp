// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/rank_parent.hpp.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/launch/control/own_address.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/process/os/processor_time.hpp>
#include <rtrain/process/stdio/standard_streams.hpp>
#include <rtrain/program/meeting_point.hpp>
#include <rtrain/program/process/awaited_signals.hpp>
#include <rtrain/program/process/node_server.hpp>
#include <rtrain/program/process/preload_socket.hpp>
#include <rtrain/program/program_path.hpp>
#include <rtrain/program/rank_environment.hpp>
#include <rtrain/program/rank_parent.hpp>
#include <rtrain/storage/file/process_directory.hpp>

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::program {

RTRAIN_DOOR std::string RankEnding::text() const {
    return json::serialize(
        {{"rank", rank}, {"size", size}, {"status", status}, {"preempted", is_preempted}});
}

RTRAIN_DOOR RankEnding RankEnding::parse(const std::string& text) {
    const boost::json::object object = json::parse_object(text);
    return {.rank = object.at("rank").to_number<int>(),
            .size = object.at("size").to_number<int>(),
            .status = object.at("status").to_number<int>(),
            .is_preempted = object.at("preempted").as_bool()};
}

namespace internal {

/// Removes the directories of a driver that was killed. Its connections end shortly before it does.
inline void sweep_after_driver() noexcept {
    constexpr std::chrono::milliseconds moment{100};
    std::this_thread::sleep_for(moment);
    std::error_code ignored;
    storage::ProcessDirectory::sweep(std::filesystem::temp_directory_path(ignored), "rtrain");
}

} // namespace internal

RTRAIN_DOOR RankParent::RankParent(std::vector<std::string> words)
    : words_(std::move(words)), place_(RankPlace::of_this_process()),
      plan_(ProgramPlan::of_this_process()),
      has_driver_(std::getenv(launch::ControlAddress::variable) != nullptr),
      link_(launch::DriverLink::from_environment()),
      name_(std::filesystem::path(name_of_program(words_)).filename().string()) {
    ::unsetenv(RankPlace::variable); // a driver inside the program is not a rank
    ::unsetenv(ProgramPlan::variable);
}

RTRAIN_DOOR int RankParent::run() {
    const pid_t launcher = ::getppid();
    AwaitedSignals::block();
    try {
        if (has_driver_) {
            start_node_server();
            connect();
        } else {
            choose_address();
        }
        start();
    } catch (const Error& error) {
        return end_without_start({.kind = Failure::Kind::configuration,
                                  .code = ErrorCode::parse(error.code()),
                                  .message = error.message()});
    }
    const int status = wait();
    if (::getppid() != launcher) {
        internal::sweep_after_driver();
    }
    return status;
}

RTRAIN_DOOR void RankParent::choose_address() {
    const bool needs_port = plan_.meeting == Meeting::torch || plan_.meeting == Meeting::tensorflow;
    if (!needs_port) {
        return;
    }
    if (place_.is_on_one_node()) {
        ports_ = HeldPorts(place_.rank == 0 ? 1 : 0);
        const int own = place_.rank == 0 ? ports_.numbers()[0] : 0;
        plan_.address = "127.0.0.1";
        plan_.ports = {MeetingPoint::agree(place_, own)};
        return;
    }
    const auto of_srun = MeetingPoint::of_srun();
    if (!of_srun) {
        throw ConfigError(
            "RT-E4", "mpirun has started ranks on several machines, which `rtrain exec` cannot "
                     "connect; start them with `rtrain run --hosts`, or under srun");
    }
    plan_.address = of_srun->address;
    plan_.ports = {of_srun->port};
}

RTRAIN_DOOR void RankParent::start_node_server() {
    if (plan_.lease.empty()) {
        return;
    }
    plan_.preload = NodeServer::address_for(plan_.preload);
    const ProgramPlan of_server{.meeting = Meeting::none, .threads = plan_.threads};
    NodeServer server{.address = plan_.preload,
                      .lease = plan_.lease,
                      .command = words_,
                      .modules = plan_.modules,
                      .variables = rank_environment(place_, of_server)};
    try {
        server.command[0] = path_of_program(words_[0]);
    } catch (const ConfigError&) { // start() throws it, too, and the driver gets it
        return;
    }
    server.start();
}

RTRAIN_DOOR void RankParent::connect() {
    link_->speak_for([this](int rank) { return report(rank); }, [this] { return dump(); });
    link_->on_preempt([this](double grace_s) {
        constexpr double margin_s = 1; // the driver may end the run first, and say so
        const auto limit = detail::duration_of(grace_s + margin_s);
        kill_at_ns_ = (Clock::now() + limit).time_since_epoch().count();
        is_preempted_ = true;
        module_.preempt(grace_s);
        forward(SIGTERM);
    });
    link_->before_exit([this] {
        if (has_started_) {
            process_->kill();
        }
        internal::sweep_after_driver();
    });
    link_->connect(place_.rank, place_.size);
    const bool needs_port = plan_.meeting == Meeting::torch || plan_.meeting == Meeting::tensorflow;
    if (needs_port && plan_.address.empty()) {
        exchange_addresses();
    }
}

RTRAIN_DOOR void RankParent::exchange_addresses() {
    constexpr std::chrono::minutes limit{10}; // the driver ends this process earlier
    ports_ = HeldPorts(1);
    boost::asio::io_context io;
    link_->say(launch::event::Address{.host = launch::own_address(io, plan_.hosts).to_string(),
                                      .port = ports_.numbers()[0]});
    const auto all = link_->answers().wait_for_addresses(limit);
    if (!all) {
        throw LaunchError("RT-E3", "some ranks did not start on the other machines; check them "
                                   "with `mpirun --host`");
    }
    place_ = RankPlace::among(all->hosts, place_.rank);
    plan_.address = all->hosts[0];
    plan_.ports = all->ports;
    plan_.hosts = all->hosts;
}

RTRAIN_DOOR void RankParent::start() {
    std::vector<std::string> words = words_;
    words[0] = path_of_program(words_[0]);
    require_script(words_);
    Variables variables = rank_environment(place_, plan_);
    if (link_) {
        variables[module_variable] = std::to_string(module_.serve(*link_, place_, plan_));
    }
    try {
        if (!start_forked(variables)) {
            process_.emplace(words, variables);
        }
    } catch (const RankProcess::CannotStart& failed) {
        throw ConfigError(
            "RT-E5", detail::concat("cannot start ", words_[0], ": ", std::strerror(failed.error)));
    }
    module_.close_other_end();
    has_started_ = true;
    if (is_preempted_) { // before there was a program to forward it to
        forward(SIGTERM);
    }
    if (link_) {
        link_->say(
            launch::event::Training{std::filesystem::path(plan_.checkpoint).filename().string()});
    }
}

/// Returns false if the rank is to be started by itself.
RTRAIN_DOOR bool RankParent::start_forked(const Variables& variables) {
    if (plan_.preload.empty()) {
        return false;
    }
    const std::string node = plan_.lease.empty() ? "" : storage::host_name() + ": ";
    try {
        process_.emplace(ForkedRank(connect_to_preload(plan_.preload),
                                    {.words = {words_.begin() + 1, words_.end()},
                                     .settings = launch::environment_with(variables),
                                     .module = module_.other_end()}));
        return true;
    } catch (const ForkedRank::Refused& refused) {
        if (place_.local_rank == 0) {
            console::warn("%sranks start without --preload: %s", node.c_str(), refused.why.c_str());
        }
        return false;
    } catch (const ConfigError& error) {
        throw ConfigError(error.code(), node + error.message());
    }
}

RTRAIN_DOOR int RankParent::wait() {
    const AwaitedSignals awaited;
    while (!process_->has_ended() || was_hung_) { // then the driver ends this process
        constexpr std::chrono::seconds interval{1};
        const int signal = awaited.next(was_hung_ ? -1 : process_->end(), interval);
        if (signal > 0 && signal != SIGCHLD) {
            forward(signal);
        }
        if (is_preempted_ && Clock::now().time_since_epoch().count() > kill_at_ns_) {
            process_->kill(); // it ignores SIGTERM, and must make way for more ranks
        }
    }
    return end(process_->wait());
}

RTRAIN_DOOR void RankParent::forward(int signal) {
    // The driver and mpirun may both pass on one SIGTERM.
    constexpr std::int64_t echo_ns = 1'000'000'000;
    const std::int64_t now = Clock::now().time_since_epoch().count();
    if (!has_started_ || (signal == SIGTERM && now - terminated_at_ns_.exchange(now) < echo_ns)) {
        return;
    }
    if (signal == SIGTERM && is_preempted_ && module_.asks_for_preemption()) {
        return;
    }
    process_->signal(signal);
}

RTRAIN_DOOR int RankParent::end(int wait_status) {
    const int status = launch::shell_status(wait_status);
    is_over_ = true;
    if (!link_) {
        return status;
    }
    if (status == 0 || is_preempted_) { // mpirun must not end the others
        module_.finish();
        say_ending(status);
        link_->say(launch::event::Done{});
        (void)link_->flush(launch::DriverLink::patience);
        return 0;
    }
    if (WIFSIGNALED(wait_status)) {
        const int signal = WTERMSIG(wait_status);
        say_last_words({.kind = Failure::Kind::died,
                        .code = "RT-L2",
                        .message = detail::concat(name_, " was killed by signal ", signal, " (",
                                                  ::strsignal(signal), ")"),
                        .from_outside = launch::is_sent_by_others(signal)},
                       status);
    } else {
        say_last_words({.message = detail::concat(name_, " exited with code ", status)}, status);
    }
    return status;
}

RTRAIN_DOOR int RankParent::end_without_start(const Failure& why) {
    constexpr int cannot_execute = 126; // as shells do
    is_over_ = true;
    if (link_ && why.code != "RT-L8") {
        say_last_words(why, cannot_execute);
    } else {
        console::error("rank %d: %s", place_.rank, why.text().c_str());
    }
    return cannot_execute;
}

RTRAIN_DOOR void RankParent::say_ending(int status) {
    link_->say(launch::event::Ending{RankEnding{
        .rank = place_.rank, .size = place_.size, .status = status, .is_preempted = is_preempted_}
                                         .text()});
}

RTRAIN_DOOR void RankParent::say_last_words(const Failure& failure, int status) {
    say_ending(status);
    link_->say(launch::event::LastWords{failure});
    (void)link_->flush(launch::DriverLink::patience);
}

RTRAIN_DOOR launch::RankReport RankParent::report(int rank) {
    constexpr double interval_s = 1;
    constexpr double computes_from = 0.05; // of a core, as for hang detection
    const bool runs = has_started_ && !is_over_;
    const auto now = Clock::now();
    const char state = runs ? storage::process_state(process_->pid()) : '\0';
    was_runnable_ = was_runnable_ || state == 'R'; // on a busy machine, without a core
    const double passed_s = std::chrono::duration<double>(now - measured_at_).count();
    if (passed_s >= interval_s) {
        const double cpu_s =
            process::processor_time_s() + (runs ? process_->processor_time_s() : 0);
        computes_ = was_runnable_ || (cpu_s - cpu_s_) / passed_s >= computes_from;
        was_runnable_ = false;
        progress_ += computes_ ? 1 : 0;
        measured_at_ = now;
        cpu_s_ = cpu_s;
    }
    return {.rank = rank,
            .phase = is_over_       ? Phase::done
                     : has_started_ ? Phase::training
                                    : Phase::starting,
            .progress = progress_,
            .waiting_in = runs && !computes_ && !is_preempted_ && !module_.is_storing()
                              ? name_
                              : "", // it may save
            .cpu_s = cpu_s_,
            .output_blocked = process::is_output_blocked(),
            .stopped = state == 'T'};
}

RTRAIN_DOOR std::string RankParent::dump() {
    if (!has_started_ || is_over_) {
        return "its program has ended";
    }
    was_hung_ = true;
    process_->abort();
    return detail::concat(name_, " was ended with SIGABRT; Python prints its stacks, above");
}

} // namespace rtrain::program
