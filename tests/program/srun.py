#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays srun: starts a program as the tasks of a step, with Slurm's variables, and returns their largest exit code.

Usage: srun.py localhost:3 PROGRAM...
       srun.py n0:2,n1:1 PROGRAM...    # on the nodes of tests/nodes/nodes.py"""
import os
import pathlib
import shlex
import subprocess
import sys

AGENT = pathlib.Path(__file__).resolve().parents[1] / "nodes/agent"


def main():
    nodes = [(name, int(tasks)) for name, _, tasks in (word.partition(":") for word in sys.argv[1].split(","))]
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": str(len(nodes)),
            "SLURM_STEP_NUM_TASKS": str(sum(tasks for _, tasks in nodes)),
            "SLURM_STEP_TASKS_PER_NODE": ",".join(str(tasks) for _, tasks in nodes),
            "SLURM_STEP_NODELIST": ",".join(name for name, _ in nodes)}
    tasks = []
    for node, (name, count) in enumerate(nodes):
        for local in range(count):
            task = {**step, "SLURM_PROCID": str(len(tasks)), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(node)}
            command = sys.argv[2:]
            if name != "localhost":
                variables = {**task, "OMP_NUM_THREADS": "1", "TMPDIR": os.environ["TMPDIR"]}
                words = ["exec", "env", *(f"{key}={value}" for key, value in variables.items()), *command]
                command = [AGENT, name, shlex.join(words)]
            tasks.append(subprocess.Popen(command, env={**os.environ, **task}))
    return max(task.wait() for task in tasks)


if __name__ == "__main__":
    sys.exit(main())
