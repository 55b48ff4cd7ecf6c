// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stoppers: what ends a whole search. What ends one trial are RunConfig's stop conditions
/// (config/stop.hpp). Cost tier 1: std and Boost.JSON.
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

/// Stops the search when it has run for so long; time between its starts does not count.
struct Timeout {
    double seconds = 0; ///< more than 0
};

/// Stops the search when the best values of a metric, over all reports, hardly differ: Ray Tune's
/// ExperimentPlateauStopper. A NaN, or a report without the metric, does not count.
struct ExperimentPlateau {
    std::string metric{};              ///< "a/b" reads a nested one
    double std = 0.001;                ///< their standard deviation must be at most this; above 0
    int top = 10;                      ///< how many are looked at, at least 2
    ScoreOrder mode = ScoreOrder::min; ///< which values are the best
    int patience = 0;                  ///< for how many reports in a row it must be so, at least 0
};

/// Stops the search when it says true of a report. It may be asked about reports again after a
/// restart.
using StopFunction = std::function<bool(const TrialReport& report)>;

/// None, one or several of them. Any stops the search.
class Stoppers {
public:
    /// What there is.
    using Kind = std::variant<Timeout, ExperimentPlateau, StopFunction>;

    /// One of them; a function is anything that can be called with a TrialReport.
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

/// Asks stoppers about one report after the other. Pure: it is told the time.
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
                Reading::expect(!plateau->metric.empty(), "ExperimentPlateau", "it needs a metric");
                Reading::expect(plateau->std > 0, "ExperimentPlateau", "std must be more than 0");
                Reading::expect(plateau->top >= 2, "ExperimentPlateau", "top must be at least 2");
                Reading::expect(plateau->patience >= 0, "ExperimentPlateau",
                                "patience must be at least 0");
            }
            judged_.push_back({stopper.kind(), {}, 0});
        }
    }

    /// A report of any trial.
    void hear(const TrialReport& report) {
        for (Judged& it : judged_) {
            if (const auto* const plateau = std::get_if<ExperimentPlateau>(&it.kind)) {
                hear(it, *plateau, report);
            } else if (const auto* const function = std::get_if<StopFunction>(&it.kind)) {
                if ((*function)(report)) {
                    stop("a function of the search's stoppers");
                }
            }
        }
    }

    /// The time of a clock that never goes back, in seconds. What has passed since it was told last
    /// counts, so the first one in a start of the search tells nothing.
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

    /// Whether one of them stops the search.
    [[nodiscard]] bool stops() const noexcept { return !reason_.empty(); }
    /// The first one counts.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    /// Seconds until the first Timeout; none: there is none.
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
                    throw std::invalid_argument("it has other stoppers");
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
        std::vector<double> top; ///< of ExperimentPlateau: the best values, the smallest first
        int reports = 0;         ///< of it: in a row, with values that hardly differ
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
    std::optional<double> last_s_; ///< when hear_time() was called last
    double run_s_ = 0;             ///< all starts of the search together
    std::string reason_;
};

} // namespace rtrain::tune
