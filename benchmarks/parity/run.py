#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the parity workload on bare libtorch, rtrain, PyTorch DDP and Ray Train in turn, and
compares them.

    python benchmarks/parity/run.py BUILD_DIRECTORY [--hidden 128,512,2048] [--optimizer sgd,adam]
        [--epochs 5] [--rounds 3] [--ray-python PYTHON] [--json FILE] [--throughput FILE]

Other work on the machine makes single times worthless, so contestants take turns, in another order
each round, and the best epoch of each counts. Exit status 1: a run failed, or losses disagree.
"""

import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402
import throughput as throughput_chart  # noqa: E402

# Hidden units: throughput of rtrain over DDP's that we want.
SPEEDUP = {128: 5.0, 512: 2.5, 2048: 2.2}
OF_COMPUTE = 0.70
STEPS_OF_LARGE = 100  # an epoch of more than 512 hidden units is cut short


def steps_of(hidden, asked=None):
    """Steps of an epoch; 0: all."""
    if asked is not None:
        return asked
    return 0 if hidden <= 512 else STEPS_OF_LARGE


def contestants(options, hidden, optimizer, storage):
    """Name: ranks, and the command lines that run at once."""
    programs = options.build / "benchmarks" / "parity"
    steps = steps_of(hidden, options.steps)
    work = ["--epochs", options.epochs, "--hidden", hidden, "--optimizer", optimizer]
    work = [str(word) for word in [*work, "--steps", steps, "--data", options.data]]
    bare = [str(programs / "bare_parity"), *work]
    rtrain = [str(programs / "rtrain_parity"), *work, "--storage", str(storage)]
    ddp = harness.torchrun(options.python, 2) + [str(HERE / "ddp_parity.py"), *work]
    ray = [str(options.ray_python), str(HERE / "ray_parity.py"), *work]
    all_of_them = {
        "bare, 1 rank": (1, [bare]),
        "rtrain, 1 rank": (1, [harness.mpirun(1) + rtrain]),
        "compute only, 2 ranks": (2, [bare + ["--rank", str(r), "--size", "2"] for r in (0, 1)]),
        "rtrain, 2 ranks": (2, [harness.mpirun(2) + rtrain]),
        "rtrain fused, 2 ranks": (2, [harness.mpirun(2) + rtrain + ["--fused", "1"]]),
        "DDP, 2 ranks": (2, [ddp]),
        "Ray Train, 2 ranks": (2, [ray]),
    }
    if not options.ray_python:
        del all_of_them["Ray Train, 2 ranks"]
    return {
        name: contestant
        for name, contestant in all_of_them.items()
        if not options.two_ranks or contestant[0] == 2
    }


def run(name, ranks, commands):
    """Runs one contestant; of several processes at once the slowest counts."""
    outputs, started, others = harness.run(name, commands)
    epochs = [records[:-1] for records in outputs]
    ends = [records[-1] for records in outputs]
    return {
        "contestant": name,
        "cores_used_by_others": others,
        "epoch_seconds": [max(e["seconds"] for e in same) for same in zip(*epochs)],
        "losses": [statistics.fmean(e["loss"] for e in same) for same in zip(*epochs)],
        "launch_seconds": max(end["first_step"] for end in ends) - started,
        "pss_mb_per_rank": sum(end["pss_mb"] for end in ends) / ranks,
    }


def summary(runs, names):
    """What each contestant did best."""
    best = {}
    for name in names:
        mine = [r for r in runs if r["contestant"] == name]
        times = [seconds for r in mine for seconds in r["epoch_seconds"]]
        best[name] = {
            "epoch_s": min(times),
            "median_s": statistics.median(times),
            "launch_s": min(r["launch_seconds"] for r in mine),
            # Libraries that a neighbour maps too count less: the most is nearest to the truth.
            "pss_mb": max(r["pss_mb_per_rank"] for r in mine),
            "loss": mine[0]["losses"][-1],
        }
    return best


def throughput(best, of, over):
    """Ratio of best epochs, and of median ones."""
    ratio, typical = (best[over][key] / best[of][key] for key in ("epoch_s", "median_s"))
    return ratio, f"{ratio:.2f} (medians {typical:.2f})"


def throughput_goals(best, name, hidden):
    """Of rtrain with a plain or a fused optimizer, against the others."""
    peers = [("DDP", SPEEDUP.get(hidden)), ("Ray Train", None), ("compute only", OF_COMPUTE)]
    rows = []
    for peer, wanted in peers:
        if f"{peer}, 2 ranks" in best:
            ratio, text = throughput(best, f"{name}, 2 ranks", f"{peer}, 2 ranks")
            goal, met = (f">= {wanted:.2f}", ratio >= wanted) if wanted else ("", None)
            rows.append((f"throughput, 2 ranks: {name} / {peer}", text, goal, met))
    return rows


def goals(best, hidden):
    """Measure, value, goal, whether it is met."""
    rows = []
    two, ddp = best["rtrain, 2 ranks"], best["DDP, 2 ranks"]
    if "bare, 1 rank" in best:
        overhead = best["rtrain, 1 rank"]["epoch_s"] / best["bare, 1 rank"]["epoch_s"] - 1
        rows.append(
            ("epoch, 1 rank: rtrain over bare", f"{overhead:+.1%}", "<= +1.0%", overhead <= 0.01)
        )
    for name in ("rtrain", "rtrain fused"):
        rows += throughput_goals(best, name, hidden)
    if hidden == 512:
        memory = two["pss_mb"] / ddp["pss_mb"]
        rows += [
            (
                "launch to first step, 2 ranks",
                f"{two['launch_s']:.2f} s ({two['launch_s'] / ddp['launch_s']:.2f} of DDP)",
                "<= 2 s",
                two["launch_s"] <= 2,
            ),
            ("Pss a rank, 2 ranks: rtrain / DDP", f"{memory:.2f}", "<= 0.45", memory <= 0.45),
        ]
    both = (two, best["rtrain fused, 2 ranks"])
    loss = max(abs(mine["loss"] / ddp["loss"] - 1) for mine in both)
    return [
        *rows,
        ("final loss, 2 ranks: rtrain against DDP", f"{loss:.2%}", "<= 1%", loss <= 0.01),
    ]


def best_of(runs):
    """((hidden, optimizer), what each contestant did best) of each workload."""
    workloads = dict.fromkeys((r["hidden"], r["optimizer"]) for r in runs)
    for hidden, optimizer in workloads:
        mine = [r for r in runs if (r["hidden"], r["optimizer"]) == (hidden, optimizer)]
        # As in the first round, which begins at the first contestant.
        yield (hidden, optimizer), summary(mine, dict.fromkeys(r["contestant"] for r in mine))


def throughputs(runs, steps=None):
    """The workloads of throughput.json, which throughput.py draws."""
    return throughput_chart.measured(best_of(runs), lambda hidden: steps_of(hidden, steps))


def report(runs):
    sections = []
    head = ["contestant", "best epoch s", "median s", "launch s", "Pss a rank MB", "loss"]
    for (hidden, optimizer), best in best_of(runs):
        rows = [
            (
                name,
                f"{b['epoch_s']:.3f}",
                f"{b['median_s']:.3f}",
                f"{b['launch_s']:.2f}",
                f"{b['pss_mb']:.0f}",
                f"{b['loss']:.5f}",
            )
            for name, b in best.items()
        ]
        sections += [
            f"### {hidden} hidden units, {optimizer}",
            harness.table(head, rows),
            harness.goals_table(goals(best, hidden)),
        ]
    return "\n\n".join(sections)


def parse_arguments():
    parser = harness.arguments(__doc__, python="torch", ray=True)
    parser.add_argument(
        "--hidden", type=harness.listed(int), default=[512], help="units a layer, a list"
    )
    parser.add_argument(
        "--optimizer", type=harness.listed(str), default=["sgd"], help="sgd, adam or both"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--steps",
        type=int,
        help=f"of an epoch, 0: all; without it all up to 512 hidden units, else {STEPS_OF_LARGE}",
    )
    parser.add_argument("--throughput", type=pathlib.Path, help="where to write what throughput.py draws")
    parser.add_argument("--two-ranks", action="store_true", help="leave runs of one rank out")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    return parser.parse_args()


def measure(options, hidden, optimizer, turn):
    """One round of all contestants."""
    runs = []
    for name in harness.in_turn(contestants(options, hidden, optimizer, ""), turn):
        with tempfile.TemporaryDirectory(prefix="rtrain-parity-") as storage:
            ranks, commands = contestants(options, hidden, optimizer, storage)[name]
            result = run(name, ranks, commands)
        runs.append({"hidden": hidden, "optimizer": optimizer, "round": turn, **result})
        print(
            f"round {turn + 1}: {hidden}, {optimizer}, {name}: best epoch "
            f"{min(result['epoch_seconds']):.3f} s, "
            f"{result['cores_used_by_others']:.2f} cores used by others",
            file=sys.stderr,
        )
    return runs


def main():
    options = parse_arguments()
    harness.end_on_sigterm()
    workloads = [(h, o) for h in options.hidden for o in options.optimizer]
    runs = []
    try:
        for turn in range(options.rounds):
            for hidden, optimizer in workloads:
                runs += measure(options, hidden, optimizer, turn)
    except harness.Failure as failure:
        sys.exit(str(failure))
    print(report(runs))
    harness.write_results(options.json, steps=options.steps, runs=runs)
    harness.write_results(options.throughput, workloads=throughputs(runs, options.steps))
    return 0 if all(goals(best, hidden)[-1][-1] for (hidden, _), best in best_of(runs)) else 1


if __name__ == "__main__":
    sys.exit(main())
