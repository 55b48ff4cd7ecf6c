#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searchers against Optuna 5.0.0 (and HpBandSter 0.7.4): what a trial costs, and how good the best one is.

Usage: run.py cost SEARCH_BENCH
       run.py quality SEARCH_BENCH [--peer tpe|tpe-group|bohb] [--seeds 30] [--trials 50 200]
              [--functions NAME...]

SEARCH_BENCH is build/release/benchmarks/tune/search_bench. Needs optuna, scipy, for bohb hpbandster. Costs are
CPU seconds of one process, so that others on the machine change them little; the contestants take turns.
"""

import argparse
import json
import logging
import math
import subprocess
import time
import warnings

import numpy as np
import optuna
from scipy.stats import mannwhitneyu

BOXES = {"sphere5": [(-5, 5)] * 5, "rosenbrock5": [(-5, 10)] * 5, "rastrigin5": [(-5.12, 5.12)] * 5,
         "ackley10": [(-32.768, 32.768)] * 10, "hartmann6": [(0, 1)] * 6, "branin": [(-5, 10), (0, 15)]}
A = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
              [17, 8, 0.05, 10, 0.1, 14]])
P = 1e-4 * np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                     [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])


def value_of(function, x):
    x = np.asarray(x)
    if function == "hartmann6":
        return -float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-(A * (x - P) ** 2).sum(axis=1)))
    if function == "branin":
        return ((x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6) ** 2
                + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10)
    if function == "rosenbrock5":
        return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())
    if function == "rastrigin5":
        return float((10 + x**2 - 10 * np.cos(2 * math.pi * x)).sum())
    if function == "ackley10":
        return float(20 + math.e - 20 * np.exp(-0.2 * np.sqrt((x**2).mean()))
                     - np.exp(np.cos(2 * math.pi * x).mean()))
    return float((x**2).sum())


def conditional(trial):
    if trial.suggest_categorical("kind", ["svm", "net"]) == "svm":
        return (0.3 + (math.log10(trial.suggest_float("c", 1e-3, 1e3, log=True)) - 1) ** 2
                + (math.log10(trial.suggest_float("gamma", 1e-4, 10, log=True)) + 2) ** 2)
    return (0.5 * (trial.suggest_int("layers", 1, 4) - 2) ** 2
            + 0.2 * (math.log2(trial.suggest_int("width", 8, 512, log=True)) - 6) ** 2
            + (math.log10(trial.suggest_float("lr", 1e-5, 1e-1, log=True)) + 3) ** 2
            + (0 if trial.suggest_categorical("act", ["relu", "tanh", "gelu"]) == "tanh" else 0.4))


def mlp_of(program):
    """The objective "mlp", which SEARCH_BENCH evaluates for both."""
    process = subprocess.Popen([program, "mlp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def objective(trial):
        config = {"lr": trial.suggest_float("lr", 1e-4, 1, log=True),
                  "momentum": trial.suggest_float("momentum", 0, 0.99),
                  "decay": trial.suggest_float("decay", 1e-6, 1e-1, log=True),
                  "width": trial.suggest_int("width", 4, 128, log=True),
                  "batch": trial.suggest_categorical("batch", [16, 32, 64, 128]),
                  "activation": trial.suggest_categorical("activation", ["relu", "tanh"])}
        process.stdin.write(json.dumps(config) + "\n")
        process.stdin.flush()
        return float(process.stdout.readline())
    return objective


def optuna_values(sampler, function, trials, mlp):
    """The values of a study's trials."""
    def objective(trial):
        if function == "conditional":
            return conditional(trial)
        if function == "mlp":
            return mlp(trial)
        return value_of(function, [trial.suggest_float(f"x{i}", low, high)
                                   for i, (low, high) in enumerate(BOXES[function])])
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=trials)
    return [trial.value for trial in study.trials]


