#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searches over scripts that cannot succeed.

Usage: search_test.py SEARCHING Mistakes [-v]

SEARCHING is the program of searching.cpp."""
import json
import pathlib
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "program"))
import run_test  # noqa: E402
from python_test import Python  # noqa: E402

# Counts to config["steps"], with a checkpoint of each step. `disturb(step)` may come before it.
COUNT = """
    import json, os, pathlib, signal, tempfile, time
    import rtrain
    config = rtrain.get_config()
    x, rank, name = config["x"], rtrain.get_context().get_world_rank(), rtrain.get_context().get_trial_name()
    step, total = 0, 0
    if checkpoint := rtrain.get_checkpoint():
        with checkpoint.as_directory() as directory:
            step, total = json.loads(pathlib.Path(directory, "state").read_text())
    with open(f"starts-{rank}", "a") as starts:
        print(name, step, total, json.dumps(config), os.getpid(), flush=True, file=starts)
    while step < config.get("steps", 6):
        DISTURB
        step, total = step + 1, total + x
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "state").write_text(json.dumps([step, total]))
            rtrain.report({"score": total, "step": step}, checkpoint=rtrain.Checkpoint.from_directory(directory))
    print("ends", flush=True)
"""


def counting(disturb="pass"):
    return textwrap.dedent(COUNT).replace("DISTURB", textwrap.dedent(disturb).strip().replace("\n", "\n    "))


class Searches(Python):
    def begin(self, text, **options):
        (self.directory / "script.py").write_text(textwrap.dedent(text))
        return self.start(tool=[run_test.TOOL, json.dumps(options), sys.executable, "script.py"])

    def search(self, text, **options):
        run = self.end(self.begin(text, **options))
        run.trials = [json.loads(line) for line in run.out.splitlines() if line.startswith("{")]
        return run

    def starts(self, rank=0):
        """The name of the trial, the step, the sum and the configuration of each start of a script."""
        found = []
        for line in (self.directory / f"starts-{rank}").read_text().splitlines():
            name, step, total, rest = line.split(" ", 3)
            config, _, process = rest.rpartition(" ")
            found.append((name, int(step), total, json.loads(config), int(process)))
        return found

    def check_counts(self, run, trials, steps=6):
        """Each trial is there once, with the reports of an undisturbed run, each once."""
        self.check(run, 0)
        self.assertEqual([f"{i:05}" for i in range(trials)], [trial["trial"] for trial in run.trials])
        for trial in run.trials:
            self.assertEqual("TERMINATED", trial["state"], trial["error"])
            reports = [json.loads(line) for line in
                       pathlib.Path(self.directory, trial["path"], "result.json").read_text().splitlines()]
            self.assertEqual([(step, step * trial["config"]["x"]) for step in range(1, steps + 1)],
                             [(report["training_iteration"], report["score"]) for report in reports])
        events = [json.loads(line) for line in
                  (self.directory / "results/search/tuner_events.jsonl").read_text().splitlines()]
        heard = [(event["trial"], event["iteration"]) for event in events if event["op"] == "report"]
        self.assertEqual(sorted((f"{i:05}", step) for i in range(trials) for step in range(1, steps + 1)), sorted(heard))


class Mistakes(Searches):
    def test_a_script_that_never_reports(self):
        run = self.search("print('hello')", space={"x": [1, 2]})
        self.check(run, 0)
        for trial in run.trials:
            self.assertEqual("ERROR", trial["state"])
            self.assertIn("ended without a report", trial["error"])
            self.assertIn("[RT-U115]", trial["error"])
        run = self.search("print('hello')", metric="", space={"x": [3]})
        self.check(run, 1, "[RT-U107]")  # of another search

    def test_a_configuration_that_json_cannot_represent(self):
        run = self.search(counting(), space={"x": ["NaN"]})
        self.check(run, 1, "the configuration has x = nan")
        self.assertIn("[RT-E66]", run.err)

    def test_a_report_without_the_metric(self):
        run = self.search(counting(), metric="accuracy", space={"x": [1]})
        self.check(run, 0, "the metric of the search is accuracy")
        self.assertEqual(6, run.trials[0]["reports"])

    def test_a_report_without_a_required_metric_ends_the_search(self):
        run = self.search(counting(), metric="accuracy", space={"x": [1, 2]}, require_metric=1)
        self.check(run, 1, "[RT-U101]")

    def test_a_trial_that_is_killed_too_often(self):
        run = self.search(counting("""
            if x == 1 and step == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            """), space={"x": [0, 1, 2]}, restarts=1)
        self.check(run, 0, "[trial_00001] ")
        self.assertEqual(["TERMINATED", "ERROR", "TERMINATED"], [trial["state"] for trial in run.trials])
        self.assertIn("killed by signal 9", run.trials[1]["error"])
        self.assertEqual([6, 2, 6], [trial["reports"] for trial in run.trials])

    def test_an_exception(self):
        run = self.search("raise ValueError('bad luck')", space={"x": [1]})
        self.check(run, 0, "bad luck")
        self.assertIn("exited with code 1", run.trials[0]["error"])

    def test_a_program_that_does_not_exist(self):
        run = self.end(self.start(tool=[run_test.TOOL, json.dumps({"space": {"x": [1]}}), "no-such-program"]))
        self.check(run, 1, "[RT-E5]")

    def test_under_torchrun(self):
        run = self.end(self.start(tool=[run_test.TOOL, "{}", "sh", "-c", ":"], RANK="0", WORLD_SIZE="2"))
        self.check(run, 1, "[RT-E11]")


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
