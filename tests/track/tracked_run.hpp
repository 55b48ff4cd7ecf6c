// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run as its trackers see it, without training: reports, restarts, and what is left behind.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/track/delivery/tracker_threads.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace test {

using namespace std::chrono_literals;
namespace track = rtrain::track;
using rtrain::Config;

/// A directory that vanishes.
class Scratch {
public:
    explicit Scratch(const std::string& name)
        : path_(std::filesystem::temp_directory_path() /
                ("rtrain-track-" + std::to_string(::getpid()) + "-" + name)) {
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_ / "r");
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { std::filesystem::remove_all(path_); }
    [[nodiscard]] std::filesystem::path run() const { return path_ / "r"; }

private:
    std::filesystem::path path_;
};

/// One process's part of a run.
class TrackedRun {
public:
    TrackedRun(const std::filesystem::path& directory, std::vector<track::AnyTracker> trackers,
               std::chrono::milliseconds patience = 8s, Config config = {{"lr", 0.5}})
        : directory_(directory), config_(config), patience_(patience), log_(directory, config),
          trackers_(std::move(trackers), std::make_shared<track::PendingRewind>()) {}

    /// Taken up behind `iteration` reports and `step` steps.
    void begin(std::int64_t iteration = 0, std::int64_t step = 0) {
        Config last;
        const std::uint64_t steps_size = keep_steps(step);
        for (const Config& line : reports()) {
            last = track::number_of(line) == iteration ? line : last;
        }
        (void)log_.open(iteration > 0 ? &last : nullptr, [](const Config& /*line*/) {});
        trackers_.resume({.name = "r",
                          .directory = directory_,
                          .location = directory_.string(),
                          .config = config_,
                          .attempt = "a" + std::to_string(++attempts_),
                          .position = {.iteration = iteration, .step = step},
                          .resumed = iteration > 0},
                         {{{log_.size(), log_.iteration()}, {steps_size, step}}});
    }

    void report(const Config& metrics) {
        log_.begin_report();
        const Config line = log_.complete(metrics, std::nullopt);
        log_.append(line);
        trackers_.grow(track::report_log, {log_.size(), log_.iteration()});
    }

    /// As worker.log() does.
    void log(const Config& metrics) {
        Config line{{track::step_field, ++step_},
                    {track::iteration_field, log_.iteration()},
                    {"timestamp", 1.5}};
        line.insert(metrics.begin(), metrics.end());
        rtrain::storage::GrowingFile steps(directory_ / track::steps_file);
        steps.append(rtrain::json::serialize(line) + "\n");
        trackers_.grow(track::step_log, {steps.size(), step_});
    }

    void close(track::Ending ending = track::Ending::finished) {
        trackers_.finish(track::TrackerThread::Clock::now() + patience_, ending);
    }

    [[nodiscard]] std::vector<Config> reports() const {
        return track::read_results(directory_ / "result.json", 0).reports;
    }

private:
    /// Returns the size of the file.
    std::uint64_t keep_steps(std::int64_t count) {
        const auto file = directory_ / track::steps_file;
        step_ = count;
        if (!std::filesystem::exists(file)) {
            return 0;
        }
        const std::string text = rtrain::storage::read_file(file);
        std::size_t size = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            size = text.find('\n', size) + 1;
        }
        rtrain::storage::cut_off(file, size);
        return size;
    }

    std::filesystem::path directory_;
    Config config_;
    std::chrono::milliseconds patience_;
    track::RunLog log_;
    track::TrackerThreads trackers_;
    int attempts_ = 0;
    std::int64_t step_ = 0;
};

/// What a tracker was told, which outlives it as a server would.
struct Told {
    std::mutex mutex;
    std::vector<std::pair<std::int64_t, double>> shown; ///< iteration, loss
    std::vector<std::string> calls;

    [[nodiscard]] std::vector<std::int64_t> iterations() {
        const std::scoped_lock lock(mutex);
        std::vector<std::int64_t> all;
        for (const auto& [iteration, loss] : shown) {
            all.push_back(iteration);
        }
        return all;
    }
};

/// Shows what it is told in memory; `on_write` may throw or wait.
struct Memory {
    Told* told;
    std::string its_name = "memory";
    std::function<void(const track::Line&)> on_write = [](const track::Line&) {};

    [[nodiscard]] std::string name() const { return its_name; }
    void start(const track::RunInfo& info) {
        const std::scoped_lock lock(told->mutex);
        told->calls.push_back("start " + info.name + " " + info.attempt);
    }
    track::Position rewind(track::Position position) {
        const std::scoped_lock lock(told->mutex);
        told->calls.push_back("rewind " + std::to_string(position.iteration));
        std::erase_if(told->shown, [&](const auto& one) { return one.first > position.iteration; });
        return {.iteration = told->shown.empty() ? 0 : told->shown.back().first};
    }
    void write(const track::Line& line) {
        on_write(line);
        const std::scoped_lock lock(told->mutex);
        told->shown.emplace_back(line.number, line.values.at("loss").to_number<double>());
    }
    void finish() {
        const std::scoped_lock lock(told->mutex);
        told->calls.emplace_back("finish");
    }
};

} // namespace test
