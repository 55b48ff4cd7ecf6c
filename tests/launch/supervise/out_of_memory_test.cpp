// SPDX-License-Identifier: Apache-2.0
// Whether a process was killed because memory ran out. Includes no libtorch.
#include <rtrain/launch/supervise/out_of_memory.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;

namespace {

/// A cgroup with 16 MiB of memory; path() is empty where the kernel or this user's rights forbid
/// it.
class SmallCgroup {
public:
    SmallCgroup() {
        const std::string name = "/rtrain-test-" + std::to_string(::getpid());
        // Version 1, and 2.
        for (const auto& [root, limit] :
             {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
              std::pair("/sys/fs/cgroup", "memory.max")}) {
            std::error_code error;
            const std::filesystem::path path = root + name;
            if (std::filesystem::exists(std::filesystem::path(root) / "cgroup.procs") &&
                std::filesystem::create_directory(path, error)) {
                if (std::ofstream(path / limit) << (16 << 20) << std::flush) {
                    path_ = path;
                    return;
                }
                ::rmdir(path.c_str());
            }
        }
    }
    SmallCgroup(const SmallCgroup&) = delete;
    SmallCgroup& operator=(const SmallCgroup&) = delete;
    ~SmallCgroup() { ::rmdir(path_.c_str()); }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

} // namespace

TEST_CASE("OutOfMemory.is_read_from_the_kernels_counters") {
    CHECK(launch::oom_kills_in("low 0\nhigh 0\nmax 812\noom 3\noom_kill 2\noom_group_kill 0\n") ==
          2);
    CHECK(launch::oom_kills_in("oom_kill_disable 0\nunder_oom 0\noom_kill 41") == 41);
    CHECK(launch::oom_kills_in("no_oom_kill 5\noom_kill 6\n") == 6);
    CHECK(!launch::oom_kills_in("oom_kill \nmax 1\n"));
    CHECK(!launch::oom_kills_in(""));

    const auto file =
        std::filesystem::temp_directory_path() / ("rtrain-oom-" + std::to_string(::getpid()));
    const launch::OutOfMemoryWatch without(file);
    std::ofstream(file) << "nr_free_pages 9\noom_kill 7\n";
    const launch::OutOfMemoryWatch watch(file);
    CHECK(!watch.has_killed());
    std::ofstream(file) << "nr_free_pages 9\noom_kill 8\n";
    CHECK(watch.has_killed());
    CHECK(!without.has_killed()); // it does not know how many there were before
    std::filesystem::remove(file);
    CHECK(!watch.has_killed());
}

TEST_CASE("OutOfMemory.of_a_process_is_seen") {
    const SmallCgroup cgroup;
    if (cgroup.path().empty()) {
        MESSAGE("no cgroup can be made here");
        return;
    }
    const launch::OutOfMemoryWatch watch;
    const pid_t child = ::fork();
    if (child == 0) {
        std::ofstream(cgroup.path() / "cgroup.procs") << ::getpid() << std::flush;
        std::vector<std::string> blocks;
        for (int i = 0; i < 64; ++i) {
            blocks.emplace_back(std::size_t{1} << 20, 'x');
        }
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
    CHECK(watch.has_killed());
}
