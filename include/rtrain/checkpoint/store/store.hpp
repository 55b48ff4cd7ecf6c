// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoints of one run, and their retention.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/store/ranking.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/validation_record.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/storage/locate.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// A committed checkpoint and the metrics it was reported with.
struct Committed {
    std::string name;
    Checkpoint checkpoint;
    Config metrics;
    std::int64_t index = 0;
    ValidationRecord validation{.status = CheckpointStatus::committed};

    [[nodiscard]] CheckpointStatus status() const noexcept { return validation.status; }
    /// Validated metrics override reported ones.
    void add_validated_metrics() {
        for (const auto& item : validation.metrics) {
            metrics[item.key()] = item.value();
        }
    }
};

/// A directory that should be a checkpoint, but is damaged.
struct Damaged {
    std::string name;
    ErrorCode code;
    std::string reason;
};

/// Returns the number in "checkpoint_000007". Rejects 19 digits, with which the next one might be
/// too large.
[[nodiscard]] inline std::optional<std::int64_t> index_in(std::string_view name) {
    constexpr std::string_view prefix = "checkpoint_";
    constexpr std::size_t most_digits = 18;
    if (!name.starts_with(prefix)) {
        return std::nullopt;
    }
    name.remove_prefix(prefix.size());
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_number = error == std::errc() && end == name.data() + name.size();
    return is_number && index >= 0 && name.front() != '-' && name.size() <= most_digits
               ? std::optional(index)
               : std::nullopt;
}

struct Listing {
    std::vector<Committed> committed; ///< oldest first
    std::vector<Damaged> damaged;
    std::int64_t next_index = 0; ///< higher than that of any of them

    /// Raises next_index above the number in `name`, if there is one.
    void pass(const std::string& name) {
        next_index = std::max(next_index, index_in(name).value_or(-1) + 1);
    }
};

/// Adds the validation record of a checkpoint. A damaged record does not damage the checkpoint.
inline void read_validation(const storage::Location& run, const std::string& path,
                            Committed& item) {
    const std::string file = path + "/" + validation_file;
    try {
        if (!run.filesystem.exists(file)) {
            return;
        }
        if (run.filesystem.is_local() && !is_plain_file(path, validation_file)) {
            throw std::invalid_argument(not_a_plain_file);
        }
        item.validation = parse_validation(run.filesystem.read(file));
        item.add_validated_metrics();
    } catch (const std::bad_alloc&) { // not an error of the file
        throw;
    } catch (const TransientStorageError&) { // not an error of the file either
        throw;
    } catch (const std::exception& error) {
        item.validation = {
            .status = CheckpointStatus::validation_failed,
            .message = detail::concat(run.filesystem.uri(file), " cannot be read: ", error.what())};
    }
}

/// Lists the checkpoints in a run's directory, by their manifests. Throws TransientStorageError: a
/// file that cannot be read now is not damaged.
[[nodiscard]] inline Listing list_checkpoints(const storage::Location& run) {
    Listing found;
    for (const auto& entry : run.filesystem.list(run.path)) {
        const std::string& name = entry.name;
        if (!entry.is_directory || name.starts_with('.')) {
            continue;
        }
        const std::string path = run.path + "/" + name;
        const std::string manifest_path = path + "/" + manifest_file;
        found.pass(name);
        if (!run.filesystem.exists(manifest_path)) {
            if (index_in(name)) {
                found.damaged.push_back(
                    {name, "RT-K1",
                     detail::concat(run.filesystem.uri(path), " has no ", manifest_file)});
            }
            continue;
        }
        try {
            Manifest manifest = run.filesystem.is_local()
                                    ? read_manifest(path)
                                    : parse_manifest(run.filesystem.read(manifest_path),
                                                     run.filesystem.uri(manifest_path));
            found.next_index = std::max(found.next_index, manifest.index + 1);
            const auto files =
                run.filesystem.is_local() ? std::nullopt : std::optional(run.filesystem);
            Committed item{name, Checkpoint(path, files), std::move(manifest.metrics),
                           manifest.index};
            read_validation(run, path, item);
            found.committed.push_back(std::move(item));
        } catch (const TransientStorageError&) {
            throw;
        } catch (const Error& error) { // damaged, or not readable
            found.damaged.push_back({name, ErrorCode::parse(error.code()), error.message()});
        }
    }
    std::sort(found.committed.begin(), found.committed.end(),
              [](const auto& a, const auto& b) { return a.index < b.index; });
    return found;
}

