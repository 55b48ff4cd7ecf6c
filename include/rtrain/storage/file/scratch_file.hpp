// SPDX-License-Identifier: Apache-2.0
/// ScratchFile: a file for data that does not fit in memory. Memory-mapped, and read and written
/// past the page cache. It has no name, so nothing is left however the process ends.
#pragma once

#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/storage/file/file.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rtrain::storage {

class ScratchFile {
public:
    /// A range of the file, in whole pages.
    struct Region {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
        std::size_t begin = 0; ///< offset in the file
    };

    /// Throws StorageError [RT-S3] unless files can be created in `directory`.
    explicit ScratchFile(std::filesystem::path directory) : directory_(std::move(directory)) {
        file_ =
            process::Descriptor(::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
        if (file_.get() < 0 && errno != ENOENT && errno != ENOTDIR) { // may be unsupported
            std::string name = (directory_ / ".rtrain-XXXXXX").string();
            file_ = process::Descriptor(::mkostemp(name.data(), O_CLOEXEC));
            if (file_.get() >= 0) {
                ::unlink(name.c_str());
            }
        }
        if (file_.get() < 0) {
            throw system_error("create a file in", directory_);
        }
        const std::string again = "/proc/self/fd/" + std::to_string(file_.get());
        direct_ = process::Descriptor(::open(again.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
        is_direct_ = direct_.get() >= 0;
    }
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;
    ~ScratchFile() {
        for (const Region& region : regions_) {
            ::munmap(region.data, region.bytes);
        }
    }

    /// Returns a zeroed region that lives as long as this object. Disk space is reserved, so writes
    /// cannot fail. Throws StorageError [RT-S3].
    [[nodiscard]] Region map(std::size_t bytes) {
        Region region;
        region.bytes = (bytes + page - 1) / page * page;
        region.begin = end_;
        if (const int error = ::posix_fallocate(file_.get(), static_cast<off_t>(region.begin),
                                                static_cast<off_t>(region.bytes));
            error != 0) {
            errno = error;
            throw system_error("reserve " + std::to_string(bytes) + " bytes in", directory_);
        }
        void* const data = ::mmap(nullptr, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                  file_.get(), static_cast<off_t>(region.begin));
        if (data == MAP_FAILED) {
            throw system_error("map a file in", directory_);
        }
        region.data = static_cast<std::byte*>(data);
        end_ += region.bytes;
        regions_.push_back(region);
        return region;
    }

    /// Copies a region to `to`, which is aligned to `page` and has space for region.bytes. The
    /// region must not change during the call. Throws StorageError [RT-S3].
    void read(const Region& region, std::byte* to) const {
        transfer(region, to, "read from", ::pread);
    }
    /// Copies `from` to a region; region.data shows the new bytes.
    void write(const Region& region, std::byte* from) const {
        transfer(region, from, "write to", ::pwrite);
    }

    /// Waits until the disk has what was written to region.data, and frees its memory, in this
    /// process and in the page cache.
    void drop(const Region& region) const {
        constexpr unsigned all =
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        (void)::sync_file_range(file_.get(), begin_of(region), size_of(region), all);
        (void)::madvise(region.data, region.bytes, MADV_DONTNEED); // shared: the bytes stay
        (void)::posix_fadvise(file_.get(), begin_of(region), size_of(region), POSIX_FADV_DONTNEED);
    }

    static constexpr std::size_t page = 4096;

private:
    template <class Call>
    void transfer(const Region& region, std::byte* memory, const char* what, Call&& call) const {
        for (std::size_t done = 0; done < region.bytes;) {
            const bool direct = is_direct_;
            const ssize_t moved =
                call(direct ? direct_.get() : file_.get(), memory + done, region.bytes - done,
                     static_cast<off_t>(region.begin + done));
            if (moved > 0) {
                done += static_cast<std::size_t>(moved);
            } else if (moved < 0 && errno == EINVAL && direct) {
                is_direct_ = false;
            } else if (moved == 0 || errno != EINTR) {
                errno = moved == 0 ? EIO : errno; // the file ends after all regions
                throw system_error(what, directory_);
            }
        }
        if (!is_direct_) {
            drop(region);
        }
    }

    [[nodiscard]] static off_t begin_of(const Region& region) {
        return static_cast<off_t>(region.begin);
    }
    [[nodiscard]] static off_t size_of(const Region& region) {
        return static_cast<off_t>(region.bytes);
    }

    std::filesystem::path directory_;
    process::Descriptor file_;
    process::Descriptor direct_; ///< the same file with O_DIRECT; not supported by all file systems
    mutable std::atomic<bool> is_direct_ = false;
    std::size_t end_ = 0;
    std::vector<Region> regions_;
};

} // namespace rtrain::storage
