// SPDX-License-Identifier: Apache-2.0
// What rtrain says, and logs of what ranks print: how they are kept, and what is in them when a
// process crashes.
#include "support/capture.hpp"

#include <rtrain/base/console.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/config/logging.hpp>
#include <rtrain/console/numbers.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/process/stdio/output_tee.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/testing/scratch.hpp>
#include <rtrain/track/page/html.hpp>

#include <doctest/doctest.h>

#include <cctype>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using process::OutputTee;
using track::RankLogs;

namespace {

std::string read(const std::filesystem::path& file) {
    return std::filesystem::exists(file) ? storage::read_file(file) : "";
}

storage::Location at(const std::filesystem::path& directory) {
    return storage::locate(directory);
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos;
         begin = end + 1) {
        lines.push_back(text.substr(begin, end - begin));
    }
    return lines;
}

/// A rank's log without the lines that say which attempt begins.
std::string printed(const std::filesystem::path& run, int rank = 0) {
    std::string text;
    for (const std::string& line :
         lines_of(read(run / ("logs/rank-" + std::to_string(rank) + ".log")))) {
        text += line.starts_with("--- ") ? "" : line + "\n";
    }
    return text;
}

/// A text without the first place where it has a part.
std::string without(std::string text, std::string_view part) {
    const std::size_t at = text.find(part);
    return at == text.npos ? text : text.erase(at, part.size());
}

struct Ended {
    int status = 0; ///< of waitpid()
    std::string shown;
};

/// What a process does whose output is kept, and how it ends.
Ended in_child(const std::filesystem::path& run, const std::function<void()>& body) {
    const auto console = run / "console";
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        const int file = ::open(console.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
        ::dup2(file, 1);
        ::dup2(file, 2);
        for (const int signal : {SIGABRT, SIGSEGV}) { // doctest's
            ::signal(signal, SIG_DFL);
        }
        body();
        ::_exit(0);
    }
    Ended ended;
    ::waitpid(child, &ended.status, 0);
    ended.shown = read(console);
    return ended;
}

struct Kept {
    explicit Kept(const std::filesystem::path& run)
        : logs(std::make_shared<RankLogs>(at(run), false, [](const std::string&) {})),
          tee([logs = logs](OutputStream stream, std::string_view line) {
              logs->add(0, stream, line);
          }) {
        logs->begin();
    }
    std::shared_ptr<RankLogs> logs;
    OutputTee tee;
};

/// A storage service, as far as logs use one.
struct Service {
    struct Files {
        std::mutex mutex;
        std::map<std::string, std::string> of;
        bool refuses = false;
    };
    std::shared_ptr<Files> files = std::make_shared<Files>();

    [[nodiscard]] static std::string uri(const std::string& path) { return "service://" + path; }
    [[nodiscard]] std::vector<storage::Entry> list(const std::string&) const { return {}; }
    [[nodiscard]] std::string read(const std::string& path) const {
        const std::lock_guard lock(files->mutex);
        return files->of.at(path);
    }
    void write(const std::string& path, std::string_view text) const {
        const std::lock_guard lock(files->mutex);
        if (files->refuses) {
            throw StorageError("RT-S1", "the service is away");
        }
        files->of[path] = text;
    }
    void upload(const std::filesystem::path&, const std::string&) const {}
    void download(const std::string&, const std::filesystem::path&) const {}
    void remove(const std::string& path) const { files->of.erase(path); }
    [[nodiscard]] bool exists(const std::string& path) const { return look_at(path).has_value(); }
    [[nodiscard]] std::optional<storage::Entry> look_at(const std::string& path) const {
        const std::lock_guard lock(files->mutex);
        return files->of.contains(path) ? std::optional(storage::Entry{.name = path})
                                        : std::nullopt;
    }
};

} // namespace

