// SPDX-License-Identifier: Apache-2.0
/// @file
/// A file system on which nothing can be locked, as NFS without its lock daemon.
#pragma once

#include <rtrain/storage/file/file.hpp>

#include <cerrno>

#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace test {

inline int error_of_flock = 0; ///< 0: locks work

/// As long as it lives, no file can be locked, as on NFS without its lock daemon.
struct WithoutLocks {
    WithoutLocks() { error_of_flock = ENOLCK; }
    WithoutLocks(const WithoutLocks&) = delete;
    WithoutLocks& operator=(const WithoutLocks&) = delete;
    ~WithoutLocks() { error_of_flock = 0; }
};

} // namespace test

/// In place of the C library's.
extern "C" [[gnu::used]] inline int flock(int descriptor, int operation) noexcept {
    if (test::error_of_flock != 0) {
        errno = test::error_of_flock;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}
