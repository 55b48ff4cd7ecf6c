#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scripts that report through the module of examples/python, as ranks of `rtrain run`.

Usage: python_test.py TOOL CASES [--kills N] [-v]

CASES is a class below: Reports needs no torch, Numbers does, Commits kills ranks, their parents and the driver."""
import itertools
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import textwrap

import run_test
from run_test import Run, wait_until

MODULE = run_test.HERE.parent.parent / "examples/python"

# Saves a chain of numbers, with one file per rank; `called` has the epoch of rank 0's last report, `returned` that
# of the last one that is durable.
EPOCHS = """
    import json, os, pathlib, tempfile
    import rtrain
    rank = rtrain.get_context().get_world_rank()
    chain, start = 1, 0
    if checkpoint := rtrain.get_checkpoint():
        with checkpoint.as_directory() as directory:
            state = json.loads(pathlib.Path(directory, "state.json").read_text())
            assert pathlib.Path(directory, f"rank-{rank}").read_text() == str(state["epoch"])
        chain, start = state["chain"], state["epoch"] + 1
    def replace(name, text):
        pathlib.Path(f"{name}.{rank}.new").write_text(text)
        os.replace(f"{name}.{rank}.new", name)
    returned = pathlib.Path("returned")
    if rank == 0 and returned.exists():
        assert start > int(returned.read_text()), f"a report is lost: start {start} after {returned.read_text()}"
    replace(f"start-{rank}", f"{os.getpid()} {os.getppid()}")
    for epoch in range(start, rtrain.get_config().get("epochs", 1 << 40)):
        chain = (chain * 6364136223846793005 + 1442695040888963407) % 2**64
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, f"rank-{rank}").write_text(str(epoch))
            if rank == 0:
                pathlib.Path(directory, "state.json").write_text(json.dumps({"epoch": epoch, "chain": chain}))
                replace("called", str(epoch))
            mode = "async" if rtrain.get_config().get("mixed") and epoch % 3 else "sync"
            rtrain.report({"epoch": epoch, "loss": chain / 2**64}, checkpoint=rtrain.Checkpoint.from_directory(directory),
                          checkpoint_upload_mode=mode)
        if rank == 0:
            replace("returned", str(epoch - (mode == "async")))
        left = rtrain.preemption()
        if left or rtrain.collective.broadcast_from_rank_zero(os.path.exists("stop")):
            print("ends", "preempted" if left else "", flush=True)
            break
