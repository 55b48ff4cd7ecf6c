// SPDX-License-Identifier: Apache-2.0
/// @file
/// SearchDirectory: a search on disk. tuner.json identifies it, tuner_events.jsonl has its events
/// (tune/controller/event_log.hpp), tuner_state.json has the state of its trials, for tools and
/// ResultGrid. The pages are in tune/controller/search_pages.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/wall_clock.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/tune/controller/controller.hpp>
#include <rtrain/tune/controller/event_log.hpp>
#include <rtrain/tune/controller/generations.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/controller/search_op.hpp>
#include <rtrain/tune/controller/search_pages.hpp>
#include <rtrain/tune/record/tuner_state.hpp>
#include <rtrain/tune/search/described.hpp>

#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace rtrain::tune {

class SearchDirectory {
public:
    static constexpr const char* file_name = "tuner.json";

    [[nodiscard]] static bool holds_search(const std::filesystem::path& directory) {
        return std::filesystem::exists(directory / file_name);
    }

    /// Starts a search, or resumes the one in the directory. Throws StorageError [RT-S7] while
    /// another process searches there, [RT-U100, RT-U106] for a damaged file, ConfigError [RT-U107]
    /// if the saved search differs from `plan`.
    SearchDirectory(SearchPlan plan, const std::filesystem::path& directory,
                    const RestoreOptions& options)
        : directory_(make(directory)) {
        lock_.acquire(directory_);
        const bool goes_on = holds_search(directory_);
        const Config identity = identity_of(plan);
        controller_ = std::make_unique<Controller>(std::move(plan), directory_);
        if (goes_on) {
            resume(identity);
        } else {
            write({{"format", format},
                   {"version", 1},
                   {"identity", identity},
                   {"goal", goal_json()},
                   {"searcher", controller_->searcher()}});
        }
        events_.open(directory_);
        controller_->record_to(events_);
        controller_->begin_at(detail::seconds_since_1970());
        pages_.emplace(directory_, goal());
        if (goes_on) {
            finish_moves_of_trials();
            controller_->revive(options);
        }
        write_state();
    }

    [[nodiscard]] Controller& controller() noexcept { return *controller_; }

    /// Rewrites tuner_state.json and the pages if they are due.
    void write_state_now_and_then() {
        constexpr std::chrono::seconds at_least{10};
        constexpr int times_as_long = 19; // multiple of the writing time
        const auto begin = Clock::now();
        if (begin - written_at_ >= std::max<Clock::duration>(at_least, times_as_long * writing_)) {
            write_state();
        }
    }
    void write_state() {
        const auto begin = Clock::now();
        events_.flush();
        const TunerState state{.goal = goal(), .trials = controller_->records()};
        write_tuner_state(directory_, state);
        pages_->write(*controller_, state);
        written_at_ = Clock::now();
        writing_ = written_at_ - begin;
    }
    /// Call it after the end of the search.
    void close() {
        events_.sync();
        write_state();
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr const char* format = "rtrain-tuner";

    static std::filesystem::path make(const std::filesystem::path& directory) {
        std::error_code error;
        std::filesystem::create_directories(directory, error);
        if (error) {
            throw StorageError("RT-S1", detail::concat("cannot create ", directory.string(), ": ",
                                                       error.message()));
        }
        return directory;
    }

    [[nodiscard]] const Goal& goal() const noexcept { return controller_->plan().goal; }

    void write(const Config& search) const {
        storage::replace_file(directory_ / file_name, json::serialize(search));
    }

    [[nodiscard]] Config goal_json() const {
        return {{"metric", goal().metric}, {"mode", ScoreOrder::names[goal().mode]}};
    }

    /// The properties that must be the same when the search is resumed.
    [[nodiscard]] static Config identity_of(const SearchPlan& plan) {
        Config identity = plan.identity;
        identity["space"] = internal::described(plan.space);
        identity["searcher"] = plan.searcher.name();
        identity["scheduler"] = plan.scheduler.name();
        return json::parse(json::serialize(identity)).as_object(); // as it will be read back
    }

    void require_same(const Config& known, const Config& identity) const {
        for (const auto& item : identity) {
            const auto* const before = known.if_contains(item.key());
            if (item.key() == "function" &&
                (before == nullptr || before->at("program") != item.value().at("program"))) {
                continue; // the program was rebuilt: cannot be compared
            }
            if (before == nullptr || *before != item.value()) {
                throw ConfigError(
                    "RT-U107",
                    detail::concat("the search in ", directory_.string(), " was started with the ",
                                   item.key(), ' ',
                                   before != nullptr ? json::serialize(*before) : "null",
                                   ", but this program has ", json::serialize(item.value()),
                                   "; give the same value, or give the search a different name"));
            }
        }
    }

    void resume(const Config& identity) {
        Config saved;
        bool same_goal = true;
        try {
            saved = json::parse(storage::read_file(directory_ / file_name)).as_object();
            if (saved.at("format").as_string() != format || saved.at("version") != 1) {
                throw std::runtime_error("the format is not supported");
            }
            require_same(saved.at("identity").as_object(), identity);
            same_goal = saved.at("goal") == goal_json();
            controller_->load_searcher(saved.at("searcher").as_object());
        } catch (const ConfigError& error) {
            if (error.is("RT-U107")) { // a different search
                throw;
            }
            throw damaged(file_name, error.what());
        } catch (const std::exception& error) {
            throw damaged(file_name, error.what());
        }
        (void)EventLog::read(directory_, 0, [&](const boost::json::object& event) {
            try {
                if (!same_goal && internal::op_of(event) == internal::SearchOp::report) {
                    require_same(saved, {{"goal", goal_json()}});
                }
                controller_->replay(event);
            } catch (const ConfigError&) {
                throw;
            } catch (const std::exception& error) {
                throw damaged(EventLog::file_name, error.what());
            }
        });
        if (!same_goal) { // the first report lacks the requested metric
            saved["goal"] = goal_json();
            write(saved);
        }
    }

    /// Finishes if the search was killed while a trial's run was starting over.
    void finish_moves_of_trials() const {
        if (!controller_->plan().keeps_states_itself) {
            return;
        }
        for (const TrialRecord& trial : controller_->records()) {
            internal::finish_moves(directory_ / trial.directory);
        }
    }

    [[nodiscard]] StorageError damaged(const char* file, const char* why) const {
        return {"RT-U106",
                detail::concat(
                    (directory_ / file).string(), " is damaged: ", why,
                    "; restore it from a backup, or start a new search under a different name")};
    }

    std::filesystem::path directory_;
    storage::DirectoryLock lock_;
    std::unique_ptr<Controller> controller_;
    EventLog events_;
    std::optional<SearchPages> pages_;
    Clock::time_point written_at_;
    Clock::duration writing_{};
};

} // namespace rtrain::tune
