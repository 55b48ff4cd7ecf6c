// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/program_task.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/launch/supervise/host_list.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/process/os/token.hpp>
#include <rtrain/program/place.hpp>
#include <rtrain/program/plan.hpp>
#include <rtrain/program/program_path.hpp>
#include <rtrain/program/program_task.hpp>
#include <rtrain/program/rank_environment.hpp>
#include <rtrain/storage/file/temporary.hpp>

#include <algorithm>
#include <utility>

namespace rtrain::program {

RTRAIN_DOOR ProgramTask::ProgramTask(const ProgramOptions& options, RunBook& book,
                                     std::shared_ptr<PreloadService> preload)
    : options_(options), book_(book), preload_(std::move(preload)) {
    directory_.emplace(storage::temporary_directory(), "rtrain");
    if (!preload_) {
        preload_ = std::make_shared<PreloadService>(directory_->path());
    }
}

RTRAIN_DOOR bool ProgramTask::uses_mpi() const noexcept {
    return meeting_of(options_.rendezvous) == Meeting::mpi;
}

RTRAIN_DOOR launch::Task ProgramTask::task() {
    std::vector<std::string> words{options_.tool.empty() ? launch::own_command_line().at(0)
                                                         : path_of_program(options_.tool),
                                   "exec", "--"};
    words.insert(words.end(), options_.command.begin(), options_.command.end());
    return {.program = launch::Program::argv(std::move(words)),
            .prepare = [this](const launch::LaunchRequest& start) { return prepare(start); },
            .result = [this] { return result(); },
            .keep_result = [this](const std::string& text) { keep(text); },
            .failure_in = [this](const std::string& result) -> std::optional<Failure> {
                if (result.empty() || calls_->failure()) {
                    return calls_->failure();
                }
                return detail::failure_of(PreemptionError(result));
            },
            .without_result = {.kind = Failure::Kind::start_up,
                               .code = "RT-L2",
                               .message = "the ranks ended without reporting how"},
            .needs_mpi = uses_mpi(),
            .answer = [this](int rank,
                             const launch::RankEvent& call) { return calls_->hear(rank, call); }};
}

RTRAIN_DOOR launch::LaunchEnvironment ProgramTask::prepare(const launch::LaunchRequest& start) {
    endings_.clear();
    first_failed_ = 0;
    book_.begin(start.skip, start.ranks);
    calls_.emplace(book_, start.ranks);
    const Meeting meeting = meeting_of(options_.rendezvous);
    const int ports = start.remote                     ? 0
                      : meeting == Meeting::torch      ? 1
                      : meeting == Meeting::tensorflow ? start.ranks
                                                       : 0;
    ports_ = HeldPorts(ports);
    const ScalingConfig& scaling = options_.scaling;
    ProgramPlan plan{.meeting = meeting,
                     .run = options_.run.name,
                     .restarts = start.attempt - 1,
                     .max_restarts = options_.run.failure.max_failures,
                     .address = start.remote ? "" : "127.0.0.1",
                     .ports = ports_.numbers(),
                     .threads = scaling.threads_per_worker,
                     .gpus = scaling.use_gpu ? scaling.gpus_per_worker : 0,
                     .directory = book_.directory().location().path,
                     .checkpoint = checkpoint(),
                     .stop = book_.stop_reason()};
    if (start.remote) {
        for (const launch::Host& host :
             launch::hosts_of(launch::read_host_arguments(scaling.mpirun_args))) {
            plan.hosts.push_back(launch::without_user(host.name));
        }
    }
    if (!options_.preload.empty()) {
        preload(plan, start);
    }
    launch::LaunchEnvironment given{.variables = options_.environment,
                                    .directory = directory_->path()};
    given.variables[ProgramPlan::variable] = plan.text();
    given.variables["RTRAIN_CONFIG"] = json::serialize(options_.config);
    boost::json::object datasets;
    for (const auto& [name, path] : options_.datasets) {
        datasets[name] = path;
    }
    given.variables["RTRAIN_DATASETS"] = json::serialize(datasets);
    for (int rank = 0; rank < start.ranks && !start.remote; ++rank) {
        const RankPlace place{
            .rank = rank, .size = start.ranks, .local_rank = rank, .local_size = start.ranks};
        given.rank_variables.push_back({{RankPlace::variable, place.text()}});
    }
    return given;
}

RTRAIN_DOOR std::string ProgramTask::checkpoint() const {
    const auto& from = book_.newest() ? book_.newest() : options_.resume_from;
    return from ? from->path.string() : "";
}

RTRAIN_DOOR void ProgramTask::preload(ProgramPlan& plan, const launch::LaunchRequest& start) {
    if (start.remote) {
        if (!lease_) {
            constexpr std::size_t bytes = 16;
            preload_name_ = "rtrain-preload-" + launch::control::random_text(bytes);
            lease_.emplace(plan.hosts);
        }
        lease_->accept();
        plan.preload = preload_name_;
        plan.lease = lease_->address();
        plan.modules = options_.preload;
        return;
    }
    Variables variables = rank_environment({.size = start.ranks, .local_size = start.ranks},
                                           {.meeting = Meeting::none, .threads = plan.threads});
    variables.insert(options_.environment.begin(), options_.environment.end());
    std::vector<std::string> command = options_.command;
    command[0] = path_of_program(command[0]);
    plan.preload = preload_->path(command, options_.preload, variables);
}

RTRAIN_DOOR void ProgramTask::keep(const std::string& text) {
    const RankEnding ending = RankEnding::parse(text);
    endings_[ending.rank] = ending;
    if (first_failed_ == 0) {
        first_failed_ = ending.status;
    }
}

/// Empty text: all ranks ended with 0.
RTRAIN_DOOR std::optional<std::string> ProgramTask::result() const {
    const auto is_orderly = [](const auto& item) {
        return item.second.status == 0 || item.second.is_preempted;
    };
    if (endings_.empty() || !std::all_of(endings_.begin(), endings_.end(), is_orderly) ||
        static_cast<int>(endings_.size()) < endings_.begin()->second.size) {
        return std::nullopt;
    }
    const bool preempted = std::any_of(endings_.begin(), endings_.end(),
                                       [](const auto& item) { return item.second.is_preempted; });
    return preempted ? "the program was preempted and has ended; run the same command to start it "
                       "again"
                     : "";
}

RTRAIN_DOOR std::vector<int> ProgramTask::ended_well() const {
    std::vector<int> ranks;
    for (const auto& [rank, ending] : endings_) {
        if (ending.status == 0) {
            ranks.push_back(rank);
        }
    }
    return ranks.size() == endings_.size() ? std::vector<int>() : ranks;
}

} // namespace rtrain::program
