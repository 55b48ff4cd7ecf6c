// SPDX-License-Identifier: Apache-2.0
#include "support/capture.hpp"
#include "support/file_limit.hpp"
#include "support/thrown.hpp"
#include "track/tracked_run.hpp"

#include <rtrain/track/files/csv.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/track/http/url.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <limits>
#include <stdexcept>
#include <thread>

using namespace rtrain;
using test::Memory;
using test::Scratch;
using test::Told;
using test::TrackedRun;
using namespace std::chrono_literals;
using Iterations = std::vector<std::int64_t>;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& file) {
    std::vector<std::string> lines;
    std::ifstream input(file, std::ios::binary);
    for (std::string line; std::getline(input, line);) {
        lines.push_back(line);
    }
    return lines;
}

Iterations iterations_in(const std::filesystem::path& json_lines) {
    Iterations iterations;
    for (const std::string& line : lines_of(json_lines)) {
        iterations.push_back(track::number_of(json::parse(line).as_object()));
    }
    return iterations;
}

/// Without the columns that rtrain fills in, which begin with the time.
std::vector<std::string> table_of(const std::filesystem::path& csv) {
    std::vector<std::string> rows;
    for (const std::string& line : lines_of(csv)) {
        const auto head = lines_of(csv)[0];
        const auto metrics = std::count(head.begin(), head.begin() + head.find("timestamp"), ',');
        std::size_t end = 0;
        for (int i = 0; i < metrics; ++i) {
            end = line.find(',', end) + 1;
        }
        rows.push_back(line.substr(0, end));
    }
    return rows;
}

} // namespace

TEST_CASE("Trackers.get_each_report_once_and_in_order" * doctest::timeout(60)) {
    const Scratch scratch("once");
    Told told;
    TrackedRun run(scratch.run(), {Memory{&told}});
    run.begin();
    Iterations expected;
    for (int i = 1; i <= 500; ++i) {
        run.report({{"loss", i}});
        expected.push_back(i);
    }
    run.close();
    CHECK(told.iterations() == expected);
    CHECK(told.shown[41].second == 42);
    CHECK(told.calls == std::vector<std::string>{"start r a1", "rewind 0", "finish"});
}

TEST_CASE("Trackers.show_no_report_that_a_restart_makes_again" * doctest::timeout(60)) {
    const Scratch scratch("rewind");
    Told told;
    TrackedRun run(scratch.run(), {Memory{&told}});
    run.begin();
    for (const int loss : {10, 20, 30, 40}) {
        run.report({{"loss", loss}});
    }
    run.begin(2);
    for (const int loss : {31, 41}) {
        run.report({{"loss", loss}});
    }
    run.close();
    CHECK(told.iterations() == Iterations{1, 2, 3, 4});
    CHECK(told.shown[1].second == 20);
    CHECK(told.shown[2].second == 31);
    CHECK(told.shown[3].second == 41);
    CHECK(told.calls.back() == "finish");
}

TEST_CASE("Trackers.get_from_the_log_what_never_reached_them" * doctest::timeout(60)) {
    const Scratch scratch("behind");
    Told told;
    {
        TrackedRun without(scratch.run(), {});
        without.begin();
        for (int i = 1; i <= 5; ++i) {
            without.report({{"loss", i}});
        }
        without.close();
    }
    told.shown = {{1, 1}, {2, 2}}; // as a process left it that was killed
    TrackedRun run(scratch.run(), {Memory{&told}});
    run.begin(4);
    run.report({{"loss", 50}});
    run.close();
    CHECK(told.iterations() == Iterations{1, 2, 3, 4, 5});
    CHECK(told.shown[3].second == 4);
    CHECK(told.shown[4].second == 50);
}

