#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs of Slurm on this machine, preempts them, and expects them to go on and finish; and one
whose ranks hang, which is to end.

    cd build/release/tests
    python3 ../../../tests/slurm/slurm_test.py ../../../examples/slurm/train.sbatch slurm/slurm_job hanging

slurmctld and slurmd run in a temporary directory, on ports of their own, without munge. Everything runs
in a PID namespace that dies with this script. Needs root, as slurmd does, and Debian's slurm-wlm; exit
status 77 (ctest: skipped) without them.
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from namespaces import unshared  # noqa: E402

SKIPPED = 77
STEPS = 150
LIMIT_S = 240

CONFIGURATION = """
ClusterName=rtrain
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def require_slurm():
    """Leaves with SKIPPED unless Slurm can be started here."""
    for tool in ("slurmctld", "slurmd", "sbatch", "scontrol"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            print(f"SKIPPED: {tool} is not installed: apt-get install slurm-wlm")
            sys.exit(SKIPPED)
    if os.getuid() != 0:
        print("SKIPPED: slurmd needs root")
        sys.exit(SKIPPED)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def wait_until(what, holds):
    end = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen in {LIMIT_S} s")
        time.sleep(0.2)


class Cluster:
    def __init__(self, directory):
        self.directory = directory
        for name in ("state", "spool"):
            (directory / name).mkdir()
        configuration = directory / "slurm.conf"
        configuration.write_text(
            CONFIGURATION.format(
                host=socket.gethostname().split(".")[0],
                directory=directory,
                controller_port=free_port(),
                node_port=free_port(),
                processors=os.cpu_count(),
            )
        )
        os.environ["SLURM_CONF"] = str(configuration)
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        self.daemons = [
            subprocess.Popen([daemon, "-D"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for daemon in ("slurmctld", "slurmd")
        ]
        wait_until("a node that is idle", self.is_up)

    def is_up(self):
        state = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True)
        return state.returncode == 0 and state.stdout.strip() in ("idle", "mixed", "allocated")

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()


class Job:
    """A job under examples/slurm/train.sbatch, and what it prints."""

    def __init__(self, cluster, script, name, *command, options=()):
        self.output = cluster.directory / f"{name}.out"
        tasks = min(2, os.cpu_count())
        self.number = run(
            "sbatch", "--parsable", f"--ntasks={tasks}", f"--output={self.output}", *options,
            script, *command,
        ).strip()

    def text(self):
        return self.output.read_text() if self.output.exists() else ""

    def state(self):
        return re.search(r"JobState=(\S+)", run("scontrol", "show", "job", self.number))[1]

    def wait_for(self, pattern):
        wait_until(f"{pattern!r} in the output", lambda: re.search(pattern, self.text()))

    def wait_for_end(self):
        wait_until("the end of the job",
                   lambda: self.state() not in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"))
        return self.state()


def starts(text):
    return [int(step) for step in re.findall(r"BEGIN at step (\d+)", text)]


def test_preempted_twice(cluster, script, name, command):
    """It is told to make room twice, by either signal, and is done in the third start."""
    storage = cluster.directory / name
    job = Job(cluster, script, name, *command, str(STEPS), str(storage))
    try:
        for number, told_by in enumerate(("USR1", "TERM")):
            job.wait_for(r"(BEGIN at step(.|\n)*){%d}" % (number + 1))
            time.sleep(1.5)
            run("scancel", "--batch", f"--signal={told_by}", job.number)
        state = job.wait_for_end()
        text = job.text()
        assert state == "COMPLETED", f"the job ended as {state}"
        begun = starts(text)
        assert len(begun) == 3, f"it began {len(begun)} times, expected 3"
        assert begun[0] == 0 and 0 < begun[1] < begun[2] < STEPS, f"it began at steps {begun}"
        assert f"RESULT {STEPS} {STEPS}" in text, "each step must be reported once"
        log = (storage / "r" / "logs" / "rank-0.log").read_text()
        assert starts(log) == begun, f"the log of rank 0 has the starts {starts(log)}"
    except BaseException:
        print(f"--- output of {name}:\n{job.text()}", flush=True)
        raise
    print(f"ok: {name}: began at steps {starts(text)}", flush=True)


def test_failure_is_not_repeated(cluster, script, program):
    """Whatever ends otherwise does not go back into the queue."""
    job = Job(cluster, script, "fails", program)
    assert job.wait_for_end() == "FAILED"
    print("ok: a job that fails is not queued again", flush=True)


def test_hang_is_found(cluster, script, hanging):
    """Under srun, where no driver looks; rank 0 is the one that is stopped."""
    storage = cluster.directory / "hangs"
    srun = ["srun", "-K", "--mpi=pmix"]
    job = Job(cluster, script, "hangs", *srun, hanging, "stops", "0", str(storage))
    state = job.wait_for_end()
    text = job.text()
    try:
        assert state == "FAILED", f"the job ended as {state}"
        assert "the ranks hang: rank 0 is stopped" in text and "[RT-L14]" in text
        assert "stack of rank 1:\n#0 " in text
    except BaseException:
        print(f"--- output:\n{text}", flush=True)
        raise
    print("ok: a hang under srun is found", flush=True)


def main():
    script, program, hanging = (os.path.abspath(path) for path in sys.argv[1:4])
    os.environ["OMPI_ALLOW_RUN_AS_ROOT"] = os.environ["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
    with tempfile.TemporaryDirectory(prefix="rtrain-slurm-", ignore_cleanup_errors=True) as directory:
        cluster = Cluster(pathlib.Path(directory))
        try:
            test_preempted_twice(cluster, script, "driver", [program])
            if "pmix" in run("srun", "--mpi=list"):
                test_preempted_twice(cluster, script, "srun", ["srun", "-K", "--mpi=pmix", program])
                if os.cpu_count() > 1:
                    test_hang_is_found(cluster, script, hanging)
            test_failure_is_not_repeated(cluster, script, program)
        finally:
            cluster.close()


def run_alone(main):
    """Calls it in a PID namespace that ends with it."""
    if sys.argv[-1] == "inside":
        sys.argv.pop()
        main()
    else:
        require_slurm()
        # A shell as the first process, because that has to bury what others leave behind.
        init = ["bash", "-c", '"$@"; exit $?', "init", sys.executable, *sys.argv, "inside"]
        words = [*unshared(), *init]
        os.execvp(words[0], words)


if __name__ == "__main__":
    run_alone(main)
