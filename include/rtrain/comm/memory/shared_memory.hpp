// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that the ranks of a node share. It has no name in any file system, so nothing remains
/// however the ranks end. The size of /dev/shm (64 MiB in a container) does not limit it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/file_size_limit.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

namespace rtrain::comm {

/// A mapping, zeroed when created. One process calls create() and passes ticket() to the others,
/// which call open() before close_file().
class SharedMemory {
public:
    /// Location and identity of the memory for other processes of this machine: a process of
    /// another container may have the same number.
    struct Ticket {
        std::int64_t process = 0;
        std::int64_t file = -1;
        std::int64_t device = 0;
        std::int64_t inode = 0;
    };

    /// Throws CommError [RT-X12] if the kernel does not provide this much memory. It is reserved
    /// here: accessing it later cannot fail.
    [[nodiscard]] static SharedMemory create(std::size_t bytes) {
        if (bytes > memory_of_machine()) { // the kernel would try, and kill some process for it
            errno = ENOMEM;
            fail("sysinfo", bytes);
        }
        SharedMemory memory;
        memory.file_ = ::memfd_create("rtrain", MFD_CLOEXEC);
        if (memory.file_ < 0) {
            fail("memfd_create", bytes);
        }
        int error = 0;
        {
            const launch::SignalsBlocked quiet; // a profiler's signal would interrupt it
            error = ::posix_fallocate(memory.file_, 0, static_cast<off_t>(bytes));
        }
        if (error != 0) {
            errno = error;
            fail("posix_fallocate", bytes);
        }
        memory.map(bytes);
        return memory;
    }

    /// Throws CommError [RT-X12] if the memory of that process cannot be reached, for example from
    /// another container.
    [[nodiscard]] static SharedMemory open(const Ticket& ticket, std::size_t bytes) {
        SharedMemory memory;
        const auto path = detail::concat("/proc/", ticket.process, "/fd/", ticket.file);
        struct stat found {}; // before it is opened: it may be anything
        if (::stat(path.c_str(), &found) != 0) {
            fail("stat " + path, bytes);
        }
        if (static_cast<std::int64_t>(found.st_dev) != ticket.device ||
            static_cast<std::int64_t>(found.st_ino) != ticket.inode ||
            static_cast<std::size_t>(found.st_size) != bytes) {
            fail_because(
                path +
                    " is a different file here than on the rank that created the memory; ranks of "
                    "a node have to see each other's processes (in containers: one PID namespace)",
                bytes);
        }
        memory.file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (memory.file_ < 0) {
            fail("open " + path, bytes);
        }
        memory.map(bytes);
        return memory;
    }

    SharedMemory() = default;
    SharedMemory(SharedMemory&& other) noexcept
        : file_(std::exchange(other.file_, -1)), data_(std::exchange(other.data_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    SharedMemory& operator=(SharedMemory&& other) noexcept {
        std::swap(file_, other.file_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~SharedMemory() {
        close_file();
        if (data_ != nullptr) {
            ::munmap(data_, bytes_);
        }
    }

    /// Before close_file(). Throws CommError [RT-X12].
    [[nodiscard]] Ticket ticket() const {
        struct stat made {};
        if (::fstat(file_, &made) != 0) {
            fail("fstat", bytes_);
        }
        return {.process = ::getpid(),
                .file = file_,
                .device = static_cast<std::int64_t>(made.st_dev),
                .inode = static_cast<std::int64_t>(made.st_ino)};
    }
    /// Called after all have opened it; the mapping stays.
    void close_file() {
        if (file_ >= 0) {
            ::close(std::exchange(file_, -1));
        }
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

    /// Returns the memory at another address, where what this process writes stays in this process.
    /// A page that it has not written is that of the memory. Before close_file(). Unmap it with
    /// munmap().
    [[nodiscard]] std::byte* map_private() const {
        void* const again =
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file_, 0);
        if (again == MAP_FAILED) {
            fail("mmap", bytes_);
        }
        return populated(again);
    }
    /// Returns the same memory at another address, read-only for this process. Unmap it with
    /// munmap().
    [[nodiscard]] std::byte* map_read_only() const {
        void* const again = ::mremap(data_, 0, bytes_, MREMAP_MAYMOVE); // 0: the old mapping stays
        if (again == MAP_FAILED) {
            fail("mremap", bytes_);
        }
        if (::mprotect(again, bytes_, PROT_READ) != 0) {
            const int error = errno;
            ::munmap(again, bytes_);
            errno = error;
            fail("mprotect", bytes_);
        }
        return populated(again);
    }

private:
    [[nodiscard]] std::byte* populated(void* mapping) const {
#ifdef MADV_POPULATE_READ
        (void)::madvise(mapping, bytes_, MADV_POPULATE_READ); // as in map(); an old kernel lacks it
#endif
        return static_cast<std::byte*>(mapping);
    }
    [[nodiscard]] static std::size_t memory_of_machine() {
        struct sysinfo machine {};
        return ::sysinfo(&machine) == 0
                   ? (std::size_t{machine.totalram} + machine.totalswap) * machine.mem_unit
                   : std::numeric_limits<std::size_t>::max();
    }

    /// Page faults cost 1 to 5 us each in a virtual machine: all are taken here, not in the step.
    void map(std::size_t bytes) {
        void* const data =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, 0);
        if (data == MAP_FAILED) {
            fail("mmap", bytes);
        }
        data_ = static_cast<std::byte*>(data);
        bytes_ = bytes;
    }

    [[noreturn]] static void fail(const std::string& call, std::size_t bytes) {
        const bool too_large = errno == EFBIG;
        fail_because(call + ": " + std::strerror(errno) +
                         (too_large ? process::file_size_advice() : ""),
                     bytes);
    }

    [[noreturn]] static void fail_because(const std::string& reason, std::size_t bytes) {
        throw CommError("RT-X12",
                        detail::concat("cannot share ", bytes,
                                       " bytes of memory with the ranks of this node: ", reason));
    }

    int file_ = -1;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace rtrain::comm