TEST_CASE("Trackers.one_that_throws_is_named_once_and_loses_nothing" * doctest::timeout(60)) {
    const Scratch scratch("throws");
    Told broken;
    Told well;
    int refusals = 3;
    test::Stderr console;
    {
        const auto refuse = [&](const track::Line& line) {
            if (line.number == 2 && refusals-- > 0) {
                throw std::runtime_error("no server");
            }
        };
        TrackedRun run(scratch.run(), {Memory{&broken, "the server's", refuse}, Memory{&well}});
        run.begin();
        for (int i = 1; i <= 5; ++i) {
            run.report({{"loss", i}});
        }
        while (broken.iterations().size() < 5) {
            std::this_thread::sleep_for(10ms);
        }
        run.close();
    }
    const std::string said = console.text();
    CHECK(broken.iterations() == Iterations{1, 2, 3, 4, 5});
    CHECK(well.iterations() == Iterations{1, 2, 3, 4, 5});
    CHECK(test::count_of(said, "the server's may be missing data from this run: no server") == 1);
    CHECK(test::count_of(said, "lacks the last") == 0);
}

TEST_CASE("Trackers.what_one_lacks_at_the_end_is_said" * doctest::timeout(60)) {
    const Scratch scratch("lacks");
    Told told;
    test::Stderr console;
    {
        const auto refuse = [](const track::Line& line) {
            if (line.number > 2) {
                throw std::runtime_error("no room");
            }
        };
        TrackedRun run(scratch.run(), {Memory{&told, "memory", refuse}});
        run.begin();
        for (int i = 1; i <= 5; ++i) {
            run.report({{"loss", i}});
        }
        run.close();
    }
    CHECK(test::count_of(console.text(), "memory has failed and lacks the last 3 of this run's 5 "
                                         "reports, which are in result.json") == 1);
}

TEST_CASE("Trackers.one_that_blocks_holds_up_nobody" * doctest::timeout(60)) {
    const Scratch scratch("blocks");
    Told blocked;
    Told well;
    std::promise<void> leave;
    const auto left = leave.get_future().share();
    test::Stderr console;
    const track::AnyTracker blocking =
        Memory{&blocked, "the slow one", [=](const track::Line&) { left.wait(); }};
    {
        TrackedRun run(scratch.run(), {blocking, Memory{&well}}, 300ms);
        run.begin();
        for (int i = 1; i <= 5; ++i) {
            run.report({{"loss", i}});
        }
        const auto before = std::chrono::steady_clock::now();
        run.close();
        CHECK(std::chrono::steady_clock::now() - before < 10s);
    }
    CHECK(well.iterations() == Iterations{1, 2, 3, 4, 5});
    { // it is still busy with that one
        TrackedRun run(scratch.run(), {blocking}, 300ms);
        run.begin(5);
        run.close();
    }
    const std::string said = console.text();
    CHECK(test::count_of(said, "the slow one takes too long and lacks the last 5 of this run's 5 "
                               "reports") == 1);
    CHECK(test::count_of(said, "the slow one has not returned from an earlier fit() call") == 1);
    leave.set_value();
    while (!blocking.take()) { // its thread is gone before what it writes to
        std::this_thread::sleep_for(1ms);
    }
    CHECK(blocked.iterations().size() <= 1); // no report waits for the rest
}

TEST_CASE("Trackers.forget_what_they_had_no_time_to_forget" * doctest::timeout(60)) {
    const Scratch scratch("pending");
    Told told;
    bool blocks = false;
    std::promise<void> leave;
    const auto left = leave.get_future().share();
    test::Stderr console;
    /// It keeps what it shows, as a server does, and is not told to rewind while it blocks.
    struct Server : Memory {
        std::function<void()> on_rewind;
        track::Position rewind(track::Position position) {
            on_rewind();
            return Memory::rewind(position);
        }
    };
    const auto wait = [&] {
        if (blocks) {
            left.wait();
            throw std::runtime_error("as if the process were killed here");
        }
    };
    {
        TrackedRun run(scratch.run(), {Server{{&told}, wait}});
        run.begin();
        for (const int loss : {10, 20, 30}) {
            run.report({{"loss", loss}});
        }
        run.close();
    }
    CHECK(told.iterations() == Iterations{1, 2, 3});
    blocks = true;
    const track::AnyTracker blocking = Server{{&told}, wait};
    { // goes on, past what the tracker shows, and dies
        TrackedRun run(scratch.run(), {blocking}, 1ms);
        run.begin(1);
        for (const int loss : {21, 31, 41}) {
            run.report({{"loss", loss}});
        }
        run.close();
    }
    leave.set_value();
    while (!blocking.take()) {
        std::this_thread::sleep_for(1ms);
    }
    CHECK(told.shown[1].second == 20);
    blocks = false;
    TrackedRun run(scratch.run(), {Server{{&told}, wait}});
    run.begin(4);
    run.close();
    CHECK(told.iterations() == Iterations{1, 2, 3, 4});
    CHECK(told.shown[1].second == 21);
    CHECK(told.shown[3].second == 41);
    // From now on it need not go back so far.
    TrackedRun again(scratch.run(), {Server{{&told}, wait}});
    again.begin(4);
    again.close();
    CHECK(told.calls.back() == "finish");
    CHECK(told.calls[told.calls.size() - 2] == "rewind 4");
}

