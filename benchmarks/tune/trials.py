#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What trials cost besides training: rtrain and, where it can be imported, Ray Tune 2.60.0, in turns.

Usage: trials.py TRIALS_BENCH [--rounds 3]

TRIALS_BENCH is build/release/benchmarks/tune/trials_bench. Ray's start (ray.init) is not counted.
"""

import argparse
import statistics
import subprocess
import tempfile
import time

try:
    import ray
    from ray import tune
except ImportError:
    ray = None


def ours(program, *words, where=None):
    with tempfile.TemporaryDirectory(dir=where) as directory:
        done = subprocess.run([program, *map(str, words), directory], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.splitlines()[-1].split()]


def rays(trials):
    """Seconds of a search of trials with 3 reports, one at a time, as actors that are used again."""
    def objective(config):
        for step in range(1, 4):
            tune.report({"loss": config["x"] / step})
    with tempfile.TemporaryDirectory() as directory:
        tuner = tune.Tuner(
            objective, param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, max_concurrent_trials=1,
                                        reuse_actors=True),
            run_config=tune.RunConfig(storage_path=directory, verbose=0))
        begin = time.monotonic()
        tuner.fit()
        return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if ray:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    seconds = {}
    for _ in range(arguments.rounds):
        cases = {"a function": lambda: ours(arguments.program, "function", 3)[0],
                 "a trainer, used ranks": lambda: ours(arguments.program, "trainer", 3, 1, "used")[0],
                 "a trainer, new ranks": lambda: ours(arguments.program, "trainer", 3, 1, "new")[0]}
        if ray:
            cases["Ray Tune"] = lambda: rays(3)
        for name, run in cases.items():
            seconds.setdefault(name, []).append(run())
    if ray:
        ray.shutdown()  # its processes take cores, too
    print("3 trials of 3 reports, one at a time:\n\n| | seconds |\n|---|---|")
    for name, all_seconds in seconds.items():
        print(f"| {name} | {statistics.median(all_seconds):.3f} |")
    print("\nEnd of a trial to the first step of the next, median of 9:\n\n| ranks | used ms | new ms |\n|---|---|---|")
    for ranks in (1, 2):
        used, new = (ours(arguments.program, "trainer", 10, ranks, how)[1] for how in ("used", "new"))
        print(f"| {ranks} | {1e3 * used:.1f} | {1e3 * new:.1f} |")
    print("\nA trial takes over 100 MB:\n\n| | ms |\n|---|---|")
    exploits = {"a function, in memory": ("memory", None), "a function, from its file": ("files", None),
                "a trainer": ("trainer", None), "a trainer, storage in /dev/shm": ("trainer", "/dev/shm"),
                "a trainer, from the disk": ("evicted", None)}
    taken = {name: [] for name in exploits}
    for _ in range(arguments.rounds):
        for name, (how, where) in exploits.items():
            taken[name].append(ours(arguments.program, "exploit", 100, how, where=where)[-1])
    for name, all_seconds in taken.items():
        print(f"| {name} | {1e3 * statistics.median(all_seconds):.2f} |")
    before, peak, cpu = ours(arguments.program, "memory", 10000)
    print(f"\n10,000 trials of a function: {before:.0f} MB before, at most {peak:.0f} MB, {cpu:.2f} s of CPU time")


if __name__ == "__main__":
    main()
