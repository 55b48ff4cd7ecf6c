#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What checkpoints of a 512 MB state cost: rtrain, torch.save, PyTorch's DCP, safetensors and Ray
Train, and dd as the limit of the disk.

    python benchmarks/checkpoint/run.py BUILD_DIRECTORY [--ranks 1,2] [--rounds 3]
        [--directory DISK] [--ray-python PYTHON] [--json FILE]

Contestants take turns, in another order each round, and dd runs before each. Exit status 1: a run
failed, or a state came back changed; a missed goal is only marked.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402

BYTES = 512_000_000
RTRAIN = {
    "sync": "rtrain Sync",
    "async": "rtrain Async",
    "sharded": "rtrain Sharded",
    "async-sharded": "rtrain AsyncSharded",
}
PEERS = {
    "torch": "torch.save",
    "dcp": "DCP save",
    "dcp-async": "DCP async_save",
    "dcp-async-kept": "DCP async_save, buffers kept",
    "safetensors": "safetensors",
}
STALL_SHARE, OF_DD, LOAD_SPEEDUP = 0.01, 0.9, 2.0
INTERVALS_S = (10, 30, 60)


def contestants(ranks, options, directory):
    """Name: the command line."""
    work = [str(directory), str(options.checkpoints)]
    program = str(options.build / "benchmarks" / "checkpoint" / "checkpoint_bench")
    commands = {
        name: harness.mpirun(ranks) + [program, policy, *work] for policy, name in RTRAIN.items()
    }
    for peer, name in PEERS.items():
        script = [str(HERE / "peers.py"), peer, *work]
        commands[name] = harness.torchrun(options.python, ranks) + script
    if options.ray_python:
        script = [str(HERE / "ray_peer.py"), str(ranks), *work]
        commands["Ray Train"] = [str(options.ray_python), *script]
    return commands


def dd(directory, *flags):
    """Seconds for as many bytes, made durable."""
    file = pathlib.Path(directory) / "dd"
    words = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={BYTES}", "iflag=count_bytes"]
    words += ["conv=fsync", *flags]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    file.unlink()
    return float(re.search(r"copied, ([\d.e-]+) s", ended.stderr).group(1))


def named(contestant, line):
    """The name of what a line is about: loads, and Ray's two modes, are contestants themselves."""
    if "mode" in line:
        return f"{contestant} {line['mode']}"
    return line.get("load", contestant)


def measure(ranks, turn, options):
    """One round: the records of all contestants."""
    records = []
    for name in harness.in_turn(contestants(ranks, options, ""), turn):
        with tempfile.TemporaryDirectory(prefix="rtrain-ckpt-", dir=options.directory) as directory:
            os.sync()
            records.append({"contestant": "dd", "durable_s": dd(directory)})
            direct = dd(directory, "oflag=direct")
            records.append({"contestant": "dd, direct", "durable_s": direct})
            command = contestants(ranks, options, directory)[name]
            os.sync()
            outputs, _, others = harness.run(f"{name}, {ranks} ranks", [command])
        print(
            f"round {turn + 1}: {name}, {ranks} ranks: {others:.2f} cores used by others",
            file=sys.stderr,
        )
        records += [{**line, "contestant": named(name, line)} for line in outputs[0]]
    return [{"ranks": ranks, "round": turn, **record} for record in records]


def summary(records):
    """Medians of each contestant. The first checkpoint of a process, which takes memory that later
    ones use again, is apart; the first load of rtrain's is also timed with fit(), which verifies."""
    grouped = {}
    for record in records:
        grouped.setdefault(record["contestant"], []).append(record)
    result = {}
    for name, mine in grouped.items():
        steady = [r for r in mine if r.get("checkpoint") != 0]
        values = {
            "first": [r["blocked_s"] for r in mine if r.get("checkpoint") == 0],
            "resume": [r["since_fit_s"] for r in mine if "since_fit_s" in r],
        }
        for key in ("blocked_s", "slowed_s", "report_s", "durable_s", "load_s"):
            values[key.removesuffix("_s")] = [r[key] for r in steady if key in r]
        result[name] = {k: statistics.median(v) for k, v in values.items() if v}
    return result


