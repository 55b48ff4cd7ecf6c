#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks from what the benchmarks measured: README.md with all tables, and charts.

    python benchmarks/report.py docs/benchmarks \\
        --allreduce allreduce.json --parity parity.json --costs costs.json \\
        --checkpoint checkpoint.json --restart restart.json --goodput goodput.json
"""

import argparse
import importlib.util
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import throughput  # noqa: E402

HEAD = """# Measurements

`benchmarks/report.py` writes this page from the files of the benchmarks.
[benchmarks/README.md](../../benchmarks/README.md) explains how they measure, and how to read the results. Ratios count, not seconds.
The other pages: [boosted trees](boosting.md), [communication](communication.md), [compile times](compile.md),
[CreatorTrainer](creators.md), [faults](faults.md), [Fit](fit.md), [ingest](ingest.md), [programs](programs.md), [sharded models](sharded.md), [tracking](tracking.md), [tuning](tune.md).
"""


def benchmark(name):
    """The module benchmarks/NAME/run.py."""
    spec = importlib.util.spec_from_file_location(name, HERE / name / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def section(title, results, text, pictures):
    machine = results["machine"]
    where = (
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, Linux "
        f"{machine['kernel']}; {machine['mpi']}; {machine['torch']}."
    )
    images = "\n".join(f"![{name.removesuffix('.svg')}]({name})" for name in pictures)
    command = f"```sh\n{results['command']}\n```"
    return "\n\n".join(part for part in (f"## {title}", command, where, images, text) if part)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    for name in ("allreduce", "parity", "costs", "checkpoint", "restart", "goodput"):
        parser.add_argument(f"--{name}", type=pathlib.Path, help=f"JSON of {name}/run.py")
    options = parser.parse_args()
    sections, files = [], {}
    if options.allreduce:
        results = json.loads(options.allreduce.read_text())
        run = benchmark("allreduce")
        pictures = run.pictures(results["records"])
        sections.append(section("All-reduce", results, run.report(results["records"]), pictures))
        files |= pictures
    if options.parity:
        results = json.loads(options.parity.read_text())
        run = benchmark("parity")
        workloads = run.throughputs(results["runs"], results.get("steps"))
        head = {"command": results["command"], "machine": results["machine"]}
        pictures = {"throughput.svg": throughput.svg({**head, "workloads": workloads})}
        text = run.report(results["runs"])
        sections.append(section("Parity with PyTorch", results, text, pictures))
        files |= {**pictures, "throughput.json": json.dumps({**head, "workloads": workloads}, indent=1) + "\n"}
    if options.costs:
        results = json.loads(options.costs.read_text())
        run = benchmark("costs")
        cores = results["machine"]["cores"]
        pictures = run.pictures(results["records"], cores)
        text = run.report(results["records"], cores)
        sections.append(section("Cost of gradient averaging", results, text, pictures))
        files |= pictures
    if options.checkpoint:
        results = json.loads(options.checkpoint.read_text())
        text = benchmark("checkpoint").report(results["records"])
        sections.append(section("Checkpoints", results, text, {}))
    if options.restart:
        results = json.loads(options.restart.read_text())
        text = benchmark("restart").report(results["records"])
        sections.append(section("Restarts", results, text, {}))
    if options.goodput:
        results = json.loads(options.goodput.read_text())
        text = benchmark("goodput").report(results["record"])
        sections.append(section("Goodput", results, text, {}))
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (options.directory / name).write_text(text)
    (options.directory / "README.md").write_text("\n\n".join([HEAD.rstrip(), *sections]) + "\n")


if __name__ == "__main__":
    main()
