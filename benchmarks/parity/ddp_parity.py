# SPDX-License-Identifier: Apache-2.0
"""The parity workload on PyTorch's DistributedDataParallel over Gloo, tuned by hand.

    python -m torch.distributed.run --standalone --nproc-per-node 2 ddp_parity.py EPOCHS [DATA]
"""

import gzip
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DEFAULT_DATA = "/usr/share/datasets/fashion-mnist"
GLOBAL_BATCH = 64
ROWS = 60000


def read_idx(path, shape):
    data = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    header = 4 + 4 * len(shape)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=header).view(shape)


def load(directory):
    pixels = read_idx(directory / "train-images-idx3-ubyte", (ROWS, 28, 28))
    labels = read_idx(directory / "train-labels-idx1-ubyte", (ROWS,))
    return pixels.float().div_(255.0).sub_(0.5).div_(0.5), labels.long()


def pss_mb():
    with open("/proc/self/smaps_rollup") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return kib * 1024 / 1e6


def reduced(value, op):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, op)
    return tensor.item()


def main():
    epochs = int(sys.argv[1])
    directory = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else DEFAULT_DATA)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
            nn.ReLU(),
        ),
        gradient_as_bucket_view=True,
        static_graph=True,
        bucket_cap_mb=25,  # the default size, but said aloud it makes one bucket instead of two
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    loss_of = nn.CrossEntropyLoss()
    images, labels = load(directory)
    first_step = 0.0

    for epoch in range(epochs):
        dist.barrier()
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(ROWS, generator=generator)[rank::size].contiguous()
        total = torch.zeros(())
        batches = order.split(GLOBAL_BATCH // size)
        for indices in batches:
            image = images.index_select(0, indices)
            label = labels.index_select(0, indices)
            optimizer.zero_grad()
            loss = loss_of(model(image), label)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            if not first_step:
                first_step = time.time()
        mine = total.item() / len(batches)
        seconds = reduced(time.perf_counter() - start, dist.ReduceOp.MAX)
        loss = reduced(mine, dist.ReduceOp.SUM) / size
        if rank == 0:
            print(f'{{"epoch": {epoch}, "seconds": {seconds:.6f}, "loss": {loss:.9f}}}', flush=True)

    pss = reduced(pss_mb(), dist.ReduceOp.SUM)
    if rank == 0:
        print(f'{{"first_step": {first_step:.6f}, "pss_mb": {pss:.3f}}}', flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
