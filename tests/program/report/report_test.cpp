// SPDX-License-Identifier: Apache-2.0
// What the driver makes of the calls of a script's ranks. The ranks are played here.
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/program/report/rank_calls.hpp>
#include <rtrain/program/report/run_book.hpp>
#include <rtrain/storage/locate.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace rtrain;
using namespace rtrain::program;
using test::code_of;
using test::contains;
namespace event = rtrain::launch::event;

namespace {

/// A run, and the directories that its ranks report.
struct Script {
    test::Directory directory;
    RunConfig run;
    Config config{{"lr", 0.1}};
    std::unique_ptr<RunBook> book;
    std::optional<RankCalls> calls;
    std::vector<std::int64_t> made; ///< calls of each rank

    explicit Script(const std::string& name, int ranks = 2, CheckpointConfig checkpoint = {})
        : directory("program-" + name), run{.name = "run",
                                            .storage_path = directory.path(),
                                            .checkpoint = std::move(checkpoint)} {
        start(ranks);
    }

    Script(const Script&) = delete;
    Script& operator=(const Script&) = delete;
    ~Script() { end(track::Ended::How::failed); }

    void end(track::Ended::How how, const std::optional<Failure>& failure = std::nullopt) {
        if (book) {
            book->end(how, failure);
        }
        book.reset();
    }
    /// As a driver starts.
    void start(int ranks) {
        end(track::Ended::How::failed);
        book = std::make_unique<RunBook>(run, config);
        restart(ranks);
    }
    void restart(int ranks, const std::vector<std::string>& skip = {}) {
        book->begin(skip, ranks);
        calls.emplace(*book, ranks);
        made.assign(static_cast<std::size_t>(ranks), 0);
    }

    [[nodiscard]] std::filesystem::path at(const std::string& name) const {
        return directory.path() / "run" / name;
    }
    [[nodiscard]] Result result() const { return Result::from_path(directory.path() / "run"); }

    /// The files of a rank, on its disk.
    [[nodiscard]] std::filesystem::path files_of(int rank) const {
        return directory.path() / ("rank-" + std::to_string(rank));
    }

    launch::CallAnswers report(int rank, const Config& metrics, bool has_files = false,
                               const std::string& wished = "", bool in_background = false) {
        event::Report call{.call = made.at(static_cast<std::size_t>(rank)),
                           .metrics = metrics,
                           .has_files = has_files,
                           .in_background = in_background,
                           .checkpoint = wished};
        if (has_files) {
            call.files = checkpoint::names_of_files(files_of(rank));
        }
        return hear(rank, call);
    }
    launch::CallAnswers meet(int rank, const std::string& function, const std::string& text = "") {
        return hear(rank, event::Meet{made.at(static_cast<std::size_t>(rank)), function, text});
    }
    launch::CallAnswers end(int rank) { return hear(rank, event::Ending{}); }

    /// Copies what the driver asks for; `error`: fails instead.
    launch::CallAnswers store(int rank, const event::Store& asked, const std::string& error = "") {
        event::Stored stored{.call = asked.call};
        if (error.empty()) {
            const checkpoint::Staging staging(storage::locate(asked.run), asked.attempt, {}, {}, 0);
            const auto contents = checkpoint::copy_files(
                files_of(rank), asked.files, staging.directory_of(asked.checkpoint, rank));
            for (const std::string& name : asked.shared) {
                stored.shared[name] = test::read(files_of(rank) / name);
            }
            staging.hand_in(asked.checkpoint, rank, contents);
        } else {
            stored.code = "RT-S4";
            stored.error = error;
        }
        return hear(rank, stored);
    }
    launch::CallAnswers store_all(const launch::CallAnswers& asked) {
        launch::CallAnswers last;
        for (const auto& [rank, answer] : asked.events) {
            REQUIRE(std::holds_alternative<event::Store>(answer));
            last = store(rank, std::get<event::Store>(answer));
        }
        return last;
    }
    /// All ranks report their directories.
    launch::CallAnswers save(const Config& metrics, const std::string& wished = "") {
        launch::CallAnswers asked;
        for (int rank = 0; rank < static_cast<int>(made.size()); ++rank) {
            test::write(files_of(rank) / ("rank-" + std::to_string(rank)), "its own");
            asked = report(rank, metrics, true, wished);
        }
        return store_all(asked);
    }

