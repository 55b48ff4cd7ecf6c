# SPDX-License-Identifier: Apache-2.0
"""The program of programs.py: writes when rank 0 has ended its first all-reduce, and kills a rank if told to."""
import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
start = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
if dist.get_rank() == 0:
    with open(os.environ["TIMES"], "a") as times:
        print("all_reduce", time.time(), file=times, flush=True)
if os.environ.get("KILL") and start == 0:
    if dist.get_rank() == 1:
        with open(os.environ["TIMES"], "a") as times:
            print("kill", time.time(), file=times, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))
if os.environ.get("WAIT"):
    time.sleep(float(os.environ["WAIT"]))
os._exit(0)
