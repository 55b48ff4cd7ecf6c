// SPDX-License-Identifier: Apache-2.0
/// @file
/// Run: one training run on storage as its ranks see it. Every member that touches files is
/// collective and fails on all ranks or on none.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/any_policy.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/contents.hpp>
#include <rtrain/checkpoint/host_copy.hpp>
#include <rtrain/checkpoint/interval.hpp>
#include <rtrain/checkpoint/place.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/checkpoint/store.hpp>
#include <rtrain/checkpoint/user_files.hpp>
#include <rtrain/checkpoint/verify.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/process/preemption_notice.hpp>
#include <rtrain/process/rank_status.hpp>
#include <rtrain/run/directory_merge.hpp>
#include <rtrain/run/options.hpp>
#include <rtrain/run/report_agreement.hpp>
#include <rtrain/run/report_options.hpp>
#include <rtrain/run/reported_checkpoint.hpp>
#include <rtrain/run/restore.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/saver.hpp>
#include <rtrain/run/score_check.hpp>
#include <rtrain/run/take_up.hpp>
#include <rtrain/run/validations.hpp>
#include <rtrain/storage/locate.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

class Run {
public:
    /// Collective: ranks communicate in it.
    using TakeSnapshot = std::function<checkpoint::Snapshot()>;

    /// Creates the run's directory or takes up the run in it, from its newest sound checkpoint.
    /// Throws on all ranks: StorageError [RT-S1] it cannot be written, [RT-S2] ranks do not see the
    /// same directory, [RT-S7] another process trains in it, CheckpointError [RT-K1, RT-K2] there
    /// are checkpoints, but none is sound. `fit` is the number of the fit() call that trains;
    /// `skip` are checkpoints not to go on from.
    Run(detail::AnyBackend& backend, checkpoint::AnyPolicy& policy, const TrainerOptions& options,
        const std::string& name, int fit, const std::vector<std::string>& skip = {})
        : backend_(backend), policy_(policy), options_(options),
          attempt_(detail::broadcast(backend, new_attempt(), 0)),
          directory_(location(options.run, detail::broadcast(backend, name, 0)), track::log_files),
          store_(checkpoint::Place(directory_.location(), attempt_, directory_.scratch(),
                                   options.run.transfer),
                 options.run.checkpoint),
          log_(directory_.log_directory(), options.config),
          validations_(store_, options.validation, fit), score_check_(options.run.checkpoint),
          saver_(backend, store_) {
        if (const auto& mean = options.run.checkpoint.mean_time_between_failures_s) {
            interval_.emplace(*mean);
        }
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                directory_.take(attempt_);
            }
        });
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() != 0) {
                directory_.require_shared(attempt_);
            }
        });
        take_up(skip);
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// What the checkpoint policy does.
    [[nodiscard]] bool saves_state() const { return policy_.saves_state(); }
    [[nodiscard]] bool takes_rows() const { return policy_.takes_rows(); }

    [[nodiscard]] const RunDirectory& directory() const noexcept { return directory_; }
    /// The newest checkpoint: of this run, or the one it was started from.
    [[nodiscard]] const std::optional<Checkpoint>& checkpoint() const noexcept { return newest_; }

    /// Whether a checkpoint was made by this run, not by one that it was started from.
    [[nodiscard]] bool is_own(const Checkpoint& checkpoint) const {
        return checkpoint.path.parent_path() == directory_.location().path;
    }

    /// On rank 0: how many reports the newest checkpoint of this run comes after.
    [[nodiscard]] std::int64_t iterations_saved() const {
        const auto committed = store_.listing().committed;
        return committed.empty()
                   ? 0
                   : committed.back().metrics.at(track::iteration_field).to_number<std::int64_t>();
    }

    /// Records metrics.
    void report(const Config& metrics) {
        if (agree(Kind::metrics).directory) {
            report_directory(metrics, nullptr, {});
            return;
        }
        record(metrics);
    }

    /// Records metrics. When it is `due`, as the caller or the interval between checkpoints says on
    /// rank 0, or the run is to make room, saves the state that `take_snapshot` returns as the
    /// policy does. Ranks agree on what they report before it and `check`, which is called in any
    /// case, so both may communicate.
    void report(const Config& metrics, const ReportOptions& options, bool due,
                const std::function<void()>& check, const TakeSnapshot& take_snapshot) {
        const bool saves =
            agree(Kind::state, due || (interval_ && interval_->is_due())).due || preempted();
        check();
        if (saves) {
            save_state(&metrics, options, take_snapshot);
        } else {
            record(metrics);
        }
    }

    /// Saves a state without a report, as a run does that is to make room. The checkpoint has the
    /// metrics of the last report.
    void save(const TakeSnapshot& take_snapshot) {
        (void)agree(Kind::state);
        save_state(nullptr, {}, take_snapshot);
    }

    /// Whether the run is to make room, as of the last report.
    [[nodiscard]] bool preempted() const noexcept { return PreemptionNotice::current().agreed(); }

    /// Records metrics, and makes a checkpoint of the directories of all ranks that gave one.
    /// Throws CheckpointError [RT-K5] when two ranks give different files of the same name.
    void report(const Config& metrics, const Checkpoint& directory, const ReportOptions& options) {
        (void)agree(Kind::directory);
        report_directory(metrics, &directory, options);
    }

    /// Waits for a checkpoint that is being written in the background; throws what went wrong.
    void finish() {
        if (const auto name = saver_.finish()) {
            newest_ = store_.checkpoint(*name);
            delete_source();
        }
    }

    /// The checkpoints that are kept, oldest first. Waits as `mode` says, for validations at most
    /// `timeout_s` seconds.
    [[nodiscard]] std::vector<ReportedCheckpoint>
    reported_checkpoints(ConsistencyMode mode, std::optional<double> timeout_s) {
        finish();
        std::string known;
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                if (mode == ConsistencyMode::validated) {
                    validations_.wait(timeout_s);
                }
                boost::json::array items;
                for (const auto& item : store_.listing().committed) {
                    items.push_back({{"name", item.name},
                                     {"metrics", item.metrics},
                                     {"status", to_string(item.status())}});
                }
                known = json::serialize(items);
            }
        });
        std::vector<ReportedCheckpoint> checkpoints;
        const auto items = json::parse(detail::broadcast(backend_, known, 0));
        for (const auto& item : items.as_array()) {
            checkpoints.push_back({store_.checkpoint(std::string(item.at("name").as_string())),
                                   item.at("metrics").as_object(),
                                   checkpoint_status(item.at("status").as_string())});
        }
        return checkpoints;
    }

    /// Ends the run: what is under way is finished, and the storage has all there is. Collective
    /// only when something may be under way, so that a rank that ends too early is found out by the
    /// others.
    void close() {
        finish();
        const auto end = [&] {
            if (backend_.rank() == 0) {
                validations_.wait(std::nullopt);
                directory_.publish_logs();
            }
        };
        if (options_.validation.function) {
            detail::succeed_together(backend_, end);
        } else {
            end();
        }
    }

    /// Instead of close(), for a run that will go on another time: what waits for validation goes
    /// on waiting.
    void leave() {
        finish();
        if (backend_.rank() == 0) {
            directory_.publish_logs();
        }
    }

    /// The state in a checkpoint.
    [[nodiscard]] checkpoint::Snapshot load(const Checkpoint& from) {
        checkpoint::Snapshot state;
        detail::succeed_together(backend_, [&] {
            const storage::Location at = from.location();
            state = policy_.read(
                {at.filesystem.is_local() ? std::filesystem::path(at.path) : from.as_directory(),
                 backend_.rank(), backend_.size()});
        });
        return state;
    }

    /// Leaves word of why the run has failed. Not collective.
    void leave_error(const Error& error) const {
        directory_.require_same();
        directory_.location().filesystem.write(
            directory_.path_of(Result::error_file),
            json::serialize({{"code", error.code()}, {"message", error.message()}}));
        if (backend_.rank() == 0) {
            directory_.publish_logs();
        }
    }

