#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on two nodes, under plain mpirun, hang: they find it themselves, whoever hangs.

    watch_nodes_test.py MPIRUN HANGING
"""

import os
import pathlib
import subprocess
import sys
import tempfile

NODES = pathlib.Path(__file__).resolve().parents[2] / "nodes"
LIMIT = 90  # seconds


def run(mpirun, hanging, ranks, how, rank):
    with tempfile.TemporaryDirectory(prefix="rtrain-watch-") as storage:
        return subprocess.run(
            [sys.executable, NODES / "nodes.py", "--mpirun", mpirun, ranks]
            + [hanging, how, str(rank), storage],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )


def main():
    mpirun, hanging = sys.argv[1:]
    wrong = False
    # A stopped process is seen on its own node, and is silent on the other.
    for ranks, how, rank, finding in (
        ("1,1", "sleeps", 1, "and none computes"),
        ("1,1", "stops", 0, "rank 0 has not reported for"),
        ("2,2", "stops", 0, "rank 0 is stopped"),
        ("2,2", "stops", 2, "rank 2 "),
        ("2,2", "paused", 1, None),
    ):
        ended = run(mpirun, hanging, ranks, how, rank)
        if ended.returncode == 77:
            print(ended.stdout)
            return 77
        said = ended.stdout
        if finding is None:
            holds = ended.returncode == 0 and "[RT-L" not in said
        else:
            size = sum(map(int, ranks.split(",")))
            others = [other for other in range(size) if other != rank]
            holds = (
                ended.returncode == 1
                and said.count("rtrain: the ranks hang: ") == 1
                and finding in said
                and "[RT-L14]" in said
                and "[RT-L19]" not in said
                and all(f"stack of rank {other}:\n#0 " in said for other in others)
            )
        print(f"{'ok   ' if holds else 'WRONG'} {ranks}: rank {rank} {how}", flush=True)
        if not holds:
            print(f"exit status {ended.returncode}\n{said}", flush=True)
            wrong = True
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.pop("OMPI_MCA_plm_rsh_agent", None)
    sys.exit(main())
