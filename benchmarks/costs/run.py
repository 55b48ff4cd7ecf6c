#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gradient averaging costs, over ranks, parameters and tensors, and a formula for it.

    python benchmarks/costs/run.py BUILD_DIRECTORY [--rounds 3] [--json FILE]

Each round runs every count of ranks, in another order; the least times of all rounds count. Exit
status 1: a run failed.
"""

import itertools
import os
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import charts  # noqa: E402
import harness  # noqa: E402

RANKS = [1, 2, 4, 8, 16]
PARAMETERS = [10**5, 10**6, 10**7, 10**8]
TENSORS = [10, 100, 1000, 10000]
FEW, FIXED = TENSORS[0], 10**7  # tensors of the sweep of parameters, and the other way round
PER_TENSOR_GOAL_US = 1.0


def models(ranks, options):
    """(parameters, tensors): all at few ranks; where ranks share cores, what ends in time."""
    largest = options.max_parameters if ranks <= 4 else 10**7
    sweep = [(p, FEW) for p in PARAMETERS if p <= largest]
    if ranks <= 4:
        sweep += [(FIXED, t) for t in TENSORS[1:]]
    return sweep


def measure(ranks, turn, options):
    program = options.build / "benchmarks" / "costs" / "costs"
    chosen = harness.in_turn([f"{p}:{t}" for p, t in models(ranks, options)], turn)
    with tempfile.TemporaryDirectory(prefix="rtrain-costs-") as storage:
        command = harness.mpirun(ranks) + [str(program), storage, str(options.seconds), *chosen]
        outputs, _, others = harness.run(f"{ranks} ranks", [command])
    print(f"round {turn + 1}: {ranks} ranks: {others:.2f} cores used by others", file=sys.stderr)
    return [{"ranks": ranks, "round": turn, "others": others, **r} for r in outputs[0]]


def least(records):
    """(ranks, parameters, tensors): microseconds of a step, of computing alone, and between."""
    grouped = {}
    for r in records:
        grouped.setdefault((r["ranks"], r["parameters"], r["tensors"]), []).append(r)
    costs = {}
    for key, same in sorted(grouped.items()):
        step = min(r["step_least_us"] for r in same)
        compute = min(r["compute_least_us"] for r in same)
        costs[key] = {"step": step, "compute": compute, "averaging": step - compute}
    return costs


def solve(rows, values):
    """Least squares by the normal equations and Gauss' elimination; None where singular."""
    size = len(rows[0])
    matrix = [
        [sum(r[i] * r[j] for r in rows) for j in range(size)]
        + [sum(r[i] * v for r, v in zip(rows, values))]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        if abs(matrix[pivot][i]) < 1e-12:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        matrix[i] = [x / matrix[i][i] for x in matrix[i]]
        for k in range(size):
            if k != i:
                matrix[k] = [x - matrix[k][i] * y for x, y in zip(matrix[k], matrix[i])]
    return [row[-1] for row in matrix]


def fit_to_ratios(rows, values):
    """Factors, and the sum of p/v + v/p - 2 over predictions p and values v, which it makes least:
    twice too much is as wrong as half. An error of None: some factor would be negative."""
    predicted = values
    for _ in range(30):
        weights = [1 / (p * v) ** 0.5 for p, v in zip(predicted, values)]
        factors = solve(
            [[x * w for x in row] for row, w in zip(rows, weights)],
            [v * w for v, w in zip(values, weights)],
        )
        if factors is None or min(factors) < 0:
            return factors, None
        predicted = [sum(a * b for a, b in zip(row, factors)) for row in rows]
    return factors, sum(p / v + v / p - 2 for p, v in zip(predicted, values))


def load(ranks, cores):
    """How many ranks a core has to serve."""
    return max(1.0, ranks / cores)


def fit(costs, cores):
    """Averaging costs a + b ranks + (c tensors + d megabytes) ranks a core, in microseconds: the
    a, b, c and d, none negative, that fit best; the median relative error; and the formula."""
    measured = {
        key: cost["averaging"]
        for key, cost in costs.items()
        if key[0] > 1 and cost["averaging"] > 0
    }

    def terms(key):
        ranks, parameters, tensors = key
        each = load(ranks, cores)
        return [1.0, float(ranks), tensors * each, 4e-6 * parameters * each]

    best = None
    for used in itertools.product([True, False], repeat=4):
        kept = [i for i in range(4) if used[i]]
        if not kept:
            continue
        rows = [[terms(key)[i] for i in kept] for key in measured]
        solution, error = fit_to_ratios(rows, list(measured.values()))
        if error is not None and (best is None or error < best[0]):
            factors = [0.0] * 4
            for i, value in zip(kept, solution):
                factors[i] = value
            best = error, factors
    if best is None:
        sys.exit("costs: nothing to fit")
    factors = best[1]

    def predict(key):
        return sum(a * b for a, b in zip(factors, terms(key)))

    errors = [abs(predict(key) / value - 1) for key, value in measured.items()]
    return factors, statistics.median(errors), predict


def report(records, cores):
    costs = least(records)
    factors, error, predict = fit(costs, cores)
    fixed, per_rank, per_tensor, per_megabyte = factors
    rows = [
        (
            ranks,
            charts.short(parameters),
            charts.short(tensors),
            f"{cost['step']:.0f}",
            f"{cost['compute']:.0f}",
            f"{cost['averaging']:.0f}",
            f"{predict((ranks, parameters, tensors)):.0f}" if ranks > 1 else "",
        )
        for (ranks, parameters, tensors), cost in costs.items()
    ]
    head = ["ranks", "parameters", "tensors", "step us", "compute us", "averaging us", "formula us"]
    formula = (
        f"Averaging takes {fixed:.0f} us + {per_rank:.1f} us x ranks + ({per_tensor:.2f} us x "
        f"tensors + {per_megabyte:.0f} us x megabytes) x ranks a core; the median error of this "
        f"formula is {error:.0%}."
    )
    met = [
        (
            "cost of a tensor more",
            f"{per_tensor:.2f} us",
            f"<= {PER_TENSOR_GOAL_US:g} us",
            per_tensor <= PER_TENSOR_GOAL_US,
        )
    ]
    return "\n\n".join([harness.table(head, rows), formula, harness.goals_table(met)])


def pictures(records, cores):
    """Names and texts of the SVG files."""
    costs = least(records)
    *_, predict = fit(costs, cores)

    def curve(label, keys, x, what="averaging"):
        keys = [key for key in keys if key in costs]
        curves = [(label, [(x(key), costs[key][what] / 1e3) for key in keys], False)]
        if what == "averaging":
            curves.append((f"{label} (fit)", [(x(k), predict(k) / 1e3) for k in keys], True))
        return curves

    def sweep(rank_counts, keys_of, x):
        return [
            c for n in rank_counts for c in curve(f"{n} ranks", [k for k in keys_of(n)], x)
        ] + curve("compute, 2 ranks", keys_of(2), x, "compute")

    milliseconds = "milliseconds a step (dashed: formula)"
    over_ranks = [
        c
        for p in PARAMETERS[:-1]
        for c in curve(
            f"{charts.short(p)} parameters", [(n, p, FEW) for n in RANKS[1:]], lambda key: key[0]
        )
    ]
    return {
        "costs-ranks.svg": charts.Chart(
            f"Gradient averaging over ranks, {FEW} tensors, {cores} cores",
            "ranks",
            milliseconds,
            over_ranks,
            x_base=2,
        ).svg(),
        "costs-parameters.svg": charts.Chart(
            f"Gradient averaging over parameters, {FEW} tensors, {cores} cores",
            "parameters (float32)",
            milliseconds,
            sweep(RANKS[1:], lambda n: [(n, p, FEW) for p in PARAMETERS], lambda key: key[1]),
        ).svg(),
        "costs-tensors.svg": charts.Chart(
            f"Gradient averaging over tensors, {charts.short(FIXED)} parameters, {cores} cores",
            "tensors",
            milliseconds,
            sweep([2, 4], lambda n: [(n, FIXED, t) for t in TENSORS], lambda key: key[2]),
        ).svg(),
    }


def parse_arguments():
    parser = harness.arguments(__doc__, ranks=RANKS)
    parser.add_argument("--seconds", type=float, default=0.5, help="for a model")
    parser.add_argument("--max-parameters", type=int, default=PARAMETERS[-1])
    options = parser.parse_args()
    return options


def main():
    options = parse_arguments()
    return harness.run_in_turns(measure, lambda records: report(records, os.cpu_count()), options)


if __name__ == "__main__":
    sys.exit(main())
