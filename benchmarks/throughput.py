#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the throughput that parity/run.py measured: rtrain, PyTorch's DDP and Ray Train, for each workload.

    python benchmarks/throughput.py docs/benchmarks [--check]

Reads throughput.json in that directory, which `parity/run.py --throughput` and report.py write, and writes
throughput.svg next to it. With --check it writes nothing, and fails if the file would change, or if a figure is not in
the table of README.md that it names as its source.
"""

import argparse
import html
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import charts  # noqa: E402

GLOBAL_BATCH, ROWS = 64, 60000  # of the parity workload
CONTESTANTS = ["rtrain", "DDP", "Ray Train"]
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
WIDTH, LEFT, RIGHT, TOP = 720, 130, 190, 66
BAR, GAP = 16, 14
# Legible on white and on black: a page that embeds the file need not say which it is.
COLOURS = {"rtrain": "#2f81f7", "DDP": "#d9822b", "Ray Train": "#8b949e"}
INK, GRID = "#6e7781", "#8b949e"


def measured(best_of, steps_of):
    """The workloads of throughput.json; `best_of` yields what best_of() of parity/run.py does."""
    workloads = []
    for (hidden, optimizer), best in best_of:
        images = steps_of(hidden) * GLOBAL_BATCH or ROWS
        workloads.append({
            "hidden": hidden,
            "optimizer": optimizer,
            "images_per_epoch": images,
            "source": f"docs/benchmarks/README.md#{hidden}-hidden-units-{optimizer}",
            "contestants": {
                name: {
                    "best_epoch_s": round(best[f"{name}, 2 ranks"]["epoch_s"], 3),
                    "median_epoch_s": round(best[f"{name}, 2 ranks"]["median_s"], 3),
                    "images_per_s": round(images / round(best[f"{name}, 2 ranks"]["epoch_s"], 3)),
                }
                for name in CONTESTANTS if f"{name}, 2 ranks" in best
            },
        })
    return workloads


def group(workload, y, x):
    """The bars of a workload, relative to DDP's best epoch."""
    contestants = workload["contestants"]
    units = f"{workload['hidden']} hidden units"
    lines = [text(LEFT - 12, y + BAR * 1.5 + 1, units, "end"),
             text(LEFT - 12, y + BAR * 2.5 - 1, OPTIMIZERS[workload["optimizer"]], "end")]
    ddp = contestants["DDP"]
    for row, (name, times) in enumerate(contestants.items()):
        top = y + row * BAR
        best, median = (ddp["best_epoch_s"] / times[key] for key in ("best_epoch_s", "median_epoch_s"))
        lines.append(f'<rect x="{x(0):.1f}" y="{top + 1}" width="{x(best) - x(0):.1f}" height="{BAR - 2}" '
                     f'fill="{COLOURS[name]}"/>')
        lines.append(charts.line([(x(median), top + 1), (x(median), top + BAR - 1)], "white", 2))
        weight = ' font-weight="bold"' if name == "rtrain" else ""
        words = f"{best:.2f}   {times['images_per_s']:,} images/s"
        lines.append(text(x(best) + 6, top + BAR - 4, words, "start", weight))
    return lines


def text(x, y, words, anchor="middle", more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}"{more} xml:space="preserve">'
            f"{html.escape(words)}</text>")


def svg(results):
    order = list(OPTIMIZERS)
    workloads = sorted(results["workloads"], key=lambda w: (order.index(w["optimizer"]), w["hidden"]))
    longest = max(each["contestants"]["DDP"]["best_epoch_s"] / times["best_epoch_s"]
                  for each in workloads for times in each["contestants"].values())
    step = 1 if longest < 8 else 2

    def x(ratio):
        return LEFT + ratio / longest * (WIDTH - LEFT - RIGHT)

    height = TOP + sum(len(each["contestants"]) * BAR + GAP for each in workloads) + 44
    title = "Training throughput on two CPU ranks, PyTorch DDP = 1 (longer is better)"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{html.escape(title)}</title>",
        text(12, 20, title, "start", ' font-weight="bold" font-size="14"'),
    ]
    at = 12
    for name in CONTESTANTS:
        lines.append(f'<rect x="{at}" y="33" width="14" height="12" fill="{COLOURS[name]}"/>')
        lines.append(text(at + 20, 44, {"DDP": "PyTorch DDP"}.get(name, name), "start"))
        at += 120
    lines.append(text(at, 44, "Bars: best epoch; white marks: median epoch", "start"))
    for ratio in range(0, int(longest) + 1, step):
        lines.append(charts.line([(x(ratio), TOP - 6), (x(ratio), height - 40)], GRID, 1, 'stroke-opacity="0.4"'))
        lines.append(text(x(ratio), height - 26, str(ratio)))
    y = TOP
    for workload in workloads:
        lines += group(workload, y, x)
        y += len(workload["contestants"]) * BAR + GAP
    machine = results["machine"]
    where = (f"An MLP on Fashion-MNIST; {machine['cores']} cores of {machine['processor']}; "
             f"{machine['mpi'].removeprefix('mpirun (').replace(')', '')}; {machine['torch']}")
    lines.append(text(12, height - 8, where, "start", ' font-size="11"'))
    return "\n".join([*lines, "</svg>", ""])


def without_source(results, page):
    """Figures that the tables of the page do not have."""
    for workload in results["workloads"]:
        section = page.partition(f"\n### {workload['hidden']} hidden units, {workload['optimizer']}\n")[2]
        table = section.partition("\n#")[0]
        for name, times in workload["contestants"].items():
            row = f"| {name}, 2 ranks | {times['best_epoch_s']:.3f} | {times['median_epoch_s']:.3f} |"
            if row not in table:
                yield f"{workload['source']} has no row {row}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = json.loads((options.directory / "throughput.json").read_text(encoding="utf-8"))
    drawn = svg(results)
    target = options.directory / "throughput.svg"
    if not options.check:
        target.write_text(drawn, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != drawn:
        print(f"{target} differs from throughput.json; run {sys.argv[0]} {options.directory}", file=sys.stderr)
        return 1
    missing = list(without_source(results, (options.directory / "README.md").read_text(encoding="utf-8")))
    print(*missing, sep="\n", end="\n" if missing else "", file=sys.stderr)
    return 1 if missing and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
