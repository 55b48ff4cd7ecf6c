// SPDX-License-Identifier: Apache-2.0
// Options written down, read back, and inherited by a run that is restored.
#include "support/training.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/run/options/option_fields.hpp>
#include <rtrain/run/options/option_json.hpp>
#include <rtrain/run/options/restore.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

using namespace rtrain;
using rtrain::detail::can_be_written;
using rtrain::detail::for_each_field;
using rtrain::detail::has_exactly;
using rtrain::detail::has_fields;

namespace {

/// Each field that can be written down has a value of its own.
TrainerOptions unlike_the_defaults() {
    return {.config = {{"lr", 0.1}, {"layers", {1, 2}}},
            .scaling = {.num_workers = {2, 5},
                        .use_gpu = true,
                        .gpus_per_worker = 0.5,
                        .threads_per_worker = 3,
                        .mpirun_args = {"--hostfile", "hosts"},
                        .elastic_resize_monitor_interval_s = 7.5},
            .run = {.name = "made",
                    .storage_path = "/made/here",
                    .failure = {.max_failures = 4,
                                .controller_failure_limit = 5,
                                .max_preemption_failures = 6,
                                .backoff_s = 0.25,
                                .backoff_max_s = 12,
                                .preemption_grace_s = 13,
                                .keep_survivors = true,
                                .hang = {.enabled = false,
                                         .start_s = 14,
                                         .idle_s = 15,
                                         .busy_s = HUGE_VAL,
                                         .factor = 17,
                                         .stopped_s = 18,
                                         .silent_s = 19}},
                    .checkpoint = {.num_to_keep = 8,
                                   .score_attribute = "loss",
                                   .score_order = "min",
                                   .frequency = 9,
                                   .mean_time_between_failures_s = 3600.5,
                                   .at_end = true,
                                   .late_copies = true},
                    .transfer = {.parallel = 18,
                                 .attempts = 19,
                                 .first_backoff_s = 0.125,
                                 .max_backoff_s = 20,
                                 .request_timeout_s = 21,
                                 .deadline_s = 22},
                    .console = {.verbose = 2, .live = 26},
                    .logging = {.level = "warning", .to_file = true, .json = true},
                    .profile = {.steps = {24, 25}},
                    .fast_dev_run = 27},
            .resume_from = Checkpoint("/made/before/checkpoint_000001"),
            .metadata = {{"by", "trainer"}},
            .validation = {.task = {{"batches", 10}}, .timeout_s = 23},
            .datasets_to_split = {{"train"}}};
}

/// The names of the fields, with those of the structs they are in, for which `holds(left, right)`.
template <class Options, class Holds>
std::vector<std::string> fields_where(const Options& left, const Options& right, Holds holds) {
    std::vector<std::string> names;
    for_each_field<Options>([&](const auto& field) {
        using Value = typename std::decay_t<decltype(field)>::Value;
        const Value& a = left.*field.member;
        const Value& b = right.*field.member;
        if constexpr (has_fields<Value>) {
            for (const std::string& name : fields_where(a, b, holds)) {
                names.push_back(std::string(field.name) + "." + name);
            }
        } else if constexpr (can_be_written<Value>) {
            if (holds(a == b)) {
                names.emplace_back(field.name);
            }
        }
    });
    return names;
}
std::vector<std::string> equal_in(const TrainerOptions& left, const TrainerOptions& right) {
    return fields_where(left, right, [](bool equal) { return equal; });
}
std::vector<std::string> different_in(const TrainerOptions& left, const TrainerOptions& right) {
    return fields_where(left, right, [](bool equal) { return !equal; });
}

using Names = std::vector<std::string>;

/// A directory that looks like that of a run made from `options`.
std::filesystem::path leave(const test::Directory& directory, const TrainerOptions& options) {
    const auto run = directory.path() / "moved";
    std::filesystem::create_directories(run);
    test::write(run / "trainer.json", json::serialize(rtrain::detail::trainer_json(options)));
    return run;
}

data::Datasets some_data() {
    return {{"train", data::lazy([]() -> data::Dataset { throw std::logic_error("read"); })}};
}

struct Sample {
    int one = 1;
    std::optional<int> two{};
    double three = 3;
};
static_assert(has_exactly<Sample, int, std::optional<int>, double>);
static_assert(!has_exactly<Sample, int, std::optional<int>>);
static_assert(!has_exactly<Sample, int, double>);
static_assert(!has_exactly<Sample, std::optional<int>, double>);
static_assert(!has_exactly<Sample, int, double, std::optional<int>>);
static_assert(!has_exactly<Sample, int, std::optional<int>, double, int>);
static_assert(!has_exactly<FailureConfig, int, int, int>);

} // namespace

