// SPDX-License-Identifier: Apache-2.0
/// @file
/// The conformance suite of Tracker: tests what the concept cannot check, for custom types.
///
/// @code
/// #include <doctest/doctest.h>
/// #include <rtrain/testing/tracker.hpp>
///
/// /// Reads number and "loss" of each report from the tracker's output.
/// rtrain::testing::ShownReports read_losses(const std::filesystem::path& run_directory);
///
/// RTRAIN_TEST_TRACKER(Losses, read_losses, Losses("losses.txt"));
/// @endcode
///
/// defines test cases "Tracker.Losses.shows_each_report_once" and so on. They need no training, and
/// no ranks. Tests that kill a process fork one.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/testing/scratch.hpp>
#include <rtrain/testing/suite.hpp>
#include <rtrain/track/delivery/replay.hpp>

#include <boost/json/array.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::testing {

/// Number and "loss" of each report, in the order of the output.
using ShownReports = std::vector<std::pair<std::int64_t, double>>;

/// The logs of a run that is resumed repeatedly.
class LoggedRun {
public:
    LoggedRun() : log_(directory(), {{"lr", 0.5}, {"deep", {{"er", "text"}}}}) { resume(0); }

    /// The run's directory.
    [[nodiscard]] std::filesystem::path directory() const {
        auto directory = scratch_.path() / "run";
        std::filesystem::create_directories(directory);
        return directory;
    }
    /// Information about the run that trackers get.
    [[nodiscard]] track::RunInfo info() const {
        return {.name = "run",
                .directory = directory(),
                .location = directory().string(),
                .config = {{"lr", 0.5}, {"deep", {{"er", "text"}}}},
                .attempt = "attempt-" + std::to_string(starts_),
                .position = {.iteration = counts_},
                .resumed = counts_ > 0};
    }

    /// Resumes the run after so many reports.
    void resume(std::int64_t reports) {
        Config last;
        for (Config& line : lines()) {
            last = track::number_of(line) == reports ? std::move(line) : last;
        }
        (void)log_.open(reports > 0 ? &last : nullptr, [](const Config& /*line*/) {});
        counts_ = reports;
        ++starts_;
    }

    /// Each loss is different from all before.
    void report(Config metrics = {}) {
        metrics["loss"] = ++last_loss_;
        log_.begin_report();
        log_.append(log_.complete(std::move(metrics), std::nullopt));
    }
    /// Adds so many reports.
    void report_times(int count) {
        for (int i = 0; i < count; ++i) {
            report();
        }
    }
    /// Same as worker.log().
    void log_step(std::int64_t step) const {
        const Config line{{track::step_field, step},
                          {track::iteration_field, 0},
                          {"timestamp", 1.5},
                          {"loss", -static_cast<double>(step)}};
        storage::GrowingFile(directory() / track::steps_file).append(json::serialize(line) + "\n");
    }

    /// The output of a complete tracker.
    [[nodiscard]] ShownReports reports() const {
        ShownReports all;
        for (const Config& line : lines()) {
            all.emplace_back(track::number_of(line), line.at("loss").to_number<double>());
        }
        return all;
    }

private:
    [[nodiscard]] std::vector<Config> lines() const {
        return track::read_results(directory() / track::results_file, 0).reports;
    }

    ScratchDirectory scratch_;
    track::RunLog log_;
    std::int64_t counts_ = 0;
    int starts_ = 0;
    double last_loss_ = 0;
};

/// Forwards all calls to a tracker, and kills the process at a given line.
struct KilledAtLine {
    track::AnyTracker tracker; ///< receives the calls
    std::int64_t number;       ///< number of the line that kills the process
    int lines_between_flushes; ///< lines per flush
    int lines = 0;             ///< lines received so far

    void start(const track::RunInfo& info) const { tracker.start(info); }
    [[nodiscard]] track::Position rewind(track::Position position) const {
        return tracker.rewind(position);
    }
    void write(const track::Line& line) {
        if (line.number == number) {
            (void)::kill(::getpid(), SIGKILL);
        }
        tracker.write(line);
        if (++lines % lines_between_flushes == 0) {
            tracker.flush();
        }
    }
    void finish() const {}
};

