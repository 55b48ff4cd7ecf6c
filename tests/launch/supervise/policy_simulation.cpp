// SPDX-License-Identifier: Apache-2.0
// Random runs, judged by HangWatch and FailurePolicy as a driver would: no processes, no clock.
//
//   policy_simulation [--runs <number>] [--seed <number>]
//
// Each run draws its ranks, limits, load and faults from its seed. Ranks compute, wait for each
// other, evaluate on one rank, sleep in storage, save; the machine takes processors away, delays
// reports, and stops the driver. A fault kills, stops, deadlocks, or spins a rank, or poisons a
// checkpoint. It must hold that
//   - each hang is found within its limit and some slack, and nothing else is taken for one;
//   - each run ends, with its work done or because a budget is used up;
//   - restarts stay within the budgets, and delays are as configured;
//   - a checkpoint is skipped only after two equal failures, and then for good.
// A run that breaks a rule prints its seed; `--runs 1 --seed <it>` repeats it.
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/watch/hang_watch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace rtrain;
using namespace rtrain::launch;
using Found = HangWatch::Finding::Kind;

namespace {

struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& rule) {
    if (!holds) {
        throw Broken(rule);
    }
}

class Dice {
public:
    explicit Dice(std::uint64_t seed) : engine_(seed) {}
    double between(double low, double high) {
        return low + (high - low) * (static_cast<double>(engine_() >> 11) * 0x1p-53);
    }
    int number(int low, int high) { // both included
        return low + static_cast<int>(engine_() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool chance(double probability) { return between(0, 1) < probability; }

private:
    std::mt19937_64 engine_;
};

constexpr double tick_s = 0.1;

enum class Fault {
    none,
    dies,
    throws,
    stops,
    falls_silent,
    deadlocks,
    mismatches,
    spins,
    stays_out
};

/// What one rank does.
struct Rank {
    RankReport report;
    double work_s = 0;  ///< processor time to the end of what it computes
    double sleep_s = 0; ///< then, time without any
    bool reaches_end = true;
    bool reporting = true;
    bool stopped = false;
    bool has_told_to_train = false;
    double next_report_s = 0;
};

/// What the machine does to all.
struct Machine {
    double load = 0;          ///< probability that a rank gets no processor in a tick
    double no_turn_until = 0; ///< nobody computes
    double late_until = 0;    ///< reports are held up
    double driver_until = 0;  ///< the driver is stopped
    double calm_until = 0;    ///< none of the three happens again
};

struct Totals {
    std::uint64_t attempts = 0;
    std::uint64_t hangs = 0;
    std::uint64_t finished = 0;
    std::uint64_t given_up = 0;
    std::uint64_t skipped = 0;
    double simulated_s = 0;
};

class Run {
public:
    Run(std::uint64_t seed, Totals& totals) : dice_(seed), totals_(totals) {
        size_ = dice_.number(1, 4);
        config_.max_failures = dice_.number(-1, 4);
        config_.controller_failure_limit = dice_.number(0, 3);
        config_.backoff_s = dice_.between(0, 2);
        config_.backoff_max_s = dice_.between(1, 20);
        hang_.start_s = dice_.between(20, 60);
        hang_.idle_s = dice_.between(8, 15);
        hang_.busy_s = dice_.between(25, 60);
        hang_.factor = dice_.between(1.5, 3);
        hang_.stopped_s = dice_.between(1, 5);
        config_.hang = hang_;
        steps_ = dice_.number(5, 40);
        step_s_ = dice_.between(0.05, 1.5);
        save_every_ = dice_.number(1, 10);
        spins_while_waiting_ = dice_.chance(0.5);
        loaded_ = dice_.chance(0.5);
        disturbance_ = dice_.chance(0.7) ? 0.05 : 0;
        fault_rate_ = dice_.chance(0.3) ? 0 : dice_.between(0, 1);
        poison_step_ = dice_.chance(0.2) ? dice_.number(1, steps_) : -1;
    }

    void play() {
        FailurePolicy policy(config_);
        int restarts = 0;
        int starts = 0;
        int in_a_row = 0;
        for (int attempt = 0;; ++attempt) {
            require(attempt < 2000, "each run ends");
            ++totals_.attempts;
            const int furthest = furthest_;
            const auto failure = attempt_once(policy);
            if (!failure) {
                ++totals_.finished;
                return;
            }
            in_a_row = furthest_ > furthest ? 1 : in_a_row + 1;
            starts = failure->kind == Failure::Kind::start_up && furthest_ == furthest ? starts + 1
                     : failure->kind == Failure::Kind::start_up                        ? 1
                                                                                       : 0;
            const Decision decision = policy.on_failure(
                *failure, failure->kind == Failure::Kind::start_up ? "" : newest());
            learn(decision);
            if (!decision.restart) {
                require(decision.delay_s == 0, "who is not restarted does not wait");
                const bool budget =
                    failure->kind == Failure::Kind::start_up
                        ? starts == config_.controller_failure_limit + 1
                        : restarts == config_.max_failures ||
                              decision.reason.find("equal failures") != std::string::npos;
                require(budget,
                        "a run is given up only when its budget is used up: " + decision.reason);
                ++totals_.given_up;
                return;
            }
            restarts += failure->kind == Failure::Kind::start_up ? 0 : 1;
            require(config_.max_failures < 0 || restarts <= config_.max_failures,
                    "restarts stay within max_failures");
            require(starts <= config_.controller_failure_limit,
                    "starts stay within controller_failure_limit");
            double delay_s = in_a_row < 2 ? 0 : config_.backoff_s;
            for (int i = 2; i < in_a_row; ++i) {
                delay_s = std::min(2 * delay_s, config_.backoff_max_s);
            }
            require(std::abs(decision.delay_s - std::min(delay_s, config_.backoff_max_s)) < 1e-9,
                    "delays are as configured");
        }
    }

private:
    struct Checkpoint {
        std::string name;
        int step;
    };

    /// Runs the ranks from the newest checkpoint that is not skipped. Empty: they have finished.
    std::optional<Failure> attempt_once(FailurePolicy& policy) {
        while (!checkpoints_.empty() && skip_.contains(checkpoints_.back().name)) {
            checkpoints_.pop_back();
        }
        step_ = checkpoints_.empty() ? 0 : checkpoints_.back().step;
        begin();
        HangWatch watch(hang_, size_);
        for (;; time_s_ += tick_s, totals_.simulated_s += tick_s) {
            require(time_s_ - begun_s_ < 3600, "each attempt ends");
            disturb();
            for (Rank& rank : ranks_) {
                advance(rank);
            }
            if (auto failure = meet(policy)) {
                return failure;
            }
            if (step_ >= steps_) {
                return std::nullopt;
            }
            report(watch);
            unseen_s_ +=
                time_s_ < std::max(machine_.driver_until, machine_.late_until) ? tick_s : 0;
            if (time_s_ < machine_.driver_until) {
                continue;
            }
            if (const auto finding = watch.look(now()); finding && finding->is_hang) {
                check(*finding);
                (void)watch.describe(now());
                ++totals_.hangs;
                return Failure{.kind = Failure::Kind::hang,
                               .code = "RT-L14",
                               .message = finding->text,
                               .from_outside = finding->kind == Found::stopped};
            }
            require(hung_at_ < 0 || seen_s() - hung_at_ < limit_s() + slack_s,
                    "each hang is found within its limit: fault " +
                        std::to_string(static_cast<int>(fault_)) + ", after " +
                        std::to_string(seen_s() - hung_at_) + " s");
        }
    }

    void begin() {
        begun_s_ = time_s_ += 1;
        unseen_s_ = 0;
        machine_ = {.load = loaded_ ? dice_.between(0.3, 0.85) : 0};
        fault_ = Fault::none;
        fault_step_ = -1;
        hung_at_ = -1;
        longest_pause_s_ = 0;
        moved_at_ = 0;
        if (dice_.chance(fault_rate_)) {
            fault_ = static_cast<Fault>(dice_.number(1, static_cast<int>(Fault::stays_out)));
            fault_step_ = dice_.number(step_, steps_ - 1);
            victim_ = dice_.number(0, size_ - 1);
        }
        ranks_.assign(static_cast<std::size_t>(size_), {});
        for (int i = 0; i < size_; ++i) {
            Rank& rank = ranks_[static_cast<std::size_t>(i)];
            rank.report.rank = i;
            rank.sleep_s = dice_.between(0, 0.4 * hang_.start_s);
            rank.next_report_s = time_s_;
            if (fault_ == Fault::stays_out && i == victim_) {
                if (dice_.chance(0.5)) {
                    rank.reporting = false; // never joins
                }
                rank.reaches_end = false;
                hung_at_ = 0;
                moved_at_ = 0;
            }
        }
    }

    void disturb() {
        if (time_s_ < machine_.calm_until || !dice_.chance(disturbance_ * tick_s)) {
            return;
        }
        // Each well below the limits, as are those of an honest user: see step().
        switch (dice_.number(0, 2)) {
        case 0:
            machine_.no_turn_until = time_s_ + dice_.between(0, 2);
            break;
        case 1:
            machine_.late_until = time_s_ + dice_.between(0, 0.8 * hang_.idle_s);
            break;
        default:
            machine_.driver_until = time_s_ + dice_.between(2.5, 100);
        }
        machine_.calm_until =
            20 + std::max({machine_.no_turn_until, machine_.late_until, machine_.driver_until});
    }

    void advance(Rank& rank) {
        if (rank.stopped || !rank.reaches_end || time_s_ < std::max(machine_.no_turn_until, 0.0)) {
            if (!rank.reaches_end && fault_ == Fault::spins && !rank.stopped) {
                rank.report.cpu_s += tick_s;
            }
            return;
        }
        const bool waits = !rank.report.waiting_in.empty();
        if (rank.work_s > 0) {
            if (!dice_.chance(machine_.load)) {
                rank.work_s -= tick_s;
                rank.report.cpu_s += tick_s;
            }
        } else if (rank.sleep_s > 0) {
            rank.sleep_s -= tick_s;
        } else if (!waits) {
            rank.report.waiting_in = "all_reduce";
            ++rank.report.collectives;
            moved();
        } else if (spins_while_waiting_) {
            rank.report.cpu_s += tick_s;
        }
    }

    /// When all ranks wait for each other, they make a step.
    std::optional<Failure> meet(FailurePolicy& policy) {
        if (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
                return rank.report.waiting_in != "all_reduce" || !rank.reaches_end || rank.stopped;
            })) {
            return std::nullopt;
        }
        moved();
        const bool first = ranks_[0].report.phase == Phase::starting;
        if (!first) {
            ++step_;
        }
        if (step_ == poison_step_) {
            return Failure{.code = "RT-T2",
                           .message = "loss is nan after " + std::to_string(dice_.number(1, 99))};
        }
        if (!first && step_ % save_every_ == 0) {
            checkpoints_.push_back({"checkpoint_" + std::to_string(++saved_), step_});
            policy.on_progress(checkpoints_.back().name, step_);
            furthest_ = std::max(furthest_, step_);
        }
        const bool saves = step_ % save_every_ == 0;
        for (Rank& rank : ranks_) {
            rank.report.phase = saves && !first ? Phase::saving : Phase::training;
            rank.report.waiting_in.clear();
            rank.report.steps = static_cast<std::uint64_t>(step_);
            ++rank.report.progress;
            rank.work_s = step_s_ * dice_.between(0.8, 1.2);
            rank.sleep_s = saves ? dice_.between(0, 1) : 0;
        }
        if (dice_.chance(0.05)) { // an evaluation on one rank
            ranks_[0].work_s += dice_.between(0, 0.4 * hang_.busy_s) * (1 - machine_.load);
        }
        if (dice_.chance(0.05)) { // storage that does not answer, on one or all
            const double pause_s = dice_.between(0, 0.4 * hang_.idle_s);
            const int only = dice_.number(-size_, size_ - 1);
            for (int i = 0; i < size_; ++i) {
                ranks_[static_cast<std::size_t>(i)].sleep_s += only < 0 || only == i ? pause_s : 0;
            }
        }
        return step_ == fault_step_ ? fail() : std::nullopt;
    }

