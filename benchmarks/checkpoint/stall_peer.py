# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint in the background costs training with AdamW in PyTorch: the model and the steps
of stall.cpp, in DDP over Gloo, saved by DCP's async_save into buffers that it keeps.

python -m torch.distributed.run --standalone --nproc-per-node 2 stall_peer.py DIRECTORY CHECKPOINTS

Prints what stall.cpp prints.
"""

import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict

QUIET_STEPS, ROWS = 5, 128


def seconds(action):
    """Seconds that `action` takes on the slowest rank; all begin together. And its result."""
    dist.barrier()
    start = time.perf_counter()
    result = action()
    taken = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item(), result


def main():
    directory, checkpoints = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("cpu:gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = []
    for out in (2048, 2048, 2048, 2048, 2048, 640):
        layers += [nn.Linear(2048, out), nn.ReLU()]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.randn(ROWS, 2048)
    options = {
        "process_group": dist.new_group(backend="gloo"),
        "async_stager": DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        ),
    }

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def save(number):
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        return dcp.async_save(state, checkpoint_id=str(directory / f"state-{number}"), **options)

    for number in range(checkpoints):
        quiet = sorted(seconds(step)[0] for _ in range(QUIET_STEPS))
        stall, pending = seconds(lambda number=number: save(number))
        beside, _ = seconds(step)
        pending.result()
        if dist.get_rank() == 0:
            times = {"stall_s": stall, "beside_s": beside, "quiet_s": quiet[QUIET_STEPS // 2]}
            print(json.dumps({"checkpoint": number, **times}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
