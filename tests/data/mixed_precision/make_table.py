#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cpu.txt beside this file: how torch 2.13 trains a small network with autocast, a GradScaler and clipping.

    make_table.py           writes the file
    make_table.py --check   compares instead, and ends with 77 (a skipped test) where there is no torch
    make_table.py cuda      prints the same for a device

A line for each type: its name, the loss, the gradients' norm and the scale of each step, and at last the sum of the
parameters' magnitudes. The gradients of one step overflow.
"""

import math
import pathlib
import sys

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FILE = pathlib.Path(__file__).parent / "cpu.txt"
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def filled(scale, *shape):
    return (torch.arange(math.prod(shape), dtype=torch.float64).mul(0.37).sin() * scale).float().view(shape)


def figures_of(kind, device):
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(filled(0.3, *parameter.shape))
    net.to(device)
    x, y = filled(1, 24, 16).to(device), filled(2, 24, 4).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device, init_scale=1024, growth_interval=3)
    figures = []
    for step in range(8):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=kind, enabled=kind != torch.float32):
            output = net(x)
        loss = (output.float() - y).square().mean()
        (scaler.scale(loss) * (math.inf if step == 4 else 1)).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        figures += [loss.item(), norm.item(), scaler.get_scale()]
    return figures + [sum(p.detach().double().abs().sum().item() for p in net.parameters())]


def line_of(kind, device):
    return " ".join([str(kind).removeprefix("torch."), *(f"{figure:.9g}" for figure in figures_of(kind, device))])


def is_same(ours, kept):
    return len(ours) == len(kept) and all(
        a == b or math.isclose(float(a), float(b), rel_tol=1e-6) for a, b in zip(ours, kept))


device = next((word for word in sys.argv[1:] if not word.startswith("-")), "cpu")
lines = [line_of(kind, device) for kind in TYPES]
if "--check" in sys.argv:
    kept = FILE.read_text(encoding="utf-8").splitlines()
    if len(lines) != len(kept) or not all(is_same(a.split(), b.split()) for a, b in zip(lines, kept)):
        sys.exit(f"torch {torch.__version__} trains differently from {FILE}:\n" + "\n".join(lines))
    print(f"{len(lines)} types are trained as torch {torch.__version__} does")
elif device == "cpu":
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
else:
    print("\n".join(lines))
