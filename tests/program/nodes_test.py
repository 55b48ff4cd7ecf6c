#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`rtrain run --hosts`, and `rtrain exec` under srun, on two nodes that this machine plays: the same loss as on one, a
restart, and a script that one node lacks; with CASES, which nodes.py runs on two nodes: a preload server on each.

Usage: nodes_test.py TOOL [CASES]"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap

import run_test
from run_test import descendants, is_alive, wait_until

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = str(HERE / "train.py")
LIMIT = 250  # seconds
HOSTS = ["-n", "3", "--hosts", "n0:2,n1:1"]

SLOW = "import os\nprocess = os.getpid()\n"
# Differs on n1 as a file says.
ODD = """
    import pathlib, socket, threading, time
    what = pathlib.Path("odd").read_text() if socket.gethostname() == "n1" else ""
    if what == "missing":
        raise ImportError("not here")
    if what == "threads":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    """
RANK = """
    import os, pathlib, slow, socket, time
    file = pathlib.Path(f'{os.environ["TORCHELASTIC_RESTART_COUNT"]}-{os.environ["RANK"]}')
    file.with_suffix(".new").write_text(f"{socket.gethostname()} {slow.process} {os.getpid()}")
    os.rename(file.with_suffix(".new"), file)
    while not os.path.exists("stop"):
        time.sleep(0.05)
    """


def parent_of(process):
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


class Preload(run_test.Run):
    """Numbers of processes are those of the simulation, so all of both nodes are seen."""

    def setUp(self):
        super().setUp()
        os.symlink(HERE.parent.parent / "examples/python/rtrain", self.directory / "rtrain")
        for name, text in ("slow.py", SLOW), ("odd.py", ODD), ("script.py", RANK):
            (self.directory / name).write_text(textwrap.dedent(text))
        self.before = self.alive()
        self.starts = 0

    @staticmethod
    def alive():
        return {int(each.name) for each in pathlib.Path("/proc").glob("[0-9]*") if is_alive(each.name)}

    def begin(self, *words):
        return self.start(*HOSTS, "--max-restarts", "-1", "--backoff", "0", *words, "script.py")

    def await_start(self):
        """The server of each node, and the process of rank 2, which is on n1."""
        files = [self.directory / f"{self.starts}-{rank}" for rank in range(3)]
        wait_until(lambda: all(file.exists() for file in files))
        self.starts += 1
        ranks = [file.read_text().split() for file in files]
        self.assertEqual(ranks[0][:2], ranks[1][:2])
        self.assertEqual(["n0", "n1"], [ranks[0][0], ranks[2][0]])
        return [int(ranks[0][1]), int(ranks[2][1])], int(ranks[2][2])

    def test_servers_stay_until_the_run_ends(self):
        run = self.begin("--preload", "slow")
        servers, rank = self.await_start()
        keeper = parent_of(servers[1])
        for victim in "rank", "parent", "remote shell", "server", "keeper":
            shell = next(each for each in descendants(run.pid) if self.is_on_other_node(each))
            parents = [each for each in descendants(shell) if pathlib.Path(f"/proc/{each}/exe").samefile(run_test.TOOL)]
            os.kill({"rank": rank, "parent": parents[0], "remote shell": shell, "server": servers[1],
                     "keeper": keeper}[victim], signal.SIGKILL)
            after, rank = self.await_start()
            is_new = victim in ("server", "keeper")
            self.assertEqual((servers[0], is_new), (after[0], after[1] != servers[1]), victim)
            servers, keeper = after, parent_of(after[1])
        (self.directory / "stop").touch()
        self.check(self.end(run), 0, "restart 5")
        self.check_end()

    @staticmethod
    def is_on_other_node(process):
        return os.readlink(f"/proc/{process}/ns/net") != os.readlink("/proc/self/ns/net")

    def check_end(self):
        wait_until(lambda: self.alive() <= self.before)

    def test_a_killed_driver_leaves_nothing(self):
        run = self.begin("--preload", "slow")
        self.await_start()
        run.kill()
        run.communicate()
        self.check_end()

    def test_a_node_that_is_cut_off_ends_its_server(self):
        run = self.begin("--preload", "slow")
        servers, _ = self.await_start()
        ends = [servers[1], parent_of(servers[1])]
        cable = "nsenter --target 1 --net ip link set n1".split()
        self.addCleanup(subprocess.run, [*cable, "up"], check=True)
        subprocess.run([*cable, "down"], check=True)
        wait_until(lambda: not any(map(is_alive, ends)))
        run.kill()
        run.communicate()

    def test_what_one_node_cannot_preload(self):
        (self.directory / "odd").write_text("missing")
        self.check(self.end(self.begin("--preload", "odd")), 126, "n1: --preload cannot import odd: ImportError: not here [RT-E62]")
        (self.directory / "odd").write_text("threads")
        (self.directory / "stop").touch()
        self.check(self.end(self.begin("--preload", "slow,odd")), 0,
                   "n1: ranks start without --preload: odd has started threads")
        self.check(self.run_tool(*HOSTS, "--preload", "slow", "sh", "-c", "true"), 2, "[RT-E63]")
        self.check_end()


def run(directory, words, played=()):
    nodes = [sys.executable, HERE.parent / "nodes" / "nodes.py", "--alone", "--own-tmp", *played] if played else []
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([*nodes, *words], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT, check=False, env=environment)
    if done.returncode == 77:
        print(done.stdout)
        sys.exit(77)
    return done


def main():
    tool = str(pathlib.Path(sys.argv[1]).resolve())
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: this Python has no torch")
        return 77
    os.environ.pop("OMPI_MCA_plm_rsh_agent", None)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="rtrain-nodes-") as directory:
        start = [tool, "run", "--storage", directory, "--max-restarts", "1"]
        alone = run(directory, [*start, "-n", "3", TRAIN])
        apart = run(directory, [*start, *HOSTS, TRAIN, "--fault", "kill:2:after"], ["2,1"])
        tasks = run(directory, [sys.executable, HERE / "srun.py", "n0:2,n1:1", tool, "exec", "--", sys.executable, TRAIN],
                    ["2,1"])
        script = f"cp {TRAIN} $TMPDIR/only_here.py; exec " + " ".join([*start, *HOSTS]) + " $TMPDIR/only_here.py"
        missing = run(directory, ["sh", "-c", script], ["2,1"])
    losses = [re.findall(r"loss (\S+) after", ended.stdout) for ended in (alone, apart, tasks)]
    checks = {"alone, it ends well": alone.returncode == 0,
              "on two nodes, it ends well": apart.returncode == 0,
              "after one restart": "after 1 restarts on 3 ranks" in apart.stdout,
              "with the same loss": len(losses[0]) == 1 and losses[0] == losses[1],
              "under srun, it ends well": tasks.returncode == 0,
              "with that loss, too": losses[0] == losses[2],
              "a missing script is an error": missing.returncode == 126 and "[RT-E5]" in missing.stdout,
              "that names its node": "does not exist on n1" in missing.stdout,
              "and is not tried again": "restart 1" not in missing.stdout}
    for what, holds in checks.items():
        print(f"{'ok   ' if holds else 'WRONG'} {what}")
    if not all(checks.values()):
        print(alone.stdout, apart.stdout, tasks.stdout, missing.stdout, sep="\n---\n")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]) if len(sys.argv) > 2 else main())
