// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that are either complete or absent after a crash.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/random_digits.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/os/file_size_limit.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::storage {

[[nodiscard]] inline StorageError system_error(std::string_view action,
                                               const std::filesystem::path& path) {
    const bool too_large = errno == EFBIG;
    return StorageError(too_large ? StorageError::Code("RT-S45") : StorageError::Code("RT-S3"),
                        detail::concat("cannot ", action, ' ', path.string(), ": ",
                                       std::strerror(errno),
                                       too_large ? process::file_size_advice() : std::string()));
}

/// A file being written. Bytes are durable after sync().
class OutputFile {
public:
    enum class Mode : unsigned char { truncate, append };

    explicit OutputFile(std::filesystem::path path, Mode mode = Mode::truncate)
        : path_(std::move(path)),
          descriptor_(::open(path_.c_str(),
                             O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK |
                                 (mode == Mode::append ? O_APPEND : O_TRUNC),
                             0666)) {
        if (descriptor_ < 0) {
            throw system_error("create", path_);
        }
    }
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }

    void write(const void* data, std::size_t bytes) {
        const auto* from = static_cast<const char*>(data);
        while (bytes > 0) {
            const ssize_t written = ::write(descriptor_, from, bytes);
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written < 0) {
                throw system_error("write to", path_);
            }
            from += written;
            bytes -= static_cast<std::size_t>(written);
        }
    }
    void write(std::string_view text) { write(text.data(), text.size()); }

    /// After an error the file must be rewritten: what reached the disk is unknown.
    void sync() {
        if (::fsync(descriptor_) != 0) {
            throw system_error("sync", path_);
        }
    }

    /// True if `path` still refers to this file.
    [[nodiscard]] bool is_at(const std::filesystem::path& path) const {
        struct stat mine {};
        struct stat there {};
        return ::fstat(descriptor_, &mine) == 0 && ::stat(path.c_str(), &there) == 0 &&
               mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
    }

    /// Some file systems report write errors here.
    void close() {
        if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) {
            throw system_error("close", path_);
        }
    }

private:
    std::filesystem::path path_;
    int descriptor_;
};

/// Opens a regular file to read; a pipe without a writer does not block. Throws StorageError: RT-S3
/// cannot open, RT-S4 not a regular file.
[[nodiscard]] inline process::Descriptor open_to_read(const std::filesystem::path& path,
                                                      int flags = 0) {
    process::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags));
    struct stat status {};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
        throw system_error("open", path);
    }
    if (!S_ISREG(status.st_mode)) {
        throw StorageError("RT-S4",
                           detail::concat("cannot read ", path.string(), ": not a regular file"));
    }
    return file;
}

/// Opens a stream of a regular file; for anything else, the stream has failed.
[[nodiscard]] inline std::ifstream open_stream(const std::filesystem::path& path) {
    std::error_code error;
    std::ifstream file;
    if (std::filesystem::is_regular_file(path, error)) {
        file.open(path, std::ios::binary);
    } else {
        file.setstate(std::ios::failbit);
    }
    return file;
}

/// A file read from its beginning.
class InputFile {
public:
    /// `flags`: without O_NOFOLLOW, follows symbolic links.
    explicit InputFile(std::filesystem::path path, int flags = O_NOFOLLOW)
        : path_(std::move(path)), file_(open_to_read(path_, flags)) {}

    /// Size reported by the system; 0 if it reports none.
    [[nodiscard]] std::uint64_t size() const noexcept {
        struct stat status {};
        return ::fstat(file_.get(), &status) == 0 && status.st_size > 0
                   ? static_cast<std::uint64_t>(status.st_size)
                   : 0;
    }

    /// Fills the buffer; returns less than `bytes` only at the end of the file.
    std::size_t read(char* buffer, std::size_t bytes) {
        std::size_t filled = 0;
        while (filled < bytes) {
            const ssize_t got = ::read(file_.get(), buffer + filled, bytes - filled);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0) {
                throw StorageError("RT-S4", detail::concat("cannot read ", path_.string(), ": ",
                                                           std::strerror(errno)));
            }
            if (got == 0) {
                break;
            }
            filled += static_cast<std::size_t>(got);
        }
        return filled;
    }

