#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes averages.txt: what torch.optim.swa_utils makes of the weights of some steps, which tests/mpi/fit_callbacks_test.cpp
repeats with Ema, Swa and update_batch_norm. A line is a name and numbers.

Usage: make_averages.py [--check]

With --check it writes nothing, and fails if the file differs by more than 1e-6. Exits with 77 without torch.
"""

import pathlib
import sys

try:
    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
except ImportError:
    sys.exit(77)

TARGET = pathlib.Path(__file__).with_name("averages.txt")
STEPS, BATCHES, DECAY = 8, 6, 0.9


def numbers(tensors):
    return [float(number) for tensor in tensors for number in tensor.detach().flatten()]


def table():
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    swa = AveragedModel(model)
    lines = []
    for _ in range(STEPS):
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        ema.update_parameters(model)
        swa.update_parameters(model)
        lines += [("weights", numbers(model.parameters())), ("ema", numbers(ema.module.parameters())),
                  ("swa", numbers(swa.module.parameters()))]
    batches = list(torch.randn(BATCHES, 5, 3))
    update_bn(batches, swa)
    lines += [("batch", numbers([batch])) for batch in batches]
    norm = swa.module[0]
    return [*lines, ("mean", numbers([norm.running_mean])), ("variance", numbers([norm.running_var]))]


def main():
    made = table()
    if "--check" not in sys.argv:
        TARGET.write_text("".join(" ".join([name, *(f"{number:.9g}" for number in of)]) + "\n" for name, of in made))
        return
    known = [line.split() for line in TARGET.read_text().splitlines()]
    known = [(line[0], [float(number) for number in line[1:]]) for line in known]
    if [(name, len(of)) for name, of in known] != [(name, len(of)) for name, of in made] or any(
            abs(one - other) > 1e-6 for (_, of), (_, now) in zip(known, made) for one, other in zip(of, now)):
        sys.exit(f"{TARGET} is not what torch {torch.__version__} computes now")


if __name__ == "__main__":
    main()
