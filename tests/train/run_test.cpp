// SPDX-License-Identifier: Apache-2.0
// Whole runs in this process, with backend::Local.
#include "support/training.hpp"

#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/format/safetensors.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/testing/backend.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/track/page/run_report.hpp>
#include <rtrain/train/process_end.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using test::code_of;
using Local = Trainer<backend::Local>;

namespace {

/// The smallest backend, as docs/architecture.md shows it.
struct Alone {
    [[nodiscard]] int rank() const { return 0; }
    [[nodiscard]] int size() const { return 1; }
    void all_reduce(at::Tensor& /*tensor*/, ReduceOp /*op*/) {}
    void broadcast(at::Tensor& /*tensor*/, int /*root*/) {}
};

/// One more step of run r, with a checkpoint; `restored` gets the step that it resumes from.
Result train_a_step(const test::Directory& directory, int& restored) {
    Local trainer({.run = {.name = "r", .storage_path = directory.path()}});
    return trainer.fit([&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        worker.restore(state);
        restored = step;
        ++step;
        worker.report({{"step", step}}, state);
    });
}

} // namespace

RTRAIN_TEST_BACKEND(Local, backend::Local());
RTRAIN_TEST_BACKEND(Alone, Alone());

TEST_CASE("Options.bad_values_are_errors") {
    const auto make = [](TrainerOptions options) {
        return code_of([&] { Local trainer(std::move(options)); });
    };
    CHECK(make({.scaling = {.num_workers = 0}}) == "RT-C1");
    CHECK(make({.scaling = {.num_workers = -2}}) == "RT-C1");
    CHECK(make({.scaling = {.num_workers = {3, 2}}}) == "RT-C1");
    CHECK(make({.scaling = {.num_workers = {0, 2}}}) == "RT-C1");
    CHECK(make({.scaling = {.threads_per_worker = -1}}) == "RT-C9");
    CHECK(make({.run = {.checkpoint = {.num_to_keep = 0}}}) == "RT-C3");
    CHECK(make({.run = {.failure = {.max_failures = -2}}}) == "RT-C7");
    CHECK(make({.run = {.failure = {.max_preemption_failures = -2}}}) == "RT-C7");
    CHECK(make({.run = {.failure = {.backoff_s = -1}}}) == "RT-C7");
    CHECK(make({.run = {.failure = {.hang = {.idle_s = std::nan("")}}}}) == "RT-C7");
    CHECK(make({.scaling = {.elastic_resize_monitor_interval_s = 0}}) == "RT-C7");
    CHECK(make({.run = {.console = {.verbose = 3}}}) == "RT-C39");
    CHECK(make({.run = {.console = {.verbose = -1}}}) == "RT-C39");
    CHECK(make({.run = {.console = {.live = 65'536}}}) == "RT-C39");
    CHECK(make({.run = {.console = {.live = -1}}}) == "RT-C39");
    CHECK(make({.run = {.name = "a/b"}}) == "RT-C4");
    CHECK(make({.run = {.name = ".."}}) == "RT-C4");
    CHECK(make({.run = {.name = "-n"}}) == "RT-C4");
    CHECK(make({.run = {.name = std::string(300, 'x')}}) == "RT-C4");
    CHECK(make({.run = {.name = std::string(200, 'x')}}).empty());
    CHECK(code_of([] { (void)ScoreOrder("best"); }) == "RT-C3");

    const test::Directory directory("options");
    const auto fit = [&](ScalingConfig scaling) {
        return code_of([&] {
            Local({.scaling = std::move(scaling),
                   .run = {.name = "r", .storage_path = directory.path()}})
                .fit([](auto&) {});
        });
    };
    CHECK(fit({.num_workers = 2}) == "RT-C6");
    CHECK(fit({.use_gpu = true}) == "RT-C5");
    CHECK(fit({.num_workers = 1}).empty());
}

TEST_CASE("Storage.unwritable_path_is_found_before_training") {
    const test::Directory directory("storage");
    test::write(directory.path() / "file", "in the way");
    bool trained = false;
    for (const auto& path : {directory.path() / "file", std::filesystem::path("/proc/nowhere")}) {
        Local trainer({.run = {.name = "r", .storage_path = path}});
        const auto message = test::message_of([&] { trainer.fit([&](auto&) { trained = true; }); });
        CHECK(test::contains(message, "RT-S1"));
        CHECK(test::contains(message, path.string()));
    }
    CHECK(!trained);
}

TEST_CASE("Run.leaves_every_report") {
    const test::Directory directory("run");
    Local trainer({.config = {{"lr", 0.25}, {"deep", {{"er", 1}}}},
                   .run = {.name = "r", .storage_path = directory.path()}});
    const Result result = trainer.fit([](auto& worker, const Config& config) {
        CHECK(config.at("lr") == 0.25);
        int step = 0;
        auto state = State{}.add("step", step);
        worker.report({{"loss", 3.0}, {"text", "a,\"b\""}});
        step = 1;
        worker.report({{"loss", 2.0}, {"deep", {{"er", true}}}}, state);
        worker.report({{"loss", std::nan("")}, {"late", 1}});
    });
    CHECK(result.path == directory.path() / "r");
    CHECK(!result.error);
    REQUIRE(result.metrics_history.size() == 3);
    CHECK(result.metrics.at("late") == 1);
    CHECK(result.metrics.at("loss").is_null());
    const auto& second = result.metrics_history[1];
    CHECK(second.at("training_iteration") == 2);
    CHECK(second.at("checkpoint_dir_name") == "checkpoint_000000");
    CHECK(second.at("should_checkpoint") == true);
    CHECK(second.at("config").at("lr") == 0.25);
    for (const char* field :
         {"timestamp", "done", "trial_id", "date", "time_this_iter_s", "time_total_s", "pid",
          "hostname", "time_since_restore", "iterations_since_restore"}) {
        CHECK(second.contains(field));
    }
    CHECK(result.metrics_history[0].at("checkpoint_dir_name").is_null());
    CHECK(!result.metrics_history[0].contains("should_checkpoint"));
    REQUIRE(result.checkpoint);
    CHECK(result.checkpoint->path.filename() == "checkpoint_000000");
    REQUIRE(result.best_checkpoints.size() == 1);
    CHECK(result.best_checkpoints[0].second.at("loss") == 2.0);
    CHECK(result.get_best_checkpoint("loss", ScoreOrder::min) == *result.checkpoint);
    CHECK(code_of([&] { (void)result.get_best_checkpoint("f1", "max"); }) == "RT-C8");

    CHECK(test::read(result.path / "params.json") ==
          "{\n  \"deep\": {\n    \"er\": 1\n  },\n  \"lr\": 2.5E-1\n}\n");
    std::istringstream csv(test::read(result.path / "progress.csv"));
    std::string line;
    std::getline(csv, line);
    CHECK(line.starts_with("loss,text,timestamp"));
    CHECK(test::contains(line, ",deep/er"));
    CHECK(line.ends_with("late\r"));
    std::getline(csv, line);
    CHECK(line.starts_with("3E0,\"a,\"\"b\"\"\","));
    const auto columns = std::count(line.begin(), line.end(), ',');
    std::getline(csv, line);
    CHECK(std::count(line.begin(), line.end(), ',') == columns - 1); // no comma in its text

    const Result again = Result::from_path(result.path);
    CHECK(again.metrics_history == result.metrics_history);
    CHECK(again.checkpoint == result.checkpoint);
    CHECK(code_of([&] { (void)Result::from_path(directory.path()); }) == "RT-S6");
}

TEST_CASE("Run.goes_on_under_the_same_name") {
    const test::Directory directory("resume");
    const auto options = TrainerOptions{.run = {.name = "r", .storage_path = directory.path()}};
    int seen = -1;
    const auto train = [&](int until, bool crash) {
        Local trainer(options);
        return trainer.fit([&](auto& worker) {
            int step = 0;
            auto state = State{}.add("step", step);
            worker.restore(state);
            seen = step;
            while (step < until) {
                ++step;
                if (step % 2 == 0) {
                    worker.report({{"step", step}}, state);
                } else {
                    worker.report({{"step", step}});
                }
            }
            if (crash) {
                throw std::runtime_error("out of luck");
            }
        });
    };
    CHECK(code_of([&] { train(5, true); }) == "RT-T1");
    const Result failed = Result::from_path(directory.path() / "r");
    REQUIRE(failed.error);
    CHECK(failed.error->code() == "RT-T1");
    CHECK(test::contains(failed.error->what(), "out of luck"));
    CHECK(failed.metrics.at("training_iteration") == 5);

    const Result result = train(7, false);
    CHECK(seen == 4);
    CHECK(!result.error);
    std::vector<std::int64_t> iterations;
    for (const auto& report : result.metrics_history) {
        iterations.push_back(report.at("training_iteration").as_int64());
        CHECK(report.at("step") == report.at("training_iteration"));
    }
    CHECK(iterations == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7});
    CHECK(result.metrics.at("iterations_since_restore") == 3);
    CHECK(result.checkpoint->path.filename() == "checkpoint_000002");
    CHECK(test::contains(test::read(result.path / "superseded.json"), "\"step\":5"));
}

TEST_CASE("Run.its_page_shows_its_models_and_what_it_runs_on") {
    const test::Directory directory("page");
    Local trainer({.config = {{"lr", 0.1}},
                   .run = {.name = "shown", .storage_path = directory.path()},
                   .datasets = {{"train", data::from_tensors({{"x", at::ones({8, 3})}})}}});
    const Result result = trainer.fit([](auto& worker) {
        auto model = worker.prepare(torch::nn::Linear(3, 1));
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        auto state = State{}.add("model", model);
        for (const auto& batch : worker.dataset_shard("train").batches({.size = 2})) {
            optimizer.zero_grad();
            model(batch["x"]).sum().backward();
            optimizer.step();
        }
        worker.report({{"loss", 1}}, state);
    });
    const auto& time = result.metrics.at("time").as_object();
    CHECK(time.at("backward").to_number<double>() > 0);
    const auto check = [&](const std::string& page) {
        CHECK(test::contains(page, "<h2>Models</h2>"));
        CHECK(test::contains(page, "<td class=\"number\">4</td>")); // parameters
        CHECK(test::contains(page, "<td>1, "));                     // rank
        CHECK(test::contains(page, ">libtorch</th>"));
        CHECK(test::contains(page, "<td>0.1</td>"));
        CHECK(test::contains(page, "\"name\":\"rows/s\""));
    };
    check(test::read(result.path / "report.html"));
    std::filesystem::remove(result.path / "report.html");
    (void)track::write_report(Result::from_path(result.path));
    check(test::read(result.path / "report.html"));
}

TEST_CASE("Batches.made_anew_in_each_epoch_are_shuffled_anew") {
    const test::Directory directory("anew");
    Local trainer({.run = {.name = "r", .storage_path = directory.path()},
                   .datasets = {{"train", data::from_tensors({{"x", torch::arange(50)}})}}});
    trainer.fit([](auto& worker) {
        const auto pass = [&] {
            std::vector<torch::Tensor> rows;
            for (auto& batch :
                 worker.dataset_shard("train").batches({.size = 7, .shuffle = true})) {
                rows.push_back(batch["x"]);
            }
            return torch::cat(rows);
        };
        const auto first = pass();
        const auto second = pass();
        CHECK(!first.equal(second));
        CHECK(std::get<0>(first.sort()).equal(torch::arange(50)));
        // Two at the same time are independent.
        auto one = worker.dataset_shard("train").batches({.size = 50, .shuffle = true});
        auto two = worker.dataset_shard("train").batches({.size = 50, .shuffle = true});
        CHECK(one.epoch() == 2);
        CHECK(two.epoch() == 0);
    });
}

TEST_CASE("Run.two_at_once_in_one_directory_are_refused") {
    const test::Directory directory("lock");
    const TrainerOptions options{.run = {.name = "r", .storage_path = directory.path()}};
    const auto code = [&] { return code_of([&] { Local(options).fit([](auto&) {}); }); };
    {
        std::filesystem::create_directories(directory.path() / "r");
        storage::DirectoryLock other; // as another process holds it
        other.acquire(directory.path() / "r");
        CHECK(code() == "RT-S7");
        launch::Session& session = launch::Session::of_this_process();
        CHECK(code_of([&] {
                  rtrain::detail::require_free({session, 1000}, options.run);
              }) == "RT-S7");
    }
    CHECK(code().empty());
    Local(options).fit([&](auto&) { CHECK(code() == "RT-C23"); }); // in this process
}

TEST_CASE("Run.one_inside_another_shares_nothing") {
    const test::Directory directory("inside");
    const auto options = [&](const std::string& name) {
        return TrainerOptions{
            .run = {.name = name, .storage_path = directory.path()},
            .datasets = {{"train", data::from_tensors({{"row", torch::arange(24)}})}}};
    };
    std::vector<std::int64_t> batches_of; // of each epoch
    const auto train = [&](const std::function<void()>& inside) {
        return [&, inside](auto& worker) {
            auto state = State{};
            int step = 0;
            state.add("step", step);
            auto batches = worker.dataset_shard("train").batches({.size = 2});
            for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
                inside();
                std::int64_t count = 0;
                for ([[maybe_unused]] auto& batch : batches) {
                    ++count;
                }
                batches_of.push_back(count);
                worker.report({{"batches", count}}, state);
                step += static_cast<int>(count);
            }
        };
    };
    auto limited = options("outer");
    limited.run.fast_dev_run = 3; // ends loops between batches
    limited.run.logging.level = console::Level::warning;
    Local(limited).fit(train([&] {
        ProcessContext& around = ProcessContext::current();
        const std::int64_t steps = around.clock.steps();
        const auto loop = around.loop.read();
        {
            ProcessContext context;
            auto stopped = options("inner-" + std::to_string(batches_of.size()));
            stopped.run.stop = stop::MaxIterations{1};
            const Result result = Local(stopped).fit(train([&] {
                CHECK((console::settings().least == console::Level::info));
                context.clock.add_step();
                context.notice.give(60);
                context.notice.reset();
            }));
            CHECK(result.metrics_history.size() == 1);
        }
        CHECK(&ProcessContext::current() == &around);
        CHECK(around.clock.steps() == steps);
        CHECK(around.loop.read().loop == loop.loop);
        CHECK(around.loop.read().epoch == loop.epoch);
        CHECK_FALSE(around.time_limit.is_over());
        CHECK((around.status.phase.load() == Phase::training));
        CHECK((console::settings().least == console::Level::warning));
    }));
    CHECK(batches_of == std::vector<std::int64_t>{12, 3});
}

TEST_CASE("Run.resume_from_starts_a_new_run") {
    const test::Directory directory("resume-from");
    const auto train = [&](const std::string& name, std::optional<Checkpoint> from) {
        Local trainer({.run = {.name = name, .storage_path = directory.path()},
                       .resume_from = std::move(from)});
        return trainer.fit([&](auto& worker) {
            int step = 0;
            auto state = State{}.add("step", step);
            worker.restore(state);
            ++step;
            worker.report({{"step", step}}, state);
        });
    };
    const Result first = train("first", {});
    const Result second = train("second", first.checkpoint);
    CHECK(second.metrics.at("step") == 2);
    CHECK(second.metrics.at("training_iteration") == 1);
    CHECK(second.checkpoint->path == directory.path() / "second/checkpoint_000000");
    CHECK(code_of([&] { train("third", Checkpoint(directory.path())); }) == "RT-K1");
}

TEST_CASE("Run.goes_on_from_the_newest_sound_checkpoint") {
    const test::Directory directory("damaged");
    int restored = -1;
    const auto train = [&] {
        restored = -1;
        return train_a_step(directory, restored);
    };
    train();
    train();
    train();
    const auto newest = directory.path() / "r/checkpoint_000002/state.json";
    std::string text = test::read(newest);
    text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
    test::write(newest, text);
    const Result result = train();
    CHECK(restored == 2);
    CHECK(result.checkpoint->path.filename() == "checkpoint_000003");
    CHECK(std::filesystem::exists(newest)); // left for people to look at
    std::vector<std::int64_t> steps;
    for (const auto& report : result.metrics_history) {
        steps.push_back(report.at("training_iteration").as_int64());
    }
    CHECK(steps == std::vector<std::int64_t>{1, 2, 3});

    // A manifest that is damaged, a directory that is no checkpoint.
    test::write(directory.path() / "r/checkpoint_000003/manifest.json", "{");
    std::filesystem::create_directories(directory.path() / "r/checkpoint_000009");
    train();
    CHECK(restored == 2);
    CHECK(std::filesystem::exists(directory.path() / "r/checkpoint_000010/manifest.json"));

    // None is left: starting anew would train again what has been trained.
    for (const char* name : {"000000", "000001", "000002", "000010"}) {
        std::filesystem::remove(directory.path() / "r" / ("checkpoint_" + std::string(name)) /
                                "state.json");
    }
    const auto message = test::message_of(train);
    CHECK(test::contains(message, "RT-K2"));
    CHECK(test::contains(message, "no checkpoint of this run is intact"));
    CHECK(restored == -1);
}

TEST_CASE("Run.a_manifest_without_the_number_of_its_report_is_skipped") {
    const test::Directory directory("no-number");
    int restored = -1;
    const auto train = [&] { return train_a_step(directory, restored); };
    train();
    train();
    const auto file = directory.path() / "r/checkpoint_000001/manifest.json";
    for (const boost::json::value& number :
         {boost::json::value(nullptr), boost::json::value("2"), boost::json::value(2.5),
          boost::json::value(-2), boost::json::value(std::numeric_limits<std::int64_t>::max())}) {
        Config fields = checkpoint::parse_checked(test::read(file));
        Config& metrics = fields.at("metrics").as_object();
        metrics.erase("training_iteration");
        if (!number.is_null()) {
            metrics["training_iteration"] = number;
        }
        test::write(file, checkpoint::with_checksum(fields));
        CHECK(Result::from_path(directory.path() / "r").checkpoint->path.filename() ==
              "checkpoint_000000");
        CHECK(code_of([&] {
                  (void)track::write_report(Result::from_path(directory.path() / "r"));
              }).empty());
    }
    const Result result = train();
    CHECK(restored == 1);
    CHECK(result.checkpoint->path.filename() == "checkpoint_000002");

    const auto newest = directory.path() / "r/checkpoint_000002/manifest.json";
    for (const boost::json::value& time : {boost::json::value(nullptr), boost::json::value("1")}) {
        Config fields = checkpoint::parse_checked(test::read(newest));
        fields.at("metrics").as_object()["time_total_s"] = time;
        test::write(newest, checkpoint::with_checksum(fields));
        train();
        CHECK(restored == 1);
        std::filesystem::remove_all(directory.path() / "r/checkpoint_000003");
    }
}

TEST_CASE("Run.line_of_a_committed_checkpoint_is_not_lost") {
    const test::Directory directory("line");
    int restored = -1;
    const auto train = [&] { return train_a_step(directory, restored); };
    train();
    const auto results = directory.path() / "r/result.json";
    const std::string one = test::read(results);
    train();
    test::write(results, one); // as after a crash between the commit and the line
    const Result result = train();
    REQUIRE(result.metrics_history.size() == 3);
    for (int i = 0; i < 3; ++i) {
        const auto& report = result.metrics_history[static_cast<std::size_t>(i)];
        CHECK(report.at("training_iteration") == i + 1);
        CHECK(report.at("step") == i + 1);
    }
}

namespace {

using EpochNumbers = std::vector<std::int64_t>;

/// The epochs that a run of five has saved.
EpochNumbers saved(const test::Directory& directory, const std::string& name,
                   const CheckpointConfig& config) {
    Local trainer({.run = {.name = name, .storage_path = directory.path(), .checkpoint = config}});
    const Result result = trainer.fit([](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        for (const int epoch : worker.epochs(5, state)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            worker.report({{"epoch", epoch}}, state);
        }
    });
    CHECK(result.metrics_history.size() == 5);
    EpochNumbers epochs;
    for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
        epochs.push_back(metrics.at("epoch").as_int64());
    }
    return epochs;
}

} // namespace

TEST_CASE("Report.frequency_and_at_end") {
    const test::Directory directory("frequency");
    CHECK(saved(directory, "each", {}) == EpochNumbers{0, 1, 2, 3, 4});
    CHECK(saved(directory, "second", {.frequency = 2}) == EpochNumbers{1, 3});
    CHECK(saved(directory, "end", {.frequency = 2, .at_end = true}) == EpochNumbers{1, 3, 4});
    CHECK(saved(directory, "only_end", {.frequency = 100, .at_end = true}) == EpochNumbers{4});
}

TEST_CASE("Report.mean_time_between_failures") {
    const test::Directory directory("mtbf");
    const double day = 24 * 3600;
    CHECK(saved(directory, "often", {.mean_time_between_failures_s = 1e-3}) ==
          EpochNumbers{0, 1, 2, 3, 4});
    CHECK(saved(directory, "seldom", {.mean_time_between_failures_s = day}) == EpochNumbers{});
    CHECK(saved(directory, "end", {.mean_time_between_failures_s = day, .at_end = true}) ==
          EpochNumbers{4});

    const auto code = [&](const CheckpointConfig& config) {
        return code_of([&] { Local({.run = {.name = "wrong", .checkpoint = config}}); });
    };
    for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
        CHECK(code({.mean_time_between_failures_s = wrong}) == "RT-C3");
    }
    CHECK(code({.frequency = 2, .mean_time_between_failures_s = day}) == "RT-C19");
    CHECK(code({.mean_time_between_failures_s = day}) == "");
}

TEST_CASE("Report.names_and_metadata") {
    const test::Directory directory("names");
    Local trainer({.run = {.name = "r",
                           .storage_path = directory.path(),
                           .trackers = {track::JsonLines("shown/metrics.jsonl")}},
                   .metadata = {{"by", "trainer"}, {"data", "v1"}}});
    const Result result = trainer.fit([&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        worker.report({}, state, {.checkpoint_dir_name = "first", .metadata = {{"by", "report"}}});
        worker.report({}, state);
        const auto mine = directory.path() / "mine";
        std::filesystem::create_directories(mine);
        test::write(mine / "model", "weights");
        const auto given = Checkpoint::from_directory(mine);
        given.set_metadata({{"data", "v2"}});
        worker.report({}, given);
    });
    REQUIRE(result.best_checkpoints.size() == 3);
    const auto metadata = [&](std::size_t i) {
        return result.best_checkpoints[i].first.metadata();
    };
    CHECK(result.best_checkpoints[0].first.path.filename() == "first");
    CHECK(metadata(0) == Config{{"by", "report"}, {"data", "v1"}});
    CHECK(metadata(1) == Config{{"by", "trainer"}, {"data", "v1"}});
    CHECK(metadata(2) == Config{{"by", "trainer"}, {"data", "v2"}});
    for (const char* name :
         {"first", "../up", "logs", "latest", "report.html", "run.json", "stopped.json", "shown"}) {
        CHECK(test::contains(test::message_of([&] {
                                 Local({.run = {.name = "r",
                                                .storage_path = directory.path(),
                                                .trackers = {track::JsonLines("shown/m.jsonl")},
                                                .resume = Resume::always}})
                                     .fit([&](auto& worker) {
                                         worker.report({}, State{}, {.checkpoint_dir_name = name});
                                     });
                             }),
                             "RT-K9"));
    }
}

TEST_CASE("Report.a_directory_stays_when_its_checkpoint_fails") {
    const test::Directory directory("not-saved");
    const auto given = directory.path() / "given";
    std::filesystem::create_directories(given);
    Trainer<backend::Local, data::Sharded, checkpoint::Async> trainer(
        {.run = {.name = "r", .storage_path = directory.path() / "runs"}});
    CHECK(test::contains(test::message_of([&] {
                             trainer.fit([&](auto& worker) {
                                 worker.report({{"done", true}}, Checkpoint::from_directory(given),
                                               {.delete_local_checkpoint_after_upload = true});
                             });
                         }),
                         "RT-C10"));
    CHECK(std::filesystem::exists(given));
}

TEST_CASE("Report.upload_modes_of_directories") {
    const test::Directory directory("modes");
    using Mode = CheckpointUploadMode;
    const auto runs = directory.path() / "runs";
    Local trainer({.run = {.name = "r", .storage_path = runs}});
    const Result result = trainer.fit([&](auto& worker) {
        const auto make = [&](const std::filesystem::path& path) {
            std::filesystem::create_directories(path);
            test::write(path / "model", path.filename().string());
            return Checkpoint::from_directory(path);
        };
        const auto exists = [&](const char* name) {
            return std::filesystem::exists(directory.path() / name);
        };
        worker.report({}, make(directory.path() / "sync"));
        CHECK(exists("sync"));
        worker.report({}, make(directory.path() / "sync_deleted"),
                      {.delete_local_checkpoint_after_upload = true});
        CHECK(!exists("sync_deleted"));
        worker.report({}, make(directory.path() / "async"),
                      {.checkpoint_upload_mode = Mode::async});
        worker.report(
            {}, make(directory.path() / "async_kept"),
            {.checkpoint_upload_mode = Mode::async, .delete_local_checkpoint_after_upload = false});
        CHECK(!exists("async"));
        worker.report({}, make(runs / "r/in place"), {.checkpoint_upload_mode = Mode::no_upload});
        CHECK(exists("async_kept"));
        CHECK(worker.checkpoint()->path == runs / "r/in place");
        worker.report(
            {}, make(directory.path() / "by_function"),
            {.checkpoint_dir_name = "mine",
             .checkpoint_upload_fn = [&](const Checkpoint& given, const std::string& name) {
                 given.to_directory(runs / "r" / name);
                 return Checkpoint(runs / "r" / name);
             }});
    });
    const auto refused = [&](const std::filesystem::path& path, const ReportOptions& options) {
        return test::message_of([&] {
            Local({.run = {.name = "r", .storage_path = runs, .resume = Resume::always}})
                .fit([&](auto& worker) {
                    worker.report({}, Checkpoint::from_directory(path), options);
                });
        });
    };
    const auto outside = directory.path() / "outside";
    std::filesystem::create_directories(outside);
    CHECK(test::contains(refused(outside, {.checkpoint_upload_mode = Mode::no_upload}), "RT-K15"));
    CHECK(test::contains(
        refused(outside, {.checkpoint_upload_fn = [](const Checkpoint& given,
                                                     const std::string&) { return given; }}),
        "RT-K15"));
    CHECK(test::contains(refused(runs, {.delete_local_checkpoint_after_upload = true}), "RT-K16"));
    CHECK(test::contains(refused(directory.path() / "gone", {}), "RT-K1"));
    std::vector<std::string> contents;
    for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
        checkpoint::verify(checkpoint.path);
        contents.push_back(test::read(checkpoint.as_directory() / "model"));
        CHECK(metrics.at("checkpoint_dir_name").as_string() == checkpoint.path.filename().string());
    }
    CHECK(contents == std::vector<std::string>{"sync", "sync_deleted", "async", "async_kept",
                                               "in place", "by_function"});
}

