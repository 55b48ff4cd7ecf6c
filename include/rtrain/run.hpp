// SPDX-License-Identifier: Apache-2.0
/// @file
/// Run: one training run on disk as its ranks see it. Every member that touches files is collective
/// and fails on all ranks or on none.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/manifest.hpp>
#include <rtrain/checkpoint/policy.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/checkpoint/store.hpp>
#include <rtrain/config.hpp>
#include <rtrain/error.hpp>
#include <rtrain/options.hpp>
#include <rtrain/result.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/lock.hpp>
#include <rtrain/track/run_log.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain {

namespace detail {

/// `rtrain_run-<date>-<process>`: two unnamed runs never meet in one directory.
[[nodiscard]] inline std::string generated_name() {
    const std::time_t now = std::time(nullptr);
    char date[48] = {};
    std::tm local{};
    std::strftime(date, sizeof date, "rtrain_run-%Y-%m-%d_%H-%M-%S", localtime_r(&now, &local));
    return concat(date, '-', ::getpid());
}

/// The absolute directory that runs are kept in.
[[nodiscard]] inline std::filesystem::path storage_root(const std::filesystem::path& configured) {
    const char* const home = std::getenv("HOME");
    const std::filesystem::path base = home != nullptr ? home : ".";
    if (configured.empty()) {
        return std::filesystem::absolute(base / "rtrain_results");
    }
    const auto first = *configured.begin();
    const auto path = first == "~" ? base / configured.lexically_relative("~") : configured;
    return std::filesystem::absolute(path).lexically_normal();
}

} // namespace detail

template <Backend B, CheckpointPolicy C>
class Run {
public:
    /// Creates the run's directory or takes up the run in it. Throws on all ranks: StorageError
    /// [RT-S1] it cannot be written, [RT-S2] ranks do not see the same directory, [RT-S7] another
    /// process trains in it, CheckpointError [RT-K1, RT-K2] the checkpoint to go on from is foreign
    /// or damaged.
    Run(B& backend, C& policy, const TrainerOptions& options, const std::string& name)
        : backend_(backend), policy_(policy), path_(detail::storage_root(options.run.storage_path) /
                                                    detail::broadcast(backend, name, 0)),
          store_(path_, options.run.checkpoint), log_(path_, options.config) {
        const auto marker = path_ / ".validate_storage_marker";
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                storage::require_writable(path_);
                lock_.acquire(path_);
                storage::OutputFile{marker}.write("");
            }
        });
        detail::succeed_together(backend_, [&] {
            if (!std::filesystem::exists(marker)) {
                throw StorageError("RT-S2",
                                   detail::concat("this rank does not see ", path_.string(),
                                                  ", which rank 0 has created; set "
                                                  "storage_path to a directory that all "
                                                  "nodes share"));
            }
            storage::require_writable(path_);
        });
        detail::succeed_together(backend_, [&] { take_up(options.resume_from); });
    }

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
    /// The newest checkpoint: of this run, or the one it was started from.
    [[nodiscard]] const std::optional<Checkpoint>& checkpoint() const noexcept { return newest_; }

    /// Records metrics.
    void report(const Config& metrics) {
        if (agree(Kind::metrics)) {
            merge(metrics, nullptr);
        } else {
            record(metrics, false);
        }
    }

    /// Records metrics, and saves the state that `take_snapshot` returns as the policy does. Ranks
    /// agree on what they report before it is called, so it may communicate.
    template <std::invocable TakeSnapshot>
    void report(const Config& metrics, TakeSnapshot&& take_snapshot) {
        (void)agree(Kind::state);
        finish();
        checkpoint::Snapshot state = take_snapshot();
        stage(metrics);
        if constexpr (BackgroundCheckpointPolicy<C>) {
            record_and_write(metrics, std::move(state));
        } else {
            detail::succeed_together(backend_, [&] {
                policy_.write(state, {staging_, backend_.rank(), backend_.size()});
            });
            record(metrics, true);
        }
    }

    /// Waits for a checkpoint that is being written in the background; throws what went wrong.
    void finish() {
        if (under_way_) {
            const Checkpoint written = *std::exchange(under_way_, std::nullopt);
            detail::succeed_together(backend_, [&] {
                if (writer_.valid()) {
                    writer_.get();
                }
            });
            newest_ = written;
        }
    }

    /// Records metrics, and copies the files of all ranks that gave a directory into one
    /// checkpoint. Throws CheckpointError [RT-K5] when two ranks give different files of the same
    /// name.
    void report(const Config& metrics, const Checkpoint& directory) {
        (void)agree(Kind::directory);
        merge(metrics, &directory);
    }

    /// The state in a checkpoint.
    [[nodiscard]] checkpoint::Snapshot load(const Checkpoint& from) {
        checkpoint::Snapshot state;
        detail::succeed_together(backend_, [&] {
            state = policy_.read({from.path, backend_.rank(), backend_.size()});
        });
        return state;
    }

