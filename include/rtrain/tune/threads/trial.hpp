// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trial: the argument of a plain function that runs a trial.
///
/// @code
/// double f(rtrain::tune::Trial& trial, const rtrain::Config& config) {
///     double loss = 1;
///     for (int step = 0; step < 100; ++step) {
///         loss *= 1 - config.at("lr").to_number<double>();
///         if (!trial.report({{"loss", loss}})) {
///             break; // the search has stopped this trial
///         }
///     }
///     return loss;
/// }
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/resources/resources.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// A state that trials may share. The pointer is not null; no bytes: start from the beginning.
using StateBytes = std::shared_ptr<const std::optional<std::string>>;

/// One trial, as its function sees it.
class Trial {
public:
    /// Receives a report, optionally with a state; returns false when the trial must return.
    using Listener = std::function<bool(Config metrics, std::optional<std::string_view> state)>;

    /// Receives a state that the trial's run has saved itself, in the run's own counts.
    using Saved = std::function<void(const SavedState& state)>;

    /// `state`: not null.
    Trial(Assignment assignment, Place place, StateBytes state, Listener listener, Saved saved)
        : assignment_(std::move(assignment)), place_(std::move(place)), state_(std::move(state)),
          listener_(std::move(listener)), saved_(std::move(saved)) {}
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    /// Records the metrics, as result.json would. Returns false when the function must return: the
    /// trial was stopped or paused, or will continue with another configuration, for which the
    /// function is called again. Later reports and the return value do not count.
    bool report(Config metrics) { return listen(std::move(metrics), std::nullopt); }

    /// The same with a state: bytes from which the function can resume after this report, when it
    /// is called again for this trial or, under Pbt, for another.
    bool report(Config metrics, std::string_view state) {
        return listen(std::move(metrics), state);
    }

    /// True if a report has returned false.
    [[nodiscard]] bool should_stop() const noexcept { return stopped_; }

    /// The bytes to resume from; none: start from the beginning.
    [[nodiscard]] const std::optional<std::string>& state() const noexcept { return *state_; }
    /// Reports that count: those made before state(), by the trial that saved it.
    [[nodiscard]] std::int64_t reports() const noexcept { return assignment_.reports; }

    /// Unique in its search.
    [[nodiscard]] const std::string& id() const noexcept { return assignment_.trial; }
    [[nodiscard]] const std::string& name() const noexcept { return assignment_.name; }
    /// The configuration suggested by the search.
    [[nodiscard]] const Config& config() const noexcept { return assignment_.config; }
    /// The GPUs of resources_per_trial given to this trial, by their index on this machine.
    [[nodiscard]] const std::vector<int>& gpus() const noexcept { return place_.gpus; }

    /// A directory for files of this trial. Throws StorageError [RT-S3].
    [[nodiscard]] const std::filesystem::path& directory() const {
        std::error_code error;
        std::filesystem::create_directories(assignment_.directory, error);
        if (error) {
            throw StorageError("RT-S3",
                               detail::concat("cannot create ", assignment_.directory.string(),
                                              ": ", error.message()));
        }
        return assignment_.directory;
    }

    // For code that runs the trial elsewhere (tune/processes/trial_process.hpp, slots.hpp):

    /// The controller's assignment.
    [[nodiscard]] const Assignment& assignment() const noexcept { return assignment_; }
    /// The place where it runs.
    [[nodiscard]] const Place& place() const noexcept { return place_; }
    /// Reports that its run has saved a state.
    void saved(const SavedState& state) const { saved_(state); }

private:
    bool listen(Config metrics, std::optional<std::string_view> state) {
        if (!stopped_) {
            stopped_ = !listener_(std::move(metrics), state);
        }
        return !stopped_;
    }

    Assignment assignment_;
    Place place_;
    StateBytes state_;
    Listener listener_;
    Saved saved_;
    bool stopped_ = false;
};

} // namespace rtrain::tune
