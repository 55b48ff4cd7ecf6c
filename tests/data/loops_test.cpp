// SPDX-License-Identifier: Apache-2.0
// Runs that stop within loops over batches, in every way in which these can lie in each other, and
// go on: they must read what a run does that never stopped, each row as often and in the same
// order.
#include "support/capture.hpp"
#include "support/training.hpp"

#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;
using Local = Trainer<backend::Local>;

namespace {

/// A run that writes down what it trains: each row, and what was drawn for it.
class Story {
public:
    explicit Story(const std::string& name) : directory_(name) {}

    TrainerOptions options(const std::string& run) const {
        return {.run = {.name = run, .storage_path = directory_.path()},
                .datasets = {{"a", numbers(6, 0)}, {"b", numbers(4, 100)}, {"c", numbers(2, 200)}}};
    }

    /// `body(worker, state, train)` is the training function; `train(row)` is a step of it.
    template <class Body>
    std::string run(const std::string& name, int stop_at, const Body& body) {
        std::string rows;
        Local(options(name)).fit([&](auto& worker) {
            torch::manual_seed(3);
            std::string trained;
            auto state = State{}.add("trained", trained);
            body(worker, state, [&](const std::string& row) {
                // What is drawn for a step must be the same, too.
                const auto drawn = torch::randint(1000, {1}).template item<std::int64_t>();
                trained += row + "." + std::to_string(drawn) + " ";
                ++steps_;
                if (steps_ == stop_at) {
                    worker.report({{"step", steps_}}, state);
                    throw std::runtime_error("stop");
                }
            });
            rows = trained;
        });
        return rows;
    }

    /// Stops at each step in turn, having saved there, then in the next one, and goes on.
    template <class Body>
    void goes_on_from_each_step(const Body& body) {
        steps_ = 0;
        const std::string expected = run("whole", -1, body);
        const int steps = steps_;
        REQUIRE(steps > 0);
        for (int stop = 1; stop <= steps; ++stop) {
            CAPTURE(stop);
            const std::string name = "stop" + std::to_string(stop);
            steps_ = 0;
            CHECK(code_of([&] { run(name, stop, body); }) == "RT-T1");
            if (stop < steps) {
                CHECK(code_of([&] { run(name, stop + 1, body); }) == "RT-T1");
            }
            CHECK(run(name, -1, body) == expected);
        }
    }

    /// The code of the error that a report in step `stop` gets.
    template <class Body>
    std::string refusal(int stop, const Body& body) {
        steps_ = 0;
        return message_of([&] { run("refused" + std::to_string(++refusals_), stop, body); });
    }

private:
    static data::Dataset numbers(std::int64_t rows, std::int64_t first) {
        return data::from_tensors({{"x", torch::arange(first, first + rows)}});
    }

    test::Directory directory_;
    int steps_ = 0;
    int refusals_ = 0;
};

std::string row(data::Batch& batch) {
    return std::to_string(batch["x"][0].item<std::int64_t>()) + "-";
}

auto shuffled(auto& worker, const std::string& name, std::int64_t size = 2) {
    return worker.dataset_shard(name).batches({.size = size, .shuffle = true});
}

} // namespace