private:
    enum class Kind : std::uint8_t { metrics, state, directory };

    void take_up(const std::optional<Checkpoint>& resume_from) {
        if (backend_.rank() == 0) {
            store_.open();
        }
        std::int64_t iteration = 0;
        double seconds = 0;
        const auto committed = checkpoint::Store::list(path_);
        if (!committed.empty()) {
            newest_ = committed.back().checkpoint;
            const Config& report = committed.back().metrics;
            iteration = report.at(track::RunLog::iteration_field).to_number<std::int64_t>();
            seconds = report.at("time_total_s").to_number<double>();
        } else if (resume_from) {
            newest_ = Checkpoint(std::filesystem::absolute(resume_from->path));
        }
        if (backend_.rank() == 0) {
            if (newest_) {
                checkpoint::verify(newest_->path);
            }
            log_.open(iteration, seconds);
            std::filesystem::remove(path_ / Result::error_file); // of the attempt before
        }
    }

    /// Ranks must report together and alike; some may leave the directory to others. Returns
    /// whether any rank reports one.
    [[nodiscard]] bool agree(Kind mine) {
        const at::Tensor kinds =
            detail::all_gather(backend_, at::full({1}, static_cast<std::int64_t>(mine), at::kByte));
        const auto* const all = kinds.const_data_ptr<std::uint8_t>();
        const std::vector<std::uint8_t> given(all, all + kinds.numel());
        const auto state = static_cast<std::uint8_t>(Kind::state);
        const auto states = std::count(given.begin(), given.end(), state);
        if (states != 0 && states != backend_.size()) {
            const auto with = std::find(given.begin(), given.end(), state) - given.begin();
            const auto without =
                std::find_if(given.begin(), given.end(), [&](auto kind) { return kind != state; }) -
                given.begin();
            throw CheckpointError(
                "RT-K5",
                detail::concat("report() got a state on rank ", with, ", but ",
                               given[static_cast<std::size_t>(without)] == 0 ? "no checkpoint"
                                                                             : "a directory",
                               " on rank ", without, "; all ranks must report the state together"));
        }
        return std::find(given.begin(), given.end(), static_cast<std::uint8_t>(Kind::directory)) !=
               given.end();
    }

    void stage(const Config& metrics) {
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                store_.check_score(metrics);
                store_.stage();
            }
        });
        staging_ = detail::broadcast(backend_, store_.staging_path().string(), 0);
    }

    /// Rank 0 commits what is staged and writes the report down.
    void record(const Config& metrics, bool with_checkpoint) {
        std::string committed;
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                const auto name =
                    with_checkpoint ? std::optional(store_.next_name()) : std::nullopt;
                const Config line = log_.complete(metrics, name);
                if (with_checkpoint) {
                    store_.commit(line);
                    committed = (path_ / *name).string();
                }
                log_.append(line);
            }
        });
        if (with_checkpoint) {
            newest_ = Checkpoint(detail::broadcast(backend_, committed, 0));
        }
    }

    /// Rank 0 writes the report down and leaves the checkpoint to another thread, which alone
    /// touches the store until finish(). Should the program die before the commit, the report is
    /// behind the newest checkpoint and will be made again.
    void record_and_write(const Config& metrics, checkpoint::Snapshot state) {
        std::string target;
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                const std::string name = store_.next_name();
                const Config line = log_.complete(metrics, name);
                log_.append(line);
                target = (path_ / name).string();
                for (auto& [tensor_name, tensor] : state.tensors) {
                    tensor = tensor.detach().clone();
                }
                writer_ = std::async(std::launch::async, [this, line, state = std::move(state)] {
                    policy_.write(state, {staging_, backend_.rank(), backend_.size()});
                    store_.commit(line);
                });
            }
        });
        under_way_ = Checkpoint(detail::broadcast(backend_, target, 0));
    }

    void merge(const Config& metrics, const Checkpoint* directory) {
        finish();
        stage(metrics);
        std::string mine;
        detail::succeed_together(backend_, [&] {
            if (directory != nullptr) {
                mine = describe_files(directory->as_directory());
            }
        });
        const std::vector<std::string> all = detail::all_gather(backend_, mine);
        detail::succeed_together(backend_, [&] {
            for (const std::string& name : files_to_copy(all)) {
                storage::copy_durably(directory->path / name, staging_ / name);
            }
        });
        record(metrics, true);
    }

    /// A line for each file: checksum, size, name.
    static std::string describe_files(const std::filesystem::path& directory) {
        std::ostringstream text;
        for (const auto& item : std::filesystem::recursive_directory_iterator(directory)) {
            if (item.is_regular_file()) {
                text << checkpoint::crc32_of(item.path()) << ' ' << item.file_size() << ' '
                     << item.path().lexically_relative(directory).generic_string() << '\n';
            }
        }
        return text.str();
    }

    /// This rank's files that no lower rank has as well.
    [[nodiscard]] std::vector<std::string>
    files_to_copy(const std::vector<std::string>& all) const {
        std::map<std::string, std::pair<int, std::string>> owners; // name -> rank, contents
        std::vector<std::string> mine;
        for (int rank = 0; rank < backend_.size(); ++rank) {
            std::istringstream lines(all[static_cast<std::size_t>(rank)]);
            for (std::string crc, size, name;
                 lines >> crc >> size && lines.ignore() && std::getline(lines, name);) {
                const auto [owner, first] = owners.try_emplace(name, rank, crc + " " + size);
                if (!first && owner->second.second != crc + " " + size) {
                    throw CheckpointError("RT-K5",
                                          detail::concat("ranks ", owner->second.first, " and ",
                                                         rank, " reported different files named \"",
                                                         name, "\"; put the rank into the name"));
                }
                if (first && rank == backend_.rank()) {
                    mine.push_back(name);
                }
            }
        }
        return mine;
    }

    B& backend_;
    C& policy_;
    std::filesystem::path path_;
    storage::DirectoryLock lock_; ///< held by rank 0
    checkpoint::Store store_;     ///< rank 0's knows what is committed
    track::RunLog log_;           ///< used by rank 0
    std::filesystem::path staging_;
    std::optional<Checkpoint> newest_;
    std::optional<Checkpoint> under_way_; ///< being written in the background
    std::future<void> writer_;            ///< on rank 0; waits in its destructor
};

} // namespace rtrain