/// Tests of rtrain's requirements for a tracker; run by RTRAIN_TEST_TRACKER.
class TrackerSuite {
public:
    using Read = std::function<ShownReports(const std::filesystem::path& run_directory)>;
    using Make = std::function<track::AnyTracker()>;

    TrackerSuite(Read read, Make make) : read_(std::move(read)), make_(std::move(make)) {}

    void shows_each_report_once() {
        const track::AnyTracker tracker = make_();
        run_.report_times(250);
        start(tracker);
        end(tracker);
    }

    /// The training function is called again in the same process.
    void forgets_what_is_made_again() {
        const track::AnyTracker tracker = make_();
        run_.report_times(5);
        start(tracker);
        for (const int behind : {3, 0, 4, 4}) {
            DOCTEST_CAPTURE(behind);
            run_.resume(behind);
            run_.report_times(4);
            replay(tracker);
        }
        end(tracker);
    }

    /// Each start of the run has its own tracker, like a new process.
    void goes_on_in_another_process() {
        for (const auto ending :
             {track::Ending::paused, track::Ending::failed, track::Ending::finished}) {
            for (const int behind : {0, 2, 6}) {
                DOCTEST_CAPTURE(behind);
                const track::AnyTracker tracker = make_();
                run_.resume(behind);
                run_.report_times(4);
                start(tracker);
                end(tracker, ending);
            }
        }
    }

    /// The reader may have everything up to there, or less.
    void may_be_killed_at_any_line() {
        for (int line = 1; line <= 6; ++line) {
            for (const int behind : {0, line / 2, line - 1}) {
                DOCTEST_CAPTURE(line);
                DOCTEST_CAPTURE(behind);
                run_.resume(0);
                run_.report_times(6);
                start_and_be_killed(line);
                run_.resume(behind);
                run_.report_times(2);
                const track::AnyTracker tracker = make_();
                start(tracker);
                end(tracker);
            }
        }
    }

    /// Leaves out what it cannot show, and shows the rest.
    void takes_odd_metrics() {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const track::AnyTracker tracker = make_();
        run_.report({{"nan", std::numeric_limits<double>::quiet_NaN()},
                     {"infinity", -infinity},
                     {"changes", 1},
                     {"none", nullptr},
                     {"list", boost::json::array{1, "two", nullptr, infinity}},
                     {"great", std::numeric_limits<std::uint64_t>::max()}});
        run_.report({{"", 1},
                     {"/", 2},
                     {"a/b", 3},
                     {"a", {{"b", 4}, {"", 5}}},
                     {"a\"b\"\n,<script>\\", 6},
                     {"gr\xc3\xbc\xc3\x9f", "\xe4\xbd\xa0"},
                     {"broken \xff", "text \xc3"},
                     {std::string(1000, 'n'), 7}});
        run_.report({{"long", std::string(1'000'000, 'x')}, {"changes", "now a text"}});
        run_.report({{"changes", {{"deep", true}}}, {"infinity", false}});
        Config many;
        for (int i = 0; i < 5000; ++i) {
            many["many/" + std::to_string(i)] = i;
        }
        run_.report(many);
        start(tracker);
        end(tracker);
    }

    /// Steps are counted separately, and may come between reports.
    void tells_steps_from_reports() {
        for (const std::int64_t behind : {0, 2}) {
            run_.resume(behind);
            run_.report_times(3);
            for (std::int64_t step = 1; step <= 5; ++step) {
                run_.log_step(behind * 10 + step);
            }
            const track::AnyTracker tracker = make_();
            start(tracker);
            end(tracker);
        }
    }

    /// A run on a storage service only has files uploaded there.
    void writes_only_its_output() {
        const track::AnyTracker tracker = make_();
        run_.report_times(3);
        run_.log_step(1);
        const auto before = files();
        start(tracker);
        end(tracker);
        const std::string output = tracker.output();
        std::string others;
        for (const std::string& file : files()) {
            const bool is_ours =
                !output.empty() && (file == output || file.starts_with(output + "/"));
            const bool was_there = std::ranges::find(before, file) != before.end();
            others += is_ours || was_there ? "" : file + ' ';
        }
        DOCTEST_CHECK(others == "");
    }

private:
    void start(const track::AnyTracker& tracker) {
        tracker.start(run_.info());
        replay(tracker);
    }