TEST_CASE("Loops.a_run_goes_on_in_a_loop_inside_a_loop") {
    Story story("nested");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto outer = shuffled(worker, "a");
        auto inner = shuffled(worker, "b", 1);
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& a : outer) {
                for (auto& b : inner) {
                    train(row(a) + row(b));
                }
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.a_run_goes_on_behind_a_loop_in_the_body_of_another") {
    Story story("after");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto outer = shuffled(worker, "a");
        auto inner = shuffled(worker, "b", 1);
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& a : outer) {
                std::string rows;
                for (auto& b : inner) {
                    rows += row(b);
                }
                train(row(a) + rows);
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.a_run_goes_on_in_the_third_loop_with_batches_made_inside") {
    Story story("three");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& a : shuffled(worker, "a", 3)) {
                for (auto& b : shuffled(worker, "b")) {
                    for (auto& c : shuffled(worker, "c", 1)) {
                        train(row(a) + row(b) + row(c));
                    }
                }
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.a_run_goes_on_in_the_second_of_two_loops") {
    Story story("sequence");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto first = shuffled(worker, "a");
        auto second = shuffled(worker, "b");
        auto last = shuffled(worker, "c", 1);
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& a : first) {
                train(row(a));
            }
            for (auto& b : second) {
                train(row(b));
            }
            for (auto& c : last) {
                train(row(c));
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.a_run_goes_on_in_a_sequence_inside_a_loop") {
    Story story("both");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto outer = shuffled(worker, "a", 3);
        auto first = shuffled(worker, "b");
        auto second = shuffled(worker, "c", 1);
        for (const int epoch : worker.epochs(2, state)) {
            outer.set_epoch(epoch);
            for (auto& a : outer) {
                for (auto& b : first) {
                    train(row(a) + row(b));
                }
                for (auto& c : second) {
                    train(row(a) + row(c));
                }
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.a_run_goes_on_in_a_loop_inside_another_over_the_same_data") {
    Story story("same");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto outer = shuffled(worker, "b");
        auto inner = shuffled(worker, "b", 1);
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& a : outer) {
                for (auto& b : inner) {
                    train(row(a) + row(b));
                }
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.an_evaluation_before_the_loop_is_made_again") {
    Story story("evaluation");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto training = shuffled(worker, "a");
        auto evaluation = shuffled(worker, "b", 3);
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            std::int64_t first = 0;
            {
                const torch::NoGradGuard no_grad;
                for (auto& b : evaluation) {
                    first = first == 0 ? b["x"][0].template item<std::int64_t>() : first;
                }
            }
            for (auto& a : training) {
                train(row(a) + std::to_string(first));
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.side_by_side_go_on_together") {
    Story story("zip");
    SUBCASE("both are advanced by hand") {
        story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
            auto first = shuffled(worker, "a");
            auto second = shuffled(worker, "b");
            for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
                auto a = first.begin();
                auto b = second.begin();
                for (; a != first.end() && b != second.end(); ++a, ++b) {
                    train(row(*a) + row(*b));
                }
                worker.report({}, state);
            }
        });
    }
    SUBCASE("one begins again as often as it takes") {
        story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
            auto first = shuffled(worker, "a", 1);
            auto second = shuffled(worker, "c", 1);
            worker.restore(state); // before the loop begins
            auto b = second.begin();
            for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
                for (auto& a : first) {
                    if (b == second.end()) {
                        b = second.begin();
                    }
                    const std::string other = row(*b);
                    ++b;
                    train(row(a) + other);
                }
                worker.report({}, state);
            }
        });
    }
}

TEST_CASE("Loops.behind_those_over_epochs_leave_the_epochs_finished") {
    Story story("behind");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto training = shuffled(worker, "a");
        auto tuning = shuffled(worker, "b");
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& a : training) {
                train(row(a));
            }
            worker.report({}, state);
        }
        for (auto& b : tuning) {
            train(row(b));
        }
    });
}

TEST_CASE("Loops.an_iterator_that_is_kept_leaves_the_epochs_finished") {
    Story story("kept");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto batches = shuffled(worker, "a");
        auto samples = shuffled(worker, "b");
        const auto kept = samples.begin();
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& a : batches) {
                train(row(a));
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Loops.that_a_run_could_not_find_back_into_are_refused") {
    Story story("refused");
    const auto twice = [](auto& worker, auto& state, auto train) {
        auto batches = shuffled(worker, "a", 3);
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (int pass = 0; pass < 2; ++pass) {
                for (auto& a : batches) {
                    train(row(a));
                }
            }
        }
    };
    CHECK(contains(story.refusal(2, twice), "stop"));
    CHECK(contains(story.refusal(3, twice), "RT-D15"));
    CHECK(contains(story.refusal(3, twice), "\"a\""));
    // Not in the loop.
    CHECK(contains(story.refusal(3,
                                 [](auto& worker, auto& state, auto train) {
                                     auto batches = shuffled(worker, "a", 3);
                                     for ([[maybe_unused]] const int epoch :
                                          worker.epochs(1, state)) {
                                         for (int pass = 0; pass < 2; ++pass) {
                                             for (auto& a : batches) {
                                                 (void)a;
                                             }
                                         }
                                     }
                                     for (int i = 0; i < 3; ++i) {
                                         train("");
                                     }
                                 }),
                   "stop"));
    const auto micro_batches = [](auto& worker, auto& state, auto train) {
        auto outer = worker.dataset_shard("a").batches({.size = 1, .micro_batches = 2});
        auto inner = shuffled(worker, "b");
        for ([[maybe_unused]] const int epoch : worker.epochs(1, state)) {
            for (auto& a : outer) {
                for (auto& b : inner) {
                    train(row(a) + row(b));
                }
            }
        }
    };
    CHECK(contains(story.refusal(1, micro_batches), "stop"));
    CHECK(contains(story.refusal(3, micro_batches), "RT-D15"));
    // A loop that turns out not to lie in the other one, behind a checkpoint that says so.
    CHECK(contains(story.refusal(-1,
                                 [](auto& worker, auto& state, auto train) {
                                     auto outer = shuffled(worker, "a");
                                     auto inner = shuffled(worker, "b");
                                     std::optional<decltype(inner.begin())> b;
                                     for ([[maybe_unused]] const int epoch :
                                          worker.epochs(1, state)) {
                                         for (auto& a : outer) {
                                             if (!b) {
                                                 b.emplace(inner.begin());
                                             }
                                             train(row(a) + row(**b));
                                             worker.report({}, state);
                                         }
                                     }
                                 }),
                   "RT-D16"));
}