/// Has lines together, as one that sends them.
struct Sender : Memory {
    std::vector<std::pair<std::int64_t, double>> kept{};
    std::function<void(std::size_t)> on_flush = [](std::size_t) {};

    track::Position rewind(track::Position position) {
        kept.clear();
        return Memory::rewind(position);
    }
    void write(const track::Line& line) {
        kept.emplace_back(line.number, line.values.at("loss").to_number<double>());
    }
    void flush() {
        on_flush(kept.size());
        const std::scoped_lock lock(told->mutex);
        told->shown.insert(told->shown.end(), kept.begin(), kept.end());
        kept.clear();
    }
    void finish(track::Ending ending) {
        const std::scoped_lock lock(told->mutex);
        told->calls.push_back("finish " + std::to_string(static_cast<int>(ending)));
    }
};

TEST_CASE("Trackers.that_have_lines_together_get_no_more_before_these_are_in_place" *
          doctest::timeout(60)) {
    const Scratch scratch("together");
    const auto report = [](TrackedRun& run, int count) {
        for (int i = 1; i <= count; ++i) {
            run.report({{"loss", i}});
        }
    };
    {
        TrackedRun without(scratch.run(), {});
        without.begin();
        report(without, 250);
        without.close();
    }
    Told told;
    std::vector<std::size_t> flushed;
    int refusals = 2;
    const auto on_flush = [&](std::size_t lines) {
        flushed.push_back(lines);
        if (flushed.size() > 1 && refusals-- > 0) {
            throw std::runtime_error("no server");
        }
    };
    const test::Stderr console;
    TrackedRun run(scratch.run(), {Sender{{&told}, {}, on_flush}});
    run.begin(250);
    while (told.iterations().size() < 250) {
        std::this_thread::sleep_for(10ms);
    }
    CHECK(flushed == std::vector<std::size_t>{100, 100, 100, 100, 50});
    report(run, 1);
    run.close(track::Ending::failed);
    CHECK(told.iterations().size() == 251);
    CHECK(told.iterations().back() == 251);
    CHECK(told.calls.back() == "finish 2");
}

TEST_CASE("Trackers.lack_what_they_have_kept_back_at_the_end" * doctest::timeout(60)) {
    const Scratch scratch("kept");
    Told told;
    test::Stderr console;
    {
        const auto refuse = [&](std::size_t lines) {
            if (lines > 0) {
                throw std::runtime_error("no server");
            }
        };
        TrackedRun run(scratch.run(), {Sender{{&told}, {}, refuse}});
        run.begin();
        for (int i = 1; i <= 5; ++i) {
            run.report({{"loss", i}});
        }
        run.close();
    }
    CHECK(test::count_of(console.text(), "memory has failed and lacks the last 5 of this run's 5 "
                                         "reports") == 1);
}

TEST_CASE("Trackers.get_whatever_a_report_has" * doctest::timeout(60)) {
    const Scratch scratch("bad");
    std::vector<Config> lines;
    const auto keep = [&](const track::Line& line) { lines.push_back(line.values); };
    Told told;
    TrackedRun run(scratch.run(), {Memory{&told, "memory", keep}});
    run.begin();
    Config metrics{{"loss", 1}};
    for (int i = 0; i < 10'000; ++i) {
        metrics["metric " + std::to_string(i)] = i;
    }
    metrics["a/\"quoted\"\nname"] = "\xc3\xa9";
    metrics["broken \xff name"] = "and text \xc3";
    metrics["long"] = std::string(1'000'000, 'x');
    run.report(metrics);
    run.report({{"loss", 2}, {"metric 7", "now a text"}});
    run.close();
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("metric 9999") == 9999);
    CHECK(lines[0].at("a/\"quoted\"\nname") == "\xc3\xa9");
    CHECK(lines[0].at("broken ? name") == "and text ?");
    CHECK(lines[0].at("long").as_string().size() == 1'000'000);
    CHECK(lines[1].at("metric 7") == "now a text");
    CHECK(lines == run.reports());
}

