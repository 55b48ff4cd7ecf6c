# SPDX-License-Identifier: Apache-2.0
"""The program of sharded.cpp with torch's own engines, over gloo.

Usage: torchrun --nproc-per-node 2 peers.py ddp|fsdp2 mlp|gpt WIDTH LAYERS BATCH STEPS

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


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.norm_in, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        split = [part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                 for part in self.qkv(self.norm_in(x)).chunk(3, 2)]
        seen = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
        h = x + self.mix(seen.transpose(1, 2).flatten(2))
        return h + self.down(nn.functional.gelu(self.up(self.norm_out(h))))


def make_model(given):
    torch.manual_seed(7)
    if given.model == "gpt":
        return nn.Sequential(*(Block(given.width) for _ in range(given.layers)))
    layers = []
    for i in range(given.layers):
        layers.append(nn.Linear(given.width, given.width))
        if i + 1 < given.layers:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def prepare(mode, net):
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in net:
        if not isinstance(module, nn.ReLU):
            fully_shard(module, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["ddp", "fsdp2"])
    parser.add_argument("model", choices=["mlp", "gpt"])
    for name in ("width", "layers", "batch", "steps"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    net = make_model(given)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    model = prepare(given.mode, net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.manual_seed(100 + dist.get_rank())
    shape = (given.batch, 128, given.width) if given.model == "gpt" else (given.batch, given.width)
    x, y = torch.randn(shape), torch.randn(shape)
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
        print(json.dumps({"mode": given.mode, "model": given.model, "ranks": dist.get_world_size(), "parameters": parameters,
                          "best_ms": round(times[0], 1), "median_ms": round(times[len(times) // 2], 1),
                          "pss_mb": round(pss.item() / dist.get_world_size())}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
