// SPDX-License-Identifier: Apache-2.0
/// @file
/// RandomAccessFile: a file of any file system, read in parts.
#pragma once

#include <rtrain/process/context.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/storage/node/node_cache.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace rtrain::storage {

/// Reads directly if the file system has read_at(). Otherwise the first read downloads the file,
/// once per node; the copy exists while any process of the node has such a file open. Copies of
/// this object share the file, and several threads may read at a time.
class RandomAccessFile {
public:
    /// `size` and `modified_ns`: see Entry; they identify the version of the file.
    RandomAccessFile(AnyFilesystem files, std::string path, std::uint64_t size,
                     std::int64_t modified_ns, TransferConfig config = {})
        : held_(std::make_shared<Held>(std::move(files), std::move(path), size, modified_ns,
                                       std::move(config))) {}

    /// Same for a file in `copy` that represents the file called `uri` in messages.
    RandomAccessFile(NodeCopy copy, std::string path, std::uint64_t size, std::int64_t modified_ns,
                     std::string uri)
        : RandomAccessFile(AnyFilesystem(Local{}), std::move(path), size, modified_ns) {
        held_->copy = std::move(copy);
        held_->uri = std::move(uri);
    }

    /// Returns `length` bytes from `offset`; fewer at the end of the file, and none after it.
    /// Throws StorageError like RandomAccessFilesystem and copy_to_node(). Marks this process as
    /// reading meanwhile.
    [[nodiscard]] std::string read_at(std::uint64_t offset, std::size_t length) const {
        const Reading reading(ProcessContext::current().readings, uri());
        if (held_->files.reads_at()) {
            return held_->files.read_at(held_->path, offset, length);
        }
        return Local{}.read_at(local_copy(), offset, length);
    }
    /// Same into the caller's memory. Returns the number of bytes read.
    [[nodiscard]] std::size_t read_into(std::uint64_t offset, std::span<char> bytes) const {
        const Reading reading(ProcessContext::current().readings, uri());
        if (held_->files.is_local() || !held_->files.reads_at()) {
            return Local{}.read_into(held_->files.is_local() ? held_->path : local_copy(), offset,
                                     bytes);
        }
        const std::string read = held_->files.read_at(held_->path, offset, bytes.size());
        read.copy(bytes.data(), bytes.size());
        return std::min(read.size(), bytes.size());
    }

    [[nodiscard]] const std::string& path() const noexcept { return held_->path; }
    /// Returns the original name, also for messages: "s3://bucket/data/a.txt".
    [[nodiscard]] std::string uri() const {
        return held_->uri.empty() ? held_->files.uri(held_->path) : held_->uri;
    }
    [[nodiscard]] std::uint64_t size() const noexcept { return held_->size; }
    [[nodiscard]] std::int64_t modified_ns() const noexcept { return held_->modified_ns; }
    [[nodiscard]] const AnyFilesystem& filesystem() const noexcept { return held_->files; }

private:
    struct Held {
        Held(AnyFilesystem of, std::string at, std::uint64_t bytes, std::int64_t modified,
             TransferConfig transfers)
            : files(std::move(of)), path(std::move(at)), size(bytes), modified_ns(modified),
              config(std::move(transfers)) {}
        AnyFilesystem files;
        std::string path;
        std::uint64_t size;
        std::int64_t modified_ns;
        TransferConfig config;
        std::mutex mutex;
        std::optional<NodeCopy> copy;
        std::string uri; ///< empty: derived from the path
    };

    [[nodiscard]] std::string local_copy() const {
        const auto slash = held_->path.rfind('/');
        const std::string directory =
            slash == std::string::npos ? "" : held_->path.substr(0, slash);
        const std::string name =
            slash == std::string::npos ? held_->path : held_->path.substr(slash + 1);
        const std::scoped_lock lock(held_->mutex);
        if (!held_->copy) {
            held_->copy =
                copy_to_node(held_->files, directory, {{.name = name, .size = held_->size}},
                             std::to_string(held_->modified_ns), held_->config);
        }
        return (held_->copy->directory() / name).string();
    }

    std::shared_ptr<Held> held_;
};

} // namespace rtrain::storage
