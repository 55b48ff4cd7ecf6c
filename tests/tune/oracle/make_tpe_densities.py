#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tpe_densities.txt: what Optuna's TPESampler thinks of 1,000 random histories.

Usage: make_tpe_densities.py [--histories N] > tpe_densities.txt   (needs optuna==5.0.0)

A history is made of random numbers that tests/tune/tpe_test.cpp draws, too, by the same rules: up to
6 parameters, up to 120 trials, of which some are under way, were stopped or have failed, and some lack a
parameter. A line has, for each of 3 points, the logarithms of the densities of the good trials and of
the others.

Optuna orders equal values by numpy.argsort, which is not stable, and differs between processors; equal
values then exchange their kernels' deviations. Here it is the stable one.
"""

import argparse
import logging
import math
import types
import warnings

import numpy
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers._tpe import parzen_estimator, sampler as tpe
from optuna.trial import TrialState, create_trial


class StableNumpy(types.ModuleType):
    def __getattr__(self, name):
        return getattr(numpy, name)

    @staticmethod
    def argsort(values):
        return numpy.argsort(values, kind="stable")


parzen_estimator.np = StableNumpy("numpy")
MASK = (1 << 64) - 1


class Draws:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return ((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53

    def below(self, count):
        return int(self.uniform() * count)


def make_distribution(draws):
    kind = draws.below(6)
    if kind == 0:
        low = draws.below(20) - 10.0
        return FloatDistribution(low, low + 1 + draws.below(10))
    if kind == 1:
        low = 10.0 ** -(1 + draws.below(5))
        return FloatDistribution(low, low * (10 + draws.below(1000)), log=True)
    if kind == 2:
        low = draws.below(40) - 20
        return IntDistribution(low, low + 1 + draws.below(50))
    if kind == 3:
        low = 1 + draws.below(5)
        return IntDistribution(low, low + 10 + draws.below(500), log=True)
    if kind == 4:
        first = draws.below(40) - 20
        return FloatDistribution(first * 0.25, (first + 1 + draws.below(30)) * 0.25, step=0.25)
    return CategoricalDistribution(list(range(2 + draws.below(5))))


def make_value(draws, distribution):
    if isinstance(distribution, CategoricalDistribution):
        return draws.below(len(distribution.choices))
    if isinstance(distribution, IntDistribution):
        return distribution.low + draws.below(distribution.high - distribution.low + 1)
    if distribution.step is not None:
        count = round((distribution.high - distribution.low) / 0.25)
        return distribution.low + draws.below(count + 1) * 0.25
    if distribution.log:
        return distribution.low * math.exp(draws.uniform() * math.log(distribution.high / distribution.low))
    return distribution.low + draws.uniform() * (distribution.high - distribution.low)


def make_trial(draws, space):
    params = {name: make_value(draws, distribution) for name, distribution in space.items()}
    if draws.below(4) == 0:
        del params[f"p{draws.below(len(space))}"]
    fate = draws.below(20)
    score = draws.uniform() if draws.below(2) == 0 else draws.below(16) / 16
    reports = draws.below(4)
    state = (TrialState.RUNNING if fate < 2 else TrialState.PRUNED if fate < 5 else
             TrialState.FAIL if fate < 6 else TrialState.COMPLETE)
    reported = {reports: score} if state == TrialState.PRUNED and reports > 0 else {}
    return create_trial(state=state, params=params, distributions={name: space[name] for name in params},
                        value=score if state == TrialState.COMPLETE else None,
                        intermediate_values=reported)


def densities(number):
    draws = Draws(number)
    direction = "maximize" if draws.below(2) == 0 else "minimize"
    space = {f"p{i}": make_distribution(draws) for i in range(1 + draws.below(6))}
    sampler = optuna.samplers.TPESampler()
    study = optuna.create_study(direction=direction, sampler=sampler)
    for _ in range(1 + draws.below(120)):
        study.add_trial(make_trial(draws, space))
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING))
    finished = sum(trial.state != TrialState.RUNNING for trial in trials)
    below, above = tpe._split_trials(study, trials, tpe.default_gamma(finished))
    points = [{name: make_value(draws, each) for name, each in space.items()} for _ in range(3)]
    points = {name: numpy.array([each.to_internal_repr(point[name]) for point in points])
              for name, each in space.items()}
    answers = [sampler._build_parzen_estimator(study, space, half, handle_below=half is below).log_pdf(points)
               for half in (below, above)]
    return [float(answer[i]) for i in range(3) for answer in answers]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(logging.ERROR)
    assert optuna.__version__ == "5.0.0", optuna.__version__
    for number in range(arguments.histories):
        print(*map(repr, densities(number)))


if __name__ == "__main__":
    main()
