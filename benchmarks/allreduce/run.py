#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares all-reduces of float32 on one machine: rtrain, Open MPI, PyTorch's Gloo, and memcpy.

    python benchmarks/allreduce/run.py BUILD_DIRECTORY [--ranks 2,4,8] [--rounds 3] [--json FILE]

Contestants take turns, in another order each round. Exit status 1: a run failed, or a result was
wrong; a missed speed goal is only marked.
"""

import os
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import charts  # noqa: E402
import harness  # noqa: E402

LABELS = {"bucket": "in place", "tensor": "any tensor", "mpi": "Open MPI", "gloo": "Gloo"}
COPIES = {"copy": "copy", "cached_copy": "cached copy"}
NATIVE = ["bucket", "tensor", "mpi", "copy", "cached_copy"]
PARITY_MODEL, DDP_BUCKET = 2_680_000, 26_000_000
SIZES = sorted([2**power for power in range(2, 29)] + [PARITY_MODEL, DDP_BUCKET])
MIB = 2**20


def sizes_for(ranks, options):
    """With many ranks a core, only latency is of interest, and large sizes take minutes."""
    largest = options.max_bytes if ranks <= 2 * os.cpu_count() else min(2**16, options.max_bytes)
    return [size for size in SIZES if size <= largest]


def measure(ranks, turn, options):
    """One round: the records of all contestants."""
    sizes = ",".join(map(str, sizes_for(ranks, options)))
    modes = ",".join(harness.in_turn(NATIVE, turn))
    program = options.build / "benchmarks" / "allreduce" / "allreduce"
    seconds = str(options.seconds)
    records = []
    for launcher in harness.in_turn(["native", "gloo"], turn):
        with tempfile.TemporaryDirectory(prefix="rtrain-allreduce-") as directory:
            command = {
                "native": harness.mpirun(ranks) + [str(program), modes, sizes, seconds],
                "gloo": harness.torchrun(options.python, ranks)
                + [str(HERE / "gloo_allreduce.py"), sizes, seconds, f"{directory}/barrier"],
            }[launcher]
            outputs, _, others = harness.run(f"{launcher}, {ranks} ranks", [command])
        print(
            f"round {turn + 1}: {launcher}, {ranks} ranks: {others:.2f} cores used by others",
            file=sys.stderr,
        )
        records += [{"ranks": ranks, "round": turn, "others": others, **r} for r in outputs[0]]
    return records


class Times:
    """Microseconds of (ranks, bytes, contestant): the least of all rounds, and the median of the
    rounds' medians."""

    def __init__(self, records):
        self.records = records
        grouped = {}
        for r in records:
            grouped.setdefault((r["ranks"], r["bytes"], r["contestant"]), []).append(r)
        self.least = {key: min(r["min_us"] for r in same) for key, same in grouped.items()}
        self.typical = {
            key: statistics.median(r["median_us"] for r in same) for key, same in grouped.items()
        }

    def sizes(self, ranks):
        return sorted({size for n, size, _ in self.least if n == ranks})

    def ratio(self, of, ranks, size, contestant, peers):
        """Of `contestant` over the fastest of `peers`."""
        return of[ranks, size, contestant] / min(of[ranks, size, peer] for peer in peers)

    def worst(self, ranks, sizes, contestant, peers, goal, at_least=False):
        """A row of the table of goals: the size at which `contestant` is worst. `at_least`: the
        goal is a speed-up; else a share of the peers' time. Medians count."""
        sizes = [size for size in self.sizes(ranks) if sizes[0] <= size <= sizes[1]]
        if not sizes:
            return None
        size = max(sizes, key=lambda s: self.ratio(self.typical, ranks, s, contestant, peers))
        typical = self.ratio(self.typical, ranks, size, contestant, peers)
        least = self.ratio(self.least, ranks, size, contestant, peers)
        if at_least:
            typical, least = 1 / typical, 1 / least
        value = f"{typical:.3g} (minima {least:.3g}) at {bytes_text(size)}"
        met = typical >= goal if at_least else typical <= goal
        return value, f"{'>=' if at_least else '<='} {goal:g}", met