TEST_CASE("Console.says_what_its_level_allows") {
    test::Stderr shown;
    console::say("one");
    {
        const console::ScopedLogSettings speaking(LogLevel("warning"), false);
        console::say("two");
        console::warn("three %d", 3);
        console::error("four");
    }
    {
        const console::ScopedLogSettings speaking(LogLevel("error"), false);
        console::warn("five");
        console::error("six");
    }
    console::say("seven");
    CHECK(shown.text() ==
          "rtrain: one\nrtrain: three 3\nrtrain: four\nrtrain: six\nrtrain: seven\n");
}

TEST_CASE("Console.what_it_says_does_not_control_the_terminal") {
    test::Stderr shown;
    console::warn("%s", "a\x1b[2J\r\x7f\xc2\x9b"
                        "1m \xe2\x80\xae \x9b \xe2\x82\xac\tb\nc");
    {
        const console::ScopedLogSettings speaking(LogLevel("info"), true);
        console::say("%s", "\x1b[2J \xc2\x9b \xe2\x80\xae");
    }
    const auto lines = lines_of(shown.text());
    REQUIRE(lines.size() == 3);
    CHECK(lines[0] == "rtrain: a\\x1b[2J\\x0d\\x7f\\u009b1m \\u202e \\x9b \xe2\x82\xac\tb");
    CHECK(lines[1] == "c");
    CHECK(json::parse(lines[2]).at("message") == "\x1b[2J \xc2\x9b \xe2\x80\xae");
    CHECK(lines[2].find("\\u001b[2J \\u009b \\u202e") != std::string::npos);
    const StorageError error("RT-S3", "cannot open a\x1b[2J");
    CHECK(error.what() == std::string("cannot open a\\x1b[2J [RT-S3]"));
    CHECK(error.message() == "cannot open a\\x1b[2J");
}

TEST_CASE("Locale.text_does_not_depend_on_the_global_one") {
    struct Grouping : std::numpunct<char> {
        [[nodiscard]] std::string do_grouping() const override { return "\3"; }
        [[nodiscard]] char do_thousands_sep() const override { return '.'; }
        [[nodiscard]] char do_decimal_point() const override { return ','; }
    };
    const std::locale before =
        std::locale::global(std::locale(std::locale::classic(), new Grouping));
    const bool has_german = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
    test::Stderr shown;
    CHECK(rtrain::detail::concat("/proc/", 14972, "/fd/", 1.5) == "/proc/14972/fd/1.5");
    CHECK(rtrain::detail::print("%.1f %d", 21.7, 123456) == "21.7 123456");
    CHECK(console::rounded(0.125, 4) == "0.125");
    CHECK(console::scaled(1.5e6, "B") == "1.50 MB");
    CHECK(track::html::duration(1.5) == "1.5 s");
    console::say("%g s", 1.5);
    CHECK(shown.text() == "rtrain: 1.5 s\n");
    int number = 0;
    rtrain::detail::strict(std::istringstream("1234")) >> number;
    CHECK(number == 1234);
    std::setlocale(LC_ALL, "C");
    std::locale::global(before);
    if (!has_german) {
        MESSAGE("without de_DE.UTF-8, printf's comma is tested by surroundings.locale only");
    }
}

