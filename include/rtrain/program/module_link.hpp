// SPDX-License-Identifier: Apache-2.0
/// @file
/// ModuleLink: the parent's side of the socket on which a rank's script, by the Python module
/// rtrain, reports. It copies the files of checkpoints, and passes the rest on to the driver.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/launch/control/driver_link.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/program/module_message.hpp>
#include <rtrain/program/place.hpp>
#include <rtrain/program/plan.hpp>

#include <boost/json/object.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace rtrain::program {

class ModuleLink {
public:
    ModuleLink() = default;
    ModuleLink(const ModuleLink&) = delete;
    ModuleLink& operator=(const ModuleLink&) = delete;
    ~ModuleLink();

    /// Call before the program starts: returns the number of its end of the socket, which it
    /// inherits. `link` outlives this object. Throws LaunchError [RT-L7], [RT-L45].
    [[nodiscard]] int serve(launch::DriverLink& link, const RankPlace& place,
                            const ProgramPlan& plan);
    /// The program's end; -1: it has started, or serve() was not called.
    [[nodiscard]] int other_end() const noexcept { return other_end_; }
    /// Call after the program has started.
    void close_other_end() noexcept;

    /// The rank must end within that time, or soon. Thread-safe.
    void preempt(double grace_s) noexcept;
    /// True if the script asks whether it is preempted, so that it needs no signal.
    [[nodiscard]] bool asks_for_preemption() const noexcept { return asks_; }
    /// Call after the program has ended: handles its last messages, and waits until files are
    /// stored in the background.
    void finish() noexcept;
    /// True while files of a checkpoint are copied.
    [[nodiscard]] bool is_storing() const noexcept { return is_storing_; }

private:
    using Clock = std::chrono::steady_clock;

    void work(const std::stop_token& stop);
    /// Throws LaunchError [RT-L9] for a message that is malformed or out of turn.
    [[nodiscard]] module::Request parse(std::string_view message) const;
    /// Returns the answer to a message; empty if this object is destroyed.
    [[nodiscard]] std::optional<boost::json::object> answer(module::Request& request,
                                                            const std::stop_token& stop);
    [[nodiscard]] boost::json::object welcome(const module::Hello& hello);
    [[nodiscard]] std::optional<boost::json::object> report(module::Report& report,
                                                            const std::stop_token& stop);
    [[nodiscard]] std::optional<boost::json::object> meet(module::Meet& meet,
                                                          const std::stop_token& stop);
    /// Passes the call on to the driver, and waits for its answer.
    [[nodiscard]] std::optional<boost::json::object>
    call(const launch::RankEvent& event, const std::stop_token& stop,
         const std::filesystem::path& directory = {}, bool in_background = false);
    /// Lists the files of the report's directory, and adds its metadata. Throws Error.
    void add_files(launch::event::Report& call, const std::filesystem::path& directory) const;
    /// Stores what the driver asks for, and says so. In the background, returns once the files are
    /// copied, with nothing of the directory left to read.
    void store(const launch::event::Store& asked, const std::filesystem::path& directory,
               bool in_background);
    bool send(const boost::json::object& message) const;

    int own_end_ = -1;
    int other_end_ = -1; ///< until the program has it
    launch::DriverLink* link_ = nullptr;
    RankPlace place_;
    ProgramPlan plan_;
    bool is_greeted_ = false;
    std::int64_t calls_ = 0; ///< answered
    std::atomic<bool> asks_{false};
    std::atomic<bool> is_storing_{false};
    std::atomic<Clock::rep> ends_at_{0}; ///< when a preempted rank must have ended; 0: never
    process::Thread storing_;            ///< in the background
    process::Thread thread_;
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/module_link_definitions.hpp>
#endif
