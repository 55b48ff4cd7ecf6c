// SPDX-License-Identifier: Apache-2.0
/// @file
/// live.json in a run's directory: the secret token and the port of the live page, so that open
/// pages reconnect after a restart. Readable only by this user.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/process/os/token.hpp>
#include <rtrain/storage/file/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::track {

/// The reports that a client has seen, as made by one start of the run.
struct SeenReports {
    std::string attempt; ///< Started::attempt
    std::int64_t iteration = 0;
};

struct LiveNote {
    static constexpr std::size_t most_starts = 1000; ///< older ones are dropped

    std::string token{};
    int port = 0; ///< 0: none yet
    /// The starts of the run, oldest first, each with the number of reports that it resumed after.
    std::vector<SeenReports> starts{};

    /// A note with a new secret. Throws LaunchError [RT-L7].
    [[nodiscard]] static LiveNote make() {
        constexpr std::size_t bytes = 24;
        return {.token = launch::control::random_text(bytes)};
    }

    void begin(SeenReports start) {
        if (starts.size() == most_starts) {
            starts.erase(starts.begin());
        }
        starts.push_back(std::move(start));
    }

    /// Number of seen reports that are still valid.
    [[nodiscard]] std::int64_t still_count(const SeenReports& seen) const {
        const auto found =
            std::find_if(starts.rbegin(), starts.rend(),
                         [&](const SeenReports& start) { return start.attempt == seen.attempt; });
        if (found == starts.rend()) {
            return 0;
        }
        std::int64_t count = seen.iteration;
        for (auto later = starts.rbegin(); later != found; ++later) {
            count = std::min(count, later->iteration);
        }
        return count;
    }

    /// The note of an earlier start; empty if there is none, or if other users could have read it.
    [[nodiscard]] static std::optional<LiveNote> read(const std::filesystem::path& file) {
        struct stat status {};
        if (::lstat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
            status.st_uid != ::geteuid() || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
            return std::nullopt;
        }
        try {
            const auto note = json::parse(storage::read_file(file)).as_object();
            LiveNote read{.token = std::string(note.at("token").as_string()),
                          .port = note.at("port").to_number<int>()};
            for (const auto& start : note.at("starts").as_array()) {
                read.starts.push_back({std::string(start.at("attempt").as_string()),
                                       start.at("iteration").to_number<std::int64_t>()});
            }
            return read.token.empty() ? std::nullopt : std::optional(std::move(read));
        } catch (const std::exception&) { // not written by rtrain
            return std::nullopt;
        }
    }

    /// Throws StorageError [RT-S3].
    void write(const std::filesystem::path& file) const {
        boost::json::array all;
        for (const SeenReports& start : starts) {
            all.push_back({{"attempt", start.attempt}, {"iteration", start.iteration}});
        }
        const std::string text =
            json::serialize({{"token", token}, {"port", port}, {"starts", std::move(all)}});
        const std::filesystem::path temporary = storage::temporary_beside(file);
        const int descriptor =
            ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
        const bool written = descriptor >= 0 && ::write(descriptor, text.data(), text.size()) ==
                                                    static_cast<ssize_t>(text.size());
        const auto error = storage::system_error("write", file);
        ::close(descriptor);
        if (!written) {
            ::unlink(temporary.c_str());
            throw error;
        }
        storage::rename_file(temporary, file);
    }
};

} // namespace rtrain::track
