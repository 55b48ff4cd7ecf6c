// SPDX-License-Identifier: Apache-2.0
/// @file
/// RankLogs: logs/rank-N.log in a run's directory, the standard output and standard error of the
/// ranks. If they cannot be written, the run continues. Only their owner can read them: one
/// contains the address of the live page, and programs print secrets.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/log_record.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/process/stdio/tee_thread.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>
#include <rtrain/storage/location.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::track {

/// Files cannot grow on a storage service: they grow in a local directory, and are copied twice a
/// minute, or less often if copying is slow. close() also copies them. The members are thread-safe.
class RankLogs {
public:
    using Clock = std::chrono::steady_clock;
    /// Minimum interval between two copies to a storage service.
    static constexpr std::chrono::seconds interval{30};

    /// For the run in the directory `run`. `complain` is called once, at the first error.
    RankLogs(storage::Location run, bool json,
             std::function<void(const std::string& what)> complain)
        : run_(std::move(run)), json_(json), complain_(std::move(complain)) {
        if (!run_.filesystem.is_local()) {
            scratch_.emplace(storage::temporary_directory(), "rtrain-rank-logs");
            const launch::SignalsBlocked blocked;
            publisher_ = rtrain::process::Thread([this] { publish_now_and_then(); });
        }
    }
    RankLogs(const RankLogs&) = delete;
    RankLogs& operator=(const RankLogs&) = delete;
    ~RankLogs() { close(); }

    /// Starts the next attempt to train; existing logs get a line that says so.
    void begin() {
        const std::lock_guard lock(mutex_);
        ++attempt_;
        files_.clear(); // the run's directory may be a different one
    }

    /// Appends a line of a rank; `line` has no line break.
    void add(int rank, OutputStream stream, std::string_view line) noexcept {
        const std::lock_guard lock(mutex_);
        if (closed_) {
            return;
        }
        try {
            storage::GrowingFile& file = file_of(rank);
            if (json_) {
                buffer_ = record_of(rank, stream, line);
            } else {
                buffer_ = line; // usually allocates nothing: a crashing thread may hold the
                                // allocator's lock
            }
            buffer_ += '\n';
            file.append(buffer_);
        } catch (const std::exception& error) {
            complain(error.what());
        }
    }

    /// Ends the logs and copies them to a storage service, if it accepts them.
    void close() noexcept {
        {
            const std::lock_guard lock(mutex_);
            if (std::exchange(closed_, true)) {
                return;
            }
            files_.clear();
        }
        closing_.notify_all();
        if (publisher_.joinable()) {
            publisher_.join();
        }
        scratch_.reset();
    }

private:
    static std::string name_of(int rank) {
        return rtrain::detail::concat(rank_logs_directory, "/rank-", rank, ".log");
    }
    /// The directory in which the files grow.
    [[nodiscard]] std::filesystem::path place() const {
        return scratch_ ? scratch_->path() : std::filesystem::path(run_.path);
    }

    /// A line as a JSON record. rtrain's own lines already are records.
    [[nodiscard]] static std::string record_of(int rank, OutputStream stream,
                                               std::string_view line) {
        if (line.starts_with(console::begin_of_record)) {
            try {
                (void)json::parse(line);
                return std::string(line);
            } catch (const std::exception&) { // not a record after all
            }
        }
        return console::record(rank, console::Level::info, line,
                               stream == OutputStream::out ? ",\"stream\":\"stdout\""
                                                           : ",\"stream\":\"stderr\"");
    }

    storage::GrowingFile& file_of(int rank) {
        if (const auto found = files_.find(rank); found != files_.end()) {
            return found->second;
        }
        const std::filesystem::path path = place() / name_of(rank);
        storage::create_directories(path.parent_path());
        storage::GrowingFile& file =
            files_.try_emplace(rank, path, S_IRUSR | S_IWUSR).first->second;
        const std::string begins =
            rtrain::detail::concat("attempt ", attempt_, " of process ", ::getpid(), " on ",
                                   storage::host_name(), " begins");
        file.append(json_ ? console::record(rank, console::Level::info, begins) + "\n"
                          : "--- " + console::time_of_record() + " " + begins + "\n");
        return file;
    }

    void complain(const char* what) noexcept {
        if (std::exchange(has_complained_, true)) {
            return;
        }
        try {
            complain_(rtrain::detail::concat(rank_logs_directory, " of ",
                                             run_.filesystem.uri(run_.path),
                                             " may be missing output of the ranks: ", what,
                                             "; the run continues, later failures are not logged"));
        } catch (const std::exception&) { // memory
        }
    }

    void publish_now_and_then() {
        Clock::duration pause = interval;
        for (bool last = false; !last;) {
            {
                std::unique_lock lock(mutex_);
                last = closing_.wait_for(lock, pause, [this] { return closed_; });
            }
            const auto begin = Clock::now();
            try {
                publish();
            } catch (const std::exception& error) {
                const std::lock_guard lock(mutex_);
                complain(error.what());
            }
            constexpr int rarely = 10; // times the duration of the last copy
            pause = std::max<Clock::duration>(interval, rarely * (Clock::now() - begin));
        }
    }

    void publish() {
        const auto logs = place() / rank_logs_directory;
        if (!std::filesystem::exists(logs)) {
            return;
        }
        for (const auto& entry : std::filesystem::directory_iterator(logs)) {
            const std::string name =
                rtrain::detail::concat(rank_logs_directory, "/", entry.path().filename().string());
            const std::string path = run_.path + "/" + name;
            if (!earlier_.contains(name)) { // written by earlier starts of the run
                earlier_[name] =
                    run_.filesystem.exists(path) ? run_.filesystem.read(path) : std::string();
            }
            const std::string text = storage::read_file(entry.path());
            if (std::uint64_t& size = published_[name]; text.size() > size) {
                run_.filesystem.write(path, earlier_[name] + text);
                size = text.size();
            }
        }
    }

    storage::Location run_;
    bool json_;
    std::function<void(const std::string&)> complain_;
    std::optional<storage::ProcessDirectory> scratch_;
    std::mutex mutex_; ///< guards the following members
    int attempt_ = 0;
    bool closed_ = false;
    bool has_complained_ = false;
    std::map<int, storage::GrowingFile> files_; ///< by rank
    std::string buffer_;
    std::condition_variable closing_;
    std::map<std::string, std::string> earlier_;     ///< by name; used only by the publisher
    std::map<std::string, std::uint64_t> published_; ///< bytes
    rtrain::process::Thread publisher_;
};

} // namespace rtrain::track
