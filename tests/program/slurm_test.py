#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`rtrain exec` under Slurm's own srun, on the cluster of tests/slurm/slurm_test.py: the variables of three ranks, the
exit code, the same loss as under `rtrain run`, and the end of all ranks when one is killed.

Usage: slurm_test.py TOOL"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = str(HERE / "train.py")
LIMIT = 250  # seconds
sys.path.insert(0, str(HERE.parent / "slurm"))
import slurm_test  # noqa: E402


def run(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def check_ranks(tool):
    srun = ["srun", "-n", "3", "--overcommit", "--mpi=none", "-K"]
    shell = [*srun, tool, "exec", "--", "sh", "-c"]
    ranks = run(*shell, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT; "
                        "[ $RANK != 2 ] || exit 6")
    lines = sorted(line for line in ranks.stdout.splitlines() if "127.0.0.1" in line)
    port = lines[0].split()[-1] if lines else ""
    killed = run(*shell, "[ $RANK = 1 ] || exec sleep 1000; kill -KILL $$")
    checks = {"the variables of three ranks": lines == [f"{rank} 3 {rank} 3 127.0.0.1 {port}" for rank in range(3)],
              "the exit code": ranks.returncode == 6,
              "a killed rank ends all": "task 1: Exited with exit code 137" in killed.stdout}
    outputs = [ranks.stdout, killed.stdout]
    try:
        import torch  # noqa: F401
    except ImportError:
        print("without torch, no training")
    else:
        ended = [run(*srun, tool, "exec", "--", sys.executable, TRAIN),
                 run(tool, "run", "-n", "3", "--storage", "results", sys.executable, TRAIN)]
        losses = [re.findall(r"loss (\S+) after", each.stdout) for each in ended]
        checks["the loss of `rtrain run`"] = len(losses[0]) == 1 and losses[0] == losses[1]
        outputs += [each.stdout for each in ended]
    for what, holds in checks.items():
        print(f"{'ok   ' if holds else 'WRONG'} {what}")
    if not all(checks.values()):
        sys.exit("\n---\n".join(outputs))


def main():
    tool = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="rtrain-slurm-", ignore_cleanup_errors=True) as directory:
        cluster = slurm_test.Cluster(pathlib.Path(directory))
        os.chdir(directory)
        try:
            check_ranks(tool)
        finally:
            cluster.close()


if __name__ == "__main__":
    slurm_test.run_alone(main)
