// SPDX-License-Identifier: Apache-2.0
// Power failures: records what runs do to their files, enumerates what may be on the disk when the
// power fails at any point, and lets the oracle judge each state. With --mutate it takes each fsync
// out of the traces in turn, and fails when that goes unnoticed.
#include "arguments.hpp"
#include "model.hpp"
#include "oracle.hpp"
#include "processes.hpp"
#include "scenario.hpp"
#include "trace.hpp"
#include "violations.hpp"
#include "workload.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace crash;

namespace {

/// A state of the disk to be judged.
struct Case {
    const Scenario* scenario = nullptr;
    CrashState state;
    Promise promise;
    Tree tree;
};

std::string describe(const Case& one) {
    const auto& operations = one.scenario->trace.operations;
    std::string text = one.scenario->name + ", power fails before operation " +
                       std::to_string(one.state.point) + " of " + std::to_string(operations.size());
    if (one.state.point < operations.size()) {
        text += " (" + operations[one.state.point].text + ")";
    }
    static const char* const names[]{"lost", "done", "torn", "zeroes"};
    for (const auto& [index, fate] : one.state.fates) {
        text += "\n        " + std::string(names[static_cast<int>(fate)]) + ": " +
                operations[index].text;
    }
    return text;
}

/// Gives distinct crash states of several scenarios, each point of each trace in turn. With an
/// `original`, which has the same operations in the same places, only points at which less is
/// durable than there.
class Enumeration {
public:
    Enumeration(const std::vector<Scenario>& scenarios, std::uint64_t seed,
                const std::vector<Scenario>* original)
        : scenarios_(scenarios), seed_(seed), original_(original),
          states_at_once_(original == nullptr ? 1 : 8) {}

    /// Up to `count` states that have not come yet; none when there are no more.
    [[nodiscard]] std::vector<Case> next(std::size_t count) {
        std::vector<Case> cases;
        for (int idle = 0; cases.size() < count && idle < most_idle_rounds;) {
            if (backlog_.empty()) {
                const std::size_t before = seen_.size();
                go_round();
                idle = seen_.size() == before ? idle + 1 : 0;
            }
            while (!backlog_.empty() && cases.size() < count) {
                cases.push_back(std::move(backlog_.back()));
                backlog_.pop_back();
            }
        }
        return cases;
    }
    [[nodiscard]] std::size_t points() const { return points_; }

private:
    static constexpr int most_idle_rounds = 20;

    /// The next state, or some, at every point.
    void go_round() {
        std::size_t number = 0;
        for (std::size_t i = 0; i < scenarios_.size(); ++i) {
            const Scenario& scenario = scenarios_[i];
            Disk disk(scenario.trace);
            Disk original(original_ != nullptr ? (*original_)[i].trace : scenario.trace);
            Promise promise = scenario.promise;
            for (std::size_t point = 0; point <= scenario.trace.operations.size(); ++point) {
                if (point > 0) {
                    promise.keep(scenario.trace.operations[point - 1].mark);
                    disk.advance();
                    original.advance();
                }
                if (point < scenario.first_point ||
                    (original_ != nullptr && disk.pending().size() == original.pending().size())) {
                    continue;
                }
                if (number == states_.size()) {
                    states_.emplace_back(disk, seed_, difference(disk, original));
                }
                States& states = states_[number++];
                for (int added = 0; added < states_at_once_ && states.has_next(); ++added) {
                    add(scenario, disk, promise, states.next());
                }
            }
        }
        points_ = number;
        std::reverse(backlog_.begin(), backlog_.end());
    }

    /// What is pending on one disk and not on the other.
    static std::vector<std::size_t> difference(const Disk& disk, const Disk& original) {
        std::vector<std::size_t> only;
        std::set_difference(disk.pending().begin(), disk.pending().end(),
                            original.pending().begin(), original.pending().end(),
                            std::back_inserter(only));
        return only;
    }

    void add(const Scenario& scenario, const Disk& disk, const Promise& promise, CrashState state) {
        Tree tree = disk.tree(state);
        // What is on disk counts once, unless more had been promised of it.
        if (seen_.insert({&scenario, hash_of(tree), promise}).second) {
            backlog_.push_back({&scenario, std::move(state), promise, std::move(tree)});
        }
    }

    struct Seen {
        const Scenario* scenario;
        std::uint64_t tree;
        Promise promise;
        friend auto operator<=>(const Seen&, const Seen&) = default;
    };

