// SPDX-License-Identifier: Apache-2.0
// SIGKILL at random instants: a process resumes a run and saves checkpoints until it is killed; the
// next one judges what is there, and goes on from it.
#include "arguments.hpp"
#include "oracle.hpp"
#include "processes.hpp"
#include "trace.hpp"
#include "violations.hpp"
#include "workload.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace crash;

namespace {

using Clock = std::chrono::steady_clock;

/// What children leave for those who come after them: memory that outlives them.
struct Notes {
    static constexpr std::size_t most = 100'000;
    std::atomic<std::size_t> count;
    std::array<Mark, most> marks;
    std::atomic<bool> judged; ///< the child has read the run, and trains now
    std::atomic<bool> begun;  ///< its training function has begun
    std::atomic<bool> done;   ///< it has found something wrong, or has come to the end
    std::array<char, 8192> wrong;

    void add(const Mark& mark) {
        if (count == most) {
            std::abort();
        }
        marks[count] = mark;
        ++count;
    }
};

/// One run, killed again and again.
class Victim {
public:
    Victim(Saving saving, std::filesystem::path place, std::uint64_t seed)
        : saving_(saving), place_(std::move(place)), random_(seed) {
        void* const memory = ::mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        notes_ = new (memory) Notes{};
        fresh(place_);
        std::filesystem::create_directories(place_ / "storage");
    }
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;
    ~Victim() { ::munmap(notes_, sizeof(Notes)); }

    /// Starts a child, and kills it within `longest` after it has begun to resume, or, without
    /// `longest`, lets it come to its end. Returns what it found wrong with the files that it met.
    [[nodiscard]] std::vector<std::string> round(Clock::duration longest) {
        ++attempt_;
        notes_->judged = notes_->begun = notes_->done = false;
        notes_->wrong[0] = '\0';
        const pid_t child = ::fork();
        if (child == 0) {
            be_killed(longest == Clock::duration::zero());
        }
        const auto limit = Clock::now() + std::chrono::seconds(30);
        while (!notes_->judged && !notes_->done && Clock::now() < limit) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        const bool hangs = !notes_->judged && !notes_->done;
        if (longest != Clock::duration::zero() || hangs) {
            const auto instant =
                Clock::now() + Clock::duration(static_cast<Clock::rep>(
                                   random_() % static_cast<std::uint64_t>(longest.count() + 1)));
            while (!notes_->done && Clock::now() < instant) {
            }
            ::kill(child, SIGKILL);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        std::vector<std::string> wrong;
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
            wrong.push_back(std::string("died: ") + ::strsignal(WTERMSIG(status)));
        }
        if (hangs) {
            wrong.emplace_back("died: it does not begin to train within 30 s");
        }
        const std::string text = notes_->wrong.data();
        for (std::size_t begin = 0; begin < text.size();) {
            const auto end = text.find('\n', begin);
            wrong.push_back(text.substr(begin, end - begin));
            begin = end + 1;
        }
        return wrong;
    }
    [[nodiscard]] bool was_resuming() const { return !notes_->begun; }

private:
    static constexpr int steps_to_the_end = 4;

    [[noreturn]] void be_killed(bool to_the_end) {
        Promise promise(saving_);
        for (std::size_t i = 0; i < notes_->count; ++i) {
            promise.keep(notes_->marks[i]);
        }
        const auto own = fresh(place_ / "own");
        Oracle oracle(promise, place_ / "storage", own);
        oracle.read();
        replace_file_unsynced(oracle);
        Job job{
            .saving = saving_, .storage = place_ / "storage", .scratch = own, .attempt = attempt_};
        job.steps_more = to_the_end ? steps_to_the_end : 1'000'000;
        job.on_training = [&](int step) {
            oracle.begin(step);
            replace_file_unsynced(oracle);
            notes_->add({Mark::What::training, attempt_, step, false});
            notes_->begun = true;
        };
        job.on_returned = [&](int step, bool checkpoint) {
            notes_->add({Mark::What::returned, attempt_, step, checkpoint});
        };
        notes_->add({Mark::What::attempt, attempt_, 0, false});
        notes_->judged = true;
        const Outcome outcome = train(job);
        oracle.end(outcome);
        replace_file_unsynced(oracle);
        notes_->add({Mark::What::finished, attempt_, 0, false});
        notes_->done = true;
        ::_exit(0);
    }

    void replace_file_unsynced(const Oracle& oracle) {
        std::string text;
        for (const std::string& line : oracle.wrong()) {
            text += line + "\n";
        }
        text.resize(std::min(text.size(), notes_->wrong.size() - 1));
        std::copy(text.begin(), text.end(), notes_->wrong.begin());
        notes_->wrong[text.size()] = '\0';
    }

    Saving saving_;
    std::filesystem::path place_;
    std::mt19937_64 random_;
    Notes* notes_;
    int attempt_ = 0;
};

} // namespace

int main(int count, char** values) {
    prepare_process();
    Arguments arguments(count, values);
    const long kills = arguments.number("--kills", 10'000);
    const auto seed = static_cast<std::uint64_t>(arguments.number("--seed", 1));
    const int lanes = static_cast<int>(arguments.number("--jobs", 2));
    const std::filesystem::path directory = arguments.text("--directory");
    arguments.done();

    const Scratch scratch(directory);
    const auto begin = Clock::now();
    constexpr long kills_of_a_run = 50;
    const auto runs = static_cast<std::size_t>((kills + kills_of_a_run - 1) / kills_of_a_run);
    Violations violations;
    long killed = 0;
    long resuming = 0;
    in_children(
        runs, lanes,
        [&](std::size_t index, int lane) {
            const Saving saving = all_savings[index % std::size(all_savings)];
            Victim victim(saving, scratch.path() / ("lane" + std::to_string(lane)), seed + index);
            std::vector<std::string> wrong;
            const auto judge = [&](Clock::duration longest) {
                for (std::string& what : victim.round(longest)) {
                    wrong.push_back(std::move(what));
                }
            };
            const auto start = Clock::now();
            judge(Clock::duration::zero());
            const auto longest = Clock::now() - start; // to judge, resume, and save some times
            long resumes = 0;
            for (long i = 0; i < kills_of_a_run; ++i) {
                judge(longest);
                resumes += victim.was_resuming() ? 1 : 0;
            }
            judge(Clock::duration::zero());
            wrong.push_back("resuming: " + std::to_string(resumes));
            return wrong;
        },
        [&](std::size_t index, const std::vector<std::string>& wrong) {
            killed += kills_of_a_run;
            for (const std::string& what : wrong) {
                if (what.starts_with("resuming: ")) {
                    resuming += std::stol(what.substr(what.find(' ')));
                } else {
                    violations.add(what, name_of(all_savings[index % std::size(all_savings)]) +
                                             ", run " + std::to_string(index));
                }
            }
        });
    violations.tell();
    const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf(
        "{\"test\": \"crash_kill\", \"seed\": %llu, \"kills\": %ld, \"while_resuming\": %ld, "
        "\"unloadable\": %zu, \"mixed\": %zu, \"lost\": %zu, \"other\": %zu, \"seconds\": "
        "%.1f}\n",
        static_cast<unsigned long long>(seed), killed, resuming, violations.count("unloadable"),
        violations.count("mixed"), violations.count("lost"),
        violations.count_others({"unloadable", "mixed", "lost"}), seconds);
    return violations.none() ? 0 : 1;
}
