#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`rtrain run` beside torchrun and processes started by hand, interleaved: seconds from the command to the start of the
last rank, to the first all-reduce, and from a SIGKILL to the next one; then what driver and parents cost, the memory of
ranks with and without --preload, and the tool.

Linux shares cores among sessions (sched_autogroup_enabled), and torchrun makes one for each rank. On a busy machine its
ranks would get more, so all ranks have their own where starts are compared.

With --search, instead, seconds from the end of a trial's script to the start of the next one's, after its imports.

Usage: programs.py TOOL [--ranks N] [--rounds N] [--limit SECONDS] [--search SEARCHING], with a python3 that has torch;
SEARCHING is the program of tests/program_search"""
import argparse
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

STEP = str(pathlib.Path(__file__).resolve().parent / "step.py")
TRIAL = str(pathlib.Path(__file__).resolve().parent / "trial.py")
RESTARTS = "10"


NOTE_START = ["sh", "-c", "date '+start %s.%N' >> $TIMES"]
MODULE = str(pathlib.Path(__file__).resolve().parents[2] / "examples/python")


def commands(tool, ranks, storage, program):
    rtrain = [tool, "run", "--storage", storage, "-n", str(ranks), "--max-restarts", RESTARTS]
    forked = {"rtrain --preload": [*rtrain, "--preload", "torch", STEP]} if STEP in program else {}
    return {"rtrain": [*rtrain, *program], **forked,
            "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                         "--max-restarts", RESTARTS, *program]}


def by_hand(ranks, program):
    """A shell that starts the ranks, with the variables set."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    script = "".join(f"RANK={rank} LOCAL_RANK={rank} {shlex.join(program)} & " for rank in range(ranks)) + "wait"
    return ["env", f"WORLD_SIZE={ranks}", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", "sh", "-c", script]


def environment(times, **variables):
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": MODULE, "TIMES": times, **variables,
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}


def descendants(process):
    children = subprocess.run(["ps", "--ppid", str(process), "-o", "pid="], capture_output=True, text=True, check=False)
    return [each for child in map(int, children.stdout.split()) for each in [child, *descendants(child)]]