    const std::vector<Scenario>& scenarios_;
    std::uint64_t seed_;
    const std::vector<Scenario>* original_;
    int states_at_once_;         ///< of a point in a round
    std::vector<States> states_; ///< of each point
    std::set<Seen> seen_;
    std::vector<Case> backlog_;
    std::size_t points_ = 0;
};

struct Verdicts {
    std::size_t states = 0;
    std::set<std::uint64_t> trees;
    std::map<std::string, std::size_t> kinds; ///< violations by kind
    std::size_t bad_states = 0;
    std::size_t first_bad = 0; ///< states judged up to the first bad one
};

class Judge {
public:
    Judge(const std::filesystem::path& scratch, int lanes, std::uint64_t seed)
        : scratch_(scratch), lanes_(lanes), seed_(seed) {}

    /// Judges `count` states, or stops at a batch with a violation. Prints the first of each sort
    /// when it `tells`.
    Verdicts judge(const std::vector<Scenario>& scenarios, std::size_t count, bool stop_early,
                   bool tells, const std::vector<Scenario>* original = nullptr) {
        Enumeration enumeration(scenarios, seed_, original);
        Verdicts verdicts;
        Violations violations;
        const std::size_t batch = stop_early ? 64 : 400;
        while (verdicts.states < count && !(stop_early && verdicts.bad_states > 0)) {
            const auto cases = enumeration.next(std::min(batch, count - verdicts.states));
            if (cases.empty()) {
                break;
            }
            const auto done = [&](std::size_t index, const std::vector<std::string>& wrong) {
                for (const std::string& what : wrong) {
                    ++verdicts.kinds[what.substr(0, what.find(':'))];
                    if (tells) {
                        violations.add(what, describe(cases[index]));
                    }
                }
                if (!wrong.empty() && verdicts.bad_states++ == 0) {
                    verdicts.first_bad = verdicts.states + index + 1;
                }
            };
            in_children(
                cases.size(), lanes_,
                [&](std::size_t index, int lane) { return judge_one(cases[index], lane); }, done);
            verdicts.states += cases.size();
            for (const Case& one : cases) {
                verdicts.trees.insert(hash_of(one.tree));
            }
        }
        violations.tell();
        return verdicts;
    }

private:
    [[nodiscard]] std::vector<std::string> judge_one(const Case& one, int lane) const {
        const auto place = scratch_ / ("lane" + std::to_string(lane));
        const auto own = fresh(place / "own");
        std::filesystem::remove_all(place / "storage");
        materialise(one.tree, place / "storage");
        return Oracle(one.promise, place / "storage", own).judge();
    }

    std::filesystem::path scratch_;
    int lanes_;
    std::uint64_t seed_;
};

// --- Mutations --------------------------------------------------------------------------------

using Kind = Operation::Kind;

/// The sites that sync, with how often they do.
std::map<std::string, int> sync_sites(const std::vector<Scenario>& scenarios) {
    std::map<std::string, int> sites;
    for (const Scenario& scenario : scenarios) {
        for (const Operation& operation : scenario.trace.operations) {
            if (operation.kind == Kind::sync) {
                ++sites[operation.text];
            }
        }
    }
    return sites;
}

std::vector<Scenario> without_site(std::vector<Scenario> scenarios, const std::string& site) {
    for (Scenario& scenario : scenarios) {
        for (Operation& operation : scenario.trace.operations) {
            if (operation.kind == Kind::sync && operation.text == site) {
                operation.kind = Kind::mark; // of nothing
            }
        }
    }
    return scenarios;
}

/// Moves the operations in [first, last) that `match` in front of, or behind, the others there.
template <class Match>
void reorder(std::vector<Operation>& operations, std::size_t first, std::size_t last, Match match) {
    const auto at = [&](std::size_t i) {
        return operations.begin() + static_cast<std::ptrdiff_t>(i);
    };
    std::stable_partition(at(first), at(last), match);
}

/// As if checkpoints were renamed to their final name before their files were synced.
std::vector<Scenario> commit_before_sync(std::vector<Scenario> scenarios) {
    for (Scenario& scenario : scenarios) {
        auto& operations = scenario.trace.operations;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            const bool commits = operations[i].kind == Kind::rename &&
                                 operations[i].to_name.starts_with("checkpoint_");
            if (!commits) {
                continue;
            }
            const Object staging = operations[i].object;
            std::set<Object> inside{staging};
            std::size_t first = i;
            for (std::size_t j = 0; j < i; ++j) {
                if (operations[j].object == staging &&
                    operations[j].kind == Kind::create_directory) {
                    first = j;
                }
                if (inside.contains(operations[j].directory) &&
                    (operations[j].kind == Kind::create_file ||
                     operations[j].kind == Kind::create_directory)) {
                    inside.insert(operations[j].object);
                }
            }
            reorder(operations, first, i + 1, [&](const Operation& operation) {
                return operation.kind != Kind::sync || !inside.contains(operation.object);
            });
        }
    }
    return scenarios;
}