TEST_CASE("Restore.inherits_every_field") {
    const test::Directory directory("restore-all");
    TrainerOptions made = unlike_the_defaults();
    REQUIRE(equal_in(made, {}) == Names{}); // a new field needs a value of its own above
    made.datasets = some_data();
    const auto run = leave(directory, made);

    const auto restored =
        rtrain::detail::restored_options(run, TrainerOptions{.datasets = some_data()}, {});
    CHECK(different_in(restored, made) == Names{"run.name", "run.storage_path"});
    CHECK(restored.run.name == "moved");
    CHECK(restored.run.storage_path == directory.path());
    CHECK(restored.datasets.size() == 1);

    // What a restored run leaves is as complete.
    const auto again = rtrain::detail::trainer_json(restored);
    CHECK(different_in(rtrain::detail::trainer_options(again), restored) == Names{});
}

TEST_CASE("Restore.what_is_given_counts") {
    const test::Directory directory("restore-given");
    TrainerOptions made;
    made.run.failure.hang.idle_s = 30;
    made.run.checkpoint.num_to_keep = 3;
    made.scaling.num_workers = 3;
    const auto run = leave(directory, made);
    const auto restored = rtrain::detail::restored_options(run, unlike_the_defaults(), {});
    CHECK(different_in(restored, unlike_the_defaults()) == Names{"run.name", "run.storage_path"});

    // One field of a struct leaves the others as they were.
    TrainerOptions given;
    given.run.failure.hang.busy_s = 31;
    const auto some = rtrain::detail::restored_options(run, given, {});
    CHECK(some.run.failure.hang.idle_s == 30);
    CHECK(some.run.failure.hang.busy_s == 31);
    CHECK(some.run.checkpoint.num_to_keep == 3);
    CHECK(some.scaling.num_workers == NumWorkers(3));
    CHECK(equal_in(rtrain::detail::restored_options(run, std::nullopt, {}), made).size() ==
          equal_in(made, made).size() - 2);
}

TEST_CASE("Restore.functions_are_those_given") {
    const test::Directory directory("restore-functions");
    const auto run = leave(directory, {});
    TrainerOptions given;
    given.run.failure.preemption_notice = [] { return true; };
    given.run.transfer.progress = [](const storage::TransferProgress&) {};
    given.validation.function = [](const Checkpoint&, const Config&) { return Config(); };
    const auto restored = rtrain::detail::restored_options(run, given, {});
    CHECK(restored.run.failure.preemption_notice());
    CHECK(restored.run.transfer.progress != nullptr);
    CHECK(restored.validation.function != nullptr);
}

TEST_CASE("Restore.options_that_belong_together_are_inherited_together") {
    const test::Directory directory("restore-pairs");
    TrainerOptions made;
    made.run.checkpoint = {.score_attribute = "loss", .score_order = "min", .frequency = 5};
    const auto restored = [&](const CheckpointConfig& given) {
        TrainerOptions options;
        options.run.checkpoint = given;
        auto all = rtrain::detail::restored_options(leave(directory, made), std::move(options), {});
        rtrain::detail::check_options(all); // throws RT-C19 for two ways to say when to save
        return all.run.checkpoint;
    };
    CHECK(restored({.at_end = true}).score_order == ScoreOrder::min);
    CHECK(restored({.score_attribute = "accuracy"}).score_order == ScoreOrder::max);
    CHECK(restored({.score_attribute = "accuracy"}).frequency == 5);
    CHECK(restored({.mean_time_between_failures_s = 60}).frequency == 0);
    made.run.checkpoint = {.mean_time_between_failures_s = 60};
    CHECK(restored({}).mean_time_between_failures_s == 60);
    CHECK(restored({.frequency = 2}).mean_time_between_failures_s == std::nullopt);
}

