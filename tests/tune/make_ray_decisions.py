#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ray_decisions.bin: what the schedulers of Ray Tune 2.60.0 decide in random histories.

Usage: make_ray_decisions.py OUTPUT          pip install "ray[tune]==2.60.0"
       make_ray_decisions.py --show KIND NUMBER    prints one history: asha, median, hyperband, pbt

Of each kind, 10,000 histories; of each history, two bytes, the lower ones of the CRC-32 of the text that
tells all decisions. Histories follow from their number by the generator below, which ray_history.hpp has, too;
both must draw the same numbers in the same order.
"""

import logging
import math
import struct
import sys
import types
import warnings
import zlib

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import (AsyncHyperBandScheduler, HyperBandScheduler, MedianStoppingRule,
                                 PopulationBasedTraining, TrialScheduler)

HISTORIES = 10000
MASK = 2**64 - 1
LETTERS = {TrialScheduler.CONTINUE: "c", TrialScheduler.PAUSE: "p", TrialScheduler.STOP: "s"}


def mix(word):
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


class Draw:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return mix(self.state)

    def below(self, count):
        return self.next() % count

    def of(self, values):
        return values[self.below(len(values))]

    def unit(self):
        return (self.next() >> 11) * 2.0**-53


class Xoshiro:
    """rtrain::tune::Random"""

    def __init__(self, seed):
        words = Draw(seed)
        self.s = [words.next() for _ in range(4)]

    def unit(self):
        s = self.s
        rotate = lambda word, bits: (word << bits | word >> (64 - bits)) & MASK
        result = rotate(s[1] * 5 & MASK, 7) * 9 & MASK
        shifted = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = rotate(s[3], 45)
        return (result >> 11) * 2.0**-53


def score(draw, kind, trial):
    if kind == 0:
        return draw.unit()
    if kind == 1:
        return float(draw.below(10))
    if kind == 2:
        return trial % 7 + draw.unit()
    odd = draw.below(8)
    if odd == 0:
        return math.nan
    if odd == 1:
        return math.inf if draw.below(2) == 0 else -math.inf
    return float(draw.below(10))


class FakeTrial:
    is_saving = False
    experiment_tag = ""

    def __init__(self, number):
        self.trial_id = str(number)
        self.number = number
        self.status = Trial.PENDING
        self.config = {}
        self.evaluated_params = {}
        self.run_metadata = types.SimpleNamespace(checkpoint_manager=types.SimpleNamespace(
            checkpoint_config=types.SimpleNamespace(num_to_keep=None)))

    def is_finished(self):
        return self.status in (Trial.ERROR, Trial.TERMINATED)


def asha(number):
    draw = Draw(4 * number)
    count = 2 + draw.below(19)
    max_t = 1 + draw.below(100)
    grace = 1 + draw.below(min(max_t, 10))
    factor = draw.of([2.0, 3.0, 4.0, 2.5, 1.5])
    brackets = 1 + draw.below(3)
    stop_last = draw.below(2) == 0
    mode = draw.of(["max", "min"])
    kind = draw.below(4)
    scheduler = AsyncHyperBandScheduler(metric="m", mode=mode, max_t=max_t, grace_period=grace,
                                        reduction_factor=factor, brackets=brackets, stop_last_trials=stop_last)
    random = Xoshiro(number)

    def choice(size, p):
        if size == 1:
            return 0
        up_to = np.cumsum(p)
        return int(np.searchsorted(up_to[:-1], random.unit() * up_to[-1], side="right"))

    np.random.choice = choice
    trials = [FakeTrial(i) for i in range(count)]
    for trial in trials:
        scheduler.on_trial_add(None, trial)
    alive, time, text = list(trials), [0] * count, ""
    for _ in range(8 * count):
        if not alive:
            break
        at = draw.below(len(alive))
        trial = alive[at]
        time[trial.number] += 1 + draw.below(1 + max_t // 8)
        result = {"training_iteration": time[trial.number], "m": score(draw, kind, trial.number)}
        if draw.below(24) == 0:
            text += "e"
        else:
            decision = scheduler.on_trial_result(None, trial, result)
            text += LETTERS[decision]
            if decision != TrialScheduler.STOP:
                continue
        scheduler.on_trial_complete(None, trial, result)
        alive.pop(at)
    return text


def median(number):
    draw = Draw(4 * number + 1)
    count = 2 + draw.below(12)
    grace = draw.of([0.0, 1.0, 2.5, 5.0])
    samples = 1 + draw.below(4)
    time_slice = draw.of([0.0, 1.0, 3.0])
    hard = draw.below(2) == 0
    mode = draw.of(["max", "min"])
    kind = draw.below(4)
    scheduler = MedianStoppingRule(time_attr="time_total_s", metric="m", mode=mode, grace_period=grace,
                                   min_samples_required=samples, min_time_slice=time_slice, hard_stop=hard)
    waiting = FakeTrial(-1)
    controllers = [types.SimpleNamespace(get_live_trials=lambda: [waiting]),
                   types.SimpleNamespace(get_live_trials=lambda: [])]
    alive, time, text = [FakeTrial(i) for i in range(count)], [0.0] * count, ""
    for _ in range(10 * count):
        if not alive:
            break
        at = draw.below(len(alive))
        trial = alive[at]
        time[trial.number] += draw.of([1.0, 1.0, 2.0, 0.5])
        controller = controllers[0 if draw.below(4) == 0 else 1]
        result = {"time_total_s": time[trial.number], "m": score(draw, kind, trial.number)}
        if draw.below(24) == 0:
            text += "e"
        else:
            decision = scheduler.on_trial_result(controller, trial, result)
            text += LETTERS[decision]
            if decision != TrialScheduler.STOP:
                continue
        scheduler.on_trial_complete(controller, trial, result)
        alive.pop(at)
    return text


class Runner:
    """As much of Ray's controller as HyperBand asks for."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.trials = []
        self.text = ""

    def add(self):
        self.trials.append(FakeTrial(len(self.trials)))
        self.scheduler.on_trial_add(self, self.trials[-1])

    def stop_trial(self, trial):
        if trial.status == Trial.PAUSED:
            self.text += f"x{trial.number}"
            self.scheduler.on_trial_remove(self, trial)
        else:
            self.scheduler.on_trial_complete(self, trial, trial.result)
        trial.status = Trial.TERMINATED


