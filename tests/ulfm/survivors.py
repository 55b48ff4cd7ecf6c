#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks die, and the others go on in their processes: runs the program `survivors` with an MPI that
has ULFM, kills ranks in the middle of training, and looks at what is left.

    python3 tests/ulfm/survivors.py --mpi build/ompi5 build/release/tests/ulfm/survivors

--times N kills a rank of 4 in N more runs and prints how long the others take to their next step.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROWS = 500
failures = []


def check(condition, what, output=""):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}\n{output}", flush=True)


class Run:
    """One run of the program, to its end."""

    def __init__(self, variant, at_least, at_most, *deaths, max_failures=3, mpirun=None):
        self.storage = pathlib.Path(tempfile.mkdtemp(prefix="rtrain-survivors-"))
        words = [options.program, str(self.storage), variant, at_least, at_most, max_failures]
        began = time.monotonic()
        try:
            ended = subprocess.run(
                [*(mpirun or []), *map(str, words), *deaths],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
                timeout=120,
            )
            self.status, self.output = ended.returncode, ended.stdout
        except subprocess.TimeoutExpired as late:
            self.status = "none within 120 s"
            self.output = (late.stdout or b"").decode()
        self.seconds = time.monotonic() - began
        if options.verbose:
            print(self.output)

    def lines(self, name):
        path = self.storage / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def bits(self):
        found = re.search(r"BITS (\w+)", self.output)
        return found and found[1]

    def attempts(self):
        """The processes by rank, of each call of the training function."""
        calls = []
        for rank, size, process in self.lines("starts"):
            if not calls or len(calls[-1]) == calls[-1]["size"] + 1 or calls[-1]["size"] != size:
                calls.append({"size": size})
            calls[-1][int(rank)] = process
            calls[-1]["size"] = int(size)
        return calls

    def processes(self):
        """The processes of each size of the world that there was."""
        sizes = collections.OrderedDict()
        for _, size, process in self.lines("starts"):
            sizes.setdefault(int(size), []).append(process)
        return {size: set(processes) for size, processes in sizes.items()}

    def recovery_s(self):
        """From a death to the next step."""
        died = float(self.lines("deaths")[0][1])
        return min(float(at) for _, at in self.lines("steps") if float(at) > died) - died


def check_finished(run, name):
    check(run.status == 0, f"{name}: exit status {run.status}", run.output)
    lines = (run.storage / "run" / "result.json").read_text().splitlines()
    iterations = [json.loads(line)["training_iteration"] for line in lines]
    check(
        iterations == list(range(1, len(iterations) + 1)),
        f"{name}: iterations {iterations}",
        run.output,
    )
    check(f"RESULT {len(iterations)}" in run.output, f"{name}: result", run.output)
    for epoch in (0, 1):
        taken = collections.Counter()
        for path in (run.storage / "rows").glob(f"{epoch}-*"):
            taken.update(map(int, path.read_text().split()))
        check(
            taken == collections.Counter(range(ROWS)),
            f"{name}: epoch {epoch} takes each row once, but for {(taken - collections.Counter(range(ROWS)))}"
            f" and without {collections.Counter(range(ROWS)) - taken}",
            run.output,
        )
    check_nothing_is_left(run, name)


def check_nothing_is_left(run, name):
    for _ in range(50):
        found = subprocess.run(
            ["pgrep", "-f", f"survivors {run.storage}"], capture_output=True, text=True
        ).stdout
        if not found:
            return
        time.sleep(0.1)
    check(False, f"{name}: processes {found.split()} are left")


def check_survivors(run, name, before, after):
    """The world shrank, and all that were in it later were in it from the beginning."""
    worlds = run.processes()
    check(set(worlds) == {before, after}, f"{name}: sizes {set(worlds)}", run.output)
    check(
        len(worlds.get(after, ())) == after and worlds[after] <= worlds[before],
        f"{name}: processes {worlds}",
        run.output,
    )


def survivors_go_on():
    undisturbed = Run("bits", 1, 1)
    check_finished(undisturbed, "undisturbed")
    check(undisturbed.bits(), "no bits", undisturbed.output)
    for victim in (0, 1):
        name = f"bits, rank {victim} of 2 dies"
        run = Run("bits", 1, 2, f"{victim}:11:kill")
        check_finished(run, name)
        check_survivors(run, name, 2, 1)
        check(run.bits() == undisturbed.bits(), f"{name}: bits", run.output)
    for ranks, victim in ((3, 0), (3, 2), (4, 0), (4, 2)):
        name = f"rank {victim} of {ranks} dies"
        run = Run("rows", 2, ranks, f"{victim}:11:kill")
        check_finished(run, name)
        check_survivors(run, name, ranks, ranks - 1)
        check("restart 1 of 3" in run.output, f"{name}: charged", run.output)
    name = "two ranks of 4 die, one after the other"
    run = Run("rows", 2, 4, "0:5:kill", "2:20:kill")
    check_finished(run, name)
    worlds = run.processes()
    check(set(worlds) == {4, 3, 2}, f"{name}: {worlds}", run.output)
    check(worlds[2] < worlds[3] < worlds[4], f"{name}: {worlds}", run.output)
    check("restart 2 of 3" in run.output, f"{name}: charged", run.output)


