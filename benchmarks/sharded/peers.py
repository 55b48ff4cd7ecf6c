# SPDX-License-Identifier: Apache-2.0
"""The program of sharded.cpp with torch's own engines, over gloo.

Usage: torchrun --nproc-per-node 2 peers.py ddp|fsdp2 WIDTH LAYERS BATCH STEPS

Rank 0 prints a JSON line. AdamW is fused in both.
"""
import argparse
import json
import time

import torch
import torch.distributed as dist
from torch import nn


def pss_mb():
    """MB of this process, what is shared counted once."""
    with open("/proc/self/smaps_rollup", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def prepare(mode, net):
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in net:
        if isinstance(module, nn.Linear):
            fully_shard(module, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["ddp", "fsdp2"])
    for name in ("width", "layers", "batch", "steps"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    layers = []
    for i in range(given.layers):
        layers.append(nn.Linear(given.width, given.width))
        if i + 1 < given.layers:
            layers.append(nn.ReLU())
    net = nn.Sequential(*layers)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    model = prepare(given.mode, net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.manual_seed(100 + dist.get_rank())
    x = torch.randn(given.batch, given.width)
    y = torch.randn(given.batch, given.width)
    times = []
    for step in range(-3, given.steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if step >= 0:
            times.append((time.perf_counter() - begun) * 1e3)
    pss = torch.tensor([pss_mb()])
    dist.all_reduce(pss)
    times.sort()
    if dist.get_rank() == 0:
        print(json.dumps({"mode": given.mode, "ranks": dist.get_world_size(), "parameters": parameters,
                          "best_ms": round(times[0], 1), "median_ms": round(times[len(times) // 2], 1),
                          "pss_mb": round(pss.item() / dist.get_world_size())}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