    void replay(const track::AnyTracker& tracker) {
        const track::Position to = run_.info().position;
        struct Checked {
            track::AnyTracker tracker;
            void start(const track::RunInfo& /*info*/) const {}
            [[nodiscard]] track::Position rewind(track::Position position) const {
                const track::Position at = tracker.rewind(position);
                DOCTEST_CHECK(at.iteration >= 0);
                DOCTEST_CHECK(at.iteration <= position.iteration);
                DOCTEST_CHECK(at.step >= 0);
                DOCTEST_CHECK(at.step <= position.step);
                return at;
            }
            void write(const track::Line& line) const { tracker.write(line); }
            void flush() const { tracker.flush(); }
            void finish() const {}
        };
        track::replay(Checked{tracker}, run_.directory(), to);
    }

    void end(const track::AnyTracker& tracker, track::Ending ending = track::Ending::finished) {
        tracker.finish(ending);
        const ShownReports shown = read_(run_.directory());
        const ShownReports expected = run_.reports();
        DOCTEST_CHECK(shown.size() == expected.size());
        const auto at = std::ranges::mismatch(shown, expected);
        if (at.in1 != shown.end() && at.in2 != expected.end()) {
            DOCTEST_CHECK(at.in1->first == at.in2->first);
            DOCTEST_CHECK(at.in1->second == at.in2->second);
        }
    }

    void start_and_be_killed(std::int64_t line) {
        const pid_t child = ::fork();
        DOCTEST_REQUIRE(child >= 0);
        if (child == 0) {
            try {
                const track::AnyTracker tracker = KilledAtLine{make_(), line, 2};
                tracker.start(run_.info());
                track::replay(tracker, run_.directory(), run_.info().position);
            } catch (...) { // the parent detects that it was not killed
            }
            ::_exit(1);
        }
        int status = 0;
        DOCTEST_REQUIRE(::waitpid(child, &status, 0) == child);
        DOCTEST_REQUIRE(WIFSIGNALED(status));
        DOCTEST_REQUIRE(WTERMSIG(status) == SIGKILL);
    }

    [[nodiscard]] std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(run_.directory())) {
            if (!entry.is_directory()) {
                names.push_back(std::filesystem::relative(entry.path(), run_.directory()).string());
            }
        }
        return names;
    }

    Read read_;
    Make make_;
    LoggedRun run_;
};

} // namespace rtrain::testing

/// RTRAIN_TEST_TRACKER(name, read, expression);
/// `expression` constructs a tracker, `read(run_directory)` returns the ShownReports of its output.
#define RTRAIN_TEST_TRACKER(NAME, READ, ...)                                                       \
    RTRAIN_TESTING_TRACKER(NAME, shows_each_report_once, READ, __VA_ARGS__)                        \
    RTRAIN_TESTING_TRACKER(NAME, forgets_what_is_made_again, READ, __VA_ARGS__)                    \
    RTRAIN_TESTING_TRACKER(NAME, goes_on_in_another_process, READ, __VA_ARGS__)                    \
    RTRAIN_TESTING_TRACKER(NAME, may_be_killed_at_any_line, READ, __VA_ARGS__)                     \
    RTRAIN_TESTING_TRACKER(NAME, takes_odd_metrics, READ, __VA_ARGS__)                             \
    RTRAIN_TESTING_TRACKER(NAME, tells_steps_from_reports, READ, __VA_ARGS__)                      \
    RTRAIN_TESTING_TRACKER(NAME, writes_only_its_output, READ, __VA_ARGS__)                        \
    static_assert(true)
/// One test case of RTRAIN_TEST_TRACKER.
#define RTRAIN_TESTING_TRACKER(NAME, HOLDS, READ, ...)                                             \
    RTRAIN_TESTING_CASE("Tracker", NAME, TrackerSuite, HOLDS, READ, [] { return __VA_ARGS__; })