TEST_CASE("Loops.that_begin_before_the_checkpoint_is_loaded_are_refused") {
    Story story("before");
    const auto body = [](auto& worker, auto& state, auto train) {
        auto batches = shuffled(worker, "a");
        auto other = shuffled(worker, "b", 1);
        auto b = other.begin();
        for ([[maybe_unused]] const int epoch : worker.epochs(1, state)) {
            for (auto& a : batches) {
                train(row(a) + row(*b));
                ++b;
            }
        }
    };
    CHECK(contains(story.refusal(2, body), "stop"));
    CHECK(contains(message_of([&] { story.run("refused1", -1, body); }), "RT-D17"));
}

TEST_CASE("Loops.preemption_saves_where_a_run_finds_back") {
    // SIGTERM in each step in turn, without a report within the loops.
    const test::Directory directory("preempted");
    const auto run = [&](const std::string& name, int stop_at, int kind, std::string* rows) {
        int step = 0;
        Local({.run = {.name = name, .storage_path = directory.path()},
               .datasets = {{"a", data::from_tensors({{"x", torch::arange(6)}})},
                            {"b", data::from_tensors({{"x", torch::arange(100, 104)}})}}})
            .fit([&](auto& worker) {
                std::string trained;
                auto state = State{}.add("trained", trained);
                const auto train = [&](const std::string& row) {
                    trained += row + " ";
                    if (++step == stop_at) {
                        ProcessContext::current().notice.give(60);
                    }
                };
                auto first = shuffled(worker, "a");
                auto second = shuffled(worker, "b");
                for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
                    for (auto& a : first) {
                        train(row(a));
                    }
                    if (kind == 0) { // another loop that trains
                        for (auto& b : second) {
                            train(row(b));
                        }
                    } else if (kind == 1) { // the same loop once more
                        for (auto& a : first) {
                            train(row(a));
                        }
                    } else { // an evaluation, whose sum is no part of the state
                        const torch::NoGradGuard no_grad;
                        std::int64_t sum = 0;
                        for (auto& b : second) {
                            sum += b["x"].sum().template item<std::int64_t>();
                            if (++step == stop_at) {
                                ProcessContext::current().notice.give(60);
                            }
                        }
                        trained += "sum " + std::to_string(sum) + " ";
                    }
                    worker.report({}, state);
                }
                *rows = trained;
            });
    };
    for (const int kind : {0, 1, 2}) {
        CAPTURE(kind);
        std::string expected;
        run("whole" + std::to_string(kind), -1, kind, &expected);
        for (int stop = 1; stop <= 10; ++stop) {
            CAPTURE(stop);
            const std::string name = std::to_string(kind) + "-" + std::to_string(stop);
            std::fflush(stdout);
            const pid_t child = ::fork();
            if (child == 0) {
                std::string rows;
                run(name, stop, kind, &rows); // ends the process
                ::_exit(0);
            }
            int status = 0;
            REQUIRE(::waitpid(child, &status, 0) == child);
            CHECK(WEXITSTATUS(status) == preempted_exit_code);
            std::string rows;
            run(name, -1, kind, &rows);
            CHECK(rows == expected);
        }
    }
}

TEST_CASE("Loops.a_run_that_goes_on_in_loops_says_how") {
    Story story("says");
    const auto body = [](auto& worker, auto& state, auto train) {
        for ([[maybe_unused]] const int epoch : worker.epochs(1, state)) {
            for (auto& c : shuffled(worker, "c")) {
                train(row(c));
            }
            for (auto& a : shuffled(worker, "a", 6)) {
                for (auto& b : shuffled(worker, "b")) {
                    train(row(a) + row(b));
                }
            }
        }
    };
    CHECK(contains(story.refusal(2, body), "stop"));
    test::Stderr said;
    story.run("refused1", -1, body);
    const std::string text = said.text();
    CHECK(contains(text, "resuming within epoch 0"));
    CHECK(contains(text, "completed passes through \"c\" are skipped"));
    CHECK(contains(text, "the body of the loop over \"a\" restarts"));
}

TEST_CASE("Loops.that_say_their_epoch_go_on_in_it") {
    Story story("said");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto batches = shuffled(worker, "a");
        for (const int epoch : worker.epochs(3, state)) {
            batches.set_epoch(epoch);
            for (auto& a : batches) {
                train(row(a));
            }
            worker.report({}, state);
        }
    });
}

