#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint in the background costs training with AdamW, 256 MiB of state: rtrain, and
PyTorch's DCP.

    python benchmarks/checkpoint/stall.py BUILD_DIRECTORY [--ranks 1,2] [--rounds 3]
        [--directory DISK] [--json FILE]

Contestants take turns, in another order each round. Exit status 1: a run failed; a missed goal is
only marked.
"""

import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402

RTRAIN = {
    "async": "Async, late_copies",
    "async-sharded": "AsyncSharded, late_copies",
    "sharded-model": "AsyncSharded, sharded model",
    "at-once": "Async, copied at once",
}
PEER = "DCP async_save, buffers kept"
STALL_S, BESIDE = 0.010, 1.05


def contestants(ranks, options, directory):
    """Name: the command line."""
    work = [str(directory), str(options.checkpoints)]
    program = str(options.build / "benchmarks" / "checkpoint" / "stall_bench")
    commands = {
        name: harness.mpirun(ranks) + [program, policy, *work] for policy, name in RTRAIN.items()
    }
    script = [str(HERE / "stall_peer.py"), *work]
    commands[PEER] = harness.torchrun(options.python, ranks) + script
    return commands


def measure(ranks, turn, options):
    """One round: the records of all contestants."""
    records = []
    for name in harness.in_turn(contestants(ranks, options, ""), turn):
        with tempfile.TemporaryDirectory(prefix="rtrain-stall-", dir=options.directory) as directory:
            command = contestants(ranks, options, directory)[name]
            outputs, _, others = harness.run(f"{name}, {ranks} ranks", [command])
        print(
            f"round {turn + 1}: {name}, {ranks} ranks: {others:.2f} cores used by others",
            file=sys.stderr,
        )
        records += [{**line, "contestant": name, "others": others} for line in outputs[0]]
    return [{"ranks": ranks, "round": turn, **record} for record in records]


def report(records):
    """Least of all checkpoints but a process's first, which takes memory; a neighbour can only add."""
    sections = []
    for ranks in dict.fromkeys(r["ranks"] for r in records):
        rows, found = [], {}
        for name in [*RTRAIN.values(), PEER]:
            mine = [r for r in records if r["ranks"] == ranks and r["contestant"] == name]
            later = [r for r in mine if r["checkpoint"] > 0]
            quiet = min(r["quiet_s"] for r in mine)
            times = [min(r[key] for r in later) for key in ("stall_s", "beside_s")]
            found[name] = (times[0], times[1] / quiet)
            first = min(r["stall_s"] for r in mine if r["checkpoint"] == 0)
            rows.append(
                (
                    name,
                    *(f"{1e3 * value:.1f}" for value in (times[0], first, quiet, times[1])),
                    f"{times[1] / quiet:.2f}",
                )
            )
        head = ["contestant", "stall ms", "first ms", "step ms", "step beside ms", "beside / step"]
        goals = []
        for name in list(RTRAIN.values())[:3]:
            stall, beside = found[name]
            goals += [
                (f"{name}: stall", f"{1e3 * stall:.1f} ms", "<= 10 ms", stall <= STALL_S),
                (
                    f"{name}: stall / {PEER}",
                    f"{stall / found[PEER][0]:.2f}",
                    "< 1",
                    stall < found[PEER][0],
                ),
                (
                    f"{name}: step beside the copy / step",
                    f"{beside:.2f}",
                    f"<= {BESIDE}",
                    beside <= BESIDE,
                ),
            ]
        title = f"### {ranks} rank{'s' if ranks > 1 else ''}"
        sections += [title, harness.table(head, rows), harness.goals_table(goals)]
    return "\n\n".join(sections)


def main():
    parser = harness.arguments(__doc__, ranks=[1, 2], python="torch")
    parser.add_argument("--checkpoints", type=int, default=4, help="of each process, at least 2")
    parser.add_argument("--directory", type=pathlib.Path, help="on the disk to be measured")
    options = parser.parse_args()
    return harness.run_in_turns(measure, report, options)


if __name__ == "__main__":
    sys.exit(main())
