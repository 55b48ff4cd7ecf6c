// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoint files, written and read with their checksums.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/storage/file/bulk_file.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/safe_name.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace rtrain::checkpoint {

/// A file being written; its checksums are computed meanwhile.
class CheckedFile {
public:
    /// `name` is relative to the checkpoint's `directory`.
    CheckedFile(const std::filesystem::path& directory, std::string name)
        : name_(std::move(name)), file_(directory / name_) {}

    void write(const void* data, std::size_t bytes) {
        file_.write(data, bytes, sums_);
        size_ += bytes;
    }
    void write(std::string_view text) { write(text.data(), text.size()); }

    /// Makes the bytes durable.
    [[nodiscard]] FileRecord finish() {
        file_.finish(sums_);
        return {name_, size_, sums_.finish()};
    }

private:
    std::string name_;
    storage::BulkFile file_;
    ChunkSums sums_;
    std::size_t size_ = 0;
};

/// Reads a whole file, and returns its record. Throws StorageError [RT-S3, RT-S4].
[[nodiscard]] inline FileRecord record_of(const std::filesystem::path& directory,
                                          const std::string& name) {
    storage::InputFile file(directory / name);
    std::vector<char> buffer(3 * ChunkSums::chunk);
    ChunkSums sums;
    std::uint64_t size = 0;
    while (const std::size_t got = file.read(buffer.data(), buffer.size())) {
        sums.add(buffer.data(), got);
        size += got;
    }
    return {name, size, sums.finish()};
}

/// The end of a sentence that begins with a file's name.
inline constexpr const char* not_a_plain_file =
    "is a symbolic link, is reached through one, or is not an ordinary file, which a checkpoint "
    "does not contain";

/// Describes the damage of a file, as the end of a sentence that begins with its name; empty if the
/// file is as it was written.
[[nodiscard]] inline std::optional<std::string> damage_of(const std::filesystem::path& directory,
                                                          const FileRecord& expected) {
    std::error_code error;
    if (!is_plain_file(directory, expected.name)) {
        const auto status = std::filesystem::symlink_status(directory / expected.name, error);
        return std::filesystem::exists(status) ? not_a_plain_file : "is missing";
    }
    const auto size = std::filesystem::file_size(directory / expected.name, error);
    if (error || size != expected.size) { // any size is possible: do not read it
        return detail::concat("is ", error ? 0 : size, " bytes long instead of ", expected.size);
    }
    const FileRecord found = record_of(directory, expected.name);
    if (found.size != expected.size) {
        return "changed while it was read";
    }
    const auto [first, unused] =
        std::mismatch(found.sums.begin(), found.sums.end(), expected.sums.begin());
    if (first != found.sums.end()) {
        const auto chunk = static_cast<std::uint64_t>(first - found.sums.begin());
        return detail::concat("does not have the checksum it was written with, between bytes ",
                              chunk * ChunkSums::chunk, " and ",
                              std::min((chunk + 1) * ChunkSums::chunk, expected.size));
    }
    return std::nullopt;
}

} // namespace rtrain::checkpoint
