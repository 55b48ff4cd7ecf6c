// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shares indices within this process and between the processes of this node. The ranks of a node,
/// which open a data set at the same time, each index a share of its files; those of the next run
/// index none. Includes no libtorch.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/file_lock.hpp>
#include <rtrain/storage/node/node_directory.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sys/file.h>

namespace rtrain::data {

/// Identifies an index: equal keys have equal indices. `kind` defines the rows.
[[nodiscard]] inline std::string index_key(const storage::RandomAccessFile& file,
                                           const std::string& kind) {
    return detail::concat(index::magic, '\n', file.uri(), '\n', file.size(), '\n',
                          file.modified_ns(), '\n', kind, '\n');
}

/// The indices of this process, by index_key().
class IndexCache {
public:
    [[nodiscard]] static IndexCache& instance() {
        static IndexCache cache;
        return cache;
    }

    /// Null if it is not cached.
    [[nodiscard]] std::shared_ptr<const FileIndex> find(const std::string& key) const {
        const std::scoped_lock lock(mutex_);
        const auto found = known_.find(key);
        return found == known_.end() ? nullptr : found->second;
    }
    void forget(const std::string& key) {
        const std::scoped_lock lock(mutex_);
        known_.erase(key);
    }
    void keep(const std::string& key, std::shared_ptr<const FileIndex> index) {
        const std::scoped_lock lock(mutex_);
        known_[key] = std::move(index);
    }

private:
    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<const FileIndex>> known_;
};

/// The file through which processes of this node share an index. Its lock selects the process that
/// creates it, and is released when that process dies. An incomplete file, or one for an earlier
/// version of the data, is ignored. If the file or lock is not possible, each process indexes by
/// itself.
class NodeIndex {
public:
    NodeIndex(const storage::RandomAccessFile& file, const std::string& kind)
        : key_(index_key(file, kind)) {
        try {
            const auto directory = storage::node_directory() / "indices";
            std::filesystem::create_directory(directory);
            path_ = directory / storage::hash_text(detail::concat(file.uri(), '\n', kind));
            lock_.emplace(path_);
        } catch (const std::exception&) { // such as TMPDIR on a full disk
            lock_.reset();
        }
    }

    [[nodiscard]] bool try_lock() {
        try {
            return !lock_ || lock_->try_lock(LOCK_EX);
        } catch (const StorageError&) {
            lock_.reset();
            return true;
        }
    }

    /// Null if it does not exist, or belongs to a file with a different sample_of().
    [[nodiscard]] std::shared_ptr<const FileIndex> read(std::uint32_t sample) const {
        if (!lock_) {
            return nullptr;
        }
        std::string bytes;
        try {
            bytes = storage::read_file(path_);
        } catch (const StorageError&) { // another process has removed it
        }
        if (bytes.size() < key_.size() + checksum_bytes || !bytes.starts_with(key_)) {
            return nullptr;
        }
        const auto content = std::string_view(bytes).substr(0, bytes.size() - checksum_bytes);
        if (index::number_at(bytes, content.size()) != checkpoint::crc32c(content)) {
            return nullptr;
        }
        auto index = std::make_shared<const FileIndex>(parse_index(content.substr(key_.size())));
        return index->sample == sample || index->sample == any_sample ? index : nullptr;
    }

    /// Removes it, so that the next caller creates it again.
    void forget() const noexcept {
        std::error_code ignored;
        std::filesystem::resize_file(path_, 0, ignored);
    }

    void write(const FileIndex& index) const {
        if (!lock_) {
            return;
        }
        std::string bytes = key_ + to_bytes(index);
        index::append(bytes, checkpoint::crc32c(bytes));
        try {
            storage::OutputFile(path_).write(bytes);
        } catch (const StorageError&) { // read() finds it incomplete
        }
    }

private:
    static constexpr std::size_t checksum_bytes = 8;

    std::string key_;
    std::filesystem::path path_;
    std::optional<storage::FileLock> lock_;
};

/// Behavior of index_file() if another process is creating the index.
enum class Busy : unsigned char { skip, wait };

/// The index of a file: cached, or else from `make()`. Null if it is to skip an index that another
/// process of this node is creating; else it waits, for 10 minutes at most. A file without a
/// modification time is indexed each time.
template <class Make>
[[nodiscard]] std::shared_ptr<const FileIndex> index_file(const storage::RandomAccessFile& file,
                                                          const std::string& kind, const Make& make,
                                                          Busy busy = Busy::wait) {
    constexpr std::uint64_t worth_sharing = std::uint64_t{1} << 20U; // bytes to be read
    constexpr std::chrono::minutes patience{10};
    constexpr std::chrono::milliseconds pause{5};
    std::uint32_t known_sample = 0;
    const auto sample = [&] {
        known_sample = known_sample == 0 ? sample_of(file) : known_sample;
        return known_sample;
    };
    const auto made = [&] {
        FileIndex index = make();
        index.sample = index.sample == any_sample ? any_sample : sample();
        return std::make_shared<const FileIndex>(std::move(index));
    };
    if (file.modified_ns() == 0) {
        return made();
    }
    const std::string key = index_key(file, kind);
    const auto kept = [&](std::shared_ptr<const FileIndex> index) {
        IndexCache::instance().keep(key, index);
        return index;
    };
    const auto known = IndexCache::instance().find(key);
    if (known && (known->sample == any_sample || known->sample == sample())) {
        return known;
    }
    if (file.size() < worth_sharing) {
        return kept(made());
    }
    NodeIndex shared(file, kind);
    for (const auto limit = std::chrono::steady_clock::now() + patience;;) {
        const bool is_mine = shared.try_lock();
        if (auto index = shared.read(sample())) {
            return kept(std::move(index));
        }
        if (is_mine || std::chrono::steady_clock::now() >= limit) {
            auto index = made();
            if (is_mine) {
                shared.write(*index);
            }
            return kept(std::move(index));
        }
        if (busy == Busy::skip) {
            return nullptr;
        }
        std::this_thread::sleep_for(pause);
    }
}

/// Returns the result of `read()`. If that throws because the file has changed since it was indexed
/// (RT-D29), the index is removed, so that a restart creates it again.
template <class Read>
[[nodiscard]] auto with_sound_index(const storage::RandomAccessFile& file, const std::string& kind,
                                    const Read& read) {
    try {
        return read();
    } catch (const DataError& error) {
        if (error.is("RT-D29")) {
            IndexCache::instance().forget(index_key(file, kind));
            NodeIndex(file, kind).forget();
        }
        throw;
    }
}

/// The indices of files, in their order; `make(file)` creates one. Those that no other process of
/// this node is creating are handled first.
template <class Make>
[[nodiscard]] std::vector<std::shared_ptr<const FileIndex>>
index_files(const std::vector<storage::RandomAccessFile>& files, const std::string& kind,
            const Make& make) {
    std::vector<std::shared_ptr<const FileIndex>> indices(files.size());
    for (const Busy busy : {Busy::skip, Busy::wait}) {
        for (std::size_t i = 0; i < files.size(); ++i) {
            if (!indices[i]) {
                indices[i] = index_file(
                    files[i], kind, [&] { return make(files[i]); }, busy);
            }
        }
    }
    return indices;
}

} // namespace rtrain::data
