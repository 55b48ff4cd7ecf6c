#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows in, tensors out: rtrain's readers, the decoders alone, and Python's loaders.

    python benchmarks/ingest/run.py BUILD_DIRECTORY [--rounds 3] [--rows 500000]
        [--peers-python PYTHON] [--directory DISK] [--json FILE]

Contestants take turns, in another order each round; ratios are of the least seconds of all rounds.
Exit status 1: a run failed, or has not read every row; a missed goal is only marked. Peers that the
Python of --peers-python cannot import are left out, and the report says so.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402

BATCH = 256
S3_DELAY_MS = 20
S3_THREADS = 16
MEMORY_MB = 256
# By format: its file, the decoder alone, and who else reads it.
FORMATS = {
    "memory": (None, "index-select", ("torch", "grain")),
    "csv": ("rows.csv", "arrow-csv", ("ray", "datasets")),
    "parquet": ("rows.parquet", "arrow-parquet", ("ray", "datasets")),
    "json": ("rows.jsonl", None, ("ray", "datasets")),
    "tar": ("rows.tar", None, ("webdataset", "datasets")),
    "mds": ("mds", None, ("streaming",)),
    "jpeg": ("jpeg", "turbojpeg", ("torchvision", "ray", "datasets")),
}
MODULES = {"torch": "torch", "grain": "grain.python", "ray": "ray.data", "datasets": "datasets"}
MODULES |= {"webdataset": "webdataset", "streaming": "streaming", "torchvision": "torchvision"}


def importable(python, module):
    words = [str(python), "-c", f"import {module}"]
    return subprocess.run(words, capture_output=True).returncode == 0


def ingest(options, reader, path, **more):
    words = [str(options.build / "benchmarks" / "ingest" / "ingest"), reader, str(path)]
    for name, value in {"batch": BATCH, "memory_mb": MEMORY_MB, **more}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


