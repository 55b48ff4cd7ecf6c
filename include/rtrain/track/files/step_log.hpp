// SPDX-License-Identifier: Apache-2.0
/// @file
/// StepLog: steps.jsonl, a line for each call of worker.log(). The caller only enqueues numbers; a
/// thread formats the lines, and reads device tensors in batches.
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
#include <rtrain/track/lines/step_value.hpp>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain::track {

class StepLog {
public:
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
    void log(std::span<const StepMetric> metrics) {
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
            keep(value, entry);
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
        at::Tensor tensor{}; ///< on a device; else undefined
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

    void check(std::string_view name, const StepValue& value) {
        if (names_.find(name) == names_.end()) {
            require_metric_name(name);
            if (name == step_field || name == checkpoint_field || name == iteration_field ||
                name == "timestamp") {
                throw ConfigError("RT-C33",
                                  rtrain::detail::concat("worker.log() was given a metric \"", name,
                                                         "\", which rtrain fills in; rename the "
                                                         "metric"));
            }
            names_.emplace(name);
        }
        if (const at::Tensor* const tensor = value.tensor(); tensor && tensor->numel() != 1) {
            throw ConfigError("RT-C34", rtrain::detail::concat(
                                            "worker.log() was given a tensor of ", tensor->numel(),
                                            " elements as \"", name, "\"; expected one element"));
        }
    }

    void keep(const StepValue& value, Entry& entry) {
        if (const double* const number = value.number()) {
            entry.number = *number;
        } else if (const at::Tensor& tensor = *value.tensor(); tensor.is_cpu()) {
            entry.number = tensor.item<double>();
        } else {
            entry.tensor = tensor.detach();
            stream_ =
                c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
        }
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
        std::optional<c10::Stream> stream;
        {
            const std::scoped_lock lock(mutex_);
            flushed_.clear();
            std::swap(flushed_, waiting_);
            stream = stream_;
        }
        try {
            read_tensors(stream);
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

    /// Waits only once for the device, on the stream that computed the tensors.
    void read_tensors(const std::optional<c10::Stream>& stream) {
        const c10::OptionalStreamGuard guard(stream);
        std::vector<at::Tensor> tensors;
        for (const Entry& entry : flushed_) {
            if (entry.tensor.defined()) {
                tensors.push_back(entry.tensor.reshape({}).to(at::kDouble));
            }
        }
        if (tensors.empty()) {
            return;
        }
        const at::Tensor numbers = at::stack(tensors).cpu();
        const auto* number = numbers.const_data_ptr<double>();
        for (Entry& entry : flushed_) {
            if (entry.tensor.defined()) {
                entry.number = *number++;
                entry.tensor.reset();
            }
        }
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
    std::optional<c10::Stream> stream_; ///< stream of the device tensors
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
