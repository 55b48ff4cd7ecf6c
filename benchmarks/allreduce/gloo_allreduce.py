# SPDX-License-Identifier: Apache-2.0
"""Times of torch.distributed's all-reduce over Gloo, taken as allreduce.cpp takes its own.

    python -m torch.distributed.run --standalone --nproc-per-node 2 gloo_allreduce.py \
        SIZES SECONDS BARRIER_FILE

Ranks meet in shared memory, in BARRIER_FILE, which must be fresh: Gloo's own barrier lets them go
further apart than a small all-reduce takes. No MPI.
"""

import mmap
import os
import sys
import time

import torch
import torch.distributed as dist

SMALL_BYTES = 1024
CALLS_OF_SMALL_SAMPLE = 16


class Barrier:
    """Each rank counts its arrivals in a word of its own, and waits for all others'."""

    def __init__(self, path, rank, size):
        with open(path, "a+b") as file:
            file.truncate(8 * size)
            self.arrivals = memoryview(mmap.mmap(file.fileno(), 8 * size)).cast("q")
        self.rank, self.peers = rank, [peer for peer in range(size) if peer != rank]

    def wait(self):
        turn = self.arrivals[self.rank] + 1
        self.arrivals[self.rank] = turn
        for peer in self.peers:
            while self.arrivals[peer] < turn:
                os.sched_yield()


def measure(size, seconds, barrier):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensor = torch.zeros(size // 4)
    calls = CALLS_OF_SMALL_SAMPLE if size <= SMALL_BYTES else 1

    def sample(turn):
        value = float(rank + 1 + turn % 3)
        tensor.fill_(value)
        barrier.wait()
        start = time.perf_counter()
        for call in range(calls):
            if call:
                tensor.fill_(value)
            dist.all_reduce(tensor)
        return (time.perf_counter() - start) / calls

    def check(turn):
        if not tensor.eq(ranks * (ranks + 1) // 2 + ranks * (turn % 3)).all():
            sys.exit(f"wrong result at {size} bytes")

    sample(1)
    check(1)
    one_sample = seconds
    for trial in range(2):
        start = time.perf_counter()
        sample(trial)
        one_sample = min(one_sample, time.perf_counter() - start)
    slowest = torch.tensor(one_sample)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    samples = int(min(max(seconds / slowest.item(), 4), 1000))
    times = torch.tensor([sample(turn) for turn in range(samples)], dtype=torch.float64)
    check(samples - 1)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    if rank == 0:
        times = times.sort().values * 1e6
        print(
            f'{{"contestant": "gloo", "bytes": {size}, "samples": {samples}, '
            f'"min_us": {times[0]:.4f}, "median_us": {times[samples // 2]:.4f}}}',
            flush=True,
        )


def main():
    sizes, seconds, barrier_file = sys.argv[1:4]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    barrier = Barrier(barrier_file, dist.get_rank(), dist.get_world_size())
    dist.barrier()
    for size in sizes.split(","):
        measure(int(size), float(seconds), barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