TEST_CASE("Csv.is_a_table_of_the_reports_with_all_columns") {
    const Scratch scratch("csv");
    const auto csv = scratch.run() / "progress.csv";
    TrackedRun run(scratch.run(), {track::Csv("progress.csv")});
    run.begin();
    run.close();
    CHECK(lines_of(csv).empty());
    run.begin();
    run.report({{"loss", 1.5}, {"deep", {{"er", 2}}}});
    run.report({{"loss", std::numeric_limits<double>::quiet_NaN()}, {"text", "a,\"b\"\n"}});
    run.report({{"loss", -std::numeric_limits<double>::infinity()}, {"deep", "now a text"}});
    run.close();
    std::ifstream input(csv, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(input), {});
    CHECK(text.starts_with("loss,deep/er,timestamp,checkpoint_dir_name,done,"));
    CHECK(test::count_of(text, ",text,deep\r\n") == 1);
    CHECK(test::count_of(text, "\r\n1.5E0,2,") == 1);
    CHECK(test::count_of(text, "\r\n,,") == 1);
    CHECK(test::count_of(text, ",\"a,\"\"b\"\"\n\",\r\n-inf,,") == 1);
    CHECK(text.ends_with(",,now a text\r\n"));
    CHECK(test::count_of(text, "\r\n") == 4);
}

TEST_CASE("Csv.a_name_with_a_slash_is_beside_the_same_in_an_object") {
    const Scratch scratch("csv_slash");
    TrackedRun run(scratch.run(), {track::Csv("progress.csv")});
    run.begin();
    run.report({{"a", {{"b", 1}}}, {"a/b", 2}, {"c", 3}});
    run.close();
    std::ifstream input(scratch.run() / "progress.csv", std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(input), {});
    CHECK(text.starts_with("a/b_2,a/b,c,"));
    CHECK(test::count_of(text, "\r\n1,2,3,") == 1);
}

TEST_CASE("Csv.has_what_counts_after_a_restart") {
    const Scratch scratch("csv_restart");
    TrackedRun run(scratch.run(), {track::Csv("progress.csv")});
    run.begin();
    for (const int loss : {1, 2, 3}) {
        run.report({{"loss", loss}, {"old", loss}});
    }
    run.begin(1);
    run.report({{"loss", 20}});
    run.close();
    CHECK(table_of(scratch.run() / "progress.csv") ==
          std::vector<std::string>{"loss,old,", "1,1,", "20,,"});
}

TEST_CASE("JsonLines.has_each_report_once_whatever_was_left") {
    const Scratch scratch("lines");
    const auto file = scratch.run() / "deep/metrics.jsonl";
    const auto tracker = [] { return track::JsonLines("deep/metrics.jsonl"); };
    {
        TrackedRun run(scratch.run(), {tracker()});
        run.begin();
        for (int i = 1; i <= 4; ++i) {
            run.report({{"loss", i}});
        }
        run.close();
    }
    const auto lines = lines_of(file);
    REQUIRE(lines.size() == 4);
    CHECK(!json::parse(lines[0]).as_object().contains("config"));
    CHECK(json::parse(lines[0]).at("loss") == 1);
    for (const std::size_t left : {0, 1, 2, 3, 4}) { // lines, and a part of the next
        std::string text;
        for (std::size_t i = 0; i < left; ++i) {
            text += lines[i] + "\n";
        }
        storage::replace_file(file, text + "{\"training_it");
        TrackedRun run(scratch.run(), {tracker()});
        run.begin(3);
        run.report({{"loss", 40}});
        run.close();
        CAPTURE(left);
        CHECK(iterations_in(file) == Iterations{1, 2, 3, 4});
        CHECK(json::parse(lines_of(file).back()).at("loss") == 40);
    }
}

