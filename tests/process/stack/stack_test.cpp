// SPDX-License-Identifier: Apache-2.0
// Stacks of threads that spin, sleep, wait, or do not react.
#include "support/thrown.hpp"

#include <rtrain/process/stack/stack_dump.hpp>
#ifdef RTRAIN_TEST_STACKTRACE
#include <rtrain/process/stack/stacktrace.hpp>
#endif

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <pthread.h>
#include <unistd.h>

using namespace rtrain;
using namespace std::chrono_literals;

namespace stack_test {

std::atomic<bool> over = false;
std::mutex mutex;
std::condition_variable changed;
volatile unsigned spun = 0;

/// A handler that was there before any thread was watched counts them.
std::atomic<int> foreign_signals = 0;
const auto handler_before = std::signal(SIGUSR2, [](int /*signal*/) { ++foreign_signals; });

[[gnu::noinline]] void spin_in_a_loop() {
    while (!over) {
        spun = spun + 1;
    }
}
[[gnu::noinline]] void sleep_in_a_call() {
    while (!over) {
        std::this_thread::sleep_for(100ms);
    }
}
[[gnu::noinline]] void wait_for_a_condition() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [] { return over.load(); });
}
[[gnu::noinline]] void take_memory_all_the_time() {
    while (!over) {
        const std::string text(spun % 1000 + 100, 'x');
        spun = spun + static_cast<unsigned>(text.size());
    }
}
[[gnu::noinline]] void caller(const std::function<void()>& function) {
    function();
    spun = spun + 1; // no tail call
}
/// Which no other file of the program can name.
[[gnu::noinline]] static void spin_unseen() {
    while (!over) {
        spun = spun + 1;
    }
}

} // namespace stack_test
using test::contains;

namespace {

/// A watched thread that runs `function` until the object goes.
class Watched {
public:
    explicit Watched(std::function<void()> function) {
        stack_test::over = false;
        std::atomic<bool> ready = false;
        thread_ = std::thread([&ready, function = std::move(function)] {
            launch::watch_this_thread();
            ready = true;
            stack_test::caller(function);
        });
        while (!ready) {
            std::this_thread::yield();
        }
        std::this_thread::sleep_for(20ms); // it comes to its function
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    ~Watched() {
        {
            const std::lock_guard lock(stack_test::mutex);
            stack_test::over = true;
        }
        stack_test::changed.notify_all();
        thread_.join();
    }

private:
    std::thread thread_;
};

} // namespace

TEST_CASE("Stack.names_the_functions_of_a_hung_thread") {
    const std::pair<std::string, void (*)()> functions[]{
        {"stack_test::spin_in_a_loop()", stack_test::spin_in_a_loop},
        {"stack_test::sleep_in_a_call()", stack_test::sleep_in_a_call},
        {"stack_test::wait_for_a_condition()", stack_test::wait_for_a_condition},
        {"stack_test::take_memory_all_the_time()", stack_test::take_memory_all_the_time}};
    for (const auto& [name, function] : functions) {
        CAPTURE(name);
        const Watched watched(function);
        const std::string stack = launch::stack_of_watched_thread(10s);
        CAPTURE(stack);
        CHECK(contains(stack, name));
        CHECK(contains(stack, "stack_test::caller(std::function<void ()> const&)"));
        CHECK(stack.find(name) < stack.find("stack_test::caller"));
        CHECK(stack.starts_with("#0 "));
        CHECK_FALSE(contains(stack, "StackWatch::note"));
    }
}

#ifdef RTRAIN_TEST_STACKTRACE
TEST_CASE("Stack.names_functions_that_are_not_exported_and_lines_by_libdw") {
    const Watched watched(stack_test::spin_unseen);
    const std::string stack = launch::stack_of_watched_thread(10s);
    CAPTURE(stack);
    CHECK(contains(stack, " stack_test::spin_unseen() in "));
    CHECK(contains(stack, "stack_test.cpp:"));
}
#endif

TEST_CASE("Stack.has_the_location_of_a_function_without_a_name") {
    const auto address = reinterpret_cast<std::uintptr_t>(stack_test::spin_unseen);
    const std::string text = launch::control::exported_symbols({address}).front();
    CAPTURE(text);
    CHECK(contains(text, "+0x"));
    CHECK_FALSE(contains(text, "spin_unseen"));
    CHECK(launch::control::exported_symbols({1}).front() == "0x1");
}

TEST_CASE("Stack.can_be_taken_many_times_in_the_middle_of_anything") {
    const Watched watched(stack_test::take_memory_all_the_time);
    for (int i = 0; i < 300; ++i) {
        const std::string stack = launch::stack_of_watched_thread(10s);
        REQUIRE(contains(stack, "stack_test::take_memory_all_the_time()"));
    }
}

TEST_CASE("Stack.is_empty_when_the_thread_does_not_react") {
    {
        const Watched deaf([] {
            sigset_t signals;
            sigemptyset(&signals);
            sigaddset(&signals, SIGUSR2);
            ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
            stack_test::spin_in_a_loop();
            ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr); // the late signal changes nothing
        });
        CHECK(launch::stack_of_watched_thread(50ms).empty());
        CHECK(launch::stack_of_watched_thread(50ms).empty());
    }
    CHECK(launch::stack_of_watched_thread(50ms).empty()); // it has ended
    const Watched next(stack_test::spin_in_a_loop);
    CHECK(contains(launch::stack_of_watched_thread(10s), "spin_in_a_loop"));
}

TEST_CASE("Stack.leaves_signals_of_others_to_their_handler") {
    const Watched watched(stack_test::spin_in_a_loop);
    const int before = stack_test::foreign_signals;
    std::raise(SIGUSR2);
    CHECK(stack_test::foreign_signals == before + 1);
    CHECK(contains(launch::stack_of_watched_thread(10s), "spin_in_a_loop"));
    CHECK(stack_test::foreign_signals == before + 1);
}
