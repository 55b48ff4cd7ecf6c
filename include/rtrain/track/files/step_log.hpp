// SPDX-License-Identifier: Apache-2.0
/// @file
/// StepLog: steps.jsonl, a line for each call of log(). The caller only enqueues numbers; a thread
/// formats the lines. `Values` says what counts as a number; run/step_tensors.hpp has one for
/// tensors.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/wall_clock.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/track/lines/log_reader.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain::track {

/// The values of a StepLog of plain numbers. A StepLog copies its Values before it reads them.
struct StepNumbers {
    using Value = double;
    struct Later {}; ///< a value that is read in the thread

    static void check(std::string_view /*name*/, double /*value*/) {}
    static void keep(double value, double& number, Later& /*later*/) { number = value; }
    template <class Entries>
    static void read(Entries& /*entries*/) {}
};

template <class Values>
class StepLog {
public:
    using Metric = std::pair<std::string_view, typename Values::Value>;

    /// Numbers that may wait for the thread, which runs every 100 ms; more are dropped.
    static constexpr std::size_t capacity = std::size_t{1} << 16;
    static constexpr const char* checkpoint_field = "checkpoint";

    /// Steps up to `step`, whose line is `last`, are in the first `size` bytes of the file.
    using OnGrown = std::function<void(std::uint64_t size, std::int64_t step, const Config& last)>;

    StepLog(std::filesystem::path file, OnGrown on_grown)
        : file_(std::move(file)), on_grown_(std::move(on_grown)) {}
    StepLog(const StepLog&) = delete;
    StepLog& operator=(const StepLog&) = delete;
    ~StepLog() { close(); }

    /// Starts, or resumes after `checkpoint`, made in report `iteration`: removes later steps.
    void open(const std::string& checkpoint, std::int64_t iteration) {
        iteration_ = iteration;
        output_.reset();
        if (!std::filesystem::exists(file_)) {
            return;
        }
        const Kept kept = find(checkpoint, iteration);
        step_ = written_ = kept.step;
        storage::cut_off(file_, kept.size);
        output_ = std::make_unique<storage::GrowingFile>(file_);
    }

    [[nodiscard]] std::int64_t step() const noexcept { return written_; }
    [[nodiscard]] std::uint64_t size() const noexcept { return output_ ? output_->size() : 0; }

    /// The following steps come after report `iteration`.
    void reported(std::int64_t iteration) { iteration_ = iteration; }

    /// Throws ConfigError [RT-C33, RT-C34].
    void log(std::span<const Metric> metrics) {
        for (const auto& [name, value] : metrics) {
            check(name, value);
        }
        ++step_;
        if (!thread_.joinable()) {
            begin();
        }
        const double now = rtrain::detail::seconds_since_1970();
        const std::scoped_lock lock(mutex_);
        if (waiting_.size() + metrics.size() > capacity) {
            left_out_ += static_cast<std::int64_t>(metrics.size());
            return;
        }
        for (const auto& [name, value] : metrics) {
            Entry entry{step_, iteration_, now, &*names_.find(name)};
            values_.keep(value, entry.number, entry.later);
            waiting_.push_back(std::move(entry));
        }
        if (sleeps_) {
            work_.notify_one();
        }
    }

    /// Records that the steps so far belong to a checkpoint that is about to be made.
    void mark(const std::string& checkpoint) noexcept {
        if (step_ > 0) {
            const Config line{{checkpoint_field, checkpoint}, {step_field, step_}};
            flush(json::serialize(line) + "\n");
        }
    }

