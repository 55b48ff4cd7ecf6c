// SPDX-License-Identifier: Apache-2.0
/// @file
/// ArrowFilesystem: any Apache Arrow file system as a storage::Filesystem.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/cloud/arrow_status.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/filesystem.hpp>

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/future.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rtrain::storage {

/// Adapts an Arrow file system.
class ArrowFilesystem {
public:
    /// `scheme`: as in URIs; object stores have no real directories.
    ArrowFilesystem(std::shared_ptr<arrow::fs::FileSystem> files, std::string scheme)
        : files_(std::move(files)), scheme_(std::move(scheme)),
          has_directories_(scheme_ == "hdfs" || scheme_ == "viewfs") {}

    /// On an object store, lists all files below `path`, with one request per 1000.
    [[nodiscard]] std::vector<Entry> list(const std::string& path) const {
        arrow::fs::FileSelector selector;
        selector.base_dir = path;
        selector.allow_not_found = true;
        // Arrow leaves markers of empty directories; only files show which are in use.
        selector.recursive = !has_directories_;
        std::map<std::string, Entry> entries;
        for (const auto& info :
             internal::require(files_->GetFileInfo(selector), "list", uri(path))) {
            std::string name = info.path().substr(std::min(path.size() + 1, info.path().size()));
            const auto slash = name.find('/');
            if (!info.IsFile() && !has_directories_) {
                continue;
            }
            const bool is_directory = slash != std::string::npos || !info.IsFile();
            name.resize(std::min(slash, name.size()));
            entries[name] = {.name = name,
                             .size = is_directory ? 0 : static_cast<std::uint64_t>(info.size()),
                             .is_directory = is_directory,
                             .modified_ns = is_directory ? 0 : modified_ns(info)};
        }
        std::vector<Entry> found;
        for (auto& [name, entry] : entries) {
            const bool is_former = has_directories_ && name.ends_with(former_suffix);
            entry.name.resize(name.size() - (is_former ? former_suffix.size() : 0));
            if (!is_former || !entries.contains(entry.name)) {
                found.push_back(std::move(entry));
            }
        }
        return found;
    }

    [[nodiscard]] std::string read(const std::string& path) const {
        const auto file = open(path, "read");
        const auto size = internal::require(file->GetSize(), "read", uri(path));
        if (size > static_cast<std::int64_t>(storage::largest_text)) {
            throw StorageError(
                "RT-S4", rtrain::detail::concat("cannot read ", uri(path), ": the file has ", size,
                                                " bytes, but expected at most ", largest_text));
        }
        const auto bytes = internal::require(file->Read(size), "read", uri(path));
        require_all(bytes->size(), size, "read", path);
        return bytes->ToString();
    }

    /// Queries the size each time: Arrow's S3 pads reads past the end of a file.
    [[nodiscard]] std::string read_at(const std::string& path, std::uint64_t offset,
                                      std::size_t length) const {
        const auto file = open(path, "read");
        const auto size =
            static_cast<std::uint64_t>(internal::require(file->GetSize(), "read", uri(path)));
        const std::uint64_t bytes = std::min<std::uint64_t>(length, size - std::min(offset, size));
        if (bytes == 0) {
            return "";
        }
        const auto part = internal::require(
            file->ReadAt(static_cast<std::int64_t>(offset), static_cast<std::int64_t>(bytes)),
            "read", uri(path));
        require_all(part->size(), static_cast<std::int64_t>(bytes), "read", path);
        return part->ToString();
    }

    [[nodiscard]] std::optional<Entry> look_at(const std::string& path) const {
        const auto info = info_of(path, "stat");
        const auto name = std::filesystem::path(path).filename().string();
        if (info.IsFile()) {
            return Entry{.name = name,
                         .size = static_cast<std::uint64_t>(info.size()),
                         .modified_ns = modified_ns(info)};
        }
        if (exists(path)) {
            return Entry{.name = name, .is_directory = true};
        }
        return std::nullopt;
    }

    void write(const std::string& path, std::string_view text) const {
        replace(path, "write", [&](arrow::io::OutputStream& out) {
            internal::require(out.Write(text.data(), static_cast<std::int64_t>(text.size())),
                              "write", uri(path));
        });
    }

    /// Uploads large files in parts, several at a time.
    void upload(const std::filesystem::path& local, const std::string& path) const {
        std::ifstream in = storage::open_stream(local);
        if (!in) {
            throw StorageError("RT-S4", rtrain::detail::concat("cannot read ", local.string()));
        }
        replace(path, "upload to", [&](arrow::io::OutputStream& out) {
            for (int parts = 1; in; ++parts) {
                auto part = internal::require(arrow::AllocateResizableBuffer(part_bytes),
                                              "upload to", uri(path));
                in.read(reinterpret_cast<char*>(part->mutable_data()), part_bytes);
                internal::require(part->Resize(in.gcount(), false), "upload to", uri(path));
                internal::require(out.Write(std::shared_ptr<arrow::Buffer>(std::move(part))),
                                  "upload to", uri(path));
                if (parts % parts_at_a_time == 0) { // bounds the memory
                    internal::require(out.Flush(), "upload to", uri(path));
                }
            }
            if (!in.eof()) {
                throw StorageError("RT-S4", rtrain::detail::concat("cannot read ", local.string()));
            }
        });
    }

    /// Downloads large files in parts, several at a time.
    void download(const std::string& path, const std::filesystem::path& local) const {
        const auto file = open(path, "download");
        const auto size = internal::require(file->GetSize(), "download", uri(path));
        const auto temporary = temporary_beside(local);
        std::deque<arrow::Future<std::shared_ptr<arrow::Buffer>>> parts;
        try {
            OutputFile out(temporary);
            std::int64_t asked = 0;
            for (std::int64_t written = 0; written < size;) {
                while (asked < size && parts.size() < parts_at_a_time) {
                    const auto bytes = std::min(part_bytes, size - asked);
                    parts.push_back(file->ReadAsync(asked, bytes));
                    asked += bytes;
                }
                const auto expected = std::min(part_bytes, size - written);
                const auto part = internal::require(parts.front().result(), "download", uri(path));
                parts.pop_front();
                require_all(part->size(), expected, "download", path);
                out.write(part->data(), static_cast<std::size_t>(part->size()));
                written += part->size();
            }
            out.close();
            std::filesystem::rename(temporary, local);
        } catch (...) {
            for (const auto& part : parts) {
                part.Wait();
            }
            std::error_code ignored;
            std::filesystem::remove(temporary, ignored);
            throw;
        }
    }

    void remove(const std::string& path) const {
        if (has_directories_) {
            remove_one(former_of(path));
        }
        remove_one(path);
    }

    [[nodiscard]] bool exists(const std::string& path) const {
        const auto info = info_of(path, "stat");
        return info.IsFile() || (info.IsDirectory() && (has_directories_ || !list(path).empty()));
    }

private:
    static constexpr std::int64_t part_bytes = std::int64_t{16} << 20U;
    static constexpr int parts_at_a_time = 4;
    /// Suffix of an HDFS file while it is replaced, and after its writer died during that.
    static constexpr std::string_view former_suffix = ".rtrain-former";

    [[nodiscard]] static std::string former_of(const std::string& path) {
        return path + std::string(former_suffix);
    }

    /// Also finds a file that only has its former name; then queries again, because it may have
    /// been replaced meanwhile.
    [[nodiscard]] arrow::fs::FileInfo info_of(const std::string& path,
                                              std::string_view action) const {
        const auto look = [&](const std::string& at) {
            return internal::require(files_->GetFileInfo(at), action, uri(path));
        };
        auto info = look(path);
        if (has_directories_ && info.type() == arrow::fs::FileType::NotFound) {
            auto former = look(former_of(path));
            info = former.IsFile() ? std::move(former) : look(path);
        }
        return info;
    }

    void remove_one(const std::string& path) const {
        const auto info = internal::require(files_->GetFileInfo(path), "remove", uri(path));
        if (info.type() == arrow::fs::FileType::NotFound) {
            return;
        }
        const auto status = info.IsDirectory() ? files_->DeleteDir(path) : files_->DeleteFile(path);
        // Arrow reports files removed concurrently, or its own missing directory marker.
        if (!status.ok() && (!internal::is_absence(status) || exists(path))) {
            internal::throw_status(status, "remove", uri(path));
        }
    }

    [[nodiscard]] std::string uri(const std::string& path) const { return scheme_ + "://" + path; }

    [[nodiscard]] static std::int64_t modified_ns(const arrow::fs::FileInfo& info) {
        return info.mtime() == arrow::fs::kNoTime ? 0 : info.mtime().time_since_epoch().count();
    }

    [[nodiscard]] std::shared_ptr<arrow::io::RandomAccessFile> open(const std::string& path,
                                                                    std::string_view action) const {
        auto file = files_->OpenInputFile(path);
        if (!file.ok() && has_directories_) {
            file = files_->OpenInputFile(info_of(path, action).path());
        }
        return internal::require(std::move(file), action, uri(path));
    }

    void require_all(std::int64_t read, std::int64_t expected, std::string_view action,
                     const std::string& path) const {
        if (read != expected) {
            throw TransientStorageError(
                "RT-S11",
                rtrain::detail::concat("cannot ", action, ' ', uri(path), ": read ", read,
                                       " bytes, expected ", expected,
                                       "; the file may have been replaced during the read"));
        }
    }

    /// An object appears when its stream is closed, an HDFS file when it is created.
    template <class Write>
    void replace(const std::string& path, std::string_view action, Write&& write) const {
        const std::string target = has_directories_ ? temporary_beside(path).string() : path;
        const auto out = internal::require(files_->OpenOutputStream(target), action, uri(path));
        try {
            write(*out);
            // Detects failed parts: Arrow could not abort them after a failed Close().
            internal::require(out->Flush(), action, uri(path));
            internal::require(out->Close(), action, uri(path));
            if (has_directories_) {
                put_in_place(target, path, action);
            }
        } catch (...) {
            static_cast<void>(out->Abort()); // otherwise its destructor would complete the object
            if (has_directories_) {
                static_cast<void>(files_->DeleteFile(target));
            }
            throw;
        }
    }

    /// HDFS cannot replace a file atomically. At any interruption, one of the two exists.
    void put_in_place(const std::string& written, const std::string& path,
                      std::string_view action) const {
        const std::string former = former_of(path);
        const auto info = internal::require(files_->GetFileInfo(path), action, uri(path));
        if (info.type() != arrow::fs::FileType::NotFound) {
            remove_one(former); // its writer had moved the new file in place, and died
            internal::require(files_->Move(path, former), action, uri(path));
        }
        const auto status = files_->Move(written, path);
        if (!status.ok()) {
            static_cast<void>(files_->Move(former, path)); // readers also find it there
            internal::throw_status(status, action, uri(path));
        }
        remove_one(former);
    }

    std::shared_ptr<arrow::fs::FileSystem> files_;
    std::string scheme_;
    bool has_directories_;
};

static_assert(RandomAccessFilesystem<ArrowFilesystem>);

} // namespace rtrain::storage