def bohb_values(function, trials, seed):
    import ConfigSpace
    from hpbandster.optimizers.config_generators.bohb import BOHB

    class Job:
        exception = None

    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for i, (low, high) in enumerate(BOXES[function]):
        space.add(ConfigSpace.UniformFloatHyperparameter(f"x{i}", low, high))
    np.random.seed(seed)
    generator, values = BOHB(space), []
    for _ in range(trials):
        config, _ = generator.get_config(1)
        values.append(value_of(function, [config[f"x{i}"] for i in range(len(BOXES[function]))]))
        job = Job()
        job.result, job.kwargs = {"loss": values[-1]}, {"budget": 1, "config": config}
        generator.new_result(job)
    return values


def peer_values(peer, function, trials, seed, mlp):
    if peer == "bohb":
        return bohb_values(function, trials, seed)
    return optuna_values(optuna.samplers.TPESampler(seed=seed, group=peer == "tpe-group"), function, trials, mlp)


def ours(program, *words):
    text = subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True).stdout
    return [float(word) for word in text.split()]


def optuna_cost(sampler, trials, more):
    """CPU seconds of a trial: on average over the first ones, and after them."""
    study = optuna.create_study(sampler=sampler)

    def objective(trial):
        return sum(trial.suggest_float(f"x{i}", -5, 5) ** 2 for i in range(4))
    begin = time.process_time()
    study.optimize(objective, n_trials=trials)
    middle = time.process_time()
    study.optimize(objective, n_trials=more)
    return (middle - begin) / trials, (time.process_time() - middle) / more


def cost(arguments):
    print("| searcher | trials | | Optuna ms | rtrain ms | ratio |\n|---|---|---|---|---|---|")
    for name, make in [("random", optuna.samplers.RandomSampler), ("tpe", optuna.samplers.TPESampler)]:
        for trials in (100, 1000):
            more, rounds = 50, []
            for _ in range(3):
                theirs = optuna_cost(make(seed=1), trials, more)
                first, both = ours(arguments.program, "cost", name, trials, trials + more)
                rounds.append((theirs, (first / trials, (both - first) / more)))
            for i, what in enumerate(["mean of the first", "each after them"]):
                their, our = (1e3 * min(pair[side][i] for pair in rounds) for side in (0, 1))
                print(f"| {name} | {trials} | {what} | {their:.3f} | {our:.4f} | {our / their:.4f} |", flush=True)


def quality(arguments):
    print(f"| function | trials | {arguments.peer} median | rtrain median | p (worse) | mean rank |\n"
          "|---|---|---|---|---|---|")
    ranks = []
    mlp = mlp_of(arguments.program) if "mlp" in arguments.functions else None
    for function in arguments.functions:
        theirs, best = [], []
        for seed in range(arguments.seeds):
            values = np.minimum.accumulate(peer_values(arguments.peer, function, max(arguments.trials), seed, mlp))
            theirs.append([values[count - 1] for count in arguments.trials])
            searcher = "bohb" if arguments.peer == "bohb" else "tpe"
            best.append(ours(arguments.program, "quality", searcher, function, seed, *arguments.trials))
        for i, count in enumerate(arguments.trials):
            a, b = np.array(best)[:, i], np.array(theirs)[:, i]
            test = mannwhitneyu(a, b, alternative="greater")  # ours larger: worse
            # Of a pair of searches, 1 for the better and 2 for the other: 1.5 is as good.
            rank = 1 + test.statistic / (len(a) * len(b))
            ranks.append(rank)
            print(f"| {function} | {count} | {np.median(b):.4g} | {np.median(a):.4g} | {test.pvalue:.3f} | "
                  f"{rank:.3f} |", flush=True)
    print(f"\nmean rank of rtrain: {np.mean(ranks):.3f}; of {arguments.peer}: {3 - np.mean(ranks):.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["cost", "quality"])
    parser.add_argument("program")
    parser.add_argument("--peer", default="tpe", choices=["tpe", "tpe-group", "bohb"])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--trials", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--functions", nargs="+", default=[*BOXES, "conditional", "mlp"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (cost if arguments.what == "cost" else quality)(arguments)


if __name__ == "__main__":
    main()
