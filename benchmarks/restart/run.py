#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long two ranks take from their launch to the first step, and from SIGKILL of one of them to
the next: rtrain, torchrun --max-restarts, Ray Train.

    python benchmarks/restart/run.py BUILD_DIRECTORY [--rounds 5] [--kills 2]
        [--ray-python PYTHON] [--json FILE]

Contestants take turns, in another order each round. Exit status 1: a run failed; a missed goal is
only marked.
"""

import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402
from marks import RESTARTED, read_marks  # noqa: E402

RTRAIN, TORCHRUN, RAY = "rtrain", "torchrun", "Ray Train"
RANKS = (0, 1)
PATIENCE_S = 120  # with a kill: peers that take longer are taken to have given up
LAUNCH_PATIENCE_S = 300
KILL_LIMIT_S, OF_RAY, OF_TORCHRUN, LAUNCH_OF_TORCHRUN = 2.5, 5, 3, 3
# How rtrain comes from a kill to the next step: what ends each part.
PARTS = [
    ("restart", "noticed, and the attempt ended"),
    ("main", "launched anew, to main()"),
    ("training", "joined, the run taken up"),
    ("step", "state loaded, first step"),
]


def contestants(options, directory):
    """Name: the command line."""
    torchrun = harness.torchrun(options.python, len(RANKS)) + ["--max-restarts", "100"]
    commands = {
        RTRAIN: [str(options.build / "benchmarks" / "restart" / "restart_bench"), directory],
        TORCHRUN: [*torchrun, str(HERE / "peers.py"), directory],
    }
    if options.ray_python:
        commands[RAY] = [str(options.ray_python), str(HERE / "ray_peer.py"), directory]
    return commands


class Job:
    """A contestant that runs."""

    def __init__(self, name, words, directory):
        self.name, self.directory = name, directory
        self.lines = []  # of output, each with the time when it came
        self.started = time.time()
        self.process = subprocess.Popen(
            words,
            env=harness.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.time(), line))

    def wait_for(self, condition, what, patience):
        """What `condition(marks)` returns, once it is true."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            found = condition(read_marks(self.directory))
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        output = "".join(line for _, line in self.lines[-50:])
        raise harness.Failure(f"{self.name}: no {what}\n{output}")

    def first_steps(self):
        """Of all ranks, when the last has made its first."""

        def condition(marks):
            steps = [m for m in marks if m.what == "step"]
            times = [min((m.time for m in steps if m.rank == r), default=None) for r in RANKS]
            return None if None in times else max(times)

        return self.wait_for(condition, "first step", LAUNCH_PATIENCE_S)

    def kill_rank(self, rank):
        """Kills it. Returns when, and when its successor has made a step."""
        marks = read_marks(self.directory)
        process = [m.process for m in marks if m.rank == rank and m.what == "step"][-1]
        killed = time.time()
        os.kill(process, signal.SIGKILL)

        def condition(later):
            mine = [m for m in later if m.rank == rank and m.process != process]
            steps = [m.time for m in mine if m.time > killed and m.what == "step"]
            return steps and steps[0]

        return killed, self.wait_for(condition, "step after a kill", PATIENCE_S)

    def attempts(self):
        """How often training was begun."""
        marks = read_marks(self.directory)
        return len({m.process for m in marks if m.rank == 0 and m.what == "training"})

    def parts(self, killed, rank):
        """Seconds from the kill to each of the PARTS that marks tell."""
        times = {}
        for when, line in self.lines:
            if when > killed and RESTARTED.search(line):
                times.setdefault("restart", when - killed)
        for mark in read_marks(self.directory):
            if mark.time > killed and mark.rank == rank:
                times.setdefault(mark.what, mark.time - killed)
        return times

    def stop(self):
        harness.stop(self.process)
        self.reader.join()


def kill_rank(job, rank):
    """As Job.kill_rank(); peers may never come to the next step, rtrain must."""
    killed = time.time()
    try:
        return job.kill_rank(rank)
    except harness.Failure as failure:
        if job.name == RTRAIN:
            raise
        print(f"{failure}", file=sys.stderr)
        return killed, killed + PATIENCE_S


