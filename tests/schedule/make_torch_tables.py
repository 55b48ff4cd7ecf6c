#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch_tables.bin beside this file: learning rates (and momenta) of torch.optim.lr_scheduler, torch 2.13,
over 10,000 steps from an initial rate of 1, each step taken by the scheduler itself. Schedules that torch lacks are
the formulas of Hugging Face's transformers in a LambdaLR.

With --check it compares instead, and ends with 77 (a skipped test) where there is no torch.

The file is a zlib stream: lines "name steps", an empty line, then the cases' values, rounded to multiples of 2^-46,
as third differences in zigzag variable-length integers.
"""

import math
import pathlib
import sys
import warnings
import zlib

try:
    import torch
    from torch.optim import lr_scheduler as lr
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

warnings.filterwarnings("ignore")
FILE = pathlib.Path(__file__).parent / "torch_tables.bin"
STEPS = 10_000
SCALE = 2.0 ** 46


def sequential(*parts):
    """SequentialLR of (scheduler, milestone), ..., (scheduler, None)."""
    return lambda o: lr.SequentialLR(o, [make(o) for make, _ in parts], [at for _, at in parts[:-1]])


def chained(*parts):
    return lambda o: lr.ChainedScheduler([make(o) for make in parts])


def inverse_sqrt(warmup, timescale):
    def rate(step):
        if step < warmup:
            return step / max(1, warmup)
        return 1 / math.sqrt((step + timescale - warmup) / timescale)
    return lambda o: lr.LambdaLR(o, rate)


def wsd(warmup, stable, decay, kind, least):
    def rate(step):
        if step < warmup:
            return step / max(1, warmup)
        if step < warmup + stable:
            return 1
        x = (step - warmup - stable) / decay
        shape = {"linear": 1 - x, "cosine": (1 + math.cos(math.pi * x)) / 2, "1-sqrt": 1 - math.sqrt(x)}[kind]
        return shape * (1 - least) + least
    return lambda o: lr.LambdaLR(o, rate)


CASES = {  # name: (scheduler, steps); schedule_test.cpp has the same names
    "Constant": lambda o: lr.ConstantLR(o, 0.25, 300),
    "Linear": lambda o: lr.LinearLR(o, 0.1, 0.9, 4000),
    "Linear.default": lambda o: lr.LinearLR(o, total_iters=STEPS),
    "Step": lambda o: lr.StepLR(o, 700, 0.5),
    "MultiStep": lambda o: lr.MultiStepLR(o, [30, 800, 800, 5000, 9999], 0.3),
    "Exponential": lambda o: lr.ExponentialLR(o, 0.9995),
    "Polynomial": lambda o: lr.PolynomialLR(o, 9000, 2.5),
    "Polynomial.linear": lambda o: lr.PolynomialLR(o, STEPS),
    "Cosine": lambda o: lr.CosineAnnealingLR(o, STEPS),
    "Cosine.min": lambda o: lr.CosineAnnealingLR(o, STEPS, 0.05),
    "CosineRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 7),
    "CosineRestarts.longer": lambda o: lr.CosineAnnealingWarmRestarts(o, 10, 2, 0.1),
    "OneCycle": lambda o: lr.OneCycleLR(o, 1.0, STEPS),
    "OneCycle.linear": lambda o: lr.OneCycleLR(o, 1.0, STEPS, pct_start=0.123, anneal_strategy="linear", div_factor=10,
                                               final_div_factor=100, base_momentum=0.7, max_momentum=0.99),
    "OneCycle.three_phase": lambda o: lr.OneCycleLR(o, 1.0, STEPS, three_phase=True),
    "OneCycle.short": lambda o: lr.OneCycleLR(o, 1.0, 7),
    "OneCycle.no_rise": lambda o: lr.OneCycleLR(o, 1.0, 50, pct_start=0.0),
    "Cyclic": lambda o: lr.CyclicLR(o, 0.1, 1.0, 300),
    "Cyclic.triangular2": lambda o: lr.CyclicLR(o, 0.01, 1.0, 300, 500, mode="triangular2"),
    "Cyclic.exp_range": lambda o: lr.CyclicLR(o, 0.2, 1.0, 17, 4, mode="exp_range", gamma=0.9997,
                                              base_momentum=0.5, max_momentum=0.95),
    "InverseSqrt": inverse_sqrt(0, 10_000),
    "InverseSqrt.warmup": inverse_sqrt(400, 400),
    "WarmupStableDecay": wsd(500, 6000, 3500, "linear", 0),
    "WarmupStableDecay.cosine": wsd(500, 6000, 3500, "cosine", 0.1),
    "WarmupStableDecay.sqrt": wsd(0, 6000, 4000, "1-sqrt", 0.01),
    "Warmup.Cosine": sequential((lambda o: lr.LinearLR(o, 0.01, 1, 100), 100),
                                (lambda o: lr.CosineAnnealingLR(o, STEPS - 100), None)),
    "three": sequential((lambda o: lr.ConstantLR(o, 0.1, 2000), 20), (lambda o: lr.ExponentialLR(o, 0.999), 3000),
                        (lambda o: lr.StepLR(o, 1000, 0.5), None)),
    "product": chained(lambda o: lr.LinearLR(o, 0.2, 1, 900), lambda o: lr.ExponentialLR(o, 0.9998),
                       lambda o: lr.MultiStepLR(o, [100, 4000], 0.5)),
    "product.then": sequential((lambda o: lr.LinearLR(o, 0.5, 1, 50), 50),
                               (lambda o: lr.CosineAnnealingWarmRestarts(o, 1000, 1, 0.2), 7050),
                               (lambda o: lr.PolynomialLR(o, 2950, 2), None)),
}
LENGTHS = {"OneCycle": STEPS - 1, "OneCycle.linear": STEPS - 1, "OneCycle.three_phase": STEPS - 1,
           "OneCycle.short": 6, "OneCycle.no_rise": 49}


def tables():
    """{name: values}, with "name.momentum" for those that move it."""
    found = {}
    for name, make in CASES.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.5)
        scheduler = make(optimizer)
        rates, momenta = [], []
        for step in range(LENGTHS.get(name, STEPS) + 1):
            if step > 0:
                optimizer.step()
                scheduler.step()
            rates.append(float(optimizer.param_groups[0]["lr"]))
            momenta.append(float(optimizer.param_groups[0]["momentum"]))
        found[name] = rates
        if set(momenta) != {0.5}:
            found[name + ".momentum"] = momenta
    return found


def packed(found):
    head = "".join(f"{name} {len(values)}\n" for name, values in found.items()) + "\n"
    body = bytearray()
    for values in found.values():
        numbers = [round(value * SCALE) for value in values]
        for _ in range(3):
            numbers = [b - a for a, b in zip([0, *numbers], numbers)]
        for number in numbers:
            left = number * 2 if number >= 0 else -number * 2 - 1
            while left >= 128:
                body.append(left % 128 + 128)
                left //= 128
            body.append(left)
    return zlib.compress(head.encode() + bytes(body), 9)


def unpacked(data):
    text = zlib.decompress(data)
    end = text.index(b"\n\n")
    found, at = {}, end + 2
    for line in text[:end].decode().splitlines():
        name, count = line.split()
        numbers = []
        for _ in range(int(count)):
            left = shift = 0
            while True:
                byte = text[at]
                at += 1
                left |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            numbers.append(left // 2 if left % 2 == 0 else -(left + 1) // 2)
        for _ in range(3):
            total, sums = 0, []
            for number in numbers:
                total += number
                sums.append(total)
            numbers = sums
        found[name] = [number / SCALE for number in numbers]
    return found


def main():
    found = tables()
    if sys.argv[1:] != ["--check"]:
        FILE.write_bytes(packed(found))
        print(f"{len(found)} tables, {FILE.stat().st_size} bytes")
    kept = unpacked(FILE.read_bytes())
    wrong = [name for name in {**found, **kept}
             if name not in found or name not in kept or len(found[name]) != len(kept[name])
             or any(abs(a - b) > 1e-13 for a, b in zip(found[name], kept[name]))]
    for name in wrong:
        print(f"make_torch_tables: torch {torch.__version__} has other values of {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