private:
    std::filesystem::path path_;
    process::Descriptor file_;
};

/// Makes creations, renames and removals in `directory` durable.
inline void sync_directory(const std::filesystem::path& directory) {
    const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        throw system_error("open", directory);
    }
    const int result = ::fsync(descriptor);
    ::close(descriptor);
    if (result != 0) {
        throw system_error("sync", directory);
    }
}

/// Atomic: `to` is either its old or its new content, never in between.
inline void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) {
        throw system_error("rename to", to);
    }
}

inline void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
    rename_file(from, to);
    sync_directory(to.parent_path());
}

/// Prefix of rtrain's temporary files; a later owner of the directory may remove them.
inline constexpr std::string_view temporary_prefix = ".rtrain-";

/// Returns a sibling name of `path` that no other thread or process uses, in any container.
[[nodiscard]] inline std::filesystem::path temporary_beside(const std::filesystem::path& path) {
    static std::atomic<std::uint64_t> count{0};
    static const std::string digits = rtrain::detail::random_digits(); // shared by forked children
    return path.parent_path() / rtrain::detail::concat(temporary_prefix, "tmp-", digits, '-',
                                                       ::getpid(), '-', ++count, '-',
                                                       path.filename().string());
}

/// Replaces the file `path` with what `write(OutputFile&)` writes: a crash leaves the old file or
/// the new one, an error the old one. Without `durably`, a power failure may leave neither.
template <class Write>
void replace_file_by(const std::filesystem::path& path, Write&& write, bool durably = true) {
    const std::filesystem::path temporary = temporary_beside(path);
    try {
        OutputFile file(temporary);
        write(file);
        if (durably) {
            file.sync();
        }
        file.close();
        rename_file(temporary, path);
        if (durably) {
            sync_directory(path.has_parent_path() ? path.parent_path() : ".");
        }
    } catch (...) {
        std::error_code ignored;
        std::filesystem::remove(temporary, ignored);
        throw;
    }
}

/// Replaces the file `path` with `text`.
inline void replace_file(const std::filesystem::path& path, std::string_view text) {
    replace_file_by(path, [&](OutputFile& file) { file.write(text); });
}

/// Same without fsync; the file need not survive a power failure.
inline void replace_file_unsynced(const std::filesystem::path& path, std::string_view text) {
    replace_file_by(
        path, [&](OutputFile& file) { file.write(text); }, /*durably=*/false);
}

/// Larger files are never read into memory as a whole: a file can claim any size.
inline constexpr std::uint64_t largest_text = std::uint64_t{4} << 30;
/// Same for a single JSON value that rtrain writes.
inline constexpr std::uint64_t largest_json = std::uint64_t{1} << 30;

/// Throws StorageError [RT-S4] if it cannot be read, or has more than `limit` bytes.
[[nodiscard]] inline std::string read_file(const std::filesystem::path& path,
                                           std::uint64_t limit = largest_text) {
    constexpr std::size_t piece = std::size_t{64} << 10; // if the size is unknown
    std::optional<InputFile> file;
    try {
        file.emplace(path, 0);
    } catch (const StorageError& error) {
        throw StorageError("RT-S4", error.message());
    }
    const auto check = [&](std::uint64_t bytes) {
        if (bytes > limit) {
            throw StorageError("RT-S4",
                               detail::concat("cannot read ", path.string(), ": the file has ",
                                              bytes, " bytes, but expected at most ", limit));
        }
    };
    const std::uint64_t size = file->size();
    check(size);
    for (std::string text;;) {
        const std::size_t at = text.size();
        text.resize(at == 0 && size > 0 ? static_cast<std::size_t>(size) + 1 : at + piece);
        const std::size_t got = file->read(text.data() + at, text.size() - at);
        const bool ends = at + got < text.size();
        text.resize(at + got);
        check(text.size());
        if (ends) {
            return text;
        }
    }
}

