#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets faults happen to a small training, and compares what it leaves with an undisturbed run's.

    chaos.py WORKLOAD                          the matrix of faults, phases and targets
    chaos.py WORKLOAD --storm 200              random kills of ranks over one run
    chaos.py WORKLOAD --every 3 --count 2400   a kill each 3 s
    chaos.py WORKLOAD --target driver,mpirun --trials 100
    chaos.py WORKLOAD --preempt 200            SIGTERM to the driver
    chaos.py WORKLOAD --nan                    a loss that becomes NaN, once and each time
    chaos.py WORKLOAD --nth 1..200             allocations that fail

One line of JSON a trial, a summary at the end. Exit status 1: something was wrong. README.md says
what is checked.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from namespaces import unshared  # noqa: E402

MARKER = "RTRAIN_CHAOS_ID"
INSIDE = "RTRAIN_CHAOS_NAMESPACE"
STEPS = 64  # of a run of the matrix
RESUMABLE = 75  # exit status of a preempted run

# What a column of the matrix means: a point of the workload, see fault.hpp.
MATRIX_PHASES = {
    "init": "start-up",
    "load": "data loading",
    "forward": "forward",
    "all_reduce": "backward",
    "write": "checkpoint write",
    "snapshot": "report",
    "end": "end of run",
}
ALL_PHASES = (
    "start init open load forward backward all_reduce step metrics snapshot write sync gather "
    "manifest rename committed end finalize"
).split()
WITHOUT_STEP = {"start", "init", "open", "end", "finalize"}
# Points that not all ranks come by.
ONLY_RANK = {"gather": 1, "manifest": 0, "rename": 0}

FAULTS = ["kill", "stop", "deadlock", "exception", "exit", "segfault", "memory", "oom", "disk", "nan"]
# What happens to a process from outside.
SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "segfault": signal.SIGSEGV,
    "exception": signal.SIGABRT,  # what an exception that nobody catches ends in
}
TARGETS = ["rank 0", "rank 1", "driver", "mpirun"]
OOM_CAUSE = "out-of-memory killer"  # RT-L15
# Where cgroups are, and what limits their memory: version 1, and 2.
CGROUPS = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}
# An error must say one of these.
CAUSES = {
    "kill": "signal 9|killed",
    "stop": "stopped|progress|hang|hung",
    "deadlock": "progress|hang|hung",
    "exception": "chaos: an exception|signal 6",
    "exit": "ended|exit",
    "segfault": "signal 11",
    "memory": "bad_alloc|memory",
    "oom": OOM_CAUSE,
    "disk": "No space left",
    "nan": "RT-M21",
    "bad_alloc": "bad_alloc|memory|signal 6",
}
MPIRUN_CAUSE = "mpirun"


# --- Processes ------------------------------------------------------------------------------------


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


class Process:
    """One of a trial's."""

    def __init__(self, pid, variables):
        self.pid = pid
        self.name = read(f"/proc/{pid}/comm").decode().strip()
        rank = variables.get(b"OMPI_COMM_WORLD_RANK")
        self.rank = None if rank is None else int(rank)

    def state(self):
        fields = read(f"/proc/{self.pid}/stat").rpartition(b") ")[2].split()
        return fields[0].decode() if fields else "gone"


def processes(marker):
    """Those with the marker in their environment, without zombies."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            settings = read(f"/proc/{entry}/environ").split(b"\0")
            if f"{MARKER}={marker}".encode() in settings:
                variables = dict(word.split(b"=", 1) for word in settings if b"=" in word)
                process = Process(int(entry), variables)
                if process.state() not in ("Z", "X", "gone"):
                    found.append(process)
    return found


def kill(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def wait_until(condition, limit):
    """Seconds until `condition` held; None when it did not within `limit`."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > limit:
            return None
        time.sleep(0.01)
    return time.monotonic() - begin