/// As if old checkpoints were removed before the new one is committed.
std::vector<Scenario> remove_before_commit(std::vector<Scenario> scenarios) {
    for (Scenario& scenario : scenarios) {
        auto& operations = scenario.trace.operations;
        std::size_t commit = 0;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            if (operations[i].kind == Kind::rename &&
                operations[i].to_name.starts_with("checkpoint_")) {
                commit = i;
            }
            const bool hides =
                operations[i].kind == Kind::rename && operations[i].name.starts_with("checkpoint_");
            if (!hides || commit == 0) {
                continue;
            }
            const Object old = operations[i].object;
            const Object run = operations[i].directory;
            std::size_t last = i;
            while (last < operations.size() &&
                   !(operations[last].kind == Kind::remove && operations[last].object == old)) {
                ++last;
            }
            bool synced = false; // the one that follows the renaming goes with it
            bool renamed = false;
            reorder(operations, commit, std::min(last + 1, operations.size()),
                    [&](const Operation& operation) {
                        if (operation.kind == Kind::rename && operation.object == old) {
                            return renamed = true;
                        }
                        if (operation.kind == Kind::remove) {
                            return operation.directory == old || operation.object == old;
                        }
                        const bool follows = renamed && !synced && operation.kind == Kind::sync &&
                                             operation.object == run;
                        synced = synced || follows;
                        return follows;
                    });
            commit = 0;
        }
    }
    return scenarios;
}

/// Why nothing is lost without the syncs of a site; empty for one that is needed.
std::string why_needless(const std::string& site) {
    static const std::pair<const char*, const char*> reasons[]{
        {"validate_storage_marker", "the marker only lives while a run starts"},
        {"-progress.csv to progress.csv", "it is made anew from result.json"},
        {"-result.json to result.json", "params.json comes right after it"},
        {"-params.json to params.json", "trainer.json comes right after it"},
        {"copy.jsonl", "it is made anew from result.json"},
        {"trackers.json", "when it is damaged, trackers begin anew"},
        {"-.metadata.json to .metadata.json", "the manifest comes after it"},
        {"/ after remove .rtrain-", "what comes back is swept again"},
        {"/ after remove own_", "what comes back is swept again"},
        {"sync ./ after ", "nothing has changed"},
        {"sync exp/ after ", "nothing has changed"},
    };
    for (const auto& [part, reason] : reasons) {
        const bool unchanged = std::string_view(reason) == "nothing has changed";
        if (unchanged ? site == part : site.find(part) != std::string::npos) {
            return reason;
        }
    }
    return "";
}

/// Whether every mutation is noticed. Prints a table.
bool check_mutations(Judge& judge, const std::vector<Scenario>& scenarios, std::size_t count) {
    bool all_noticed = true;
    const auto tell = [&](const std::string& what, int times, const std::vector<Scenario>& mutant,
                          const std::vector<Scenario>* original) {
        const std::string needless = why_needless(what);
        const Verdicts verdicts = judge.judge(mutant, count, true, false, original);
        std::string verdict;
        if (verdicts.bad_states > 0) {
            verdict = "noticed by state " + std::to_string(verdicts.first_bad) + ":";
            for (const auto& [kind, number] : verdicts.kinds) {
                verdict += " " + kind + " " + std::to_string(number);
            }
        } else {
            verdict = (needless.empty() ? "NOT NOTICED" : "not needed, " + needless) + " (" +
                      std::to_string(verdicts.states) + " states)";
        }
        all_noticed = all_noticed && (verdicts.bad_states > 0 || !needless.empty());
        std::printf("%4d x %s\n       %s\n", times, what.c_str(), verdict.c_str());
        std::fflush(stdout);
    };
    for (const auto& [site, times] : sync_sites(scenarios)) {
        tell(site, times, without_site(scenarios, site), &scenarios);
    }
    tell("files of a checkpoint synced after it is committed", 0, commit_before_sync(scenarios),
         &scenarios);
    tell("old checkpoints removed before the new one is committed", 0,
         remove_before_commit(scenarios), &scenarios);
    return all_noticed;
}

