// SPDX-License-Identifier: Apache-2.0
// Programs whose checkpoints are validated, in several variants; validation_test.cpp runs them
// alone and under mpirun. Ray Train's acceptance cases for validation are among them.
//
//   validating <variant> <policy>[-elsewhere] <storage path>
#include "support/training.hpp"

#include <rtrain/storage/local.hpp>

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

namespace {

using rtrain::Checkpoint;
using rtrain::Config;
using rtrain::ConsistencyMode;
using rtrain::ValidationTask;

void wait_for(const std::filesystem::path& file) {
    while (!std::filesystem::exists(file)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

/// What the validation function finds in a checkpoint.
double level_in(const Checkpoint& checkpoint) {
    double level = 0;
    rtrain::State{}.add("level", level).load_from(checkpoint);
    return level;
}

std::string text_of(const std::vector<rtrain::ReportedCheckpoint>& checkpoints) {
    std::string text;
    for (const auto& item : checkpoints) {
        const auto* const score = item.metrics.if_contains("score");
        text += " " + item.checkpoint.path.filename().string() + "=" +
                (score != nullptr ? boost::json::serialize(*score) : "none") + "," +
                std::string(to_string(item.status));
    }
    return text;
}

void say(auto& worker, const std::string& text) {
    std::cout << text + " rank " + std::to_string(worker.rank()) + "\n" << std::flush;
}

/// A file system that is not the local one: "runs/r" is below a directory that only it knows.
class Elsewhere {
public:
    explicit Elsewhere(std::filesystem::path root) : root_(std::move(root)) {}
    std::vector<rtrain::storage::Entry> list(const std::string& path) {
        return local_.list(at(path));
    }
    std::string read(const std::string& path) { return local_.read(at(path)); }
    void write(const std::string& path, std::string_view text) { local_.write(at(path), text); }
    void upload(const std::filesystem::path& from, const std::string& path) {
        local_.upload(from, at(path));
    }
    void download(const std::string& path, const std::filesystem::path& to) {
        local_.download(at(path), to);
    }
    void remove(const std::string& path) { local_.remove(at(path)); }
    bool exists(const std::string& path) { return local_.exists(at(path)); }

private:
    [[nodiscard]] std::string at(const std::string& path) const { return (root_ / path).string(); }
    std::filesystem::path root_;
    rtrain::storage::Local local_;
};

template <class C>
class Program {
public:
    Program(std::filesystem::path storage, bool elsewhere) : storage_(std::move(storage)) {
        options_.scaling.num_workers = rtrain::launch::ranks().value_or(2);
        options_.run = {.name = "r", .storage_path = storage_};
        if (elsewhere) {
            options_.run.storage_path = "runs";
            options_.run.storage_filesystem = rtrain::storage::AnyFilesystem(Elsewhere(storage_));
        }
    }

    void run(const std::string& variant) {
        std::cout << "MAIN\n" << std::flush; // must be seen once, not from helpers
        if (variant == "keep") {
            keep();
        } else if (variant == "failing") {
            failing();
        } else if (variant == "consistency") {
            consistency();
        } else if (variant == "listing") {
            listing();
        } else if (variant == "pending") {
            pending();
        } else if (variant == "interrupted") {
            interrupted();
        } else if (variant == "second-fit") {
            second_fit();
        } else if (variant == "directory") {
            directory();
        } else if (variant == "endless") {
            endless();
        }
    }

private:
    using Function = std::function<Config(const Checkpoint&, const Config&)>;

    template <class F>
    rtrain::Result fit(Function validate, F train) {
        options_.validation.function = std::move(validate);
        rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, C> trainer(options_);
        auto result = trainer.fit([&](auto& worker) {
            double level = 0;
            const auto state = rtrain::State{}.add("level", level);
            worker.restore(state);
            train(worker, state, level);
        });
        std::cout << "BEST" << text_of(result) << " latest "
                  << (result.checkpoint ? result.checkpoint->path.filename().string() : "none")
                  << '\n';
        return result;
    }

    static std::string text_of(const rtrain::Result& result) {
        std::string text;
        for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
            const auto* const score = metrics.if_contains("score");
            text += " " + (score != nullptr ? boost::json::serialize(*score) : "none");
        }
        return text;
    }

    /// Ray's case 11: scores 1, 3, 2 are reported, the last is validated to 5; two are kept.
    void keep() {
        options_.run.checkpoint = {.num_to_keep = 2, .score_attribute = "score"};
        fit(
            [](const Checkpoint& checkpoint, const Config& task) {
                std::cout << "printed while validating\n" << std::flush;
                return Config{{"score", task.at("add").to_number<double>() + level_in(checkpoint)},
                              {"pid", 1}};
            },
            [](auto& worker, const auto& state, double& level) {
                for (const int score : {1, 3, 2}) {
                    level = score;
                    worker.report({{"score", score}}, state,
                                  {.validation = score == 2
                                                     ? std::variant<bool, ValidationTask>(
                                                           ValidationTask{.config = {{"add", 3}}})
                                                     : false});
                }
            });
    }

    /// Ray's case 12, and worse: the run succeeds.
    void failing() {
        options_.validation.task = {{"do", "return"}};
        options_.validation.timeout_s = 60;
        fit(
            [](const Checkpoint& checkpoint, const Config& task) {
                const std::string what(task.at("do").as_string());
                if (what == "throw") {
                    throw std::runtime_error("bad luck");
                } else if (what == "crash") {
                    std::raise(SIGKILL);
                } else if (what == "sleep") {
                    std::this_thread::sleep_for(std::chrono::hours(1));
                }
                return Config{{"score", 10 * level_in(checkpoint)}};
            },
            [](auto& worker, const auto& state, double& level) {
                for (const char* const what : {"throw", "return", "crash", "sleep"}) {
                    ++level;
                    ValidationTask task{.config = {{"do", what}}};
                    if (what == std::string("sleep")) {
                        task.timeout_s = 1;
                    }
                    worker.report({{"score", level}}, state, {.validation = task});
                }
                ++level;
                worker.report({{"score", level}}, state, {.validation = true});
                say(worker, "STATUS" + ::text_of(worker.get_all_reported_checkpoints()));
            });
    }

    /// Ray's case 13: what is seen while the validator is blocked, and then.
    void consistency() {
        const auto go = storage_ / "go";
        fit(
            [go](const Checkpoint& checkpoint, const Config& /*task*/) {
                wait_for(go);
                return Config{{"score", 10 * level_in(checkpoint)}};
            },
            [go](auto& worker, const auto& state, double& level) {
                level = 1;
                worker.report({{"score", 1}}, state, {.validation = true});
                say(worker, "COMMITTED" + ::text_of(worker.get_all_reported_checkpoints(
                                              ConsistencyMode::committed)));
                say(worker, "IMPATIENT" + ::text_of(worker.get_all_reported_checkpoints(
                                              ConsistencyMode::validated, 0.2)));
                if (worker.rank() == 0) {
                    test::write(go, "");
                }
                say(worker, "VALIDATED" + ::text_of(worker.get_all_reported_checkpoints()));
            });
    }

    /// Ray's case 3: metrics alone are no checkpoint.
    void listing() {
        fit(nullptr, [](auto& worker, const auto& state, double& level) {
            for (const char* const label : {"FIRST", "SECOND"}) {
                ++level;
                worker.report({{"score", level}}, state);
                worker.report({{"score", 100}});
                say(worker, label + ::text_of(worker.get_all_reported_checkpoints()));
            }
        });
    }

    /// Ray's case 17: checkpoints that wait stay beside the final one; then the best remains.
    void pending() {
        options_.run.checkpoint = {.num_to_keep = 1, .score_attribute = "score"};
        const auto go = storage_ / "go";
        fit(
            [go](const Checkpoint& checkpoint, const Config& /*task*/) {
                wait_for(go);
                return Config{{"score", 100 * level_in(checkpoint)}};
            },
            [go](auto& worker, const auto& state, double& level) {
                worker.report({{"score", 50}}, state);
                for (int i = 0; i < 2; ++i) {
                    ++level;
                    worker.report({}, state, {.validation = true});
                }
                say(worker, "PENDING" + ::text_of(worker.get_all_reported_checkpoints(
                                            ConsistencyMode::committed)));
                if (worker.rank() == 0) {
                    test::write(go, "");
                }
                say(worker, "ENDED" + ::text_of(worker.get_all_reported_checkpoints()));
            });
    }

    /// Rank 0 dies while its checkpoint is being validated; the next start validates it.
    void interrupted() {
        options_.run.failure.max_failures = 1;
        const auto begun = storage_ / "begun";
        const auto killed = storage_ / "killed";
        fit(
            [=](const Checkpoint& checkpoint, const Config& task) {
                if (!std::filesystem::exists(killed)) {
                    test::write(begun, std::to_string(::getpid()));
                    std::this_thread::sleep_for(std::chrono::hours(1));
                }
                return Config{
                    {"score", level_in(checkpoint) * task.at("times").to_number<double>()}};
            },
            [=](auto& worker, const auto& state, double& level) {
                if (level == 0) {
                    level = 7;
                    worker.report({{"score", 0}}, state,
                                  {.validation = ValidationTask{.config = {{"times", 6}}}});
                    (void)worker.get_all_reported_checkpoints(ConsistencyMode::committed);
                    if (worker.rank() == 0) {
                        wait_for(begun);
                        test::write(killed, "");
                        std::raise(SIGKILL);
                    }
                    worker.barrier();
                }
                say(worker, "STATUS" + ::text_of(worker.get_all_reported_checkpoints()));
            });
    }

    /// The helper of the second fit() answers the first one from what has been recorded.
    void second_fit() {
        const auto train = [](auto& worker, const auto& state, double& level) {
            if (worker.rank() == 0) {
                std::cout << "trained " + worker.run_path().filename().string() + "\n";
            }
            level = 2;
            worker.report({{"score", level}}, state, {.validation = true});
        };
        const auto first = fit(
            [](const Checkpoint& checkpoint, const Config&) {
                return Config{{"score", 10 * level_in(checkpoint)}};
            },
            train);
        const double before = first.best_checkpoints.at(0).second.at("score").as_double();
        options_.run.name = "second";
        fit(
            [before](const Checkpoint& checkpoint, const Config&) {
                return Config{{"score", before + level_in(checkpoint)}};
            },
            train);
    }

    /// A directory of the user's is validated, too, also one that lies in the run already.
    void directory() {
        const auto files = storage_ / ("files-" + std::string(rtrain::launch::ranks() ? "m" : "d"));
        fit(
            [](const Checkpoint& checkpoint, const Config& task) {
                return Config{{"score", test::read(checkpoint.as_directory() / "text") +
                                            std::string(task.at("tail").as_string())}};
            },
            [files](auto& worker, const auto&, double&) {
                const auto inside = worker.run_path() / "inside";
                if (worker.rank() == 0) {
                    for (const auto& place : {files, inside}) {
                        std::filesystem::create_directories(place);
                        test::write(place / "text", place == inside ? "in" : "out");
                    }
                }
                worker.barrier();
                using enum rtrain::CheckpointUploadMode;
                for (const auto mode : {sync, async, no_upload}) {
                    worker.report({}, Checkpoint(mode == no_upload ? inside : files),
                                  {.checkpoint_upload_mode = mode,
                                   .delete_local_checkpoint_after_upload = false,
                                   .validation = ValidationTask{.config = {{"tail", "!"}}}});
                }
                say(worker, "STATUS" + ::text_of(worker.get_all_reported_checkpoints()));
            });
    }

    /// A validation without limit, for a run that is then killed from outside.
    void endless() {
        fit(
            [this](const Checkpoint&, const Config&) -> Config {
                std::ofstream(storage_ / "validates");
                for (;;) {
                    std::this_thread::sleep_for(std::chrono::hours(1));
                }
            },
            [](auto& worker, const auto& state, double&) {
                worker.report({{"score", 0}}, state, {.validation = true});
            });
    }

    std::filesystem::path storage_;
    rtrain::TrainerOptions options_;
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        return 2;
    }
    std::string policy = argv[2];
    const bool elsewhere = policy.ends_with("-elsewhere");
    policy = policy.substr(0, policy.find('-'));
    try {
        if (policy == "sync") {
            Program<rtrain::checkpoint::Sync>(argv[3], elsewhere).run(argv[1]);
        } else if (policy == "async") {
            Program<rtrain::checkpoint::Async>(argv[3], elsewhere).run(argv[1]);
        } else {
            Program<rtrain::checkpoint::Sharded>(argv[3], elsewhere).run(argv[1]);
        }
    } catch (const rtrain::Error& error) {
        std::cout << "ERROR " << error.what() << std::endl;
        return 1;
    }
}