"""


def losses(epochs):
    chain, found = 1, []
    for _ in range(epochs):
        chain = (chain * 6364136223846793005 + 1442695040888963407) % 2**64
        found.append(chain / 2**64)
    return found


class Python(Run):
    def setUp(self):
        super().setUp()
        self.environment["PYTHONPATH"] = str(MODULE)
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self.run_directory = self.directory / "results" / "r"

    def write(self, text, name="script.py"):
        (self.directory / name).write_text(textwrap.dedent(text))
        return name

    def train(self, text, *options, ranks=2, **variables):
        return self.run_tool("--name", "r", "-n", str(ranks), *options, self.write(text), **variables)

    def alone(self, text, **variables):
        words = [sys.executable, self.write(text)]
        return self.end(self.start(tool=words, **variables))

    def reports(self):
        return [json.loads(line) for line in (self.run_directory / "result.json").read_text().splitlines()]

    def check_reports(self):
        """Each report is there once, with the loss of an undisturbed run."""
        reports = self.reports()
        self.assertEqual(list(range(1, len(reports) + 1)), [report["training_iteration"] for report in reports])
        self.assertEqual(list(range(len(reports))), [report["epoch"] for report in reports])
        self.assertEqual(losses(len(reports)), [report["loss"] for report in reports])
        hidden = [name.name for name in self.run_directory.iterdir() if name.name.startswith(".rtrain-")]
        self.assertEqual([], hidden)
        return reports


class Reports(Python):
    def test_a_run_resumes_after_its_reports(self):
        script = self.write(EPOCHS)
        options = ("--name", "r", "--num-to-keep", "2", "--score", "loss", "--tracker", "tensorboard")
        self.check(self.run_tool("-n", "2", *options, "--config", "epochs=3", script), 0)
        self.assertEqual(3, len(self.check_reports()))
        run = self.run_tool("-n", "3", *options, "--config", "epochs=5", script)
        self.check(run, 2, "[RT-C50]")
        run = self.run_tool("-n", "2", *options, "--config", "epochs=5", "--resume", "always", script)
        self.check(run, 0)
        self.assertEqual(5, len(self.check_reports()))
        best = max(range(5), key=lambda epoch: losses(5)[epoch])
        self.assertEqual({f"checkpoint_{epoch:06}" for epoch in {best, 4}} | {f"checkpoint_{epoch:06}" for epoch in
                         sorted(range(5), key=lambda epoch: -losses(5)[epoch])[:2]},
                         {path.name for path in self.run_directory.glob("checkpoint_*")})
        manifest = json.loads((self.run_directory / "checkpoint_000004" / "manifest.json").read_text())
        self.assertEqual({"state.json", "rank-0", "rank-1"}, {file["name"] for file in manifest["files"]})
        self.assertEqual(6, len((self.run_directory / "progress.csv").read_text().splitlines()))
        self.assertTrue(list((self.run_directory / "tensorboard").iterdir()))
        self.assertTrue((self.run_directory / "report.html").exists())

    def test_a_world_of_size_one(self):
        run = self.alone("""
            import rtrain
            context = rtrain.get_context()
            assert (context.get_world_size(), context.get_world_rank(), context.get_experiment_name()) == (1, 0, "")
            assert rtrain.get_checkpoint() is None and rtrain.get_config() == {} and rtrain.preemption() is None
            rtrain.collective.barrier()
            assert rtrain.collective.broadcast_from_rank_zero({"a": {1}}) == {"a": {1}}
            rtrain.report({"loss": 0.5, "nested": {"worst": float("inf"), "none": float("nan")}})""")
        self.check(run, 0, 'rtrain: report 1: loss 0.5, nested {"worst": "inf", "none": null}')

    def test_ranks_know_their_place_and_meet(self):
        run = self.train("""
            import rtrain
            context = rtrain.get_context()
            rank = context.get_world_rank()
            assert rtrain.collective.broadcast_from_rank_zero({"of": rank}) == {"of": 0}
            rtrain.collective.barrier()
            print(rank, context.get_world_size(), context.get_local_rank(), context.get_local_world_size(),
                  context.get_node_rank(), context.get_experiment_name(), context.get_trial_dir())""", ranks=3)
        self.check(run, 0)
        self.assertEqual([f"[rank {rank}] {rank} 3 {rank} 3 0 r {self.run_directory}" for rank in range(3)],
                         sorted(run.out.splitlines()))
        self.assertEqual([], self.reports())

    def test_metadata_and_copies(self):
        run = self.train("""
            import os, tempfile
            import rtrain
            with tempfile.TemporaryDirectory() as directory:
                own = rtrain.Checkpoint.from_directory(directory)
                own.set_metadata({"rank": rtrain.get_context().get_world_rank(), "größe": 1.5})
                open(os.path.join(directory, "weights"), "w").write("1")
                rtrain.report({}, checkpoint=own, metadata={"epoch": 1}, checkpoint_dir_name="best")
            kept = rtrain.get_checkpoint()
            assert kept.path.endswith("/r/best"), kept
            assert kept.get_metadata() == {"rank": 0, "größe": 1.5, "epoch": 1}, kept.get_metadata()
            assert set(os.listdir(kept.to_directory())) == {"weights", "manifest.json", ".metadata.json"}""",
                         TMPDIR=str(self.directory))
        self.check(run, 0)

    def test_no_child_of_a_script_inherits_the_socket(self):
        run = self.train("""
            import os, subprocess, sys
            count = "sum('socket:' in os.path.realpath(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd'))"
            assert "RTRAIN_MODULE" in os.environ and eval(count) == 1
            import rtrain
            assert "RTRAIN_MODULE" not in os.environ and "torch" not in sys.modules
            subprocess.run([sys.executable, "-c", f"import os; assert {count} == 0"], close_fds=False, check=True)
            if (child := os.fork()) == 0:
                os._exit(eval(count))
            assert os.waitpid(child, 0)[1] == 0
            rtrain.report({})""", ranks=1)
        self.check(run, 0)

    def test_ranks_that_report_a_different_number_of_times_are_named(self):
        run = self.train("""
            import rtrain
            for _ in range(2 if rtrain.get_context().get_world_rank() == 1 else 3):
                rtrain.report({"loss": 1})""", ranks=3)
        self.check(run, 1, "called report(), but rank 1 ended after 2 calls")
        self.assertIn("[RT-E47]", run.err)
        self.assertIn("[RT-E12]", run.err)
        self.assertEqual(2, len(self.reports()))
        run = self.train("""
            import rtrain
            rtrain.collective.barrier() if rtrain.get_context().get_world_rank() else rtrain.report({})""")
        self.check(run, 1, "rank 0 called report(), but rank 1 called barrier()")

    def test_sigterm_leaves_time_to_report(self):
        for words in ((), ("--config", "mixed=true")):
            with self.subTest(words=words):
                self.start_over()
                (self.directory / "stop").unlink(missing_ok=True)
                script = self.write(EPOCHS)
                run = self.start("-n", "2", "--name", "r", *words, script)
                wait_until(lambda: (self.directory / "returned").exists())
                run.terminate()
                self.check(self.end(run), 75, "ends preempted")
                reports = self.check_reports()
                self.assertTrue((self.run_directory / reports[-1]["checkpoint_dir_name"]).is_dir())
                (self.directory / "stop").touch()
                self.check(self.run_tool("-n", "2", "--name", "r", *words, script), 0)
                self.assertEqual(len(reports) + 1, len(self.check_reports()))
                self.assertFalse((self.run_directory / "error.json").exists())

    def test_checkpoints_in_the_background(self):
        script = self.write(EPOCHS)
        options = ("-n", "2", "--name", "r", "--num-to-keep", "2", "--config", "mixed=true")
        self.check(self.run_tool(*options, "--config", "epochs=6", script), 0)
        reports = self.check_reports()
        self.assertEqual([f"checkpoint_{epoch:06}" for epoch in range(6)], [report["checkpoint_dir_name"] for report in reports])
        self.assertEqual({"checkpoint_000004", "checkpoint_000005"},  # the end has waited
                         {path.name for path in self.run_directory.glob("checkpoint_*")})
        manifest = json.loads((self.run_directory / "checkpoint_000005" / "manifest.json").read_text())
        self.assertEqual({"state.json", "rank-0", "rank-1"}, {file["name"] for file in manifest["files"]})
        self.check(self.run_tool(*options, "--config", "epochs=8", "--resume", "always", script), 0)
        self.assertEqual(8, len(self.check_reports()))

    def test_a_file_that_changes_after_report_has_returned(self):
        run = self.train("""
            import os, pathlib, tempfile
            import rtrain
            directory = pathlib.Path(tempfile.mkdtemp())
            rank = rtrain.get_context().get_world_rank()
            for epoch in range(4):
                pathlib.Path(directory, "same").write_text(f"{epoch}" * (4 << 20))
                pathlib.Path(directory, f"rank-{rank}").write_text(f"{epoch}" * (1 << 20))
                rtrain.report({"epoch": epoch}, checkpoint=rtrain.Checkpoint(directory), checkpoint_upload_mode="async")""")
        self.check(run, 0)
        for epoch in range(4):
            for name, size in (("same", 4 << 20), ("rank-0", 1 << 20), ("rank-1", 1 << 20)):
                text = (self.run_directory / f"checkpoint_{epoch:06}" / name).read_text()
                self.assertTrue(text == f"{epoch}" * size, f"{name} of epoch {epoch}")

    def start_over(self):
        shutil.rmtree(self.directory / "results", ignore_errors=True)
        (self.directory / "returned").unlink(missing_ok=True)

    def test_a_script_that_does_not_ask_gets_sigterm(self):
        run = self.start("--name", "r", self.write("""
            import time
            import rtrain
            rtrain.report({})
            open("ready", "w")
            time.sleep(1000)"""))
        wait_until((self.directory / "ready").exists)
        run.terminate()
        self.check(self.end(run), 75)

    def test_mistakes_have_codes(self):
        """All ranks get the error, and continue."""
        for code, mistake in (
                ("RT-E51", "rtrain.report({'x': types.SimpleNamespace(shape=(2, 2))})"),
                ("RT-E51", "rtrain.report({'x': object()})"),
                ("RT-E51", "rtrain.report({1: 2})"),
                ("RT-E51", "rtrain.report(1)"),
                ("RT-E51", "rtrain.report({}, checkpoint='/tmp')"),
                ("RT-E51", "rtrain.report({'x': 2**64})"),
                ("RT-E51", "rtrain.report({}, checkpoint_upload_mode='no_upload')"),
                ("RT-E51", "deep = [1]\nfor _ in range(40): deep = [deep]\nrtrain.report({'x': deep})"),
                ("RT-E50", "rtrain.report({'x': 'x' * (1 << 20)})"),
                ("RT-E50", "d = rtrain.Checkpoint(tempfile.mkdtemp())\nd.set_metadata({'x': 'x' * (1 << 19)})\n"
                           "open(d.path + '/a', 'w').write('a')\nrtrain.report({}, checkpoint=d)"),
                ("RT-C10", "rtrain.report({'config': 1})"),
                ("RT-C75", "rtrain.report({'': 1})"),
                ("RT-E45", "rtrain.Checkpoint.from_directory('/no/such')"),
                ("RT-E45", "rtrain.report({}, checkpoint=rtrain.Checkpoint('/no/such'))"),
                ("RT-E45", "rtrain.report({}, checkpoint=rtrain.Checkpoint.from_directory(tempfile.mkdtemp()))"),
                ("RT-E45", "rtrain.report({}, checkpoint=rtrain.Checkpoint(rtrain.get_context().get_trial_dir()))"),
                ("RT-K14", "d = tempfile.mkdtemp()\nos.symlink('nowhere', d + '/link')\n"
                           "rtrain.report({}, checkpoint=rtrain.Checkpoint(d))"),
                ("RT-K5", "d = tempfile.mkdtemp()\nopen(d + '/same', 'w').write(str(rank))\n"
                          "rtrain.report({}, checkpoint=rtrain.Checkpoint(d))"),
                ("RT-K5", "d = tempfile.mkdtemp()\nopen(d + '/a', 'w').write('a')\n"
                          "rtrain.report({}, checkpoint=rtrain.Checkpoint(d),\n"
                          "              checkpoint_upload_mode='async' if rank else 'sync')"),
                ("RT-K9", "d = tempfile.mkdtemp()\nopen(d + '/a', 'w').write('a')\n"
                          "rtrain.report({}, checkpoint=rtrain.Checkpoint(d), checkpoint_dir_name='latest')"),
                ("RT-E52", "import threading\n"
                           "def work():\n"
                           "  try: rtrain.report({})\n"
                           "  except rtrain.Error as error: errors.append(error)\n"
                           "errors = []\nthread = threading.Thread(target=work)\nthread.start()\nthread.join()\n"
                           "raise errors[0]"),
                ("RT-E52", "child = os.fork()\n"
                           "if child == 0:\n"
                           "  try: rtrain.report({})\n"
                           "  except rtrain.Error as error: os._exit(error.code == 'RT-E52')\n"
                           "  os._exit(2)\n"
                           "if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1:\n"
                           "  raise rtrain.Error('RT-E52', 'in the child')"),
                ("RT-S17", "rtrain.collective.barrier()\n"
                           "if rank == 0: os.rename('results/r', 'results/moved')\n"
                           "rtrain.collective.barrier()\nrtrain.report({})")):
            with self.subTest(code=code, mistake=mistake):
                shutil.rmtree(self.directory / "results", ignore_errors=True)
                run = self.train("import os, tempfile, types\nimport rtrain\n"
                                 "rank = rtrain.get_context().get_world_rank()\n"
                                 f"try:\n{textwrap.indent(mistake, '  ')}\n"
                                 "except rtrain.Error as error:\n  print(error.code, error)\n"
                                 "else:\n  raise SystemExit('no error')\n"
                                 "if 'S17' not in error_code: rtrain.report({'after': 1})\n".replace(
                                     "error_code", repr(code)))
                self.check(run, 0)
                self.assertEqual(2, run.out.count(f"] {code} "), run.out)
                if code != "RT-S17":
                    self.assertEqual([1], [report["after"] for report in self.reports()])

    def options(self, **options):
        (self.directory / "run.json").write_text(json.dumps(options))
        return "--options", "run.json"

    def test_a_stop_condition_ends_the_script(self):
        script = self.write(EPOCHS + """
    print("after the loop")
    rtrain.report({"epoch": -1, "loss": 0})""")
        first = next(epoch for epoch, loss in enumerate(losses(50)) if loss > 0.9)
        for stop in ({"loss": 0.9}, [{"kind": "early_stopping", "metric": "epoch", "mode": "min", "patience": first},
                                     {"kind": "max_time", "seconds": 1000}]):
            with self.subTest(stop=stop):
                shutil.rmtree(self.directory / "results", ignore_errors=True)
                (self.directory / "returned").unlink(missing_ok=True)
                run = self.run_tool("-n", "2", "--name", "r", *self.options(stop=stop), script)
                self.check(run, 0)
                self.assertNotIn("after the loop", run.out)
                self.assertIn(f"the run stops at report {first + 1}: ", run.err)
                self.assertEqual(first + 1, len(self.check_reports()))
                self.assertIn("reason", json.loads((self.run_directory / "stopped.json").read_text()))
        run = self.run_tool("-n", "2", "--name", "r", *self.options(stop=stop), script)  # records nothing more
        self.check(run, 0)
        self.assertEqual(first + 1, len(self.check_reports()))
        catching = self.write("""
            import rtrain
            assert rtrain.should_stop()
            try:
                rtrain.report({"loss": 1})
            except rtrain.Stopped as stopped:
                assert "early_stopping" in str(stopped).lower().replace("ys", "y_s"), stopped
            rtrain.report({"epoch": -1, "test": 2})""")
        self.check(self.run_tool("-n", "2", "--name", "r", "--resume", "always", *self.options(stop=stop), catching), 0)
        self.assertEqual(first + 2, len(self.reports()))
        self.assertEqual(2, self.reports()[-1]["test"])
        self.assertEqual(self.alone("import rtrain\nprint(rtrain.Result.from_path('results/r').stop_reason)").out.strip(),
                         json.loads((self.run_directory / "stopped.json").read_text())["reason"])

    def test_options_in_a_file(self):
        options = self.options(name="r", storage_path="results", resume="always", stop={"training_iteration": 4},
                               failure={"max_failures": 1, "hang": {"idle_s": 200}},
                               checkpoint={"num_to_keep": 1, "score_attribute": "loss", "score_order": "min"},
                               trackers=["tensorboard", {"kind": "json_lines", "file": "lines.jsonl"}, "wandb", "comet"],
                               console={"verbose": 1, "live": 0}, logging={"level": "info", "json": False})
        run = self.end(self.start(tool=[run_test.TOOL, "run", "-n", "2", *options, self.write(EPOCHS)]))
        self.check(run, 0)
        self.assertEqual(4, len(self.check_reports()))
        self.assertRegex(run.err, r"rtrain [0-9.]+: run r\n")
        self.assertIn("rtrain: run r has finished, with 4 reports", run.err)
        self.assertIn("127.0.0.1", run.err)  # the live page
        self.assertEqual(4, len((self.run_directory / "lines.jsonl").read_text().splitlines()))
        for tracker in ("tensorboard", "wandb", "comet"):
            self.assertTrue(list((self.run_directory / tracker).iterdir()), tracker)
        best = min(range(4), key=lambda epoch: losses(4)[epoch])
        self.assertEqual({f"checkpoint_{epoch:06}" for epoch in (best, 3)},
                         {path.name for path in self.run_directory.glob("checkpoint_*")})

    def test_mistakes_in_a_file_of_options_name_the_key(self):
        for options, message in (({"checkpoint": {"num_to_kep": 2}}, 'unknown option "checkpoint/num_to_kep"; did you mean '
                                                                     '"num_to_keep"?'),
                                 ({"checkpoint": {"num_to_keep": "two"}}, 'has "two" for "checkpoint/num_to_keep"'),
                                 ({"checkpoint": {"num_to_keep": 0}}, "num_to_keep is 0"),
                                 ({"checkpoint": {"score_order": "up"}}, '"checkpoint/score_order": "up" is not'),
                                 ({"stop": [{"kind": "early", "metric": "loss"}]}, '"stop/0/kind" is "early"'),
                                 ({"stop": [{"kind": "threshold"}]}, "metric is empty"),
                                 ({"stop": {"loss": "low"}}, 'for "stop/loss"; expected a number'),
                                 ({"trackers": ["tensorbord"]}, 'did you mean "tensorboard"?'),
                                 ({"trackers": [{"kind": "mlflow", "uri": "https://host"}]}, "https"),
                                 ({"failure": {"hang": {"idle": 3}}}, 'unknown option "failure/hang/idle"'),
                                 ({"console": {"verbose": 5}}, "console.verbose is 5")):
            with self.subTest(options=options):
                run = self.run_tool(*self.options(**options), "true")
                self.check(run, 2, message)
        for text in ("", "[1]", '{"a":'):
            (self.directory / "run.json").write_text(text)
            self.check(self.run_tool("--options", "run.json", "true"), 2, "[RT-E64]")
        self.check(self.run_tool("--options", "missing.json", "true"), 2, "missing.json")

    def test_steps_are_logged(self):
        script = self.write("""
            import json, os, tempfile
            import rtrain
            start = rtrain.get_checkpoint().get_metadata()["epoch"] + 1 if rtrain.get_checkpoint() else 0
            for epoch in range(start, 3):
                for step in range(4):
                    rtrain.log({"loss": epoch * 10 + step, "rank": rtrain.get_context().get_world_rank()})
                with tempfile.TemporaryDirectory() as directory:
                    open(os.path.join(directory, "a"), "w").write("a")
                    rtrain.report({}, checkpoint=rtrain.Checkpoint(directory), metadata={"epoch": epoch})
                if epoch == 1 and not os.path.exists("killed"):
                    rtrain.log({"loss": -1})  # of a step that is repeated
                    rtrain.collective.barrier()
                    if rtrain.get_context().get_world_rank() == 0:
                        open("killed", "w")
                        os.kill(os.getpid(), 9)
            for bad in ({"step": 1}, {"loss": "low"}):
                try:
                    rtrain.log(bad)
                except rtrain.Error as error:
                    print(error.code)
            rtrain.log({"none": float("nan")})""")
        run = self.run_tool("-n", "2", "--name", "r", "--max-restarts", "1", "--tracker", "tensorboard", script)
        self.check(run, 0)
        self.assertEqual(["[rank 0] RT-C33", "[rank 0] RT-E51"], run.out.splitlines())
        steps = [json.loads(line) for line in (self.run_directory / "steps.jsonl").read_text().splitlines()]
        logged = [step for step in steps if "loss" in step]
        self.assertEqual([(10 * epoch + step, 0) for epoch in range(3) for step in range(4)],
                         [(step["loss"], step["rank"]) for step in logged])
        self.assertEqual(list(range(1, 13)), [step["step"] for step in logged])
        self.assertIn("none", steps[-1])
        events = b"".join(file.read_bytes() for file in (self.run_directory / "tensorboard").rglob("*") if file.is_file())
        self.assertIn(b"loss", events)

    def test_messages_of_other_programs_are_refused(self):
        hello = '{"kind":"hello","protocol":3,"version":"0"}'
        for code, messages in (("RT-E50", ["no JSON"]), ("RT-E50", ['{"kind":"meet","function":"f","text":""}']),
                               ("RT-E50", [hello, hello]), ("RT-E50", [hello, '{"kind":"unknown"}']),
                               ("RT-E50", ["x" * (1 << 20)]), ("RT-E49", [hello.replace("3", "2")])):
            with self.subTest(messages=[message[:60] for message in messages]):
                run = self.train(f"""
                    import os
                    socket = int(os.environ["RTRAIN_MODULE"])
                    for message in {messages!r}:
                        os.write(socket, len(message).to_bytes(4, "little") + message[:1000].encode())
                        answer = os.read(socket, 1 << 16)
                    print(answer[4:].decode())""", ranks=1)
                self.check(run, 0, f'"code":"{code}"')

    def test_versions_must_agree(self):
        run = self.train("import rtrain\nrtrain._link.PROTOCOL = 1\nrtrain.report({})", ranks=1)
        self.check(run, 1, "speaks protocol 1")
        self.assertIn("[RT-E49]", run.err)
        version = self.end(self.start(tool=[run_test.TOOL, "--version"])).out.split()[1]
        self.check(self.alone("import rtrain\nprint(rtrain.__version__)"), 0, version)

    def test_several_ranks_need_the_driver(self):
        self.check(self.alone("import rtrain\nrtrain.report({})", WORLD_SIZE="2"), 1, "[RT-E53]")

    def test_a_full_disk_is_an_error_of_the_report(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        (self.directory / "big").mkdir()
        (self.directory / "big" / "weights").write_bytes(b"x" * (3 << 20))
        script = self.write("""
            import rtrain
            big = rtrain.Checkpoint("big")
            config = rtrain.get_config()
            if config["mode"] == "async":
                rtrain.report({"before": 1}, checkpoint=big, checkpoint_upload_mode="async")
            try:
                if "continues" in config:
                    rtrain.report({"lost": 1}, checkpoint=big, checkpoint_upload_mode=config["mode"])
            except rtrain.Error as error:
                print(error.code)
                rtrain.report({"after": 1})""")
        for mode, words, metrics in (("sync", ("--config", "continues=1"), ["after"]),
                                     ("async", ("--config", "continues=1"), ["before", "after"]), ("async", (), ["before"])):
            with self.subTest(mode=mode, words=words):
                self.start_over()
                words = [run_test.TOOL, "run", "-n", "2", "--storage", "results", "--name", "r",
                         "--config", f"mode={mode}", *words, script]
                run = subprocess.run(words, cwd=self.directory, env=self.environment, capture_output=True, text=True,
                                     preexec_fn=limit, timeout=self.limit, check=False)
                if "after" in metrics:
                    self.assertEqual(0, run.returncode, run.stderr)
                    self.assertEqual(["[rank 0] RT-S45", "[rank 1] RT-S45"], sorted(run.stdout.splitlines()))
                else:  # no report has raised it
                    self.assertEqual(1, run.returncode, run.stderr)
                    self.assertRegex(run.stderr, r"rank [01]: .*\[RT-S45\]")
                    self.assertNotIn("RT-E12", run.stderr)
                    self.assertEqual("RT-S45", json.loads((self.run_directory / "error.json").read_text())["code"])
                self.assertEqual(metrics, [name for report in self.reports() for name in report
                                           if name in ("before", "lost", "after")])
                self.assertEqual([], list(self.run_directory.glob(".rtrain-*")))

    def test_other_versions_of_python(self):
        names = [shutil.which(f"python3.{version}") for version in range(9, 14)]
        names += pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3")
        found = {subprocess.run([name, "-c", "import sys; print(sys.version_info[:2] >= (3, 9) and sys.executable)"],
                                capture_output=True, text=True, check=False).stdout.strip() for name in names if name}
        for python in sorted(found - {"", "False"}):
            with self.subTest(python=python):
                shutil.rmtree(self.directory / "results", ignore_errors=True)
                (self.directory / "returned").unlink(missing_ok=True)
                run = self.run_tool("--name", "r", "-n", "2", "--config", "epochs=2", "--no-python", python,
                                    self.write(EPOCHS))
                self.check(run, 0)
                self.assertEqual(2, len(self.check_reports()))


class Numbers(Python):
    def test_numbers_of_libraries_count(self):
        run = self.train("""
            import numpy, torch
            import rtrain
            rtrain.report({"a": numpy.float32(0.5), "b": torch.tensor(2), "c": torch.tensor([1.5]), "d": numpy.int64(3),
                           "e": torch.tensor(float("nan")), "f": numpy.bool_(True)})
            for several in (torch.ones(2), numpy.ones((2, 2))):
                try:
                    rtrain.report({"x": several})
                except rtrain.Error as error:
                    print(error)""", ranks=1)
        self.check(run, 0, '"x" is torch.Tensor of shape (2,)')
        self.assertEqual({"a": 0.5, "b": 2, "c": 1.5, "d": 3, "e": None, "f": True},
                         {name: value for name, value in self.reports()[0].items() if len(name) == 1})


class Commits(Python):
    """Whatever is killed, and wherever a report is: what has returned is there, and the rest is repeated."""

    def phases(self):
        run = self.run_directory
        staging = lambda: [path for path in run.glob(".rtrain-staging-*")]  # noqa: E731
        checkpoints = lambda: {path.name for path in run.glob("checkpoint_*")}  # noqa: E731
        size = lambda: os.path.getsize(run / "result.json")  # noqa: E731
        returned = lambda: (self.directory / "returned").read_text()  # noqa: E731
        called = lambda: (self.directory / "called").read_text()  # noqa: E731
        return {"call": self.change_of(called), "staging": lambda: bool(staging()),
                "lists": lambda: any(list(path.glob(".rtrain-list-*")) for path in staging()),
                "line": self.change_of(size), "commit": self.change_of(checkpoints), "return": self.change_of(returned)}

    def change_of(self, value):
        first = []

        def is_changed():
            try:
                now = value()
            except FileNotFoundError:
                return False
            first.append(now)
            return now != first[0]
        return is_changed

    def await_phase(self, process, name):
        condition = self.phases()[name]

        def has_come():
            try:
                return process.poll() is not None or condition()
            except FileNotFoundError:  # a directory of this moment
                return False
        wait_until(has_come, pause=0)

    def starts(self):
        return [(self.directory / f"start-{rank}").read_text() for rank in (0, 1)]

    def await_start(self, before, process):
        def has_started():
            self.assertIsNone(process.poll(), "the run has ended")
            return all(path.exists() for path in [self.directory / "start-0", self.directory / "start-1"]) and \
                all(now != old for now, old in zip(self.starts(), before))
        wait_until(has_started, run_test.LIMIT)

    def test_no_report_that_returned_is_lost(self):
        self.limit = run_test.LIMIT + 10 * run_test.KILLS
        script = self.write(EPOCHS)
        begin = lambda: self.start("-n", "2", "--name", "r", "--max-restarts", "-1", "--backoff", "0",  # noqa: E731
                                   "--num-to-keep", "3", "--config", "mixed=true", script)
        victims = ("rank 0", "rank 1", "parent 0", "parent 1", "driver", "all")
        process, before = begin(), ["", ""]
        for phase, victim in itertools.islice(itertools.cycle(itertools.product(self.phases(), victims)), run_test.KILLS):
            self.await_start(before, process)
            before = self.starts()
            ranks = [[int(word) for word in text.split()] for text in before]
            self.await_phase(process, phase)
            killed = {"driver": [process.pid], "all": [process.pid, *ranks[0], *ranks[1]]}.get(
                victim, [ranks[int(victim[-1])][victim.startswith("parent")]] if victim[-1] in "01" else [])
            for number in killed:
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if process.pid in killed:
                process.communicate(timeout=self.limit)
                process = begin()
        self.await_start(before, process)
        (self.directory / "stop").touch()
        out, err = process.communicate(timeout=self.limit)
        self.assertEqual(0, process.returncode, out + err)
        self.assertNotIn("is lost", out + err)
        self.check_reports()


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
