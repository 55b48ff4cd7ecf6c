# SPDX-License-Identifier: Apache-2.0
"""What checkpoints of a 512 MB state cost a training loop in Python: the state and the steps of
checkpoint.cpp, saved by PyTorch and safetensors.

python -m torch.distributed.run --standalone --nproc-per-node 2 peers.py PEER DIRECTORY CHECKPOINTS

Prints what checkpoint.cpp prints.
"""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

TENSORS = [
    (5, 16_000_000),
    (3, 8_000_000),
    (4, 4_000_000),
    (6, 1_000_000),
    (4, 250_000),
    (10, 100_000),
]
QUIET_STEPS = 5
LOADS = 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.matrix = torch.randn(512, 512)
        sizes = [elements for count, elements in TENSORS for _ in range(count)]
        for number, elements in enumerate(sizes):
            self.register_parameter(f"p{number}", nn.Parameter(torch.randn(elements // 1000, 1000)))

    @torch.no_grad()
    def step(self):
        """Something to compute, and an update of all parameters. Returns its seconds."""
        start = time.perf_counter()
        product = self.matrix
        for _ in range(3):
            product = torch.tanh(torch.mm(product, self.matrix))
        rate = 1e-6 * product[0][0].item()
        for parameter in self.parameters():
            parameter.add_(rate)
        return time.perf_counter() - start

    def fingerprint(self):
        """Some values of each parameter, to know a state by."""
        return [parameter.detach()[-1].clone() for parameter in self.parameters()]


def sync_path(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def slowest(seconds):
    tensor = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def everywhere(condition):
    tensor = torch.tensor([condition])
    dist.all_reduce(tensor, dist.ReduceOp.MIN)
    return tensor.item()


class OneFile:
    """Rank 0 writes a file and makes it durable; the others wait."""

    def __init__(self, directory, write, read):
        self.directory, self.write, self.read = directory, write, read

    def save(self, model, number):
        if dist.get_rank() == 0:
            file = self.directory / f"state-{number}"
            self.write(model.state_dict(), file)
            sync_path(file)
            sync_path(self.directory)
        dist.barrier()

    def load(self, model, number):
        model.load_state_dict(self.read(self.directory / f"state-{number}"))


class Dcp:
    """torch.distributed.checkpoint: every rank writes its part."""

    def __init__(self, directory, asynchronous=False, keep_buffers=False):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self.directory, self.dcp, self.asynchronous = directory, dcp, asynchronous
        # Its collectives, which another thread makes, must not meet ours.
        self.options = {"process_group": dist.new_group(backend="gloo")}
        if keep_buffers:
            # All that works without a GPU.
            staging = StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
            self.options["async_stager"] = DefaultStager(staging)

    def save(self, model, number):
        where = str(self.directory / f"state-{number}")
        if self.asynchronous:
            return self.dcp.async_save(
                {"model": model.state_dict()}, checkpoint_id=where, **self.options
            )
        self.dcp.save({"model": model.state_dict()}, checkpoint_id=where, **self.options)

    def load(self, model, number):
        state = {"model": model.state_dict()}
        self.dcp.load(state, checkpoint_id=str(self.directory / f"state-{number}"))
        model.load_state_dict(state["model"])


def peer(name, directory):
    """What saves, and what loads, by name."""

    def torch_file(**how):
        return OneFile(
            directory,
            torch.save,
            lambda file: torch.load(file, weights_only=True, **how),
        )

    if name == "torch":
        plain = torch_file()
        return plain, {"torch.load": plain, "torch.load, mmap": torch_file(mmap=True)}
    if name == "safetensors":
        from safetensors.torch import load_file, save_file

        file = OneFile(directory, save_file, load_file)
        return file, {"safetensors": file}
    kinds = {
        "dcp": {},
        "dcp-async": {"asynchronous": True},
        "dcp-async-kept": {"asynchronous": True, "keep_buffers": True},
    }
    saver = Dcp(directory, **kinds[name])
    return saver, {"DCP": saver}


def measure_save(model, save):
    """Steps, then `save()`, then steps until what it returns, if anything, is done. Seconds of
    each on the slowest rank, and the fingerprint of what was saved."""
    quiet = sum(model.step() for _ in range(QUIET_STEPS)) / QUIET_STEPS
    saved = model.fingerprint()
    dist.barrier()
    start = time.perf_counter()
    pending = save()
    blocked = durable = time.perf_counter() - start
    slowed = 0.0
    ended = [blocked]
    if pending is not None:
        ended.clear()
        pending.add_done_callback(lambda _: ended.append(time.perf_counter() - start))
    while not everywhere(bool(ended)):  # all ranks make as many steps
        slowed += model.step() - quiet
    if pending is not None:
        pending.result()
        durable = ended[0]
    times = {"blocked_s": blocked, "durable_s": durable, "slowed_s": slowed, "step_s": quiet}
    return {name: slowest(seconds) for name, seconds in times.items()}, saved


def main():
    name, directory, checkpoints = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("cpu:gloo")
    torch.set_num_threads(1)
    model = Model()
    saver, loaders = peer(name, directory)

    def say(line):
        if dist.get_rank() == 0:
            print(json.dumps(line), flush=True)

    for number in range(checkpoints):
        times, saved = measure_save(model, lambda number=number: saver.save(model, number))
        say({"checkpoint": number, **times})
    for label, loader in loaders.items():
        for _ in range(LOADS):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            dist.barrier()
            start = time.perf_counter()
            loader.load(model, checkpoints - 1)
            seconds = time.perf_counter() - start
            if not all(map(torch.equal, model.fingerprint(), saved)):
                sys.exit("the state that was loaded is not the one that was saved")
            say({"load": label, "load_s": slowest(seconds)})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