def resident_kib(pid):
    match = re.search(rb"VmRSS:\s*(\d+)", read(f"/proc/{pid}/status"))
    return int(match[1]) if match else 0


def open_files(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def zombies_of(parent):
    found = set()
    for entry in os.listdir("/proc"):
        fields = read(f"/proc/{entry}/stat").rpartition(b") ")[2].split() if entry.isdigit() else []
        if len(fields) > 1 and fields[0] == b"Z" and int(fields[1]) == parent:
            found.add(int(entry))
    return found


def starving_cgroup(name):
    """A cgroup without memory: the kernel kills who needs some. None where it cannot be made."""
    for root, limit in CGROUPS.items():
        try:
            if pathlib.Path(root, "cgroup.procs").exists():
                path = pathlib.Path(root, name)
                path.mkdir(exist_ok=True)
                (path / limit).write_text("4096")
                return path
        except OSError:
            remove_cgroup(name)
    return None


def remove_cgroup(name):
    for root in CGROUPS:
        with contextlib.suppress(OSError):
            pathlib.Path(root, name).rmdir()


# --- Runs -----------------------------------------------------------------------------------------


class Run:
    """A run of the workload in directories of its own; it may be started several times."""

    count = 0

    def __init__(self, options, arguments=()):
        Run.count += 1
        self.marker = f"{os.getpid()}-{Run.count}"
        self.directory = options.directory / str(Run.count)
        self.storage = self.directory / "storage"
        self.tmp = self.directory / "tmp"
        for path in (self.storage, self.tmp):
            path.mkdir(parents=True)
        self.tmp.chmod(0o700)
        self.once = self.directory / "once"
        self.cgroup = f"rtrain-chaos-{self.marker}"
        self.log = self.directory / "output"
        self.limit = options.limit
        self.words = [str(options.workload), str(self.storage), *map(str, arguments)]
        self.words += ["--engine", options.engine]
        if "--policy" not in self.words:
            self.words += ["--policy", options.policy]
        self.driver = None
        self.fault = ""

    def start(self, fault=""):
        self.fault = fault
        environment = dict(
            os.environ,
            TMPDIR=str(self.tmp),
            XDG_RUNTIME_DIR=str(self.tmp),
            RTRAIN_CHAOS=fault,
            OMPI_MCA_mpi_yield_when_idle="1",
        )
        environment[MARKER] = self.marker
        with open(self.log, "ab") as log:
            self.driver = subprocess.Popen(
                self.words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def wait(self):
        """Exit status; None when it did not end in time."""
        try:
            return self.driver.wait(self.limit)
        except subprocess.TimeoutExpired:
            return None

    def output(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def restarts(self):
        """New processes, or in their processes, which rank 0 says."""
        line = r"^(?:\[rank 0\] )?rtrain: (?:.*\b)?restart \d+"
        return len(re.findall(line, self.output(), re.MULTILINE))

    def pace(self, milliseconds, until, then):
        """How long each step takes: before step `until`, and from there on."""
        new = self.directory / "pace"
        new.write_text(f"{milliseconds} {until} {then}\n")
        new.replace(self.storage / "pace")

    def step(self):
        return int(read(self.storage / "step") or 0)

    def ranks(self):
        return [process for process in processes(self.marker) if process.rank is not None]

    def find(self, target):
        """The process id of a target; None while it is not there."""
        if target == "driver":
            return self.driver.pid
        for process in processes(self.marker):
            if target == "mpirun" and process.rank is None:
                if process.name in ("mpirun", "orterun", "prterun", "prte"):
                    return process.pid
            elif target == f"rank {process.rank}":
                return process.pid
        return None

    def end_all(self):
        for process in processes(self.marker):
            kill(process.pid, signal.SIGKILL)
        self.driver.wait()

    def left_behind(self):
        """Ranks that live 1 s after the end, and what else is there when all should be gone."""
        left = []
        for still_there, limit in ((self.ranks, 1), (lambda: processes(self.marker), 5)):
            if wait_until(lambda: not still_there(), limit) is None:
                left += [
                    f"process {p.pid} ({p.name}, rank {p.rank}, {p.state()})"
                    for p in still_there()
                ]
                self.end_all()
        left += [f"TMPDIR/{p.relative_to(self.tmp)}" for p in sorted(self.tmp.iterdir())]
        if os.environ.get(INSIDE):  # else others use it as well
            left += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
        reap()
        return left

    def forget_leftovers(self):
        """So that a later trial is not blamed."""
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir(mode=0o700, exist_ok=True)
        if os.environ.get(INSIDE):
            for path in pathlib.Path("/dev/shm").iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def finals(self):
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.storage.glob("run/final-*.bin"))
        }

    def reports(self):
        """What result.json says of each report, without times."""
        kept = ("training_iteration", "step", "loss", "epoch")
        lines = (self.storage / "run" / "result.json").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if k in kept} for line in lines]

    def compare(self, reference):
        """How this finished run differs from the undisturbed one."""
        wrong = []
        if self.finals() != reference.finals():
            wrong.append("the final weights differ from those of the undisturbed run")
        mine, right = self.reports(), reference.reports()
        numbers = [report["training_iteration"] for report in mine]
        if numbers != list(range(1, len(right) + 1)):
            wrong.append(f"result.json has iterations {numbers}")
        elif mine != right:
            wrong.append("result.json has other metrics than that of the undisturbed run")
        hidden = [p.name for p in (self.storage / "run").iterdir() if p.name[:8] == ".rtrain-"]
        if hidden:
            wrong.append(f"the run's directory still has {hidden}")
        return wrong

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        remove_cgroup(self.cgroup)


