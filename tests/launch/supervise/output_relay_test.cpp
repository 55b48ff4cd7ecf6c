// SPDX-License-Identifier: Apache-2.0
#include <rtrain/launch/supervise/output_relay.hpp>

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain::launch;
using namespace std::chrono_literals;

namespace {

/// A pipe that is read in a thread from when read() is called.
class Pipe {
public:
    Pipe() { REQUIRE(::pipe(ends_.data()) == 0); }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
        if (reader_.joinable()) {
            reader_.join();
        }
        ::close(ends_[0]);
    }
    [[nodiscard]] int out() const { return ends_[0]; }
    [[nodiscard]] int in() const { return ends_[1]; }
    void read() {
        reader_ = std::thread([this] {
            std::array<char, 4096> part{};
            for (ssize_t got = 0; (got = ::read(out(), part.data(), part.size())) > 0;) {
                text_.append(part.data(), static_cast<std::size_t>(got));
            }
        });
    }
    /// All of it; the other end is closed.
    const std::string& text() {
        reader_.join();
        return text_;
    }

private:
    std::array<int, 2> ends_{};
    std::thread reader_;
    std::string text_;
};

void write(int to, const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t written = ::write(to, text.data() + at, text.size() - at);
        if (written <= 0) {
            return;
        }
        at += static_cast<std::size_t>(written);
    }
}

/// The relay of a rank that prints into `printed[1]`.
struct Relayed {
    std::array<int, 2> printed = pipe();
    Pipe shown{};
    std::FILE* target = ::fdopen(::dup(shown.in()), "w");
    boost::asio::io_context io{};
    bool ended = false;
    OutputRelay relay{
        io, target, 1, {.line = [](const RankLine&) {}, .end = [this] { ended = true; }}};

    Relayed() { relay.add(printed[0], 0); }
    Relayed(const Relayed&) = delete;
    Relayed& operator=(const Relayed&) = delete;

    [[nodiscard]] static std::array<int, 2> pipe() {
        std::array<int, 2> ends{};
        REQUIRE(::pipe(ends.data()) == 0);
        return ends;
    }
};

} // namespace

TEST_CASE("OutputRelay.who_does_not_read_holds_up_the_ranks_and_nothing_else" *
          doctest::timeout(60)) {
    constexpr int lines = 40'000; // more than pipes hold
    std::string all;
    for (int i = 0; i < lines; ++i) {
        all += "line " + std::to_string(i) + "\n";
    }
    int printed[2];
    REQUIRE(::pipe(printed) == 0);
    Pipe shown;
    std::FILE* const target = ::fdopen(::dup(shown.in()), "w");
    boost::asio::io_context io;
    int heard = 0;
    bool ended = false;
    OutputRelay relay(io, target, 1,
                      {.line = [&](const RankLine&) { ++heard; }, .end = [&] { ended = true; }});
    relay.add(printed[0], 0);
    std::thread rank([&] {
        write(printed[1], all);
        ::close(printed[1]);
    });
    int ticks = 0; // as the control channel's pings
    boost::asio::steady_timer timer(io);
    const std::function<void()> tick = [&] {
        timer.expires_after(10ms);
        timer.async_wait([&](const boost::system::error_code& error) {
            if (!error) {
                ++ticks;
                tick();
            }
        });
    };
    tick();
    io.run_for(500ms);
    CHECK(ticks >= 10);
    CHECK(relay.is_behind());
    CHECK(heard < lines);
    CHECK(!ended);

    shown.read();
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!ended && std::chrono::steady_clock::now() < limit) {
        io.run_one_for(100ms);
    }
    CHECK(ended);
    CHECK(heard == lines);
    rank.join();
    std::fclose(target);
    ::close(shown.in());
    std::string expected;
    for (int i = 0; i < lines; ++i) {
        expected += "[rank 0] line " + std::to_string(i) + "\n";
    }
    CHECK(shown.text() == expected);
}

