#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the parity workload on bare libtorch, rtrain and PyTorch DDP in turn, and compares them.

    python benchmarks/parity/run.py BUILD_DIRECTORY [--epochs 5] [--rounds 3] [--json FILE]

Other work on the machine makes single times worthless, so contestants take turns, in another order
each round, and the best epoch of each counts. Exit status 1: a run failed, or losses disagree.
"""

import argparse
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 1800


def commands(options, storage):
    """Name, ranks, and the command lines that run at once."""
    programs = options.build / "benchmarks" / "parity"
    epochs, data = str(options.epochs), options.data
    bare = [str(programs / "bare_parity"), epochs, data]
    rtrain = [str(programs / "rtrain_parity"), epochs, str(storage), data]
    # Unbound, as rtrain's own driver and torchrun start theirs.
    mpirun = ["mpirun", "--bind-to", "none", "-n"]
    torchrun = [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return {
        "bare, 1 rank": (1, [bare]),
        "rtrain, 1 rank": (1, [mpirun + ["1"] + rtrain]),
        "compute only, 2 ranks": (2, [bare + ["0", "2"], bare + ["1", "2"]]),
        "rtrain, 2 ranks": (2, [mpirun + ["2"] + rtrain]),
        "DDP, 2 ranks": (2, [torchrun + ["2", str(HERE / "ddp_parity.py"), epochs, data]]),
    }


def environment():
    variables = dict(os.environ, OMP_NUM_THREADS="1")
    if os.geteuid() == 0:
        variables.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return variables


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


def run(name, ranks, lines_of_command):
    """Runs one contestant; of several processes at once the slowest counts."""
    others = cpu_of_others()
    started = time.time()
    processes = []
    outputs = []
    try:
        for words in lines_of_command:
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
                sys.exit(f"{name} failed with status {process.returncode}:\n{out}{error}")
            outputs.append([json.loads(line) for line in out.splitlines() if line[:1] == "{"])
    finally:
        for process in processes:
            stop(process)
    epochs = [records[:-1] for records in outputs]
    ends = [records[-1] for records in outputs]
    return {
        "contestant": name,
        "cores_used_by_others": max(0.0, cpu_of_others() - others) / (time.time() - started),
        "epoch_seconds": [max(e["seconds"] for e in same) for same in zip(*epochs)],
        "losses": [statistics.fmean(e["loss"] for e in same) for same in zip(*epochs)],
        "launch_seconds": max(end["first_step"] for end in ends) - started,
        "pss_mb_per_rank": sum(end["pss_mb"] for end in ends) / ranks,
    }


def summary(runs):
    """What each contestant did best."""
    best = {}
    for name in dict.fromkeys(r["contestant"] for r in runs):
        mine = [r for r in runs if r["contestant"] == name]
        times = [seconds for r in mine for seconds in r["epoch_seconds"]]
        best[name] = {
            "epoch_s": min(times),
            "median_s": statistics.median(times),
            "launch_s": min(r["launch_seconds"] for r in mine),
            # Libraries that a neighbour maps too count less: the most is nearest to the truth.
            "pss_mb": max(r["pss_mb_per_rank"] for r in mine),
            "loss": mine[0]["losses"][-1],
        }
    return best


def goals(best):
    """Measure, value, goal, whether it is met."""
    bare, one = best["bare, 1 rank"], best["rtrain, 1 rank"]
    two, ddp = best["rtrain, 2 ranks"], best["DDP, 2 ranks"]
    ceiling = best["compute only, 2 ranks"]
    overhead = one["epoch_s"] / bare["epoch_s"] - 1
    speedup = ddp["epoch_s"] / two["epoch_s"]
    memory = two["pss_mb"] / ddp["pss_mb"]
    loss = abs(two["loss"] / ddp["loss"] - 1)
    return [
        ("epoch, 1 rank: rtrain over bare", f"{overhead:+.1%}", "<= +1.0%", overhead <= 0.01),
        ("throughput, 2 ranks: rtrain / DDP", f"{speedup:.2f}", ">= 1.70", speedup >= 1.7),
        (
            "throughput, 2 ranks: rtrain / compute only",
            f"{ceiling['epoch_s'] / two['epoch_s']:.2f}",
            "ceiling 1",
            None,
        ),
        (
            "launch to first step, 2 ranks",
            f"{two['launch_s']:.2f} s ({two['launch_s'] / ddp['launch_s']:.2f} of DDP)",
            "<= 2 s",
            two["launch_s"] <= 2,
        ),
        ("Pss a rank, 2 ranks: rtrain / DDP", f"{memory:.2f}", "<= 0.60", memory <= 0.6),
        ("final loss, 2 ranks: rtrain against DDP", f"{loss:.2%}", "<= 10%", loss <= 0.1),
    ]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def report(best, met):
    contestants = [
        (
            name,
            f"{b['epoch_s']:.3f}",
            f"{b['median_s']:.3f}",
            f"{b['launch_s']:.2f}",
            f"{b['pss_mb']:.0f}",
            f"{b['loss']:.5f}",
        )
        for name, b in best.items()
    ]
    words = {True: "met", False: "**missed**", None: ""}
    return "\n\n".join(
        [
            table(
                ["contestant", "best epoch s", "median s", "launch s", "Pss a rank MB", "loss"],
                contestants,
            ),
            table(
                ["measure", "value", "goal", ""],
                [(measure, value, goal, words[ok]) for measure, value, goal, ok in met],
            ),
        ]
    )


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path, help="build directory of rtrain")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--json", type=pathlib.Path, help="where to write all raw numbers")
    return parser.parse_args()


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is stopped
    runs = []
    for turn in range(options.rounds):
        names = list(commands(options, ""))
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with tempfile.TemporaryDirectory(prefix="rtrain-parity-") as storage:
                ranks, lines = commands(options, storage)[name]
                runs.append({"round": turn, **run(name, ranks, lines)})
            seconds, others = min(runs[-1]["epoch_seconds"]), runs[-1]["cores_used_by_others"]
            print(
                f"round {turn + 1}: {name}: best epoch {seconds:.3f} s, "
                f"{others:.2f} cores used by others",
                file=sys.stderr,
            )
    best = summary(sorted(runs, key=lambda r: list(commands(options, "")).index(r["contestant"])))
    met = goals(best)
    print(report(best, met))
    if options.json:
        options.json.write_text(json.dumps({"best": best, "runs": runs}, indent=2) + "\n")
    return 0 if met[-1][-1] else 1


if __name__ == "__main__":
    sys.exit(main())
