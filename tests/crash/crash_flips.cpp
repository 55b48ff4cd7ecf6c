// SPDX-License-Identifier: Apache-2.0
// Damage: bits of a checkpoint's files flip, files are cut off or missing. Each time the damage is
// found, and an older checkpoint is used or the error names the file, or it does no harm: what is
// loaded is equal, to the bit, to what a sound checkpoint holds.
#include "arguments.hpp"
#include "processes.hpp"
#include "violations.hpp"
#include "workload.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

using namespace crash;

namespace {

constexpr std::int64_t elements = 300'000; // more than a MiB, so several checksums a file
constexpr int newest_step = 5;
constexpr int older_step = 4;

struct Damage {
    enum class Kind : unsigned char { flip, cut, missing };
    Saving saving;
    Kind kind;
    std::filesystem::path file; ///< below the run's directory
    std::uintmax_t at;          ///< flip: the byte; cut: the size that is left
    int bit;
};

std::string describe(const Damage& damage) {
    static const char* const kinds[]{"bit flipped", "cut off", "missing"};
    return name_of(damage.saving) + ", " + damage.file.string() + ": " +
           kinds[static_cast<int>(damage.kind)] + " at byte " + std::to_string(damage.at) +
           ", bit " + std::to_string(damage.bit);
}

void apply(const Damage& damage, const std::filesystem::path& run) {
    const auto path = run / damage.file;
    switch (damage.kind) {
    case Damage::Kind::missing:
        std::filesystem::remove(path);
        break;
    case Damage::Kind::cut:
        std::filesystem::resize_file(path, damage.at);
        break;
    case Damage::Kind::flip: {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        const auto place = static_cast<std::streamoff>(damage.at);
        file.seekg(place);
        const int byte = file.get();
        file.seekp(place);
        file.put(static_cast<char>(byte ^ (1 << damage.bit)));
        break;
    }
    }
}

/// A finished run with two checkpoints; the step of each by its name.
std::map<std::string, int> good_run(Saving saving, const std::filesystem::path& place) {
    const auto storage = fresh(place / "storage");
    Job job{.saving = saving, .storage = storage, .scratch = fresh(place / "own")};
    job.until = newest_step;
    job.elements = elements;
    const Outcome outcome = train(job);
    std::map<std::string, int> steps;
    for (const auto& [path, step] : look(run_of(storage)).checkpoints) {
        steps[path.filename().string()] = step;
    }
    if (!outcome.error.empty() || steps.size() != 2) {
        std::fprintf(stderr, "a run without damage went wrong: %s\n", outcome.error.c_str());
        std::exit(1);
    }
    return steps;
}

/// What this process writes to stderr.
class Warnings {
public:
    explicit Warnings(const std::filesystem::path& file) : file_(file) {
        const int descriptor = ::open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
        ::dup2(descriptor, STDERR_FILENO);
        ::close(descriptor);
    }
    [[nodiscard]] std::string text() const {
        std::fflush(stderr);
        std::ifstream in(file_);
        return {std::istreambuf_iterator<char>(in), {}};
    }

private:
    std::filesystem::path file_;
};

/// Judges one damage: "found", "fell back" or "harmless", or what is wrong.
class Trial {
public:
    Trial(const Damage& damage, const std::map<std::string, int>& steps,
          const std::filesystem::path& good, const std::filesystem::path& place)
        : damage_(damage), steps_(steps), place_(place), storage_(place / "storage"),
          warnings_(place / "stderr") {
        std::filesystem::remove_all(storage_);
        std::filesystem::copy(good, storage_, std::filesystem::copy_options::recursive);
        apply(damage, run_of(storage_));
    }

    [[nodiscard]] std::string judge() {
        std::string verdict = look_at_run();
        if (!verdict.empty()) {
            return verdict;
        }
        const std::string checkpoint = damage_.file.begin()->string();
        const bool older = steps_.contains(checkpoint) && steps_.at(checkpoint) == older_step;
        return older ? load(run_of(storage_) / checkpoint) : resume();
    }

private:
    /// Whether a message names the checkpoint and the file.
    [[nodiscard]] bool is_named_in(const std::string& text) const {
        return text.find(damage_.file.begin()->string()) != std::string::npos &&
               text.find(damage_.file.filename().string()) != std::string::npos;
    }

    std::string look_at_run() const {
        try {
            for (const auto& [path, step] : look(run_of(storage_)).checkpoints) {
                const std::string name = path.filename().string();
                if (!steps_.contains(name) || steps_.at(name) != step) {
                    return "wrong: " + name + " is listed as step " + std::to_string(step);
                }
            }
            return "";
        } catch (const std::exception& error) {
            return std::string("unreadable: ") + error.what();
        }
    }

    /// What a loaded state says of itself.
    static std::string doubts(const Outcome& outcome) {
        std::string text;
        for (const auto& what : outcome.mixed) {
            text += " " + what;
        }
        return text;
    }

    std::string found(const std::string& message, const char* how) const {
        return is_named_in(message) ? how : "unnamed: " + message;
    }

    [[nodiscard]] std::string resume() const {
        Job job{.saving = damage_.saving, .storage = storage_, .scratch = place_ / "own"};
        job.elements = elements;
        const Outcome outcome = train(job);
        if (!outcome.mixed.empty()) {
            return "wrong:" + doubts(outcome);
        }
        if (!outcome.error.empty()) {
            return outcome.typed ? found(outcome.error, "found") : "untyped: " + outcome.error;
        }
        if (outcome.resumed == newest_step) {
            return "harmless";
        }
        return outcome.resumed == older_step
                   ? found(warnings_.text(), "fell back")
                   : "lost: training begins at step " + std::to_string(outcome.resumed);
    }

