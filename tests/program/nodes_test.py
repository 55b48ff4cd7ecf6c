#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`rtrain run --hosts`, and `rtrain exec` under srun, on two nodes that this machine plays: the same loss as on one, a
restart, and a script that one node lacks.

Usage: nodes_test.py TOOL"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = str(HERE / "train.py")
LIMIT = 250  # seconds
HOSTS = ["-n", "3", "--hosts", "n0:2,n1:1"]


def run(directory, words, played=()):
    nodes = [sys.executable, HERE.parent / "nodes" / "nodes.py", "--alone", "--own-tmp", *played] if played else []
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([*nodes, *words], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT, check=False, env=environment)
    if done.returncode == 77:
        print(done.stdout)
        sys.exit(77)
    return done


def main():
    tool = str(pathlib.Path(sys.argv[1]).resolve())
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: this Python has no torch")
        return 77
    os.environ.pop("OMPI_MCA_plm_rsh_agent", None)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="rtrain-nodes-") as directory:
        start = [tool, "run", "--storage", directory, "--max-restarts", "1"]
        alone = run(directory, [*start, "-n", "3", TRAIN])
        apart = run(directory, [*start, *HOSTS, TRAIN, "--fault", "kill:2:after"], ["2,1"])
        tasks = run(directory, [sys.executable, HERE / "srun.py", "n0:2,n1:1", tool, "exec", "--", sys.executable, TRAIN],
                    ["2,1"])
        script = f"cp {TRAIN} $TMPDIR/only_here.py; exec " + " ".join([*start, *HOSTS]) + " $TMPDIR/only_here.py"
        missing = run(directory, ["sh", "-c", script], ["2,1"])
    losses = [re.findall(r"loss (\S+) after", ended.stdout) for ended in (alone, apart, tasks)]
    checks = {"alone, it ends well": alone.returncode == 0,
              "on two nodes, it ends well": apart.returncode == 0,
              "after one restart": "after 1 restarts on 3 ranks" in apart.stdout,
              "with the same loss": len(losses[0]) == 1 and losses[0] == losses[1],
              "under srun, it ends well": tasks.returncode == 0,
              "with that loss, too": losses[0] == losses[2],
              "a missing script is an error": missing.returncode == 126 and "[RT-E5]" in missing.stdout,
              "that names its node": "does not exist on n1" in missing.stdout,
              "and is not tried again": "restart 1" not in missing.stdout}
    for what, holds in checks.items():
        print(f"{'ok   ' if holds else 'WRONG'} {what}")
    if not all(checks.values()):
        print(alone.stdout, apart.stdout, tasks.stdout, missing.stdout, sep="\n---\n")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