    std::optional<Failure> fail() {
        Rank& rank = ranks_[static_cast<std::size_t>(victim_)];
        switch (fault_) {
        case Fault::dies:
            return Failure{.kind = Failure::Kind::died,
                           .code = "RT-L2",
                           .rank = victim_,
                           .message = "rank " + std::to_string(victim_) + " was killed by signal 9",
                           .from_outside = true};
        case Fault::throws:
            if (dice_.chance(0.2)) {
                return Failure{.kind = Failure::Kind::start_up};
            }
            return Failure{.code = "RT-T2",
                           .message = "bad luck " + std::to_string(dice_.number(1, 99))};
        case Fault::stops:
            rank.stopped = true;
            break;
        case Fault::falls_silent:
            rank.reporting = false;
            break;
        case Fault::mismatches:
            rank.report.waiting_in = "barrier";
            ++rank.report.collectives;
            [[fallthrough]];
        case Fault::deadlocks:
        case Fault::spins:
            rank.reaches_end = false;
            break;
        default:
            return std::nullopt;
        }
        hung_at_ = std::max(0.0, seen_s());
        return std::nullopt;
    }

    void report(HangWatch& watch) {
        for (Rank& rank : ranks_) {
            if (time_s_ >= rank.next_report_s) {
                rank.next_report_s = time_s_ + 0.2 + (dice_.chance(machine_.load) ? 0.3 : 0);
                // Late ones arrive when others do; the newest is all that counts.
                if (rank.reporting && !rank.stopped && time_s_ >= machine_.late_until &&
                    time_s_ >= machine_.driver_until) {
                    watch.on_report(rank.report, now());
                    rank.has_told_to_train = rank.report.phase != Phase::starting;
                }
            }
            if (time_s_ >= machine_.driver_until) {
                watch.set_stopped(rank.report.rank, rank.stopped, now());
            }
        }
    }

