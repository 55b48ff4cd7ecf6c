// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's directory says about its validation, and what reports may ask for.
#include "support/training.hpp"

#include <rtrain/checkpoint/validation_record.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using checkpoint::parse_validation;
using checkpoint::validation_text;
using checkpoint::ValidationRecord;
using LocalTrainer = Trainer<backend::Local>;

namespace {

const auto unused = [](const Checkpoint&, const Config&) { return Config{}; };

} // namespace

TEST_CASE("ValidationRecord.comes_back") {
    const ValidationRecord waiting{.task = {{"batches", 7}, {"x", 1.0 / 3}}, .timeout_s = 0.25};
    const auto read = parse_validation(validation_text(waiting));
    CHECK(read.status == CheckpointStatus::pending_validation);
    CHECK(read.task == waiting.task);
    CHECK(read.timeout_s == 0.25);
    CHECK(!parse_validation(validation_text({.task = {{"a", 1}}})).timeout_s);
    for (const auto status : {CheckpointStatus::validated, CheckpointStatus::validation_timeout,
                              CheckpointStatus::validation_failed}) {
        const auto ended =
            parse_validation(validation_text({status, {}, {}, {{"score", 1.0 / 3}}, "why"}));
        CHECK(ended.status == status);
        CHECK(ended.metrics == Config{{"score", 1.0 / 3}});
        CHECK(ended.message == "why");
    }
}

TEST_CASE("ValidationRecord.every_flipped_bit_is_found") {
    const std::string text = validation_text(
        {.status = CheckpointStatus::validated, .metrics = {{"score", 0.75}, {"name", "x"}}});
    for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
        std::string damaged = text;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
        CHECK_THROWS_AS((void)parse_validation(damaged), std::exception);
    }
    for (std::size_t length = 0; length < text.size(); ++length) {
        CHECK_THROWS_AS((void)parse_validation(text.substr(0, length)), std::exception);
    }
}

TEST_CASE("Validation.a_damaged_record_does_not_damage_the_checkpoint") {
    const test::Directory storage("damaged-record");
    const TrainerOptions options{
        .run = {.name = "r", .storage_path = storage.path(), .resume = Resume::always}};
    LocalTrainer(options).fit([](auto& worker) {
        worker.report({{"score", 1}}, State{});
        worker.report({{"score", 2}}, State{});
    });
    test::write(storage.path() / "r/checkpoint_000001/.validation.json", "{\"status\":");
    const auto result = Result::from_path(storage.path() / "r");
    CHECK(result.checkpoint->path.filename() == "checkpoint_000001");
    CHECK(result.best_checkpoints.back().second.at("score") == 2);
    LocalTrainer(options).fit([](auto& worker) {
        CHECK(worker.checkpoint()->path.filename() == "checkpoint_000001");
        const auto all = worker.get_all_reported_checkpoints();
        REQUIRE(all.size() == 2);
        CHECK(all[0].status == CheckpointStatus::committed);
        CHECK(all[1].status == CheckpointStatus::validation_failed);
        CHECK(all[1].metrics.at("score") == 2);
    });
}

TEST_CASE("Validation.metrics_are_merged_and_ranked_anew") {
    const test::Directory storage("merged");
    LocalTrainer({.run = {.name = "r", .storage_path = storage.path()}}).fit([](auto& worker) {
        worker.report({{"score", 1}, {"loss", 3}}, State{});
        worker.report({{"score", 2}}, State{});
    });
    test::write(storage.path() / "r/checkpoint_000000/.validation.json",
                validation_text(
                    {.status = CheckpointStatus::validated, .metrics = {{"score", 9}, {"f1", 5}}}));
    const auto result = Result::from_path(storage.path() / "r");
    const Config& metrics = result.best_checkpoints.front().second;
    CHECK(metrics.at("score") == 9);
    CHECK(metrics.at("f1") == 5);
    CHECK(metrics.at("loss") == 3);
    CHECK(result.get_best_checkpoint("score", "max").path.filename() == "checkpoint_000000");
}

TEST_CASE("Validation.impossible_requests_are_refused") {
    const test::Directory storage("refused");
    const RunConfig run{.name = "r", .storage_path = storage.path()};
    const auto failure = [&](auto&& trainer, const ReportOptions& options) {
        return test::message_of([&] {
            trainer.fit([&](auto& worker) { worker.report({{"a", 1}}, State{}, options); });
        });
    };
    CHECK(test::contains(failure(LocalTrainer({.run = run}), {.validation = true}), "RT-C15"));
    CHECK(test::contains(
        failure(LocalTrainer({.run = run}), {.validation = ValidationTask{.config = {{"a", 1}}}}),
        "RT-C15"));
    using Forgetful = Trainer<backend::Local, data::Sharded, checkpoint::None>;
    CHECK(test::contains(
        failure(Forgetful({.run = run, .validation = {.function = unused}}), {.validation = true}),
        "RT-C16"));
    CHECK(test::contains(failure(LocalTrainer({.run = run, .validation = {.function = unused}}),
                                 {.validation = ValidationTask{.config = {}, .timeout_s = 0}}),
                         "RT-C17"));
    CHECK(test::code_of([&] {
              LocalTrainer({.run = run, .validation = {.function = unused, .timeout_s = -1}});
          }) == "RT-C17");
    // Nothing is left of what was refused, and the run goes on.
    const auto result = LocalTrainer({.run = run}).fit([](auto& worker) {
        CHECK(!worker.checkpoint());
        worker.report({{"a", 2}}, State{}, {.validation = false});
    });
    REQUIRE(result.best_checkpoints.size() == 1);
    CHECK(result.best_checkpoints[0].second.at("a") == 2);
    CHECK(!std::filesystem::exists(result.checkpoint->path / ".validation.json"));
}

TEST_CASE("Validation.is_no_part_of_a_directory_that_is_reported") {
    const test::Directory storage("copied");
    const auto result =
        LocalTrainer({.run = {.name = "r", .storage_path = storage.path()}}).fit([&](auto& worker) {
            const auto files = storage.path() / "files";
            std::filesystem::create_directories(files);
            test::write(files / "a", "a");
            test::write(files / ".validation.json", "whatever");
            worker.report({}, Checkpoint(files));
            const auto all = worker.get_all_reported_checkpoints();
            CHECK(all.at(0).status == CheckpointStatus::committed);
        });
    CHECK(std::filesystem::exists(result.checkpoint->path / "a"));
    CHECK(!std::filesystem::exists(result.checkpoint->path / ".validation.json"));
}
