#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of its time a run trains for that is killed again and again, and saves as often as
rtrain finds best.

    python benchmarks/goodput/run.py BUILD_DIRECTORY [--minutes 10] [--mtbf 60]
        [--reference-share 0.2] [--seed 1] [--directory DIRECTORY] [--json FILE]

A reference without kills and without checkpoints makes half of its steps before the run and half
behind it. Exit status 1: a run failed; a missed goal is only marked.
"""

import argparse
import itertools
import json
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

RANKS = (0, 1)
STEP_S, REPORT_EVERY = 0.05, 5  # of goodput.cpp
GOODPUT, FAILURE_LIMIT_S = 0.94, 3.5
PATIENCE = 3  # times as long as planned


class Killer(threading.Thread):
    """Kills a random rank after exponentially distributed gaps, from the first step on, while a
    process runs. The first gaps, as many as are expected in `planned_s`, are scaled to `mean_s` on
    average, so that chance decides when kills come, but not how many."""

    def __init__(self, process, directory, mean_s, planned_s, seed):
        super().__init__()
        self.process, self.directory = process, directory
        self.chance = random.Random(seed)
        first = [self.chance.expovariate(1) for _ in range(max(1, round(planned_s / mean_s)))]
        scaled = [gap * mean_s * len(first) / sum(first) for gap in first]
        later = (self.chance.expovariate(1 / mean_s) for _ in itertools.count())
        self.gaps = itertools.chain(scaled, later)
        self.kills = []  # times
        self.start()

    def run(self):
        while not any(m.what == "step" for m in read_marks(self.directory)):
            if not self.wait(0.1):
                return
        at = time.time()
        while True:
            at += next(self.gaps)
            rank = self.chance.choice(RANKS)
            while not (time.time() >= at and self.kill(rank)):
                if not self.wait(min(0.05, max(0, at - time.time()) + 0.001)):
                    return

    def wait(self, seconds):
        """Whether the process still runs then."""
        time.sleep(seconds)
        return self.process.poll() is None

    def kill(self, rank):
        """Whether there was one to kill: after a kill, the next must have begun to train."""
        mine = [m for m in read_marks(self.directory) if m.rank == rank]
        now = time.time()
        try:
            os.kill(mine[-1].process, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.kills.append(now)
        return True


def run(options, steps, mean_s):
    """A run of so many steps: its marks, its kills, when the driver started anew, what it printed."""
    words = [options.build / "benchmarks" / "goodput" / "goodput_bench"]
    patience_s = 60 + steps * STEP_S * PATIENCE
    with tempfile.TemporaryDirectory(
        prefix="goodput-", dir=options.directory, ignore_cleanup_errors=True
    ) as directory:
        process = subprocess.Popen(
            [*map(str, words), directory, str(steps), str(mean_s)],
            env=harness.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        limit = threading.Timer(patience_s, harness.stop, [process])
        limit.start()
        killer = None
        if mean_s:
            killer = Killer(process, directory, mean_s, steps * STEP_S, options.seed)
        lines, restarts = [], []
        try:
            for line in process.stdout:
                lines.append(line)
                if RESTARTED.search(line):
                    restarts.append(time.time())
            process.wait(30)
        finally:
            limit.cancel()
            harness.stop(process)
            if killer:
                killer.join()
        printed = [json.loads(line) for line in lines if line.startswith("{")]
        expected = {"reports": steps // REPORT_EVERY, "step": steps}
        if process.returncode != 0 or printed != [expected]:
            raise harness.Failure(f"the run ended with {process.returncode}:\n{''.join(lines[-50:])}")
        log = pathlib.Path(directory, "run", "result.json").read_text().splitlines()
        checkpoints = sum(json.loads(line)["checkpoint_dir_name"] is not None for line in log)
        return read_marks(directory), killer.kills if killer else [], restarts, checkpoints


def seconds_of(marks):
    """From the beginning of the first step to the end of the last."""
    begin = max(m.time for m in marks if m.what == "restored" and m.process in first_processes(marks))
    return max(m.time for m in marks if m.what == "step") - begin


def first_processes(marks):
    first = {}
    for mark in marks:
        first.setdefault(mark.rank, mark.process)
    return first.values()


def failures(marks, kills, restarts):
    """What the kills have cost, in seconds: the work that was done again, until the driver had
    noticed and ended the others, and until the last rank had loaded the state. A kill while the run
    comes up from another belongs to that failure."""
    found = []
    for kill in kills:
        if found and kill < found[-1]["ends"]:
            found[-1]["kills"] += 1
            continue
        processes = {m.process for m in marks if m.time < kill}
        later = [m for m in marks if m.process not in processes]
        # Attempts that were killed as well have fewer ranks that came to the end of loading, or
        # made no step.
        step = next((m for m in later if m.rank == 0 and m.what == "step"), None)
        restart = next((when for when in restarts if when > kill), None)
        if step is None or restart is None:  # killed behind its last step
            continue
        loaded = [m for m in later if m.what == "restored" and m.time < step.time]
        ends = loaded[-1].time
        resumed = step.step - 1
        kept = [
            m.time
            for m in marks
            if m.rank == 0 and m.time < kill and m.what in ("step", "restored") and m.step == resumed
        ]
        found.append(
            {
                "at": kill,
                "ends": ends,
                "kills": 1,
                "lost": kill - kept[-1],
                "detect": restart - kill,
                "restart": ends - restart,
            }
        )
    return found


def report_seconds(marks):
    """What rank 0's reports took, in all, and their median."""
    done = {}
    took = []
    for mark in marks:
        if mark.rank == 0 and mark.what == "step":
            done[mark.step] = mark.time
        elif mark.rank == 0 and mark.what == "reported":
            took.append(mark.time - done[mark.step])
    return sum(took), statistics.median(took)