@contextlib.contextmanager
def slow_s3(bucket):
    """A service that answers each request with a delay: the beginning of a URI, and its end."""
    os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
    os.environ.update(AWS_EC2_METADATA_DISABLED="true")
    words = [sys.executable, str(HERE / "slow_s3.py"), str(bucket), str(S3_DELAY_MS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as server:
        endpoint = f"127.0.0.1:{server.stdout.readline().strip()}"
        try:
            yield f"s3://{bucket.name}/", f"?scheme=http&endpoint_override={endpoint}"
        finally:
            server.stdin.close()


def contestants(options, directory, s3):
    """Name: the command line. The name says what is compared with what."""
    commands = {}
    for kind, (file, limit, peers) in FORMATS.items():
        path = directory / file if file else options.rows
        if file and not path.exists():  # make_data.py could not write it
            continue
        for threads in (0, 2):
            name = f"{kind}: rtrain" + (f", {threads} threads" if threads else "")
            commands[name] = ingest(options, kind, path, epochs=2, threads=threads)
        if limit:
            commands[f"{kind}: {limit}"] = ingest(options, limit, path)
        for peer in peers:
            if peer in options.peers:
                words = [str(options.peers_python), str(HERE / "peers.py"), peer, kind]
                commands[f"{kind}: {peer}"] = words + [str(path), str(BATCH)]
    csv = directory / "rows.csv"
    for reader in ("train-csv", "train-memory"):
        more = {"threads": 1} if reader == "train-csv" else {}
        commands[f"step: {reader}"] = ingest(options, reader, csv, epochs=2, **more)
    for name, start in (("fresh", 0), ("at 90 %", 90)):
        more = {"from": start, "batches": 1, "epochs": 2}
        commands[f"resume: {name}"] = ingest(options, "csv", csv, **more)
    # So little memory that a tenth of the rows fills it, too.
    tenth = ingest(options, "csv", directory / "tenth.csv", epochs=2, memory_mb=2)
    commands["rows: tenth"] = tenth
    commands["rows: all"] = ingest(options, "csv", csv, epochs=2, memory_mb=2)
    begin, end = s3
    for name, threads in (("one request at a time", 0), (f"{S3_THREADS} threads", S3_THREADS)):
        more = {"threads": threads, "epochs": 2}
        commands[f"s3: {name}"] = ingest(options, "csv", f"{begin}rows.csv{end}", **more)
    commands["small: rtrain"] = ingest(options, "files", directory / "small", batches=1)
    return commands


def measure(options, directory, s3):
    """By contestant: the records of all rounds, each a list of epochs."""
    commands = contestants(options, directory, s3)
    records = {name: [] for name in commands}
    for turn in range(options.rounds):
        for name in harness.in_turn(commands, turn):
            outputs, _, others = harness.run(name, [commands[name]])
            records[name].append(outputs[0])
            seconds = ", ".join(f"{epoch['seconds']:.2f}" for epoch in outputs[0])
            print(f"round {turn + 1}: {name}: {seconds} s", file=sys.stderr)
            print(f"    {others:.2f} cores used by others", file=sys.stderr)
    return records


def least(records, name, key="seconds", epoch=-1):
    return min(run[epoch][key] for run in records[name]) if name in records else None


def rate_table(records):
    rows = []
    for name, runs in records.items():
        kind = name.split(":")[0]
        if kind not in FORMATS:
            continue
        first, last = (least(records, name, epoch=epoch) for epoch in (0, -1))
        count = runs[0][-1]["rows"]
        rows.append((name, f"{count / first:,.0f}", f"{count / last:,.0f}"))
    return harness.table(["contestant", "rows/s, first epoch", "rows/s, second"], rows)


def goals(records):
    found = []

    def add(measure, value, goal, met):
        found.append((measure, f"{value:.2f}", goal, met))

    for kind, (_, limit, peers) in FORMATS.items():
        ours = least(records, f"{kind}: rtrain")
        if ours is None:
            continue
        if limit:
            share = least(records, f"{kind}: {limit}") / ours
            add(f"{kind}: of the speed of {limit}", share, "at least 0.90", share >= 0.9)
        times = {peer: least(records, f"{kind}: {peer}") for peer in peers}
        times = {peer: seconds for peer, seconds in times.items() if seconds}
        if times:
            best = min(times, key=times.get)
            factor, goal = times[best] / ours, 20 if kind == "memory" else 3
            add(f"{kind}: times the speed of {best}", factor, f"at least {goal}", factor >= goal)
    step = least(records, "step: train-csv") / least(records, "step: train-memory")
    add("epoch of training over CSV, of that over memory", step, "at most 1.03", step <= 1.03)
    alone = least(records, "s3: one request at a time")
    factor = alone / least(records, f"s3: {S3_THREADS} threads")
    name = f"S3 with {S3_DELAY_MS} ms a request: times one at a time"
    add(name, factor, "at least 5", factor >= 5)
    late = least(records, "resume: at 90 %", "first_s") / least(records, "resume: fresh", "first_s")
    add("first batch at 90 % of an epoch, of a fresh start's", late, "at most 1.2", late <= 1.2)
    ten = least(records, "rows: all") / least(records, "rows: tenth")
    add("time of 10 x rows", ten, "at most 10.5", ten <= 10.5)
    grown = least(records, "rows: all", "grown") / least(records, "rows: tenth", "grown")
    add("memory of 10 x rows", grown, "", None)
    small = least(records, "small: rtrain", "first_s", 0)
    add("100,000 small files: seconds to the first batch", small, "less than 3", small < 3)
    return found


def check_rows(records, rows):
    """Nobody leaves rows out."""
    shares = {"memory": 1, "csv": 1, "parquet": 1, "json": 5, "tar": 25, "mds": 1, "jpeg": 100}
    for kind, share in shares.items():
        for name, runs in records.items():
            if name.startswith(f"{kind}:"):
                counts = {epoch["rows"] for run in runs for epoch in run}
                if counts != {rows // share}:
                    sys.exit(f"{name} has read {counts} rows; expected {rows // share}")


def main():
    parser = harness.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--directory", help="where the data lies; a temporary directory")
    options = parser.parse_args()
    harness.end_on_sigterm()
    options.peers = [p for p, module in MODULES.items() if importable(options.peers_python, module)]
    missing = sorted(MODULES.keys() - set(options.peers))
    with tempfile.TemporaryDirectory(prefix="rtrain-ingest-", dir=options.directory) as directory:
        words = [str(options.peers_python), str(HERE / "make_data.py"), directory]
        subprocess.run(words + [str(options.rows)], check=True)
        bucket = pathlib.Path(directory) / "bucket"
        bucket.mkdir()
        os.link(bucket.parent / "rows.csv", bucket / "rows.csv")
        try:
            with slow_s3(bucket) as s3:
                records = measure(options, bucket.parent, s3)
        except harness.Failure as failure:
            sys.exit(str(failure))
    check_rows(records, options.rows)
    harness.write_results(options.json, records=records)
    print(rate_table(records), harness.goals_table(goals(records)), sep="\n\n")
    if missing:
        print(f"\nLeft out, because they cannot be imported: {', '.join(missing)}.")


if __name__ == "__main__":
    main()