def hyperband(number):
    draw = Draw(4 * number + 2)
    max_t = 1 + draw.below(81)
    eta = draw.of([2.0, 3.0, 4.0, 2.5])
    count = 1 + draw.below(40)
    slots = 1 + draw.below(6)
    stop_last = draw.below(2) == 0
    mode = draw.of(["max", "min"])
    kind = draw.below(3)
    late = draw.below(3) == 0
    scheduler = HyperBandScheduler(metric="m", mode=mode, max_t=max_t, reduction_factor=eta,
                                   stop_last_trials=stop_last)
    runner = Runner(scheduler)
    for _ in range(1 + count // 2 if late else count):
        runner.add()
    time, running = [0] * (count + 1), []
    for _ in range(200):
        if late and draw.below(6) == 0 and len(runner.trials) < count:
            runner.add()
        while len(running) < slots:
            trial = scheduler.choose_trial_to_run(runner)
            if trial is None:
                break
            runner.text += f"r{trial.number}"
            trial.status = Trial.RUNNING
            running.append(trial)
        if not running:
            break
        at = draw.below(len(running))
        trial = running[at]
        if not late and time[trial.number] == 0 and draw.below(10) == 0:
            runner.text += "e"
            scheduler.on_trial_error(runner, trial)
            trial.status = Trial.ERROR
            running.pop(at)
            continue
        time[trial.number] += 1 + draw.below(1 + max_t // 6)
        trial.result = {"training_iteration": time[trial.number], "m": score(draw, kind, trial.number)}
        decision = scheduler.on_trial_result(runner, trial, trial.result)
        runner.text += LETTERS[decision]
        if decision == TrialScheduler.PAUSE:
            trial.status = Trial.PAUSED
        elif decision == TrialScheduler.STOP or time[trial.number] >= 2 * max_t:
            runner.stop_trial(trial)
        else:
            continue
        running.pop(at)
    return runner.text


def pbt(number):
    draw = Draw(4 * number + 3)
    count = 2 + draw.below(20)
    quantile = draw.of([0.0, 0.25, 0.5, 0.1, 0.33])
    interval = 1 + draw.below(4)
    burn_in = draw.of([0, 0, 5])
    mode = draw.of(["max", "min"])
    kind = draw.below(4)
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", metric="m", mode=mode, perturbation_interval=interval,
        burn_in_period=burn_in, quantile_fraction=quantile, hyperparam_mutations={"a": [1, 2, 3]})
    scheduler._checkpoint_or_exploit = lambda *_: None  # the quantiles do not depend on it
    trials = [FakeTrial(i) for i in range(count)]
    controller = types.SimpleNamespace(search_alg=None, get_trials=lambda: trials)
    for trial in trials:
        trial.status = Trial.RUNNING
        scheduler.on_trial_add(controller, trial)
    alive, time, text = list(trials), 0, ""
    for _ in range(4 * count):
        if not alive:
            break
        at = draw.below(len(alive))
        trial = alive[at]
        time += interval  # of all, so that each report is at an interval's end
        value = score(draw, kind, trial.number)
        if draw.below(24) == 0:
            text += "e"
            trial.status = Trial.TERMINATED
            alive.pop(at)
        else:
            scheduler.on_trial_result(controller, trial, {"training_iteration": time, "m": value})
        lower, upper = scheduler._quantiles()
        text += ",".join(t.trial_id for t in lower) + "|" + ",".join(t.trial_id for t in upper) + ";"
    return text


KINDS = {"asha": asha, "median": median, "hyperband": hyperband, "pbt": pbt}


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if sys.argv[1] == "--show":
        print(KINDS[sys.argv[2]](int(sys.argv[3])))
        return
    with open(sys.argv[1], "wb") as output:
        for history in KINDS.values():
            for number in range(HISTORIES):
                output.write(struct.pack("<H", zlib.crc32(history(number).encode()) & 0xFFFF))


if __name__ == "__main__":
    main()