TEST_CASE("OutputRelay.lines_of_ranks_with_their_own_streams_stay_intact" * doctest::timeout(60)) {
    constexpr int lines = 20'000; // more than pipes hold
    Pipe shown;
    std::FILE* const target = ::fdopen(::dup(shown.in()), "w");
    boost::asio::io_context io;
    int ended = 0;
    OutputRelay relay(io, target, 2, {.line = [](const RankLine&) {}, .end = [&] { ++ended; }});
    std::vector<std::thread> ranks;
    for (const int rank : {0, 1}) {
        const auto printed = Relayed::pipe();
        relay.add(printed[0], rank);
        ranks.emplace_back([to = printed[1]] {
            for (int i = 0; i < lines; ++i) {
                write(to, "line " + std::to_string(i) + "\n");
            }
            write(to, std::string(end_of_run) + "\n");
            ::close(to);
        });
    }
    while (!relay.is_behind()) {
        io.run_one_for(100ms);
    }
    shown.read();
    while (ended == 0) {
        io.run_one_for(100ms);
    }
    io.run(); // a timer may be pending
    CHECK(ended == 1);
    for (std::thread& rank : ranks) {
        rank.join();
    }
    std::fclose(target);
    ::close(shown.in());
    std::array<int, 2> next{};
    int ends = 0;
    std::istringstream all(shown.text());
    for (std::string line; std::getline(all, line);) {
        const std::size_t rank = line.starts_with("[rank 0] ") ? 0 : 1;
        if (line == end_of_run) {
            ++ends;
        } else {
            REQUIRE(line ==
                    "[rank " + std::to_string(rank) + "] line " + std::to_string(next.at(rank)++));
        }
    }
    CHECK(next == std::array<int, 2>{lines, lines});
    CHECK(ends == 1); // when both have printed it
}

