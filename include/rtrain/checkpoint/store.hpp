// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoints of one run on disk: how one becomes visible, which ones stay.
///
/// A checkpoint is written into `.checkpoint_NNNNNN.tmp`, gets its manifest last, and is renamed to
/// `checkpoint_NNNNNN`. The rename commits it: a crash before leaves the old checkpoints, after it
/// the new one as well.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/manifest.hpp>
#include <rtrain/config.hpp>
#include <rtrain/error.hpp>
#include <rtrain/storage/file.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// A committed checkpoint and the metrics it was reported with.
struct Committed {
    Checkpoint checkpoint;
    Config metrics;
    std::int64_t index = 0;
};

/// The metric at `path`, "a/b" for a nested one; empty when it is not there or no number.
[[nodiscard]] inline std::optional<double> metric_at(const Config& metrics, std::string_view path) {
    if (const auto* const direct = metrics.if_contains(path)) {
        return direct->is_number() ? std::optional(direct->to_number<double>()) : std::nullopt;
    }
    const auto slash = path.find('/');
    if (slash == std::string_view::npos) {
        return std::nullopt;
    }
    const auto* const inner = metrics.if_contains(path.substr(0, slash));
    return inner != nullptr && inner->is_object()
               ? metric_at(inner->get_object(), path.substr(slash + 1))
               : std::nullopt;
}

class Store {
public:
    Store(std::filesystem::path run_directory, CheckpointConfig config)
        : directory_(std::move(run_directory)), config_(std::move(config)) {}

    /// Removes what an interrupted run left half-written, and reads what is committed.
    void open() {
        for (const auto& item : std::filesystem::directory_iterator(directory_)) {
            const std::string name = item.path().filename().string();
            if (name.starts_with(hidden_prefix)) {
                std::filesystem::remove_all(item.path());
            }
        }
        committed_ = list(directory_);
    }

    /// All committed checkpoints, oldest first. Throws CheckpointError when one is foreign or has a
    /// damaged manifest.
    [[nodiscard]] static std::vector<Committed> list(const std::filesystem::path& run_directory) {
        std::vector<Committed> found;
        for (const auto& item : std::filesystem::directory_iterator(run_directory)) {
            long long index = 0;
            char excess = 0;
            const std::string name = item.path().filename().string();
            if (std::sscanf(name.c_str(), "checkpoint_%lld%c", &index, &excess) == 1) {
                auto manifest = read_manifest(item.path());
                found.push_back(
                    {Checkpoint(item.path()), manifest.at("metrics").as_object(), index});
            }
        }
        std::sort(found.begin(), found.end(),
                  [](const auto& a, const auto& b) { return a.index < b.index; });
        return found;
    }

    /// The newest committed checkpoint.
    [[nodiscard]] const Committed* newest() const {
        return committed_.empty() ? nullptr : &committed_.back();
    }

    /// Throws CheckpointError [RT-K4] when the metric that ranks checkpoints is NaN.
    void check_score(const Config& metrics) const {
        const auto score =
            config_.score_attribute ? metric_at(metrics, *config_.score_attribute) : std::nullopt;
        if (score && std::isnan(*score)) {
            throw CheckpointError("RT-K4", detail::concat("\"", *config_.score_attribute,
                                                          "\" is NaN, so the checkpoint cannot be "
                                                          "ranked; has training diverged?"));
        }
    }

    /// The name that the next checkpoint will have.
    [[nodiscard]] std::string next_name() const {
        char name[32];
        std::snprintf(name, sizeof name, "checkpoint_%06lld", static_cast<long long>(next_index()));
        return name;
    }
    /// An empty directory for the next checkpoint's files.
    std::filesystem::path stage() const {
        const auto staging = staging_path();
        std::filesystem::remove_all(staging);
        std::filesystem::create_directory(staging);
        return staging;
    }
    [[nodiscard]] std::filesystem::path staging_path() const {
        return directory_ / ("." + next_name() + ".tmp");
    }

    /// Commits what has been staged; then deletes what CheckpointConfig does not keep.
    void commit(const Config& metrics) {
        const auto staging = staging_path();
        write_manifest(staging, metrics);
        const auto target = directory_ / next_name();
        storage::rename_durably(staging, target);
        committed_.push_back({Checkpoint(target), metrics, next_index()});
        retain();
    }

private:
    [[nodiscard]] std::int64_t next_index() const {
        return committed_.empty() ? 0 : committed_.back().index + 1;
    }

    /// Higher is better; a checkpoint without a score ranks below all others.
    [[nodiscard]] double score_of(const Committed& item) const {
        const auto score = metric_at(item.metrics, config_.score_attribute.value());
        if (!score) {
            return -std::numeric_limits<double>::infinity();
        }
        return config_.score_order == ScoreOrder::max ? *score : -*score;
    }

    void retain() {
        if (!config_.num_to_keep) {
            return;
        }
        std::vector<Committed> ranked(committed_.begin(), committed_.end());
        std::reverse(ranked.begin(), ranked.end()); // the newer wins a tie
        if (config_.score_attribute) {
            std::stable_sort(ranked.begin(), ranked.end(), [&](const auto& a, const auto& b) {
                return score_of(a) > score_of(b);
            });
        }
        const std::int64_t newest = committed_.back().index;
        for (std::size_t i = static_cast<std::size_t>(*config_.num_to_keep); i < ranked.size();
             ++i) {
            if (ranked[i].index != newest) {
                remove(ranked[i]);
            }
        }
    }

    /// Hides it first, so that no reader sees half of it.
    void remove(const Committed& item) {
        const auto trash = directory_ / ("." + item.checkpoint.path.filename().string() + ".trash");
        storage::rename_durably(item.checkpoint.path, trash);
        std::filesystem::remove_all(trash);
        std::erase_if(committed_, [&](const auto& other) { return other.index == item.index; });
    }

    static constexpr const char* hidden_prefix = ".checkpoint_"; ///< of what is not committed
    std::filesystem::path directory_;
    CheckpointConfig config_;
    std::vector<Committed> committed_;
};

} // namespace rtrain::checkpoint