TEST_CASE("Console.records_are_json_whatever_they_say") {
    test::Stderr shown;
    {
        const console::ScopedLogSettings speaking(LogLevel("info"), true);
        console::say("%s", "a \"quote\", a \\, a\nline, \x01, \xff\xc3, \xe2\x82\xac");
        console::settings().rank = 3;
        console::error("gone");
    }
    console::say("as before");
    const auto lines = lines_of(shown.text());
    REQUIRE(lines.size() == 3);
    const auto first = json::parse(lines[0]).as_object();
    CHECK(first.size() == 4);
    CHECK(first.at("rank").is_null());
    CHECK(first.at("level") == "info");
    CHECK(first.at("message") == "a \"quote\", a \\, a\nline, \x01, ??, \xe2\x82\xac");
    CHECK(std::regex_match(std::string(first.at("time").as_string()),
                           std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)")));
    const auto second = json::parse(lines[1]).as_object();
    CHECK(second.at("rank") == 3);
    CHECK(second.at("level") == "error");
    CHECK(lines[2] == "rtrain: as before");
    CHECK(console::settings().rank == -1);
}

TEST_CASE("Logging.levels_have_names") {
    CHECK(LogLevel("error") == console::Level::error);
    CHECK_THROWS_WITH_AS(LogLevel("debug"), doctest::Contains("RT-C40"), ConfigError);
    CHECK_THROWS_AS(LogLevel(""), ConfigError);
}

TEST_CASE("RankLogs.ranks_have_files_that_say_which_attempt_begins") {
    const testing::ScratchDirectory run;
    for (int start = 0; start < 2; ++start) {
        RankLogs logs(at(run.path()), false, [](const std::string& what) { FAIL(what); });
        logs.begin();
        logs.add(0, OutputStream::out, "zero");
        logs.add(1, OutputStream::err, "one");
        logs.begin();
        logs.add(1, OutputStream::out, "");
    }
    CHECK(printed(run.path(), 0) == "zero\nzero\n");
    CHECK(printed(run.path(), 1) == "one\n\none\n\n");
    const std::string text = read(run.path() / "logs/rank-1.log");
    const std::string pid = std::to_string(::getpid());
    CHECK(test::count_of(text, " attempt 1 of process " + pid) == 2);
    CHECK(test::count_of(text, " attempt 2 of process " + pid) == 2);
    CHECK(test::count_of(read(run.path() / "logs/rank-0.log"), " attempt 2 ") == 0);
}

TEST_CASE("RankLogs.are_for_their_owner_only") {
    const testing::ScratchDirectory run;
    const auto file = run.path() / "logs/rank-0.log";
    for (const bool is_old : {false, true}) {
        if (is_old) { // of a version that let others read it
            std::filesystem::permissions(file, std::filesystem::perms(0644));
        }
        RankLogs logs(at(run.path()), false, [](const std::string& what) { FAIL(what); });
        logs.begin();
        logs.add(0, OutputStream::err, "http://127.0.0.1:1/?token=secret");
        CHECK(std::filesystem::status(file).permissions() == std::filesystem::perms(0600));
    }
}

TEST_CASE("RankLogs.lines_are_json_if_asked_for") {
    const testing::ScratchDirectory run;
    const std::string own = console::record(7, console::Level::warning, "mine");
    {
        RankLogs logs(at(run.path()), true, [](const std::string& what) { FAIL(what); });
        logs.begin();
        logs.add(7, OutputStream::out, "said \"so\" \xff");
        logs.add(7, OutputStream::err, own);
        logs.add(7, OutputStream::err, R"({"time":"not a record)");
    }
    const auto lines = lines_of(read(run.path() / "logs/rank-7.log"));
    REQUIRE(lines.size() == 4);
    CHECK(json::parse(lines[0]).at("rank") == 7);
    const auto program = json::parse(lines[1]).as_object();
    CHECK(program.at("message") == "said \"so\" ?");
    CHECK(program.at("stream") == "stdout");
    CHECK(program.at("rank") == 7);
    CHECK(lines[2] == own);
    CHECK(json::parse(lines[3]).at("message") == R"({"time":"not a record)");
    CHECK(json::parse(lines[3]).at("stream") == "stderr");
}

TEST_CASE("RankLogs.what_goes_wrong_is_said_once") {
    std::vector<std::string> said;
    const auto complain = [&](const std::string& what) { said.push_back(what); };
    const testing::ScratchDirectory full;
    std::filesystem::create_directory(full.path() / "logs");
    std::filesystem::create_symlink("/dev/full", full.path() / "logs/rank-0.log");
    RankLogs logs(at(full.path()), false, complain);
    logs.begin();
    for (int i = 0; i < 3; ++i) {
        logs.add(0, OutputStream::out, "no room");
        logs.add(1, OutputStream::out, "room");
    }
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("No space left on device") != said[0].npos);
    CHECK(printed(full.path(), 1) == "room\nroom\nroom\n");
    // A directory that cannot be made
    test::Stderr quiet;
    RankLogs nowhere(at(full.path() / "logs/rank-1.log/run"), false, complain);
    nowhere.begin();
    nowhere.add(0, OutputStream::out, "lost");
    nowhere.add(0, OutputStream::out, "lost");
    CHECK(said.size() == 2);
}