    /// All ranks report their directories in the background. Returns what they are to store.
    std::vector<event::Store> begin_to_save(const Config& metrics) {
        launch::CallAnswers answers;
        for (int rank = 0; rank < static_cast<int>(made.size()); ++rank) {
            test::write(files_of(rank) / ("rank-" + std::to_string(rank)), "its own");
            answers = report(rank, metrics, true, "", true);
        }
        return stores_in(answers);
    }
    /// What an answer in the background asks for. It has answered the call, too.
    [[nodiscard]] std::vector<event::Store> stores_in(const launch::CallAnswers& answers) const {
        std::vector<event::Store> asked;
        std::size_t reported = 0;
        for (const auto& [rank, answer] : answers.events) {
            if (const auto* const store = std::get_if<event::Store>(&answer)) {
                CHECK(static_cast<std::size_t>(rank) == asked.size());
                asked.push_back(*store);
            }
            reported += std::holds_alternative<event::Reported>(answer) ? 1 : 0;
        }
        REQUIRE(asked.size() == made.size());
        CHECK(reported == made.size());
        return asked;
    }

private:
    launch::CallAnswers hear(int rank, const launch::RankEvent& call) {
        auto answers = calls->hear(rank, call);
        for (const auto& [to, answer] : answers.events) {
            made.at(static_cast<std::size_t>(to)) +=
                std::holds_alternative<event::Store>(answer) ? 0 : 1;
        }
        return answers;
    }
};

/// The code with which a call has failed on `ranks` ranks; otherwise "".
std::string failure(const launch::CallAnswers& answers, std::size_t ranks) {
    std::string code;
    for (const auto& [rank, answer] : answers.events) {
        const auto* const failed = std::get_if<event::CallFailed>(&answer);
        code = failed != nullptr ? failed->code : "";
    }
    return answers.events.size() == ranks ? code : "";
}

std::vector<std::string> hidden_files(const std::filesystem::path& run) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(run)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(storage::temporary_prefix)) {
            names.push_back(name);
        }
    }
    return names;
}

} // namespace

TEST_CASE("Reports.metrics_of_rank_0_are_recorded_when_all_ranks_have_called") {
    Script script("metrics");
    CHECK(script.report(1, {{"loss", 2}}).events.empty());
    CHECK(!std::filesystem::exists(script.at("progress.csv")));
    const auto answers = script.report(0, {{"loss", 0.5}});
    REQUIRE(answers.events.size() == 2);
    CHECK(!answers.saved);
    for (const auto& [rank, answer] : answers.events) {
        CHECK(std::get<event::Reported>(answer) == event::Reported{0, 1, "", ""});
    }
    CHECK(script.result().metric("loss") == 0.5);
    CHECK(script.result().metrics.at("training_iteration") == 1);
    script.end(track::Ended::How::finished);
    CHECK(contains(test::read(script.at("progress.csv")), "5E-1"));
}

TEST_CASE("Reports.files_of_all_ranks_form_one_checkpoint") {
    Script script("files", 3, {.num_to_keep = 2, .score_attribute = "acc"});
    for (int rank = 0; rank < 3; ++rank) {
        test::write(script.files_of(rank) / "model/weights", "the same");
    }
    const auto answers = script.save({{"acc", 3}});
    REQUIRE(answers.saved);
    CHECK(answers.saved->checkpoint == "checkpoint_000000");
    const std::string path = script.at("checkpoint_000000").string();
    for (const auto& [rank, answer] : answers.events) {
        CHECK(std::get<event::Reported>(answer) == event::Reported{0, 1, path, ""});
    }
    const auto manifest = checkpoint::verify(path);
    CHECK(manifest.contents.files.size() == 4);
    CHECK(manifest.ranks == 3);
    CHECK(script.result().checkpoint->path == path);
    for (const double acc : {1.0, 4.0, 2.0}) { // the two best, and the newest
        CHECK(script.save({{"acc", acc}}).saved);
    }
    std::vector<double> kept;
    for (const auto& [checkpoint, report] : script.result().best_checkpoints) {
        kept.push_back(metric_of(report, "acc"));
    }
    CHECK(kept == std::vector<double>{3, 4, 2});
    CHECK(hidden_files(script.at("")).empty());
}

