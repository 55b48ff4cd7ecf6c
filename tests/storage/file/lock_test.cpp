// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"
#include "support/without_locks.hpp"

#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/file_lock.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/testing/scratch.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using test::contains;
using test::error_of;
using test::WithoutLocks;

TEST_CASE("Locks.files_are_for_their_owner_only") {
    const test::Directory directory("lock-mode");
    const auto file = directory.path() / ".lock";
    for (const bool is_old : {false, true}) {
        if (is_old) {
            REQUIRE(::chmod(file.c_str(), 0644) == 0);
        }
        storage::DirectoryLock lock;
        lock.acquire(directory.path());
        struct stat status {};
        REQUIRE(::stat(file.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777U) == 0600);
    }
}

TEST_CASE("Locks.that_cannot_be_had_are_errors_and_not_taken_for_those_of_others") {
    const testing::ScratchDirectory scratch;
    storage::FileLock lock(scratch.path() / "lock");
    storage::FileLock other(scratch.path() / "lock");
    storage::DirectoryLock directory;
    REQUIRE(lock.try_lock(LOCK_EX));
    CHECK_FALSE(other.try_lock(LOCK_EX));
    const WithoutLocks here;
    for (const std::string& error : {error_of([&] { static_cast<void>(other.try_lock(LOCK_SH)); }),
                                     error_of([&] { directory.acquire(scratch.path()); })}) {
        CHECK(contains(error, "[RT-S3]"));
        CHECK(contains(error, "cannot lock " + scratch.path().string()));
        CHECK(contains(error, std::strerror(ENOLCK)));
    }
}

TEST_CASE("Locks.a_child_that_has_not_yet_called_exec_does_not_keep_a_runs_lock") {
    const test::Directory directory("lock-child");
    pid_t child = -1;
    {
        storage::DirectoryLock lock;
        lock.acquire(directory.path());
        child = ::fork();
        if (child == 0) {
            ::pause();
        }
    }
    storage::DirectoryLock next;
    CHECK_NOTHROW(next.acquire(directory.path()));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}