    /// A rank has moved: what came before was a pause.
    void moved() {
        longest_pause_s_ = std::max(longest_pause_s_, seen_s() - moved_at_);
        moved_at_ = seen_s();
    }

    /// Within what time the hang must be found.
    [[nodiscard]] double limit_s() const {
        // Reports come late, and ranks that live go on for a moment.
        const double pause_s = hang_.factor * (longest_pause_s_ + 1);
        const double others_s = moved_at_ - hung_at_;
        const bool trains = ranks_[static_cast<std::size_t>(victim_)].has_told_to_train;
        switch (fault_) {
        case Fault::stops:
            return hang_.stopped_s;
        case Fault::falls_silent:
            if (!trains) {
                return hang_.start_s + others_s;
            }
            // Alone, it is found only when no progress has been seen for long.
            return size_ > 1 ? 2 * hang_.silent_s
                             : std::max({hang_.idle_s, hang_.silent_s, pause_s}) + others_s;
        case Fault::stays_out:
            return hang_.start_s + others_s;
        case Fault::spins:
            return std::max(hang_.busy_s, pause_s) + others_s;
        default:
            // Others may still compute when the rank hangs.
            return std::max({hang_.idle_s, pause_s}) + others_s + computed_s();
        }
    }

    /// For how long a rank may still have computed after the fault.
    [[nodiscard]] double computed_s() const {
        return hang_.busy_s + (loaded_ ? 10 * step_s_ : 2 * step_s_);
    }