TEST_CASE("Reports.a_call_fails_on_all_ranks_and_leaves_nothing") {
    Script script("failures");
    test::write(script.files_of(0) / "same", "1");
    test::write(script.files_of(1) / "same", "2");
    CHECK(failure(script.save({{"loss", 1}}), 2) == "RT-K5");
    CHECK(hidden_files(script.at("")).empty());
    test::write(script.files_of(1) / "same", "1");

    (void)script.report(0, {{"loss", 1}}, true);
    const auto asked = script.report(1, {{"loss", 1}}, true);
    REQUIRE(asked.events.size() == 2);
    CHECK(script.store(0, std::get<event::Store>(asked.events[0].second)).events.empty());
    const auto full = script.store(1, std::get<event::Store>(asked.events[1].second), "disk full");
    CHECK(failure(full, 2) == "RT-S4");
    CHECK(contains(std::get<event::CallFailed>(full.events[0].second).error, "rank 1: disk full"));
    CHECK(hidden_files(script.at("")).empty());

    CHECK(script.result().metrics_history.empty());
    CHECK(script.save({{"loss", 1}}).saved); // the next report is not affected
    for (const auto& [metrics, code] : std::vector<std::pair<Config, std::string>>{
             {{{"config", 1}}, "RT-C10"}, {{{"a\nb", 1}}, "RT-C75"}, {{{"", 1}}, "RT-C75"}}) {
        (void)script.report(1, {});
        CHECK(failure(script.report(0, metrics), 2) == code);
    }
    CHECK(script.result().metrics_history.size() == 1);
}

TEST_CASE("Reports.a_checkpoint_in_the_background") {
    Script script("background");
    const auto first = script.begin_to_save({{"n", 1}});
    CHECK(script.result().metrics.at("n") == 1); // its line does not wait
    CHECK(!std::filesystem::exists(script.at("checkpoint_000000")));
    CHECK(script.meet(0, "barrier").events.empty());
    CHECK(script.meet(1, "barrier").events.size() == 2);
    (void)script.report(1, {});
    const auto metrics = script.report(0, {{"n", 2}});
    REQUIRE(metrics.events.size() == 2);
    CHECK(std::get<event::Reported>(metrics.events[0].second) == event::Reported{2, 2, "", ""});
    CHECK(script.store(0, first[0]).events.empty());

    (void)script.report(0, {{"n", 3}}, true, "", true); // waits
    CHECK(script.report(1, {}, true, "", true).events.empty());
    CHECK(script.result().metrics_history.size() == 2);
    const auto committed = script.store(1, first[1]);
    REQUIRE(committed.saved);
    CHECK(committed.saved->checkpoint == "checkpoint_000000");
    CHECK(committed.saved->iteration == 1);
    CHECK(checkpoint::verify(script.at("checkpoint_000000")).contents.files.size() == 2);
    const auto second = script.stores_in(committed);
    CHECK(second[0].checkpoint == "checkpoint_000001");
    CHECK(script.result().metrics_history.size() == 3);

    CHECK(script.end(0).events.empty());
    CHECK(script.store(0, second[0]).events.empty());
    CHECK(script.store(1, second[1]).saved->iteration == 3);
    CHECK(script.end(1).events.empty());
    CHECK(!script.calls->failure());
    script.restart(2);
    CHECK(script.book->newest()->path.filename() == "checkpoint_000001");
    CHECK(script.result().metrics_history.size() == 3);
    (void)script.begin_to_save({{"n", 4}}); // which the ranks do not survive
    script.restart(2);
    CHECK(script.result().metrics_history.size() == 3);
    CHECK(hidden_files(script.at("")).empty());
}