def reap():
    """As process 1 of a namespace, this one inherits orphans."""
    if os.getpid() == 1:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def reference_run(options, arguments=()):
    run = Run(options, arguments)
    begin = time.monotonic()
    status = run.start().wait()
    run.seconds = time.monotonic() - begin
    wrong = run.left_behind()
    if status != 0 or wrong or len(run.finals()) != 2:
        sys.exit(f"The undisturbed run failed: status {status}, left {wrong}\n{run.output()}")
    return run


# --- The matrix -----------------------------------------------------------------------------------


def strike_from_outside(run, kind, target):
    """When the workload waits in the phase. Returns what went wrong with that."""
    if wait_until(run.once.exists, run.limit) is None:
        return ["the run did not come to the phase"]
    time.sleep(0.05)
    pid = run.find(target)
    if pid is None:
        return [f"there is no {target}"]
    if kind == "memory":
        used = int(read(f"/proc/{pid}/statm").split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    elif kind == "oom":
        (starving_cgroup(run.cgroup) / "cgroup.procs").write_text(str(pid))
    else:
        kill(pid, SIGNALS[kind])
    run.once.with_suffix(".go").touch()
    if (kind, target) == ("stop", "driver"):  # nobody is there to notice; a run must bear it
        time.sleep(3)
        kill(pid, signal.SIGCONT)
    return []


def can_happen(kind, phase, target):
    """Faults that a process does to itself only happen to ranks that come by."""
    if kind == "oom":
        return target.startswith("rank ") and phase not in ("start", "finalize")
    if target not in ("rank 0", "rank 1") or ONLY_RANK.get(phase, int(target[5:])) != int(
        target[5:]
    ):
        return kind in SIGNALS or kind == "memory" and target in ("driver", "mpirun")
    return True


def fault_of(run, kind, phase, target, step):
    """What the workload is told, and whether this script strikes."""
    inside = kind != "oom" and target.startswith("rank ") and ONLY_RANK.get(phase, int(target[5:])) == int(target[5:])
    rank = int(target[5:]) if inside else ONLY_RANK.get(phase, 0)
    spec = f"{kind if inside else 'tell'}@{phase}:rank={rank}:step={step}:once={run.once}"
    return spec, not inside


# Whose allocation fails: of the thread that trains, of the others of its process, of the driver.
WHOSE = ["training", "others", "driver"]


def allocation_fault(run, n, whose, phase, rank, step):
    words = [f"bad_alloc@{phase}", f"rank={'driver' if whose == 'driver' else rank}", f"nth={n}"]
    words += [f"step={step}", f"once={run.once}"] + ["threads=others"] * (whose == "others")
    return ":".join(words)


def explains(output, kind, target):
    errors = re.findall(r"^ERROR .*(?:\n  .*)*", output, re.MULTILINE)
    cause = CAUSES[kind] + ("|" + MPIRUN_CAUSE if target == "mpirun" else "")
    return bool(errors) and re.search(cause, errors[-1], re.IGNORECASE) is not None


def trial(options, reference, kind, phase, target, step, allocation=None):
    """One cell of the matrix; or `allocation`, which one fails and whose."""
    whose = allocation[1] if allocation else ""
    run = Run(options, ["--policy", "async"] if whose == "others" else [])
    if allocation:
        rank = 0 if target == "driver" else int(target[5:])
        spec, from_outside = allocation_fault(run, *allocation, phase, rank, step), False
    else:
        spec, from_outside = fault_of(run, kind, phase, target, step)
    if whose == "others":
        run.pace(40, 0, 40)  # they do little else than tell the driver what happens, now and then
    begin = time.monotonic()
    run.start(spec)
    wrong = strike_from_outside(run, kind, target) if from_outside else []
    status = run.wait()
    seconds = time.monotonic() - begin
    outcome = "finished" if status == 0 else "error"
    if status is None:
        outcome = "no end"
        wrong.append(f"no end within {run.limit} s")
        run.end_all()
    elif not run.once.exists():
        outcome = "not reached"  # there may be fewer allocations
        if not allocation:
            wrong.append("the fault did not happen")
    driver_died = target == "driver" and status is not None and status < 0
    if driver_died:
        outcome = "driver died"
    left = run.left_behind()
    wrong += [word for word in left if not driver_died or word.startswith("process")]
    if kind == "oom" and run.restarts() and OOM_CAUSE not in run.output():
        wrong.append("the kernel's OOM killer is not named")
    if outcome == "error" and not explains(run.output(), kind, target):
        wrong.append(f"status {status}, but no error names the cause")
    if outcome == "error" and whose == "driver" and "[RT-L16]" not in run.output():
        wrong.append("the driver does not say that it is the one without memory")
    if status != 0:  # the same command goes on, and removes what a dead driver could not
        if not driver_died:
            run.forget_leftovers()
        again = run.start().wait()
        if again != 0:
            wrong.append(f"started again, it ends with status {again}")
            run.end_all()
        wrong += ["after the next start: " + word for word in run.left_behind()]
        run.forget_leftovers()
        status = again
    run.forget_leftovers()
    if status == 0:
        wrong += run.compare(reference)
    record = {
        "fault": kind,
        "phase": phase,
        "target": target,
        "step": step,
        "outcome": outcome,
        "seconds": round(seconds, 2),
        "restarts": run.restarts(),
        "wrong": wrong,
    }
    if allocation:
        record.update({"nth": allocation[0], "whose": whose})
    say(record)
    if wrong:
        keep(options, run)
    run.remove()
    return record


def allocations(options):
    """The n-th allocation behind a point fails, once."""
    reference = reference_run(options)
    chance = random.Random(options.seed)
    cells = []
    for n in range(options.nth[0], options.nth[1] + 1):
        for whose in options.whose:
            phase = "start" if whose == "driver" else chance.choice(options.phases)
            rank = ONLY_RANK.get(phase, n % 2)
            target = "driver" if whose == "driver" else f"rank {rank}"
            step = 0 if phase in WITHOUT_STEP else chance.randrange(1, STEPS - 3)
            cells.append((phase, target, step, (n, whose)))
    if options.sample and options.sample < len(cells):
        cells = sorted(chance.sample(cells, options.sample), key=cells.index)
    records = [trial(options, reference, "bad_alloc", *cell) for cell in cells]
    for whose in options.whose:
        mine = [record for record in records if record["whose"] == whose]
        counts = collections.Counter(record["outcome"] for record in mine)
        print(f"{whose}: {len(mine)} trials, " + ", ".join(f"{v} {k}" for k, v in counts.items()))
    return sum(bool(record["wrong"]) for record in records)


def keep(options, run):
    """The output of a run that went wrong."""
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{run.marker}.txt").write_text(f"{run.fault}\n{run.output()}")
    else:
        sys.stderr.write("".join(f"  | {line}\n" for line in run.output().splitlines()[-15:]))


def say(record):
    print(json.dumps(record), flush=True)


def matrix(options):
    reference = reference_run(options)
    probe = f"rtrain-chaos-{os.getpid()}"
    if "oom" in options.faults and starving_cgroup(probe) is None:
        print("No cgroup can be made here: no oom.", file=sys.stderr)
        options.faults = [kind for kind in options.faults if kind != "oom"]
    remove_cgroup(probe)
    cells = [
        (kind, phase, target)
        for target in options.targets
        for phase in options.phases
        for kind in options.faults
        if can_happen(kind, phase, target)
    ]
    chance = random.Random(options.seed)
    if options.sample and options.sample < len(cells):
        cells = sorted(chance.sample(cells, options.sample), key=cells.index)
    records = []
    for _ in range(options.trials):
        for kind, phase, target in cells:
            step = 0 if phase in WITHOUT_STEP else chance.randrange(1, STEPS - 3)
            records.append(trial(options, reference, kind, phase, target, step))
    print_matrix(options, records, reference)
    return sum(bool(record["wrong"]) for record in records)


def print_matrix(options, records, reference):
    """How each cell ended and the longest it took beyond an undisturbed run."""
    cells = collections.defaultdict(list)
    for record in records:
        cells[record["fault"], record["phase"], record["target"]].append(record)
    names = [MATRIX_PHASES.get(phase, phase) for phase in options.phases]
    width = max(14, *map(len, names))
    print(
        "\nok: finished with the bits of the undisturbed run; error: an error named the cause, and "
        "the next start\nfinished so; died: so did the driver, and the next start finished so. "
        f"Seconds beyond the {reference.seconds:.1f} s\nof an undisturbed run; (n): restarts.\n"
    )
    for target in options.targets:
        print(f"{target:<12}" + "".join(f"{name:>{width + 2}}" for name in names))
        for kind in options.faults:
            line = f"  {kind:<10}"
            for phase in options.phases:
                line += f"{cell_text(cells.get((kind, phase, target)), reference):>{width + 2}}"
            print(line)
        print()


def cell_text(records, reference):
    if not records:
        return "-"
    wrong = sum(bool(record["wrong"]) for record in records)
    if wrong:
        return f"WRONG {wrong}/{len(records)}" if len(records) > 1 else "WRONG"
    words = {"finished": "ok", "error": "error", "driver died": "died"}
    outcomes = "/".join(sorted({words[record["outcome"]] for record in records}))
    worst = max(record["seconds"] for record in records) - reference.seconds
    restarts = max(record["restarts"] for record in records)
    return f"{outcomes} {worst:+.1f} ({restarts})"


# --- Kills over one run ---------------------------------------------------------------------------


class Pace:
    """Lets a run neither end before its disturbances nor long after them."""

    def __init__(self, run, steps, disturbances):
        self.run, self.steps, self.disturbances = run, steps, disturbances
        self.adjust(0)

    def adjust(self, done):
        self.run.pace(20, self.steps * (done + 1) // (self.disturbances + 2), 600)

    def end(self):
        (self.run.storage / "pace").unlink()


def long_run(options, disturbances):
    """Arguments for a run that outlives them, and its number of steps."""
    epochs = max(4, disturbances // 2)
    return ["--epochs", epochs, "--max-failures", -1, "--backoff-ms", 0], epochs * STEPS // 2


def storm(options):
    """Kills a random rank again and again."""
    count = options.storm or options.count
    arguments, steps = long_run(options, count)
    reference = reference_run(options, arguments)
    chance = random.Random(options.seed)
    run = Run(options, arguments)
    pace = Pace(run, steps, count)
    run.start()
    samples, wrong, kills = [], [], 0
    seen_zombies = set()
    begin = time.monotonic()
    while kills < count and not wrong:
        time.sleep(options.every if options.every else chance.uniform(0.05, 4))
        if wait_until(lambda: run.driver.poll() is not None or run.ranks(), 60) is None:
            wrong.append("there was no rank for 60 s")
        if run.driver.poll() is not None:
            wrong.append(f"the run ended with status {run.driver.poll()} after {kills} kills")
            break
        zombies = zombies_of(run.driver.pid)
        if zombies & seen_zombies:
            wrong.append(f"zombies of the driver: {sorted(zombies & seen_zombies)}")
        seen_zombies = zombies
        samples.append((resident_kib(run.driver.pid), open_files(run.driver.pid)))
        ranks = run.ranks()
        if ranks and kill(chance.choice(ranks).pid, signal.SIGKILL):
            kills += 1
            pace.adjust(kills)
        if options.verbose and kills % 10 == 0:
            print(f"{kills} kills, step {run.step()} of {steps}", file=sys.stderr)
    pace.end()
    status = run.wait()
    if status != 0:
        wrong.append(f"status {status}")
        run.end_all()
    wrong += run.left_behind()
    if status == 0:
        wrong += run.compare(reference)
    half = max(1, len(samples) // 2)
    memory, files = (
        max(sample[i] for sample in samples[-half:]) - max(sample[i] for sample in samples[:half])
        for i in (0, 1)
    )
    if memory > 5 * 1024:
        wrong.append(f"the driver's memory has grown by {memory} KiB")
    if files > 4:  # how many ranks are just connected varies
        wrong.append(f"the driver has {files} more files open")
    say(
        {
            "storm": kills,
            "restarts": run.restarts(),
            "seconds": round(time.monotonic() - begin, 1),
            "steps": steps,
            "driver_rss_growth_kib": memory,
            "driver_fd_growth": files,
            "wrong": wrong,
        }
    )
    if wrong:
        keep(options, run)
    return len(wrong)


def kill_launchers(options):
    """Kills the driver or mpirun at random instants of one run; the same command goes on."""
    arguments, steps = long_run(options, options.trials)
    reference = reference_run(options, arguments)
    chance = random.Random(options.seed)
    run = Run(options, arguments)
    pace = Pace(run, steps, options.trials)
    failures = 0
    run.start()
    for number in range(options.trials):
        target = options.target[number % len(options.target)]
        time.sleep(chance.uniform(0.05, 4))
        wrong = []
        if wait_until(lambda: run.find(target) is not None or run.driver.poll() is not None, 30) is None:
            wrong.append(f"there was no {target} for 30 s")
        if run.driver.poll() is not None:
            wrong.append(f"the run ended with status {run.driver.poll()}")
            run.start()
        ranks = run.ranks()
        phase = run.step()
        kill(run.find(target) or 0 or run.driver.pid, signal.SIGKILL)
        gone = wait_until(lambda: all(p.state() in ("Z", "X", "gone") for p in ranks), 20)
        if gone is None or gone > options.gone_limit:
            wrong.append(f"ranks were alive {gone} s later")
        if target == "driver":
            run.driver.wait()
            reap()
            if wait_until(lambda: not processes(run.marker), 2) is None:
                left = [f"{p.pid} {p.name} rank {p.rank}" for p in processes(run.marker)]
                wrong.append(f"processes of a dead driver live: {left}")
                run.end_all()
            run.start()
        pace.adjust(number + 1)
        say({"target": target, "trial": number, "step": phase, "ranks": len(ranks), "ranks_gone_s": gone and round(gone, 3), "wrong": wrong})
        failures += bool(wrong)
    pace.end()
    return failures + conclude(options, run, reference, "launchers")


def conclude(options, run, reference, name):
    """Lets a disturbed run end, and looks at what it leaves."""
    status = run.wait()
    wrong = [] if status == 0 else [f"status {status}"]
    if status != 0:
        run.end_all()
    wrong += run.left_behind()
    if status == 0:
        wrong += run.compare(reference)
    say({name: "the run's end", "restarts": run.restarts(), "wrong": wrong})
    if wrong:
        keep(options, run)
    return len(wrong)


def second_driver(options):
    """A second driver on a run's directory is refused, and does the first no harm."""
    reference = reference_run(options)
    run = Run(options)
    run.pace(400, 0, 400)
    run.start()
    wait_until(lambda: run.step() > 0, 30)
    other = Run(options)
    other.words[1] = run.words[1]
    begin = time.monotonic()
    status = other.start().wait()
    seconds = time.monotonic() - begin
    wrong = []
    if status in (0, None) or "RT-S7" not in other.output():
        wrong.append(f"the second driver ended with status {status}")
    if seconds > options.refusal_limit:
        wrong.append(f"the second driver was refused after {seconds:.2f} s only")
    if run.driver.poll() is not None:
        wrong.append("the first driver has ended, too")
    say({"second driver": "refused", "seconds": round(seconds, 2), "wrong": wrong})
    (run.storage / "pace").unlink()
    other.end_all()
    return len(wrong) + conclude(options, run, reference, "second driver")


def preempt(options):
    """SIGTERM to the driver at random instants of one run; the same command goes on."""
    arguments, steps = long_run(options, options.preempt)
    reference = reference_run(options, arguments)
    chance = random.Random(options.seed)
    run = Run(options, arguments)
    pace = Pace(run, steps, options.preempt)
    failures = 0
    for number in range(options.preempt):
        run.start()
        before = len(run.output())
        wait_until(lambda: run.find("mpirun") is not None, 30)  # before, there is no driver yet
        time.sleep(chance.uniform(0.05, 4))
        begin = time.monotonic()
        kill(run.driver.pid, signal.SIGTERM)
        status = run.wait()
        seconds = time.monotonic() - begin
        wrong = run.left_behind()
        if status != RESUMABLE:
            wrong.append(f"status {status}, not {RESUMABLE}")
        if seconds > options.grace:
            wrong.append(f"it took {seconds:.1f} s")
        resumed = re.findall(r"TRAINING 0 epoch \d+ step (\d+)", run.output()[before:])
        if number > 0 and resumed and int(resumed[0]) < last:
            wrong.append(f"it went on from step {resumed[0]}, but step {last} was done")
        last = run.step()
        pace.adjust(number + 1)
        say({"preempt": number, "step": last, "seconds": round(seconds, 2), "status": status, "wrong": wrong})
        failures += bool(wrong)
    pace.end()
    run.start()
    return failures + conclude(options, run, reference, "preempt")


def nan(options):
    """The loss of one rank becomes NaN: once, which one restart mends, and each time."""
    reference = reference_run(options)
    chance = random.Random(options.seed)
    failures = 0
    for target in ("rank 0", "rank 1"):
        record = trial(options, reference, "nan", "forward", target, chance.randrange(1, STEPS - 3))
        if record["restarts"] != 1:
            say({"nan": "once", "wrong": [f"{record['restarts']} restarts, not 1"]})
            failures += 1
        failures += bool(record["wrong"])
    run = Run(options, ["--max-failures", -1, "--backoff-ms", 0])
    step = chance.randrange(9, STEPS // 2)  # behind two checkpoints
    status = run.start(f"nan@forward:rank=0:step={step}").wait()
    wrong = run.left_behind()
    if status in (0, None) or not explains(run.output(), "nan", "rank 0"):
        wrong.append(f"status {status}, but no error names the cause")
    if run.restarts() != 5:
        wrong.append(f"{run.restarts()} restarts, not 5")
    if not re.search("restart.*, skipping checkpoint_", run.output()):
        wrong.append("it never went on from an older checkpoint")
    say({"nan": "each time", "step": step, "restarts": run.restarts(), "wrong": wrong})
    if wrong:
        keep(options, run)
    return failures + bool(wrong)


# --- Command line ---------------------------------------------------------------------------------


def parse_arguments():
    def listed(known):
        def parse(text):
            words = known if text == "all" else text.split(",")
            unknown = [word for word in words if word not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
            return words

        return parse

    def a_range(text):
        first, _, last = text.partition("..")
        return int(first), int(last or first)

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workload", type=pathlib.Path)
    parser.add_argument("--faults", type=listed(FAULTS), default=FAULTS)
    parser.add_argument("--phases", type=listed(ALL_PHASES), default=list(MATRIX_PHASES))
    parser.add_argument("--targets", type=listed(TARGETS), default=TARGETS)
    parser.add_argument("--sample", type=int, help="so many random cells of the matrix")
    parser.add_argument("--trials", type=int, default=1, help="of each cell; of --target")
    parser.add_argument("--storm", type=int, metavar="N", help="N random kills over one run")
    parser.add_argument("--every", type=float, metavar="S", help="a kill each S seconds")
    parser.add_argument("--count", type=int, default=100, help="kills of --every")
    parser.add_argument("--target", type=listed(["driver", "mpirun"]), help="kills of launchers")
    parser.add_argument("--second-driver", action="store_true")
    parser.add_argument("--preempt", type=int, metavar="N")
    parser.add_argument("--nan", action="store_true")
    parser.add_argument("--nth", type=a_range, metavar="A..B", help="which allocation fails")
    parser.add_argument("--whose", type=listed(WHOSE), default=WHOSE, help="of --nth")
    parser.add_argument("--grace", type=float, default=10, help="s for a preemption")
    parser.add_argument(
        "--gone-limit", type=float, default=1, help="s for ranks to end behind a driver or mpirun"
    )
    parser.add_argument("--refusal-limit", type=float, default=5, help="s for a second driver")
    parser.add_argument(
        "--engine",
        choices=["data_parallel", "sharded", "stepping", "gathering"],
        default="data_parallel",
    )
    parser.add_argument("--policy", choices=["sharded", "late"], default="sharded")
    parser.add_argument("--limit", type=float, default=60, help="s for a run to end in")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="where outputs of wrong trials go")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.workload = options.workload.resolve()
    return options


def simulate():
    """Starts this script again with processes and /dev/shm of its own, where the kernel allows."""
    words = [*unshared("--ipc"), "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]
    granted = shutil.which("unshare") and shutil.which("setpriv")
    if granted and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
        os.environ[INSIDE] = "1"
        os.execvp(words[0], [*words, sys.executable, *sys.argv])
    print("The kernel refuses namespaces: /dev/shm is not looked at.", file=sys.stderr)


def main():
    options = parse_arguments()
    if INSIDE not in os.environ:
        simulate()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="chaos-") as directory:
        options.directory = pathlib.Path(directory)
        if options.storm or options.every:
            wrong = storm(options)
        elif options.target:
            wrong = kill_launchers(options)
        elif options.second_driver:
            wrong = second_driver(options)
        elif options.preempt:
            wrong = preempt(options)
        elif options.nan:
            wrong = nan(options)
        elif options.nth:
            wrong = allocations(options)
        else:
            wrong = matrix(options)
    print(f"{wrong} WRONG" if wrong else "nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
