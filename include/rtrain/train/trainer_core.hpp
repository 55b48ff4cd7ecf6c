// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrainerCore: a trainer without its policy types; the door between Trainer and the implementation
/// of fit().
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/run/further_runs.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/location.hpp>
#include <rtrain/train/train_function.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain {

namespace launch {
class CallBoard;
class Session;
struct FitCall;
} // namespace launch

namespace detail {

class TrainerCore {
public:
    /// `session`: this process's session. Throws ConfigError for invalid options.
    TrainerCore(launch::Session& session, TrainerOptions options,
                std::shared_ptr<AnyBackend> backend,
                std::shared_ptr<checkpoint::AnyPolicy> checkpoint);

    /// Begins the session of this process, if not yet begun: a launched rank stops printing, and
    /// reads the driver's standard input.
    static launch::Session& begin_session();

    [[nodiscard]] const TrainerOptions& options() const noexcept { return options_; }
    /// Returns a copy with different options. Throws ConfigError for invalid options.
    [[nodiscard]] TrainerCore with(TrainerOptions options) const {
        return {session_, std::move(options), backend_, checkpoint_};
    }

    /// See Trainer. `type`: the user's function type. `further`: runs that follow in the same
    /// ranks, or null.
    Result fit(const RunFunction& function, std::string type, const FurtherRuns* further = nullptr);

    /// Counts a run that serves calls as a fit() call, and returns its number. In a rank that was
    /// launched for it, serves the driver's calls, and exits.
    [[nodiscard]] int begin_calls(const CallFunction& function, std::string type);
    /// Runs it, or its driver, in the calling thread until the calls end. Throws like fit(), and
    /// PreemptionError.
    Result serve(int fit, const CallFunction& function, launch::CallBoard& calls);
    /// True in a driver, and in rank 0 without one.
    [[nodiscard]] bool leads() const;
    /// The run's directory. For a run without a name, only after begin_calls().
    [[nodiscard]] storage::Location location() const;
    [[nodiscard]] launch::Session& session() const noexcept { return session_; }
    void say_preempted(const Error& error) const;

    [[nodiscard]] static bool can_restore(const std::filesystem::path& run_directory,
                                          const std::optional<storage::AnyFilesystem>& filesystem);
    [[nodiscard]] static TrainerOptions
    restored_options(const std::filesystem::path& run_directory,
                     std::optional<TrainerOptions> options,
                     const std::optional<storage::AnyFilesystem>& filesystem);

private:
    [[nodiscard]] std::optional<storage::AnyFilesystem> run_filesystem() const;
    [[nodiscard]] RunConfig named_run() const;
    [[nodiscard]] track::RunInfo context_of(const RunConfig& run) const;
    Result driven(int fit);
    void take_all_gpus();
    Result launched(int fit);
    Result recorded(int fit, const RunFunction& function);
    [[noreturn]] void serve_and_exit();
    [[noreturn]] void train_and_exit(int fit, const RunFunction& function);
    [[nodiscard]] bool begin_another_run();
    [[noreturn]] void end_together(int fit, const Error& error);
    [[noreturn]] void end_together();
    Result train(launch::FitCall call, const RunFunction& function,
                 std::function<void(const Error&)> end_process);

    launch::Session& session_;
    TrainerOptions options_;
    std::shared_ptr<AnyBackend> backend_;
    std::shared_ptr<checkpoint::AnyPolicy> checkpoint_;
    std::string function_type_;            ///< of the fit() call
    const FurtherRuns* further_ = nullptr; ///< of the fit() call
    std::int64_t runs_ = 1;                ///< number of the run, as a call
    launch::CallBoard* calls_ = nullptr;   ///< of serve()
    bool is_sound_ = true;                 ///< nothing has failed in this process
};

} // namespace detail
} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/train/trainer_core_definitions.hpp>
#endif
