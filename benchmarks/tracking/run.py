#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What trackers cost those who report: report() of ten metrics on two ranks with all trackers and
without any, and worker.log().

    python benchmarks/tracking/run.py BUILD_DIRECTORY [--rounds 3] [--reports 5000]
        [--peers-python PYTHON] [--json FILE]

Both take turns; of each, the round with the least median counts. With a Python that has ray[train]
2.60, lightning and mlflow, their reports are timed as well. Exit status 1: a run failed.
"""

import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402

PEERS = {"ray": 5, "lightning": 200}  # reports, which take 2 s and 16 ms each
MEDIAN_GOAL_US, P99_GOAL_US, LOG_GOAL_US = 50, 500, 1


def measure(ranks, turn, options):
    program = options.build / "benchmarks" / "tracking" / "tracking_bench"
    records = []
    for which in harness.in_turn(["none", "all"], turn):
        with tempfile.TemporaryDirectory(prefix="rtrain-tracking-") as storage:
            command = harness.mpirun(ranks) + [
                str(program), storage, str(options.reports), str(options.pause_us), which]
            outputs, _, others = harness.run(which, [command])
        print(f"round {turn + 1}: {which}: {others:.2f} cores used by others", file=sys.stderr)
        records += [{"trackers": which, "others": others, **r} for r in outputs[0]]
    if options.peers_python and turn == 0:
        for peer, reports in PEERS.items():
            command = [options.peers_python, str(HERE / "peers.py"), peer, str(reports)]
            outputs, _, others = harness.run(peer, [command])
            records += [{"trackers": peer, "others": others, **r} for r in outputs[0]]
    return records


def main():
    parser = harness.arguments(__doc__)
    parser.add_argument("--reports", type=int, default=5000)
    parser.add_argument("--pause-us", type=int, default=1000)
    parser.add_argument("--peers-python")
    options = parser.parse_args()
    options.ranks = [2]
    records = harness.measure_in_turns(measure, options)
    best = {which: min((r for r in records if r["trackers"] == which), key=lambda r: r["median_us"])
            for which in ("none", "all")}
    print(harness.table(
        ["trackers", "report() median us", "p99 us", "log() median us", "p99 us", "MiB early", "late"],
        [[which, r["median_us"], r["p99_us"], r["log_median_us"], r["log_p99_us"], r["early_mib"],
          r["late_mib"]] for which, r in best.items()]))
    print()
    ours = best["all"]
    for peer in (r for r in records if r["trackers"] in PEERS):
        times = peer["median_us"] / ours["median_us"]
        print(f"{peer['trackers']}: {peer['median_us']} us in the median, {times:,.0f} times as long")
    print(harness.goals_table([
        ("report(), median", f"{ours['median_us']} us", f"{MEDIAN_GOAL_US} us",
         ours["median_us"] < MEDIAN_GOAL_US),
        ("report(), 99 %", f"{ours['p99_us']} us", f"{P99_GOAL_US} us", ours["p99_us"] < P99_GOAL_US),
        ("log(), median", f"{ours['log_median_us']} us", f"{LOG_GOAL_US} us",
         ours["log_median_us"] < LOG_GOAL_US),
    ]))
    harness.write_results(options.json, records=records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