TEST_CASE("Run.user_checkpoints_are_kept") {
    const test::Directory directory("user");
    Local trainer({.run = {.name = "r", .storage_path = directory.path() / "runs"}});
    const Result result = trainer.fit([&](auto& worker) {
        CHECK(!worker.checkpoint());
        const auto mine = directory.path() / "mine";
        std::filesystem::create_directories(mine / "deep");
        test::write(mine / "deep/model.bin", "weights");
        worker.report({{"loss", 1}}, Checkpoint::from_directory(mine));
        std::filesystem::remove_all(mine);
        REQUIRE(worker.checkpoint());
        CHECK(test::read(worker.checkpoint()->as_directory() / "deep/model.bin") == "weights");
        int step = 0;
        CHECK(code_of([&] { worker.restore(State{}.add("step", step)); }) == "RT-K1");
    });
    CHECK(test::read(result.checkpoint->path / "deep/model.bin") == "weights");
    Local again({.run = {.name = "r",
                         .storage_path = directory.path() / "runs",
                         .resume = Resume::always}});
    again.fit([&](auto& worker) { CHECK(worker.checkpoint() == result.checkpoint); });
}

TEST_CASE("Run.mistakes_in_the_function_are_errors") {
    const test::Directory directory("mistakes");
    int number = 0;
    const auto fails_with = [&](auto&& function) {
        Local trainer({.run = {.name = "r" + std::to_string(++number),
                               .storage_path = directory.path(),
                               .checkpoint = {.score_attribute = "score"}},
                       .datasets = {{"train", test::fashion_mnist(8)}}});
        return test::message_of([&] { trainer.fit(function); });
    };
    CHECK(test::contains(fails_with([](auto& worker) { (void)worker.dataset_shard("test"); }),
                         "RT-D1"));
    CHECK(test::contains(fails_with([](auto& worker) { (void)worker.dataset_shard("test"); }),
                         "\"train\""));
    CHECK(test::contains(fails_with([](auto& worker) { worker.report({{"pid", 3}}); }), "RT-C10"));
    struct EmptyImpl : torch::nn::Module {};
    CHECK(test::contains(
        fails_with([](auto& worker) { (void)worker.prepare(std::make_shared<EmptyImpl>()); }),
        "RT-M1"));
    CHECK(test::contains(fails_with([](auto& worker) {
                             test::Net net;
                             auto one = worker.prepare(net);
                             auto two = worker.prepare(net);
                         }),
                         "RT-M5"));
    const auto thrown = fails_with([](auto&) { throw 7; });
    CHECK(test::contains(thrown, "RT-T1"));
    CHECK(test::contains(thrown, "threw an object of type int, 7, which is not derived from"));
    for (const std::string name : {"", "x\ny", "a\x1b[2J", "\xff"}) {
        CAPTURE(name);
        CHECK(test::contains(fails_with([&](auto& worker) {
                                 worker.report({{name, 3}});
                             }),
                             "RT-C75"));
        CHECK(test::contains(fails_with([&](auto& worker) {
                                 worker.report({{"inner", {{name, 3}}}});
                             }),
                             "RT-C75"));
        CHECK(test::contains(fails_with([&](auto& worker) {
                                 worker.log({{name, 3.0}});
                             }),
                             "RT-C75"));
    }
}

