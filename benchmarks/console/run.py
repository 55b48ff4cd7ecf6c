#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a bar on a terminal costs those who train: rtrain_parity on ranks of a driver that draws on a
pseudo-terminal, against the same in silence.

    python benchmarks/console/run.py BUILD_DIRECTORY [--rounds 3] [--hidden 128,512] [--epochs 8]
        [--json FILE]

Both take turns. Of each, the epoch with the least time counts, the first of a run aside. Processor time is of
driver and rank together, of whole runs. Exit status 1: a run failed.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402

GOAL_PERCENT = 1
STEPS = 938  # of an epoch


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(program, hidden, verbose, epochs):
    """{seconds of the quickest epoch, processor seconds of the run, bytes that came to the terminal}"""
    master, slave = os.openpty()
    drawn = [0]

    def read():
        try:
            while part := os.read(master, 65536):
                drawn[0] += len(part)
        except OSError:  # nobody writes any more
            pass

    reader = threading.Thread(target=read)
    before = cpu_s()
    with tempfile.TemporaryDirectory(prefix="rtrain-console-") as storage:
        words = [program, "--hidden", hidden, "--epochs", epochs, "--verbose", verbose, "--storage", storage]
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=slave, text=True,
                                   env=dict(harness.environment(), TERM="xterm"))
        os.close(slave)
        reader.start()
        out, _ = process.communicate(timeout=harness.TIMEOUT_S)
    reader.join()
    os.close(master)
    if process.returncode != 0:
        raise harness.Failure(f"{words} failed with status {process.returncode}")
    lines = [line[line.index("{"):] for line in out.splitlines() if "{" in line]  # behind "[rank 0] "
    seconds = [record["seconds"] for record in map(json.loads, lines) if "seconds" in record]
    return {"seconds": min(seconds[1:]), "cpu_s": cpu_s() - before, "bytes": drawn[0]}


def main():
    parser = harness.arguments(__doc__)
    parser.add_argument("--hidden", default="128,512")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    program = options.build / "benchmarks" / "parity" / "rtrain_parity"
    records = []
    for hidden in map(int, options.hidden.split(",")):
        for turn in range(options.rounds):
            for verbose in harness.in_turn([0, 1], turn):
                records.append({"hidden": hidden, "verbose": verbose,
                                **run(program, hidden, verbose, options.epochs)})
    rows, goals = [], []
    for hidden in map(int, options.hidden.split(",")):
        silent, drawn = ([r for r in records if (r["hidden"], r["verbose"]) == (hidden, verbose)] for verbose in (0, 1))
        least = [min(r["seconds"] for r in which) for which in (silent, drawn)]
        cpu = [min(r["cpu_s"] for r in which) for which in (silent, drawn)]
        percent = 100 * (least[1] / least[0] - 1)
        rows.append([hidden, f"{1e6 * least[0] / STEPS:.1f}", f"{1e6 * least[1] / STEPS:.1f}", f"{percent:.2f} %",
                     f"{cpu[0]:.2f}", f"{cpu[1]:.2f}", max(r["bytes"] for r in drawn)])
        goals.append((f"bar, H = {hidden}", f"{percent:.2f} %", f"{GOAL_PERCENT} %", percent < GOAL_PERCENT))
    print(harness.table(["H", "step us, silent", "with a bar", "more", "cpu s, silent", "with a bar", "bytes drawn"], rows))
    print()
    print(harness.goals_table(goals))
    harness.write_results(options.json, records=records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