def all_start_anew_where_that_cannot_be():
    name = "the range allows no fewer"
    run = Run("rows", 3, 3, "1:11:kill")
    check_finished(run, name)
    check("num_workers does not allow fewer ranks" in run.output, f"{name}: reason", run.output)
    check(len(run.processes()[3]) == 6, f"{name}: {run.processes()}", run.output)
    name = "a second death is one too many"
    run = Run("rows", 3, 4, "1:5:kill", "2:20:kill")
    check_finished(run, name)
    check(len(run.processes()[4]) == 8, f"{name}: {run.processes()}", run.output)
    check("restart 2 of 3" in run.output, f"{name}: charged", run.output)
    name = "a rank calls _exit(), which this MPI does not notice"
    run = Run("rows", 2, 3, "1:11:exit")
    check_finished(run, name)
    check("restart 1 of 3" in run.output, f"{name}: charged", run.output)
    check("restart 2 of 3" not in run.output, f"{name}: charged twice", run.output)


def the_budget_is_kept():
    name = "max_failures is used up"
    run = Run("rows", 2, 4, "1:5:kill", "0:20:kill", max_failures=1)
    check(run.status == 1, f"{name}: status {run.status}", run.output)
    check("max_failures = 1 is used up" in run.output or "ERROR" in run.output, name, run.output)
    check_nothing_is_left(run, name)


def under_mpirun():
    mpirun = [str(options.mpi / "bin/mpirun"), "--oversubscribe", "--bind-to", "none", "-n"]
    for victim in (0, 2):
        name = f"mpirun, rank {victim} of 3 dies"
        run = Run("rows", 2, 3, f"{victim}:11:kill", mpirun=[*mpirun, "3", "--with-ft", "ulfm"])
        check("continuing with 2 ranks" in run.output, name, run.output)
        check_finished(run, name)
        check_survivors(run, name, 3, 2)
    for name, least, death, reason in (
        ("mpirun, a rank calls _exit()", 2, "1:11:exit", "[RT-X14]"),
        ("mpirun, the range allows no fewer", 3, "1:11:kill", "fewer than num_workers allows"),
    ):
        run = Run("rows", least, 3, death, mpirun=[*mpirun, "3", "--with-ft", "ulfm"])
        check(run.status == 1, f"{name}: status {run.status}", run.output)
        check(run.output.count("[RT-T1]") == 2, f"{name}: error", run.output)
        check(reason in run.output, f"{name}: reason", run.output)
        check_nothing_is_left(run, name)
    name = "mpirun without fault tolerance"
    run = Run("rows", 2, 3, "1:11:kill", mpirun=[*mpirun, "3"])
    check(run.status != 0, f"{name}: status 0", run.output)
    check("keep_survivors has no effect" in run.output, f"{name}: reason", run.output)
    check_nothing_is_left(run, name)


def measure():
    times = []
    for i in range(options.times):
        run = Run("rows", 2, 4, f"{i % 4}:{8 + i % 7}:kill")
        if run.status == 0 and 3 in run.processes() and run.seconds < 20:
            times.append(run.recovery_s())
        else:
            print(f"no survivors, status {run.status}, {run.seconds:.0f} s:\n{run.output}")
    times.sort()
    print(
        f"{len(times)} of {options.times} survived; from the death of a rank of 4 to the next step: "
        f"median {statistics.median(times):.3f} s, from {times[0]:.3f} to {times[-1]:.3f} s"
    )


parser = argparse.ArgumentParser()
parser.add_argument("program", type=pathlib.Path)
parser.add_argument("--mpi", type=pathlib.Path, required=True)
parser.add_argument("--times", type=int, default=0)
parser.add_argument("--only", help="the name of one test")
parser.add_argument("--verbose", action="store_true")
options = parser.parse_args()
environment = os.environ | {
    "PATH": f"{options.mpi / 'bin'}:{os.environ['PATH']}",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
for test in (survivors_go_on, all_start_anew_where_that_cannot_be, the_budget_is_kept, under_mpirun):
    if options.only in (None, test.__name__):
        print(f"== {test.__name__}", flush=True)
        test()
if options.times:
    measure()
sys.exit(1 if failures else 0)
