# SPDX-License-Identifier: Apache-2.0
"""The program of programs.py: rank 0 writes how long its imports took, and when its first all-reduce ended. With KILL,
rank 1 kills itself then, in the first start. With WAIT, each rank sleeps for so many seconds."""
import os
import signal
import time

BEGAN = time.time()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

IMPORTED = time.time()


def note(what, seconds):
    with open(os.environ["TIMES"], "a") as times:
        print(what, seconds, file=times, flush=True)


dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    note("imports", IMPORTED - BEGAN)
    note("all_reduce", time.time())
if os.environ.get("KILL") and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
    dist.all_reduce(torch.ones(1))  # rank 0 has written
    if dist.get_rank() == 1:
        note("kill", time.time())
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))
time.sleep(float(os.environ.get("WAIT", "0")))
os._exit(0)