def measure(name, options, turn):
    """One run of one contestant: its launch, and some kills."""
    chance = random.Random(turn)
    with tempfile.TemporaryDirectory(prefix="restart-", ignore_cleanup_errors=True) as directory:
        others = harness.cpu_of_others()
        job = Job(name, contestants(options, directory)[name], directory)
        try:
            launch = job.first_steps() - job.started
            records = []
            for number in range(options.kills):
                time.sleep(chance.uniform(0.5, 1.5))  # some steps, some checkpoints
                rank = RANKS[number % len(RANKS)]
                before = job.attempts()
                killed, next_step = kill_rank(job, rank)
                records.append(
                    {
                        "seconds": next_step - killed,
                        "restarts": job.attempts() - before,
                        "parts": job.parts(killed, rank),
                    }
                )
                if next_step - killed >= PATIENCE_S:
                    break
        finally:
            job.stop()
    return {"contestant": name, "round": turn, "launch_s": launch, "kills": records}


def of(records, name):
    """Seconds of launches and of kills, and restarts a kill."""
    mine = [r for r in records if r["contestant"] == name]
    kills = [kill for r in mine for kill in r["kills"]]
    return (
        [r["launch_s"] for r in mine],
        [kill["seconds"] for kill in kills],
        [kill["restarts"] for kill in kills],
    )


def seconds_text(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f})"


def goals(records):
    """Measure, value, goal, whether it is met."""
    names = dict.fromkeys(r["contestant"] for r in records)
    medians = {n: [statistics.median(v) for v in of(records, n)[:2]] for n in names}
    launch, kill = medians[RTRAIN]
    restarts = of(records, RTRAIN)[2]
    rows = [
        ("kill to next step", f"{kill:.2f} s", f"<= {KILL_LIMIT_S} s", kill <= KILL_LIMIT_S),
        ("restarts a kill", f"{min(restarts)} to {max(restarts)}", "1", set(restarts) == {1}),
    ]
    wanted = [(TORCHRUN, 1, "kill to next step", OF_TORCHRUN), (RAY, 1, "kill to next step", OF_RAY)]
    wanted += [(TORCHRUN, 0, "launch to first step", LAUNCH_OF_TORCHRUN), (RAY, 0, "launch to first step", None)]
    for peer, which, what, goal in wanted:
        if peer in medians:
            ratio = medians[peer][which] / (launch, kill)[which]
            rows.append(
                (
                    f"{what}: {peer} / {RTRAIN}",
                    f"{ratio:.1f}",
                    f">= {goal}" if goal else "",
                    ratio >= goal if goal else None,
                )
            )
    return rows


def parts_table(records):
    """Medians of what rtrain's time from a kill to the next step consists of."""
    kills = [k["parts"] for r in records if r["contestant"] == RTRAIN for k in r["kills"]]
    rows, before = [], "kill"
    for what, text in PARTS:
        spans = [k[what] - (0 if before == "kill" else k[before]) for k in kills if what in k]
        if spans:
            rows.append((text, f"{statistics.median(spans):.2f}", f"{min(spans):.2f}"))
            before = what
    return harness.table(["from kill to next step, rtrain", "median s", "minimum s"], rows)


def report(records):
    names = dict.fromkeys(r["contestant"] for r in records)
    rows = []
    for name in names:
        launches, kills, restarts = of(records, name)
        spent = f"{statistics.mean(restarts):.2f}"
        rows.append((name, seconds_text(launches), seconds_text(kills), len(kills), spent))
    head = ["contestant", "launch to first step s", "kill to next step s", "kills", "restarts a kill"]
    text = f"Medians; minima in parentheses. {PATIENCE_S} s: it did not come to a next step at all."
    return "\n\n".join(
        [harness.table(head, rows), text, parts_table(records), harness.goals_table(goals(records))]
    )


def parse_arguments():
    parser = harness.arguments(__doc__, rounds=5, python="torch", ray=True)
    parser.add_argument("--kills", type=int, default=2, help="of each run")
    return parser.parse_args()


def main():
    options = parse_arguments()
    harness.end_on_sigterm()
    records = []
    try:
        for turn in range(options.rounds):
            for name in harness.in_turn(contestants(options, ""), turn):
                records.append(measure(name, options, turn))
                kills = ", ".join(f"{kill['seconds']:.2f}" for kill in records[-1]["kills"])
                print(
                    f"round {turn + 1}: {name}: launch {records[-1]['launch_s']:.2f} s, kills "
                    f"{kills} s",
                    file=sys.stderr,
                )
    except harness.Failure as failure:
        sys.exit(str(failure))
    print(report(records))
    harness.write_results(options.json, records=records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
