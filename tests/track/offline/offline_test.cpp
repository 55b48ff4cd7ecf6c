// SPDX-License-Identifier: Apache-2.0
// Wandb and Comet: what their files have, byte by byte.
#include "offline_files.hpp"
#include "track/tracked_run.hpp"

#include <rtrain/format/zip_writer.hpp>
#include <rtrain/track/lines/reported_image.hpp>
#include <rtrain/track/offline/comet.hpp>
#include <rtrain/track/offline/wandb.hpp>
#include <rtrain/track/offline/wandb_format.hpp>
#include <rtrain/track/sync.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>

namespace offline_test {

using namespace rtrain;
using test::Scratch;
using test::TrackedRun;
namespace fs = std::filesystem;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr const char* secret = "hunter2-of-nobody";

/// Variables of the environment, while it lives.
class Environment {
public:
    explicit Environment(std::vector<std::pair<std::string, std::string>> variables) {
        for (const auto& [name, value] : variables) {
            ::setenv(name.c_str(), value.c_str(), 1);
            names_.push_back(name);
        }
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;
    ~Environment() {
        for (const auto& name : names_) {
            ::unsetenv(name.c_str());
        }
    }

private:
    std::vector<std::string> names_;
};

std::vector<track::AnyTracker> both() {
    return {track::Wandb({.project = "digits", .tags = {"a", "b\xff"}}),
            track::Comet({.project = "digits", .tags = {"a", "b\xff"}})};
}

void report_odd(TrackedRun& run) {
    run.report({{"loss", 0.5},
                {"nan", std::numeric_limits<double>::quiet_NaN()},
                {"up", infinity},
                {"down", -infinity},
                {"nested", {{"f1", 0.75}}},
                {"nested/f1", 0.25},
                {"ok", true},
                {"words", "gr\xc3\xbc\n\"\xff"},
                {"list", {1, std::numeric_limits<double>::quiet_NaN(), infinity}},
                {"image", std::string(track::image_begin) + "AAAA"},
                {"Name", "text"},
                {"steps/loss", 4},
                {"_step", 99},
                {"a/\"b\"\n<script>", 1},
                {"broken \xff", 2},
                {"", 3},
                {"great", std::numeric_limits<std::uint64_t>::max()},
                {"changes", 1}});
    run.report({{"loss", 0.25}, {"changes", "now a text"}, {"long", std::string(1'000'000, 'x')}});
}

Config odd_config() {
    return {{"lr", 0.25},
            {"deep", {{"er", "text"}}},
            {"layers", {1, 2}},
            {"bad \xff", infinity},
            {"none", nullptr}};
}

} // namespace

TEST_CASE("Wandb.shows_every_sort_of_value") {
    const Scratch scratch("wandb-odd");
    TrackedRun run(scratch.run(), both(), std::chrono::seconds(30), odd_config());
    run.begin();
    report_odd(run);
    run.close();
    const test::WandbRun shown = test::read_wandb(scratch.run() / "wandb");
    CHECK(shown.config == test::WandbRun::Items{{"lr", "2.5E-1"},
                                                {"deep", R"({"er":"text"})"},
                                                {"layers", "[1,2]"},
                                                {"bad ?", R"("inf")"},
                                                {"none", "null"}});
    CHECK(shown.run.at(3) == "digits");
    CHECK(shown.run.at(8) == "r");
    CHECK(shown.run.count(2) == 0);
    CHECK(shown.tags == std::vector<std::string>{"a", "b?"});
    REQUIRE(shown.history.size() == 2);
    auto first = shown.history.at(0);
    CHECK(first.erase("_timestamp") + first.erase("_runtime") == 2);
    CHECK(first == test::WandbRun::Items{{"loss", "5E-1"},
                                         {"nan", "NaN"},
                                         {"up", "Infinity"},
                                         {"down", "-Infinity"},
                                         {"nested/f1", "2.5E-1"},
                                         {"nested/f1_2", "7.5E-1"},
                                         {"ok", "true"},
                                         {"words", "\"gr\xc3\xbc\\n\\\"?\""},
                                         {"list", "[1,null,\"inf\"]"},
                                         {"Name", "\"text\""},
                                         {"steps/loss", "4E0"},
                                         {"a/\"b\"\n<script>", "1E0"},
                                         {"broken ?", "2E0"},
                                         {"", "3E0"},
                                         {"great", "1.8446744073709552E19"},
                                         {"changes", "1E0"},
                                         {"_step", "1"}});
    CHECK(shown.history.at(1).at("long").size() == 1'000'002);
    CHECK(shown.summary.at("changes") == "\"now a text\"");
    CHECK(shown.summary.at("nan") == "NaN");
    CHECK(shown.exits == 1);
    CHECK(shown.exit_code == 0);
}

TEST_CASE("Wandb.records_end_where_blocks_do") {
    constexpr std::uint64_t block = 32768;
    for (const std::uint64_t before : {0, 7, 9}) {
        for (std::uint64_t size : {0, 1, 32740, 32745, 32746, 32747, 32748, 32752, 32753, 32754,
                                   32755, 32761, 65536, 100'000}) {
            std::string file(track::wandb::file_begin);
            std::vector<std::string> records{std::string(before, 'b'), std::string(size, 's'), "e"};
            for (const std::string& record : records) {
                file += track::wandb::in_parts(record, file.size());
            }
            CAPTURE(before);
            CAPTURE(size);
            CHECK(test::wandb_records(file) == records);
        }
    }
    CHECK(track::wandb::in_parts("x", block - 6).size() == 6 + 8);
    CHECK(track::wandb::in_parts("abc", 0) == std::string("\xa9\x20\x9d\x53\x03\x00\x01"
                                                          "abc",
                                                          10));
}

TEST_CASE("Comet.shows_every_sort_of_value_but_images") {
    const Scratch scratch("comet-odd");
    TrackedRun run(scratch.run(), both(), std::chrono::seconds(30), odd_config());
    run.begin();
    report_odd(run);
    run.log({{"loss", 0.125}});
    run.log({{"loss", -infinity}});
    run.close(track::Ending::failed);
    const test::CometArchive archive = test::read_comet(scratch.run() / "comet");
    CHECK(archive.experiment.at("project_name") == "digits");
    CHECK(archive.experiment.at("workspace").is_null());
    CHECK(archive.experiment.at("tags") == boost::json::value{"a", "b?"});
    CHECK(archive.experiment.at("customer_error_reported") == true);
    CHECK(archive.experiment.at("offline_id").as_string().size() == 32);
    CHECK(archive.experiment.at("stop_time").as_int64() >=
          archive.experiment.at("start_time").as_int64());
    std::vector<std::pair<std::string, std::string>> others;
    for (const Config& payload : archive.payloads("log_other")) {
        others.emplace_back(payload.at("key").as_string(), payload.at("value").as_string());
    }
    REQUIRE(others.size() == 6);
    CHECK(others.at(0) == std::pair<std::string, std::string>("Name", "r"));
    CHECK(others.at(1) == std::pair<std::string, std::string>("words", "gr\xc3\xbc\n\"?"));
    CHECK(others.at(2) == std::pair<std::string, std::string>("list", R"([1,null,"inf"])"));
    CHECK(others.at(3) ==
          std::pair<std::string, std::string>("Name" + track::checksum_of("Name"), "text"));
    CHECK(others.at(4) == std::pair<std::string, std::string>("changes", "now a text"));
    CHECK(others.at(5).second.size() == 1'000'000);
    Config parameters;
    for (const Config& payload : archive.payloads("parameter_msg")) {
        const auto& parameter = payload.at("param").as_object();
        parameters[parameter.at("paramName").as_string()] = parameter.at("paramValue");
    }
    CHECK(parameters == Config{{"lr", 0.25},
                               {"deep/er", "text"},
                               {"layers", "[1,2]"},
                               {"bad ?", "inf"},
                               {"none", nullptr}});
    Config metrics;
    boost::json::array step_losses;
    for (const Config& payload : archive.payloads("metric_msg")) {
        const auto& metric = payload.at("metric").as_object();
        if (metric.at("metricName") == "steps/loss") {
            step_losses.push_back({metric.at("step"), metric.at("metricValue")});
        } else if (metric.at("step") == 1) {
            metrics[metric.at("metricName").as_string()] = metric.at("metricValue");
        }
    }
    CHECK(step_losses == boost::json::array{{1, 0.125}, {2, "-Infinity"}});
    CHECK(metrics == Config{{"loss", 0.5},
                            {"nan", "NaN"},
                            {"up", "Infinity"},
                            {"down", "-Infinity"},
                            {"nested/f1", 0.25},
                            {"nested/f1_2", 0.75},
                            {"ok", 1.0},
                            {"steps/loss" + track::checksum_of("steps/loss"), 4.0},
                            {"_step", 99.0},
                            {"a/\"b\" <script>" + track::checksum_of("a/\"b\"\n<script>"), 1.0},
                            {"broken ?", 2.0},
                            {"", 3.0},
                            {"great", 1.8446744073709552e19},
                            {"changes", 1.0}});
}

TEST_CASE("Offline.a_hundred_thousand_metrics_in_a_report") {
    const Scratch scratch("offline-many");
    TrackedRun run(scratch.run(), both(), std::chrono::seconds(60));
    run.begin();
    Config many;
    for (int i = 0; i < 100'000; ++i) {
        many["many/" + std::to_string(i)] = i;
    }
    run.report(many);
    run.close();
    CHECK(test::read_wandb(scratch.run()).history.at(0).size() == 100'003);
    CHECK(test::read_comet(scratch.run()).payloads("metric_msg").size() == 100'000);
}

TEST_CASE("Offline.options_come_from_the_environment_and_keys_go_nowhere") {
    const Scratch scratch("offline-environment");
    const Environment environment({{"WANDB_API_KEY", secret},
                                   {"COMET_API_KEY", secret},
                                   {"WANDB_PROJECT", "wp"},
                                   {"WANDB_ENTITY", "we"},
                                   {"WANDB_RUN_GROUP", "wg"},
                                   {"COMET_PROJECT_NAME", "cp"},
                                   {"COMET_WORKSPACE", "cw"}});
    TrackedRun run(scratch.run(), {track::Wandb{}, track::Comet{}});
    run.begin();
    run.report({{"loss", 1}});
    run.close();
    const auto shown = test::read_wandb(scratch.run()).run;
    CHECK(shown.at(2) == "we");
    CHECK(shown.at(3) == "wp");
    CHECK(shown.at(6) == "wg");
    const Config experiment = test::read_comet(scratch.run()).experiment;
    CHECK(experiment.at("project_name") == "cp");
    CHECK(experiment.at("workspace") == "cw");
    for (const auto& entry : fs::recursive_directory_iterator(scratch.run())) {
        if (entry.is_regular_file()) {
            CAPTURE(entry.path());
            CHECK(storage::read_file(entry.path()).find(secret) == std::string::npos);
        }
    }
}

TEST_CASE("Offline.sync_makes_what_a_killed_run_has_not") {
    const Scratch scratch("offline-killed");
    std::string id;
    {
        TrackedRun run(scratch.run(), both());
        run.begin();
        for (int i = 0; i < 3; ++i) {
            run.report({{"loss", i}});
        }
        run.close();
        id = test::read_wandb(scratch.run()).run.at(1);
    }
    // What a kill leaves: a file that is cut off, and messages without an archive.
    const auto file = test::only_file(scratch.run(), ".wandb");
    fs::resize_file(file, fs::file_size(file) - 30);
    const auto zip = test::only_file(scratch.run(), ".zip");
    fs::remove(zip);
    storage::replace_file(zip.parent_path() / "messages.json", "{\"payload\":");
    const std::vector<fs::path> expected{fs::canonical(scratch.run()) / "comet",
                                         fs::canonical(scratch.run()) / "wandb"};
    CHECK(track::sync(scratch.run()) == expected);
    const test::WandbRun shown = test::read_wandb(scratch.run());
    CHECK(shown.run.at(1) == id);
    CHECK(shown.run.at(3) == "digits");
    CHECK(shown.tags == std::vector<std::string>{"a", "b?"});
    CHECK(shown.steps == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(shown.exits == 1);
    CHECK(test::only_file(scratch.run(), ".zip") == zip); // has the id in its name
    CHECK(test::read_comet(scratch.run()).payloads("metric_msg").size() == 3);
    CHECK_FALSE(fs::exists(zip.parent_path() / "messages.json"));
}

TEST_CASE("Offline.a_damaged_note_is_an_error") {
    const Scratch scratch("offline-note");
    for (const char* const text :
         {"{\"tracker\":1}", R"({"id":"../../a","start":1,"options":{},"tags":[]})"}) {
        CAPTURE(text);
        for (const char* const directory : {"wandb", "comet"}) {
            fs::create_directories(scratch.run() / directory);
            storage::replace_file(scratch.run() / directory / "rtrain.json", text);
        }
        for (const track::AnyTracker& tracker : both()) {
            try {
                tracker.start({.name = "r", .directory = scratch.run()});
                FAIL("no error");
            } catch (const Error& error) {
                CHECK(error.code() == "RT-V70");
            }
        }
    }
}

TEST_CASE("ZipWriter.refuses_what_does_not_fit") {
    const Scratch scratch("zip");
    const auto large = scratch.run() / "large";
    storage::replace_file(large, "");
    fs::resize_file(large, (std::uintmax_t{1} << 32U) - 100); // sparse
    try {
        storage::replace_file_by(scratch.run() / "z.zip", [&](storage::OutputFile& output) {
            format::ZipWriter(output).add_file("large", large);
        });
        FAIL("no error");
    } catch (const StorageError& error) {
        CHECK(error.code() == "RT-S19");
    }
    CHECK_FALSE(fs::exists(scratch.run() / "z.zip"));
}

} // namespace offline_test
