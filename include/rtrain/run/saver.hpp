// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saver: moves a checkpoint from the ranks into the run's storage, while training waits or in the
/// background. Every member is collective unless noted.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/process/os/thread.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

namespace rtrain {

/// Writes this rank's part of a checkpoint durably into its staging directory, and returns the list
/// of files. Files missing from the list are read and added.
using WritePart = std::function<checkpoint::Contents()>;

class Saver {
public:
    /// `reserved`: names that checkpoints may not have.
    Saver(HookRanks& backend, checkpoint::Store& store, std::vector<std::string> reserved)
        : backend_(backend), store_(store), reserved_(std::move(reserved)) {}
    Saver(const Saver&) = delete;
    Saver& operator=(const Saver&) = delete;
    ~Saver() { stop(); }

    /// Rank 0: returns the name of the next checkpoint: `wished`, or a number. Throws
    /// CheckpointError [RT-K9].
    [[nodiscard]] std::string next_name(const std::string& wished) const {
        track::require_free_name(reserved_, wished);
        return store_.next_name(wished);
    }

    /// Returns the name of the next checkpoint: `wished` on rank 0, or a number. Creates a staging
    /// directory for it on each rank.
    [[nodiscard]] std::string begin(const std::string& wished) {
        std::string name;
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                name = next_name(wished);
                store_.staging().stage(name, 0);
            }
        });
        name = detail::broadcast(backend_, name, 0);
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() != 0) {
                store_.staging().stage(name, backend_.rank());
            }
        });
        return name;
    }

    /// Commits what the ranks write as checkpoint `name`, reported with rank 0's `metrics`. On an
    /// exception, removes it, unless it was already committed.
    void save(const std::string& name, const Config& metrics, const WritePart& write_part) {
        try {
            checkpoint::Contents mine;
            detail::succeed_together(backend_, [&] { mine = hand_in(name, write_part); });
            detail::succeed_together(
                backend_, [&] { commit(name, metrics, std::move(mine), std::stop_token()); });
        } catch (...) {
            discard(name);
            throw;
        }
    }

    /// Like save(), but in another thread; finish() joins it. `when_committed` is called in that
    /// thread on rank 0. Not collective.
    void save_in_background(const std::string& name, const Config& metrics, WritePart write_part,
                            std::function<void()> when_committed) {
        under_way_ = name;
        stop_ = std::stop_source();
        failed_ = false;
        auto write = [this, name, metrics, write_part = std::move(write_part),
                      when_committed = std::move(when_committed), stop = stop_.get_token()] {
            static_cast<void>(::setpriority(PRIO_PROCESS, 0, niceness));
            try {
                commit(name, metrics, hand_in(name, write_part), stop);
                if (backend_.rank() == 0) {
                    when_committed();
                }
            } catch (...) {
                failed_ = true;
                throw;
            }
        };
        writer_ = process::starting_thread(
            [&write] { return std::async(std::launch::async, std::move(write)); });
    }

    /// Waits for the background save and returns its name, or rethrows its error after removing
    /// what is uncommitted. Empty if nothing is being saved.
    std::optional<std::string> finish() {
        auto name = std::exchange(under_way_, std::nullopt);
        if (!name) {
            return name;
        }
        const auto get = [&](bool mine) {
            detail::succeed_together(backend_, [&] {
                if (mine) {
                    writer_.get();
                }
            });
        };
        try { // rank 0 waits for the others' parts, so these report their results first
            get(backend_.rank() != 0);
            get(backend_.rank() == 0);
        } catch (...) {
            stop();
            discard(*name);
            throw;
        }
        return name;
    }

    /// True if the background save failed on this rank. Not collective.
    [[nodiscard]] bool failed() const noexcept { return failed_; }

private:
    static constexpr int niceness = 10; ///< of the writing thread (Linux): training has priority

    checkpoint::Contents hand_in(const std::string& name, const WritePart& write_part) {
        const checkpoint::Staging& staging = store_.staging();
        const int rank = backend_.rank();
        try {
            checkpoint::Contents mine = write_part();
            if (!staging.is_local()) {
                merge(mine, checkpoint::unlisted_files(staging.directory_of(name, rank), mine));
            }
            staging.hand_in(name, rank, mine);
            return mine;
        } catch (const std::exception& error) {
            staging.hand_in_failure(name, rank, error);
            throw;
        }
    }

    /// Commits it on rank 0.
    void commit(const std::string& name, const Config& metrics, checkpoint::Contents mine,
                const std::stop_token& stop) {
        if (backend_.rank() != 0) {
            return;
        }
        const checkpoint::Staging& staging = store_.staging();
        merge(mine, staging.collect(name, backend_.size(), mine, stop));
        mine.compared.clear();
        if (staging.is_local()) {
            merge(mine, checkpoint::unlisted_files(staging.directory_of(name, 0), mine));
        }
        store_.commit(name, backend_.size(), std::move(mine), metrics);
    }

    void stop() noexcept {
        stop_.request_stop();
        if (writer_.valid()) {
            writer_.wait();
        }
        failed_ = false;
    }

    void discard(const std::string& name) noexcept {
        try {
            store_.give_up(name, backend_.rank());
        } catch (const std::exception&) { // the next start of the run removes the files
        }
    }

    HookRanks& backend_;
    checkpoint::Store& store_;
    std::vector<std::string> reserved_;
    std::optional<std::string> under_way_;
    std::atomic<bool> failed_ = false;
    std::stop_source stop_;
    std::future<void> writer_;
};

} // namespace rtrain
