// SPDX-License-Identifier: Apache-2.0
// What the observers of a run hear, and that it does not care for how they fare.
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/capture.hpp"
#include "support/training.hpp"

#include <rtrain/launch/helper.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/run/step_tensors.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/train/training.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;
using LineCallback = std::vector<std::string>;

namespace {

/// Writes down what it hears, and looks whether it is on disk.
class Recorder : public track::Observer {
public:
    explicit Recorder(LineCallback& heard) : heard_(heard) {}
    [[nodiscard]] std::string name() const override { return "the recorder"; }

    void started(const track::Started& event) override {
        logs_ = event.logs;
        say("started behind " + std::to_string(event.iteration) + " from \"" + event.checkpoint +
            "\" with " + std::to_string(event.checkpoints.size()));
        CHECK(std::filesystem::exists(logs_ / "params.json"));
    }
    void reported(const track::Reported& event) override {
        say("reported " + json::serialize(event.line.at("step")));
        CHECK(last_line() == event.line);
        CHECK(std::filesystem::file_size(logs_ / "result.json") == event.log_size);
    }
    void saved(const track::Saved& event) override {
        say("saved " + event.checkpoint);
        CHECK(event.line.at("checkpoint_dir_name").as_string() == event.checkpoint);
        CHECK(Result::from_path(logs_).checkpoint->path.filename() == event.checkpoint);
    }
    void closing(const track::Closing& event) override {
        say(event.pauses ? "closing for a pause" : "closing");
    }
    void validated(const track::Validated& event) override {
        say("validated " + event.checkpoint + ": " + std::string(to_string(event.record.status)) +
            " " + event.record.message);
        const auto text = test::read(logs_ / event.checkpoint / checkpoint::validation_file);
        CHECK(checkpoint::parse_validation(text).status == event.record.status);
    }
    void restarting(const track::Restarting& event) override {
        say("restarting on " + std::to_string(event.ranks) + " ranks after " +
            event.failures.at(0));
    }
    void ended(const track::Ended& event) override {
        using How = track::Ended::How;
        say(event.how == How::finished    ? "finished"
            : event.how == How::preempted ? "preempted"
                                          : "failed: " + event.message);
    }

private:
    void say(const std::string& what) { heard_.push_back(what); }

    [[nodiscard]] Config last_line() const {
        const std::string text = test::read(logs_ / "result.json");
        const auto begin = text.rfind('\n', text.size() - 2) + 1; // 0 when there is but one
        return json::parse(text.substr(begin)).as_object();
    }

    LineCallback& heard_;
    std::filesystem::path logs_;
};

/// Fails in whatever it hears.
class Broken : public track::Observer {
public:
    [[nodiscard]] std::string name() const override { return "a broken observer"; }
    void started(const track::Started&) override { throw std::runtime_error("no server"); }
    void reported(const track::Reported&) override { throw std::runtime_error("no network"); }
    void saved(const track::Saved&) override { throw 7; }
    void restarting(const track::Restarting&) override { throw StorageError("RT-S1", "no disk"); }
    void ended(const track::Ended&) override { throw std::runtime_error("no end"); }
};

/// A fit() call in this process, with observers.
class Fit {
public:
    explicit Fit(TrainerOptions options) : options_(std::move(options)) {}