/// Used on rank 0, by its training thread and by one that writes in the background.
class Store {
public:
    /// A file in the run's directory with the name of the newest checkpoint, for people and
    /// scripts; rtrain itself reads the manifests.
    static constexpr const char* latest_file = "latest";

    Store(Staging staging, CheckpointConfig config)
        : staging_(std::move(staging)), config_(std::move(config)) {}

    [[nodiscard]] const Staging& staging() const noexcept { return staging_; }

    /// Removes what an interrupted attempt has left, and lists the checkpoints.
    void open() {
        Listing listing;
        const auto file = staging_.path_of(next_file);
        const auto& files = staging_.run().filesystem;
        if (!staging_.is_local() && files.exists(file)) {
            listing.pass("checkpoint_" + files.read(file));
        }
        staging_.sweep([&](const std::vector<std::string>& unfinished) {
            for (const std::string& name : unfinished) {
                listing.pass(name);
            }
            skip_to(listing.next_index);
        });
        const std::int64_t first = listing.next_index;
        listing = list_checkpoints(staging_.run());
        if (listing.next_index >= first && first > 0) {
            files.remove(file);
        }
        listing.next_index = std::max(listing.next_index, first);
        const std::scoped_lock lock(mutex_);
        listing_ = std::move(listing);
    }

    /// Called instead of commit(): removes everything that `rank` has staged. On a service, where
    /// files may still arrive, the number is not used again.
    void give_up(const std::string& name, int rank) {
        if (rank == 0 && !staging_.is_local()) {
            const std::scoped_lock lock(mutex_);
            listing_.pass(name);
        }
        staging_.give_up(name, rank);
    }

    /// Returns a handle to the checkpoint of that name.
    [[nodiscard]] Checkpoint checkpoint(const std::string& name) const {
        return Checkpoint(staging_.path_of(name), staging_.is_local()
                                                      ? std::nullopt
                                                      : std::optional(staging_.run().filesystem));
    }

    [[nodiscard]] Listing listing() const {
        const std::scoped_lock lock(mutex_);
        return listing_;
    }

    /// Marks a checkpoint as damaged. It is never used and never deleted.
    void reject(const std::string& name, const std::string& reason) {
        const std::scoped_lock lock(mutex_);
        std::erase_if(listing_.committed, [&](const auto& item) { return item.name == name; });
        listing_.damaged.push_back({name, "RT-K2", reason});
    }

    /// Returns the name of the next checkpoint: `wished`, or the next number. Throws
    /// CheckpointError [RT-K9] if the wished name is invalid or in use.
    [[nodiscard]] std::string next_name(const std::string& wished) const {
        const std::scoped_lock lock(mutex_);
        if (wished.empty()) {
            char name[32];
            std::snprintf(name, sizeof name, "checkpoint_%06lld",
                          static_cast<long long>(listing_.next_index));
            return name;
        }
        const bool safe = is_safe_name(wished) && wished.find('/') == std::string::npos &&
                          !wished.starts_with('.');
        if (!safe || staging_.run().filesystem.exists(staging_.path_of(wished))) {
            throw CheckpointError("RT-K9",
                                  detail::concat("checkpoint_dir_name \"", wished, "\" ",
                                                 safe ? "is taken in this run"
                                                      : "cannot be the name of a directory"));
        }
        return wished;
    }

    /// Called before the commit of `name`: sets whether it then waits for validation. `in_place`:
    /// for commit_in_place().
    void set_validation(const std::string& name, std::optional<ValidationRecord> wanted,
                        bool in_place) {
        if (wanted) {
            staging_.run().filesystem.write(staging_.path_before_commit(name, in_place) + "/" +
                                                validation_file,
                                            validation_text(*wanted));
        }
        const std::scoped_lock lock(mutex_);
        wanted_ = std::move(wanted);
    }

    /// Records the end of the validation of the checkpoint `name`; ranks and deletes again. Throws
    /// StorageError [RT-S16].
    void conclude(const std::string& name, ValidationRecord record) {
        staging_.require_current();
        staging_.run().filesystem.write(staging_.path_of(name) + "/" + validation_file,
                                        validation_text(record));
        std::vector<Committed> surplus;
        {
            const std::scoped_lock lock(mutex_);
            for (auto& item : listing_.committed) {
                if (item.name == name) {
                    item.validation = std::move(record);
                    item.add_validated_metrics();
                    break;
                }
            }
            surplus = take_surplus();
        }
        remove(surplus);
    }

