#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether logs/rank-N.log holds what ranks print, also when they crash, whoever has started them.

Usage: logs_test.py FOLLOWED MPIRUN...

FOLLOWED is followed.cpp's program, MPIRUN what starts two ranks.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

FOLLOWED, MPIRUN = sys.argv[1], sys.argv[2:]
BEGINS = re.compile(r"--- \S+Z attempt (\d+) of process \d+ on \S+ begins")


class Run:
    """Runs of the same name, one after the other."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def start(self, by_driver, fails=False, **options):
        options = {"to_file": 1, "steps": 5} | options
        command = [] if by_driver else MPIRUN
        done = subprocess.run([*command, FOLLOWED, json.dumps(options), str(self.root)], capture_output=True,
                              text=True, timeout=100, check=False)
        assert (done.returncode != 0) == fails, done
        return done

    def log(self, rank):
        return (self.root / "r/logs" / f"rank-{rank}.log").read_text(encoding="utf-8")

    def attempts(self, rank):
        return [int(number) for number in BEGINS.findall(self.log(rank))]


def step_line(rank, step):
    return f"rank {rank} step {step} " + chr(ord("a") + rank) * 600


def check_whole(run, by_driver, done):
    for rank in (0, 1):
        lines = run.log(rank).splitlines()
        assert BEGINS.match(lines[0]) and run.attempts(rank) == [1], lines[0]
        assert [line for line in lines if line.startswith("rank")] == [step_line(rank, i) for i in range(1, 6)]
        errors = [line for line in lines if line.startswith("error")]
        assert errors == [f"error {i} of {rank}" for i in range(1, 6)], errors
        assert len(lines) == 11, lines  # and nothing else: no line of the other rank, none of main()
        prefix = f"[rank {rank}] " if by_driver else ""
        for i in range(1, 6):
            assert prefix + step_line(rank, i) + "\n" in done.stdout
            assert f"{prefix}error {i} of {rank}\n" in done.stderr
    assert "before fit" in done.stdout and "behind fit 5" in done.stdout


def finishes(by_driver):
    with tempfile.TemporaryDirectory() as root:
        run = Run(root)
        check_whole(run, by_driver, run.start(by_driver))
        # The same command goes on with the logs, too; nothing is left to do.
        again = run.start(by_driver)
        assert "behind fit 5" in again.stdout
        # Without to_file, no log is kept.
        run.start(by_driver, to_file=0, steps=6)
        assert "step 6" not in run.log(0)


def crashes_under_mpirun():
    for how in ("abort", "segv", "kill", "exit", "throw"):
        with tempfile.TemporaryDirectory() as root:
            run = Run(root)
            done = run.start(False, fails=True, fail=how)
            lines = run.log(1).splitlines()
            at = lines.index("last words")
            assert step_line(1, 3) in lines[:at], (how, lines)
            assert "last words\n" in done.stdout
            # The stack that Open MPI prints of a crash
            if how in ("abort", "segv") and "*** Process received signal ***" in done.stderr:
                assert lines[-1].endswith("*** End of error message ***"), (how, lines)
            if how == "exit":
                assert any(line.startswith("rtrain: exit() was called") for line in lines[at:]), lines
                assert "rtrain: exit() was called" in done.stderr
            assert step_line(0, 3) in run.log(0).splitlines()
            run.start(False)
            assert run.attempts(1) == [1, 1] and step_line(1, 5) in run.log(1)


def attempts_in_the_same_processes(by_driver):
    with tempfile.TemporaryDirectory() as root:
        run = Run(root)
        run.start(by_driver, fail="throw", failures=1)
        assert run.attempts(0) == [1, 2] and run.attempts(1) == [1, 2], run.log(1)
        assert "last words\n" in run.log(1)
        assert step_line(1, 5) in run.log(1).split("attempt 2")[1]
        if not by_driver:  # lines come in order
            assert "last words\n" in run.log(1).split("attempt 2")[0]


def crashes_under_the_driver():
    with tempfile.TemporaryDirectory() as root:
        run = Run(root)
        run.start(True, fail="abort", failures=1)
        before, behind = run.log(1).split("attempt 2")
        assert "last words\n" in before and step_line(1, 3) in before and step_line(1, 5) in behind
        assert step_line(1, 1) not in behind
        assert run.attempts(0) == [1, 2]


def json_lines(by_driver):
    with tempfile.TemporaryDirectory() as root:
        run = Run(root)
        done = run.start(by_driver, json=1, fail="throw", failures=1, stop=5, steps=9)
        for rank in (0, 1):
            records = [json.loads(line) for line in run.log(rank).splitlines()]
            assert all(record["rank"] == rank and record["time"].endswith("Z") for record in records)
            assert step_line(rank, 5) in [record["message"] for record in records if record.get("stream") == "stdout"]
        own = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        assert any(record["level"] == "info" and "the run stops at report 5" in record["message"] for record in own)
        assert any(record["level"] == "warning" and record["rank"] == 0 for record in own), done.stderr
        assert "rtrain: " not in done.stderr
        prefix = "[rank 1] " if by_driver else ""
        assert prefix + step_line(1, 5) + "\n" in done.stdout


def only_what_matters():
    with tempfile.TemporaryDirectory() as root:
        run = Run(root)
        assert "rtrain: the run stops at report 2" in run.start(False, stop=2).stderr
    with tempfile.TemporaryDirectory() as root:
        done = Run(root).start(False, level="warning", stop=2, fail="throw", fail_at=1, failures=1)
        assert "the run stops" not in done.stderr and "rtrain: restart 1 of 1" in done.stderr
    with tempfile.TemporaryDirectory() as root:
        done = Run(root).start(True, level="error", stop=2, fail="throw", fail_at=1, failures=1)
        assert "rtrain: " not in done.stderr, done.stderr


def no_place_for_logs(by_driver):
    with tempfile.TemporaryDirectory() as root:
        run = Run(root)
        (run.root / "r").mkdir()
        (run.root / "r/logs").write_text("in the way", encoding="utf-8")
        done = run.start(by_driver)
        assert done.stderr.count("may be missing output of the ranks") == (1 if by_driver else 2), done.stderr
        assert "behind fit 5" in done.stdout
        bad = run.start(by_driver, fails=True, level="loud")
        assert "RT-C40" in bad.stderr, bad.stderr


def main():
    for by_driver in (True, False):
        finishes(by_driver)
        attempts_in_the_same_processes(by_driver)
        json_lines(by_driver)
        no_place_for_logs(by_driver)
    crashes_under_mpirun()
    crashes_under_the_driver()
    only_what_matters()
    return 0


if __name__ == "__main__":
    sys.exit(main())