    /// Writes all remaining steps to the file.
    void close() noexcept {
        if (thread_.joinable()) {
            end();
            flush();
        }
        if (left_out_ > 0) {
            console::warn("%s is missing %lld numbers, which were logged faster than they could be "
                          "written",
                          file_.c_str(), static_cast<long long>(std::exchange(left_out_, 0)));
        }
    }

private:
    struct Entry {
        std::int64_t step;
        std::int64_t iteration;
        double time_s;
        const std::string* name; ///< in `names_`
        double number = 0;
        typename Values::Later later{};
    };
    struct Kept {
        std::int64_t step = 0;
        std::uint64_t size = 0;
    };
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const noexcept {
            return std::hash<std::string_view>()(text);
        }
    };

    void check(std::string_view name, const typename Values::Value& value) {
        if (names_.find(name) == names_.end()) {
            require_metric_name(name);
            if (name == step_field || name == checkpoint_field || name == iteration_field ||
                name == "timestamp") {
                throw ConfigError("RT-C33",
                                  rtrain::detail::concat("log() was given a metric \"", name,
                                                         "\", which rtrain fills in; rename the "
                                                         "metric"));
            }
            names_.emplace(name);
        }
        Values::check(name, value);
    }

    /// The end of the valid steps.
    [[nodiscard]] Kept find(const std::string& checkpoint, std::int64_t iteration) const {
        Kept before; // end of the steps before the last valid report
        std::uint64_t size = 0;
        LogReader lines(file_);
        while (const auto text = lines.line()) {
            size += text->size() + 1;
            try {
                const Config line = json::parse(*text).as_object();
                const Kept here{line.at(step_field).to_number<std::int64_t>(), size};
                const auto* const mark = line.if_contains(checkpoint_field);
                if (mark != nullptr && *mark == boost::json::string_view(checkpoint)) {
                    return here;
                }
                if (mark == nullptr && number_of(line) < iteration) {
                    before = here;
                }
            } catch (const std::bad_alloc&) {
                throw;
            } catch (const std::exception&) { // damaged by a power failure
                break;
            }
            lines.pass();
        }
        return before;
    }

    void begin() {
        waiting_.reserve(capacity);
        flushed_.reserve(capacity);
        ends_ = false;
        const launch::SignalsBlocked blocked;
        thread_ = rtrain::process::Thread([this] { run(); });
    }

    void end() {
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        work_.notify_one();
        thread_.join();
    }

    void run() noexcept {
        constexpr std::chrono::milliseconds pause{100};
        std::unique_lock lock(mutex_);
        while (!ends_) {
            sleeps_ = true;
            work_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
            sleeps_ = false;
            work_.wait_for(lock, pause, [this] { return ends_; });
            lock.unlock();
            flush();
            lock.lock();
        }
    }

    /// Writes the queue, and then `last`; called by the thread, or by a caller that needs the data
    /// now. Drops what cannot be written.
    void flush(const std::string& last = "") noexcept {
        const std::scoped_lock flushing(flushing_);
        Values values;
        {
            const std::scoped_lock lock(mutex_);
            flushed_.clear();
            std::swap(flushed_, waiting_);
            values = values_;
        }
        try {
            values.read(flushed_);
            Config line;
            const std::string text = lines(line);
            write(text + last, line);
        } catch (const std::exception& error) {
            const std::scoped_lock lock(mutex_);
            left_out_ += static_cast<std::int64_t>(flushed_.size());
            if (!std::exchange(has_failed_, true)) {
                console::warn("%s is missing steps of this run: %s; the run continues",
                              file_.c_str(), error.what());
            }
        }
    }

    /// The flushed lines; `line` is set to the last.
    [[nodiscard]] std::string lines(Config& line) const {
        std::string text;
        std::int64_t step = 0;
        for (const Entry& entry : flushed_) {
            if (entry.step != step) {
                text += line.empty() ? "" : json::serialize(line) + "\n";
                line = {{step_field, entry.step},
                        {iteration_field, entry.iteration},
                        {"timestamp", entry.time_s}};
                step = entry.step;
            }
            line[*entry.name] = entry.number;
        }
        return text + (line.empty() ? "" : json::serialize(line) + "\n");
    }

    void write(const std::string& text, const Config& last) {
        if (text.empty()) {
            return;
        }
        if (!output_) {
            output_ = std::make_unique<storage::GrowingFile>(file_);
        }
        output_->append(text);
        written_ = flushed_.empty() ? written_ : flushed_.back().step;
        on_grown_(output_->size(), written_, last);
    }

    std::filesystem::path file_;
    OnGrown on_grown_;
    std::unordered_set<std::string, Hash, std::equal_to<>> names_;
    std::int64_t step_ = 0;
    std::int64_t iteration_ = 0;
    rtrain::process::Thread thread_;

    std::mutex mutex_;
    std::condition_variable work_;
    std::vector<Entry> waiting_;
    Values values_;
    std::int64_t left_out_ = 0;
    bool sleeps_ = false;
    bool ends_ = false;

    std::mutex flushing_; ///< guards the following members
    std::vector<Entry> flushed_;
    std::unique_ptr<storage::GrowingFile> output_;
    std::int64_t written_ = 0;
    bool has_failed_ = false;
};

} // namespace rtrain::track
