#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launch(): functions of scripts and notebooks as ranks.

Usage: launch_test.py TOOL CASES [-v]"""
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import run_test
from python_test import Python
from run_test import wait_until

TRAIN = """
    import json, os, tempfile
    import rtrain
    def train(config):
        rank = rtrain.get_context().get_world_rank()
        start = 0
        if checkpoint := rtrain.get_checkpoint():
            with checkpoint.as_directory() as directory:
                start = json.load(open(os.path.join(directory, "state"))) + 1
        for epoch in range(start, config["epochs"]):
            with tempfile.TemporaryDirectory() as directory:
                json.dump(epoch, open(os.path.join(directory, "state"), "w"))
                rtrain.report({"loss": 1 / (epoch + 1)}, checkpoint=rtrain.Checkpoint.from_directory(directory))
            if epoch == config.get("fails_after"):
                raise RuntimeError("bad luck")
        print("ended", rank)
"""


class Launch(Python):
    def setUp(self):
        super().setUp()
        (self.directory / "bin").mkdir()
        (self.directory / "bin" / "rtrain").symlink_to(run_test.TOOL)
        self.environment["PATH"] = f"{self.directory / 'bin'}:{self.environment['PATH']}"

    def test_a_function_of_a_script(self):
        run = self.alone(TRAIN + """
    if __name__ == "__main__":
        result = rtrain.launch(train, {"epochs": 3}, num_workers=2,
                               run_config={"name": "r", "storage_path": "results", "checkpoint": {"num_to_keep": 2}})
        assert result.metrics["loss"] == 1 / 3 and len(result.metrics_history) == 3, result
        assert [report["training_iteration"] for _, report in result.best_checkpoints] == [2, 3]
        assert result.checkpoint.path == os.path.join(result.path, "checkpoint_000002"), result.checkpoint
        again = rtrain.launch(train, {"epochs": 5}, num_workers=1, name="r", storage_path="results",
                              options=["--resume", "always"])
        assert [report["loss"] for report in again.metrics_history] == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
        stopped = rtrain.launch(train, {"epochs": 5}, storage_path="results", run_config={"stop": {"training_iteration": 2}})
        assert len(stopped.metrics_history) == 2 and stopped.stop_reason.startswith("Threshold"), stopped
        try:
            rtrain.launch(train, {}, run_config={"stopp": {}})
        except rtrain.Error as error:
            assert error.code == "RT-E64", error
        print("done", rtrain.Result.from_path("results/r").metrics["training_iteration"])""")
        self.check(run, 0, "done 5")
        self.assertEqual(3, run.out.count("ended "))

    def test_a_function_of_a_module_and_without_a_configuration(self):
        (self.directory / "functions.py").write_text("import rtrain\ndef say():\n"
                                                     "    rtrain.report({'rank': rtrain.get_dataset_shard('a').count()})\n")
        (self.directory / "data.csv").write_text("x\n1\n2\n")
        has_numpy = importlib.util.find_spec("numpy") is not None
        run = self.alone("import functions, rtrain\n"
                         "print(rtrain.launch(functions.say, datasets={'a': 'data.csv'}, storage_path='results').metrics['rank'])")
        self.check(run, 0 if has_numpy else 1, "2" if has_numpy else "[RT-E58]")

    def test_a_function_of_a_notebook(self):
        notebook = "import rtrain\n" \
                   "factor = 2\n" \
                   "def train(config):\n    rtrain.report({'x': factor * config['x']})\n" \
                   "print('result', rtrain.launch(train, {'x': 3}, num_workers=2, storage_path='results').metrics['x'])\n"
        run = self.end(self.start(tool=[sys.executable, "-c", notebook]))
        if importlib.util.find_spec("cloudpickle") is None:
            self.check(run, 1, "run `pip install cloudpickle`")
            self.assertIn("[RT-E58]", run.err)
        else:
            self.check(run, 0, "result 6")

    def test_mistakes_have_codes(self):
        script = TRAIN + """
    class Open:
        def __call__(self): pass
        def __reduce__(self): raise TypeError("open file")
    def launches():
        rtrain.launch(train, {"epochs": 1})
    if __name__ == "__main__":
        for code, arguments, options in (
                ("RT-T1", (train, {"epochs": 2, "fails_after": 0}), {}),
                ("RT-E9", (train, {"epochs": 1}), {"options": ["--no-such-option"]}),
                ("RT-E8", (train, {"epochs": 1}), {"num_workers": 0}),
                ("RT-E51", (train, {"epochs": object()}), {}),
                ("RT-E60", (Open(),), {}),
                ("RT-E59", (launches,), {})):
            try:
                rtrain.launch(*arguments, **{"storage_path": "results", **options})
            except rtrain.Error as error:
                print("expected" if error.code == code else "wrong", code, "got", error)
            else:
                print("no error", code)
        os.environ["PATH"] = ""
        try:
            rtrain.launch(train)
        except rtrain.Error as error:
            print("expected", error)"""
        run = self.alone(script)
        self.check(run, 0, "[RT-E58]")
        self.assertEqual(6, run.out.count("expected RT-"), run.out)
        self.assertIn("got rank 0: RuntimeError: bad luck [RT-T1]", run.out)

    def test_ctrl_c_ends_the_run(self):
        run = self.start(tool=[sys.executable, self.write("""
            import os, time
            import rtrain
            def wait():
                open("ready", "w").write(str(os.getpid()))
                time.sleep(1000)
            if __name__ == "__main__":
                try:
                    rtrain.launch(wait, storage_path="results")
                except KeyboardInterrupt:
                    print("interrupted")""")])
        wait_until(lambda: (self.directory / "ready").exists() and (self.directory / "ready").read_text())
        rank = int((self.directory / "ready").read_text())
        os.kill(run.pid, signal.SIGINT)  # the notebook's button reaches only this process
        self.check(self.end(run), 0, "interrupted")
        self.assertFalse(pathlib.Path(f"/proc/{rank}").exists() and run_test.is_alive(rank))

    def test_a_wheel_has_the_module_and_the_tool(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("this Python has no pip")
        build = pathlib.Path(run_test.TOOL).parent.parent
        for words in ([run_test.HERE.parent.parent / "scripts/wheel", build, self.directory],
                      ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links", self.directory,
                       "--target", self.directory / "installed", "rtrain"]):
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        run = self.alone(TRAIN + """
    if __name__ == "__main__":
        print(os.path.dirname(rtrain.__file__), rtrain.launch(train, {"epochs": 1}, storage_path="results").metrics["loss"])""",
                         PYTHONPATH=str(self.directory / "installed"),
                         PATH=f"{self.directory / 'installed/bin'}:{os.environ['PATH']}")
        self.check(run, 0, f"{self.directory / 'installed/rtrain'} 1")

    def test_results(self):
        run = self.alone("""
            import rtrain
            try:
                rtrain.Result.from_path("nowhere")
            except rtrain.Error as error:
                print(error)
            rtrain.report({})""")
        self.check(run, 0, "[RT-S6]")


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
