// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks exchange in a report: 80 bytes each, and their metrics if there are callbacks.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/callback.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

namespace rtrain::detail {

enum class ReportKind : std::uint8_t { metrics, state, directory };

struct ReportNote {
    ReportKind kind = ReportKind::metrics;
    bool failed = false;    ///< this rank's background save failed
    bool preempted = false; ///< this rank got a preemption notice
    bool due = false;       ///< save a state; rank 0 decides
    bool stops = false;     ///< the run stops after this report; rank 0 decides
    bool refused = false;   ///< rank 0 rejected the metrics
    bool traced = false;    ///< this rank has a trace to write
    StepTimes times{};      ///< since the previous report
};

/// The result of the exchange, the same on all ranks.
struct ReportAgreement {
    bool directory = false;         ///< at least one rank reports one
    bool failed = false;            ///< on at least one rank
    bool preempted = false;         ///< at least one rank
    bool due = false;               ///< from rank 0
    bool stops = false;             ///< from rank 0
    bool refused = false;           ///< by rank 0
    bool traced = true;             ///< all ranks have a trace
    std::vector<StepTimes> times{}; ///< by rank; on rank 0
};

/// Throws CheckpointError [RT-K5] if ranks report different kinds. Metrics and directories may be
/// mixed: not every rank needs to report a directory.
inline void require_alike(const std::vector<ReportNote>& notes) {
    const auto rank_of = [&](auto condition) {
        return std::find_if(notes.begin(), notes.end(), condition) - notes.begin();
    };
    const auto size = static_cast<std::ptrdiff_t>(notes.size());
    const auto with = rank_of([](const auto& note) { return note.kind == ReportKind::state; });
    const auto without = rank_of([](const auto& note) { return note.kind != ReportKind::state; });
    if (with < size && without < size) {
        const bool metrics = notes[static_cast<std::size_t>(without)].kind == ReportKind::metrics;
        throw CheckpointError("RT-K5",
                              concat("report() got a state on rank ", with, ", but ",
                                     metrics ? "no checkpoint" : "a directory", " on rank ",
                                     without, "; all ranks must report the state together"));
    }
}

/// *Collective.* Throws CheckpointError [RT-K5], unless a rank failed: that error takes precedence.
[[nodiscard]] inline ReportAgreement agree_on_report(HookRanks& backend, const ReportNote& mine) {
    static_assert(std::is_trivially_copyable_v<ReportNote>);
    at::Tensor bytes = at::empty({sizeof mine}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &mine, sizeof mine);
    const at::Tensor gathered = backend.all_gather(bytes).contiguous();
    std::vector<ReportNote> notes(static_cast<std::size_t>(backend.size()));
    std::memcpy(notes.data(), gathered.const_data_ptr(), gathered.nbytes());
    ReportAgreement all;
    for (const ReportNote& note : notes) {
        all.directory = all.directory || note.kind == ReportKind::directory;
        all.failed = all.failed || note.failed;
        all.preempted = all.preempted || note.preempted;
        all.traced = all.traced && note.traced;
        if (backend.rank() == 0) {
            all.times.push_back(note.times);
        }
    }
    all.due = notes.front().due;
    all.stops = notes.front().stops;
    all.refused = notes.front().refused;
    if (!all.failed) {
        require_alike(notes);
    }
    return all;
}

/// Returns the metrics of all ranks on rank 0, as result.json has them, if a callback uses them.
/// *Collective* in that case.
[[nodiscard]] inline std::vector<Config>
gather_reports(HookRanks& backend, const std::vector<track::AnyCallback>& callbacks,
               const Config& mine) {
    std::vector<Config> metrics;
    if (std::ranges::any_of(callbacks, &track::AnyCallback::takes_reports)) {
        const std::vector<std::string> texts = all_gather(backend, json::serialize(mine));
        if (backend.rank() == 0) {
            std::ranges::transform(texts, std::back_inserter(metrics),
                                   [](const auto& text) { return json::parse(text).as_object(); });
        }
    }
    return metrics;
}

} // namespace rtrain::detail
