// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory-maps a file, read on access.
#pragma once

#include <rtrain/storage/file/file.hpp>

#include <cstddef>
#include <filesystem>
#include <span>

#include <sys/mman.h>
#include <sys/stat.h>

namespace rtrain::storage {

/// Maps a whole file privately, so that writing to the bytes does not change the file. The file may
/// be removed or replaced while mapped, but must not be truncated. Throws StorageError: RT-S3
/// cannot open, RT-S4 not a regular file.
class Mapping {
public:
    explicit Mapping(const std::filesystem::path& path) {
        const process::Descriptor file = open_to_read(path);
        struct stat status {};
        if (::fstat(file.get(), &status) == 0 && status.st_size > 0) {
            size_ = static_cast<std::size_t>(status.st_size);
            data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
        }
        if (data_ == MAP_FAILED) {
            throw system_error("map", path);
        }
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (data_ != nullptr) {
            ::munmap(data_, size_);
        }
    }
    [[nodiscard]] char* data() const noexcept { return static_cast<char*>(data_); }
    [[nodiscard]] std::span<const char> bytes() const noexcept { return {data(), size_}; }

private:
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace rtrain::storage
