// SPDX-License-Identifier: Apache-2.0
// A program whose run people follow: by its logs, and by its live page. Python tests run it.
//
//   followed <what to do, as JSON> <storage path>
#include "support/training.hpp"

#include <rtrain/base/json.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

/// How a rank goes, once.
void fail(const std::string& how) {
    std::printf("last words\n");
    if (how == "abort") {
        std::abort();
    } else if (how == "segv") {
        std::raise(SIGSEGV);
    } else if (how == "kill") {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::raise(SIGKILL);
    } else if (how == "exit") {
        std::exit(7);
    }
    throw std::runtime_error("thrown");
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const auto options = rtrain::json::parse(argv[1]).as_object();
    const auto number = [&](const char* name, int otherwise) {
        const auto* const value = options.if_contains(name);
        return value != nullptr ? value->to_number<int>() : otherwise;
    };
    const auto text = [&](const char* name, const char* otherwise) {
        const auto* const value = options.if_contains(name);
        return std::string(value != nullptr ? value->as_string().c_str() : otherwise);
    };
    const std::filesystem::path storage = argv[2];
    const std::string how = text("fail", "");
    rtrain::RunConfig run{.name = "r",
                          .storage_path = storage,
                          .failure = {.max_failures = number("failures", 0), .backoff_s = 0},
                          .logging = {.level = text("level", "info"),
                                      .to_file = number("to_file", 0) != 0,
                                      .json = number("json", 0) != 0}};
    run.console = {.verbose = 0};
    if (const int most = number("stop", 0); most > 0) {
        run.stop = rtrain::stop::MaxIterations{most};
    }
    if (const int port = number("live", -1); port >= 0) {
        run.console.live = port;
    }
    rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, rtrain::checkpoint::Sync> trainer(
        {.config = {{"what", "<script>"}},
         .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
         .run = run});
    std::printf("before fit\n");
    const auto result = trainer.fit([&](auto& worker) {
        int step = 0;
        auto state = rtrain::State{}.add("step", step);
        (void)worker.restore(state);
        const std::string tail(600, static_cast<char>('a' + worker.rank()));
        while (step < number("steps", 5)) {
            ++step;
            std::printf("rank %d step %d %s\n", worker.rank(), step, tail.c_str());
            std::fprintf(stderr, "error %d of %d\n", step, worker.rank());
            worker.report({{"loss", 1.0 / step}}, state);
            if (worker.should_stop()) {
                break;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(number("pause_ms", 0)));
            const auto mark = storage / "has-failed";
            if (step == number("fail_at", 3) && worker.rank() == number("fail_rank", 1) &&
                !how.empty() && !std::filesystem::exists(mark)) {
                test::write(mark, "");
                fail(how);
            }
        }
    });
    std::printf("behind fit %d\n", static_cast<int>(result.metrics_history.size()));
}