def end(process):
    """With all that it has started: workers of a killed torchrun stay, and wait for each other."""
    for each in [process.pid, *descendants(process.pid)]:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def notes_of(words, limit, **variables):
    """What step.py has written, and when the command began."""
    with tempfile.NamedTemporaryFile("r") as times:
        began = time.time()
        process = subprocess.Popen(words, env=environment(times.name, **variables), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            end(process)
        lines = [line.split() for line in pathlib.Path(times.name).read_text().splitlines()]
    return began, [(what, float(seconds)) for what, seconds in lines]


def parts(notes, began):
    """Seconds from `began` to the next all-reduce: to the start of the last rank, its imports, and the rest. Empty if
    there was none."""
    tick = 0.01  # of the time at which a process was started
    last = {what: when for what, when in sorted(notes, key=lambda note: note[1])
            if when > began - (tick if what == "started" else 0)}
    if "all_reduce" not in last:
        return []
    times = [began, last["started"], last["imported"], last["all_reduce"]]
    return [[after - before for before, after in zip(times, times[1:])]]


def start(words, limit):
    began, notes = notes_of(words, limit)
    return parts(notes, began)


def launch(words, limit):
    began, notes = notes_of(words, limit)
    return max(when for _, when in notes) - began


def print_starts(tool, storage, given):
    program = ["setsid", "-w", sys.executable, STEP]
    words = commands(tool, given.ranks, storage, ["--no-python", *program])
    seconds = {name: [] for name in [*words, "by hand"]}
    for _ in range(given.rounds):
        for name in seconds:
            seconds[name] += start(words.get(name) or by_hand(given.ranks, program), given.limit)
    for name, each in seconds.items():
        print_parts(f"command to the first all-reduce, {name}", each)


def print_launches(tool, storage, given):
    words = commands(tool, given.ranks, storage, ["--no-python", *NOTE_START])
    words["by hand"] = by_hand(given.ranks, NOTE_START)
    seconds = {name: [] for name in words}
    for _ in range(given.rounds):
        for name, each in words.items():
            seconds[name].append(launch(each, given.limit))
    for name, each in seconds.items():
        print(f"command to the start of the last rank, {name}: {figures(each)}")


def restart(words, limit):
    """How many were killed, 0 or 1; and the parts of the time from the kill to the next all-reduce."""
    _, notes = notes_of(words, limit, KILL="1")
    kill = [when for what, when in notes if what == "kill"]
    return len(kill), parts(notes, kill[0]) if kill else []


@contextlib.contextmanager
def sleeping(words, after="all_reduce", count=1, **variables):
    """A run whose ranks sleep after step.py has noted `after`."""
    with tempfile.NamedTemporaryFile("r") as times:
        run = subprocess.Popen(words, env=environment(times.name, WAIT="1000", **variables), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        while pathlib.Path(times.name).read_text().count(after) < count and run.poll() is None:
            time.sleep(0.1)
    time.sleep(2)  # the other ranks sleep, too
    yield run.pid
    end(run)


def pss_kb(processes):
    return sum(int(line.split()[1]) for process in processes
               for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
               if line.startswith("Pss:"))


def is_tool(process, tool):
    return os.path.samefile(f"/proc/{process}/exe", tool)


def memory_of_ranks(words, **sleep):
    """MB (Pss) of the ranks, and of the server that has forked them."""
    with sleeping(words, **sleep) as run:
        return pss_kb([process for process in descendants(run) if not is_tool(process, words[0])]) / 1e3


def cost(words, ranks, seconds=20):
    """KB (Pss) per rank, and percent of a core, of driver, parents and guards, while the ranks sleep."""
    with sleeping(words) as run:
        ours = [process for process in [run, *descendants(run)] if is_tool(process, words[0])]
        percent = used_percent(ours, seconds)
        return pss_kb(ours) / ranks, percent


def used_percent(ours, seconds):
    def used():
        fields = [pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split() for process in ours]
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")
    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds * 100


def print_tool(tool):
    least = 1e9
    for _ in range(20):
        began = time.perf_counter()
        subprocess.run([tool, "--version"], stdout=subprocess.DEVNULL, check=True)
        least = min(least, time.perf_counter() - began)
    with tempfile.TemporaryDirectory() as directory:
        stripped = pathlib.Path(directory) / "rtrain"
        shutil.copy(tool, stripped)
        subprocess.run(["strip", stripped], check=True)
        size = stripped.stat().st_size
    print(f"rtrain --version: least {least * 1e3:.1f} ms; the stripped tool: {size / 1e6:.2f} MB")


def print_search(tool, searching, trials, limit):
    for name, preload in (("--preload torch", {"preload": "torch", "tool": tool}), ("without --preload", {})):
        with tempfile.TemporaryDirectory() as storage:
            options = json.dumps({"space": {"x": list(range(trials))}, "at_once": 1, "storage": storage, **preload})
            _, notes = notes_of([searching, options, sys.executable, TRIAL], limit)
        times = sorted(notes, key=lambda note: note[1])
        gaps = [after - before for (_, before), (_, after) in zip(times[1::2], times[2::2])]
        print(f"end of a trial to the start of the next one, {name}, {len(gaps)} times: {figures(gaps)}, "
              f"most {max(gaps, default=0):.2f} s")


def print_parts(what, found):
    print(f"{what}: {figures([sum(each) for each in found])}")
    for i, part in enumerate(("to the start of the last rank", "imports", "from the last import to the all-reduce")):
        print(f"    {part}: {figures([each[i] for each in found])}")
    print(f"    without the imports: {figures([each[0] + each[2] for each in found])}")


def figures(seconds):
    return f"median {statistics.median(seconds):.2f} s, least {min(seconds):.2f} s" if seconds else "none"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tool")
    arguments.add_argument("--ranks", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--limit", type=float, default=60, help="seconds for a run (60)")
    arguments.add_argument("--search", help="the program of tests/program_search/searching.cpp")
    given = arguments.parse_args()
    tool = str(pathlib.Path(given.tool).resolve())
    if given.search:
        print_search(tool, str(pathlib.Path(given.search).resolve()), 4 * given.rounds, given.limit)
        return 0
    print_tool(tool)
    with tempfile.TemporaryDirectory() as storage:
        print_launches(tool, storage, given)
        print_starts(tool, storage, given)
        words = commands(tool, given.ranks, storage, [STEP])
        restarts = {name: [] for name in words}
        kills = dict.fromkeys(words, 0)
        for _ in range(given.rounds):
            for name, each in words.items():
                killed, recovered = restart(each, given.limit)
                kills[name] += killed
                restarts[name] += recovered
        for name, found in restarts.items():
            print_parts(f"SIGKILL to the next all-reduce, {name}, {len(found)} of {kills[name]} recovered", found)
        pss, percent = cost(words["rtrain"], given.ranks)
        for name in ("rtrain", "rtrain --preload"):
            print(f"memory of {given.ranks} ranks, {name}: {memory_of_ranks(words[name]):.0f} MB (Pss) after an all-reduce")
            imported = memory_of_ranks(words[name], after="imported", count=given.ranks, IMPORTS_ONLY="1")
            print(f"    after the imports: {imported:.0f} MB")
    print(f"driver and parents: {pss:.0f} KB (Pss) per rank, {percent:.2f} % of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
