#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A ScriptModel beside torch::jit::Module on bare libtorch, and on two ranks beside PyTorch's DDP. The contestants run
one after the other in each round; the fastest of all rounds counts.

    run.py BUILD [--rounds N]
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

LINE = re.compile(r"(\d+) units(?:, (\d+) ranks)?: (.*)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    program = os.path.join(options.build, "benchmarks", "script", "script_bench")
    export = os.path.join(os.path.dirname(os.path.abspath(__file__)), "export.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    best = {}
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, export, directory], check=True)
        commands = [[program, directory, "15"], ["mpirun", "-n", "2", "--bind-to", "none", program, directory, "15"],
                    [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", export, directory, "ddp"]]
        for _ in range(options.rounds):
            for command in commands:
                text = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
                for units, ranks, rest in LINE.findall(text):
                    for name, time in re.findall(r"([A-Za-z:_ ]+) ([\d.]+) us", rest):
                        key = int(units), int(ranks or 1), name.strip()
                        best[key] = min(best.get(key, 1e9), float(time))
    print("| units | ranks | contestant | us a step |\n|---|---|---|---|")
    for (units, ranks, name), time in sorted(best.items()):
        print(f"| {units} | {ranks} | {name} | {time:.0f} |")
    for units in 128, 512:
        model = best[units, 1, "ScriptModel"]
        print(f"{units} units: {model / best[units, 1, 'torch::jit::Module']:.3f} times torch::jit::Module; two ranks: "
              f"{best[units, 2, 'PyTorch DDP'] / best[units, 2, 'ScriptModel']:.2f} times the throughput of DDP")


if __name__ == "__main__":
    main()
