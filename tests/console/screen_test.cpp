// SPDX-License-Identifier: Apache-2.0
// A screen on a pseudo-terminal and elsewhere, as whoever is at the other end reads it.
#include "support/capture.hpp"

#include <rtrain/base/console.hpp>
#include <rtrain/console/screen.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace screen_test {

using namespace rtrain::console;
using namespace std::chrono_literals;

namespace {

/// A variable of the environment, for a while.
class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { ::unsetenv(name_); }

private:
    const char* name_;
};

/// A terminal that shows ASCII, without colors.
struct Plain {
    Variable terminal{"TERM", "xterm"};
    Variable color{"NO_COLOR", "1"};
    Variable locale{"LC_ALL", "C"};
};

/// Both ends of a pseudo-terminal, or of a pipe.
struct Ends {
    int reader = -1;
    int writer = -1;

    static Ends of_terminal(int columns) {
        Ends ends;
        winsize size{};
        size.ws_col = static_cast<unsigned short>(columns);
        REQUIRE(::openpty(&ends.reader, &ends.writer, nullptr, nullptr, &size) == 0);
        termios as_it_is{};
        ::tcgetattr(ends.writer, &as_it_is);
        as_it_is.c_oflag &= ~static_cast<tcflag_t>(OPOST); // no \r before \n
        ::tcsetattr(ends.writer, TCSANOW, &as_it_is);
        return ends;
    }
    static Ends of_pipe() {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        return {ends[0], ends[1]};
    }
    Ends() = default;
    Ends(int read, int write) : reader(read), writer(write) {}
    Ends(Ends&& other) noexcept : reader(other.reader), writer(other.writer) {
        other.reader = other.writer = -1;
    }
    ~Ends() {
        ::close(reader);
        ::close(writer);
    }

    /// What has come.
    std::string text() const {
        ::fcntl(reader, F_SETFL, O_NONBLOCK);
        std::string all;
        char part[4096];
        for (ssize_t got = 0; (got = ::read(reader, part, sizeof part)) > 0;) {
            all.append(part, static_cast<std::size_t>(got));
        }
        return all;
    }
    void resize(int columns) const {
        winsize size{};
        size.ws_col = static_cast<unsigned short>(columns);
        ::ioctl(reader, TIOCSWINSZ, &size);
    }
};

Progress at(std::int64_t done) {
    return {.epoch = 1, .epochs = 2, .done = done, .total = 4, .elapsed_s = 1, .rate = 1};
}
const auto begin = Screen::Clock::now() - 1h;
const std::string clear = "\r\x1b[K";

} // namespace

TEST_CASE("Screen.a_bar_moves_in_one_line_of_a_terminal") {
    const Plain plain;
    for (const int columns : {40, 80, 200}) {
        CAPTURE(columns);
        const Ends ends = Ends::of_terminal(columns);
        std::atomic<bool> up = false;
        Screen screen(ends.writer, up);
        CHECK(screen.columns() == columns);
        screen.show(at(1), begin);
        CHECK(ends.text() == clear + bar_line(at(1), {.columns = columns}));
        CHECK(up);
        screen.show(at(2), begin + 99ms); // more often than it helps
        CHECK(ends.text() == "");
        screen.show(at(2), begin + 100ms);
        CHECK(ends.text() == clear + bar_line(at(2), {.columns = columns}));
        screen.take_off();
        CHECK(ends.text() == clear);
        CHECK(!up);
        screen.take_off();
        CHECK(ends.text() == "");
    }
}

TEST_CASE("Screen.follows_a_terminal_that_is_resized") {
    const Plain plain;
    const Ends ends = Ends::of_terminal(80);
    std::atomic<bool> up = false;
    Screen screen(ends.writer, up);
    screen.show(at(1), begin);
    CHECK(ends.text() == clear + bar_line(at(1), {.columns = 80}));
    for (const int columns : {40, 200}) {
        ends.resize(columns);
        screen.show(at(1), begin + std::chrono::seconds(columns));
        CHECK(ends.text() == clear + bar_line(at(1), {.columns = columns}));
    }
}

TEST_CASE("Screen.lines_stand_above_the_bar") {
    const Plain plain;
    const Ends ends = Ends::of_terminal(80);
    std::atomic<bool> up = false;
    Screen screen(ends.writer, up);
    screen.print("before\n");
    CHECK(ends.text() == "before\n");
    screen.show(at(1), begin);
    (void)ends.text();
    screen.print("one\ntw\x1bo");
    const std::string bar = bar_line(at(1), {.columns = 80});
    CHECK(ends.text() == clear + "one\ntw?o\n" + clear + bar);
    screen.around(true, [&] { CHECK(::write(ends.writer, "relayed\n", 8) == 8); });
    CHECK(ends.text() == clear + "relayed\n"); // the bar comes back a moment later
    screen.around(false, [] {});
    CHECK(ends.text() == "");
    std::this_thread::sleep_for(Screen::between_bars);
    screen.around(true, [&] { CHECK(::write(ends.writer, "relayed\n", 8) == 8); });
    CHECK(ends.text() == clear + "relayed\n" + clear + bar);
}

TEST_CASE("Screen.colors_are_for_terminals_whose_user_wants_them") {
    const std::string green = "\x1b[32m";
    for (const bool wanted : {true, false}) {
        const Variable terminal("TERM", "xterm");
        const Variable color("NO_COLOR", wanted ? "" : "1");
        const Ends ends = Ends::of_terminal(80);
        std::atomic<bool> up = false;
        Screen screen(ends.writer, up);
        screen.show(at(1), begin);
        CHECK((ends.text().find(green) != std::string::npos) == wanted);
    }
}