def shortest_interval(times):
    """Seconds between checkpoints from which on the loop stands still for at most 1 % of the time,
    one checkpoint being written at a time."""
    return max(times["blocked"] / STALL_SHARE, times["durable"])


def seconds(value):
    return "" if value is None else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def saving_table(found):
    rows = []
    dd_seconds = found["dd"]["durable"]
    for name, times in found.items():
        if "durable" not in times:
            continue
        stalls = ["", "", "", ""]
        if "blocked" in times:
            shares = (times["blocked"] / interval for interval in INTERVALS_S)
            stalls = [f"{shortest_interval(times):.1f}", *(f"{share:.2%}" for share in shares)]
        rows.append(
            (
                name,
                *(seconds(times.get(key)) for key in ("blocked", "first", "slowed")),
                *stalls,
                seconds(times["durable"]),
                f"{BYTES / 1e6 / times['durable']:.0f}",
                f"{dd_seconds / times['durable']:.0%}",
            )
        )
    head = ["contestant", "stall s", "first s", "slowed s", "1 % from s"]
    head += [f"at {interval} s" for interval in INTERVALS_S]
    return harness.table([*head, "written s", "MB/s", "of dd"], rows)


def loading_table(found):
    rows = [
        (
            name,
            f"{times['load']:.3f}",
            f"{BYTES / 1e9 / times['load']:.1f}",
            f"{found['torch.load']['load'] / times['load']:.2f}",
            f"{times['resume']:.2f}" if "resume" in times else "",
        )
        for name, times in found.items()
        if "load" in times
    ]
    head = ["contestant", "load s", "GB/s", "times torch.load", "fit() to loaded s"]
    return harness.table(head, rows)


def goals(found):
    """Measure, value, goal, whether it is met."""
    ours = {name: times for name, times in found.items() if name.startswith("rtrain")}
    stalls = {
        name: times["blocked"]
        for name, times in found.items()
        if "blocked" in times and name not in ours
    }
    least = min(stalls, key=stalls.get)
    rows = []
    for name in (name for name in ours if "Async" in name):
        blocked = ours[name]["blocked"]
        share = blocked / INTERVALS_S[0]
        rows += [
            (
                f"{name}: stall, checkpoints every {INTERVALS_S[0]} s",
                f"{share:.2%}",
                f"<= {STALL_SHARE:.0%}",
                share <= STALL_SHARE,
            ),
            (
                f"{name}: stall / least of peers ({least})",
                f"{blocked / stalls[least]:.2f}",
                "< 1",
                blocked < stalls[least],
            ),
        ]
    for name, times in ours.items():
        written = found["dd"]["durable"] / times["durable"]
        faster = found["torch.load"]["load"] / times["load"]
        rows += [
            (f"{name}: written / dd", f"{written:.2f}", f">= {OF_DD}", written >= OF_DD),
            (
                f"{name}: load, speed-up over torch.load",
                f"{faster:.2f}",
                f">= {LOAD_SPEEDUP:g}",
                faster >= LOAD_SPEEDUP,
            ),
        ]
    return rows + [
        (f"{name}: report() alone, the files being there", f"{times['report']:.4f} s", "", None)
        for name, times in found.items()
        if "report" in times
    ]


def report(records):
    sections = []
    for ranks in dict.fromkeys(r["ranks"] for r in records):
        found = summary([r for r in records if r["ranks"] == ranks])
        sections += [
            f"### {ranks} rank{'s' if ranks > 1 else ''}",
            saving_table(found),
            loading_table(found),
            harness.goals_table(goals(found)),
        ]
    return "\n\n".join(sections)


def parse_arguments():
    parser = harness.arguments(__doc__, ranks=[1, 2], python="torch and safetensors", ray=True)
    parser.add_argument("--checkpoints", type=int, default=4, help="of each process, at least 2")
    parser.add_argument("--directory", type=pathlib.Path, help="on the disk to be measured")
    options = parser.parse_args()
    return options


def main():
    options = parse_arguments()
    return harness.run_in_turns(measure, report, options)


if __name__ == "__main__":
    sys.exit(main())