TEST_CASE("Policy.async_writes_while_training_goes_on") {
    const test::Directory directory("async");
    using AsyncTrainer = Trainer<backend::Local, data::Sharded, checkpoint::Async>;
    const TrainerOptions options{
        .run = {.name = "r", .storage_path = directory.path(), .resume = Resume::always}};
    const auto weights = torch::zeros({1000, 1000});
    const Result result = AsyncTrainer(options).fit([&](auto& worker) {
        auto tensor = weights;
        auto state = State{}.add("weights", tensor);
        for (int step = 1; step <= 5; ++step) {
            tensor.fill_(step);
            worker.report({{"step", step}}, state);
            tensor.fill_(-1); // the checkpoint has the values of the report
        }
    });
    REQUIRE(result.best_checkpoints.size() == 5);
    for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
        checkpoint::verify(checkpoint.path);
        const auto saved = checkpoint::safetensors::read(checkpoint.path / "state.safetensors");
        CHECK(saved.at("weights/tensor").eq(metrics.at("step").as_int64()).all().item<bool>());
    }
    // It goes on as any other run.
    AsyncTrainer(options).fit([&](auto& worker) {
        auto tensor = torch::zeros({1000, 1000});
        CHECK(worker.restore(State{}.add("weights", tensor)));
        CHECK(tensor[3][4].template item<float>() == 5);
    });
    // What goes wrong in writing is thrown by the next report, or at the end.
    for (const bool report_again : {true, false}) {
        const auto message = test::message_of([&] {
            AsyncTrainer(options).fit([&](auto& worker) {
                auto complex = torch::zeros({2}, torch::kComplexDouble);
                auto state = State{}.add("complex", complex);
                worker.report({}, state);
                if (report_again) {
                    worker.report({}, state);
                }
            });
        });
        CHECK(test::contains(message, "RT-K6"));
    }
    CHECK(Result::from_path(result.path).best_checkpoints.size() == 5);
}

