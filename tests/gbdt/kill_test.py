#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of examples/boosting.cpp, which trains XGBoost and then LightGBM on two ranks, are killed in each phase: the
run restarts once, names the rank, and ends with as many rounds and the same metrics as an undisturbed one.

Usage: kill_test.py BOOSTING CSV KILL_POINTS [--kills N] [--seed S]

KILL_POINTS is the library of kill_points.cpp: a rank kills itself before or after a call of a library's C interface,
so each kill is in its phase. A run has a kill in each library.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

ROUNDS = 6
LIMIT_S = 120
PHASES = {  # the function, and how often each rank calls it
    "xgboost": {
        "XGTrackerRun": (1, [0]),
        "XGCommunicatorInit": (1, [0, 1]),
        "XGQuantileDMatrixCreateFromCallback": (2, [0, 1]),
        "XGBoosterUpdateOneIter": (ROUNDS, [0, 1]),
        "XGBoosterEvalOneIter": (ROUNDS, [0, 1]),
        "XGBoosterSaveModelToBuffer": (ROUNDS, [0]),
    },
    "lightgbm": {
        "LGBM_NetworkInitWithFunctions": (1, [0, 1]),
        "LGBM_DatasetCreateFromSampledColumn": (1, [0, 1]),
        "LGBM_BoosterUpdateOneIter": (ROUNDS, [0, 1]),
        "LGBM_BoosterGetEval": (2 * ROUNDS, [0, 1]),
        "LGBM_BoosterSaveModelToString": (ROUNDS, [0]),
    },
}


def points(library, draw):
    """Kill points without an end: each phase and rank in turn, in a random call."""
    places = [(function, rank) for function, (_, ranks) in PHASES[library].items() for rank in ranks]
    for number in itertools.count():
        function, rank = places[number % len(places)]
        yield f"{function}:{rank}:{draw.randrange(PHASES[library][function][0])}:{draw.choice(['begin', 'end'])}"


def run(options, kills):
    """The last metrics of both libraries."""
    with tempfile.TemporaryDirectory() as scratch:
        killed = pathlib.Path(scratch) / "killed"
        killed.mkdir()
        variables = {"LD_PRELOAD": options.kill_points, "RTRAIN_KILL_POINTS": ",".join(kills), "RTRAIN_KILLED": str(killed)}
        done = subprocess.run(
            [options.boosting, options.csv, str(ROUNDS), "all"],
            cwd=scratch,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        text = done.stdout
        assert done.returncode == 0, text
        assert sorted(file.name for file in killed.iterdir()) == sorted(kills), text
        assert text.count("restart 1 of 3") == len(kills) and "restart 2 of 3" not in text, text
        for kill in kills:
            named = re.search(r"rtrain: rank (\d+) (?:of 2 ended|was killed)", text.split("restart 1 of 3")[kills.index(kill)])
            assert named and named[1] == kill.split(":")[1], f"{kill}: {text}"
        metrics = {}
        for library in PHASES:
            assert f"{library}: {ROUNDS} rounds" in text, text
            results = pathlib.Path(scratch) / f"results/boosting-{library}/result.json"
            metrics[library] = json.loads(results.read_text().splitlines()[-1])
        return metrics


def main():
    parser = argparse.ArgumentParser()
    for name in ("boosting", "csv", "kill_points"):
        parser.add_argument(name, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    expected = run(options, [])
    for kills in itertools.islice(zip(*(points(library, draw) for library in PHASES)), options.kills // len(PHASES)):
        print(*kills, flush=True)
        found = run(options, list(kills))
        for library, metrics in expected.items():
            for name, value in metrics.items():
                if name.startswith(("train-", "valid-")):
                    assert abs(found[library][name] - value) < 1e-6, (kills, name, value, found[library][name])


if __name__ == "__main__":
    main()
