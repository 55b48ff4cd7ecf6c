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
    OutputRelay relay{io,
                      printed[0],
                      target,
                      {.ranks = 1, .tagged = false},
                      {.line = [](const RankLine&) {}, .end = [this] { ended = true; }}};

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
    OutputRelay relay(io, printed[0], target, {.ranks = 1, .tagged = false},
                      {.line = [&](const RankLine&) { ++heard; }, .end = [&] { ended = true; }});
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
        OutputRelay relay(io, printed[0], target, {.ranks = 2, .tagged = tagged},
                          {.line =
                               [&](const RankLine& line) {
                                   of.at(static_cast<std::size_t>(line.rank)) += line.text;
                               },
                           .end = [&] { ended = true; }});
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
        CHECK(of[0].size() + OutputRelay::longest_line > expected); // and it goes on
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
    OutputRelay relay(io, printed[0], target, {.ranks = 1, .tagged = false},
                      {.line = [&](const RankLine&) { ++heard; }, .end = [&] { ended = true; }});
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
        const OutputRelay relay(io, printed[0], ::fdopen(shown[1], "w"),
                                {.ranks = 1, .tagged = false},
                                {.line = [](const RankLine&) {}, .end = [] {}});
        io.run_for(5s);
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGPIPE);
}
