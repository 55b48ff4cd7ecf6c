# SPDX-License-Identifier: Apache-2.0
"""The parity workload on PyTorch's DistributedDataParallel over Gloo, tuned by hand.

python -m torch.distributed.run --standalone --nproc-per-node 2 ddp_parity.py --epochs 5
"""

import argparse
import gzip
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH = 64
ROWS = 60000
LEARNING_RATE = 1e-3
DDP_OPTIONS = {
    "gradient_as_bucket_view": True,
    "static_graph": True,
    "bucket_cap_mb": 25,  # the default size, but said aloud it makes one bucket instead of two
}


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


def build(hidden):
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
        nn.ReLU(),
    )


def train(options, prepare, say):
    """`prepare` makes the model distributed; rank 0 calls `say` with each line of results."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = prepare(build(options.hidden))
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[options.optimizer]
    optimizer = kind(model.parameters(), lr=LEARNING_RATE, fused=True)
    loss_of = nn.CrossEntropyLoss()
    images, labels = load(pathlib.Path(options.data))
    first_step = 0.0

    for epoch in range(options.epochs):
        dist.barrier()
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(ROWS, generator=generator)[rank::size].contiguous()
        total = torch.zeros(())
        batches = order.split(GLOBAL_BATCH // size)[: options.steps or None]
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
            say(f'{{"epoch": {epoch}, "seconds": {seconds:.6f}, "loss": {loss:.9f}}}')

    pss = reduced(pss_mb(), dist.ReduceOp.SUM)
    if rank == 0:
        say(f'{{"first_step": {first_step:.6f}, "pss_mb": {pss:.3f}}}')


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--steps", type=int, default=0, help="of an epoch; 0: all")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    return parser.parse_args()


def main():
    options = parse_arguments()
    dist.init_process_group("gloo")
    train(
        options,
        lambda model: DistributedDataParallel(model, **DDP_OPTIONS),
        lambda line: print(line, flush=True),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
