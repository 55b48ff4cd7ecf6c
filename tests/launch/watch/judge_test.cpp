// SPDX-License-Identifier: Apache-2.0
// How ranks begin and end to watch each other, with threads for ranks. mutual_watch_test.cpp has
// what they find, on real processes.
#include <rtrain/launch/watch/peer_watchdog.hpp>
#include <rtrain/process/context.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using rtrain::launch::PeerWatchdog;

namespace {

/// The temporary directory of this process, empty, until it goes.
class Temporary {
public:
    Temporary() {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "rtrain-judge-XXXXXX").string();
        REQUIRE(::mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
        ::setenv("TMPDIR", pattern.c_str(), 1);
    }
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;
    ~Temporary() {
        ::unsetenv("TMPDIR");
        std::filesystem::remove_all(path_);
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] bool is_empty() const { return std::filesystem::is_empty(path_); }

private:
    std::filesystem::path path_;
};

/// What is said on standard error while it lives.
class StandardError {
public:
    explicit StandardError(std::filesystem::path file) : file_(std::move(file)) {
        const int to = ::open(file_.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
        ::dup2(to, STDERR_FILENO);
        ::close(to);
    }
    StandardError(const StandardError&) = delete;
    StandardError& operator=(const StandardError&) = delete;
    ~StandardError() {
        ::dup2(before_, STDERR_FILENO);
        ::close(before_);
    }
    [[nodiscard]] std::string text() const {
        std::ifstream in(file_);
        return {std::istreambuf_iterator<char>(in), {}};
    }

private:
    std::filesystem::path file_;
    int before_ = ::dup(STDERR_FILENO);
};

/// Threads that exchange texts as ranks do.
class Ranks {
public:
    explicit Ranks(int size) : texts_(static_cast<std::size_t>(size)), barrier_(size) {}

