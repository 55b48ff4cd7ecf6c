// SPDX-License-Identifier: Apache-2.0
/// @file
/// GrowingFile: a file that records are appended to, each completely or not at all while this
/// process lives. Not durable until the system writes it. Cost tier 0: std only.
#pragma once

#include <rtrain/storage/file/file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::storage {

class GrowingFile {
public:
    /// Creates the file, or opens it for appending. `mode` limits the file's permissions. Throws
    /// StorageError [RT-S3].
    explicit GrowingFile(std::filesystem::path path, mode_t mode = 0666)
        : path_(std::move(path)),
          descriptor_(
              ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK, mode)) {
        struct stat status {};
        if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
            throw system_error("create", path_);
        }
        if ((status.st_mode & 0777U & ~mode) != 0 && S_ISREG(status.st_mode)) {
            ::fchmod(descriptor_, status.st_mode & mode);
        }
        size_ = static_cast<std::uint64_t>(status.st_size);
    }
    GrowingFile(const GrowingFile&) = delete;
    GrowingFile& operator=(const GrowingFile&) = delete;
    ~GrowingFile() { ::close(descriptor_); }

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

    /// Throws StorageError [RT-S3] if the disk is full, after restoring the file; if that fails,
    /// the next call restores it first.
    void append(std::string_view record) {
        if (!is_whole_) {
            cut();
        }
        is_whole_ = false;
        for (std::string_view rest = record; !rest.empty();) {
            const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written < 0) {
                const auto error = system_error("write to", path_);
                is_whole_ = ::ftruncate(descriptor_, static_cast<off_t>(size_)) == 0;
                throw error;
            }
            rest.remove_prefix(static_cast<std::size_t>(written));
        }
        is_whole_ = true;
        size_ += record.size();
    }

    /// After an error, what reached the disk is unknown.
    void sync() {
        if (::fsync(descriptor_) != 0) {
            throw system_error("sync", path_);
        }
    }

private:
    void cut() {
        if (::ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) {
            throw system_error("truncate", path_);
        }
    }

    std::filesystem::path path_;
    int descriptor_;
    std::uint64_t size_ = 0;
    bool is_whole_ = true; ///< no partial record follows `size_`
};

/// Truncates a file to its first `bytes`, durably: after a power failure it has either the old or
/// the new size.
inline void cut_off(const std::filesystem::path& path, std::uint64_t bytes) {
    if (std::filesystem::file_size(path) == bytes) {
        return;
    }
    replace_file_by(path, [&](OutputFile& output) {
        InputFile input(path);
        std::string part(std::size_t{1} << 16, '\0');
        for (std::uint64_t left = bytes; left > 0;) {
            const std::size_t got =
                input.read(part.data(), std::min<std::uint64_t>(part.size(), left));
            output.write(part.data(), got);
            left = got > 0 ? left - got : 0;
        }
    });
}

} // namespace rtrain::storage
