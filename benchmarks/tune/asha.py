#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asha against syne-tune 0.16.0's AsynchronousSuccessiveHalving: which of the same trials each stops, and what
that leaves of a search.

Usage: asha.py SEARCH_BENCH [--seeds 30] [--trials 50 200] [--workers 4] [--max-t 81] [--factor 3]

SEARCH_BENCH is build/release/benchmarks/tune/search_bench. Needs syne-tune, scipy. Learning curves are made up:
losses that fall by a power of the epoch to a floor, with noise; those that fall fast tend to end high, so that
curves cross. Workers run epochs of different lengths, beside each other.
"""

import argparse
import heapq
import subprocess

import numpy as np
from scipy.stats import mannwhitneyu
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import uniform
from syne_tune.optimizer.schedulers.asha import AsynchronousSuccessiveHalving


class Curves:
    """Of the trials of a search, which both schedulers meet in the same order."""

    def __init__(self, seed, trials, epochs):
        draw = np.random.default_rng(seed)
        rate = draw.uniform(0.1, 1.2, trials)
        floor = draw.uniform(0.2, 0.8, trials) + 0.3 * (rate - 0.1)
        epoch = np.arange(1, epochs + 1)
        self.losses = floor[:, None] + (2.3 - floor)[:, None] * (1 + epoch) ** -rate[:, None]
        self.losses += draw.normal(0, 0.02, self.losses.shape)
        self.seconds = draw.uniform(0.5, 2, trials)  # an epoch


def search(decide, curves, workers):
    """(the best loss of a trial that came to the end, all epochs, seconds until the last trial's end)"""
    trials, epochs = curves.losses.shape
    begun = min(workers, trials)
    running = [(curves.seconds[trial], trial, 1) for trial in range(begun)]
    heapq.heapify(running)
    best, total, now = np.inf, 0, 0
    while running:
        now, trial, epoch = heapq.heappop(running)
        total += 1
        loss = curves.losses[trial, epoch - 1]
        goes_on = decide(trial, epoch, loss)
        if epoch == epochs:
            best = min(best, loss)
        elif goes_on:
            heapq.heappush(running, (now + curves.seconds[trial], trial, epoch + 1))
            continue
        if begun < trials:
            heapq.heappush(running, (now + curves.seconds[begun], begun, 1))
            begun += 1
    return best, total, now


def theirs(curves, arguments):
    scheduler = AsynchronousSuccessiveHalving(
        {"x": uniform(0, 1)}, metric="loss", max_t=arguments.max_t, grace_period=1,
        reduction_factor=arguments.factor, random_seed=0)
    trials = {}

    def decide(number, epoch, loss):
        if number not in trials:
            trials[number] = Trial(number, scheduler.suggest().config, creation_time=None)
            scheduler.on_trial_add(trials[number])
        result = {"loss": float(loss), "training_iteration": epoch}
        return scheduler.on_trial_result(trials[number], result) == "CONTINUE"
    return search(decide, curves, arguments.workers)


def ours(curves, arguments):
    with subprocess.Popen([arguments.program, "asha", str(arguments.max_t), str(arguments.factor)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        def decide(number, epoch, loss):
            process.stdin.write(f"{number} {epoch} {float(loss)!r}\n")
            process.stdin.flush()
            return process.stdout.readline() == "continue\n"
        found = search(decide, curves, arguments.workers)
        process.stdin.close()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--trials", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--max-t", type=int, default=81)
    parser.add_argument("--factor", type=int, default=3)
    arguments = parser.parse_args()
    print("| trials | | best loss, median | epochs of all | seconds until the end |\n|---|---|---|---|---|")
    for trials in arguments.trials:
        found = {"no scheduler": [], "syne-tune": [], "rtrain": []}
        for seed in range(arguments.seeds):
            curves = Curves(seed, trials, arguments.max_t)
            found["no scheduler"].append(search(lambda *_: True, curves, arguments.workers))
            found["syne-tune"].append(theirs(curves, arguments))
            found["rtrain"].append(ours(curves, arguments))
        for name, values in found.items():
            best, epochs, seconds = np.median(values, axis=0)
            print(f"| {trials} | {name} | {best:.4f} | {epochs / (trials * arguments.max_t):.3f} | {seconds:.0f} |")
        a, b = (np.array(found[name])[:, 0] for name in ("rtrain", "syne-tune"))
        test = mannwhitneyu(a, b, alternative="greater")  # ours larger: worse
        print(f"\n{trials} trials: p (worse) {test.pvalue:.3f}, mean rank "
              f"{1 + test.statistic / (len(a) * len(b)):.3f}\n", flush=True)


if __name__ == "__main__":
    main()