// --- Scenarios --------------------------------------------------------------------------------

std::vector<Scenario> record(const std::filesystem::path& scratch, const std::string& savings,
                             int resumes, std::uint64_t seed) {
    std::vector<Scenario> scenarios;
    for (const Saving saving : all_savings) {
        if (savings.empty() || savings.find(name_of(saving)) != std::string::npos) {
            scenarios.push_back(whole_run(saving, scratch));
        }
    }
    if (savings.empty()) {
        scenarios.push_back(whole_run(Saving::sync, scratch, false));
    }
    const std::size_t whole = scenarios.size();
    for (std::size_t i = 0; i < whole; ++i) { // whoever made the run's directory has not synced it
        const auto& operations = scenarios[i].trace.operations;
        const auto made = std::find_if(operations.begin(), operations.end(), [](const auto& one) {
            return one.kind == Kind::create_directory && one.name == "r";
        });
        scenarios.push_back(killed_run(Scenario(scenarios[i]),
                                       static_cast<std::size_t>(made - operations.begin()) + 1,
                                       scratch));
    }
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < whole; ++i) {
        for (int number = 0; number < resumes; ++number) {
            const Scenario scenario = scenarios[i];
            const std::size_t point = random() % scenario.trace.operations.size();
            scenarios.push_back(number % 2 == 0 ? resumed_run(scenario, point, random(), scratch)
                                                : killed_run(scenario, point, scratch));
        }
    }
    return scenarios;
}

void show(const Scenario& scenario) {
    std::printf("== %s\n", scenario.name.c_str());
    for (std::size_t i = scenario.first_point; i < scenario.trace.operations.size(); ++i) {
        const Operation& operation = scenario.trace.operations[i];
        static const char* const marks[]{"",       "attempt",  "training", "returned",
                                         "thrown", "finished", "failed"};
        if (operation.kind == Kind::mark) {
            std::printf("%5zu -- %s %d\n", i, marks[static_cast<int>(operation.mark.what)],
                        operation.mark.step);
        } else {
            std::printf("%5zu %s\n", i, operation.text.c_str());
        }
    }
}

} // namespace

int main(int count, char** values) {
    prepare_process();
    Arguments arguments(count, values);
    const auto states = static_cast<std::size_t>(arguments.number("--states", 50'000));
    const auto seed = static_cast<std::uint64_t>(arguments.number("--seed", 1));
    const int lanes = static_cast<int>(arguments.number("--jobs", 2));
    const int resumes = static_cast<int>(arguments.number("--resumes", 4));
    const std::string savings = arguments.text("--saving");
    const bool mutate = arguments.flag("--mutate");
    const bool show_traces = arguments.flag("--show");
    arguments.done();

    const Scratch scratch;
    const auto begin = std::chrono::steady_clock::now();
    const auto scenarios = record(scratch.path(), savings, resumes, seed);
    std::size_t operations = 0;
    for (const Scenario& scenario : scenarios) {
        operations += scenario.trace.operations.size();
        if (show_traces) {
            show(scenario);
        }
    }
    if (show_traces) {
        return 0;
    }
    Judge judge(scratch.path(), lanes, seed);
    if (mutate) {
        return check_mutations(judge, scenarios, states) ? 0 : 1;
    }
    const Verdicts verdicts = judge.judge(scenarios, states, false, true);
    const auto seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::string kinds;
    for (const auto& [kind, number] : verdicts.kinds) {
        kinds += ", \"" + kind + "\": " + std::to_string(number);
    }
    std::printf(
        "{\"test\": \"crash_states\", \"seed\": %llu, \"traces\": %zu, \"operations\": %zu, "
        "\"states\": %zu, \"distinct_trees\": %zu, \"bad_states\": %zu%s, \"seconds\": "
        "%.1f}\n",
        static_cast<unsigned long long>(seed), scenarios.size(), operations, verdicts.states,
        verdicts.trees.size(), verdicts.bad_states, kinds.c_str(), seconds);
    return verdicts.bad_states == 0 && verdicts.states > 0 ? 0 : 1;
}
