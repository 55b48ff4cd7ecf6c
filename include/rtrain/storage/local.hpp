// SPDX-License-Identifier: Apache-2.0
/// @file
/// The local file system, including everything mounted in it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/filesystem.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::storage {

/// Creates a directory and its parents durably.
inline void create_directories_durably(const std::filesystem::path& directory) {
    std::error_code error;
    if (directory.empty() || std::filesystem::is_directory(directory, error)) {
        return;
    }
    const auto parent = directory.parent_path();
    create_directories_durably(parent);
    std::filesystem::create_directory(directory, error); // no error if another process created it
    if (error) {
        errno = error.value();
        throw system_error("create", directory);
    }
    sync_directory(parent.empty() ? "." : parent);
}

namespace internal {

inline void copy_contents(const std::filesystem::path& from, OutputFile& to) {
    constexpr std::size_t piece = std::size_t{1} << 20U;
    InputFile in(from, 0);
    const auto buffer = std::make_unique<char[]>(piece);
    while (const std::size_t got = in.read(buffer.get(), piece)) {
        to.write(buffer.get(), got);
    }
}

[[nodiscard]] inline std::int64_t modified_ns(const struct stat& status) noexcept {
    return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

/// A regular file, open for reading parts of it.
class OpenFile {
public:
    explicit OpenFile(const std::string& path) : path_(path), descriptor_(open_to_read(path)) {}

    [[nodiscard]] std::uint64_t size() const {
        struct stat status {};
        if (::fstat(descriptor_.get(), &status) != 0) {
            throw system_error("stat", path_);
        }
        return static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
    }

    /// Returns the number of bytes read, which is smaller only at the end of the file.
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<char> bytes) const {
        std::size_t done = 0;
        while (done < bytes.size()) {
            const ssize_t read = ::pread(descriptor_.get(), bytes.data() + done,
                                         bytes.size() - done, static_cast<off_t>(offset + done));
            if (read < 0 && errno != EINTR) {
                throw system_error("read", path_);
            }
            if (read == 0) {
                break;
            }
            done += static_cast<std::size_t>(std::max<ssize_t>(read, 0));
        }
        return done;
    }

private:
    const std::string& path_;
    process::Descriptor descriptor_;
};

} // namespace internal

/// Uses the system's paths. Writes are durable on return.
struct Local {
    [[nodiscard]] std::vector<Entry> list(const std::string& path) const {
        std::vector<Entry> entries;
        std::error_code error;
        for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
             at.increment(error)) {
            std::error_code gone; // removed concurrently by another process
            Entry entry{.name = at->path().filename().string(),
                        .size = 0,
                        .is_directory = at->is_directory(gone)};
            struct stat status {};
            if (!gone && !entry.is_directory) {
                if (::stat(at->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
                    continue; // or a socket, or a pipe
                }
                entry.size = static_cast<std::uint64_t>(status.st_size);
                entry.modified_ns = internal::modified_ns(status);
            }
            if (!gone) {
                entries.push_back(std::move(entry));
            }
        }
        if (error && error != std::errc::no_such_file_or_directory &&
            error != std::errc::not_a_directory) {
            errno = error.value();
            throw system_error("list", path);
        }
        std::ranges::sort(entries, {}, &Entry::name);
        return entries;
    }

    [[nodiscard]] std::string read(const std::string& path) const { return read_file(path); }

    [[nodiscard]] std::string read_at(const std::string& path, std::uint64_t offset,
                                      std::size_t length) const {
        const internal::OpenFile file(path);
        // A file's claimed size may exceed memory.
        const std::uint64_t size = file.size();
        std::string bytes(std::min<std::uint64_t>(length, size - std::min(offset, size)), '\0');
        bytes.resize(file.read(offset, bytes));
        return bytes;
    }
    /// Same into the caller's memory. Returns the number of bytes read.
    [[nodiscard]] std::size_t read_into(const std::string& path, std::uint64_t offset,
                                        std::span<char> bytes) const {
        const internal::OpenFile file(path);
        const std::uint64_t size = file.size();
        return file.read(offset, bytes.first(std::min<std::uint64_t>(
                                     bytes.size(), size - std::min(offset, size))));
    }

    [[nodiscard]] std::optional<Entry> look_at(const std::string& path) const {
        struct stat status {};
        if (::stat(path.c_str(), &status) != 0) {
            if (errno == ENOENT || errno == ENOTDIR) {
                return std::nullopt;
            }
            throw system_error("stat", path);
        }
        Entry entry{.name = std::filesystem::path(path).filename().string(),
                    .is_directory = S_ISDIR(status.st_mode)};
        if (!entry.is_directory) {
            entry.size = static_cast<std::uint64_t>(status.st_size);
            entry.modified_ns = internal::modified_ns(status);
        }
        return entry;
    }

    void write(const std::string& path, std::string_view text) const {
        create_directories_durably(std::filesystem::path(path).parent_path());
        replace_file(path, text);
    }

    void upload(const std::filesystem::path& local, const std::string& path) const {
        create_directories_durably(std::filesystem::path(path).parent_path());
        replace_by_copy(local, path, true);
    }

    void download(const std::string& path, const std::filesystem::path& local) const {
        replace_by_copy(path, local, false);
    }

    void remove(const std::string& path) const {
        std::error_code error;
        const auto removed = std::filesystem::remove_all(path, error);
        if (error) {
            errno = error.value();
            throw system_error("remove", path);
        }
        if (removed > 0) {
            const auto parent = std::filesystem::path(path).parent_path();
            sync_directory(parent.empty() ? "." : parent);
        }
    }

    [[nodiscard]] bool exists(const std::string& path) const { return look_at(path).has_value(); }

private:
    static void replace_by_copy(const std::filesystem::path& from, const std::filesystem::path& to,
                                bool durably) {
        replace_file_by(
            to, [&](OutputFile& file) { internal::copy_contents(from, file); }, durably);
    }
};

static_assert(RandomAccessFilesystem<Local> && detail::HasLookAt<Local>);

/// Writes without fsync on this machine; the file need not survive a power failure.
inline void replace_file_unsynced(const AnyFilesystem& files, const std::string& path,
                                  std::string_view text) {
    if (files.is_local()) {
        replace_file_unsynced(std::filesystem::path(path), text);
    } else {
        files.write(path, text);
    }
}

} // namespace rtrain::storage
