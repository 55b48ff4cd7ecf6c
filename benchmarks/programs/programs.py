#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`rtrain run` beside torchrun and processes started by hand, interleaved: seconds from the command to the first
all-reduce, and from a SIGKILL to the next one; then memory and processor time of driver and parents.

Usage: programs.py TOOL [--ranks N] [--rounds N], with a python3 that has torch"""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

STEP = str(pathlib.Path(__file__).resolve().parent / "step.py")


def commands(tool, ranks, storage):
    return {"rtrain": [tool, "run", "--storage", storage, "-n", str(ranks), "--max-restarts", "1", STEP],
            "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                         "--max-restarts", "1", STEP]}


def times_of(words, **variables):
    with tempfile.NamedTemporaryFile("r") as times:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TIMES": times.name, **variables,
                       "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        began = time.time()
        process = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 timeout=300, check=False)
        lines = [line.split() for line in pathlib.Path(times.name).read_text().splitlines()]
    return began, process.returncode, [(what, float(when)) for what, when in lines]


def by_hand(ranks):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    script = "".join(f"RANK={rank} LOCAL_RANK={rank} {sys.executable} {STEP} & " for rank in range(ranks)) + "wait"
    began, _, lines = times_of(["sh", "-c", script], WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(port))
    return lines[0][1] - began


def start(words):
    began, _, lines = times_of(words)
    return lines[0][1] - began


def restart(words):
    """Empty if it did not recover with its one restart."""
    _, _, lines = times_of(words, KILL="1")
    killed = [when for what, when in lines if what == "kill"]
    return [lines[-1][1] - killed[0]] if killed and lines[-1][0] == "all_reduce" else []


def children(process):
    return [int(word) for task in pathlib.Path(f"/proc/{process}/task").glob("*/children")
            for word in task.read_text().split()]


def cost(words, ranks, seconds=20):
    """KB (Pss) per rank, and percent of a core, of driver, parents and guards."""
    environment = {**os.environ, "TIMES": os.devnull, "WAIT": str(seconds + 30),
                   "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    time.sleep(20)
    ours = [run.pid] + [process for parent in [run.pid, *children(run.pid)] for process in children(parent)]
    ours = [process for process in ours if "rtrain" in os.readlink(f"/proc/{process}/exe")]

    def used():
        fields = [pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split() for process in ours]
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")
    before = used()
    time.sleep(seconds)
    percent = (used() - before) / seconds * 100
    pss = sum(int(line.split()[1]) for process in ours
              for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
              if line.startswith("Pss:"))
    run.terminate()
    run.wait()
    return pss / ranks, percent


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tool")
    arguments.add_argument("--ranks", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=10)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as storage:
        words = commands(str(pathlib.Path(given.tool).resolve()), given.ranks, storage)
        starts = {name: [] for name in [*words, "by hand"]}
        restarts = {name: [] for name in words}
        for _ in range(given.rounds):
            for name, each in words.items():
                starts[name].append(start(each))
                restarts[name] += restart(each)
            starts["by hand"].append(by_hand(given.ranks))
        for name, seconds in starts.items():
            print(f"start, {name}: median {statistics.median(seconds):.2f} s, least {min(seconds):.2f} s")
        for name, seconds in restarts.items():
            found = f"median {statistics.median(seconds):.2f} s, least {min(seconds):.2f} s" if seconds else "none"
            print(f"SIGKILL to the next all-reduce, {name}: {found}; {len(seconds)} of {given.rounds} recovered")
        pss, percent = cost(words["rtrain"], given.ranks)
        print(f"driver and parents: {pss:.0f} KB (Pss) per rank, {percent:.2f} % of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