TEST_CASE("Reports.an_error_in_the_background_is_one_of_the_next_report") {
    Script script("background-error");
    const auto save_in_vain = [&] {
        const auto asked = script.begin_to_save({{"n", 1}});
        (void)script.store(0, asked[0], "disk full");
        CHECK(!script.store(1, asked[1]).saved);
        CHECK(script.calls->failure());
        CHECK(hidden_files(script.at("")).empty());
    };
    save_in_vain();
    CHECK(script.meet(0, "barrier").events.empty());
    CHECK(script.meet(1, "barrier").events.size() == 2);
    (void)script.report(0, {{"n", 2}});
    const auto failed = script.report(1, {});
    CHECK(failure(failed, 2) == "RT-S4");
    CHECK(
        contains(std::get<event::CallFailed>(failed.events[0].second).error, "rank 0: disk full"));
    CHECK(!script.calls->failure());
    CHECK(script.save({{"n", 3}}).saved);
    CHECK(script.result().metrics.at("training_iteration") == 2);

    const auto asked = script.begin_to_save({{"n", 4}});
    (void)script.report(0, {{"config", 1}}); // an error of another report
    CHECK(failure(script.report(1, {}), 2) == "RT-C10");
    (void)script.store(0, asked[0]);
    CHECK(script.store(1, asked[1]).saved);
    (void)script.report(0, {}, true, "", true);
    CHECK(failure(script.report(1, {}, true), 2) == "RT-K5");
    save_in_vain();
    (void)script.end(0);
    CHECK(script.end(1).events.empty());
    CHECK(script.calls->failure()->code.text() == "RT-S4");
}

TEST_CASE("Reports.names_of_checkpoints") {
    Script script("names");
    const auto wish = [&](const std::string& name) {
        (void)script.report(1, {}, true);
        return script.report(0, {}, true, name);
    };
    test::write(script.files_of(0) / "a", "1");
    test::write(script.files_of(1) / "b", "1");
    for (const std::string name : {"result.json", "../up", ".hidden"}) {
        CHECK(failure(wish(name), 2) == "RT-K9");
    }
    CHECK(script.store_all(wish("best")).saved->checkpoint == "best");
    CHECK(failure(wish("best"), 2) == "RT-K9");
    std::filesystem::rename(script.at(""), script.directory.path() / "moved");
    (void)script.report(0, {});
    CHECK(failure(script.report(1, {}), 2) == "RT-S17");
}

TEST_CASE("Reports.ranks_that_make_other_calls_are_named") {
    Script script("others", 3);
    (void)script.report(0, {});
    (void)script.report(1, {});
    const auto differ = script.meet(2, "barrier");
    CHECK(failure(differ, 3) == "RT-E47");
    CHECK(std::get<event::CallFailed>(differ.events[0].second).error ==
          "rank 0 called report(), but rank 2 called barrier(); all ranks must make the same calls "
          "of report() and collective functions");
    (void)script.report(0, {});
    const auto ended = script.end(2);
    CHECK(failure(ended, 1) == "RT-E47");
    CHECK(contains(std::get<event::CallFailed>(ended.events[0].second).error,
                   "rank 0 called report(), but rank 2 ended after 1 call;"));
    CHECK(failure(script.meet(1, "barrier"), 1) == "RT-E47"); // not later than that
}

TEST_CASE("Reports.a_rank_has_one_call_at_a_time") {
    Script script("turns");
    (void)script.report(0, {});
    CHECK(failure(script.report(0, {}), 1) == "RT-E46");
    CHECK(failure(script.calls->hear(1, event::Report{.call = 7}), 1) == "RT-E46");
    CHECK(failure(script.calls->hear(1, event::Stored{.call = 0}), 1) == "RT-E46");
}

