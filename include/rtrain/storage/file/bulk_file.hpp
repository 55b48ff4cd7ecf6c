// SPDX-License-Identifier: Apache-2.0
/// @file
/// BulkFile: writes large amounts of data with direct I/O: copying into the page cache costs more
/// than the disk needs, and evicts other data.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/storage/file/file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace rtrain::storage {

/// Buffers writes in blocks, and passes each to `observer.add(data, bytes)` before writing it. Uses
/// the page cache if the file system does not support direct I/O.
class BulkFile {
public:
    /// Size of a block: fits processor caches, and is a multiple of all disks' sectors.
    static constexpr std::size_t block = std::size_t{3} << 20;

    explicit BulkFile(std::filesystem::path path)
        : path_(std::move(path)),
          descriptor_(
              ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666)) {
        if (descriptor_ < 0) {
            throw system_error("create", path_);
        }
    }
    BulkFile(const BulkFile&) = delete;
    BulkFile& operator=(const BulkFile&) = delete;
    ~BulkFile() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }

    template <class Observer>
    void write(const void* data, std::size_t bytes, Observer& observer) {
        const auto* from = static_cast<const char*>(data);
        if (!buffer_) {
            buffer_.reset(static_cast<char*>(std::aligned_alloc(page, block)));
            if (!buffer_) {
                throw std::bad_alloc();
            }
        }
        while (bytes > 0) {
            const std::size_t part = std::min(bytes, block - filled_);
            std::memcpy(buffer_.get() + filled_, from, part);
            filled_ += part;
            from += part;
            bytes -= part;
            if (filled_ == block) {
                observer.add(buffer_.get(), block);
                bypass_cache(true);
                flush();
            }
        }
    }

    /// Writes the rest and syncs. Closes the file, also on an error.
    template <class Observer>
    void finish(Observer& observer) {
        if (filled_ > 0) {
            observer.add(buffer_.get(), filled_);
            bypass_cache(false); // the rest is not a whole sector
            flush();
        }
        const bool synced = ::fsync(descriptor_) == 0;
        const int error = errno;
        const bool closed = ::close(std::exchange(descriptor_, -1)) == 0 || errno == EINTR;
        if (!synced) {
            errno = error;
        }
        if (!synced || !closed) {
            throw system_error(synced ? "close" : "sync", path_);
        }
    }

private:
    static constexpr std::size_t page = 4096;

    struct Free {
        void operator()(char* memory) const noexcept { std::free(memory); }
    };

    void bypass_cache(bool wanted) noexcept {
        if (wanted != bypassing_ && !(wanted && refused_)) {
            refused_ = ::fcntl(descriptor_, F_SETFL, wanted ? O_DIRECT : 0) != 0;
            bypassing_ = wanted && !refused_;
        }
    }

    void flush() {
        for (std::size_t done = 0; done < filled_;) {
            ProcessContext::current().status.advance();
            const ssize_t written = ::write(descriptor_, buffer_.get() + done, filled_ - done);
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written < 0 && errno == EINVAL && bypassing_) { // after a short write, for example
                bypass_cache(false);
                refused_ = true;
                continue;
            }
            if (written < 0) {
                throw system_error("write to", path_);
            }
            done += static_cast<std::size_t>(written);
        }
        filled_ = 0;
    }

    std::filesystem::path path_;
    int descriptor_;
    std::unique_ptr<char, Free> buffer_;
    std::size_t filled_ = 0;
    bool bypassing_ = false;
    bool refused_ = false;
};

} // namespace rtrain::storage
