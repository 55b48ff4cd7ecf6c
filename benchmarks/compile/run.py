#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program costs to compile with rtrain, beside the same program on bare libtorch.

    python benchmarks/compile/run.py build/release --json compile.json

Each program is compiled in four ways, which take turns: bare libtorch, rtrain::compiled,
rtrain::compiled with its precompiled header, rtrain::rtrain. With --fit, only examples/fit.cpp with
rtrain::compiled is, next to one_model. Needs compile_commands.json (the presets write it) and, without
--fit, the target rtrain_compiled. Minima of the rounds are compared.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

PROGRAMS = ("one_model", "two_models")
WAYS = ("bare", "compiled", "precompiled", "headers")
FIT_LIMIT = 1.10  # of one_model's time
LIMITS = {"compiled": (1.25, 1.3), "headers": (2.0, None)}  # of bare's time and memory


def command_of(commands, build, program, way, level):
    """The compiler's words for one source, without a launcher and with another -O."""
    target = f"compile_{program}_{'compiled' if way == 'precompiled' else way}.dir"
    entry = next(item for item in commands if target in item["command"])
    words = shlex.split(entry["command"])
    compiler = next(i for i, word in enumerate(words) if word.endswith(("++", "cc", "clang++")))
    words = [word for word in words[compiler:] if not word.startswith("-O")]
    output = words.index("-o")
    words[output + 1] = os.devnull
    if way == "precompiled":
        words += ["-include", str(build / "compile" / f"header{level}.hpp")]
    return words + [level, "-Winvalid-pch"]


def measure(words, directory):
    """Seconds of the processor and peak memory in MB."""
    process = subprocess.Popen(words, cwd=directory)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {shlex.join(words)}")
    # The driver's children (cc1plus, as) are in its own usage once it has waited for them.
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def precompile(commands, build, level):
    """The header that rtrain::compiled brings, for this -O."""
    header = build / "compile" / f"header{level}.hpp"
    header.parent.mkdir(exist_ok=True)
    header.write_text("#include <torch/torch.h>\n#include <rtrain/trainer.hpp>\n")
    words = command_of(commands, build, PROGRAMS[0], "compiled", level)
    source = words.index("-c")
    words[source + 1] = str(header)
    words[words.index("-o") + 1] = f"{header}.gch"
    subprocess.run(words[:source] + ["-x", "c++-header"] + words[source:], check=True)


def compare_fit(commands, build, levels, rounds):
    print("| level | examples/fit.cpp | one_model | ratio | goal |\n|---|---|---|---|---|")
    for level in levels:
        words = [command_of(commands, build, program, "compiled", level) for program in ("fit", PROGRAMS[0])]
        runs = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as directory:
                runs.append([measure(each, directory)[0] for each in words])
        fit, other = (min(column) for column in zip(*runs))
        print(f"| {level} | {fit:.1f} s | {other:.1f} s | {fit / other:.2f} | "
              f"{'met' if fit <= FIT_LIMIT * other else '**missed**'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--levels", default="-O0,-O3", type=lambda text: text.split(","))
    parser.add_argument("--programs", default=PROGRAMS, type=lambda text: text.split(","))
    parser.add_argument("--ways", default=WAYS, type=lambda text: text.split(","))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    build = options.build.resolve()
    commands = json.loads((build / "compile_commands.json").read_text())
    if options.fit:
        compare_fit(commands, build, options.levels, options.rounds)
        return
    found = {}
    for level in options.levels:
        if "precompiled" in options.ways:
            precompile(commands, build, level)
        for round_number in range(options.rounds):
            for program in options.programs:
                first = round_number % len(options.ways)
                turn = [*options.ways[first:], *options.ways[:first]]
                for way in turn:
                    words = command_of(commands, build, program, way, level)
                    with tempfile.TemporaryDirectory() as directory:
                        found.setdefault((program, level, way), []).append(
                            measure(words, directory))
    print("| program | | way | seconds | of bare | MB | of bare | goal |")
    print("|---|---|---|---|---|---|---|---|")
    for (program, level, way), runs in found.items():
        seconds, memory = (min(column) for column in zip(*runs))
        bare = [min(column) for column in zip(*found[program, level, "bare"])]
        ratios = seconds / bare[0], memory / bare[1]
        goal = ""
        if way in LIMITS:
            met = all(limit is None or ratio <= limit
                      for ratio, limit in zip(ratios, LIMITS[way]))
            goal = "met" if met else "**missed**"
        print(f"| {program} | {level} | {way} | {seconds:.1f} | {ratios[0]:.2f} | {memory:.0f} | "
              f"{ratios[1]:.2f} | {goal} |")
    if options.json:
        options.json.write_text(json.dumps(
            [{"program": program, "level": level, "way": way, "runs": runs}
             for (program, level, way), runs in found.items()], indent=1))


if __name__ == "__main__":
    main()