    /// Commits what ranks have handed in under `name`; then deletes what CheckpointConfig does not
    /// keep. If it throws, listing() shows whether the checkpoint was committed before.
    void commit(const std::string& name, int ranks, Contents contents, const Config& metrics) {
        commit_by(&Staging::commit, name, ranks, std::move(contents), metrics);
    }

    /// Like commit(), for files that are already in place.
    void commit_in_place(const std::string& name, Contents contents, const Config& metrics) {
        commit_by(&Staging::commit_in_place, name, 1, std::move(contents), metrics);
    }

private:
    /// On a service: the highest number of an upload that was removed and may still continue.
    static constexpr const char* next_file = ".last_checkpoint_number";

    void skip_to(std::int64_t next) const {
        if (next > 0) {
            staging_.run().filesystem.write(staging_.path_of(next_file), std::to_string(next - 1));
        }
    }

    void commit_by(void (Staging::*make)(const std::string&, const Manifest&) const,
                   const std::string& name, int ranks, Contents contents, const Config& metrics) {
        check_complete(name, contents);
        std::vector<Committed> surplus;
        {
            const std::scoped_lock lock(mutex_);
            const Manifest manifest{take_index(), ranks, metrics, std::move(contents)};
            (staging_.*make)(name, manifest);
            add(name, manifest); // it is a checkpoint now, even if the rest fails
            staging_.settle(name, ranks);
            staging_.run().filesystem.write(staging_.path_of(latest_file), name + "\n");
            surplus = take_surplus();
        }
        remove(surplus);
    }

    static void check_complete(const std::string& name, Contents& contents) {
        try {
            check(contents, Listed::completely);
        } catch (const std::invalid_argument& error) {
            throw CheckpointError("RT-K10",
                                  detail::concat("the files that ranks wrote of ", name,
                                                 " are not a complete checkpoint: ", error.what()));
        }
    }

    /// Returns a new number. A commit that fails may also have left a checkpoint of this number.
    [[nodiscard]] std::int64_t take_index() { return listing_.next_index++; }

    /// Replaces an earlier one of that name, which was in the same directory.
    void add(const std::string& name, const Manifest& manifest) {
        const auto is_same = [&](const auto& item) { return item.name == name; };
        std::erase_if(listing_.committed, is_same);
        std::erase_if(listing_.damaged, is_same);
        listing_.pass(name);
        listing_.committed.push_back({name, checkpoint(name), manifest.metrics, manifest.index});
        if (wanted_) {
            listing_.committed.back().validation = *std::exchange(wanted_, std::nullopt);
        }
    }

    /// Removes those from the listing that CheckpointConfig does not keep, and returns them. Those
    /// that wait for validation stay, and displace no other before their score is known.
    [[nodiscard]] std::vector<Committed> take_surplus() {
        std::vector<Committed> surplus;
        if (!config_.num_to_keep || listing_.committed.empty()) {
            return surplus;
        }
        auto ranked = listing_.committed;
        std::erase_if(ranked, [](const Committed& item) {
            return item.status() == CheckpointStatus::pending_validation;
        });
        rank(ranked, config_);
        const std::int64_t newest = listing_.committed.back().index;
        for (auto i = static_cast<std::size_t>(*config_.num_to_keep); i < ranked.size(); ++i) {
            if (ranked[i].index != newest && !is_in_use(ranked[i])) {
                std::erase_if(listing_.committed,
                              [&](const Committed& item) { return item.index == ranked[i].index; });
                surplus.push_back(std::move(ranked[i]));
            }
        }
        return surplus;
    }

    /// If true, it is deleted after a later report.
    [[nodiscard]] bool is_in_use(const Committed& item) const {
        return staging_.is_local() && storage::in_use(item.checkpoint.path / manifest_file);
    }

    /// A file that cannot be deleted does not stop training, and training does not wait: the lock
    /// is not held.
    void remove(const std::vector<Committed>& surplus) const {
        for (const Committed& item : surplus) {
            try {
                staging_.remove(item.name);
            } catch (const StorageError& error) {
                console::warn("could not delete %s: %s", item.name.c_str(), error.what());
            }
        }
    }

    Staging staging_;
    CheckpointConfig config_;
    mutable std::mutex mutex_;
    Listing listing_;
    std::optional<ValidationRecord> wanted_; ///< of the checkpoint that is to be committed next
};

} // namespace rtrain::checkpoint
