#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `rtrain run` and `rtrain exec` do with real processes.

Usage: run_test.py TOOL CASES [--kills N] [-v]

CASES is a class below: Shell needs no torch, Torch runs train.py, Kills kills its ranks, Frameworks runs those of other
frameworks."""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = str(HERE / "train.py")
LIMIT = 300  # seconds for a run, on a busy machine
TOOL = ""
KILLS = 20
ROWS = ""
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def is_alive(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def descendants(process):
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def is_held(port):
    with socket.socket() as probe:  # without SO_REUSEADDR
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


def wait_until(condition, limit=60, pause=0.02):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen")
        time.sleep(pause)


class Run(unittest.TestCase):
    """Runs in an empty directory, with temporary files below it."""
    limit = LIMIT

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rtrain-test-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.temporary = self.directory / "tmp"
        self.temporary.mkdir()
        python = pathlib.Path(sys.executable).parent
        self.environment = {**os.environ, **MPI, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1",
                            "PATH": f"{python}:{os.environ['PATH']}"}

    def start(self, *words, tool=None, **variables):
        return subprocess.Popen([*(tool or [TOOL, "run", "--storage", "results"]), *words], cwd=self.directory,
                                env={**self.environment, **variables}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, process, others=0):
        """With the temporary directories of other runs left."""
        try:
            process.out, process.err = process.communicate(timeout=self.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.out, process.err = process.communicate()
            self.fail(f"no end: {process.out}{process.err}")
        self.assertEqual(others, len(list(self.temporary.glob("rtrain*"))), "directories are left")
        return process

    def run_tool(self, *words, **variables):
        return self.end(self.start(*words, **variables))

    def check(self, run, status, text=""):
        self.assertEqual(status, run.returncode, run.out + run.err)
        self.assertIn(text, run.out + run.err)

    def script(self, text, name="script.sh"):
        path = self.directory / name
        path.write_text("#!/bin/sh\n" + textwrap.dedent(text))
        path.chmod(0o755)
        return f"./{name}"


class Shell(Run):
    def test_a_shell_script_gets_the_variables_of_its_rank(self):
        script = self.script('echo "$RANK of $WORLD_SIZE, $RTRAIN_CONFIG, $RTRAIN_PROGRAM$RTRAIN_CONTROL$RTRAIN_PLACE."')
        run = self.run_tool("-n", "3", "--config", "a=1", "--config", "b=two", "--name", "r", script)
        self.check(run, 0)
        self.assertEqual([f'[rank {rank}] {rank} of 3, {{"a":1,"b":"two"}}, .' for rank in range(3)],
                         sorted(run.out.splitlines()))
        files = self.directory / "results" / "r"
        self.assertEqual({"a": 1, "b": "two"}, json.loads((files / "params.json").read_text()))
        self.assertEqual("", (files / "result.json").read_text())
        self.assertFalse((files / "error.json").exists())
        self.assertIn("1 of 3", (files / "logs" / "rank-1.log").read_text())

    def test_a_compiled_program_and_no_rendezvous(self):
        run = self.run_tool("-n", "2", "--rendezvous", "none", "env")
        self.check(run, 0, "[rank 1] PYTHONFAULTHANDLER=1")
        self.assertNotIn("MASTER_PORT", run.out)

    def test_the_rendezvous_of_tensorflow(self):
        run = self.run_tool("-n", "2", "--rendezvous", "tensorflow", "sh", "-c", "echo $TF_CONFIG")
        configs = [json.loads(line.partition("] ")[2]) for line in sorted(run.out.splitlines())]
        self.assertEqual(configs[0]["cluster"], configs[1]["cluster"])
        self.assertEqual([0, 1], [config["task"]["index"] for config in configs])
        self.assertEqual(2, len(set(configs[0]["cluster"]["worker"])))

    def test_the_exit_code_is_the_programs(self):
        run = self.run_tool("-n", "2", "--name", "r", "sh", "-c", "[ $RANK = 0 ] && sleep 100; exit 3")
        self.check(run, 3, "rank 1 of 2: sh exited with code 3")
        error = self.directory / "results" / "r" / "error.json"
        self.assertEqual("rank 1 of 2: sh exited with code 3", json.loads(error.read_text())["message"])
        self.check(self.run_tool("-n", "2", "sh", "-c", "[ $RANK = 0 ] && sleep 100; kill -KILL $$"), 128 + 9,
                   "was killed by signal 9")
        self.check(self.run_tool("--name", "r", "true"), 0)  # the same name runs it again
        self.assertFalse(error.exists())

    def test_a_failed_rank_restarts_all(self):
        script = self.script("""
            echo "start $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"
            [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
            [ $RANK = 1 ] || sleep 100
            [ $TORCHELASTIC_RESTART_COUNT = 0 ] && kill -KILL $$
            exit 4""")
        run = self.run_tool("-n", "2", "--max-restarts", "2", "--backoff", "0", script)
        self.check(run, 0, "restart 1 of 2")
        self.assertIn("restart 2 of 2", run.err)
        self.assertEqual(2, run.out.count("start 2 of 2"))

    def test_a_rank_that_leaves_early_is_named(self):
        run = self.run_tool("-n", "2", "sh", "-c", "[ $RANK = 0 ] && exit 0; sleep 1; exit 5")
        self.check(run, 5, "rank 0 had exited with code 0 while others were still running")
        self.assertIn("[RT-E12]", run.err)

    def test_mistakes_are_one_line(self):
        for words, code in (((), "RT-E9"), (("-n", "0", "sh"), "RT-E8"), (("--max-restart", "1", "sh"), "RT-E9"),
                            (("no-such-program",), "RT-E5"), (("sh -c true",), "RT-E7"),
                            ((TOOL, "run", "sh"), "RT-E10")):
            run = self.run_tool(*words)
            self.check(run, 2, f"[{code}]")
            self.assertEqual(1, len(run.err.splitlines()), run.err)
        run = self.run_tool("sh", RANK="0", WORLD_SIZE="1")
        self.check(run, 2, "[RT-E11]")

    def test_a_run_in_the_same_directory_is_refused(self):
        first = self.start("--name", "r", "sleep", "100")
        wait_until((self.directory / "results" / "r" / "result.json").exists)
        self.check(self.end(self.start("--name", "r", "true"), others=1), 1, "[RT-S7]")
        first.terminate()
        self.check(self.end(first), 75)

    def test_options_of_torchrun_without_a_meaning_are_reported_once(self):
        run = self.run_tool("--standalone", "--nproc-per-node", "2", "--tee", "3", "true")
        self.check(run, 0)
        self.assertEqual("rtrain: without a meaning here: --standalone, --tee\n", run.err)

    def test_sigterm_leaves_time_to_save(self):
        script = self.script("trap 'echo saved; exit 0' TERM; touch ready-$RANK; while :; do sleep 0.05; done")
        run = self.start("-n", "2", script)
        wait_until(lambda: all((self.directory / f"ready-{rank}").exists() for rank in range(2)))
        run.terminate()
        self.check(self.end(run), 75, "preempted")
        self.assertEqual(["[rank 0] saved", "[rank 1] saved"], sorted(run.out.splitlines()))

    def test_sigterm_before_ranks_have_started_reaches_their_programs(self):
        run = self.start("-n", "3", "--grace", "10000", "sleep", "10000")
        wait_until(lambda: list(self.temporary.glob("rtrain*/control-*")))
        run.terminate()
        self.check(self.end(run), 75, "preempted")

    def test_a_program_that_ignores_sigterm_is_killed_after_the_grace_time(self):
        script = self.script("trap '' TERM; touch ready; while :; do sleep 0.05; done")
        run = self.start("--grace", "0.5", script)
        wait_until((self.directory / "ready").exists)
        run.terminate()
        self.check(self.end(run), 75)

    def test_a_second_signal_ends_it_immediately(self):
        script = self.script("trap '' TERM INT; touch ready; while :; do sleep 0.05; done")
        run = self.start(script)
        wait_until((self.directory / "ready").exists)
        ranks = descendants(run.pid)
        run.send_signal(signal.SIGTERM)
        time.sleep(1.2)  # not an echo of the first
        run.send_signal(signal.SIGTERM)
        run = self.end(run)
        self.assertEqual(-signal.SIGTERM, run.returncode, run.err)
        wait_until(lambda: not any(map(is_alive, ranks)), 2)

    def test_nothing_outlives_a_killed_driver(self):
        script = self.script("sleep 1000 & echo $MASTER_PORT > port; touch ready-$RANK; sleep 1000")
        run = self.start("-n", "2", script)
        wait_until(lambda: all((self.directory / f"ready-{rank}").exists() for rank in range(2)))
        processes = descendants(run.pid)
        port = int((self.directory / "port").read_text())
        self.assertTrue(is_held(port))
        self.assertGreaterEqual(len(processes), 2 * 4)
        run.kill()
        wait_until(lambda: not any(map(is_alive, processes)), 2)
        wait_until(lambda: not list(self.temporary.glob("rtrain*")), 2)
        wait_until(lambda: not is_held(port), 2)
        self.end(run)

    def test_nothing_outlives_a_killed_parent_of_a_rank(self):
        script = self.script("sleep 1000 & touch ready-$RANK-$TORCHELASTIC_RESTART_COUNT; "
                             "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000; kill $!")
        run = self.start("-n", "2", "--max-restarts", "1", script)
        wait_until(lambda: all((self.directory / f"ready-{rank}-0").exists() for rank in range(2)))
        processes = descendants(run.pid)
        os.kill(processes[0], signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, processes)), 2)
        self.check(self.end(run), 0, "restart 1 of 1")

    def test_a_program_that_sleeps_hangs(self):
        run = self.run_tool("-n", "2", "--hang-idle", "1", "sleep", "1000")
        self.check(run, 128 + 6, "none computes: ranks 0, 1 wait in sleep")
        self.assertIn("[RT-L14]", run.err)

    def test_lines_of_ranks_are_whole_and_in_order(self):
        script = self.directory / "print.py"
        script.write_text("import os\nfor i in range(100000):\n"
                          "    print(f'{i:06} ' + 'x' * 92 + os.environ['RANK'])\n")
        run = self.run_tool("-n", "4", str(script), PYTHONUNBUFFERED="")
        self.check(run, 0)
        following = [0] * 4
        for line in run.out.splitlines():
            found = re.fullmatch(r"\[rank (\d)\] (\d{6}) x{92}(\d)", line)
            self.assertTrue(found and found[1] == found[3], line[:200])
            self.assertEqual(following[int(found[1])], int(found[2]))
            following[int(found[1])] += 1
        self.assertEqual([100000] * 4, following)

    def lines_of_exec(self, *launcher, script):
        """The lines of the ranks in order, the last of which exits with 6, and their MASTER_PORT."""
        run = self.end(self.start(tool=[*launcher, TOOL, "exec", "--", "sh", "-c", script]))
        self.check(run, 6)
        lines = sorted(run.out.splitlines())
        return lines, lines[0].split()[-1]

    def test_exec_under_mpirun(self):
        lines, port = self.lines_of_exec(
            "mpirun", "--oversubscribe", "-n", "3",
            script="echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT; exit $((RANK / 2 * 6))")
        self.assertEqual([f"{rank} 3 {rank} 127.0.0.1 {port}" for rank in range(3)], lines)

    def test_exec_under_srun(self):
        lines, port = self.lines_of_exec(
            sys.executable, HERE / "srun.py", "localhost:3",
            script="echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT; exit $((RANK * 3))")
        self.assertEqual([f"{rank} 3 {rank} 3 127.0.0.1 {port}" for rank in range(3)], lines)

    def test_exec_needs_help_on_several_machines(self):
        given = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                 "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        self.check(self.end(self.start(tool=[TOOL, "exec", "--", "true"], **given)), 126, "[RT-E4]")

    def test_mpi_starts_the_ranks(self):
        names = [f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]  # Horovod's, too
        run = self.run_tool("-n", "2", "--rendezvous", "mpi", "sh", "-c", f"echo ${' $'.join(names)} $RANK.")
        self.check(run, 0)
        self.assertEqual(["[rank 0] 0 2 0 2 .", "[rank 1] 1 2 1 2 ."], sorted(run.out.splitlines()))
        self.check(self.run_tool("-n", "2", "--rendezvous", "mpi", "sh", "-c",
                                 "[ $OMPI_COMM_WORLD_RANK = 1 ] || sleep 100; exit 7"), 7)

    def test_the_tool_needs_no_library_but_the_c_library(self):
        tool = self.directory / "rtrain"
        subprocess.run(["strip", "-o", tool, TOOL], check=True)
        needed = re.findall(r"NEEDED.*\[(.*?)\.so", self.end(self.start("-d", tool, tool=["readelf"])).out)
        if "libasan" in needed:
            self.skipTest("with a sanitizer, it is linked as usual")
        self.assertLessEqual(set(needed), {"libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"})
        self.assertLess(tool.stat().st_size, 8e6)

    def test_commands(self):
        tool = self.directory / "bin" / "rtrain"
        tool.parent.mkdir()
        shutil.copy(TOOL, tool)
        other = tool.parent / "rtrain-doctor"
        other.write_text("#!/bin/sh\necho doctor \"$@\"\n")
        other.chmod(0o755)
        self.check(self.end(self.start("a", "b", tool=[tool, "doctor"])), 0, "doctor a b")
        self.check(self.end(self.start(tool=[tool, "docter"])), 2, 'did you mean "doctor"?')
        self.check(self.end(self.start(tool=[tool, "--version"])), 0, "rtrain 0.")
        self.check(self.end(self.start(tool=[tool, "run", "--help"])), 0, "--max-restarts")
        self.check(self.end(self.start(tool=[tool, "exec", "sh"])), 2, "rtrain exec -- program")

    def ports(self, runs):
        processes = [self.start("-n", "2", "sh", "-c", "echo $MASTER_PORT; sleep 2") for _ in range(runs)]
        ports = []
        for process in processes:
            lines = {line.partition("] ")[2] for line in process.communicate(timeout=LIMIT)[0].splitlines()}
            self.assertEqual(1, len(lines))
            ports += lines
        self.assertEqual(runs, len(set(ports)))

    def test_concurrent_runs_have_different_ports(self):
        self.ports(4)


class Torch(Run):
    def losses(self, run):
        self.check(run, 0)
        return re.findall(r"loss (\S+) after", run.out)

    def test_the_loss_is_that_of_torchrun(self):
        for ranks in (1, 2, 3):
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
            expected = self.losses(self.end(self.start(str(ranks), TRAIN, tool=torchrun)))
            self.assertEqual(1, len(expected))
            self.assertEqual(expected, self.losses(self.run_tool("-n", str(ranks), TRAIN)))
        mpirun = ["mpirun", "--oversubscribe", "-n", "3", TOOL, "exec", "--", sys.executable, TRAIN]
        self.assertEqual(expected, self.losses(self.end(self.start(tool=mpirun))))

    def test_a_hang_shows_the_functions_of_all_ranks(self):
        run = self.run_tool("-n", "2", "--hang-idle", "3", "--max-restarts", "3", "--backoff", "0", TRAIN,
                            *("--fault", "skip:1:reduce", "--fault", "stop:0:after", "--fault", "sleep:1:after"))
        self.check(run, 0, "after 3 restarts")
        stacks = [re.findall(rf"\[rank {rank}\]   File .* in (\w+)", run.err) for rank in (0, 1)]
        self.assertIn("meet_in_all_reduce", stacks[0])
        self.assertIn("fail", stacks[0])
        self.assertEqual(2, stacks[1].count("forever_asleep"))
        self.assertEqual(3, run.err.count("the ranks hang: "))


class Kills(Run):
    def test_each_kill_costs_one_restart(self):
        self.limit = LIMIT + 30 * KILLS
        phases = ("before", "init", "after", "reduce", "end")
        faults = [f"kill:{i // len(phases) % 2}:{phases[i % len(phases)]}" for i in range(KILLS)]
        run = self.run_tool("-n", "2", "--max-restarts", str(KILLS), "--backoff", "0", TRAIN,
                            *(word for fault in faults for word in ("--fault", fault)))
        self.check(run, 0, f"after {KILLS} restarts")
        for number, fault in enumerate(faults):
            rank, phase = fault.split(":")[1:]
            self.assertIn(f"start {number}: rank {rank} does kill in {phase}", run.out)
            self.assertEqual(1, run.err.count(f"restart {number + 1} of {KILLS}\n"), run.err)


class Frameworks(Run):
    """Those that this Python has."""

    def lines(self, module, script, rendezvous):
        if importlib.util.find_spec(module) is None:
            self.skipTest(f"this Python has no {module}")
        path = self.directory / "script.py"
        path.write_text(textwrap.dedent(script))
        run = self.run_tool("-n", "2", "--rendezvous", rendezvous, str(path))
        self.check(run, 0)
        return sorted(line for line in run.out.splitlines() if "sum" in line)

    def test_mpi4py(self):
        self.assertEqual(["[rank 0] sum 3", "[rank 1] sum 3"], self.lines("mpi4py", """
            from mpi4py import MPI
            print("sum", MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1))
            """, "mpi"))

    def test_tensorflow(self):
        self.assertEqual(["[rank 0] sum 3.0", "[rank 1] sum 3.0"], self.lines("tensorflow", """
            import os
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
            import tensorflow as tf
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
            def add():
                replica = tf.distribute.get_replica_context()
                number = tf.cast(replica.replica_id_in_sync_group + 1, tf.float32)
                return replica.all_reduce(tf.distribute.ReduceOp.SUM, number)
            print("sum", float(strategy.run(tf.function(add))))
            """, "tensorflow"))


class Ports(Shell):
    def test_concurrent_runs_have_different_ports(self):
        self.ports(16)


def main(cases):
    """Runs the cases that the command line names, which are in the module `cases`."""
    global TOOL, KILLS, ROWS
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("tool")
    arguments.add_argument("cases", help="a class, or a test such as Shell.test_commands")
    arguments.add_argument("--kills", type=int, default=KILLS)
    arguments.add_argument("--rows", default=ROWS, help="the program permuted_rows")
    arguments.add_argument("-v", action="store_true")
    given = arguments.parse_args()
    TOOL, KILLS, ROWS = str(pathlib.Path(given.tool).resolve()), given.kills, given.rows
    if given.cases.startswith(("Torch", "Kills", "Numbers", "Data")):
        try:
            import torch  # noqa: F401
        except ImportError:
            print("skipped: this Python has no torch")
            return 77
    suite = unittest.defaultTestLoader.loadTestsFromName(given.cases, cases)
    return 0 if unittest.TextTestRunner(verbosity=1 + given.v).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.modules["__main__"]))
