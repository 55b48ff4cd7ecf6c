#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train() of a CreatorTrainer next to fit() over the same epochs, the time a call takes, and what an idle trainer uses.

    run.py BUILD [--rounds N] [--python PYTHON]

PYTHON has Ray and torch; without them, Ray's TorchTrainer is left out. Fastest of all rounds.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def tree(process):
    yield process
    for task in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from tree(int(child))


def cpu_s(process):
    total = 0
    for each in tree(process):
        fields = pathlib.Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def run(command):
    with tempfile.TemporaryDirectory() as directory:
        text = subprocess.run([*command, directory], check=True, env=ENVIRONMENT, capture_output=True, text=True).stdout
        return json.loads([line[line.index("{"):] for line in text.splitlines() if "{" in line][-1])


def idle_cores(program):
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen([program, "idle", directory], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        while "idle" not in process.stdout.readline():
            pass
        time.sleep(1)
        before, began = cpu_s(process.pid), time.monotonic()
        time.sleep(20)
        cores = (cpu_s(process.pid) - before) / (time.monotonic() - began)
        process.terminate()
        process.wait()
        return cores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    program = str((options.build / "benchmarks/creators/creators_bench").resolve())
    commands = {"creators": [program, "creators"], "fit": [program, "fit"]}
    if subprocess.run([options.python, "-c", "import ray, torch"], capture_output=True, check=False).returncode == 0:
        commands["ray"] = [options.python, str(HERE / "ray_peer.py")]
    best = {}
    for _ in range(options.rounds):
        for name, command in commands.items():
            found = run(command)
            known = best.setdefault(name, found)
            for field, value in found.items():
                known[field] = min(known[field], value)
    ours, fit = best["creators"], best["fit"]
    print(f"10 train() calls: {ours['epochs_s']:.3f} s; fit() over 10 epochs: {fit['epochs_s']:.3f} s; "
          f"ratio {ours['epochs_s'] / fit['epochs_s']:.3f}")
    print(f"from the call to its first step, with its forward pass: {1000 * ours['call_s']:.2f} ms")
    print(f"from the start to the first answer: {ours['first_s']:.2f} s")
    if "ray" in best:
        last_s = ours["first_s"] + ours["epochs_s"]
        print(f"from the start to the last report of 11 epochs: {last_s:.2f} s; Ray's TorchTrainer "
              f"{best['ray']['epochs_s']:.2f} s; ratio {last_s / best['ray']['epochs_s']:.3f}")
    print(f"an idle trainer on 2 ranks uses {100 * idle_cores(program):.2f} % of a core")


if __name__ == "__main__":
    main()