/// Throws StorageError [RT-S3] for `error`.
inline void require(const std::error_code& error, std::string_view action,
                    const std::filesystem::path& path) {
    if (error) {
        errno = error.value();
        throw system_error(action, path);
    }
}

/// Creates a directory and its parents.
inline void create_directories(const std::filesystem::path& directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    require(error, "create", directory);
}

/// Removes a file, or a directory recursively; a missing path is not an error.
inline void remove_all(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    require(error, "remove", path);
}

namespace internal {

/// Identifies a directory among all that were or will be at its path. nullopt if the file system
/// does not report creation times.
[[nodiscard]] inline std::optional<std::array<std::uint64_t, 5>>
identity_of(const std::filesystem::path& directory) {
    struct statx it {};
    if (::statx(AT_FDCWD, directory.c_str(), 0, STATX_INO | STATX_BTIME, &it) != 0 ||
        (it.stx_mask & STATX_BTIME) == 0) {
        return std::nullopt;
    }
    return std::array<std::uint64_t, 5>{it.stx_dev_major, it.stx_dev_minor, it.stx_ino,
                                        static_cast<std::uint64_t>(it.stx_btime.tv_sec),
                                        it.stx_btime.tv_nsec};
}

/// The last directory whose path this process has made durable.
class DurablePath {
public:
    [[nodiscard]] static DurablePath& current() {
        static DurablePath path;
        return path;
    }
    DurablePath(const DurablePath&) = delete;
    DurablePath& operator=(const DurablePath&) = delete;

    [[nodiscard]] bool is(const std::filesystem::path& directory) {
        const std::lock_guard lock(mutex_);
        return directory == path_ && identity_ && identity_of(directory) == identity_;
    }
    void set(const std::filesystem::path& directory) {
        const std::lock_guard lock(mutex_);
        path_ = directory;
        identity_ = identity_of(directory);
    }

private:
    DurablePath() = default;
    std::mutex mutex_;
    std::filesystem::path path_;
    std::optional<std::array<std::uint64_t, 5>> identity_;
};

} // namespace internal

/// Makes the names of a directory and of its parents durable, even if created by a process that was
/// killed. Stops at mount points. Runs share parents, which are synced only once.
inline void sync_path_to(const std::filesystem::path& directory) {
    const auto device_of = [](const std::filesystem::path& path) {
        struct stat status {};
        return ::stat(path.c_str(), &status) == 0 ? std::optional(status.st_dev) : std::nullopt;
    };
    const auto device = device_of(directory);
    const auto whole = std::filesystem::absolute(directory).lexically_normal();
    auto& durable = internal::DurablePath::current();
    for (auto at = whole; at.has_relative_path() && device_of(at.parent_path()) == device &&
                          (at == whole || !durable.is(at));
         at = at.parent_path()) {
        if (::access(at.parent_path().c_str(), R_OK) == 0) { // else nothing was created in it
            sync_directory(at.parent_path());
        }
    }
    durable.set(whole.parent_path());
}

/// Creates a directory and its parents, `durably` or not. Throws StorageError [RT-S1] if it cannot
/// be created or no file can be written into it.
inline void require_writable(const std::filesystem::path& directory, bool durably = true) {
    const std::filesystem::path probe = temporary_beside(directory / "write-test");
    try {
        storage::create_directories(directory);
        if (durably) {
            sync_path_to(directory);
        }
        OutputFile(probe).write("x");
        storage::remove_all(probe);
    } catch (const StorageError& error) {
        std::error_code ignored;
        std::filesystem::remove(probe, ignored);
        throw StorageError("RT-S1", detail::concat("cannot write to ", directory.string(), ": ",
                                                   error.message(),
                                                   "; set storage_path to a writable directory"));
    }
}

} // namespace rtrain::storage
