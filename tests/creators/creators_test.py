#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that call a CreatorTrainer: the same numbers however they are started, and after signals.

Usage: creators_test.py PROGRAM MPIRUN CASES [--kills N] [-v]

CASES is a class below, or one of its tests."""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LIMIT = 300  # seconds for a program, on a busy machine
PROGRAM = MPIRUN = ""
KILLS = 5
CALLS = ["train", "validate", "train", "train", "validate", "train", "train"]
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_mpi_yield_when_idle": "1"}


def children(process):
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        try:
            words = task.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, words):
            found += [child, *children(child)]
    return found


def ranks_of(process):
    """The processes of the ranks that a driver has started, by rank."""
    found = {}
    for child in children(process):
        try:
            words = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            name = pathlib.Path(os.readlink(f"/proc/{child}/exe")).name
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        for word in words:
            if word.startswith(b"OMPI_COMM_WORLD_RANK=") and name == pathlib.Path(PROGRAM).name:
                found[int(word.partition(b"=")[2])] = child
    return found


def wait_until(condition, limit=120):
    end = time.monotonic() + limit
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError("it did not happen")
        time.sleep(0.02)
    return found


class Creators(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="rtrain-test-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.temporary = self.directory / "tmp"
        self.temporary.mkdir()
        self.number = 0

    def start(self, *calls, ranks=0, storage=None, **options):
        """Under mpirun with `ranks`; else the program on its own."""
        self.number += 1
        storage = storage or self.directory / f"storage-{self.number}"
        words = [f"--{name}={value}" for name, value in options.items()]
        launcher = [MPIRUN, "-n", str(ranks)] if ranks else []
        if ranks:
            words.append("--replicas=0")
        process = subprocess.Popen([*launcher, PROGRAM, f"--storage={storage}", *words, *calls], cwd=self.directory,
                                   env={**os.environ, **ENVIRONMENT, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.storage = storage
        return process

    def end(self, process):
        try:
            process.out, process.err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.out, process.err = process.communicate()
            self.fail(f"no end: {process.out}{process.err}")
        return process

    def answers(self, *calls, status=0, **options):
        """What the calls answer: a line for each."""
        process = self.end(self.start(*calls, **options))
        self.assertEqual(status, process.returncode, process.out + process.err)
        return process.out.splitlines()

    def value(self, line, name):
        return float.fromhex(re.search(rf" {name}=(\S+)", line)[1])

    def require_gone(self):
        """No directory is left, in memory or among the temporary ones."""
        mine = f"rtrain-{os.getuid()}-"
        gone = lambda: not [path for base in (self.temporary,) for path in base.glob("rtrain*")]
        wait_until(gone, 30)
        for path in pathlib.Path("/dev/shm").glob(mine + "*"):
            owner = int(path.name.removeprefix(mine).split("-")[0])
            self.assertTrue(pathlib.Path(f"/proc/{owner}").exists(), f"{path} is left")


class Smoke(Creators):
    def test_calls_have_the_same_answers_alone_and_under_mpirun(self):
        alone = self.answers(*CALLS)
        self.assertEqual(len(CALLS), len(alone))
        losses = [self.value(line, "loss") for line in alone if "train" in line]
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(alone, self.answers(*CALLS, ranks=2))
        self.require_gone()


class Calls(Creators):
    def test_numbers_do_not_depend_on_how_the_program_is_started(self):
        one = self.answers(*CALLS, replicas=1)
        self.assertEqual(one, self.answers(*CALLS, ranks=1))
        self.assertEqual(one, self.answers(*CALLS, backend="local", replicas=1))
        self.assertEqual(self.answers(*CALLS, replicas=3), self.answers(*CALLS, ranks=3))

    def test_the_program_decides_what_is_called(self):
        path = self.directory / "saved"
        lines = self.answers("train:2", "validate", f"save:{path}", "train", "validate", f"restore:{path}", "train",
                             "validate", f"load:{path}", "validate", "model", "steps:2", "shutdown", "train")
        self.assertEqual(lines[3:5], lines[6:8])  # from the same state: weights, optimizer, random numbers, order
        self.assertEqual(lines[1], lines[9])
        self.assertEqual(24, self.value(lines[11], "rows"))
        self.assertEqual(2, self.value(lines[11], "batches"))
        self.assertIn("RT-F34", lines[13])
        self.assertTrue((path / "manifest.json").exists())

    def test_data_that_main_makes_later(self):
        calls = ["train", "data:7", "train", "validate", "data:9", "train", "validate"]
        lines = self.answers(*calls)
        self.assertEqual(36, self.value(lines[2], "rows"))
        self.assertEqual(lines, self.answers(*calls, ranks=2))
        self.assertEqual(lines, self.answers(*calls, failures=1, kill="1:12"))

    def test_the_same_command_gets_the_recorded_answers(self):
        storage = self.directory / "storage"
        first = self.answers("train", "validate", "train", storage=storage, failures=1)
        began = time.monotonic()
        again = self.answers("train", "validate", "train", storage=storage, failures=1)
        self.assertEqual(first, again)
        more = self.answers("train", "validate", "train", "train", "validate", storage=storage, failures=1)
        self.assertEqual(first, more[:3])
        self.assertEqual(self.answers("train", "validate", "train", "train", "validate"), more)
        other = self.answers("train", "train", storage=storage, failures=1)
        self.assertIn("RT-F31", other[1])
        self.assertIn("validate()", other[1])

    def test_without_checkpoints_calls_are_repeated(self):
        storage = self.directory / "storage"
        first = self.answers("train", "validate", "train", storage=storage)
        more = self.answers("train", "validate", "train", "train", storage=storage)
        self.assertEqual(self.answers("train", "validate", "train", "train"), more)
        self.assertEqual(first, more[:3])

    def test_reports_are_those_of_a_run(self):
        process = self.end(self.start(*CALLS))
        lines = (process.storage / "run" / "result.json").read_text().splitlines()
        self.assertEqual(len(CALLS), len(lines))
        reports = [json.loads(line) for line in lines]
        self.assertEqual([1, 2, 3, 4, 5, 6, 7], [report["training_iteration"] for report in reports])
        self.assertEqual(["train_loss" in report for report in reports], ["train" == call for call in CALLS])

    def test_bad_calls(self):
        self.assertIn("RT-F32", self.answers("train", batch=1)[0])
        self.assertIn("RT-F32", self.answers("train", batch=0)[0])
        lines = self.answers("train:0", "train", f"restore:{self.directory / 'nothing'}", "train", "update")
        self.assertIn("RT-F32", lines[0])
        self.assertIn("RT-K", lines[2])
        self.assertIn("RT-F41", lines[4])
        self.assertEqual([lines[1], lines[3]], self.answers("train", "train"))
        self.answers("train", f"save:{self.directory / 'large'}", model="large")
        lines = self.answers("train", f"restore:{self.directory / 'large'}", "train")
        self.assertIn("RT-K3", lines[1])
        self.assertEqual([lines[0], lines[2]], self.answers("train", "train"))
        odd = "".join(self.answers("train", "train", ranks=2, odd=5))
        self.assertIn("RT-F31", odd)
        self.assertIn("train", odd)
        self.assertIn("validate", odd)
        (self.directory / "file").write_text("mine")
        self.assertIn("RT-F39", self.answers(f"save:{self.directory / 'file'}")[0])
        self.assertEqual("mine", (self.directory / "file").read_text())
        for model, text in (("null", "RT-F32"), ("throws", "no model here"), ("wide", "differs from that of rank 0")):
            with self.subTest(model=model):
                self.assertIn(text, "".join(self.answers("train", model=model)))

    def test_a_damaged_checkpoint_changes_nothing(self):
        path = self.directory / "saved"
        self.answers("train", f"save:{path}")
        for file in path.rglob("*.safetensors"):
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(bytes(content))
        lines = self.answers("train", f"restore:{path}", "train", f"load:{path}", "train")
        self.assertIn("RT-K", lines[1])
        self.assertIn("RT-K", lines[3])
        self.assertEqual([lines[0], lines[2], lines[4]], self.answers("train", "train", "train"))

    def test_schedules_by_hand(self):
        lines = self.answers("train", "update", "update", "update", "train", schedule="manual")
        self.assertEqual(self.value(lines[0], "lr") / 2, self.value(lines[4], "lr"))

    def test_several_trainers_and_fit(self):
        alone = self.answers("train", "validate", "train")
        one_by_one = self.answers("train", "validate", "train", "shutdown", "fit", "other", "train", "validate", "train")
        self.assertEqual(alone, one_by_one[:3])
        self.assertEqual(alone, one_by_one[5:])
        mixed = self.answers("train", "other", "train", "run", "validate", "fit", "other", "validate", "train", "run", "train",
                             replicas=2)
        self.assertEqual([alone[0], alone[0], alone[1]], mixed[:3])
        self.assertEqual([alone[1], alone[2], alone[2]], mixed[4:])
        self.require_gone()

    def test_a_search_over_creators(self):
        line = self.answers("search:12", replicas=1)[-1]
        self.assertEqual(12, self.value(line, "trials"))
        self.assertEqual(1, self.value(line, "fewer"))

    def test_nothing_is_left_however_main_ends(self):
        for calls, status in ((["train", "throw"], -signal.SIGABRT), (["train", "exit:3"], 3), (["train"], 0)):
            with self.subTest(calls=calls):
                process = self.end(self.start(*calls))
                self.assertEqual(status, process.returncode, process.err)
                wait_until(lambda: not self.of_this_test(), 30)
        self.require_gone()

    def of_this_test(self):
        mine = str(self.directory).encode()
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if mine in path.read_bytes():
                    found.append(path.parent.name)
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found


class Kills(Calls):
    def test_a_rank_killed_in_a_call(self):
        whole = self.answers(*CALLS)
        for step in (3, 12, 14):  # in the first train(), in validate(), in the third train()
            with self.subTest(step=step):
                self.assertEqual(whole, self.answers(*CALLS, failures=1, kill=f"1:{step}"))
        self.assertEqual(whole, self.answers(*CALLS, failures=1, kill="0:12"))
        path = self.directory / "saved"
        calls = ["train", f"save:{path}", "train"]
        for rank in (0, 1):
            with self.subTest(rank=rank):
                shutil.rmtree(path, ignore_errors=True)
                lines = self.answers(*calls, failures=1, save_every_call="no", kill=f"{rank}:-2")
                self.assertEqual([whole[0], f" save:{path}", whole[2]], lines)
                self.assertTrue((path / "manifest.json").exists())

    def test_a_rank_killed_between_calls(self):
        there, further = self.directory / "there", self.directory / "further"
        whole = self.answers("train", "validate", "train")
        process = self.start("train", "validate", f"touch:{there}", f"wait:{further}", "train", failures=1)
        wait_until(there.exists)
        old = ranks_of(process.pid)
        os.kill(old[1], signal.SIGKILL)
        wait_until(lambda: len(new := ranks_of(process.pid)) == 2 and not set(new.values()) & set(old.values()))
        further.touch()
        self.end(process)
        lines = [line for line in process.out.splitlines() if "touch" not in line and "wait" not in line]
        self.assertEqual(whole, lines, process.err)

    def test_main_may_take_its_time(self):
        process = self.end(self.start("train", "sleep:20", "train"))  # failure.hang.idle_s is 5
        self.assertEqual(0, process.returncode, process.err)
        self.assertNotIn("hang", process.err)

    def test_a_stopped_rank_is_found_in_a_call(self):
        process = self.end(self.start(*CALLS, failures=1, stop="1:8"))
        self.assertEqual(0, process.returncode, process.err)
        self.assertIn("stopped", process.err)
        self.assertEqual(self.answers(*CALLS), process.out.splitlines())

    def test_preempted_within_a_call_and_between_calls(self):
        for number, pause, rest in ((signal.SIGTERM, [], ["train:4000", "validate"]),  # in the long call
                                    (signal.SIGINT, ["sleep:60"], ["validate", "train"])):
            whole = self.answers("train", *rest)
            for ranks in (0, 2):
                with self.subTest(rest=rest, ranks=ranks):
                    there = self.directory / "there"
                    there.unlink(missing_ok=True)
                    storage = self.directory / f"{number}-{ranks}"
                    process = self.start("train", "touch:there", *pause, *rest, storage=storage, ranks=ranks)
                    wait_until(there.exists)
                    for target in ranks_of(process.pid).values() if ranks else [process.pid]:
                        os.kill(target, number)
                    self.end(process)
                    self.assertEqual(75, process.returncode, process.err)
                    self.assertEqual(whole, self.answers("train", *rest, storage=storage, ranks=ranks))

    def test_main_killed_at_random(self):
        whole = self.answers(*CALLS)
        storage = self.directory / "storage"
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        for kill in range(KILLS):
            process = self.start(*CALLS, storage=storage, failures=1)
            time.sleep(chance.uniform(0.1, 3))
            process.kill()
            process.communicate()
            wait_until(lambda: not self.of_this_test(), 30)
        lines = self.answers(*CALLS, storage=storage, failures=1)
        self.assertEqual(whole, lines, f"seed {seed}")
        self.require_gone()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("mpirun")
    parser.add_argument("cases")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("-v", action="store_true")
    arguments = parser.parse_args()
    PROGRAM, MPIRUN, KILLS = arguments.program, arguments.mpirun, arguments.kills
    names = arguments.cases.split(".")
    case = globals()[names[0]]
    own = [name for name in vars(case) if name.startswith("test")] if len(names) == 1 else [names[1]]
    result = unittest.TextTestRunner(verbosity=1 + arguments.v).run(unittest.TestSuite(map(case, own)))
    sys.exit(not result.wasSuccessful())