TEST_CASE("JsonLines.has_whole_lines_when_the_disk_is_full") {
    const Scratch scratch("full");
    const auto file = scratch.run() / "metrics.jsonl";
    track::JsonLines tracker;
    tracker.start({.name = "r", .directory = scratch.run()});
    CHECK(tracker.rewind({}) == track::Position{});
    const auto write = [&](std::int64_t number) {
        const Config line{{"training_iteration", number}, {"text", std::string(100, 'x')}};
        tracker.write({.number = number, .values = line, .text = ""});
    };
    write(1);
    {
        const test::FileLimit full(200); // in the middle of the second line
        CHECK_THROWS_AS(write(2), StorageError);
        CHECK(iterations_in(file) == Iterations{1});
    }
    write(2);
    CHECK(iterations_in(file) == Iterations{1, 2});
}

TEST_CASE("Url.has_the_parts_of_a_servers_address") {
    const track::Url plain = track::parse_url("http://tracker.example:5000/mlflow/");
    CHECK(plain.host == "tracker.example");
    CHECK(plain.port == "5000");
    CHECK(plain.path == "/mlflow");
    CHECK_FALSE(plain.encrypted);
    CHECK(plain.authority() == "tracker.example:5000");
    CHECK(plain.text() == "http://tracker.example:5000/mlflow");
    const track::Url brackets = track::parse_url("https://[2001:db8::1]:443");
    CHECK(brackets.host == "2001:db8::1");
    CHECK(brackets.port == "443");
    CHECK(brackets.encrypted);
    CHECK(brackets.text() == "https://[2001:db8::1]");
}

TEST_CASE("Url.is_loopback_only_if_requests_stay_on_this_machine") {
    for (const std::string text : {"http://127.0.0.1:5000", "http://127.1.2.3", "http://localhost",
                                   "http://[::1]:5000", "https://localhost/x"}) {
        CHECK_MESSAGE(track::parse_url(text).is_loopback, text);
    }
    for (const std::string text :
         {"http://tracker.example", "http://127.evil.example", "http://localhost.evil.example",
          "http://10.0.0.1", "http://[2001:db8::1]"}) {
        CHECK_MESSAGE(!track::parse_url(text).is_loopback, text);
    }
    // Boost 1.81 would take a part of this name for an address; newer versions read all of it.
    track::Url url{};
    const std::string said =
        test::message_of([&] { url = track::parse_url("http://127.0.0.1.evil.example/x"); });
    CHECK((test::contains(said, "[RT-V60]") || url.host == "127.0.0.1.evil.example"));
    CHECK_FALSE(url.is_loopback);
}

TEST_CASE("Url.is_refused_without_showing_it") {
    for (const std::string text :
         {"", "tracker", "file:/secret", "ftp://secret", "http://", "https://", "http://a:secret",
          "http://a:", "http://a:0", "http://a:65536", "http://a secret", "http://a/?secret",
          "http://a/#secret", "http://user:secret@a", "http://[::1", "http://a\nsecret"}) {
        const std::string said = test::message_of([&] { (void)track::parse_url(text); });
        CHECK_MESSAGE(test::contains(said, "[RT-V60]"), text);
        CHECK_FALSE(test::contains(said, "secret"));
    }
}

TEST_CASE("LogReader.returns_whole_lines_below_its_limit") {
    const Scratch scratch("reader");
    const auto file = scratch.run() / "log";
    const std::string longest(200'000, 'x');
    storage::replace_file(file, "one\n\n" + longest + "\nfour\npart");
    track::LogReader reader(file);
    CHECK(!reader.line(3)); // its end lies behind
    CHECK(reader.line(4) == "one");
    reader.pass();
    CHECK(reader.line() == "");
    reader.pass();
    CHECK(!reader.line(1000));
    CHECK(reader.line() == longest);
    reader.rest();
    storage::replace_file(file, "one\n\n" + longest + "\nfive\n"); // begins alike
    CHECK(reader.line() == longest);
    reader.pass();
    CHECK(reader.line() == "five");
    reader.pass();
    CHECK(!reader.line());
}