private:
    using Kind = detail::ReportKind;

    static std::string new_attempt() {
        std::random_device random;
        char text[20];
        std::snprintf(text, sizeof text, "%08x%08x", random(), random());
        return text;
    }

    static storage::Location location(const RunConfig& run, const std::string& name) {
        storage::Location root = detail::storage_root(run);
        root.path += "/" + name;
        return root;
    }

    void take_up(const std::vector<std::string>& skip) {
        newest_ = detail::newest_sound(backend_, store_, skip);
        const auto own = newest_ ? newest_->path.filename().string() : "";
        detail::succeed_together(backend_, [&] {
            if (own.empty() && options_.resume_from) {
                newest_ = options_.resume_from;
                checkpoint::verify(newest_->as_directory(), backend_.rank(), backend_.size());
            }
            if (backend_.rank() == 0) {
                Config last;
                for (const auto& item : store_.listing().committed) {
                    last = own == item.name ? item.metrics : last;
                }
                if (auto set_aside = log_.open(own.empty() ? nullptr : &last)) {
                    directory_.add_log(std::move(*set_aside));
                }
                directory_.location().filesystem.write(directory_.path_of(detail::trainer_file),
                                                       detail::trainer_text(options_));
                directory_.location().filesystem.remove(
                    directory_.path_of(Result::error_file)); // of the attempt before
                validations_.take_up();
            }
        });
    }

    /// Ranks must report together and alike. Throws what went wrong in the background.
    [[nodiscard]] detail::ReportAgreement agree(Kind mine, bool is_due = false) {
        RankStatus::current().advance();
        PreemptionNotice& notice = PreemptionNotice::current();
        const auto agreed = detail::agree_on_report(
            backend_,
            {.kind = mine, .failed = saver_.failed(), .preempted = notice.given(), .due = is_due});
        if (agreed.preempted) {
            notice.agree(nullptr);
        }
        if (agreed.failed) {
            require_directory_together();
            finish();
        }
        return agreed;
    }

    /// On rank 0: the run's directory is still that which this attempt has taken.
    void require_directory() const {
        directory_.require_same();
        store_.place().require_current();
    }

    /// Before anything of a checkpoint is written, which would make the directory anew.
    void require_directory_together() {
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                require_directory();
            }
        });
    }

    /// One line of the log, without a checkpoint. It grows in a local directory.
    void record(const Config& metrics) {
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                if (directory_.is_local()) {
                    require_directory();
                }
                log_.append(log_.complete(metrics, std::nullopt));
            }
        });
    }

    /// `metrics`: of the report that the state is saved in, or null.
    void save_state(const Config* metrics, const ReportOptions& options,
                    const TakeSnapshot& take_snapshot) {
        const auto begin = std::chrono::steady_clock::now(); // ranks are here together
        require_directory_together();
        finish();
        checkpoint::Snapshot state = take_snapshot();
        const std::string name = saver_.begin(options.checkpoint_dir_name);
        const checkpoint::Part part{store_.place().staging(name, backend_.rank()), backend_.rank(),
                                    backend_.size()};
        detail::succeed_together(backend_, [&] {
            state = policy_.select(std::move(state), part);
            if (policy_.writes_in_background()) {
                state = copy_(std::move(state));
            }
        });
        save(name, metrics, options, policy_.writes_in_background() && !preempted(),
             [this, part, state = std::move(state)] { return policy_.write(state, part); });
        if (interval_) {
            interval_->saved(begin);
        }
    }

    /// Records the report, if there is one, then saves its checkpoint. Should the program die in
    /// between, the report is behind the newest checkpoint and will be made again.
    void save(const std::string& name, const Config* metrics, const ReportOptions& options,
              bool in_background, const WritePart& write_part) {
        Config line;
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                store_.set_validation(name, validations_.wanted(options), false);
                line = metrics != nullptr ? log_.complete(*metrics, name) : log_.last_line(name);
                write_metadata(Checkpoint(store_.place().staging(name, 0)), options);
                if (metrics != nullptr) {
                    score_check_.look_at(*metrics, line, asks_for_validation(options),
                                         store_.listing());
                    log_.append(line);
                }
            }
        });
        const RankStatus::In saving(Phase::saving);
        if (in_background) {
            saver_.save_in_background(name, line, write_part,
                                      [this, name, line] { committed(name, line); });
            return;
        }
        saver_.save(name, line, write_part);
        newest_ = store_.checkpoint(name);
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                committed(name, line);
            }
        });
    }

    /// On rank 0, in the thread that has committed it: those who wait for a checkpoint hear of it.
    void committed(const std::string& name, const Config& line) {
        launch::Session::current().tell(
            "saved", {{"checkpoint", name}, {"iteration", line.at(track::iteration_field)}});
        validations_.submit(name);
        directory_.publish_logs();
    }

    void write_metadata(const Checkpoint& checkpoint, const ReportOptions& options) const {
        Config metadata = options_.metadata;
        for (const auto& item : options.metadata) {
            metadata[item.key()] = item.value();
        }
        if (!metadata.empty()) {
            checkpoint.update_metadata(metadata);
        }
    }

    void report_directory(const Config& metrics, const Checkpoint* directory,
                          const ReportOptions& given) {
        require_directory_together();
        finish();
        const auto handling = detail::agree_on_handling(backend_, directory, given);
        ReportOptions options = given;
        options.metadata = detail::gather_metadata(backend_, directory, given.metadata);
        if (handling.in_place) {
            register_directory(metrics, directory, options);
            return;
        }
        std::optional<std::filesystem::path> source;
        detail::succeed_together(backend_, [&] {
            if (directory != nullptr) {
                source = directory->as_directory();
                if (handling.delete_source) {
                    directory_.require_outside_of(*source);
                }
            }
        });
        const auto names = detail::files_to_copy(backend_, source);
        const std::string name = saver_.begin(options.checkpoint_dir_name);
        const auto to = store_.place().staging(name, backend_.rank());
        source_ = handling.delete_source ? source : std::nullopt;
        save(name, &metrics, options, handling.in_background, [source, names, to] {
            return source ? checkpoint::copy_files(*source, names, to) : checkpoint::Contents{};
        });
        if (!handling.in_background) {
            delete_source();
        }
    }

    /// A directory that is in the run's own already, or is brought there by the user's function.
    void register_directory(const Config& metrics, const Checkpoint* directory,
                            const ReportOptions& options) {
        std::string name;
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                name = store_.next_name(options.checkpoint_dir_name);
            }
        });
        name = detail::broadcast(backend_, name, 0);
        std::string mine;
        detail::succeed_together(backend_, [&] {
            if (directory != nullptr) {
                const Checkpoint there = options.checkpoint_upload_fn
                                             ? options.checkpoint_upload_fn(*directory, name)
                                             : *directory;
                mine = directory_.name_of(there.location());
            }
        });
        name = detail::agree_on_name(backend_, mine);
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                const Checkpoint there = store_.checkpoint(name);
                store_.set_validation(name, validations_.wanted(options), true);
                const Config line = log_.complete(metrics, name);
                score_check_.look_at(metrics, line, asks_for_validation(options), store_.listing());
                write_metadata(there, options);
                auto contents = checkpoint::unlisted_files(there.as_directory(), {});
                log_.append(line);
                store_.commit_in_place(name, std::move(contents), line);
                committed(name, line);
            }
        });
        newest_ = store_.checkpoint(name);
    }

    /// Training does not stop for files that cannot be deleted.
    void delete_source() noexcept {
        if (const auto source = std::exchange(source_, std::nullopt)) {
            std::error_code error;
            std::filesystem::remove_all(*source, error);
            if (error) {
                std::fprintf(stderr, "rtrain: could not delete %s: %s\n", source->c_str(),
                             error.message().c_str());
            }
        }
    }

    detail::AnyBackend& backend_;
    checkpoint::AnyPolicy& policy_;
    const TrainerOptions& options_;
    std::string attempt_; ///< another each time that the run is started
    RunDirectory directory_;
    checkpoint::Store store_; ///< rank 0's knows what is committed
    track::RunLog log_;       ///< used by rank 0
    Validations validations_; ///< used by rank 0
    ScoreCheck score_check_;  ///< used by rank 0
    std::optional<Checkpoint> newest_;
    checkpoint::HostCopy copy_;
    std::optional<checkpoint::Interval<>> interval_; ///< rank 0's decides
    std::optional<std::filesystem::path> source_;    ///< to be deleted after the commit
    Saver saver_;                                    ///< last: its thread uses the others
};

} // namespace rtrain
