#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ten metrics of all ranks cost a report: rtrain beside torchmetrics.

    python benchmarks/metrics/run.py BUILD_DIRECTORY [--rounds 3] [--json FILE]

Both run in each round, in turns; the medians of rounds count. Exit status 1: a run failed. The Python
must have torch and torchmetrics.
"""

import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402

GOAL_US = 20
ROWS = ["update", "reduce", "report", "report of ten"]


def measure(ranks, turn, options):
    records = []
    with tempfile.TemporaryDirectory(prefix="rtrain-metrics-") as storage:
        program = str(options.build / "benchmarks" / "metrics" / "metrics_bench")
        commands = {
            "rtrain": harness.mpirun(ranks) + [program, storage, str(options.samples)],
            "torchmetrics": harness.torchrun(options.python, ranks)
            + [str(HERE / "torchmetrics_peer.py"), str(options.samples // 10)],
        }
        for name, command in harness.in_turn(commands.items(), turn):
            outputs, _, others = harness.run(name, [command])
            print(f"round {turn + 1}: {name}, {ranks} ranks: {others:.2f} cores used by others", file=sys.stderr)
            records += [{"who": name, "ranks": ranks, "round": turn, "others": others, **r} for r in outputs[0]]
    return records


def report(records):
    times = {}
    for r in records:
        times.setdefault((r["ranks"], r["who"], r["what"]), []).append((r["median_us"], r["p99_us"]))
    typical = {key: [statistics.median(values) for values in zip(*all_of)] for key, all_of in times.items()}
    rows, goals = [], []
    for ranks in sorted({key[0] for key in typical}):
        for what in ROWS:
            ours = typical[ranks, "rtrain", what]
            theirs = typical.get((ranks, "torchmetrics", what))
            rows.append([ranks, what, f"{ours[0]:.1f} ({ours[1]:.0f})",
                         f"{theirs[0]:.0f} ({theirs[1]:.0f})" if theirs else "",
                         f"{theirs[0] / ours[0]:.0f}" if theirs else ""])
        added = typical[ranks, "rtrain", "report of ten"][0] - typical[ranks, "rtrain", "report"][0]
        goals.append((f"what ten metrics add to a report, {ranks} ranks", f"{added:.1f} us", f"< {GOAL_US} us",
                      added < GOAL_US))
    head = ["ranks", "", "rtrain us", "torchmetrics us", "ratio"]
    return "\n\n".join(["Medians (99th percentiles).", harness.table(head, rows), harness.goals_table(goals)])


def main():
    parser = harness.arguments(__doc__, ranks=[1, 2], python="torch and torchmetrics")
    parser.add_argument("--samples", type=int, default=1000, help="reports of rtrain; torchmetrics takes a tenth")
    options = parser.parse_args()
    return harness.run_in_turns(measure, report, options)


if __name__ == "__main__":
    sys.exit(main())