    Fit& observe(std::shared_ptr<track::Observer> observer) {
        training_.observe(std::move(observer));
        return *this;
    }
    Result operator()(const rtrain::detail::RunFunction& function) {
        return training_.run(function);
    }

private:
    TrainerOptions options_;
    rtrain::detail::TheBackend<backend::Local> backend_{std::make_shared<backend::Local>()};
    checkpoint::ThePolicy<checkpoint::Sync> policy_{checkpoint::Sync{}};
    rtrain::detail::Training training_{{.backend = backend_,
                                        .policy = policy_,
                                        .options = options_,
                                        .run_name = options_.run.name,
                                        .call = {rtrain::launch::Session::of_this_process(), 0}},
                                       [](const Error& error) { FAIL(error.what()); }};
};

TrainerOptions options_in(const test::Directory& directory, int max_failures = 0) {
    return {.run = {.name = "r",
                    .storage_path = directory.path(),
                    .failure = {.max_failures = max_failures, .backoff_s = 0}}};
}

void report_state(Run& run, int step, const ReportOptions& options = {}) {
    run.report(
        {{"step", step}}, options, true, [](bool /*in_background*/) {},
        [&] {
            checkpoint::Snapshot state;
            state.values["step"] = step;
            return state;
        });
}

Config refuse(const Checkpoint& /*checkpoint*/, const Config& /*task*/) {
    throw std::runtime_error("a bad checkpoint");
}

/// Three reports, bad luck, and two more.
void train_with_bad_luck(Run& run) {
    if (!run.checkpoint()) {
        run.report({{"step", 1}});
        report_state(run, 2);
        run.report({{"step", 3}});
        throw std::runtime_error("bad luck");
    }
    run.report({{"step", 3}});
    report_state(run, 4, {.validation = true});
}

} // namespace

TEST_CASE("Events.come_in_order_over_a_restart_and_a_failed_validation" * doctest::timeout(60)) {
    const test::Directory directory("events");
    LineCallback heard;
    TrainerOptions options = options_in(directory, 1);
    options.validation = {.function = refuse};
    const Result result =
        Fit(options).observe(std::make_shared<Recorder>(heard))(train_with_bad_luck);
    CHECK(heard ==
          LineCallback{"started behind 0 from \"\" with 0", "reported 1", "reported 2",
                       "saved checkpoint_000000", "reported 3",
                       "restarting on 1 ranks after bad luck",
                       "started behind 2 from \"checkpoint_000000\" with 1", "reported 3",
                       "reported 4", "saved checkpoint_000001",
                       "validated checkpoint_000001: validation_failed the validation function "
                       "threw: a bad checkpoint",
                       "closing", "finished"});
    CHECK(result.metrics_history.size() == 4);
}

TEST_CASE("Events.of_a_run_that_fails_or_makes_room_have_an_end" * doctest::timeout(60)) {
    const test::Directory directory("ends");
    LineCallback heard;
    CHECK(code_of([&] {
              Fit(options_in(directory))
                  .observe(std::make_shared<Recorder>(heard))(train_with_bad_luck);
          }) == "RT-T1");
    REQUIRE(heard.size() == 6);
    CHECK(contains(heard.back(), "failed: "));
    CHECK(contains(heard.back(), "bad luck"));
    heard.clear();
    CHECK(code_of([&] {
              Fit(options_in(directory)).observe(std::make_shared<Recorder>(heard))([](Run& run) {
                  ProcessContext::current().notice.give(60);
                  report_state(run, 3);
                  throw rtrain::detail::Preempted();
              });
          }) == PreemptionError::own_code);
    CHECK(heard == LineCallback{"started behind 2 from \"checkpoint_000000\" with 1", "reported 3",
                                "saved checkpoint_000001", "closing for a pause", "preempted"});
    // A function that catches what is to end it has made room as well.
    heard.clear();
    CHECK(code_of([&] {
              Fit(options_in(directory)).observe(std::make_shared<Recorder>(heard))([](Run& run) {
                  ProcessContext::current().notice.give(60);
                  report_state(run, 4);
                  for (int i = 0; i < 2; ++i) {
                      try {
                          rtrain::detail::leave_function(ProcessContext::current().attempt);
                      } catch (...) {
                      }
                  }
              });
          }) == PreemptionError::own_code);
    CHECK(heard.back() == "preempted");
    // A run that cannot be taken up has not started.
    heard.clear();
    test::write(directory.path() / "file", "");
    TrainerOptions options = options_in(directory);
    options.run.storage_path /= "file";
    CHECK(code_of([&] {
              Fit(options).observe(std::make_shared<Recorder>(heard))(train_with_bad_luck);
          }) == "RT-S1");
    CHECK(heard == LineCallback{});
}

