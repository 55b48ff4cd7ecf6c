#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""XGBoost and LightGBM through rtrain, next to the libraries' own training in Python and to Ray's. Contestants take
turns; ratios are of medians, in parentheses of minima.

    run.py BUILD [PART...] [--rounds N] [--python PYTHON] [--ray-python PYTHON]

training: 400,000 rows of 40 columns in memory, 20 rounds, two cores. workload: 1.3 million rows in Parquet, also
predictions. start: the time of the whole process on 569 rows. memory: of two ranks above 1.3 million rows in memory.
reports: the time that a report adds to a round. Without PART, all.
"""

import contextlib
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = 40
LIBRARIES = ("xgboost", "lightgbm")
MODELS = {"xgboost": "model.ubj", "lightgbm": "model.txt"}
TWO = ["mpirun", "-n", "2", "--bind-to", "none"]


def measure(command, threads=1):
    """The JSON that a command prints, and the seconds of real time and of processors of its processes."""
    environment = {**harness.environment(), "OMP_NUM_THREADS": str(threads)}
    begin, used = time.monotonic(), cpu_of_children()
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise harness.Failure(f"{command} failed:\n{done.stdout}{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return {**harness.json.loads(lines[-1]), "whole": time.monotonic() - begin, "cpu": cpu_of_children() - used}


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def in_turns(contestants, rounds, field="seconds"):
    """The times of each contestant, which are (command, threads), and its processor times."""
    found, used = ({name: [] for name in contestants} for _ in range(2))
    for turn in range(rounds):
        for name in harness.in_turn(contestants, turn):
            result = measure(*contestants[name])
            found[name].append(result[field])
            used[name].append(result["cpu"])
    return found, used


def ratio(found, ours, theirs):
    median, least = (pick(found[ours]) / pick(found[theirs]) for pick in (statistics.median, min))
    return f"{median:.3f} ({least:.3f})", median


def report(title, results, goals):
    """`goals`: (ours, theirs, the largest ratio of times)."""
    found, used = results
    rows = [(name, f"{statistics.median(times):.2f}", f"{min(times):.2f}", f"{min(used[name]):.2f}")
            for name, times in found.items()]
    head = ["contestant", "median s", "least s", "least CPU s, with start"]
    print(f"\n### {title}\n\n{harness.table(head, rows)}\n")
    known = [goal for goal in goals if goal[0] in found and goal[1] in found]
    if known:
        lines = []
        for ours, theirs, most in known:
            text, value = ratio(found, ours, theirs)
            lines.append((f"{ours} / {theirs}", text, f"<= {most:.2f}", value <= most))
        print(harness.goals_table(lines), flush=True)


def write_arrays(directory, rows):
    directory.mkdir()
    x = np.random.default_rng(1).standard_normal((rows, COLUMNS), np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(np.float32)
    x.tofile(directory / "x.f4")
    y.tofile(directory / "y.f4")
    return directory, x, y


def write_parquet(directory, columns, parts=4):
    import pyarrow
    import pyarrow.parquet

    directory.mkdir()
    rows = len(columns["y"])
    for part in range(parts):
        some = slice(rows * part // parts, rows * (part + 1) // parts)
        table = pyarrow.table({name: values[some] for name, values in columns.items()})
        pyarrow.parquet.write_table(table, directory / f"{part}.parquet", row_group_size=65536)
    return directory


class Bench:
    def __init__(self, options, scratch):
        self.options = options
        self.scratch = scratch
        self.program = str((options.build / "benchmarks/boosting/boosting_bench").resolve())
        self.runs = scratch / "runs"

    def ours(self, *words):
        return [self.program, *map(str, words)]

    def peer(self, *words):
        return [self.options.python, str(HERE / "peer.py"), *map(str, words)]

    def ray(self, *words):
        return [self.options.ray_python, str(HERE / "peer.py"), *map(str, words)]

    def training(self):
        source, *_ = write_arrays(self.scratch / "training", self.options.rows)
        for library, all_goals in (("xgboost", (0.5, 1.03)), ("lightgbm", (0.8, 0.95))):
            train = ["train", library, 20, source]
            two, each = ([*TWO, *self.ours(*train, self.runs, ranks)] for ranks in ("nodes", "all"))
            found = in_turns(
                {
                    "the library, two threads": (self.peer(*train, 2, 1), 2),
                    "the library, two processes": (self.peer(*train, 1, 2), 1),
                    "rtrain, two ranks": (two, 1),
                    "rtrain, two ranks, all": (each, 1),
                    "rtrain, one rank, two threads": (self.ours(*train, self.runs, "nodes"), 2),
                },
                self.options.rounds,
            )
            report(
                f"{library}: training, {self.options.rows} rows in memory",
                found,
                [
                    ("rtrain, two ranks", "the library, two threads", 1.1),
                    ("rtrain, two ranks", "the library, two processes", all_goals[0]),
                    ("rtrain, two ranks, all", "the library, two processes", all_goals[1]),
                ],
            )

    def workload(self):
        _, x, y = write_arrays(self.scratch / "workload-arrays", self.options.large_rows)
        columns = {f"x{i}": x[:, i] for i in range(COLUMNS)}
        source = write_parquet(self.scratch / "workload", {**columns, "y": y}, parts=8)
        for library in LIBRARIES:
            trained = measure([*TWO, *self.ours("train", library, 10, source, self.runs, "nodes")])
            model = self.scratch / MODELS[library]
            model.write_bytes(pathlib.Path(trained["model"]).read_bytes())
            for mode, last in (("train", 10), ("predict", model)):
                words = [mode, library, last, source]
                contestants = {
                    "the library, two threads": (self.peer(*words, 2, *[1] * (mode == "train")), 2),
                    "rtrain, two ranks": ([*TWO, *self.ours(*words, self.runs, *["nodes"] * (mode == "train"))], 1),
                }
                if self.options.ray_python:
                    contestants["Ray, two workers"] = (self.ray(f"ray-{mode}", *words[1:]), 1)
                found = in_turns(contestants, self.options.rounds)
                title = f"{library}: {mode}, {self.options.large_rows} rows in Parquet"
                report(title, found, [("rtrain, two ranks", "Ray, two workers", 1 / 1.2)])

    def start(self):
        rows = np.genfromtxt(HERE.parents[1] / "examples/data/breast_cancer.csv", delimiter=",", names=True)
        columns = {name.replace("benign", "y"): rows[name].astype(np.float32) for name in rows.dtype.names}
        source = write_parquet(self.scratch / "start", columns, parts=1)
        words = ["xgboost", 20, source]
        contestants = {
            "the library, two threads": (self.peer("train", *words, 2, 1), 2),
            "rtrain": (self.ours("train", *words, self.runs, "nodes"), 2),
        }
        if self.options.ray_python:
            contestants["Ray, two workers"] = (self.ray("ray-train", *words), 1)
        found = in_turns(contestants, self.options.rounds, "whole")
        report("start to Result, 569 rows", found, [("rtrain", "Ray, two workers", 0.1)])

    def memory(self):
        source, x, _ = write_arrays(self.scratch / "memory", self.options.large_rows)
        small, *_ = write_arrays(self.scratch / "memory-small", 100)
        lines = []
        for library in LIBRARIES:
            shares = []
            for program, command in (
                ("boosting_bench", lambda table: [*TWO, *self.ours("train", library, 10, table, self.runs, "nodes")]),
                ("peer.py", lambda table: self.peer("train", library, 10, table, 2, 1)),
            ):
                peaks = []
                for table in (source, small):
                    with watched_peak(program) as peak:
                        measure(command(table))
                    peaks.append(peak[0])
                shares.append((peaks[0] - peaks[1]) / x.nbytes)
            ours, theirs = shares
            lines.append((f"{library}: peak above the table / the table", f"{ours:.2f}", "<= 0.60", ours <= 0.6))
            lines.append((f"{library}: the same of the library alone", f"{theirs:.2f}", "", None))
        print(f"\n### Memory of two ranks, {self.options.large_rows} rows\n\n{harness.goals_table(lines)}", flush=True)

    def reports(self):
        source, *_ = write_arrays(self.scratch / "reports", 500)
        self.runs.mkdir(exist_ok=True)
        command = ["mpirun", "-n", "1", *self.ours("reports", source, self.runs)]  # starts no other process
        found = [measure(command) for _ in range(self.options.rounds)]
        report_ms = statistics.median(one["report_ms"] for one in found)
        share = statistics.median(one["checkpoint_ms"] / one["write_ms"] for one in found)
        write_ms = statistics.median(one["write_ms"] for one in found)
        lines = [
            ("a report in each round", f"{report_ms:.3f} ms", "<= 0.3 ms", report_ms <= 0.3),
            (f"one with a checkpoint / writing and syncing its file ({write_ms:.2f} ms)", f"{share:.2f}", "<= 1.50",
             share <= 1.5),
        ]
        print(f"\n### Reports, one rank\n\n{harness.goals_table(lines)}", flush=True)


def anonymous_bytes(program):
    """Pss of all processes of a program, without files, such as the mapped table."""
    total = 0
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"/{program}\0".encode() in (entry / "cmdline").read_bytes()[:4096]:
                lines = (entry / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) * 1024
    return total


@contextlib.contextmanager
def watched_peak(program):
    """A list whose element is, at the end, the most bytes that were seen."""
    peak, over = [0], threading.Event()

    def watch():
        while not over.wait(0.01):
            peak[0] = max(peak[0], anonymous_bytes(program))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def main():
    parts = ("training", "workload", "start", "memory", "reports")
    parser = harness.arguments(__doc__, rounds=5, python="xgboost-cpu, lightgbm and pyarrow")
    parser.add_argument("parts", nargs="*", choices=[[], *parts], metavar="PART")
    parser.add_argument("--ray-python", help='a Python that has xgboost-cpu, lightgbm and "ray[train]"==2.60.*')
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--large-rows", type=int, default=1_300_000)
    options = parser.parse_args()
    harness.end_on_sigterm()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, pathlib.Path(scratch))
        try:
            for part in options.parts or parts:
                getattr(bench, part)()
        except harness.Failure as failure:
            sys.exit(str(failure))


if __name__ == "__main__":
    main()
