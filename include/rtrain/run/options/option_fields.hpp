// SPDX-License-Identifier: Apache-2.0
/// @file
/// The fields of every option struct, listed once: to serialize options, parse them and fill in
/// what is unset (option_json.hpp, restore.hpp). Omitting a field here does not compile.
#pragma once

#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

namespace rtrain::detail {

/// A field and its name in JSON.
template <class Options, class T>
struct Field {
    using Value = T;
    constexpr Field(const char* its_name, T Options::*its_member) noexcept
        : name(its_name), member(its_member) {}
    const char* name;
    T Options::*member;
};

template <class Options, class... Values>
concept TakesInitialisers = requires {
    Options{std::declval<Values>()...};
};
template <class Options, class... Values>
concept TakesOneMore = requires {
    Options{std::declval<Values>()..., {}};
};

/// True if an aggregate has exactly fields of these types, in this order.
template <class Options, class... Values>
inline constexpr bool has_exactly =
    TakesInitialisers<Options, Values...> && !TakesOneMore<Options, Values...>;

template <class Options, class... Values>
[[nodiscard]] consteval auto all_of(Field<Options, Values>... fields) {
    static_assert(has_exactly<Options, Values...>,
                  "list every field of the struct, in the order of its declaration");
    return std::tuple(fields...);
}

/// The fields of an option struct; null for any other type.
template <class Options>
inline constexpr auto fields_of = nullptr;

template <class T>
inline constexpr bool has_fields =
    !std::is_same_v<std::remove_cv_t<decltype(fields_of<T>)>, std::nullptr_t>;

/// Calls `visit(field)` for each field of `Options`.
template <class Options, class Visit>
constexpr void for_each_field(Visit&& visit) {
    std::apply([&](const auto&... field) { (visit(field), ...); }, fields_of<Options>);
}

template <>
inline constexpr auto fields_of<ScalingConfig> = all_of(
    Field("num_workers", &ScalingConfig::num_workers), Field("use_gpu", &ScalingConfig::use_gpu),
    Field("gpus_per_worker", &ScalingConfig::gpus_per_worker),
    Field("threads_per_worker", &ScalingConfig::threads_per_worker),
    Field("mpirun_args", &ScalingConfig::mpirun_args),
    Field("elastic_resize_monitor_interval_s", &ScalingConfig::elastic_resize_monitor_interval_s));

template <>
inline constexpr auto fields_of<HangConfig> = all_of(Field("enabled", &HangConfig::enabled),
                                                     Field("start_s", &HangConfig::start_s),
                                                     Field("idle_s", &HangConfig::idle_s),
                                                     Field("busy_s", &HangConfig::busy_s),
                                                     Field("factor", &HangConfig::factor),
                                                     Field("stopped_s", &HangConfig::stopped_s),
                                                     Field("silent_s", &HangConfig::silent_s));

template <>
inline constexpr auto fields_of<FailureConfig> = all_of(
    Field("max_failures", &FailureConfig::max_failures),
    Field("controller_failure_limit", &FailureConfig::controller_failure_limit),
    Field("max_preemption_failures", &FailureConfig::max_preemption_failures),
    Field("backoff_s", &FailureConfig::backoff_s),
    Field("backoff_max_s", &FailureConfig::backoff_max_s),
    Field("preemption_grace_s", &FailureConfig::preemption_grace_s),
    Field("preemption_notice", &FailureConfig::preemption_notice),
    Field("keep_survivors", &FailureConfig::keep_survivors), Field("hang", &FailureConfig::hang));

template <>
inline constexpr auto fields_of<CheckpointConfig> =
    all_of(Field("num_to_keep", &CheckpointConfig::num_to_keep),
           Field("score_attribute", &CheckpointConfig::score_attribute),
           Field("score_order", &CheckpointConfig::score_order),
           Field("frequency", &CheckpointConfig::frequency),
           Field("mean_time_between_failures_s", &CheckpointConfig::mean_time_between_failures_s),
           Field("at_end", &CheckpointConfig::at_end),
           Field("late_copies", &CheckpointConfig::late_copies));

template <>
inline constexpr auto fields_of<storage::TransferConfig> =
    all_of(Field("parallel", &storage::TransferConfig::parallel),
           Field("attempts", &storage::TransferConfig::attempts),
           Field("first_backoff_s", &storage::TransferConfig::first_backoff_s),
           Field("max_backoff_s", &storage::TransferConfig::max_backoff_s),
           Field("request_timeout_s", &storage::TransferConfig::request_timeout_s),
           Field("deadline_s", &storage::TransferConfig::deadline_s),
           Field("progress", &storage::TransferConfig::progress));

template <>
inline constexpr auto fields_of<ConsoleConfig> = all_of(Field("verbose", &ConsoleConfig::verbose),
                                                        Field("live", &ConsoleConfig::live));

template <>
inline constexpr auto fields_of<LoggingConfig> = all_of(Field("level", &LoggingConfig::level),
                                                        Field("to_file", &LoggingConfig::to_file),
                                                        Field("json", &LoggingConfig::json));

template <>
inline constexpr auto
    fields_of<ProfileConfig::Steps> = all_of(Field("first", &ProfileConfig::Steps::first),
                                             Field("last", &ProfileConfig::Steps::last));

template <>
inline constexpr auto fields_of<ProfileConfig> = all_of(Field("steps", &ProfileConfig::steps));

template <>
inline constexpr auto fields_of<RunConfig> =
    all_of(Field("name", &RunConfig::name), Field("storage_path", &RunConfig::storage_path),
           Field("failure", &RunConfig::failure), Field("checkpoint", &RunConfig::checkpoint),
           Field("storage_filesystem", &RunConfig::storage_filesystem),
           Field("transfer", &RunConfig::transfer), Field("callbacks", &RunConfig::callbacks),
           Field("stop", &RunConfig::stop), Field("trackers", &RunConfig::trackers),
           Field("console", &RunConfig::console), Field("logging", &RunConfig::logging),
           Field("profile", &RunConfig::profile), Field("resume", &RunConfig::resume),
           Field("fast_dev_run", &RunConfig::fast_dev_run));

template <>
inline constexpr auto
    fields_of<ValidationConfig> = all_of(Field("function", &ValidationConfig::function),
                                         Field("task", &ValidationConfig::task),
                                         Field("timeout_s", &ValidationConfig::timeout_s));

template <>
inline constexpr auto fields_of<TrainerOptions> = all_of(
    Field("config", &TrainerOptions::config), Field("scaling", &TrainerOptions::scaling),
    Field("run", &TrainerOptions::run), Field("datasets", &TrainerOptions::datasets),
    Field("resume_from", &TrainerOptions::resume_from),
    Field("metadata", &TrainerOptions::metadata), Field("validation", &TrainerOptions::validation),
    Field("datasets_to_split", &TrainerOptions::datasets_to_split));

} // namespace rtrain::detail
