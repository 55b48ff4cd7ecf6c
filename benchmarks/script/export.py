# SPDX-License-Identifier: Apache-2.0
"""Exports the networks of script_bench, and with `ddp` measures PyTorch's DDP on two ranks.

    export.py DIRECTORY
    torchrun --nproc_per_node 2 export.py DIRECTORY ddp
"""
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional


def mlp(units):
    layers = [layer for _ in range(3) for layer in (nn.Linear(units, units), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(units, 10))


def ddp(units, rounds=15, steps=50, rows=32):
    net = nn.parallel.DistributedDataParallel(mlp(units))
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    x, y = torch.randn(rows, units), torch.randint(0, 10, (rows,))
    best = 1e9
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        best = min(best, (time.perf_counter() - begin) / steps)
    if torch.distributed.get_rank() == 0:
        size = torch.distributed.get_world_size()
        print(f"{units} units, {size} ranks: PyTorch DDP {best * 1e6:.1f} us a step, {rows * size / best:.0f} rows/s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        torch.distributed.init_process_group("gloo")
        for units in 128, 512:
            ddp(units)
        torch.distributed.destroy_process_group()
    else:
        os.makedirs(sys.argv[1], exist_ok=True)
        for units in 128, 512:
            torch.jit.script(mlp(units)).save(f"{sys.argv[1]}/mlp{units}.pt")
