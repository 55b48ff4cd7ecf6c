#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rtrain::Fit next to the same loop written by hand, and on two ranks next to Lightning with DDP. The contestants run
one after the other in each round; the fastest of all rounds counts.

    run.py BUILD [--rounds N] [--python PYTHON]

PYTHON has Lightning 2.6; without it, Lightning is left out.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
UNITS = (128, 512)


def measure(command, directory):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = subprocess.run(command, check=True, env=environment, cwd=directory, capture_output=True, text=True).stdout
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    program = str((options.build / "benchmarks/fit/fit_bench").resolve())
    two = ["mpirun", "-n", "2", "--bind-to", "none"]
    commands = [[*ranks, program, name, str(units)] for units in UNITS for ranks in ([], two)
                for name in ("loop", "fit", "logged")]
    if subprocess.run([options.python, "-c", "import lightning"], capture_output=True, check=False).returncode == 0:
        commands.append([options.python, str(HERE / "lightning_peer.py"), "512"])
    best = {}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(options.rounds):
            for command in commands:
                found = measure(command, directory)
                known = best.setdefault((found["units"], found["ranks"], found["contestant"]), found)
                for field in ("step_us", "first_s"):
                    known[field] = min(known[field], found[field])
    print("| units | ranks | contestant | us a step | s to the first step |\n|---|---|---|---|---|")
    for (units, ranks, name), found in sorted(best.items()):
        print(f"| {units} | {ranks} | {name} | {found['step_us']:.1f} | {found['first_s']:.2f} |")
    for units in UNITS:
        loop, fit, logged = (best[units, 1, name]["step_us"] for name in ("loop", "fit", "logged"))
        print(f"{units} units: Fit takes {fit / loop:.3f} times the loop's time; hooks and three values add "
              f"{logged - fit:.2f} us")
    if (peer := best.get((512, 2, "lightning"))) is not None:
        fit = best[512, 2, "fit"]
        print(f"two ranks, 512 units: {fit['step_us'] / peer['step_us']:.3f} times Lightning's epoch, "
              f"{fit['first_s'] / peer['first_s']:.3f} times its start")


if __name__ == "__main__":
    main()
