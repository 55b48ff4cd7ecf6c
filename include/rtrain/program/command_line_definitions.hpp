// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/command_line.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/program/command_line.hpp>
#include <rtrain/program/program_path.hpp>
#include <rtrain/program/run_settings.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

namespace rtrain::program {

RTRAIN_DOOR const char* const RunCommand::usage =
    R"(rtrain run [options] [-m] program [arguments]: runs a program on several ranks.

  -n, --nproc-per-node N|MIN:MAX  ranks; a range: as many as fit (1)
      --max-restarts N            restarts after a rank has died or hung; -1: no limit (0)
      --name NAME                 name of the run (generated)
      --storage DIRECTORY         parent of the run's directory (~/rtrain_results)
      --config KEY=VALUE          an entry of the configuration, in RTRAIN_CONFIG as JSON
      --dataset NAME=PATH         data for the Python module's get_dataset_shard(NAME)
      --preload MODULES           Python modules to import once, for all ranks and restarts
      --resume KIND               automatic, never (start over) or always (automatic)
      --num-to-keep N             checkpoints to keep (all)
      --score METRIC              ranks checkpoints, larger first (newest first)
      --score-order KIND          max or min (max)
      --tracker NAME              tensorboard, mlflow, wandb, comet or json_lines (none)
      --options FILE              these and other options of a run, as JSON
      --rendezvous KIND           torch, tensorflow, mpi or none (torch)
      --hosts A:4,B:4             machines, and the ranks that fit on each
      --threads N                 threads per rank (cores divided by ranks)
      --gpus-per-worker N         GPUs that each rank sees (all)
      --grace SECONDS             time to save after SIGTERM (30)
      --hang-idle SECONDS         limit without any use of the processor; 0: none (300)
      --backoff SECONDS           pause before a second restart, doubled with each (0.5)
  -m, --module                    the program is a module of Python
      --no-python                 the program is not a script of Python

Options of torchrun are accepted. docs/programs.md describes all of this.
)";