TEST_CASE("OutputRelay.nobody_is_waited_for_once_it_is_closed" * doctest::timeout(60)) {
    Relayed rank_output;
    auto& [printed, shown, target, io, ended, relay] = rank_output;
    std::thread rank([to = printed[1]] {
        ::signal(SIGPIPE, SIG_IGN);
        write(to, std::string(300'000, '\n'));
        ::close(to);
    });
    io.run_for(300ms);
    CHECK(relay.is_behind());
    relay.close();
    io.run_for(5s);
    CHECK(ended);
    rank.join();
    ::close(shown.in());
    shown.read(); // so that what the target has left can go
    std::fclose(target);
}

TEST_CASE("OutputRelay.what_was_read_is_printed_though_no_more_is_read" * doctest::timeout(60)) {
    Relayed rank_output;
    auto& [printed, shown, target, io, ended, relay] = rank_output;
    write(printed[1], "one\ntwo"); // which others hold open
    while (relay.quiet_for() > 0s && relay.quiet_for() < 20ms) {
        io.run_one_for(5ms);
    }
    relay.stop_reading();
    io.run_for(5s);
    CHECK(ended);
    ::close(printed[1]);
    std::fclose(target);
    ::close(shown.in());
    shown.read();
    CHECK(shown.text() == "[rank 0] one\n[rank 0] two\n");
}

TEST_CASE("OutputRelay.nothing_is_called_once_it_is_destroyed" * doctest::timeout(60)) {
    boost::asio::io_context io;
    Pipe shown;
    std::FILE* const target = ::fdopen(::dup(shown.in()), "w");
    const auto waiting = Relayed::pipe();  // a read operation is pending
    const auto printing = Relayed::pipe(); // the timer that continues to print is pending
    int lines = 0;
    std::optional<OutputRelay> relay;
    relay.emplace(io, target, 2,
                  OutputRelay::Handlers{.line = [&](const RankLine&) { ++lines; }, .end = [] {}});
    relay->add(waiting[0], 0);
    relay->add(printing[0], 1);
    std::thread rank([&] {
        ::signal(SIGPIPE, SIG_IGN);
        write(printing[1], std::string(300'000, '\n'));
    });
    while (!relay->is_behind()) {
        io.run_one_for(100ms);
    }
    write(waiting[1], "too late\n");
    lines = 0;
    relay.reset();
    io.restart();
    io.poll();
    CHECK(lines == 0);
    rank.join();
    for (const int descriptor : {waiting[1], printing[1], shown.in()}) {
        ::close(descriptor);
    }
    shown.read(); // so that what the target has left can go
    std::fclose(target);
}

TEST_CASE("OutputRelay.a_line_that_never_ends_is_shown_in_pieces" * doctest::timeout(60)) {
    constexpr std::size_t length = 3 * OutputRelay::longest_line;
    const std::string bar(length, '=');
    for (const bool tagged : {false, true}) {
        CAPTURE(tagged);
        int printed[2];
        REQUIRE(::pipe(printed) == 0);
        std::FILE* const target = std::tmpfile();
        boost::asio::io_context io;
        std::vector<std::string> of(2);
        bool ended = false;
        std::atomic<bool> may_end{false};
        OutputRelay relay(io, target, 2,
                          {.line =
                               [&](const RankLine& line) {
                                   of.at(static_cast<std::size_t>(line.rank)) += line.text;
                               },
                           .end = [&] { ended = true; }});
        relay.add(printed[0], tagged ? std::nullopt : std::optional(0));
        std::thread rank([&] {
            const auto tag = [&](int number) {
                return tagged ? "[1," + std::to_string(number) + "]<stdout>:" : std::string();
            };
            write(printed[1], tag(0) + bar);
            if (tagged) { // another one breaks in
                write(printed[1], tag(1) + "[in brackets]\n" + tag(0) + bar);
            }
            may_end.wait(false);
            ::close(printed[1]);
        });
        const std::size_t expected = (tagged ? 2 : 1) * length;
        const auto limit = std::chrono::steady_clock::now() + 30s;
        while (of[0].size() + OutputRelay::longest_line <= expected &&
               std::chrono::steady_clock::now() < limit) {
            io.run_one_for(100ms);
        }
        CHECK(of[0].size() + OutputRelay::longest_line > expected); // and it continues
        CHECK(!ended);
        may_end = true;
        may_end.notify_all();
        while (!ended && std::chrono::steady_clock::now() < limit) {
            io.run_one_for(100ms);
        }
        rank.join();
        CHECK(of[0] == std::string(expected, '='));
        CHECK(of[1] == (tagged ? "[in brackets]" : ""));
        std::fclose(target);
    }
}

TEST_CASE("OutputRelay.a_full_disk_loses_lines_and_nothing_else" * doctest::timeout(60)) {
    int printed[2];
    REQUIRE(::pipe(printed) == 0);
    write(printed[1], "one\ntwo\n");
    ::close(printed[1]);
    std::FILE* const target = std::fopen("/dev/full", "w");
    boost::asio::io_context io;
    int heard = 0;
    bool ended = false;
    OutputRelay relay(io, target, 1,
                      {.line = [&](const RankLine&) { ++heard; }, .end = [&] { ended = true; }});
    relay.add(printed[0], 0);
    io.run_for(5s);
    CHECK(heard == 2);
    CHECK(ended);
    std::fclose(target);
}

TEST_CASE("OutputRelay.a_pipe_without_a_reader_ends_the_program" * doctest::timeout(60)) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGPIPE, SIG_DFL);
        ::alarm(20);
        int printed[2];
        int shown[2];
        (void)!::pipe(printed);
        (void)!::pipe(shown);
        ::close(shown[0]);
        write(printed[1], "one\n");
        boost::asio::io_context io;
        OutputRelay relay(io, ::fdopen(shown[1], "w"), 1,
                          {.line = [](const RankLine&) {}, .end = [] {}});
        relay.add(printed[0], 0);
        io.run_for(5s);
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGPIPE);
}
