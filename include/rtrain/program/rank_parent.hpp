// SPDX-License-Identifier: Apache-2.0
/// @file
/// RankParent: the parent of a rank that runs any program (`rtrain exec -- program`). It speaks the
/// control channel for it.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/launch/control/driver_link.hpp>
#include <rtrain/launch/control/rank_report.hpp>
#include <rtrain/program/held_ports.hpp>
#include <rtrain/program/module_link.hpp>
#include <rtrain/program/place.hpp>
#include <rtrain/program/plan.hpp>
#include <rtrain/program/process/rank_process.hpp>
#include <rtrain/program/rank_environment.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::program {

/// The end of a rank's program; sent to the driver as the text of event::Ending.
struct RankEnding {
    int rank = 0;
    int size = 1;
    int status = 0;            ///< exit code, or 128 + the signal
    bool is_preempted = false; ///< after the driver had preempted it

    [[nodiscard]] std::string text() const;
    /// Throws std::exception for a text that text() cannot have written.
    [[nodiscard]] static RankEnding parse(const std::string& text);
};

class RankParent {
public:
    /// `words`: the program and its arguments.
    explicit RankParent(std::vector<std::string> words);

    /// Runs the program. Returns the exit code of this process: the program's, or 128 + its signal.
    int run();

private:
    using Clock = std::chrono::steady_clock;

    /// Without a driver: mpirun, srun or a person has started the ranks.
    void choose_address();
    /// On several machines with --preload: starts this one's server, unless another rank has.
    void start_node_server();
    /// With a driver: joins it.
    void connect();
    /// On several machines: the ranks exchange their addresses through the driver.
    void exchange_addresses();
    void start();
    [[nodiscard]] bool start_forked(const Variables& variables);
    int wait();
    void forward(int signal);
    /// Reports how the program ended, and returns the exit code.
    int end(int wait_status);
    int end_without_start(const Failure& why);
    void say_ending(int status);
    void say_last_words(const Failure& failure, int status);
    [[nodiscard]] launch::RankReport report(int rank);
    /// Ends a program that hangs; what it prints about that is on its standard error.
    [[nodiscard]] std::string dump();

    std::vector<std::string> words_;
    RankPlace place_;
    ProgramPlan plan_;
    bool has_driver_;
    HeldPorts ports_; ///< without a driver, or on several machines
    std::unique_ptr<launch::DriverLink> link_;
    std::optional<RankProcess> process_;
    ModuleLink module_; ///< with a driver
    std::string name_;  ///< of the program, without its directory

    std::atomic<bool> has_started_{false};
    std::atomic<bool> is_over_{false};
    std::atomic<bool> is_preempted_{false};
    std::atomic<bool> was_hung_{false};
    std::atomic<std::int64_t> terminated_at_ns_{0}; ///< when SIGTERM was last forwarded
    std::atomic<std::int64_t> kill_at_ns_{0};       ///< once it is preempted

    // Accessed only by the link's thread.
    Clock::time_point measured_at_{};
    double cpu_s_ = 0; ///< at that time
    bool computes_ = true;
    bool was_runnable_ = false; ///< since then
    std::uint64_t progress_ = 0;
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/rank_parent_definitions.hpp>
#endif
