#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""XGBoost and LightGBM through rtrain on two ranks of this machine, next to the libraries' own training in one Python
process with two threads. Contestants take turns; ratios are of medians. From fit() to Result, data included; the
processes' start is not.

    run.py BUILD [--rounds N] [--rows N] [--python PYTHON]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
COLUMNS, BOOST_ROUNDS = 40, 20


def measure(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    program = str((options.build / "benchmarks/boosting/boosting_bench").resolve())
    two = ["mpirun", "-n", "2", "--bind-to", "none"]
    with tempfile.TemporaryDirectory() as directory:
        random = np.random.default_rng(1)
        x = random.standard_normal((options.rows, COLUMNS), np.float32)
        x.tofile(f"{directory}/x.f4")
        (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(np.float32).tofile(f"{directory}/y.f4")
        for library in ("xgboost", "lightgbm"):
            of = [library, str(options.rows), str(COLUMNS), str(BOOST_ROUNDS), directory]
            contestants = {
                "the library alone, two threads": ([options.python, str(HERE / "peer.py"), *of, "2"], 2),
                "rtrain, two ranks": ([*two, program, *of, "nodes"], 1),
                "rtrain, two ranks, Ranks::all": ([*two, program, *of, "all"], 1),
                "rtrain, one rank, two threads": ([program, *of, "nodes"], 2),
            }
            seconds = {name: [] for name in contestants}
            for _ in range(options.rounds):
                for name, (command, threads) in contestants.items():
                    seconds[name].append(measure(command, threads))
            alone = statistics.median(next(iter(seconds.values())))
            print(f"\n| {library}: {options.rows} rows, {COLUMNS} columns, {BOOST_ROUNDS} rounds | median s | least s | ratio |\n|---|---|---|---|")
            for name, found in seconds.items():
                median = statistics.median(found)
                print(f"| {name} | {median:.2f} | {min(found):.2f} | {median / alone:.2f} |")


if __name__ == "__main__":
    main()