def goals(times, all_ranks):
    both = ["mpi", "gloo"]
    one_core_each = [n for n in all_ranks if n <= 2 * os.cpu_count()]
    wanted = []
    for ranks in [n for n in all_ranks if n == 2]:
        large = (MIB, DDP_BUCKET)
        wanted += [
            ("in place / Open MPI, 1 to 26 MB", ranks, large, "bucket", ["mpi"], 0.25, False),
            ("in place / Gloo, 1 to 26 MB", ranks, large, "bucket", ["gloo"], 0.05, False),
        ]
    for ranks in one_core_each:
        large = (MIB, SIZES[-1])
        wanted.append(
            ("any tensor, speed-up over the better peer", ranks, large, "tensor", both, 1.5, True)
        )
    for ranks in all_ranks:
        wanted += [
            ("any tensor / Open MPI, 4 B", ranks, (4, 4), "tensor", ["mpi"], 1.5, False),
            ("in place / Open MPI, 4 B", ranks, (4, 4), "bucket", ["mpi"], 1.5, False),
        ]
    rows = []
    for measure_of, ranks, *rest in wanted:
        row = times.worst(ranks, *rest)
        if row:
            rows.append((f"{ranks} ranks: {measure_of}", *row))
    return rows


def bytes_text(size):
    for unit, name in ((MIB, "MiB"), (1024, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size / 1e6:g} MB" if size > 1e6 else f"{size} B"


def microseconds(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def of_ranks(times, ranks):
    """A table of times, and one of what they come to."""
    measured, derived = [], []
    for size in times.sizes(ranks):
        typical = {name: times.typical[ranks, size, name] for name in [*LABELS, *COPIES]}
        least = {name: times.least[ranks, size, name] for name in typical}
        bus = 2 * (ranks - 1) / ranks * size / 1000  # over microseconds: GB/s
        measured.append(
            [bytes_text(size)]
            + [f"{microseconds(typical[n])} ({microseconds(least[n])})" for n in typical]
        )
        derived.append(
            [
                bytes_text(size),
                f"{typical['bucket'] / typical['mpi']:.2f}",
                f"{typical['bucket'] / typical['gloo']:.3f}",
                f"{min(typical['mpi'], typical['gloo']) / typical['tensor']:.2f}",
                f"{typical['tensor'] / typical['copy']:.1f}",
                *(f"{bus / typical[name]:.2f}" for name in LABELS),
            ]
        )
    head = ["bytes", "in place / Open MPI", "in place / Gloo", "better peer / any tensor"]
    head += ["any tensor / copy", *(f"{name} GB/s" for name in LABELS.values())]
    return "\n\n".join(
        [
            f"### {ranks} ranks",
            "Microseconds: median (least).",
            harness.table(["bytes", *LABELS.values(), *COPIES.values()], measured),
            "Ratios of medians, and bus bandwidth: 2(n-1)/n bytes over the median.",
            harness.table(head, derived),
        ]
    )


def report(records):
    times = Times(records)
    all_ranks = sorted({r["ranks"] for r in records})
    met = goals(times, all_ranks)
    tables = [of_ranks(times, ranks) for ranks in all_ranks]
    return "\n\n".join([*tables, "### Goals", harness.goals_table(met)])


def pictures(records):
    """Names and texts of the SVG files."""
    times = Times(records)
    files = {}
    for ranks in sorted({r["ranks"] for r in records}):
        curves = [
            (
                label,
                [(size, times.typical[ranks, size, name]) for size in times.sizes(ranks)],
                name in COPIES,
            )
            for name, label in {**LABELS, **COPIES}.items()
        ]
        files[f"allreduce-{ranks}.svg"] = charts.Chart(
            f"All-reduce of float32, {ranks} ranks",
            "bytes",
            "microseconds, median (dashed: memcpy)",
            curves,
            x_base=2,
            x_text=charts.binary,
        ).svg()
    return files


def parse_arguments():
    parser = harness.arguments(__doc__, ranks=[2, 4, 8], python="torch")
    parser.add_argument("--seconds", type=float, default=0.1, help="for a size and contestant")
    parser.add_argument("--max-bytes", type=int, default=SIZES[-1], help="the largest size")
    options = parser.parse_args()
    return options


def main():
    options = parse_arguments()
    return harness.run_in_turns(measure, report, options)


if __name__ == "__main__":
    sys.exit(main())
