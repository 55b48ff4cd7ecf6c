# SPDX-License-Identifier: Apache-2.0
"""restart.cpp's training on DistributedDataParallel over Gloo, for torchrun and Ray Train.

python -m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 9 peers.py DIRECTORY
"""

import io
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT_EVERY = 20
PAUSE_OF_STEP_S = 0.01


def add_mark(directory, rank, what, step=0):
    file = os.open(f"{directory}/marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{time.time():.6f} {rank} {os.getpid()} {what} {step}\n".encode())
    os.close(file)


def train(directory, prepare, load, save):
    """`load()` returns what was saved last, or None; all ranks call `save(state, step)`."""
    rank = dist.get_rank()
    add_mark(directory, rank, "training")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = prepare(nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)))
    optimizer = torch.optim.Adam(model.parameters())
    loss_of = nn.CrossEntropyLoss()
    step = 0
    if saved := load():
        state = torch.load(io.BytesIO(saved))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    while True:
        optimizer.zero_grad()
        loss_of(model(torch.randn(32, 784)), torch.randint(10, (32,))).backward()
        optimizer.step()
        step += 1
        add_mark(directory, rank, "step", step)
        time.sleep(PAUSE_OF_STEP_S)
        if step % CHECKPOINT_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            save(state, step)


def main():
    directory = sys.argv[1]
    add_mark(directory, int(os.environ["RANK"]), "main")
    dist.init_process_group("gloo")
    file = pathlib.Path(directory) / "state.pt"

    def save(state, _):
        if dist.get_rank() == 0:
            torch.save(state, f"{file}.new")
            os.replace(f"{file}.new", file)

    train(
        directory,
        DistributedDataParallel,
        lambda: file.read_bytes() if file.exists() else None,
        save,
    )


if __name__ == "__main__":
    main()
