// SPDX-License-Identifier: Apache-2.0
/// Transfers many files to or from a file system: several at a time, with retries where they may
/// help, within one time limit.
///
/// A call that hangs in the network cannot be canceled from outside. At the deadline the threads
/// are therefore detached: each ends with its current request, and starts no other.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/retry.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rtrain::storage {
namespace internal {

struct Task {
    std::string what; ///< used in messages: "uploading s3://bucket/run/a"
    std::string file;
    std::uint64_t bytes = 0;
    std::function<void()> action;
};

/// Shared by the caller and its threads; the last one frees it.
class TransferPool {
public:
    TransferPool(std::vector<Task> tasks, TransferConfig config, Clock::time_point deadline)
        : tasks_(std::move(tasks)), attempts_(tasks_.size()), config_(std::move(config)),
          deadline_(deadline) {
        for (const auto& task : tasks_) {
            progress_.bytes_total += task.bytes;
        }
    }

    /// Runs all tasks. Throws the first error, or TransientStorageError [RT-S12].
    static void run(const std::shared_ptr<TransferPool>& crew) {
        const auto threads = std::min(static_cast<std::size_t>(std::max(crew->config_.parallel, 1)),
                                      crew->tasks_.size());
        std::unique_lock lock(crew->mutex_);
        for (std::size_t i = 0; i < threads; ++i) {
            try {
                process::Thread([crew] { crew->work(); }).detach();
            } catch (const LaunchError&) { // fewer threads also work
                if (crew->working_ == 0) {
                    throw;
                }
                break;
            }
            ++crew->working_;
        }
        constexpr std::chrono::seconds slice{5};
        bool ended = false;
        do {
            ended = crew->changed_.wait_until(lock, std::min(crew->deadline_, Clock::now() + slice),
                                              [&] { return crew->working_ == 0; });
            ProcessContext::current().status.advance(); // slow, but with a deadline: not a hang
        } while (!ended && Clock::now() < crew->deadline_);
        crew->stop_.request_stop();
        if (crew->error_) {
            std::rethrow_exception(crew->error_);
        }
        if (!ended) {
            crew->throw_late();
        }
    }

private:
    void work() {
        std::unique_lock lock(mutex_);
        while (next_ < tasks_.size() && !error_ && !stop_.stop_requested()) {
            const std::size_t at = next_++;
            lock.unlock();
            std::exception_ptr error;
            try {
                try_until({config_, deadline_, stop_.get_token()}, tasks_[at].what, attempts_[at],
                          tasks_[at].action);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            if (!error && !stop_.stop_requested()) {
                error = finish(at);
            }
            if (error && !error_) {
                error_ = error;
                stop_.request_stop();
            }
        }
        --working_;
        changed_.notify_all();
    }

    std::exception_ptr finish(std::size_t at) {
        attempts_[at].count = -1;
        progress_.file = tasks_[at].file;
        progress_.bytes_done += tasks_[at].bytes;
        try {
            if (config_.progress) {
                config_.progress(progress_);
            }
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    [[noreturn]] void throw_late() {
        for (std::size_t at = 0; at < tasks_.size(); ++at) {
            const std::scoped_lock lock(attempts_[at].mutex);
            if (attempts_[at].count >= 0) { // the first unfinished task
                throw deadline_error(config_, tasks_[at].what, attempts_[at].count,
                                     attempts_[at].last_error);
            }
        }
        throw deadline_error(config_, "a transfer", 1, "");
    }

    std::vector<Task> tasks_;
    std::vector<Attempts> attempts_; ///< count -1: done
    TransferConfig config_;
    Clock::time_point deadline_;
    std::stop_source stop_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t next_ = 0;
    std::size_t working_ = 0;
    std::exception_ptr error_;
    TransferProgress progress_;
};

inline void run_tasks(std::vector<Task> tasks, const TransferConfig& config,
                      Clock::time_point deadline) {
    TransferPool::run(std::make_shared<TransferPool>(std::move(tasks), config, deadline));
}

/// Returns the sizes of the files in a directory, and in the directories below it that `names` lead
/// to, by name.
[[nodiscard]] inline std::map<std::string, std::uint64_t>
sizes_in(const AnyFilesystem& files, const std::string& directory,
         const std::vector<std::string>& names, const TransferConfig& config,
         Clock::time_point deadline) {
    std::set<std::string> below; // "" or "deep/er/"
    for (const std::string& name : names) {
        below.insert(name.substr(0, name.rfind('/') + 1)); // npos + 1 is 0
    }
    // Threads may outlive this call.
    const auto sizes = std::make_shared<std::map<std::string, std::uint64_t>>();
    const auto mutex = std::make_shared<std::mutex>();
    TransferConfig silent = config;
    silent.progress = {};
    std::vector<Task> tasks;
    for (const std::string& part : below) {
        const std::string path =
            part.empty() ? directory : directory + "/" + part.substr(0, part.size() - 1);
        const auto list = [files, path, part, sizes, mutex] {
            const auto entries = files.list(path);
            const std::scoped_lock lock(*mutex);
            for (const auto& entry : entries) {
                if (!entry.is_directory) {
                    (*sizes)[part + entry.name] = entry.size;
                }
            }
        };
        tasks.push_back({"listing " + files.uri(path), "", 0, list});
    }
    run_tasks(std::move(tasks), silent, deadline);
    const std::scoped_lock lock(*mutex);
    return *sizes;
}

/// Requires names with '/' between parts that stay below the directory.
inline void require_names_below(const std::vector<std::string>& names) {
    const auto is_part = [](std::string_view part) {
        return !part.empty() && part != "." && part != ".." &&
               part.find('\0') == std::string_view::npos;
    };
    for (const std::string& name : names) {
        std::string_view rest = name;
        bool leads_below = true;
        for (std::size_t end = 0; leads_below && end != std::string_view::npos;) {
            end = rest.find('/');
            leads_below = is_part(rest.substr(0, end));
            rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
        }
        if (!leads_below) {
            throw StorageError(
                "RT-S15", detail::concat("\"", name,
                                         "\" is not the name of a file in a directory or below it; "
                                         "use a relative name without \".\" and \"..\""));
        }
    }
}

inline void require_size(const std::string& place, std::uint64_t size, std::uint64_t expected) {
    if (size != expected) {
        throw TransientStorageError("RT-S13",
                                    detail::concat(place, " has ", size,
                                                   " bytes after its transfer, but expected ",
                                                   expected, "; transfer it again"));
    }
}

} // namespace internal

/// Uploads the files `names` of a local directory, such as "a" and "deep/b", into `directory`, and
/// verifies their sizes. On an error, some files may have been uploaded, each of them complete.
/// Throws StorageError: the file system's own; RT-S11 if a file failed `config.attempts` times;
/// RT-S12 at the deadline; RT-S13 if a size is wrong; RT-S15 for a name outside of the directory.
inline void upload_files(const AnyFilesystem& files, const std::filesystem::path& local,
                         const std::vector<std::string>& names, const std::string& directory,
                         const TransferConfig& config = {}) {
    internal::require_names_below(names);
    const auto deadline = deadline_of(config);
    std::vector<internal::Task> tasks;
    for (const auto& name : names) {
        std::error_code error;
        const auto size = std::filesystem::file_size(local / name, error);
        if (error) {
            throw StorageError("RT-S4", detail::concat("cannot read ", (local / name).string(),
                                                       ": ", error.message()));
        }
        const std::string to = directory + "/" + name;
        tasks.push_back({"uploading " + files.uri(to), name, size,
                         [files, from = local / name, to] { files.upload(from, to); }});
    }
    const auto expected = tasks;
    internal::run_tasks(std::move(tasks), config, deadline);
    const auto sizes = internal::sizes_in(files, directory, names, config, deadline);
    for (const auto& task : expected) {
        const auto found = sizes.find(task.file);
        internal::require_size(files.uri(directory + "/" + task.file),
                               found == sizes.end() ? 0 : found->second, task.bytes);
    }
}

/// Downloads the files `names` of `directory` into the local directory, which must exist. On an
/// error, some files may have been downloaded, each of them complete. Throws like upload_files, and
/// StorageError [RT-S10] if the directory has no such file.
inline void download_files(const AnyFilesystem& files, const std::string& directory,
                           const std::vector<std::string>& names,
                           const std::filesystem::path& local, const TransferConfig& config = {}) {
    internal::require_names_below(names);
    const auto deadline = deadline_of(config);
    const auto sizes = internal::sizes_in(files, directory, names, config, deadline);
    std::vector<internal::Task> tasks;
    for (const auto& name : names) {
        const std::string from = directory + "/" + name;
        const auto size = sizes.find(name);
        if (size == sizes.end()) {
            throw StorageError("RT-S10", detail::concat("cannot download ", files.uri(from),
                                                        ": the file does not exist"));
        }
        tasks.push_back({"downloading " + files.uri(from), name, size->second,
                         [files, from, to = local / name, bytes = size->second] {
                             storage::create_directories(to.parent_path());
                             files.download(from, to);
                             std::error_code error;
                             const auto arrived = std::filesystem::file_size(to, error);
                             internal::require_size(to.string(), error ? 0 : arrived, bytes);
                         }});
    }
    internal::run_tasks(std::move(tasks), config, deadline);
}

} // namespace rtrain::storage