TEST_CASE("RankLogs.a_service_has_all_of_them_at_the_end") {
    const Service service;
    service.files->of["run/logs/rank-1.log"] = "from an earlier start\n";
    std::vector<std::string> said;
    RankLogs logs({service, "run"}, false, [&](const std::string& what) { said.push_back(what); });
    logs.begin();
    logs.add(0, OutputStream::out, "zero");
    logs.add(1, OutputStream::out, "one");
    logs.close();
    logs.add(1, OutputStream::out, "too late");
    CHECK(service.files->of["run/logs/rank-0.log"].ends_with("begins\nzero\n"));
    const std::string text = service.files->of["run/logs/rank-1.log"];
    CHECK(text.starts_with("from an earlier start\n--- "));
    CHECK(text.ends_with("begins\none\n"));
    CHECK(said.empty());
    service.files->refuses = true;
    RankLogs refused({service, "run"}, false,
                     [&](const std::string& what) { said.push_back(what); });
    refused.add(0, OutputStream::out, "lost");
    refused.close();
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("the service is away") != said[0].npos);
}

TEST_CASE("OutputTee.shows_each_byte_and_keeps_each_line") {
    const testing::ScratchDirectory run;
    const Ended ended = in_child(run.path(), [&] {
        std::printf("before\n");
        {
            const Kept kept(run.path());
            std::printf("out %d\n", 1);
            std::fprintf(stderr, "err\n");
            (void)!::write(1, "raw\n\nno end", 11);
            (void)!std::system("echo from a program");
            for (int i = 0; i < 20'000; ++i) { // more than a pipe holds
                std::printf("line %d\n", i);
            }
            std::printf("unfinished");
        }
        std::printf(" behind\n");
        std::fflush(nullptr);
    });
    CHECK(WIFEXITED(ended.status));
    // Two pipes: what goes to standard error may come anywhere in what goes to standard output.
    CHECK(test::count_of(ended.shown, "err\n") == 1);
    const std::string shown = without(ended.shown, "err\n");
    CHECK(shown.starts_with("before\nout 1\nraw\n\nno endfrom a program\nline 0\nline 1\n"));
    CHECK(shown.ends_with("line 19999\nunfinished behind\n"));
    CHECK(test::count_of(printed(run.path()), "err\n") == 1);
    const std::string kept = without(printed(run.path()), "err\n");
    CHECK(kept.starts_with("out 1\nraw\n\nno endfrom a program\nline 0\nline 1\n"));
    CHECK(kept.ends_with("line 19999\nunfinished\n"));
    CHECK(test::count_of(kept, "behind") == 0);
    CHECK(lines_of(kept).size() == 20'000 + 5);
}

TEST_CASE("OutputTee.keeps_the_last_line_of_a_crash") {
    struct Crash {
        const char* name;
        int signal;
        void (*crash)();
    };
    const std::vector<Crash> crashes{
        {"abort", SIGABRT, [] { std::abort(); }},
        {"segv", SIGSEGV, [] { *static_cast<volatile int*>(nullptr) = 1; }},
        {"handler", SIGABRT,
         [] { // as Open MPI has one
             std::abort();
         }}};
    for (const Crash& crash : crashes) {
        CAPTURE(std::string(crash.name));
        for (int round = 0; round < 10; ++round) {
            const testing::ScratchDirectory run;
            const Ended ended = in_child(run.path(), [&] {
                if (std::string(crash.name) == "handler") {
                    struct sigaction action {};
                    action.sa_handler = [](int signal) {
                        (void)!::write(2, "the stack\n", 10);
                        ::signal(signal, SIG_DFL);
                        ::raise(signal);
                    };
                    ::sigaction(SIGABRT, &action, nullptr);
                }
                const Kept kept(run.path());
                std::printf("last words\n");
                std::fprintf(stderr, "an unfinished line");
                crash.crash();
            });
            CHECK(WIFSIGNALED(ended.status));
            CHECK(WTERMSIG(ended.status) == crash.signal);
            const std::string kept = printed(run.path());
            for (const std::string& text : {ended.shown, kept}) {
                CHECK(test::count_of(text, "last words\n") == 1);
                CHECK(test::count_of(text, "an unfinished line") == 1);
                CHECK(test::count_of(text, "the stack\n") ==
                      (std::string(crash.name) == "handler" ? 1 : 0));
            }
        }
    }
}

TEST_CASE("OutputTee.exit_loses_nothing") {
    const testing::ScratchDirectory run;
    const Ended ended = in_child(run.path(), [&] {
        const Kept kept(run.path());
        std::atexit([] { std::fprintf(stderr, "at exit\n"); });
        std::setvbuf(stdout, nullptr, _IOFBF, 4096); // as a program may do
        std::printf("in a buffer");
        std::exit(3);
    });
    CHECK(WEXITSTATUS(ended.status) == 3);
    for (const std::string& text : {ended.shown, printed(run.path())}) {
        CHECK(test::count_of(text, "at exit\n") == 1);
        CHECK(test::count_of(text, "in a buffer") == 1);
    }
}

TEST_CASE("OutputTee.a_reader_that_pauses_loses_nothing" * doctest::timeout(60)) {
    for (const bool leaves : {false, true}) {
        CAPTURE(leaves);
        const testing::ScratchDirectory run;
        constexpr std::size_t length = 150'000; // what the pipes hold, so that all can be written
        int shown[2];
        REQUIRE(::pipe(shown) == 0);
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(shown[0]);
            ::dup2(shown[1], STDOUT_FILENO);
            ::close(shown[1]);
            {
                const Kept kept(run.path());
                std::printf("%s\n", std::string(length - 1, '.').c_str());
                if (leaves) { // as whatever ends a rank without exit()
                    process::OutputTee::settle_current();
                    ::_exit(0);
                }
            }
            ::_exit(0);
        }
        ::close(shown[1]);
        std::this_thread::sleep_for(std::chrono::seconds(4)); // longer than a thread may hang
        std::string text(length + 1, '\0');
        std::size_t got = 0;
        for (ssize_t part = 1; part > 0 && got < text.size();
             got += static_cast<std::size_t>(part)) {
            part = ::read(shown[0], text.data() + got, text.size() - got);
        }
        ::close(shown[0]);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        CHECK(got == length);
    }
}

