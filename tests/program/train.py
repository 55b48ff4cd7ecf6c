# SPDX-License-Identifier: Apache-2.0
"""A DDP training over gloo that knows nothing of rtrain, except how to die.

Usage: train.py [--steps N] [--fault FAULT]...

A fault is KIND:RANK:PHASE, and the n-th one happens in the n-th start: kill, stop, sleep, skip, or exit=CODE;
in the phase before, init, after, reduce or end. The last line of rank 0 has the bits of the loss."""
import argparse, os, signal, sys, threading, time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--fault", action="append", default=[])
parser.add_argument("--on-term", choices=["save", "ignore"])
arguments = parser.parse_args()
rank = int(os.environ["RANK"])
start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
kind, faulty, phase = (arguments.fault[start].split(":") if start < len(arguments.fault) else ("", "-1", ""))
faulty = int(faulty)


def fail():
    print(f"start {start}: rank {rank} does {kind} in {phase}", flush=True)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "sleep":
        forever_asleep()
    elif kind.startswith("exit="):
        os._exit(int(kind[5:]))


def forever_asleep():
    time.sleep(100000)


def fail_inside(function):
    """As soon as the main thread is in it."""
    main = threading.main_thread().ident

    def watch():
        while True:
            frame = sys._current_frames().get(main)
            while frame is not None:
                if frame.f_code.co_name == function:
                    fail()
                frame = frame.f_back
            time.sleep(0.0005)
    threading.Thread(target=watch, daemon=True).start()


if rank == faulty and phase == "before":
    fail()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

if arguments.on_term == "save":
    def save(*_):
        print(f"rank {rank} saves", flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, save)
elif arguments.on_term == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

if rank == faulty and phase == "init":
    fail_inside("init_process_group")
dist.init_process_group("gloo")
if rank == faulty and phase == "after":
    fail()


def meet_in_all_reduce():
    """One rank dies in it, while the others have not entered it."""
    if rank == faulty:
        if kind != "skip":
            fail_inside("all_reduce")
            dist.all_reduce(torch.zeros(1))
    elif kind == "skip":
        dist.all_reduce(torch.zeros(1))
    else:
        forever_asleep()


if phase == "reduce":
    meet_in_all_reduce()
    if kind == "skip":
        forever_asleep()
torch.manual_seed(7)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
torch.manual_seed(100 + rank)
for step in range(arguments.steps):
    x = torch.randn(32, 20)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.data)
if rank == 0:
    print(f"loss {loss.item().hex()} after {start} restarts on {dist.get_world_size()} ranks", flush=True)
dist.barrier()
dist.destroy_process_group()
if rank == faulty and phase == "end":
    fail()
sys.stdout.flush()
os._exit(0)  # at exit, torch 2.13 has aborted on a busy machine, also under torchrun
