// SPDX-License-Identifier: Apache-2.0
#include <rtrain/process/late_copy.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using rtrain::process::LateCopy;

namespace {

constexpr std::size_t mega = std::size_t{1} << 20;

/// Anonymous memory, as large tensors have.
class Pages {
public:
    explicit Pages(std::size_t bytes)
        : bytes_(bytes),
          begin_(static_cast<std::byte*>(
              ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        REQUIRE(begin_ != MAP_FAILED);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { ::munmap(begin_, bytes_); }

    [[nodiscard]] std::byte* data() const { return begin_; }
    [[nodiscard]] std::size_t size() const { return bytes_; }
    [[nodiscard]] bool all(int value) const {
        return std::all_of(begin_, begin_ + bytes_,
                           [&](std::byte byte) { return byte == std::byte(value); });
    }

private:
    std::size_t bytes_;
    std::byte* begin_;
};

/// How a child ends that runs `action`: what it returns, or minus the signal.
template <class Action>
int end_of_child(Action&& action) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(30);
        ::_exit(action());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

struct sigaction older {}; ///< the handler that pass_back() calls

void pass_back(int signal, siginfo_t* info, void* context) {
    if ((older.sa_flags & SA_SIGINFO) != 0) {
        older.sa_sigaction(signal, info, context);
    } else {
        ::signal(signal, SIG_DFL);
    }
}

void handle_by(void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &older);
}

/// A fault that is nobody's.
void write_nowhere() {
    void* const nothing = ::mmap(nullptr, mega, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(nothing, 1, mega);
}

} // namespace

TEST_CASE("LateCopy.copies_what_changes_first_and_the_rest_at_its_end") {
    const Pages from(8 * mega);
    const Pages to(8 * mega);
    std::memset(from.data(), 1, from.size());
    const auto changed = [&](std::size_t byte) { return to.data()[byte] == std::byte(1); };
    {
        LateCopy copy({{from.data(), to.data(), from.size()}});
        CHECK(to.all(0));
        from.data()[5 * mega] = std::byte(2);
        CHECK(changed(5 * mega));
        CHECK_FALSE(changed(0));
        CHECK_FALSE(changed(8 * mega - 1));
        copy.finish();
        CHECK(to.all(1));
        from.data()[0] = std::byte(2);
        CHECK(to.all(1));
    }
    std::memset(to.data(), 0, to.size());
    { const LateCopy given_up({{from.data(), to.data(), from.size()}}); }
    CHECK(to.all(0));
    std::memset(from.data(), 3, from.size());
    CHECK(from.all(3));
}

TEST_CASE("LateCopy.holds_its_moment_whoever_writes_meanwhile" * doctest::timeout(120)) {
    constexpr std::size_t threads = 3;
    std::mt19937 random(7);
    const auto below = [&](std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
    };
    const Pages from(24 * mega);
    const Pages to(24 * mega);
    for (int round = 0; round < 20; ++round) {
        std::memset(from.data(), round, from.size());
        std::memset(to.data(), 255, to.size());
        std::vector<LateCopy::Range> ranges; // with gaps, of any alignment, small ones, too
        for (std::size_t at = below(100); at < from.size();) {
            const std::size_t bytes = std::min(from.size() - at, 1 + below(1 << below(24)));
            ranges.push_back({from.data() + at, to.data() + at, bytes});
            at += bytes + below(3) * below(5000);
        }
        std::shuffle(ranges.begin(), ranges.end(), random);
        std::atomic<int> ready{0};
        LateCopy copy(ranges);
        std::vector<std::jthread> writers;
        for (std::size_t thread = 0; thread < threads; ++thread) {
            writers.emplace_back([&, thread, seed = random()] {
                std::mt19937 mine(static_cast<std::mt19937::result_type>(seed));
                ++ready;
                for (int i = 0; i < 2000; ++i) { // each thread its own bytes
                    const std::size_t place = mine() % (from.size() / threads);
                    from.data()[place * threads + thread] = std::byte(100);
                }
                for (std::size_t i = thread; i < from.size(); i += threads) {
                    from.data()[i] = std::byte(101);
                }
            });
        }
        while (ready.load() < 1) {
            std::this_thread::yield();
        }
        copy.finish();
        writers.clear();
        bool same = true;
        for (const auto& range : ranges) {
            same = same && std::all_of(range.to, range.to + range.bytes,
                                       [&](std::byte byte) { return byte == std::byte(round); });
        }
        CHECK(same);
        CHECK(from.all(101));
    }
}

TEST_CASE("LateCopy.lets_the_system_write_what_is_released") {
    const Pages from(4 * mega);
    const Pages to(4 * mega);
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    REQUIRE(::write(pipe[1], "abcd", 4) == 4);
    std::memset(from.data(), 1, from.size());
    LateCopy copy({{from.data(), to.data(), from.size()}});
    CHECK(::read(pipe[0], from.data() + mega, 4) < 0);
    CHECK(errno == EFAULT);
    LateCopy::release(from.data() + mega, 4);
    CHECK(::read(pipe[0], from.data() + mega, 4) == 4);
    CHECK(std::memcmp(from.data() + mega, "abcd", 4) == 0);
    copy.finish();
    CHECK(to.all(1));
    LateCopy::release(from.data(), from.size()); // nobody's any more
    ::close(pipe[0]);
    ::close(pipe[1]);
}

TEST_CASE("LateCopy.is_made_at_once_where_it_cannot_be_late") {
    const Pages from(4 * mega);
    const Pages to(4 * mega);
    std::memset(from.data(), 1, from.size());
    {
        const Pages third(4 * mega);
        const LateCopy first({{from.data(), third.data(), from.size()}});
        const LateCopy second({{from.data(), to.data(), from.size()}});
        CHECK(to.all(1));
        CHECK(third.all(0));
    }
    std::memset(to.data(), 0, to.size());
    std::jthread([&] {
        sigset_t all;
        sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
        const LateCopy copy({{from.data(), to.data(), from.size()}});
        CHECK(to.all(1));
        from.data()[0] = std::byte(1);
    }).join();
    std::memset(to.data(), 0, to.size());
    const LateCopy overlapping(
        {{from.data(), to.data(), 2 * mega}, {from.data() + mega, to.data() + 2 * mega, 2 * mega}});
    CHECK(to.data()[0] == std::byte(0));
    CHECK(to.data()[3 * mega] == std::byte(1));
}

TEST_CASE("LateCopy.leaves_children_and_other_faults_alone" * doctest::timeout(120)) {
    const Pages from(4 * mega);
    const Pages to(4 * mega);
    std::memset(from.data(), 1, from.size());
    const std::vector<LateCopy::Range> all{{from.data(), to.data(), from.size()}};
    const auto late_write = [&] {
        LateCopy copy(all);
        std::memset(from.data(), 2, from.size());
        copy.finish();
        return from.all(2) && to.all(1);
    };
    {
        LateCopy copy(all);
        CHECK(end_of_child([&] {
                  std::memset(from.data(), 2, from.size());
                  return from.all(2) ? 7 : 1;
              }) == 7);
        CHECK(from.all(1));
        copy.finish();
        CHECK(to.all(1));
    }
    std::memset(to.data(), 0, to.size());
    CHECK(end_of_child([&] { // nobody else is there
              std::signal(SIGSEGV, SIG_DFL);
              if (late_write()) {
                  write_nowhere();
              }
              return 1;
          }) == -SIGSEGV);
    CHECK(end_of_child([&] { // somebody was there before
              handle_by([](int, siginfo_t*, void*) { ::_exit(8); });
              if (late_write()) {
                  write_nowhere();
              }
              return 1;
          }) == 8);
    CHECK(end_of_child([&] { // somebody comes behind, and this handler anew in front of him
              std::signal(SIGSEGV, SIG_DFL);
              bool good = late_write();
              std::memset(from.data(), 1, from.size());
              handle_by(pass_back);
              good = late_write() && good;
              if (good) {
                  write_nowhere();
              }
              return 1;
          }) == -SIGSEGV);
}