def measure(options):
    steps = int(options.minutes * 60 / STEP_S / REPORT_EVERY) * REPORT_EVERY
    half = max(1, int(steps * options.reference_share / 2 / REPORT_EVERY)) * REPORT_EVERY
    others, began = harness.cpu_of_others(), time.time()
    references = []

    def reference():
        marks = run(options, half, 0)[0]
        references.append((seconds_of(marks) / half, report_seconds(marks)[1]))
        print(f"reference: {references[-1][0] * 1000:.1f} ms a step", file=sys.stderr)

    reference()
    marks, kills, restarts, checkpoints = run(options, steps, options.mtbf)
    load = os.getloadavg()[1]  # of the last 5 minutes
    reference()
    in_reports, _ = report_seconds(marks)
    reports = sum(m.what == "reported" and m.rank == 0 for m in marks)
    return {
        "steps": steps,
        "mtbf_s": options.mtbf,
        "wall_s": seconds_of(marks),
        "reference_step_s": [seconds for seconds, _ in references],
        "kills": len(kills),
        "failures": failures(marks, kills, restarts),
        "checkpoints": checkpoints,
        "stalls_s": in_reports - reports * statistics.mean(report for _, report in references),
        "load": load,
        "cores_of_others": (harness.cpu_of_others() - others) / (time.time() - began),
    }


def report(record):
    wall = record["wall_s"]
    useful = statistics.mean(record["reference_step_s"]) * record["steps"]
    goodput = useful / wall
    found = record["failures"]
    text = [
        f"{record['steps']} steps of {useful / record['steps'] * 1000:.1f} ms, in "
        f"{wall / 60:.1f} minutes; {record['kills']} kills, {record['mtbf_s']:g} s apart on "
        f"average; {record['checkpoints']} checkpoints in the work that was not lost. Load average "
        f"{record['load']:.1f}; other processes used {record['cores_of_others']:.2f} cores."
    ]
    rows = []
    spent = 0.0
    for name, title in (
        ("lost", "repeated work"),
        ("detect", "detection, and end of the attempt"),
        ("restart", "restart, state loaded"),
        ("all", "total"),
    ):
        parts = [f["lost"] + f["detect"] + f["restart"] if name == "all" else f[name] for f in found]
        if not parts:
            continue
        rows.append([title, *(f"{f(parts):.2f}" for f in (statistics.median, statistics.mean, max))])
        rows[-1].append(f"{sum(parts) / wall * 100:.1f} %")
        spent = sum(parts)
    stalls = record["stalls_s"]
    rest = wall - useful - spent - stalls
    rows.append(["waiting for checkpoints", "", "", "", f"{stalls / wall * 100:.1f} %"])
    rows.append(["slower steps", "", "", "", f"{rest / wall * 100:.1f} %"])
    text.append(
        harness.table(["per failure", "median, s", "mean, s", "max, s", "of the time"], rows)
    )
    mean = spent / max(1, len(found))
    text.append(
        harness.goals_table(
            [
                ("goodput", f"{goodput * 100:.1f} %", f">= {GOODPUT * 100:.0f} %", goodput >= GOODPUT),
                (
                    "a failure costs, on average",
                    f"{mean:.2f} s",
                    f"<= {FAILURE_LIMIT_S} s",
                    mean <= FAILURE_LIMIT_S,
                ),
            ]
        )
    )
    return "\n\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=pathlib.Path, help="where goodput_bench was built")
    parser.add_argument("--minutes", type=float, default=10, help="of undisturbed steps")
    parser.add_argument("--mtbf", type=float, default=60, help="mean seconds between two kills")
    parser.add_argument("--reference-share", type=float, default=0.2, help="of the run's steps")
    parser.add_argument("--seed", type=int, default=1, help="decides when who is killed")
    parser.add_argument("--directory", type=pathlib.Path, help="on the disk for checkpoints")
    parser.add_argument("--json", type=pathlib.Path, help="where to write all raw numbers")
    options = parser.parse_args()
    harness.end_on_sigterm()
    try:
        record = measure(options)
    except harness.Failure as failure:
        sys.exit(str(failure))
    print(report(record))
    harness.write_results(options.json, record=record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
