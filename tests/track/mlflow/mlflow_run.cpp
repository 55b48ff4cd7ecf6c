// SPDX-License-Identifier: Apache-2.0
// A run with an MLflow tracker, as the Python beside it wants it.
//
// Usage: mlflow_run DIRECTORY COMMAND... with commands
//   lr X        in the configuration; before all others
//   nested_lr   the configuration has "lr/nested", too; before all others
//   no_https    as a program without rtrain::https; before all others
//   no_steps    steps are not shown; before all others
//   artifact X  is to be uploaded, too; before all others
//   begin N     the run is taken up behind N reports
//   go_on N M   the run is taken up behind N reports and M steps
//   log N       N steps; the loss is the step's number and what `add` has set
//   report N    N reports; the loss is the report's number and what `add` has set
//   add X       to losses from now on
//   odd         a report of names and values that break things
//   prefixed    a report of a metric named as those of steps are
//   nested N    as report, with a metric "loss/val" and "zz", too
//   stepped     a report of a metric named as the steps' folder is
//   many N      a report of N metrics more
//   sent N      waits until the server has N reports
//   steps_sent N  waits until it has N steps
//   kill        this process by SIGKILL
//   close HOW   finished, paused or failed; prints the seconds that it took
//   sync        brings what is missing
#include "track/tracked_run.hpp"

#include <rtrain/track/mlflow/mlflow.hpp>
#include <rtrain/track/sync.hpp>
#ifdef RTRAIN_TEST_HTTPS
#include <rtrain/track/http/https.hpp>
#endif

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <thread>

using namespace rtrain;
using namespace std::chrono_literals;

namespace {

track::HttpSender https() {
#ifdef RTRAIN_TEST_HTTPS
    return track::https();
#else
    return {};
#endif
}

Config config_with(double lr, bool nested_lr) {
    Config all{{"lr", lr},
               {"deep", {{"er", "text"}}},
               {"deep/er", "twice"},
               {"long", std::string(10'000, 'x')}};
    for (int i = 0; i < 250; ++i) {
        all["option " + std::to_string(i)] = i;
    }
    if (nested_lr) {
        all["lr/nested"] = 1;
    }
    return all;
}

void report_odd(test::TrackedRun& run) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    run.report({{"loss", std::numeric_limits<double>::quiet_NaN()},
                {"up", infinity},
                {"down", -infinity},
                {"nested", {{"f1", 0.75}}},
                {"nested/f1", 0.5},
                {"ok", true},
                {"words", "no metric"},
                {"a\"b<script>", 1},
                {"a?b?script?", 2},
                {"gr\xc3\xbc\xc3\x9f", 3},
                {"/a//../", 4},
                {"", 5},
                {std::string(300, 'n'), 6},
                {"great", std::numeric_limits<std::int64_t>::max()},
                {"small", 5e-324}});
}

void report_many(test::TrackedRun& run, std::int64_t count) {
    Config many{{"loss", 2}};
    for (std::int64_t i = 0; i < count; ++i) {
        many["many/" + std::to_string(i)] = i;
    }
    run.report(many);
}

void wait_until_sent(const std::filesystem::path& directory, const char* what, std::int64_t count) {
    for (;;) {
        const auto note = directory / "mlflow.json";
        if (std::filesystem::exists(note) &&
            json::parse(storage::read_file(note)).at(what).as_int64() >= count) {
            return;
        }
        std::this_thread::sleep_for(5ms);
    }
}

track::Ending ending(const std::string& how) {
    return how == "failed"   ? track::Ending::failed
           : how == "paused" ? track::Ending::paused
                             : track::Ending::finished;
}

} // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path directory(argv[1]);
    track::MlFlowOptions options{.run_name = "stand", .tags = {{"team", "a"}}, .https = https()};
    std::optional<test::TrackedRun> run;
    double added = 0;
    double lr = 0.25;
    bool nested_lr = false;
    std::int64_t reports = 0;
    std::int64_t steps = 0;
    for (int i = 2; i < argc; ++i) {
        const std::string command = argv[i];
        const auto argument = [&] { return std::string(argv[++i]); };
        if (command == "sync") {
            for (const auto& note : track::sync(directory, options.https)) {
                std::printf("synced %s\n", note.filename().c_str());
            }
            continue;
        }
        if (command == "lr") {
            lr = std::stod(argument());
            continue;
        }
        if (command == "nested_lr") {
            nested_lr = true;
            continue;
        }
        if (command == "no_https") {
            options.https = {};
            continue;
        }
        if (command == "no_steps") {
            options.steps = false;
            continue;
        }
        if (command == "artifact") {
            options.artifacts.push_back(argument());
            continue;
        }
        if (!run) {
            run.emplace(directory, std::vector<track::AnyTracker>{track::MlFlow(options)}, 8s,
                        config_with(lr, nested_lr));
        }
        if (command == "begin") {
            reports = std::stoll(argument());
            steps = 0;
            run->begin(reports);
        } else if (command == "go_on") {
            reports = std::stoll(argument());
            steps = std::stoll(argument());
            run->begin(reports, steps);
        } else if (command == "log") {
            for (auto left = std::stoll(argument()); left > 0; --left) {
                run->log({{"loss", static_cast<double>(++steps) + added}});
            }
        } else if (command == "report") {
            for (auto left = std::stoll(argument()); left > 0; --left) {
                run->report({{"loss", static_cast<double>(++reports) + added}});
            }
        } else if (command == "add") {
            added = std::stod(argument());
        } else if (command == "odd") {
            report_odd(*run);
        } else if (command == "prefixed") {
            run->report({{"loss", 1}, {"steps", {{"loss", 100}}}, {"steps/loss", 100}});
        } else if (command == "nested") {
            for (auto left = std::stoll(argument()); left > 0; --left) {
                run->report({{"loss", static_cast<double>(++reports) + added},
                             {"loss/val", 1},
                             {"zz", reports}});
            }
        } else if (command == "stepped") {
            run->report({{"loss", static_cast<double>(++reports) + added}, {"steps", 100}});
        } else if (command == "many") {
            report_many(*run, std::stoll(argument()));
        } else if (command == "sent") {
            wait_until_sent(directory, "sent", std::stoll(argument()));
        } else if (command == "steps_sent") {
            wait_until_sent(directory, "steps_sent", std::stoll(argument()));
        } else if (command == "kill") {
            std::raise(SIGKILL);
        } else if (command == "close") {
            const auto before = std::chrono::steady_clock::now();
            run->close(ending(argument()));
            const auto took = std::chrono::steady_clock::now() - before;
            std::printf("closed in %.1f s\n", std::chrono::duration<double>(took).count());
        }
    }
    std::fflush(stdout);
    std::_Exit(0);                   // a thread may wait for a server
} catch (const ConfigError& error) { // before anything has begun
    std::fprintf(stderr, "refused: %s\n", error.what());
    return 0;
}