TEST_CASE("Policy.none_saves_no_state") {
    const test::Directory directory("none");
    Trainer<backend::Local, data::Replicated, checkpoint::None> trainer(
        {.run = {.name = "r", .storage_path = directory.path()}});
    const Result result = trainer.fit([](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        for (const int epoch : worker.epochs(3, state)) {
            worker.report({{"epoch", epoch}}, state);
        }
    });
    CHECK(result.metrics_history.size() == 3);
    CHECK(!result.checkpoint);
}

TEST_CASE("Prepare.takes_what_users_call_a_model") {
    const test::Directory directory("prepare");
    Local({.run = {.name = "r", .storage_path = directory.path()}}).fit([](auto& worker) {
        const auto x = torch::ones({2, 784});
        auto holder = worker.prepare(test::Net{});
        CHECK(holder(x).sizes() == torch::IntArrayRef{2, 10});
        auto pointer = worker.prepare(std::make_shared<test::NetImpl>());
        CHECK(pointer->forward(x).sizes() == torch::IntArrayRef{2, 10});
        auto sequential =
            worker.prepare(torch::nn::Sequential(torch::nn::Linear(784, 3), torch::nn::ReLU()));
        CHECK(sequential(x).sizes() == torch::IntArrayRef{2, 3});
        struct ByValue : torch::nn::Module {
            torch::nn::Linear layer = register_module("layer", torch::nn::Linear(784, 4));
            torch::Tensor forward(const torch::Tensor& input) { return layer(input); }
        };
        auto value = worker.prepare(ByValue{});
        CHECK(value(x).sizes() == torch::IntArrayRef{2, 4});
        CHECK(value->parameters().size() == 2);
    });
}