TEST_CASE("Screen.elsewhere_the_bar_is_a_line_each_10_s") {
    const Ends pipe = Ends::of_pipe();
    const Variable dumb("TERM", "dumb");
    const Ends terminal = Ends::of_terminal(80);
    for (const Ends* const ends : {&pipe, &terminal}) {
        std::atomic<bool> up = false;
        Screen screen(ends->writer, up);
        CHECK(!screen.is_terminal());
        screen.show(at(1), begin);
        screen.show(at(2), begin + 9999ms);
        CHECK(ends->text() == "");
        screen.show(at(2), begin + 10s);
        CHECK(ends->text() == "rtrain: " + progress_line(at(2)) + "\n");
        screen.show(at(3), begin + 19s);
        CHECK(ends->text() == "");
        screen.print("line");
        CHECK(ends->text() == "line\n");
        screen.show(at(3), begin + 20s);
        CHECK(ends->text() == "rtrain: " + progress_line(at(3)) + "\n");
        CHECK(!up);
    }
}

TEST_CASE("Screen.lines_are_of_the_level_info_and_may_be_json") {
    const Ends pipe = Ends::of_pipe();
    std::atomic<bool> up = false;
    Screen screen(pipe.writer, up);
    screen.show(at(1), begin);
    {
        const ScopedLogSettings quiet(Level::warning, false);
        screen.print("line");
        screen.show(at(1), begin + 10s);
        CHECK(pipe.text() == "");
    }
    const ScopedLogSettings json(Level::info, true);
    screen.print("a\n\"b\"\n");
    const std::string said = pipe.text();
    CHECK(said.find(R"("message":"a"})") != std::string::npos);
    CHECK(said.find(R"("message":"\"b\""})") != std::string::npos);
    CHECK(test::count_of(said, "\n") == 2);
    screen.show(at(1), begin + 20s);
    CHECK(pipe.text().find(R"("message":"epoch 1/2:  25% 1/4 [)") != std::string::npos);
}

TEST_CASE("Screen.waits_for_nobody_who_does_not_read" * doctest::timeout(60)) {
    const Plain plain;
    const Ends terminal = Ends::of_terminal(80);
    const Ends pipe = Ends::of_pipe();
    for (const Ends* const ends : {&terminal, &pipe}) {
        std::atomic<bool> up = false;
        Screen screen(ends->writer, up);
        std::string lines;
        for (int i = 0; i < 5000; ++i) {
            const std::string line = "line " + std::to_string(i) + " " + std::string(100, '.');
            lines += line + '\n';
            screen.print(line);
            screen.show(at(1), begin + i * 1s);
        }
        CHECK(!screen.drain(1ms));
        std::string text;
        do {
            text += ends->text();
        } while (!screen.drain(1ms));
        text += ends->text();
        for (std::size_t mark = 0; (mark = text.find(clear)) != std::string::npos;) {
            const std::size_t end = text.find("line ", mark);
            text.erase(mark, end == std::string::npos ? end : end - mark); // bars
        }
        if (ends == &pipe) { // whose bars are lines
            std::string kept;
            for (std::size_t at = 0; at < text.size();) {
                const std::size_t end = text.find('\n', at) + 1;
                kept += text.compare(at, 7, "rtrain:") == 0 ? "" : text.substr(at, end - at);
                at = end;
            }
            text = kept;
        }
        CHECK(text == lines);
    }
}

TEST_CASE("Screen.what_waits_is_bounded") {
    const Ends ends = Ends::of_pipe();
    std::atomic<bool> up = false;
    Screen screen(ends.writer, up);
    const std::string line(1000, '.');
    for (int i = 0; i < 3000; ++i) {
        screen.print(line);
    }
    std::string said;
    do {
        said += ends.text();
    } while (!screen.drain(1ms));
    said += ends.text();
    const std::size_t bytes = said.size();
    CHECK(bytes <= Screen::most_waiting + 100'000);
    CHECK(bytes >= Screen::most_waiting - 1001);
    CHECK(said.find(" lines are missing here: the reader was too slow\n") != std::string::npos);
}

TEST_CASE("Screen.goes_on_when_nobody_is_there_any_more") {
    const Plain plain;
    std::atomic<bool> up = false;
    {
        Ends ends = Ends::of_pipe();
        ::close(ends.reader);
        ends.reader = -1;
        Screen screen(ends.writer, up);
        screen.print("line");
        screen.print("line");
        CHECK(screen.drain(1s));
    }
    {
        Ends ends = Ends::of_terminal(80);
        Screen screen(ends.writer, up);
        screen.show(at(1), begin);
        ::close(ends.reader);
        ends.reader = -1;
        screen.show(at(2), begin + 1s);
        screen.print("line");
        CHECK(screen.drain(1s));
    }
    const int nothing = ::dup(STDERR_FILENO);
    ::close(nothing);
    Screen closed(nothing, up);
    closed.show(at(1), begin);
    closed.print("line");
    CHECK(closed.drain(1s));
}

TEST_CASE("Console.what_is_said_takes_the_place_of_the_bar") {
    test::Stderr said;
    say("alone");
    bar_is_up = true;
    say("above a %s", "bar");
    bar_is_up = false;
    CHECK(said.text() == "rtrain: alone\n" + clear + "rtrain: above a bar\n");
}

} // namespace screen_test