TEST_CASE("Events.observers_that_throw_change_nothing" * doctest::timeout(60)) {
    const test::Directory directory("broken");
    LineCallback undisturbed;
    TrainerOptions options = options_in(directory, 1);
    options.validation = {.function = refuse};
    const auto expected =
        Fit(options).observe(std::make_shared<Recorder>(undisturbed))(train_with_bad_luck);
    options.run.name = "broken";
    LineCallback heard;
    test::Stderr console;
    const auto result = Fit(options)
                            .observe(std::make_shared<Broken>())
                            .observe(std::make_shared<Recorder>(heard))(train_with_bad_luck);
    const std::string said = console.text();
    CHECK(heard == undisturbed);
    CHECK(result.metrics_history.size() == expected.metrics_history.size());
    CHECK(result.best_checkpoints.size() == expected.best_checkpoints.size());
    CHECK(test::count_of(said, "a broken observer") == 1);
    CHECK(contains(said, "a broken observer may be missing data from this run: no server"));
}

TEST_CASE("Events.a_table_that_cannot_be_written_heals" * doctest::timeout(60)) {
    const test::Directory directory("table");
    const auto table = directory.path() / "r" / "progress.csv";
    std::filesystem::create_directories(table / "in the way");
    test::Stderr console;
    const auto result = Fit(options_in(directory))([&](Run& run) {
        run.report({{"step", 1}});
        report_state(run, 2);
        while (!contains(console.text_so_far(), "progress.csv may be missing data")) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        std::filesystem::remove_all(table);
        run.report({{"step", 3}});
    });
    CHECK(test::count_of(console.text(), "progress.csv may be missing data") == 1);
    CHECK(result.metrics_history.size() == 3);
    CHECK(test::count_of(test::read(table), "\r\n") == 4); // and the head
}

TEST_CASE("Events.a_run_leaves_a_page_of_itself" * doctest::timeout(60)) {
    const test::Directory directory("page");
    const auto file = directory.path() / "r" / track::report_file;
    TrainerOptions options = options_in(directory);
    options.config = {{"lr", 0.5}};
    options.validation = {.function = refuse};
    options.run.checkpoint = {.score_attribute = "step", .score_order = "min"};
    CHECK(code_of([&] { Fit{options}(train_with_bad_luck); }) == "RT-T1");
    std::string page = test::read(file);
    CHECK(contains(page, "<dd>failed</dd>"));
    CHECK(contains(page, "bad luck"));
    CHECK(contains(page, R"("x":[1,2,3],"y":[1,2,3])"));

    const Result result = Fit{options}(train_with_bad_luck);
    page = test::read(file);
    CHECK(contains(page, "<dd>finished</dd>"));
    CHECK(!contains(page, "bad luck"));
    CHECK(contains(page, R"("x":[1,2,3,4],"y":[1,2,3,4])"));
    CHECK(contains(page, R"("restarts":[3])"));
    CHECK(contains(page, R"("superseded":[
{"name":"step","points":{"x":[3],"y":[3],"per":1}}])"));
    CHECK(contains(page,
                   R"("checkpoints":[{"iteration":2,"best":true},{"iteration":4,"best":false}])"));
    CHECK(contains(page, "<th scope=\"row\">lr</th><td>0.5</td>"));

    // At any time later: the same, but how the run ended is not known then.
    std::filesystem::remove(file);
    CHECK(track::write_report(result) == file.string());
    const std::string status = "<div><dt>Status</dt><dd>finished</dd></div>\n";
    REQUIRE(contains(page, status));
    CHECK(test::read(file) == page.erase(page.find(status), status.size()));
}

TEST_CASE("Events.a_directory_that_was_moved_is_not_made_anew_for_a_page") {
    const test::Directory directory("no_page");
    CHECK(code_of([&] {
              Fit{options_in(directory)}([&](Run& run) {
                  run.report({{"step", 1}});
                  std::filesystem::rename(directory.path() / "r", directory.path() / "moved");
                  throw std::runtime_error("bad luck");
              });
          }) == "RT-T1");
    CHECK(!std::filesystem::exists(directory.path() / "r"));
}

