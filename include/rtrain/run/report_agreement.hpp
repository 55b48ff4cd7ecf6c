// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks tell each other when they report, in one byte each.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rtrain::detail {

enum class ReportKind : std::uint8_t { metrics, state, directory };

struct ReportNote {
    ReportKind kind = ReportKind::metrics;
    bool failed = false;    ///< what this rank saves in the background
    bool preempted = false; ///< it was told to make room
    bool due = false;       ///< a state is to be saved; rank 0's counts
};

/// What all ranks then know.
struct ReportAgreement {
    bool directory = false; ///< some rank reports one
    bool failed = false;    ///< on some rank
    bool preempted = false; ///< some rank
    bool due = false;       ///< says rank 0
};

/// Throws CheckpointError [RT-K5] unless ranks report alike. Metrics and directories go together:
/// some ranks may leave the directory to others.
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

/// *Collective.* Throws CheckpointError [RT-K5], unless some rank has failed: that comes first.
[[nodiscard]] inline ReportAgreement agree_on_report(HookRanks& backend, const ReportNote& mine) {
    constexpr std::int64_t failed = 0x80;
    constexpr std::int64_t preempted = 0x40;
    constexpr std::int64_t due = 0x20; // smaller bits are a ReportKind
    const std::int64_t byte = static_cast<std::int64_t>(mine.kind) + (mine.failed ? failed : 0) +
                              (mine.preempted ? preempted : 0) + (mine.due ? due : 0);
    const at::Tensor bytes = backend.all_gather(at::full({1}, byte, at::kByte)).view({-1});
    std::vector<ReportNote> notes;
    ReportAgreement all;
    for (int rank = 0; rank < backend.size(); ++rank) {
        const auto theirs = bytes[rank].item<std::int64_t>();
        notes.push_back({static_cast<ReportKind>(theirs % due), (theirs & failed) != 0,
                         (theirs & preempted) != 0, (theirs & due) != 0});
        all.directory = all.directory || notes.back().kind == ReportKind::directory;
        all.failed = all.failed || notes.back().failed;
        all.preempted = all.preempted || notes.back().preempted;
    }
    all.due = notes.front().due;
    if (!all.failed) {
        require_alike(notes);
    }
    return all;
}

} // namespace rtrain::detail