namespace internal {

/// The options of torchrun that mean nothing here; those in the second list have a value.
inline constexpr std::string_view bare_of_torchrun[]{"--standalone", "--run-path",
                                                     "--virtual-local-rank"};
inline constexpr std::string_view valued_of_torchrun[]{"--log-dir",
                                                       "--tee",
                                                       "-t",
                                                       "--redirects",
                                                       "-r",
                                                       "--rdzv-backend",
                                                       "--rdzv-endpoint",
                                                       "--rdzv-id",
                                                       "--rdzv-conf",
                                                       "--monitor-interval",
                                                       "--start-method",
                                                       "--event-log-handler",
                                                       "--role",
                                                       "--local-ranks-filter",
                                                       "--duplicate-stdout-filters",
                                                       "--duplicate-stderr-filters",
                                                       "--local-addr",
                                                       "--logs-specs",
                                                       "--numa-binding",
                                                       "--signals-to-handle",
                                                       "--shutdown-timeout",
                                                       "--master-addr",
                                                       "--master-port"};
/// Those that `rtrain run` rejects, unless they describe a single node.
inline constexpr std::string_view of_several_nodes[]{"--nnodes", "--node-rank"};

template <class Names>
[[nodiscard]] bool is_in(const Names& names, std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// A word on the command line, as an option: "--max_restarts=3" is "--max-restarts" with "3".
struct OptionWord {
    std::string name;
    std::string given; ///< as the user wrote it, for messages
    std::optional<std::string> value;

    explicit OptionWord(const std::string& word) : name(word) {
        const std::size_t equals = word.find('=');
        if (word.starts_with("--") && equals != std::string::npos) {
            name = word.substr(0, equals);
            value = word.substr(equals + 1);
        }
        if (word.starts_with("--")) {
            std::replace(name.begin() + 2, name.end(), '_', '-');
        } else if (word.size() > 2 && word.starts_with("-n")) {
            name = "-n"; // -n4
            value = word.substr(2);
        }
        given = name;
        if (name == "--nproc-per-node") {
            name = "-n";
        }
    }
};

[[nodiscard]] inline ConfigError unknown_option(const std::string& name) {
    std::vector<std::string> known{"--nproc-per-node", "--module", "--no-python", "--help"};
    for (const auto& [other, setting] : settings()) {
        known.push_back(other);
    }
    known.insert(known.end(), std::begin(bare_of_torchrun), std::end(bare_of_torchrun));
    known.insert(known.end(), std::begin(valued_of_torchrun), std::end(valued_of_torchrun));
    return {"RT-E9",
            detail::concat("unknown option ", name, "; ", detail::did_you_mean(name, known),
                           "`rtrain run --help` lists all; options of the program follow "
                           "its name")};
}

/// Reads the words one by one.
class Parser {
public:
    explicit Parser(const std::vector<std::string>& words) : words_(words) {
        command_.options.run.console.verbose = 0; // the program prints
    }

    [[nodiscard]] RunCommand parse() {
        while (at_ < words_.size() && words_[at_].size() > 1 && words_[at_].starts_with('-')) {
            if (words_[at_] == "--") {
                ++at_;
                break;
            }
            take_option();
        }
        if (command_.help) {
            return std::move(command_);
        }
        const std::vector<std::string> program(words_.begin() + static_cast<std::ptrdiff_t>(at_),
                                               words_.end());
        if (program.empty()) {
            throw ConfigError("RT-E9", "the command names no program; name it after the options: "
                                       "rtrain run -n 4 train.py");
        }
        command_.options.command = command_of(program);
        return std::move(command_);
    }

private:
    void take_option() {
        const OptionWord option(words_[at_++]);
        if (const auto found = settings().find(option.name); found != settings().end()) {
            found->second(command_.options, option.given, value_of(option));
        } else if (option.name == "-h" || option.name == "--help") {
            command_.help = true;
        } else if (option.name == "-m" || option.name == "--module") {
            is_module_ = true;
        } else if (option.name == "--no-python") {
            has_python_ = false;
        } else if (is_in(bare_of_torchrun, option.name)) {
            command_.ignored.push_back(option.name);
        } else if (is_in(valued_of_torchrun, option.name)) {
            command_.ignored.push_back(option.name);
            (void)value_of(option);
        } else if (is_in(of_several_nodes, option.name)) {
            require_one_node(option.name, value_of(option));
        } else {
            throw unknown_option(option.name);
        }
    }

    [[nodiscard]] std::string value_of(const OptionWord& option) {
        if (option.value) {
            return *option.value;
        }
        if (at_ == words_.size()) {
            throw ConfigError("RT-E9", detail::concat(option.name, " needs a value; add it"));
        }
        return words_[at_++];
    }

    void require_one_node(const std::string& option, const std::string& value) {
        if (value != (option == "--nnodes" ? "1" : "0") && value != "1:1") {
            throw ConfigError("RT-E9", detail::concat(option, ' ', value,
                                                      " describes several machines; start one "
                                                      "`rtrain run --hosts a:4,b:4` instead"));
        }
        command_.ignored.push_back(option);
    }

    /// Scripts get python3, like with torchrun; other programs run as they are.
    [[nodiscard]] std::vector<std::string>
    command_of(const std::vector<std::string>& program) const {
        const bool is_script = is_module_ || program[0].ends_with(".py");
        if (!has_python_ || !is_script) {
            return program;
        }
        const auto python = launch::find_program("python3");
        if (!python) {
            throw ConfigError("RT-E14",
                              detail::concat("python3 is not on PATH, but runs ", program[0],
                                             "; install it, activate the virtual "
                                             "environment, or pass --no-python"));
        }
        std::vector<std::string> words{python->string()};
        if (is_module_) {
            words.emplace_back("-m");
        }
        words.insert(words.end(), program.begin(), program.end());
        return words;
    }

    const std::vector<std::string>& words_;
    std::size_t at_ = 0;
    RunCommand command_;
    bool is_module_ = false;
    bool has_python_ = true;
};

} // namespace internal

RTRAIN_DOOR RunCommand RunCommand::parse(const std::vector<std::string>& words) {
    return internal::Parser(words).parse();
}

} // namespace rtrain::program
