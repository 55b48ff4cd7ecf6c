# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks' run.py share: running contestants in turns, and reporting."""

import argparse
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from importlib import metadata

TIMEOUT_S = 1800
WORDS = {True: "met", False: "**missed**", None: ""}


class Failure(Exception):
    """A contestant did not end well."""


def environment():
    variables = dict(os.environ, OMP_NUM_THREADS="1")
    if os.geteuid() == 0:
        variables.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return variables


def mpirun(ranks):
    """Unbound, as rtrain's own driver and torchrun start theirs; with more ranks than cores, Open
    MPI's ranks yield while they wait."""
    words = ["mpirun", "--bind-to", "none", "-n", str(ranks)]
    return words + ["--oversubscribe"] if ranks > os.cpu_count() else words


def torchrun(python, ranks):
    words = [python, "-m", "torch.distributed.run", "--standalone"]
    return words + ["--nproc-per-node", str(ranks)]


def stop(process):
    """Ends a launcher and what it has launched, which a launcher does best itself."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def cpu_of_others():
    """Processor seconds that this machine has spent on anything but our children, since boot."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return busy - ours.ru_utime - ours.ru_stime


def run(name, commands):
    """Runs the commands at once. Returns the JSON lines that each printed, when they were started,
    and how many cores other processes used meanwhile."""
    others = cpu_of_others()
    started = time.time()
    processes = []
    outputs = []
    try:
        for words in commands:
            processes.append(
                subprocess.Popen(
                    words,
                    env=environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            )
        for process in processes:
            out, error = process.communicate(timeout=TIMEOUT_S)
            if process.returncode != 0:
                raise Failure(f"{name} failed with status {process.returncode}:\n{out}{error}")
            outputs.append([json.loads(line) for line in out.splitlines() if line[:1] == "{"])
    finally:
        for process in processes:
            stop(process)
    return outputs, started, max(0.0, cpu_of_others() - others) / (time.time() - started)


def machine():
    """What the results depend on."""

    def first_line(*words):
        return subprocess.run(words, capture_output=True, text=True).stdout.split("\n")[0]

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "of unknown version"
    with open("/proc/cpuinfo") as file:
        model = next((line for line in file if line.startswith("model name")), "unknown")
    return {
        "processor": model.split(":")[-1].strip(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": os.uname().release,
        "mpi": first_line("mpirun", "--version"),
        "torch": f"torch {torch}",
    }


def write_results(path, **results):
    """The JSON file that benchmarks/report.py reads; nothing without a path."""
    if path:
        words = [pathlib.Path(word).name if word[0] == "/" else word for word in sys.argv]
        words[0] = "/".join(pathlib.Path(sys.argv[0]).resolve().parts[-3:])
        head = {"command": " ".join(["python", *words]), "machine": machine()}
        path.write_text(json.dumps({**head, **results}, indent=1) + "\n")


def listed(kind):
    """The argparse type of words of `kind` with commas between them."""
    return lambda text: [kind(word) for word in text.split(",")]


def arguments(description, rounds=3, ranks=None, python=None, ray=False):
    """A parser with what most benchmarks take: the first paragraph of a docstring, the defaults of
    --rounds and of --ranks, what --python has, and whether Ray is a peer. None: not an option."""
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument("build", type=pathlib.Path, help="build directory of rtrain")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", type=pathlib.Path, help="where to write all raw numbers")
    if ranks:
        parser.add_argument("--ranks", type=listed(int), default=ranks, help="counts of ranks")
    if python:
        parser.add_argument("--python", default=sys.executable, help=f"a Python that has {python}")
    if ray:
        parser.add_argument("--ray-python", help="a Python that has torch and ray[train]==2.60.*")
    return parser


def end_on_sigterm():
    """Lets the clean-up of what runs happen."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def in_turn(items, turn):
    """The same items, begun at another one each turn."""
    items = list(items)
    first = turn % len(items)
    return items[first:] + items[:first]


def measure_in_turns(measure, options):
    """What `measure(ranks, turn, options)` gives for all counts of ranks, in each round; ends the
    program when a contestant fails."""
    end_on_sigterm()
    records = []
    try:
        for turn in range(options.rounds):
            for ranks in in_turn(options.ranks, turn):
                records += measure(ranks, turn, options)
    except Failure as failure:
        sys.exit(str(failure))
    return records


def run_in_turns(measure, report, options):
    """A whole benchmark: prints what `report(records)` makes of what is measured, and writes it.
    Returns the exit status."""
    records = measure_in_turns(measure, options)
    print(report(records))
    write_results(options.json, records=records)
    return 0


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def goals_table(goals):
    """Of (measure, value, goal, whether it is met)."""
    return table(
        ["measure", "value", "goal", ""],
        [(measure, value, goal, WORDS[met]) for measure, value, goal, met in goals],
    )
