#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of examples/boosting.cpp, which trains XGBoost and LightGBM on two ranks, are killed: the run restarts once,
names the rank, and ends with as many rounds and the same metrics as an undisturbed one.

Usage: kill_test.py BOOSTING CSV [--kills N] [--seed S]
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time

ROUNDS = 60
LIMIT_S = 120


def lines_of(file):
    return file.read_text().splitlines() if file.exists() else []


def rank_process(number, root):
    """The process of a rank of the program in `root`."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
                here = os.readlink(entry / "cwd") == str(root)
                program = (entry / "cmdline").read_bytes().split(b"\0")[0].endswith(b"boosting")
            except OSError:
                continue
            if here and program and f"OMPI_COMM_WORLD_RANK={number}".encode() in variables:
                return int(entry.name)
    return None


def run(options, kill=None):
    """Metrics of both libraries; `kill`: (library, rank, reports before it)."""
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch).resolve()
        log = root / "log"
        with open(log, "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [options.boosting, options.csv, str(ROUNDS), "all"], cwd=root, stdout=output, stderr=output
            )
            if kill:
                library, rank, reports = kill
                results = root / f"results/boosting-{library}/result.json"
                deadline = time.monotonic() + LIMIT_S
                while process.poll() is None and time.monotonic() < deadline:
                    victim = rank_process(rank, root) if len(lines_of(results)) >= reports else None
                    if victim and (library == "xgboost" or results.parent.exists()):
                        os.kill(victim, signal.SIGKILL)
                        break
                    time.sleep(0.002)
            code = process.wait(LIMIT_S)
        text = log.read_text()
        assert code == 0, text
        for library in ("xgboost", "lightgbm"):
            assert f"{library}: {ROUNDS} rounds" in text, text
        if kill:
            assert len(re.findall("restarting", text)) <= 1, text
            assert f"rank {kill[1]}" in text, f"{kill}: {text}"
        return {
            library: json.loads(lines_of(root / f"results/boosting-{library}/result.json")[-1])
            for library in ("xgboost", "lightgbm")
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("boosting", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("csv", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    expected = run(options)
    for number in range(options.kills):
        kill = (("xgboost", "lightgbm")[number % 2], number // 2 % 2, draw.choice([0, 1, 5, 20, 40]))
        print(kill, flush=True)
        found = run(options, kill)
        for library, metrics in expected.items():
            for name, value in metrics.items():
                if name.startswith(("train-", "valid-")):
                    assert abs(found[library][name] - value) < 1e-6, (kill, name, value, found[library][name])


if __name__ == "__main__":
    main()