    void check(const HangWatch::Finding& finding) const {
        require(hung_at_ >= 0, "nothing but a hang is taken for one: " + finding.text);
        if (finding.kind == Found::starting &&
            !ranks_[static_cast<std::size_t>(victim_)].has_told_to_train) {
            return;
        }
        const bool right = [&] {
            switch (fault_) {
            case Fault::stops:
                return finding.kind == Found::stopped && finding.rank == victim_;
            case Fault::falls_silent:
                return finding.kind == Found::silent && finding.rank == (size_ > 1 ? victim_ : -1);
            case Fault::stays_out:
                return finding.kind == Found::starting;
            case Fault::spins:
                return finding.kind == Found::busy && finding.rank == victim_;
            case Fault::deadlocks:
                return finding.kind == Found::idle && finding.rank == victim_;
            default:
                return finding.kind == Found::idle;
            }
        }();
        require(right, "a hang is told by its kind and rank: fault " +
                           std::to_string(static_cast<int>(fault_)) + ", " + finding.text);
    }

    void learn(const Decision& decision) {
        for (const std::string& name : decision.skip) {
            if (skip_.insert(name).second) {
                ++totals_.skipped;
                require(name == last_newest_, "only the newest checkpoint is skipped");
            }
        }
        require(decision.skip.size() == skip_.size(), "what is skipped is skipped for good");
    }

