// SPDX-License-Identifier: Apache-2.0
/// @file
/// Registers a run's default observers: docs/architecture.md lists them.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/journal/observers.hpp>
#include <rtrain/launch/driver_display.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/process/stack/loaded_from.hpp>
#include <rtrain/run/driver_notifier.hpp>
#include <rtrain/run/options/fit_setup.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/score_check.hpp>
#include <rtrain/track/callback/background_calls.hpp>
#include <rtrain/track/callback/callback_observer.hpp>
#include <rtrain/track/delivery/trackers.hpp>
#include <rtrain/track/live/live_page.hpp>
#include <rtrain/track/page/run_report.hpp>
#include <rtrain/track/terminal/run_console.hpp>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Adds observers that record the run. Returns the report that add_viewers() fills in.
inline std::shared_ptr<track::RunReport> add_recorders(track::Observers& observers,
                                                       const TrainerOptions& options,
                                                       launch::Session& session) {
    auto report = std::make_shared<track::RunReport>(options.run.checkpoint);
    observers.add(report);
    observers.add(std::make_shared<track::Trackers>(options.run.trackers,
                                                    options.config)); // upload the report
    observers.add(std::make_shared<DriverNotifier>(session));
    observers.add(std::make_shared<ScoreCheck>(options.run.checkpoint));
    if (const auto& port = options.run.console.live) {
        observers.add(std::make_shared<track::LivePage>(*port, options.run.checkpoint));
    }
    return report;
}

/// Adds the callbacks. Background callbacks share a thread, which has ended when `observers` is
/// destroyed.
inline void add_callbacks(track::Observers& observers, const TrainerOptions& options, int ranks,
                          const std::string& run_name) {
    const storage::Location at = run_location(options.run, run_name);
    std::shared_ptr<track::BackgroundCalls> background;
    for (const track::AnyCallback& callback : options.run.callbacks) {
        if (callback.in_background() && !background) {
            background = std::make_shared<track::BackgroundCalls>();
        }
        observers.add(std::make_shared<track::CallbackObserver>(
            callback, options.config, ranks, at, callback.in_background() ? background : nullptr));
    }
}

/// True if a word of a command line looks like a secret.
[[nodiscard]] inline bool may_be_secret(std::string word) {
    std::transform(word.begin(), word.end(), word.begin(), detail::lower);
    const auto has = [&](const char* part) { return word.find(part) != std::string::npos; };
    return has("key") || has("token") || has("secret") || has("passw") || has("credential") ||
           (has("://") && has("@"));
}

/// Returns how users can resume a run. A launcher's own command line is unknown.
[[nodiscard]] inline std::string way_to_go_on(const AnyBackend& backend, const RunConfig& run,
                                              const launch::Session& session,
                                              const std::string& run_name) {
    if (run.name.empty() || run.resume == Resume::never) { // the same command would start over
        const storage::Location at = run_location(run, run_name);
        return "Trainer::restore(\"" + at.filesystem.uri(at.path) + "\")";
    }
    const std::vector<std::string> words = launch::own_command_line();
    if ((backend.launched_ranks() && !session.has_driver()) ||
        std::any_of(words.begin(), words.end(), may_be_secret)) {
        return "the same command again";
    }
    std::string line;
    for (const std::string& word : words) {
        line += (line.empty() ? "" : " ") + launch::quoted(word);
    }
    return line;
}

/// *Collective.*
[[nodiscard]] inline track::RunFacts facts_of(const FitSetup& fit) {
    AnyBackend& backend = fit.backend;
    at::Tensor last_node = at::full({1}, backend.node_rank(), at::kLong);
    backend.all_reduce(last_node, ReduceOp::max);
    track::RunFacts facts{
        .ranks = backend.size(),
        .hosts = static_cast<int>(last_node.item<std::int64_t>()) + 1,
        .threads = at::get_num_threads(),
        .device = backend.device().value_or(at::kCPU).str(),
        .goes_on = way_to_go_on(backend, fit.options.run, fit.call.session, fit.run_name)};
    facts.libraries.emplace_back(
        "libtorch", TORCH_VERSION + from(reinterpret_cast<const void*>(&at::get_num_threads)));
    if (const std::string mpi = comm::library_version(); !mpi.empty()) {
        facts.libraries.emplace_back("MPI", mpi + from(reinterpret_cast<const void*>(&MPI_Init)));
    }
    return facts;
}

/// Adds observers that display the run. The console is on all ranks: when ranks continue without
/// dead ones, another rank may become rank 0. *Collective.*
inline void add_viewers(track::Observers& observers, const FitSetup& fit,
                        track::RunReport& report) {
    const TrainerOptions& options = fit.options;
    launch::Session& session = fit.call.session;
    track::RunFacts facts = facts_of(fit);
    report.describe(facts);
    std::shared_ptr<console::Display> display;
    if (session.has_driver()) {
        display = std::make_shared<launch::DriverDisplay>(session);
    } else {
        display = console::Screen::of_stderr();
    }
    observers.add(std::make_shared<track::RunConsole>(options.run.console, options.run.checkpoint,
                                                      std::move(facts), std::move(display)));
    if (fit.backend.rank() == 0) {
        add_callbacks(observers, options, fit.backend.size(), fit.run_name);
    }
}

} // namespace rtrain::detail
