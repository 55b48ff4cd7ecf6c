// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trial: what a plain function sees of the trial that it is called for.
///
/// @code
/// double f(rtrain::tune::Trial& trial, const rtrain::Config& config) {
///     double loss = 1;
///     for (int step = 0; step < 100; ++step) {
///         loss *= 1 - config.at("lr").to_number<double>();
///         if (!trial.report({{"loss", loss}})) {
///             break; // the search has seen enough of this trial
///         }
///     }
///     return loss;
/// }
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/tune/plan.hpp>
#include <rtrain/tune/resources.hpp>

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

/// A state that trials may share. It points to bytes, or to none: begin at the beginning.
using StateBytes = std::shared_ptr<const std::optional<std::string>>;

/// One trial, as the function sees it that runs it.
class Trial {
public:
    /// Takes a report, with a state or without; false when the trial is to return.
    using Listener = std::function<bool(Config metrics, std::optional<std::string_view> state)>;

    /// Hears of a state that the trial's run has saved itself, as the run counts.
    using Saved = std::function<void(const SavedState& state)>;

    /// `state`: not null.
    Trial(Assignment assignment, Place place, StateBytes state, Listener listener, Saved saved)
        : assignment_(std::move(assignment)), place_(std::move(place)), state_(std::move(state)),
          listener_(std::move(listener)), saved_(std::move(saved)) {}
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    /// Takes the metrics down, as result.json would. False when the function is to return: the
    /// trial was stopped, or pauses, or goes on with another configuration, for which it is called
    /// again. What it reports and returns from then on does not count.
    bool report(Config metrics) { return listen(std::move(metrics), std::nullopt); }

    /// The same with a state: bytes from which the function can go on behind this report, when it
    /// is called again for this trial or, under Pbt, for another.
    bool report(Config metrics, std::string_view state) {
        return listen(std::move(metrics), state);
    }

    /// Whether a report has returned false.
    [[nodiscard]] bool should_stop() const noexcept { return stopped_; }

    /// The bytes to go on from; none: begin at the beginning.
    [[nodiscard]] const std::optional<std::string>& state() const noexcept { return *state_; }
    /// Reports that count: those that came before state(), in the trial that has saved it.
    [[nodiscard]] std::int64_t reports() const noexcept { return assignment_.reports; }

    /// Unique in its search.
    [[nodiscard]] const std::string& id() const noexcept { return assignment_.trial; }
    [[nodiscard]] const std::string& name() const noexcept { return assignment_.name; }
    /// What the search has suggested.
    [[nodiscard]] const Config& config() const noexcept { return assignment_.config; }
    /// The GPUs of resources_per_trial that this trial has, by their index on this machine.
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

    // For who runs the trial elsewhere (tune/trial_process.hpp, slots.hpp):

    /// What the controller has said.
    [[nodiscard]] const Assignment& assignment() const noexcept { return assignment_; }
    /// Where it runs.
    [[nodiscard]] const Place& place() const noexcept { return place_; }
    /// Its run has saved a state.
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