TEST_CASE("Reports.ranks_meet") {
    Script script("meet", 3);
    CHECK(script.meet(2, "broadcast", "").events.empty());
    CHECK(script.meet(1, "broadcast", "second").events.empty());
    const auto answers = script.meet(0, "broadcast", "first");
    REQUIRE(answers.events.size() == 3);
    for (const auto& [rank, answer] : answers.events) {
        CHECK(std::get<event::Met>(answer) == event::Met{0, "first"});
    }
    CHECK(test::read(script.at("result.json")).empty());
    CHECK(!std::filesystem::exists(script.at("progress.csv")));
}

TEST_CASE("Reports.a_start_resumes_after_the_newest_intact_checkpoint") {
    Script script("resumes");
    for (int i = 1; i <= 3; ++i) {
        (void)script.save({{"n", i}});
    }
    (void)script.report(0, {{"n", 4}});
    (void)script.report(1, {});
    CHECK(script.result().metrics_history.size() == 4);

    script.restart(2);
    CHECK(script.book->newest()->path.filename() == "checkpoint_000002");
    CHECK(script.result().metrics_history.size() == 3); // the fourth will be made again
    CHECK(contains(test::read(script.at("superseded.json")), "\"n\":4"));

    script.restart(1, {"checkpoint_000002"});
    CHECK(script.book->newest()->path.filename() == "checkpoint_000001");
    test::write(script.at("checkpoint_000002") / "rank-0", "damaged");
    script.start(2);
    CHECK(script.book->newest()->path.filename() == "checkpoint_000001");
    (void)script.report(1, {});
    (void)script.report(0, {{"n", 5}});
    CHECK(script.result().metrics.at("training_iteration") == 3);

    test::write(script.at(".rtrain-staging-1-checkpoint_000009") / "a", "interrupted");
    script.restart(2);
    CHECK(hidden_files(script.at("")).empty());
}

TEST_CASE("Reports.a_late_rank_of_an_earlier_start_stores_nothing") {
    Script script("late", 1);
    test::write(script.files_of(0) / "a", "1");
    const auto asked = script.report(0, {{"n", 1}}, true);
    const auto store = std::get<event::Store>(asked.events.at(0).second);
    script.restart(1);
    const checkpoint::Staging late(storage::locate(store.run), store.attempt, {}, {}, 0);
    CHECK(code_of([&] { late.require_current(); }) == "RT-S16");
    CHECK(script.save({{"n", 2}}).saved);
    CHECK(script.result().metrics_history.size() == 1);
}

TEST_CASE("Reports.another_configuration_is_another_run") {
    Script script("config");
    script.config["lr"] = 0.2;
    script.start(2); // nothing was reported
    (void)script.report(0, {});
    (void)script.report(1, {});
    script.config["lr"] = 0.3;
    CHECK(code_of([&] { script.start(2); }) == "RT-C50");
    script.run.resume = Resume::always;
    script.start(2);
}

TEST_CASE("Reports.checkpoints_need_a_directory") {
    struct Service : storage::Local {}; // no file system of this machine
    Script script("service");
    script.run.storage_filesystem = storage::AnyFilesystem(Service());
    script.start(2);
    test::write(script.files_of(0) / "a", "1");
    (void)script.report(1, {});
    CHECK(failure(script.report(0, {}, true), 2) == "RT-E48");
    (void)script.report(1, {});
    CHECK(script.report(0, {}).events.size() == 2);
}

TEST_CASE("Reports.a_run_ends_as_result_says") {
    Script script("ends");
    (void)script.save({{"loss", 1}});
    script.end(track::Ended::How::failed, Failure{.code = "RT-T1", .message = "bad luck"});
    CHECK(script.result().error->message() == "bad luck");
    script.start(2);
    CHECK(!script.result().error);
    script.end(track::Ended::How::finished);
    CHECK(contains(test::read(script.at("report.html")), "loss"));
}
