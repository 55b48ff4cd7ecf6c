// SPDX-License-Identifier: Apache-2.0
// Two ranks of a shell script, and the number of a checkpoint, without libtorch and MPI. Expected:
// "[rank 0] hello" and "[rank 1] hello" in any order, then "attempt 1 of run 7".
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/launch/supervise/supervisor.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>
#include <rtrain/track/mlflow.hpp>

#include <boost/asio/io_context.hpp>

#include <cstdio>
#include <optional>
#include <string>

int main() {
    using namespace rtrain::launch;
    const rtrain::storage::ProcessDirectory directory(rtrain::storage::temporary_directory(), "core");
    boost::asio::io_context io;
    int attempts = 0;
    rtrain::FailureConfig failure;
    failure.hang.enabled = false; // the script does not report
    Supervisor run(
        io,
        Task{.program = Program::argv({"/bin/sh", "-c", "echo $GREETING"}),
             .prepare =
                 [&](const LaunchRequest& start) {
                     attempts = start.attempt;
                     return LaunchEnvironment{.variables = {{"GREETING", "hello"}},
                                              .directory = directory.path(),
                                              .keeps_input = true};
                 },
             .result = [] { return "{}"; },
             .failure_in = [](const std::string&) { return std::nullopt; },
             .needs_mpi = false},
        rtrain::ScalingConfig{.num_workers = 2}, failure, [&](RunEnd) { io.stop(); });
    run.start();
    io.run();
    std::printf("attempt %d of run %d\n", attempts,
                static_cast<int>(*rtrain::checkpoint::index_in("checkpoint_000007")));
}