TEST_CASE("Batches.an_epoch_without_any_is_told_once") {
    const test::Directory directory("empty");
    test::Stderr said;
    Local({.run = {.name = "r", .storage_path = directory.path()},
           .datasets = {{"a", data::from_tensors({{"x", torch::arange(5)}})}}})
        .fit([](auto& worker) {
            const auto shard = worker.dataset_shard("a");
            for (int pass = 0; pass < 3; ++pass) {
                for ([[maybe_unused]] auto& batch : shard.batches({.size = 6, .drop_last = true})) {
                    FAIL("a batch");
                }
                for ([[maybe_unused]] auto& batch : shard.batches({.size = 5, .drop_last = true})) {
                }
            }
        });
    const std::string text = said.text();
    CHECK(test::count_of(text, "has no batch") == 1);
    CHECK(contains(text, "5 rows do not fill a step of 6 rows on each of 1 ranks"));
}

TEST_CASE("Stop.ends_the_epochs_for_good") {
    const test::Directory directory("early");
    enum class Way {
        report_behind,
        report_before,
        no_report,
        leave,
        leave_without_report,
        metrics
    };
    int began = 0;
    const auto run = [&](const std::string& name, Way way, int crash_in,
                         std::optional<Checkpoint> from = std::nullopt) {
        TrainerOptions options{.run = {.name = name, .storage_path = directory.path()},
                               .datasets = {{"a", data::from_tensors({{"x", torch::arange(6)}})}}};
        options.resume_from = std::move(from);
        return Local(options).fit([&](auto& worker) {
            int steps = 0;
            auto state = State{}.add("steps", steps);
            auto batches = worker.dataset_shard("a").batches({.size = 2});
            for (const int epoch : worker.epochs(10, state)) {
                ++began;
                for ([[maybe_unused]] auto& batch : batches) {
                    ++steps;
                }
                const bool is_good = epoch % 4 == 3;
                if (way == Way::report_before || way == Way::leave) {
                    worker.report({{"steps", steps}}, state);
                }
                if (is_good) {
                    worker.stop();
                }
                if (way == Way::report_behind) {
                    worker.report({{"steps", steps}}, state);
                } else if (way == Way::metrics) {
                    worker.report({{"steps", steps}});
                }
                if (is_good && (way == Way::leave || way == Way::leave_without_report)) {
                    break;
                }
            }
            CHECK(steps == 12);
            if (crash_in == began) {
                throw std::runtime_error("behind the loop");
            }
        });
    };
    for (const Way way : {Way::report_behind, Way::report_before, Way::no_report, Way::leave,
                          Way::leave_without_report, Way::metrics}) {
        CAPTURE(static_cast<int>(way));
        const std::string name = std::to_string(static_cast<int>(way));
        began = 0;
        CHECK(code_of([&] { run(name, way, 4); }) == "RT-T1"); // a restart
        run(name, way, -1);
        const auto result = run(name, way, -1); // another start
        CHECK(began == 4);
        REQUIRE(result.checkpoint);
        CHECK(result.metrics_history.size() <= 4);
        if (way == Way::report_behind) {
            CHECK(result.best_checkpoints.size() == 4); // none but those of the reports
        }
    }
    // A run of its own that is started from it is another run.
    began = 0;
    const auto from = Result::from_path(directory.path() / "0").checkpoint;
    Local({.run = {.name = "tuned", .storage_path = directory.path()}, .resume_from = from})
        .fit([&](auto& worker) {
            int steps = 0;
            auto state = State{}.add("steps", steps);
            for (const int epoch : worker.epochs(6, state)) {
                CHECK(epoch >= 4);
                ++began;
            }
        });
    CHECK(began == 2);
}

TEST_CASE("Stop.within_an_epoch_lets_it_end") {
    Story story("within");
    story.goes_on_from_each_step([](auto& worker, auto& state, auto train) {
        auto batches = shuffled(worker, "a");
        for (const int epoch : worker.epochs(5, state)) {
            for (auto& a : batches) {
                if (epoch == 1) {
                    worker.stop();
                }
                train(row(a));
            }
            CHECK(epoch < 2);
        }
    });
}

TEST_CASE("Stop.a_loop_that_is_left_without_it_is_told_of") {
    const test::Directory directory("left");
    int began = 0;
    const auto run = [&] {
        Local({.run = {.name = "r", .storage_path = directory.path()}}).fit([&](auto& worker) {
            int steps = 0;
            auto state = State{}.add("steps", steps);
            for ([[maybe_unused]] const int epoch : worker.epochs(3, state)) {
                ++began;
                worker.report({}, state);
                break;
            }
        });
    };
    for (const int told : {1, 1, 0, 0}) { // the last epoch leaves none
        test::Stderr said;
        run();
        CHECK(test::count_of(said.text(), "worker.stop()") == told);
    }
    CHECK(began == 3);
}
