#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings by rtrain::Fit (tests/fit/runs_ranks_test.cpp) that get a signal in a step and are started again, compared with
ones that are left alone.

    runs.py PROGRAM kills [--ranks N] [--variant plain|sharded] [--stage train|validation] [--steps 3,8]
                                                                                 SIGKILL and SIGTERM; all steps by default
    runs.py PROGRAM elastic                                                      killed on some ranks, resumed on others

Steps, metrics, the reason to stop and a callback's counter must be equal; with the same ranks weights, too, to the bit.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

MPIRUN = os.environ.get("RTRAIN_MPIRUN", "mpirun")


def train(program, case, storage, ranks, **settings):
    """Returns what the training has left at its end, and its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "FIT_STORAGE": str(storage),
                   **{f"FIT_{name.upper()}": str(value) for name, value in settings.items()}}
    storage.mkdir(exist_ok=True)
    run = subprocess.run([MPIRUN, "-n", str(ranks), "--oversubscribe", "--bind-to", "none", program, "--no-skip",
                          f"-tc=FitRuns.{case}"], env=environment, text=True, timeout=300, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    end = storage / "end"
    return end.read_text() if end.exists() else None, run.stdout


def undisturbed(program, case, storage, ranks, **settings):
    end, output = train(program, case, storage, ranks, **settings)
    if end is None:
        sys.exit(f"the undisturbed training failed:\n{output}")
    print(f"undisturbed on {ranks} ranks: {end.split()}", flush=True)
    return end


def interrupted(program, case, storage, ranks, resumed_on, **settings):
    """Returns the end of a training that was interrupted and started again."""
    end, output = train(program, case, storage, ranks, **settings)
    if end is not None:
        sys.exit(f"{settings} on {ranks} ranks did not interrupt the training:\n{output}")
    del settings["signal"], settings["step"]
    end, output = train(program, case, storage, resumed_on, **settings)
    if end is None:
        sys.exit(f"the training did not resume:\n{output}")
    return end


def kills(options, root):
    expected = undisturbed(options.program, "training", root / "whole", options.ranks, variant=options.variant)
    steps = [int(step) for step in options.steps.split(",")] if options.steps else range(int(expected.split()[1]))
    failed = []
    for number in (signal.SIGKILL, signal.SIGTERM):
        for step in steps:
            end = interrupted(options.program, "training", root / f"{number.name}-{step}", options.ranks, options.ranks,
                              variant=options.variant, stage=options.stage, signal=int(number), step=step)
            if end != expected:
                failed.append(f"{number.name} in step {step}: {end.split()}")
    return failed


def elastic(options, root):
    expected = undisturbed(options.program, "elastic", root / "whole", 1)
    failed = []
    for ranks, resumed_on, number, step in ((1, 3, signal.SIGKILL, 13), (3, 2, signal.SIGTERM, 20),
                                            (2, 3, signal.SIGTERM, 27)):
        end = interrupted(options.program, "elastic", root / f"{ranks}-{resumed_on}", ranks, resumed_on,
                          stage="train", signal=int(number), step=step)
        if end.split()[1:] != expected.split()[1:]:  # without the bits of weights: sums have another order
            failed.append(f"from {ranks} to {resumed_on} ranks: {end.split()}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("what", choices=("kills", "elastic"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--variant", default="plain")
    parser.add_argument("--stage", default="train")
    parser.add_argument("--steps")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        failed = {"kills": kills, "elastic": elastic}[options.what](options, pathlib.Path(root))
    if failed:
        sys.exit("different from the undisturbed training:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