/// Counts what it shows; the program's, so that it outlives the run.
struct Counter {
    std::vector<std::int64_t>* iterations;
    std::vector<std::string>* calls;

    void start(const track::RunInfo& info) {
        calls->push_back("start " + info.name + (info.resumed ? ", resumed" : ""));
        CHECK(std::filesystem::path(info.location) == info.directory);
        CHECK(info.config.at("lr") == 0.5);
        CHECK(!info.attempt.empty());
    }
    track::Position rewind(track::Position position) {
        calls->push_back("rewind " + std::to_string(position.iteration));
        std::erase_if(*iterations, [&](auto one) { return one > position.iteration; });
        return {.iteration = iterations->empty() ? 0 : iterations->back()};
    }
    void write(const track::Line& line) { iterations->push_back(line.number); }
    void finish() { calls->emplace_back("finish"); }
};

TEST_CASE("Events.trackers_show_each_report_once" * doctest::timeout(60)) {
    const test::Directory directory("trackers");
    std::vector<std::int64_t> iterations;
    std::vector<std::string> calls;
    auto options = options_in(directory, 1);
    options.config = {{"lr", 0.5}};
    options.validation = {.function = refuse};
    options.run.trackers = {Counter{&iterations, &calls}, track::JsonLines("copy.jsonl")};
    bool fails = true;
    const auto train = [&](Run& run) {
        for (int step = 1; step <= 3; ++step) {
            report_state(run, step);
        }
        for (int step = 4; step <= 6; ++step) {
            run.report({{"step", step}});
            if (step == 5 && std::exchange(fails, false)) {
                throw std::runtime_error("bad luck");
            }
        }
    };
    (void)Fit(options)(train);
    // Three before the failure that count, then all six again, because this function counts anew.
    CHECK(iterations == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(contains(calls.front(), "start r"));
    CHECK(calls.back() == "finish");
    CHECK(contains(calls[calls.size() - 2], "rewind")); // to 3, or to 0 if it has done nothing yet
    CHECK(test::count_of(test::read(directory.path() / "r" / "copy.jsonl"), "\n") == 9);
    calls.clear();
    (void)Fit(options)([](Run&) {});
    CHECK(calls == std::vector<std::string>{"start r, resumed", "rewind 6", "finish"});
    CHECK(iterations == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
    CHECK(test::count_of(test::read(directory.path() / "r" / "copy.jsonl"), "\n") == 6);
}

/// Numbers that a tracker was given for steps, by step.
struct Steps {
    std::map<std::int64_t, Config>* shown;
    void start(const track::RunInfo& /*info*/) {}
    track::Position rewind(track::Position position) {
        shown->erase(shown->upper_bound(position.step), shown->end());
        return {.iteration = position.iteration,
                .step = shown->empty() ? 0 : shown->rbegin()->first};
    }
    void write(const track::Line& line) {
        if (line.is_step) {
            CHECK(!shown->contains(line.number));
            (*shown)[line.number] = line.values;
        }
    }
    void finish() {}
};

std::vector<Config> lines_of(const std::filesystem::path& file) {
    std::vector<Config> lines;
    std::istringstream text(test::read(file));
    for (std::string line; std::getline(text, line);) {
        lines.push_back(json::parse(line).as_object());
    }
    return lines;
}

TEST_CASE("Events.steps_are_logged_once_over_restarts" * doctest::timeout(60)) {
    const test::Directory directory("steps");
    std::map<std::int64_t, Config> shown;
    auto options = options_in(directory, 1);
    options.run.trackers = {Steps{&shown}, track::TensorBoard{}};
    bool fails = true;
    const auto train = [&](int epochs) {
        Trainer<backend::Local> trainer(options);
        return trainer.fit([&](auto& worker) {
            int step = 0;
            auto state = State{}.add("step", step);
            for (const int epoch : worker.epochs(epochs, state)) {
                for (int i = 0; i < 10; ++i) {
                    ++step;
                    const auto loss = torch::full({}, step, torch::kFloat);
                    worker.log({{"loss", loss}, {"twice", 2 * step}, {"half", step / 2.0}});
                    if (epoch == 1 && i == 5 && std::exchange(fails, false)) {
                        throw std::runtime_error("bad luck");
                    }
                }
                worker.report({{"epoch", epoch}}, state);
            }
        });
    };
    const auto check = [&](int steps) {
        REQUIRE(shown.size() == static_cast<std::size_t>(steps));
        for (const auto& [number, values] : shown) {
            CHECK(values.at("loss") == static_cast<double>(number));
            CHECK(values.at("twice") == 2.0 * static_cast<double>(number));
            CHECK(values.at("half") == 0.5 * static_cast<double>(number));
            CHECK(values.at("training_iteration") == (number - 1) / 10);
        }
        std::int64_t last = 0;
        for (const Config& line : lines_of(directory.path() / "r" / "steps.jsonl")) {
            if (!line.contains("checkpoint")) {
                CHECK(line.at("step") == ++last);
            }
        }
        CHECK(last == steps);
    };
    train(3);
    check(30);
    train(5); // another process would do the same
    check(50);
    CHECK(std::filesystem::exists(directory.path() / "r" / "tensorboard" / "steps"));
}

TEST_CASE("Events.what_cannot_be_logged_is_refused" * doctest::timeout(60)) {
    const test::Directory directory("refused");
    Trainer<backend::Local> trainer(options_in(directory));
    trainer.fit([](auto& worker) {
        CHECK(code_of([&] { worker.log({{"step", 1}}); }) == "RT-C33");
        CHECK(code_of([&] { worker.log({{"loss", torch::ones({2})}}); }) == "RT-C34");
        worker.log({{"loss", torch::ones({1, 1})}});
    });
    CHECK(lines_of(directory.path() / "r" / "steps.jsonl").size() == 1);
}

TEST_CASE("Events.steps_that_come_too_fast_are_counted" * doctest::timeout(60)) {
    const test::Directory directory("fast");
    constexpr int steps = 2 * static_cast<int>(track::StepLog<StepTensors>::capacity);
    test::Stderr console;
    Trainer<backend::Local> trainer(options_in(directory));
    trainer.fit([](auto& worker) {
        for (int i = 0; i < steps; ++i) {
            worker.log({{"loss", i}});
        }
    });
    const auto written = lines_of(directory.path() / "r" / "steps.jsonl").size();
    const auto said = console.text();
    CHECK(written >= track::StepLog<StepTensors>::capacity);
    CHECK(contains(said, written == steps
                             ? ""
                             : "is missing " + std::to_string(steps - written) + " numbers"));
}

TEST_CASE("Events.two_trackers_write_to_two_files") {
    using Trackers = std::vector<track::AnyTracker>;
    const auto refused = [](Trackers trackers) {
        TrainerOptions options;
        options.run.trackers = std::move(trackers);
        return code_of([&] { rtrain::detail::check_options(options); });
    };
    CHECK(refused({track::JsonLines("a"), track::JsonLines("b")}).empty());
    CHECK(refused({track::JsonLines("a"), track::JsonLines("a")}) == "RT-C30");
    for (const char* name : {"result.json",   "progress.csv", "report.html", "stopped.json",
                             "trace.json",    "latest",       "logs",        "logs/a",
                             "./logs/a",      "trainer.json", "error.json",  "live.json",
                             "trackers.json", "run.json",     ".lock",       ".rtrain-staging-a",
                             "../a",          "/a",           "x/../../a",   "./a/..",
                             "checkpoint_x"}) {
        CHECK(refused({track::JsonLines(name)}) == "RT-C30");
    }
}

int main(int argc, char** argv) {
    if (launch::Helper::is_this_process()) {
        launch::Helper::serve(refuse);
        return 0;
    }
    return doctest::Context(argc, argv).run();
}
