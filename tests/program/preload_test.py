#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--preload: ranks forked from one import are as those that start by themselves.

Usage: preload_test.py TOOL CASES [-v]"""
import os
import pathlib
import signal
import sys

import run_test
from python_test import EPOCHS, Python
from run_test import descendants, is_alive, wait_until

SAYS = """
    import atexit, json, multiprocessing, os, random, signal, sys, threading
    import slow
    main = sys.modules["__main__"]
    names = ("SIGINT", "SIGTERM", "SIGPIPE", "SIGCHLD")
    print(json.dumps({
        "argv": sys.argv, "path": sys.path[0], "file": __file__, "name": __name__, "main": main.__dict__ is globals(),
        "cwd": os.getcwd(), "stdin": sys.stdin.read(), "method": multiprocessing.get_start_method(),
        "signals": [str(signal.getsignal(getattr(signal, name))) for name in names],
        "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "group": os.getpgid(0) == os.getpid(),
        "threads": threading.active_count(), "variables": sorted(set(os.environ) - {"RTRAIN_MODULE"})}, sort_keys=True), flush=True)
    print("imported by", slow.process, random.random(), file=sys.stderr, flush=True)
    atexit.register(print, "at exit", os.environ["RANK"])
    if "throw" in sys.argv:
        raise ValueError("bad luck")
"""


class Preload(Python):
    def setUp(self):
        super().setUp()
        self.write("import os\nprocess = os.getpid()\n", "slow.py")

    def test_forked_ranks_are_like_others(self):
        script = self.write(SAYS)
        plain = self.run_tool("-n", "2", script, "a", "-u")
        forked = self.run_tool("-n", "2", "--preload", "slow,json", script, "a", "-u")
        self.check(forked, 0)
        self.assertEqual(sorted(plain.out.splitlines()), sorted(forked.out.splitlines()))
        first, second = (line.split() for line in forked.err.splitlines() if "imported by" in line)
        self.assertEqual(first[4], second[4])  # one import
        self.assertNotEqual(first[5], second[5])  # random numbers
        by_name = self.run_tool("-n", "2", "--preload", "slow", "-m", "script", "a")
        plain = self.run_tool("-n", "2", "-m", "script", "a")
        self.assertEqual(sorted(plain.out.splitlines()), sorted(by_name.out.splitlines()))

    def test_an_exception_begins_in_the_script(self):
        script = self.write(SAYS)
        plain = self.run_tool("-n", "1", script, "throw")
        forked = self.run_tool("-n", "1", "--preload", "slow", script, "throw")
        self.assertEqual(plain.returncode, forked.returncode)
        for run in plain, forked:
            run.lines = [line for line in run.err.splitlines() if "imported by" not in line and "run " not in line]
        self.assertEqual(plain.lines, forked.lines)

    def test_reports_of_forked_ranks_and_a_restart(self):
        """A rank, then the server are killed; each report is there once."""
        script = self.write(EPOCHS)
        process = self.start("--name", "r", "-n", "2", "--max-restarts", "3", "--backoff", "0", "--preload", "slow",
                             "--config", "epochs=600", script)
        for kills_server in False, True:
            known = len(self.reports()) if self.run_directory.joinpath("result.json").exists() else 0
            wait_until(lambda known=known: (self.run_directory / "result.json").exists() and len(self.reports()) > known + 1)
            servers = [found for found in descendants(process.pid) if self.is_server(found)]
            ranks = [child for server in servers for child in descendants(server)]
            os.kill(servers[0] if kills_server else ranks[0], signal.SIGKILL)
            wait_until(lambda ranks=ranks: not any(map(is_alive, ranks)))
        run = self.end(process)
        self.check(run, 0)
        self.assertEqual(600, len(self.check_reports()))

    @staticmethod
    def is_server(process):
        try:
            words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            parent = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
            above = pathlib.Path(f"/proc/{parent}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return b"rtrain._preload" in words and b"rtrain._preload" not in above

    def test_a_killed_driver_leaves_nothing(self):
        script = self.write("import slow, time\nprint('there', flush=True)\ntime.sleep(60)\n")
        process = self.start("-n", "2", "--preload", "slow", script)
        self.assertIn("there", process.stdout.readline())
        below = descendants(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda: not any(map(is_alive, below)), 5)

    def test_a_signal_and_an_exit_code(self):
        script = self.write("import os, sys\nif sys.argv[1] == 'exit':\n    sys.exit(7)\nos.kill(os.getpid(), 9)\n")
        self.check(self.run_tool("-n", "1", "--preload", "slow", script, "exit"), 7, "exited with code 7")
        self.check(self.run_tool("-n", "1", "--preload", "slow", script, "kill"), 128 + 9, "killed by signal 9")

    def test_modules_that_cannot_be_preloaded(self):
        script = self.write("import threading\nprint('ran', threading.active_count(), flush=True)\n")
        self.check(self.run_tool("-n", "1", "--preload", "missing", script), 126,
                   "ModuleNotFoundError: No module named 'missing' [RT-E62]")
        self.write("import script\n", "itself.py")
        self.check(self.run_tool("-n", "1", "--preload", "itself", script), 126, "imports the script")
        self.write("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n", "busy.py")
        run = self.run_tool("-n", "2", "--preload", "slow,busy", script)
        self.check(run, 0, "busy has started threads")
        self.assertEqual(2, run.out.count("ran 1"))
        self.check(self.run_tool("-n", "1", "--preload", "slow", "--no-python", "true"), 2, "RT-E63")
        self.check(self.run_tool("-n", "1", "--preload", "slow,", script), 2, "names of Python modules")

    def test_the_server_needs_the_module(self):
        del self.environment["PYTHONPATH"]
        script = self.write("print(1)\n")
        self.check(self.run_tool("-n", "1", "--preload", "json", script), 126, "needs the module rtrain")


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