    /// Calls `act(rank, gather)` on each.
    template <class Act>
    void run(Act act) {
        std::vector<std::thread> threads;
        for (std::size_t rank = 0; rank < texts_.size(); ++rank) {
            threads.emplace_back([this, rank, act] {
                act(static_cast<int>(rank), [this, rank](const std::string& mine) {
                    texts_[rank] = mine;
                    barrier_.arrive_and_wait();
                    std::vector<std::string> all = texts_;
                    barrier_.arrive_and_wait();
                    return all;
                });
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    void wait() { barrier_.arrive_and_wait(); }

private:
    std::vector<std::string> texts_;
    std::barrier<> barrier_;
};

constexpr std::chrono::milliseconds often{50};

/// A process of its own, because it may be ended: two ranks that wait for each other, before one
/// judge. Exit code 0 when it lets them live for far longer than its limit; `loses_one`: it loses
/// the connection to a rank whose process lives.
int be_judged(bool loses_one) {
    launch::PeerHangMonitor judge(
        {.rank = 0, .size = 2, .hang = {.idle_s = 1, .busy_s = 1}, .interval = often});
    std::vector<std::unique_ptr<launch::DriverLink>> links;
    for (const int rank : {0, 1}) {
        links.push_back(launch::DriverLink::to_judge(judge.address(), judge.token(), often));
        links.back()->connect(rank, 2);
    }
    ProcessContext::current().status.enter(Phase::training);
    const RankStatus::Waiting waiting(ProcessContext::current().status, "barrier");
    if (loses_one) {
        links.pop_back();
    }
    std::this_thread::sleep_for(std::chrono::seconds(12));
    return EXIT_SUCCESS;
}

int exit_code_of(const std::string& arguments) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
    const int status = std::system((self + " " + arguments).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

TEST_CASE("HangJudge.ends_who_hangs_but_not_when_it_may_not_know" * doctest::timeout(120)) {
    CHECK(exit_code_of("--judged all") == EXIT_FAILURE);
    CHECK(exit_code_of("--judged one-lost") == EXIT_SUCCESS);
}

TEST_CASE("MutualWatch.judges_are_rank_0_its_neighbour_and_the_last" * doctest::timeout(60)) {
    CHECK(PeerWatchdog::judges(1) == std::vector<int>{0});
    CHECK(PeerWatchdog::judges(2) == std::vector<int>{0, 1});
    CHECK(PeerWatchdog::judges(3) == std::vector<int>{0, 1, 2});
    CHECK(PeerWatchdog::judges(100) == std::vector<int>{0, 1, 99});
}

TEST_CASE("MutualWatch.begins_and_ends_often_and_leaves_nothing" * doctest::timeout(240)) {
    const Temporary temporary;
    const StandardError error(temporary.path().string() + ".err");
    for (const int size : {1, 2, 5}) {
        CAPTURE(size);
        Ranks ranks(size);
        for (int time = 0; time < 10; ++time) {
            ranks.run([&](int rank, const PeerWatchdog::Gather& gather) {
                const PeerWatchdog watch(rank, size, HangConfig{}, gather);
                ranks.wait(); // all have heard that all have joined
                ProcessContext::current().status.advance();
            });
        }
    }
    CHECK(error.text().empty());
    CHECK(temporary.is_empty());
    std::filesystem::remove(temporary.path().string() + ".err");
}

TEST_CASE("MutualWatch.one_rank_can_switch_it_off_for_all" * doctest::timeout(60)) {
    const Temporary temporary;
    Ranks ranks(3);
    ranks.run([&](int rank, const PeerWatchdog::Gather& gather) {
        int calls = 0;
        const PeerWatchdog watch(rank, 3, HangConfig{.enabled = rank != 2},
                                 [&](const std::string& mine) {
                                     ++calls;
                                     return gather(mine);
                                 });
        CHECK(calls == 1);
    });
}

TEST_CASE("MutualWatch.says_why_it_cannot_be" * doctest::timeout(60)) {
    const Temporary temporary;
    const StandardError error(temporary.path() / "err");
    SUBCASE("training needs the files that may be open") {
        rlimit before{};
        ::getrlimit(RLIMIT_NOFILE, &before);
        rlimit few = before;
        few.rlim_cur = static_cast<rlim_t>(launch::open_descriptors() + 20);
        ::setrlimit(RLIMIT_NOFILE, &few);
        Ranks ranks(2);
        ranks.run([&](int rank, const PeerWatchdog::Gather& gather) {
            const PeerWatchdog watch(rank, 2, HangConfig{}, gather);
        });
        ::setrlimit(RLIMIT_NOFILE, &before);
        CHECK(error.text().find("watching 2 ranks needs") != std::string::npos);
        CHECK(error.text().find("[RT-L17]") != std::string::npos);
        CHECK(error.text().find("[RT-L19]") != std::string::npos);
    }
    SUBCASE("no judge can listen") {
        ::setenv("TMPDIR", (temporary.path() / "missing").c_str(), 1);
        Ranks ranks(2);
        ranks.run([&](int rank, const PeerWatchdog::Gather& gather) {
            const PeerWatchdog watch(rank, 2, HangConfig{}, gather);
        });
        CHECK(error.text().find("hangs of the ranks may go unnoticed") != std::string::npos);
        CHECK(error.text().find("rank 0 of 2: ") != std::string::npos);
        CHECK(error.text().find("[RT-L19]") != std::string::npos);
    }
    SUBCASE("one rank does not reach one judge") {
        Ranks ranks(3);
        ranks.run([&](int rank, const PeerWatchdog::Gather& gather) {
            int calls = 0;
            const PeerWatchdog watch(rank, 3, HangConfig{}, [&](const std::string& mine) {
                std::vector<std::string> all = gather(mine);
                if (++calls == 2 && rank == 2) { // where the judges are
                    const auto place = all[1].find("|unix=");
                    all[1] = all[1].substr(0, place) + "|unix=/nowhere ";
                }
                return all;
            });
            ranks.wait();
        });
        CHECK(error.text().find("rank 2 of 3: rank 1 was not reached") != std::string::npos);
    }
}

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 2 && words[0] == "--judged") {
        return be_judged(words[1] == "one-lost");
    }
    return doctest::Context(argc, argv).run();
}