TEST_CASE("Restart.a_function_that_throws_is_called_again_from_its_checkpoint") {
    const test::Directory directory("again");
    std::vector<int> began;
    std::vector<std::int64_t> drawn;
    const auto train = [&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        worker.restore(state);
        began.push_back(step);
        if (step == 0) {
            drawn.push_back(torch::randint(1 << 30, {1}).template item<std::int64_t>());
        }
        while (step < 6) {
            ++step;
            if ((step == 1 && began.size() == 1) || (step == 4 && began.size() == 2)) {
                throw std::runtime_error("bad luck");
            }
            worker.report({{"step", step}}, state);
        }
    };
    const auto result = Local({.run = {.name = "r",
                                       .storage_path = directory.path(),
                                       .failure = {.max_failures = 2, .backoff_s = 0}}})
                            .fit(train);
    CHECK(began == std::vector<int>{0, 0, 3});
    CHECK(drawn.size() == 2);
    CHECK(drawn.front() == drawn.back()); // each attempt begins with the same random numbers
    CHECK(result.metrics_history.size() == 6);
    CHECK(!result.error.has_value());

    began.clear();
    CHECK(code_of([&] {
              Local({.run = {.name = "r",
                             .storage_path = directory.path(),
                             .failure = {.max_failures = 3, .backoff_s = 0},
                             .resume = Resume::always}})
                  .fit([&](auto& worker) {
                      began.push_back(worker.rank());
                      throw std::runtime_error("always");
                  });
          }) == "RT-T1");
    CHECK(began.size() == 4); // once, and three restarts
}

