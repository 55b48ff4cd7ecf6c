// SPDX-License-Identifier: Apache-2.0
/// @file
/// StateCache: caches the newest state of each running or paused trial in memory. A trial that
/// resumes from one, its own or another's, need not read its file. Files are authoritative: bytes
/// are returned only for the file that they were written to, whatever its name.
#pragma once

#include <rtrain/tune/threads/trial.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/stat.h>

namespace rtrain::tune::internal {

/// Any thread may call the members.
class StateCache {
public:
    /// `most`: limit on cached bytes. States above it are read from files.
    explicit StateCache(std::uint64_t most) noexcept : most_(most) {}

    /// Caches `bytes`, the contents of `file`, as the trial's newest state; it replaces the
    /// previous one.
    void keep(const std::string& trial, const std::filesystem::path& file, std::string_view bytes) {
        forget(trial);
        const auto identity = identity_of(file);
        if (!identity || !reserve(bytes.size())) {
            return;
        }
        auto copy = std::make_shared<const std::optional<std::string>>(bytes);
        const std::lock_guard lock(mutex_);
        states_.insert_or_assign(trial, State{*identity, std::move(copy)});
    }

    /// The cached bytes of that file, or of another link to it; null if not cached.
    [[nodiscard]] StateBytes find(const std::filesystem::path& file) const {
        const auto identity = identity_of(file);
        const std::lock_guard lock(mutex_);
        for (const auto& [trial, state] : states_) {
            if (identity && state.file == *identity) {
                return state.bytes;
            }
        }
        return nullptr;
    }

    /// Removes a trial that is over.
    void forget(const std::string& trial) {
        const std::lock_guard lock(mutex_);
        if (const auto state = states_.find(trial); state != states_.end()) {
            kept_ -= (*state->second.bytes)->size();
            states_.erase(state);
        }
    }

private:
    /// An inode number alone may be that of a deleted file.
    struct Identity {
        dev_t device = 0;
        ino_t number = 0;
        off_t size = 0;
        std::int64_t seconds = 0; ///< time of the last write
        std::int64_t nanoseconds = 0;

        friend bool operator==(const Identity&, const Identity&) = default;
    };
    struct State {
        Identity file;
        StateBytes bytes;
    };

    [[nodiscard]] static std::optional<Identity> identity_of(const std::filesystem::path& file) {
        struct stat status {};
        if (::stat(file.c_str(), &status) != 0) {
            return std::nullopt;
        }
        return Identity{status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                        status.st_mtim.tv_nsec};
    }

    [[nodiscard]] bool reserve(std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        const bool fits = kept_ + bytes <= most_;
        kept_ += fits ? bytes : 0;
        return fits;
    }

    std::uint64_t most_;
    mutable std::mutex mutex_;
    std::uint64_t kept_ = 0;              ///< bytes
    std::map<std::string, State> states_; ///< by trial
};

} // namespace rtrain::tune::internal
