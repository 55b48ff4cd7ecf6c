#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/training-program.md costs to compile with `import rtrain;`, beside the same on bare libtorch.

    python benchmarks/compile/module.py build/release clang++-19 --json module.json

Three ways take turns: bare libtorch, the module, and rtrain::compiled's headers; each as front end only, at -O0
and at -O2. Needs compile_commands.json (the presets write it), whatever compiler that is for. The module is made
once before, and shown for itself. Minima of the rounds are compared.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import tempfile

from run import measure

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks/compile"
LEVELS = {"front end": ["-fsyntax-only"], "-O0": ["-O0", "-c"], "-O2": ["-O2", "-c"]}
LIMIT = 0.5  # of bare's time, front end and -O0


def flags_of(build):
    """The macros and directories of a program that links rtrain::compiled."""
    entries = json.loads((build / "compile_commands.json").read_text())
    words = shlex.split(next(entry["command"] for entry in entries
                             if "compile_one_model_compiled.dir" in entry["command"]))
    kept = [word for word in words if word.startswith(("-D", "-I"))]
    return kept + [f"-isystem{words[i + 1]}" for i, word in enumerate(words) if word == "-isystem"]


def with_import(text):
    """A program of headers as one of the module: its includes of ours and torch's, and torch's macro."""
    text = re.sub(r"#include <(rtrain|torch)/[^>]*>\n", "", text)
    text = re.sub(r"TORCH_MODULE\((\w+)\);", r"using \1 = torch::nn::ModuleHolder<\1Impl>;", text)
    last = text.rindex("#include")
    end = text.index("\n", last) + 1
    return text[:end] + "import rtrain;\n" + text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("clang")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    build = options.build.resolve()
    program = (build / "benchmarks/compile/one_model.cpp").read_text()
    common = [options.clang, "-std=gnu++20", *flags_of(build)]
    found = {}
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place)
        (directory / "module.cpp").write_text(with_import(program))
        (directory / "headers.cpp").write_text(program)
        (directory / "bare.cpp").write_text((HERE / "one_model_bare.cpp").read_text())
        made = measure([*common, "--precompile", str(ROOT / "cmake/module/rtrain.cppm"), "-o", "rtrain.pcm"],
                       directory)
        for round_number in range(options.rounds):
            for level, flags in LEVELS.items():
                ways = ["bare", "module", "headers"]
                for way in ways[round_number % 3:] + ways[:round_number % 3]:
                    import_it = ["-fmodule-file=rtrain=rtrain.pcm"] if way == "module" else []
                    output = ["-o", "out.o"] if "-c" in flags else []
                    words = [*common, *flags, *import_it, f"-I{HERE}", f"{way}.cpp", *output]
                    found.setdefault((level, way), []).append(measure(words, directory))
    version = subprocess.run([options.clang, "--version"], capture_output=True, text=True, check=True).stdout
    print(f"{version.splitlines()[0]}; the module, once: {made[0]:.1f} s, {made[1]:.0f} MB\n")
    print("| | way | seconds | of bare | MB | goal |\n|---|---|---|---|---|---|")
    for (level, way), runs in found.items():
        seconds, memory = (min(column) for column in zip(*runs))
        ratio = seconds / min(run[0] for run in found[level, "bare"])
        has_goal = way == "module" and level != "-O2"
        goal = ("met" if ratio <= LIMIT else "**missed**") if has_goal else ""
        print(f"| {level} | {way} | {seconds:.1f} | {ratio:.2f} | {memory:.0f} | {goal} |")
    if options.json:
        options.json.write_text(json.dumps(
            {"clang": version.splitlines()[0], "module": made,
             "runs": [{"level": level, "way": way, "runs": runs} for (level, way), runs in found.items()]},
            indent=1))


if __name__ == "__main__":
    main()