TEST_CASE("Restart.a_checkpoint_that_fails_twice_is_passed_over") {
    const test::Directory directory("poison");
    std::vector<int> began;
    const auto result = Local({.run = {.name = "r",
                                       .storage_path = directory.path(),
                                       .failure = {.max_failures = -1, .backoff_s = 0}}})
                            .fit([&](auto& worker) {
                                int step = 0;
                                bool poisoned = false;
                                auto state = State{}.add("step", step).add("poisoned", poisoned);
                                worker.restore(state);
                                began.push_back(step);
                                if (poisoned) {
                                    throw std::runtime_error("the loss is not a number");
                                }
                                while (step < 5) {
                                    ++step;
                                    poisoned = step == 3 && began.size() == 1;
                                    worker.report({{"step", step}}, state);
                                    if (poisoned) {
                                        throw std::runtime_error("the loss is not a number");
                                    }
                                }
                            });
    CHECK(began == std::vector<int>{0, 3, 2});
    CHECK(result.metrics.at("step") == 5);
    CHECK(result.metrics_history.size() == 5);
}

TEST_CASE("Attempt.one_that_was_taken_for_dead_cannot_commit") {
    const test::Directory directory("fence");
    CHECK(
        code_of([&] {
            Local({.run = {.name = "r", .storage_path = directory.path()}}).fit([&](auto& worker) {
                int step = 1;
                auto state = State{}.add("step", step);
                worker.report({}, state);
                // As another attempt does that begins.
                test::write(directory.path() / "r" / checkpoint::Staging::attempt_file, "another");
                CHECK(code_of([&] { worker.report({}, state); }) == "RT-S16");
                throw std::runtime_error("the end");
            });
        }) == "RT-T1");
    const auto left = Result::from_path(directory.path() / "r");
    CHECK(left.best_checkpoints.size() == 1);
}

