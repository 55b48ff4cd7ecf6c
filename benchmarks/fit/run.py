#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rtrain::Fit next to the same loop written by hand, and on two ranks next to Lightning with DDP. The contestants run
one after the other in each round; the fastest of all rounds counts, and the median of the rounds' ratios shows the noise.

    run.py BUILD [--rounds N] [--epochs N] [--python PYTHON]

PYTHON has Lightning 2.6; without it, Lightning is left out.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
UNITS = (1, 128, 512)  # a step of one unit takes 90 us, so that single ones show


def measure(command, directory):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = subprocess.run(command, check=True, env=environment, cwd=directory, capture_output=True, text=True).stdout
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", default="10")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    program = str((options.build / "benchmarks/fit/fit_bench").resolve())
    commands = [["mpirun", "-n", ranks, "--bind-to", "none", program, name, str(units), options.epochs] for units in UNITS
                for ranks in "12" for name in ("loop", "fit", "logged")]
    if subprocess.run([options.python, "-c", "import lightning"], capture_output=True, check=False).returncode == 0:
        commands.append([options.python, str(HERE / "lightning_peer.py"), "512"])
    found = {}  # by units, ranks and contestant: of each round
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(options.rounds):
            for command in commands:
                record = measure(command, directory)
                found.setdefault((record["units"], record["ranks"], record["contestant"]), []).append(record)

    def least(key, field):
        return min(record[field] for record in found[key])

    def ratio(one, other, field="step_us"):
        """Of minima, and the median of rounds."""
        of_rounds = [a[field] / b[field] for a, b in zip(found[one], found[other])]
        return f"{least(one, field) / least(other, field):.3f} (median {statistics.median(of_rounds):.3f}) times"

    def added(one, other, field):
        of_rounds = [a[field] - b[field] for a, b in zip(found[one], found[other])]
        return f"{least(one, field) - least(other, field):.2f} (median {statistics.median(of_rounds):.2f}) us"

    print("| units | ranks | contestant | us a step | of processor time | s to the first step |\n|---|---|---|---|---|---|")
    for key in sorted(found):
        print(f"| {key[0]} | {key[1]} | {key[2]} | {least(key, 'step_us'):.1f} | {least(key, 'cpu_us'):.1f} | "
              f"{least(key, 'first_s'):.2f} |")
    for units in UNITS:
        for ranks in 1, 2:
            loop, fit, logged = ((units, ranks, name) for name in ("loop", "fit", "logged"))
            for field in "step_us", "cpu_us":
                print(f"{units} units, {ranks} ranks, {field}: Fit takes {ratio(fit, loop, field)} the loop's time; hooks "
                      f"and three values add {added(logged, fit, field)}")
    if (peer := (512, 2, "lightning")) in found:
        fit = 512, 2, "fit"
        print(f"two ranks, 512 units: {ratio(fit, peer)} Lightning's epoch, {ratio(fit, peer, 'first_s')} its start")


if __name__ == "__main__":
    main()
