// SPDX-License-Identifier: Apache-2.0
// The tool rtrain: runs any program on several ranks, and finds the other tools.
//
//   rtrain run -n 4 --max-restarts 3 train.py --lr 0.1
//   mpirun -n 4 rtrain exec -- python3 train.py
//   rtrain doctor
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/program/command_line.hpp>
#include <rtrain/program/program_run.hpp>
#include <rtrain/program/program_trainer.hpp>
#include <rtrain/program/rank_parent.hpp>
#include <rtrain/version.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

constexpr int wrong_usage = 2;
constexpr const char* usage = R"(rtrain COMMAND ...

  run [options] program ...   runs a program on several ranks; rtrain run --help
  exec -- program ...         runs a program as a rank of mpirun or srun
  doctor, report, ...         the tools rtrain-doctor, rtrain-report, ... next to this program
  --version                   prints the version

)";

int run(const std::vector<std::string>& words) {
    using rtrain::console::error;
    using rtrain::console::say;
    try {
        const auto command = rtrain::program::RunCommand::parse(words);
        if (command.help) {
            std::fputs(rtrain::program::RunCommand::usage, stdout);
            return 0;
        }
        if (!command.ignored.empty()) {
            say("without a meaning here: %s", rtrain::detail::listed(command.ignored).c_str());
        }
        const auto end = rtrain::program::run_program(command.options);
        if (end.failure) {
            error("%s", end.failure->text().c_str());
        }
        return end.status;
    } catch (const rtrain::ConfigError& wrong) {
        error("%s", wrong.what());
        return wrong_usage;
    } catch (const std::exception& failed) {
        error("%s", failed.what());
        return 1;
    }
}

int execute(const std::vector<std::string>& words) {
    if (words.size() < 2 || words[0] != "--") {
        rtrain::console::error("expected `rtrain exec -- program arguments ...`");
        return wrong_usage;
    }
    return rtrain::program::RankParent({words.begin() + 1, words.end()}).run();
}

/// The names of the tools rtrain-<name> in a directory.
std::vector<std::string> tools_in(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("rtrain-")) {
            names.push_back(name.substr(7));
        }
    }
    return names;
}

int run_tool(const std::string& name, char** arguments) {
    const auto directory = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::string tool = directory / ("rtrain-" + name);
    arguments[0] = const_cast<char*>(tool.c_str());
    ::execv(tool.c_str(), arguments);
    auto known = tools_in(directory);
    known.insert(known.end(), {"run", "exec"});
    rtrain::console::error("unknown command %s; %s%s has %s", name.c_str(),
                           rtrain::detail::did_you_mean(name, known).c_str(), directory.c_str(),
                           rtrain::detail::listed(known).c_str());
    return wrong_usage;
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::string command = words.empty() ? "--help" : words[0];
    if (command == "run") {
        return run({words.begin() + 1, words.end()});
    }
    if (command == "exec") {
        return execute({words.begin() + 1, words.end()});
    }
    if (command == "--version") {
        std::printf("rtrain %s\n", RTRAIN_VERSION);
        return 0;
    }
    if (command == "--help" || command == "-h") {
        std::fputs(usage, words.empty() ? stderr : stdout);
        return words.empty() ? wrong_usage : 0;
    }
    return run_tool(command, argv + 1);
}