TEST_CASE("Preemption.a_loop_over_epochs_is_saved_between_batches") {
    const test::Directory directory("room");
    const auto rows = torch::arange(24);
    std::vector<std::int64_t> taken;
    const auto options = [&] {
        return TrainerOptions{.run = {.name = "r", .storage_path = directory.path()},
                              .datasets = {{"train", data::from_tensors({{"row", rows}})}}};
    };
    const auto train = [&](std::size_t stop_at) {
        return [&, stop_at](auto& worker) {
            int step = 0;
            auto state = State{}.add("step", step);
            auto batches = worker.dataset_shard("train").batches({.size = 2, .shuffle = true});
            for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
                for (auto& batch : batches) {
                    ++step;
                    taken.push_back(batch["row"][0].template item<std::int64_t>());
                    if (taken.size() == stop_at) {
                        ProcessContext::current().notice.give(60);
                        CHECK(worker.preemption().value().seconds_left > 50);
                    }
                }
                worker.report({{"step", step}}, state);
            }
        };
    };
    const test::Directory calm("room-calm");
    auto undisturbed = options();
    undisturbed.run.storage_path = calm.path();
    Local(undisturbed).fit(train(0));
    const auto expected = std::exchange(taken, {});

    for (const std::size_t stop_at : {5U, 17U}) { // in the first epoch, in the second
        const pid_t child = ::fork();
        if (child == 0) {
            Local(options()).fit(train(stop_at)); // ends the process
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WEXITSTATUS(status) == preempted_exit_code);
    }
    const auto left = Result::from_path(directory.path() / "r");
    CHECK(left.metrics_history.size() == 1);
    CHECK(left.best_checkpoints.size() >= 2);
    const auto result = Local(options()).fit(train(0));
    CHECK(result.metrics_history.size() == 2);
    REQUIRE(taken.size() == expected.size() - 5 - 17); // the children took the others
    CHECK(taken == std::vector<std::int64_t>(expected.end() - static_cast<long>(taken.size()),
                                             expected.end()));
}
