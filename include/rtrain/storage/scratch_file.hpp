// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that is a file: what this process writes there goes to the disk, and takes no memory when
/// it is dropped. The file has no name, so that nothing stays behind however the process ends.
#pragma once

#include <rtrain/process/descriptor.hpp>
#include <rtrain/storage/file.hpp>

#include <algorithm>
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
    /// Some of its bytes, in whole pages.
    struct Region {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
        std::size_t begin = 0; ///< in the file
    };

    /// Throws StorageError [RT-S3] unless `directory` is one in which files can be made.
    explicit ScratchFile(std::filesystem::path directory) : directory_(std::move(directory)) {
        file_ =
            process::Descriptor(::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
        if (file_.get() < 0 && errno != ENOENT && errno != ENOTDIR) { // not all file systems can
            std::string name = (directory_ / ".rtrain-XXXXXX").string();
            file_ = process::Descriptor(::mkostemp(name.data(), O_CLOEXEC));
            if (file_.get() >= 0) {
                ::unlink(name.c_str());
            }
        }
        if (file_.get() < 0) {
            throw system_error("make a file in", directory_);
        }
    }
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;
    ~ScratchFile() {
        for (const Region& region : regions_) {
            ::munmap(region.data, region.bytes);
        }
    }

    /// Zeroed, for as long as this lives. The disk has room for it: writing there cannot fail.
    /// Throws StorageError [RT-S3].
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

    /// Begins to read a region: it is needed soon.
    static void fetch(const Region& region) {
        (void)::madvise(region.data, region.bytes, MADV_WILLNEED);
    }
    /// Begins to write what has been changed in it.
    void begin_writing(const Region& region) const {
        (void)::sync_file_range(file_.get(), begin_of(region), size_of(region),
                                SYNC_FILE_RANGE_WRITE);
    }
    /// Waits until the disk has it, and gives its memory back; not only this process's, but what
    /// the system keeps of the file, too.
    void drop(const Region& region) const {
        constexpr unsigned all =
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        (void)::sync_file_range(file_.get(), begin_of(region), size_of(region), all);
        (void)::madvise(region.data, region.bytes, MADV_DONTNEED); // shared: the bytes stay
        (void)::posix_fadvise(file_.get(), begin_of(region), size_of(region), POSIX_FADV_DONTNEED);
    }

private:
    static constexpr std::size_t page = 4096;

    [[nodiscard]] static off_t begin_of(const Region& region) {
        return static_cast<off_t>(region.begin);
    }
    [[nodiscard]] static off_t size_of(const Region& region) {
        return static_cast<off_t>(region.bytes);
    }

    std::filesystem::path directory_;
    process::Descriptor file_;
    std::size_t end_ = 0;
    std::vector<Region> regions_;
};

} // namespace rtrain::storage
