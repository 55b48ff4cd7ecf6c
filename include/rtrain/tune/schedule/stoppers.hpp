// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stoppers end a whole search. RunConfig's stop conditions end one trial (config/stop.hpp). Cost
/// tier 1: std and Boost.JSON.
///
/// @code
/// Stoppers stop{Timeout{3600}, ExperimentPlateau{.metric = "loss"}};
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/score_order.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/schedule/reading.hpp>
#include <rtrain/tune/schedule/statistics.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune {

/// Stops the search after this running time; time between its starts does not count.
struct Timeout {
    double seconds = 0; ///< more than 0
};

/// Stops the search when the best values of a metric, over all reports, hardly differ: Ray Tune's
/// ExperimentPlateauStopper. A NaN, or a report without the metric, does not count.
struct ExperimentPlateau {
    std::string metric{};              ///< "a/b" reads a nested value
    double std = 0.001;                ///< of the best values, at most this; above 0
    int top = 10;                      ///< number of best values, at least 2
    ScoreOrder mode = ScoreOrder::min; ///< which values are the best
    int patience = 0;                  ///< for this many consecutive reports, at least 0
};

/// Stops the search when it returns true for a report. After a restart, it may be called again for
/// the same reports.
using StopFunction = std::function<bool(const TrialReport& report)>;

/// Zero or more stoppers. Any of them stops the search.
class Stoppers {
public:
    /// The kinds of stoppers.
    using Kind = std::variant<Timeout, ExperimentPlateau, StopFunction>;

    /// A single stopper; a function is anything callable with a TrialReport.
    class Stopper {
    public:
        Stopper(Timeout it) : kind_(it) {}                      // NOLINT(google-explicit-*)
        Stopper(ExperimentPlateau it) : kind_(std::move(it)) {} // NOLINT(google-explicit-*)
        template <std::predicate<const TrialReport&> F>
        Stopper(F function) : kind_(StopFunction(std::move(function))) {} // NOLINT

        [[nodiscard]] const Kind& kind() const noexcept { return kind_; }

    private:
        Kind kind_;
    };

    Stoppers() = default;
    Stoppers(std::initializer_list<Stopper> several) : all_(several) {}
    template <class S>
    requires(std::constructible_from<Stopper, S> && !std::same_as<S, Stopper> &&
             !std::same_as<std::remove_cvref_t<S>, Stoppers>) Stoppers(S one) // NOLINT
        : all_{Stopper(std::move(one))} {}