    [[nodiscard]] std::string load(const std::filesystem::path& checkpoint) const {
        Job job{.saving = damage_.saving, .storage = place_ / "other", .scratch = place_ / "own"};
        job.elements = elements;
        job.resume_from = checkpoint;
        const Outcome outcome = train(job);
        std::filesystem::remove_all(place_ / "other");
        if (!outcome.mixed.empty()) {
            return "wrong:" + doubts(outcome);
        }
        if (!outcome.error.empty()) {
            return outcome.typed ? found(outcome.error, "found") : "untyped: " + outcome.error;
        }
        return outcome.resumed == older_step
                   ? "harmless"
                   : "wrong: step " + std::to_string(outcome.resumed) + " is loaded";
    }

    const Damage& damage_;
    const std::map<std::string, int>& steps_;
    std::filesystem::path place_;
    std::filesystem::path storage_;
    Warnings warnings_;
};

/// The files of the checkpoints, and the pointer to the newest.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& run) {
    std::vector<std::filesystem::path> files;
    for (const auto& item : std::filesystem::recursive_directory_iterator(run)) {
        const auto name = item.path().lexically_relative(run);
        const std::string first = name.begin()->string();
        if (item.is_regular_file() && (first.starts_with("checkpoint_") || first == "latest")) {
            files.push_back(name);
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

/// Flips at random: half of them anywhere, half of them as many in small files as in large ones.
/// Every length of small files and every 512 bytes of large ones. Every file missing.
std::vector<Damage> damages_of(Saving saving, const std::filesystem::path& run, long flips,
                               std::uintmax_t every, std::mt19937_64& random) {
    const auto files = files_of(run);
    std::vector<std::uintmax_t> sizes;
    std::uintmax_t all = 0;
    for (const auto& file : files) {
        sizes.push_back(std::filesystem::file_size(run / file));
        all += sizes.back();
    }
    std::vector<Damage> damages;
    for (long i = 0; i < flips; ++i) {
        std::size_t number = random() % files.size();
        std::uintmax_t at = random() % sizes[number];
        if (i % 2 == 0) {
            at = random() % all;
            for (number = 0; at >= sizes[number]; ++number) {
                at -= sizes[number];
            }
        }
        damages.push_back(
            {saving, Damage::Kind::flip, files[number], at, static_cast<int>(random() % 8)});
    }
    for (std::size_t number = 0; number < files.size(); ++number) {
        constexpr std::uintmax_t small = 16 * 1024;
        const std::uintmax_t step = every * (sizes[number] <= small ? 1 : 512);
        for (std::uintmax_t left = 0; left < sizes[number]; left += step) {
            damages.push_back({saving, Damage::Kind::cut, files[number], left, 0});
        }
        if (files[number].filename() != ".metadata.json") { // without it there is no metadata
            damages.push_back({saving, Damage::Kind::missing, files[number], 0, 0});
        }
    }
    return damages;
}

} // namespace

int main(int count, char** values) {
    prepare_process();
    Arguments arguments(count, values);
    const long flips = arguments.number("--flips", 10'000);
    const auto every = static_cast<std::uintmax_t>(arguments.number("--every", 1));
    const auto seed = static_cast<std::uint64_t>(arguments.number("--seed", 1));
    const int lanes = static_cast<int>(arguments.number("--jobs", 2));
    arguments.done();

    const Scratch scratch;
    const auto begin = std::chrono::steady_clock::now();
    std::mt19937_64 random(seed);
    std::map<Saving, std::map<std::string, int>> steps;
    std::vector<Damage> damages;
    const auto good = [&](Saving saving) { return scratch.path() / name_of(saving); };
    for (const Saving saving : all_savings) {
        steps[saving] = good_run(saving, good(saving));
        const auto some =
            damages_of(saving, run_of(good(saving) / "storage"),
                       flips / static_cast<long>(std::size(all_savings)), every, random);
        damages.insert(damages.end(), some.begin(), some.end());
    }
    Violations violations;
    std::map<std::string, std::size_t> verdicts;
    in_children(
        damages.size(), lanes,
        [&](std::size_t index, int lane) -> std::vector<std::string> {
            const Damage& damage = damages[index];
            const auto place = scratch.path() / ("lane" + std::to_string(lane));
            std::filesystem::create_directories(place / "own");
            return {Trial(damage, steps.at(damage.saving), good(damage.saving) / "storage", place)
                        .judge()};
        },
        [&](std::size_t index, const std::vector<std::string>& lines) {
            const std::string& verdict = lines.front();
            if (verdict == "found" || verdict == "fell back" || verdict == "harmless") {
                ++verdicts[verdict];
                if (verdict == "harmless") {
                    ++verdicts["harmless " + damages[index].file.filename().string()];
                }
            } else {
                violations.add(verdict, describe(damages[index]));
            }
        });
    violations.tell();
    std::string counts;
    for (const auto& [verdict, number] : verdicts) {
        counts += ", \"" + verdict + "\": " + std::to_string(number);
    }
    std::printf("{\"test\": \"crash_flips\", \"seed\": %llu, \"damages\": %zu, \"flips\": %ld%s, "
                "\"loaded_wrong\": %zu%s, \"seconds\": %.1f}\n",
                static_cast<unsigned long long>(seed), damages.size(), flips, counts.c_str(),
                violations.count("wrong"), violations.json().c_str(),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return violations.none() ? 0 : 1;
}
