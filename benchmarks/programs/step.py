# SPDX-License-Identifier: Apache-2.0
"""The program of programs.py: each rank writes when its process was started and when its imports ended, rank 0 when its
first all-reduce did. With KILL, rank 1 kills itself then, in the first start. With WAIT, each rank sleeps for so many
seconds; with IMPORTS_ONLY, instead of the all-reduce."""
import os
import signal
import time

import torch
import torch.distributed as dist

IMPORTED = time.time()


def started():
    """When this process was, to 10 ms."""
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def note(what, seconds):
    with open(os.environ["TIMES"], "a") as times:
        print(what, seconds, file=times, flush=True)


note("started", started())
note("imported", IMPORTED)
if "IMPORTS_ONLY" in os.environ:
    time.sleep(float(os.environ["WAIT"]))
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    note("all_reduce", time.time())
if os.environ.get("KILL") and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
    dist.all_reduce(torch.ones(1))  # rank 0 has written
    if dist.get_rank() == 1:
        note("kill", time.time())
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))
time.sleep(float(os.environ.get("WAIT", "0")))
os._exit(0)