TEST_CASE("Restore.runs_of_version_0_1_go_on") {
    const test::Directory directory("restore-before");
    const auto run = directory.path() / "r";
    std::filesystem::create_directories(run);
    test::write(run / "trainer.json",
                R"({"format":"rtrain-trainer","version":1,"config":{"lr":0.5},"metadata":{},)"
                R"("datasets":[],"scaling":{"num_workers":{"min":3,"max":3},"use_gpu":false,)"
                R"("gpus_per_worker":1E0,"threads_per_worker":2,"mpirun_args":["-x","A"]},)"
                R"("failure":{"max_failures":7,"controller_failure_limit":3,)"
                R"("max_preemption_failures":-1,"keep_survivors":true},"checkpoint":)"
                R"({"num_to_keep":2,"score_attribute":"loss","score_order":"min",)"
                R"("frequency":4,"at_end":true}})");
    const auto restored = rtrain::detail::restored_options(run, std::nullopt, {});
    TrainerOptions expected;
    expected.config = {{"lr", 0.5}};
    expected.scaling = {.num_workers = 3, .threads_per_worker = 2, .mpirun_args = {"-x", "A"}};
    expected.run = {.name = "r", .storage_path = directory.path()};
    expected.run.failure = {.max_failures = 7, .keep_survivors = true};
    expected.run.checkpoint = {.num_to_keep = 2,
                               .score_attribute = "loss",
                               .score_order = "min",
                               .frequency = 4,
                               .at_end = true};
    CHECK(different_in(restored, expected) == Names{});
}

TEST_CASE("Restore.a_damaged_trainer_json_is_named") {
    const test::Directory directory("restore-damaged");
    const auto run = leave(directory, unlike_the_defaults());
    const auto whole = json::parse(test::read(run / "trainer.json")).as_object();
    const auto code_with = [&](const char* field, const boost::json::value& value) {
        auto text = whole;
        text[field] = value;
        test::write(run / "trainer.json", json::serialize(text));
        return test::code_of([&] { (void)rtrain::detail::restored_options(run, {}, {}); });
    };
    CHECK(code_with("metadata", {{"any", 1}}) == "");
    CHECK(code_with("unknown", 1) == "");
    CHECK(code_with("version", 2) == "RT-S6");
    CHECK(code_with("scaling", 1) == "RT-S6");
    CHECK(code_with("datasets", 1) == "RT-S6");
    CHECK(code_with("scaling", {{"num_workers", "three"}}) == "RT-S6");
    CHECK(code_with("failure", {{"hang", {{"idle_s", "soon"}}}}) == "RT-S6");
    CHECK(code_with("checkpoint", {{"score_order", "up"}}) == "RT-S6");
    CHECK(code_with("resume_from", boost::json::array()) == "RT-S6");
}

TEST_CASE("Result.metric_is_a_number_that_prints_as_one") {
    Result result;
    result.metrics = json::parse(R"({"loss":2.5E-2,"epochs":3,"val":{"loss":1E0},"a/b":4,)"
                                 R"("name":"x","nan":null,"worse":"inf","better":"-inf"})")
                         .as_object();
    std::ostringstream text;
    text << result.metric("loss") << ' ' << result.metric("val/loss");
    CHECK(text.str() == "0.025 1");
    CHECK(result.metric("epochs") == 3);
    CHECK(result.metric("a/b") == 4);
    CHECK(std::isnan(result.metric("nan")));
    CHECK(result.metric("worse") == HUGE_VAL);
    CHECK(result.metric("better") == -HUGE_VAL);
    CHECK(rtrain::metric_of({{"loss", 0.5}}, "loss") == 0.5);
    for (const char* const name : {"name", "val", "val/accuracy", "x", ""}) {
        CAPTURE(name);
        CHECK(test::code_of([&] { (void)result.metric(name); }) == "RT-C26");
    }
    CHECK(test::contains(test::message_of([&] { (void)result.metric("x"); }), "loss, epochs, val"));
    CHECK(test::contains(test::message_of([] { (void)Result().metric("x"); }), "it has nothing"));
}