TEST_CASE("OutputTee.a_killed_process_has_kept_what_was_passed_on") {
    const testing::ScratchDirectory run;
    const Ended ended = in_child(run.path(), [&] {
        const Kept kept(run.path());
        std::printf("last words\n");
        while (printed(run.path()).empty()) {
            ::usleep(1000);
        }
        ::raise(SIGKILL);
    });
    CHECK(WTERMSIG(ended.status) == SIGKILL);
    CHECK(printed(run.path()) == "last words\n");
    CHECK(ended.shown == "last words\n");
}

TEST_CASE("OutputTee.programs_that_go_on_behind_it_can_print") {
    const testing::ScratchDirectory run;
    const Ended ended = in_child(run.path(), [&] {
        const std::string done = (run.path() / "done").string();
        {
            const Kept kept(run.path());
            const std::string wait = "while ! test -e " + done + ".go; do sleep 0.01; done; ";
            (void)!std::system(("(" + wait + "echo later && touch " + done + ") &").c_str());
        }
        storage::replace_file(done + ".go", "");
        for (int tries = 0; tries < 1000 && !std::filesystem::exists(done); ++tries) {
            ::usleep(10'000);
        }
        for (int tries = 0; tries < 1000 && read(run.path() / "console").empty(); ++tries) {
            ::usleep(10'000);
        }
    });
    CHECK(std::filesystem::exists(run.path() / "done")); // SIGPIPE would have ended it
    CHECK(ended.shown == "later\n");
    CHECK(printed(run.path()).empty());
}
