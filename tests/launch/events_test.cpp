// SPDX-License-Identifier: Apache-2.0
// What the observers of a run hear, and that it does not care for how they fare.
#define DOCTEST_CONFIG_IMPLEMENT
#include "../capture.hpp"
#include "../support.hpp"

#include <rtrain/launch/helper.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/train/training.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;
using Heard = std::vector<std::string>;

namespace {

/// Writes down what it hears, and looks whether it is on disk.
class Recorder : public track::Observer {
public:
    explicit Recorder(Heard& heard) : heard_(heard) {}
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
    }
    void saved(const track::Saved& event) override {
        say("saved " + event.checkpoint);
        CHECK(event.line.at("checkpoint_dir_name").as_string() == event.checkpoint);
        CHECK(Result::from_path(logs_).checkpoint->path.filename() == event.checkpoint);
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

    Heard& heard_;
    std::filesystem::path logs_;
};

/// Fails in whatever it hears.
class Broken : public track::Observer {
public:
    [[nodiscard]] std::string name() const override { return "a broken observer"; }
    void started(const track::Started&) override { throw std::runtime_error("no server"); }
    void reported(const track::Reported&) override { throw std::runtime_error("no network"); }
    void saved(const track::Saved&) override { throw 7; }
    void restarting(const track::Restarting&) override { throw Error("RT-S1", "no disk"); }
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
    rtrain::detail::Training training_{backend_,
                                       policy_,
                                       options_,
                                       options_.run.name,
                                       {rtrain::launch::Session::of_this_process(), 0}};
};

TrainerOptions options_in(const test::Directory& directory, int max_failures = 0) {
    return {.run = {.name = "r",
                    .storage_path = directory.path(),
                    .failure = {.max_failures = max_failures, .backoff_s = 0}}};
}

void report_state(Run& run, int step, const ReportOptions& options = {}) {
    run.report(
        {{"step", step}}, options, true, [] {},
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
    Heard heard;
    TrainerOptions options = options_in(directory, 1);
    options.validation = {.function = refuse};
    const Result result =
        Fit(options).observe(std::make_shared<Recorder>(heard))(train_with_bad_luck);
    CHECK(heard == Heard{"started behind 0 from \"\" with 0", "reported 1", "reported 2",
                         "saved checkpoint_000000", "reported 3",
                         "restarting on 1 ranks after bad luck",
                         "started behind 2 from \"checkpoint_000000\" with 1", "reported 3",
                         "reported 4", "saved checkpoint_000001",
                         "validated checkpoint_000001: validation_failed the validation function "
                         "threw: a bad checkpoint",
                         "finished"});
    CHECK(result.metrics_history.size() == 4);
}

TEST_CASE("Events.of_a_run_that_fails_or_makes_room_have_an_end" * doctest::timeout(60)) {
    const test::Directory directory("ends");
    Heard heard;
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
                  PreemptionNotice::current().give(60);
                  report_state(run, 3);
                  throw rtrain::detail::Preempted();
              });
          }) == PreemptionError::own_code);
    CHECK(heard == Heard{"started behind 2 from \"checkpoint_000000\" with 1", "reported 3",
                         "saved checkpoint_000001", "preempted"});
    // A run that cannot be taken up has not started.
    heard.clear();
    test::write(directory.path() / "file", "");
    TrainerOptions options = options_in(directory);
    options.run.storage_path /= "file";
    CHECK(code_of([&] {
              Fit(options).observe(std::make_shared<Recorder>(heard))(train_with_bad_luck);
          }) == "RT-S1");
    CHECK(heard == Heard{});
}

TEST_CASE("Events.observers_that_throw_change_nothing" * doctest::timeout(60)) {
    const test::Directory directory("broken");
    Heard undisturbed;
    TrainerOptions options = options_in(directory, 1);
    options.validation = {.function = refuse};
    const auto expected =
        Fit(options).observe(std::make_shared<Recorder>(undisturbed))(train_with_bad_luck);
    options.run.name = "broken";
    Heard heard;
    test::Stderr console;
    const auto result = Fit(options)
                            .observe(std::make_shared<Broken>())
                            .observe(std::make_shared<Recorder>(heard))(train_with_bad_luck);
    const std::string said = console.text();
    CHECK(heard == undisturbed);
    CHECK(result.metrics_history.size() == expected.metrics_history.size());
    CHECK(result.best_checkpoints.size() == expected.best_checkpoints.size());
    CHECK(test::count_of(said, "a broken observer") == 1);
    CHECK(contains(said, "a broken observer may lack something of this run, which goes on: no "
                         "server"));
}

TEST_CASE("Events.a_table_that_cannot_be_written_heals" * doctest::timeout(60)) {
    const test::Directory directory("table");
    const auto table = directory.path() / "r" / "progress.csv";
    std::filesystem::create_directories(table / "in the way");
    test::Stderr console;
    const auto result = Fit(options_in(directory))([&](Run& run) {
        run.report({{"step", 1}});
        report_state(run, 2);
        std::filesystem::remove_all(table);
        run.report({{"step", 3}});
    });
    CHECK(test::count_of(console.text(), "progress.csv may lack something") == 1);
    CHECK(result.metrics_history.size() == 3);
    CHECK(test::count_of(test::read(table), "\r\n") == 4); // and the head
}

int main(int argc, char** argv) {
    if (launch::Helper::is_this_process()) {
        launch::Helper::serve(refuse);
        return 0;
    }
    return doctest::Context(argc, argv).run();
}
