#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report() of scripts under `rtrain run`, beside writing and syncing by hand, and beside Ray Train; runs alternate.

Usage: reports.py TOOL [--ray PYTHON] [--ranks N] [--rounds N], where PYTHON has ray[train] and torch"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODULE = str(HERE.parents[1] / "examples/python")


def measure(words, config):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{MODULE}:{HERE}", "RAY_TRAIN_V2_ENABLED": "1",
                   "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    output = pathlib.Path(config["output"])
    if done.returncode != 0 or not output.exists():
        sys.exit(f"{words[0]} has failed:\n{done.stdout[-3000:]}")
    return json.loads(output.read_text())


def run(name, given):
    with tempfile.TemporaryDirectory(prefix="rtrain-reports-") as storage:
        config = {"module": "ray.train" if name == "Ray Train" else "rtrain", "storage": storage,
                  "output": f"{storage}/seconds", "reports": 10 if name == "Ray Train" else 200, "files": 5 if name == "Ray Train" else 10}
        if name == "Ray Train":
            return measure([given.ray, str(HERE / "ray_reporting.py"), json.dumps(config), str(given.ranks)], config)
        options = [word for key, value in config.items() for word in ("--config", f"{key}={json.dumps(value)}")]
        return measure([given.tool, "run", "-n", str(given.ranks), "--storage", storage, "--name", "r", *options,
                        str(HERE / "reporting.py")], config)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tool")
    arguments.add_argument("--ray", help="a Python with ray[train] and torch")
    arguments.add_argument("--ranks", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    found = {name: {} for name in ["rtrain run", *(["Ray Train"] if given.ray else [])]}
    for _ in range(given.rounds):
        for name, all_seconds in found.items():
            for what, seconds in run(name, given).items():
                all_seconds.setdefault(what, []).extend(seconds)
    for name, all_seconds in found.items():
        for what, seconds in all_seconds.items():
            print(f"{name}, {what}: median {statistics.median(seconds) * 1e3:.2f} ms, least {min(seconds) * 1e3:.2f} ms, "
                  f"{len(seconds)} times")
        ratios = [mine / hand for mine, hand in zip(all_seconds["checkpoint"], all_seconds["by hand"])]
        print(f"{name}, checkpoint over by hand, each beside the other: median {statistics.median(ratios):.2f}, "
              f"least {min(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
