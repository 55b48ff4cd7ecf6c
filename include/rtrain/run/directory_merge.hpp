// SPDX-License-Identifier: Apache-2.0
/// @file
/// Merges the directories that ranks report into one checkpoint: options, names, and which rank
/// copies which files.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/run/file_owners.hpp>
#include <rtrain/run/options/report_options.hpp>
#include <rtrain/run/run_directory.hpp>

#include <ATen/Functions.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Options of one report that concern directories.
struct DirectoryHandling {
    bool in_place = false; ///< already stored, or the user's function stores them
    bool in_background = false;
    bool delete_source = false;

    friend bool operator==(const DirectoryHandling&, const DirectoryHandling&) = default;
};

/// `has_any`: this rank reports a directory, or files. *Collective.* Throws CheckpointError [RT-K5]
/// if ranks that do so disagree.
[[nodiscard]] inline DirectoryHandling agree_on_handling(HookRanks& backend, bool has_any,
                                                         const ReportOptions& options) {
    const auto mode = options.checkpoint_upload_mode;
    const bool in_background = mode == CheckpointUploadMode::async;
    const bool in_place =
        mode == CheckpointUploadMode::no_upload || options.checkpoint_upload_fn != nullptr;
    const bool delete_source =
        !in_place && options.delete_local_checkpoint_after_upload.value_or(in_background);
    const std::int64_t mine =
        !has_any ? 0 : 1 + (in_place ? 2 : 0) + (in_background ? 4 : 0) + (delete_source ? 8 : 0);
    const at::Tensor given = backend.all_gather(at::full({1}, mine, at::kByte)).view({-1});
    std::int64_t agreed = 0;
    for (int rank = 0; rank < backend.size(); ++rank) {
        const auto theirs = given[rank].item<std::int64_t>();
        if (theirs != 0 && agreed != 0 && theirs != agreed) {
            throw CheckpointError(
                "RT-K5", concat("rank ", rank,
                                " reported a directory with different options than lower ranks; "
                                "report it with the same options on all ranks"));
        }
        agreed = theirs != 0 ? theirs : agreed;
    }
    return {(agreed & 2) != 0, (agreed & 4) != 0, (agreed & 8) != 0};
}

/// Merges the metadata of the ranks' directories and of rank 0's report. For equal keys, lower
/// ranks win, and the report wins over all. *Collective.*
[[nodiscard]] inline Config gather_metadata(HookRanks& backend, const Checkpoint* directory,
                                            const Config& reported) {
    std::string mine;
    succeed_together(backend, [&] {
        mine = json::serialize(directory != nullptr ? directory->metadata() : Config{});
    });
    Config all = reported;
    for (const std::string& text : all_gather(backend, mine)) {
        const auto theirs = json::parse(text).as_object();
        for (const auto& item : theirs) {
            all.emplace(item.key(), item.value());
        }
    }
    return all;
}

/// Returns the name that ranks give; some may give none. *Collective.* Throws CheckpointError
/// [RT-K5] if names differ.
[[nodiscard]] inline std::string agree_on_name(HookRanks& backend, const std::string& mine) {
    std::string agreed;
    for (const std::string& name : all_gather(backend, mine)) {
        if (!name.empty() && !agreed.empty() && name != agreed) {
            throw CheckpointError(
                "RT-K5", concat("ranks reported different directories for one checkpoint, ", agreed,
                                " and ", name, "; report one"));
        }
        agreed = name.empty() ? agreed : name;
    }
    return agreed;
}

/// Returns the local path of the directory that this rank reports, if any. *Collective.* Throws
/// CheckpointError [RT-K16] if it is to be deleted and contains the run's directory.
[[nodiscard]] inline std::optional<std::filesystem::path> source_of(HookRanks& backend,
                                                                    const Checkpoint* directory,
                                                                    const RunDirectory& run,
                                                                    bool delete_source) {
    std::optional<std::filesystem::path> source;
    succeed_together(backend, [&] {
        if (directory != nullptr) {
            source = directory->as_directory();
            if (delete_source) {
                run.require_outside_of(*source);
            }
        }
    });
    return source;
}

/// Calls the user's function, if any, to move this rank's directory to where the checkpoint `name`
/// belongs. Returns the resulting name of all ranks' directories. *Collective.* Throws
/// CheckpointError: RT-K15 not in the run's directory, RT-K5.
[[nodiscard]] inline std::string bring_in_place(HookRanks& backend, const std::string& name,
                                                const Checkpoint* directory,
                                                const RunDirectory& run,
                                                const ReportOptions& options) {
    std::string mine;
    succeed_together(backend, [&] {
        if (directory != nullptr) {
            const Checkpoint there = options.checkpoint_upload_fn
                                         ? options.checkpoint_upload_fn(*directory, name)
                                         : *directory;
            mine = run.name_of(there.location());
        }
    });
    return agree_on_name(backend, mine);
}

/// Returns the names of the files that this rank copies from its directory, if any: those that no
/// lower rank has. *Collective.* Throws CheckpointError: RT-K5 two ranks have different files of
/// the same name, RT-K14 a checkpoint cannot store a file or link.
[[nodiscard]] inline std::vector<std::string>
files_to_copy(HookRanks& backend, const std::optional<std::filesystem::path>& directory) {
    std::vector<std::string> mine;
    succeed_together(backend, [&] {
        mine = directory ? names_to_report(*directory) : std::vector<std::string>{};
    });
    std::vector<std::vector<std::string>> by_rank;
    for (const std::string& text :
         all_gather(backend, json::serialize(boost::json::array(mine.begin(), mine.end())))) {
        std::vector<std::string>& names = by_rank.emplace_back();
        const auto listed = json::parse(text).as_array();
        for (const auto& name : listed) {
            names.emplace_back(name.as_string());
        }
    }
    const FileOwners owners(by_rank);
    if (owners.are_shared()) {
        std::string sums;
        succeed_together(backend, [&] {
            boost::json::object records;
            for (const std::string& name : owners.shared_by(backend.rank())) {
                records[name] =
                    checkpoint::to_json({{checkpoint::record_of(*directory, name)}, {}});
            }
            sums = json::serialize(records);
        });
        std::vector<boost::json::object> records;
        for (const std::string& text : all_gather(backend, sums)) {
            records.push_back(json::parse(text).as_object());
        }
        require_equal_files(records);
    }
    return owners.copied_by(backend.rank());
}

} // namespace rtrain::detail