    [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
    [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
    [[nodiscard]] auto end() const noexcept { return all_.end(); }

private:
    std::vector<Stopper> all_;
};

/// Applies stoppers to one report after the other. Pure: the caller passes the time.
class StopperJudge {
public:
    static constexpr const char* name = "Stoppers";

    /// Throws ConfigError [RT-U63] for options out of range.
    explicit StopperJudge(const Stoppers& stoppers) {
        using internal::Reading;
        for (const auto& stopper : stoppers) {
            if (const auto* const timeout = std::get_if<Timeout>(&stopper.kind())) {
                Reading::expect(timeout->seconds > 0, "Timeout", "seconds must be more than 0");
            }
            if (const auto* const plateau = std::get_if<ExperimentPlateau>(&stopper.kind())) {
                Reading::expect(!plateau->metric.empty(), "ExperimentPlateau",
                                "metric must not be empty");
                Reading::expect(plateau->std > 0, "ExperimentPlateau", "std must be more than 0");
                Reading::expect(plateau->top >= 2, "ExperimentPlateau", "top must be at least 2");
                Reading::expect(plateau->patience >= 0, "ExperimentPlateau",
                                "patience must be at least 0");
            }
            judged_.push_back({stopper.kind(), {}, 0});
        }
    }

    /// Processes a report of any trial.
    void hear(const TrialReport& report) {
        for (Judged& it : judged_) {
            if (const auto* const plateau = std::get_if<ExperimentPlateau>(&it.kind)) {
                hear(it, *plateau, report);
            } else if (const auto* const function = std::get_if<StopFunction>(&it.kind)) {
                if ((*function)(report)) {
                    stop("a stop function");
                }
            }
        }
    }

    /// Sets the time of a monotonic clock, in seconds. The time since the last call counts; the
    /// first call in a start of the search only sets the reference.
    void hear_time(double now_s) {
        run_s_ += last_s_ ? now_s - *last_s_ : 0;
        last_s_ = now_s;
        for (const Judged& it : judged_) {
            const auto* const timeout = std::get_if<Timeout>(&it.kind);
            if (timeout != nullptr && run_s_ >= timeout->seconds) {
                stop(rtrain::detail::concat("Timeout: ", timeout->seconds, " s"));
            }
        }
    }

    /// True if one of them stops the search.
    [[nodiscard]] bool stops() const noexcept { return !reason_.empty(); }
    /// Reason of the first stopper that holds.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    /// Seconds until the first Timeout; none without a Timeout.
    [[nodiscard]] std::optional<double> time_left_s() const {
        std::optional<double> left;
        for (const Judged& it : judged_) {
            if (const auto* const timeout = std::get_if<Timeout>(&it.kind)) {
                const double its = std::max(0.0, timeout->seconds - run_s_);
                left = std::min(its, left.value_or(its));
            }
        }
        return left;
    }

    [[nodiscard]] boost::json::object save() const {
        boost::json::array stoppers;
        for (const Judged& it : judged_) {
            stoppers.push_back({{"kind", it.kind.index()},
                                {"top", boost::json::array(it.top.begin(), it.top.end())},
                                {"reports", it.reports}});
        }
        return json::finite({{"type", name},
                             {"run_s", run_s_},
                             {"reason", reason_},
                             {"stoppers", std::move(stoppers)}})
            .as_object();
    }

    /// Throws ConfigError [RT-U65].
    void load(const boost::json::object& state) {
        internal::load_state(name, state, [&] {
            std::vector<Judged> judged = judged_;
            const auto& saved = state.at("stoppers").as_array();
            for (std::size_t at = 0; at < judged.size(); ++at) {
                const auto& it = saved.at(at).as_object();
                if (it.at("kind").to_number<std::size_t>() != judged[at].kind.index()) {
                    throw std::invalid_argument("the saved stoppers differ");
                }
                judged[at].top.clear();
                for (const auto& value : it.at("top").as_array()) {
                    judged[at].top.push_back(internal::saved_number(value));
                }
                judged[at].reports = it.at("reports").to_number<int>();
            }
            reason_ = state.at("reason").as_string();
            run_s_ = internal::saved_number(state.at("run_s"));
            last_s_.reset();
            judged_ = std::move(judged);
        });
    }

private:
    struct Judged {
        Stoppers::Kind kind;
        std::vector<double> top; ///< for ExperimentPlateau: the best values, the smallest first
        int reports =
            0; ///< for ExperimentPlateau: consecutive reports with values that hardly differ
    };

    void hear(Judged& it, const ExperimentPlateau& plateau, const TrialReport& report) {
        const auto value = number_at(report.metrics, plateau.metric);
        if (!value || std::isnan(*value)) {
            return;
        }
        it.top.insert(std::upper_bound(it.top.begin(), it.top.end(), *value), *value);
        const auto most = static_cast<std::size_t>(plateau.top);
        if (it.top.size() > most) {
            it.top.erase(plateau.mode == ScoreOrder::min ? it.top.end() - 1 : it.top.begin());
        }
        const bool flat = it.top.size() == most && internal::deviation_of(it.top) <= plateau.std;
        it.reports = flat ? it.reports + 1 : 0;
        if (flat && it.reports >= plateau.patience) {
            stop(rtrain::detail::concat("ExperimentPlateau: the best ", most, " values of ",
                                        plateau.metric, " hardly differ"));
        }
    }

    void stop(std::string reason) {
        if (reason_.empty()) {
            reason_ = std::move(reason);
        }
    }

    std::vector<Judged> judged_;
    std::optional<double> last_s_; ///< time of the last hear_time()
    double run_s_ = 0;             ///< over all starts of the search
    std::string reason_;
};

} // namespace rtrain::tune