    [[nodiscard]] std::string newest() {
        return last_newest_ = checkpoints_.empty() ? "" : checkpoints_.back().name;
    }

    [[nodiscard]] HangWatch::Clock::time_point now() const {
        return HangWatch::Clock::time_point{} +
               std::chrono::duration_cast<HangWatch::Clock::duration>(
                   std::chrono::duration<double>(time_s_));
    }
    /// Time in this attempt in which the driver could know what the ranks do.
    [[nodiscard]] double seen_s() const { return time_s_ - begun_s_ - unseen_s_; }

    static constexpr double slack_s = 5;

    Dice dice_;
    Totals& totals_;
    FailureConfig config_;
    HangConfig hang_;
    int size_ = 1;
    int steps_ = 0;
    double step_s_ = 0;
    int save_every_ = 1;
    bool spins_while_waiting_ = false;
    bool loaded_ = false;
    double disturbance_ = 0;
    double fault_rate_ = 0;
    int poison_step_ = -1;

    double time_s_ = 1000;
    std::vector<Checkpoint> checkpoints_;
    int saved_ = 0;
    int furthest_ = 0;
    std::set<std::string> skip_;
    std::string last_newest_;

    std::vector<Rank> ranks_;
    Machine machine_;
    int step_ = 0;
    double begun_s_ = 0;
    double unseen_s_ = 0;
    Fault fault_ = Fault::none;
    int fault_step_ = -1;
    int victim_ = 0;
    double hung_at_ = -1; ///< by seen_s(); -1: not
    double longest_pause_s_ = 0;
    double moved_at_ = 0;
};

} // namespace

int main(int argc, char** argv) {
    std::uint64_t runs = 10000;
    std::uint64_t seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        (std::string(argv[i]) == "--runs" ? runs : seed) = std::strtoull(argv[i + 1], nullptr, 10);
    }
    Totals totals;
    int broken = 0;
    for (std::uint64_t run = seed; run < seed + runs && broken < 10; ++run) {
        try {
            Run(run, totals).play();
        } catch (const Broken& rule) {
            ++broken;
            std::printf("BROKEN with --seed %llu: %s\n", static_cast<unsigned long long>(run),
                        rule.what());
        }
    }
    std::printf("%llu runs, %llu attempts, %llu hangs found, %llu finished, %llu given up, "
                "%llu checkpoints skipped, %.0f h simulated\n",
                static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(totals.attempts),
                static_cast<unsigned long long>(totals.hangs),
                static_cast<unsigned long long>(totals.finished),
                static_cast<unsigned long long>(totals.given_up),
                static_cast<unsigned long long>(totals.skipped), totals.simulated_s / 3600);
    return broken == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
