#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs an MPI program on several nodes that this machine plays.

    python3 tests/nodes/nodes.py 2,2 build/release/tests/mpi_tests    # 2 nodes x 2 ranks
    python3 tests/nodes/nodes.py --alone --cut 1:5 1,1 PROGRAM...
    python3 tests/nodes/nodes.py --rate 10gbit 2,2 PROGRAM...

With --alone the program starts mpirun itself, with the arguments in RTRAIN_TEST_MPIRUN_ARGS. --cut
takes node 1 off the network 5 s after the program has begun, or, with --once FILE, has written that
file; with 1:5:20 it is back 20 s later.

Each node is a set of Linux namespaces: its own network (one interface, eth0, on a common bridge),
host name, /dev/shm and System V IPC. mpirun runs on the first node, n0, and reaches the others
through `agent`, which takes the place of ssh; a first node with 0 ranks has only the driver. /tmp
and the rest of the file system are shared, as NFS would be; with --own-tmp, each node has a $TMPDIR
of its own. With --numa, cores seem to be those of two NUMA nodes. With --rate, a node sends no
faster than that (tc's token bucket, which the kernel must have). What crosses between nodes can be
counted: `ip -s link`, or /proc/self/net/dev.

Everything runs in a PID namespace that dies with this script, and interfaces and mounts die with
their namespaces: nothing is left behind, also after SIGKILL. Needs root or unprivileged user
namespaces; exit status 77 (ctest: skipped) when the kernel grants neither.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from namespaces import unshared  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# An empty mount point: what is written there is in memory and dies with the simulation.
SCRATCH = pathlib.Path(
    os.environ.setdefault("RTRAIN_NODES_SCRATCH", f"/tmp/rtrain-nodes-{os.getuid()}")
)
SKIPPED = 77
NETWORK = "10.77.0"
NAMESPACES = ["--net", "--uts", "--ipc", "--mount"]


def simulation(command):
    """`command` in namespaces of its own, as root there, killed when this process ends."""
    return [*unshared("--net"), *command]


def require_tools():
    for tool, package in (
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("ip", "iproute2"),
        ("mpirun", "openmpi-bin"),
    ):
        if not shutil.which(tool):
            sys.exit(f"nodes.py needs {tool}: apt-get install {package}")


def require_namespaces():
    """Leaves with SKIPPED unless the kernel grants what a simulation needs."""
    probe = subprocess.run(
        simulation(
            [
                "unshare",
                *NAMESPACES,
                "sh",
                "-ec",
                "mount -t tmpfs tmpfs /dev/shm; hostname probe; ip link add switch type bridge;"
                "ip link add n0 type veth peer name eth0",
            ]
        ),
        capture_output=True,
        text=True,
    )
    if probe.returncode != 0:
        print(f"SKIPPED: the kernel refuses to simulate nodes: {probe.stderr.strip()}")
        sys.exit(SKIPPED)


def start_node(number, more, rate):
    """A process that holds the namespaces of one node, which is connected to the bridge."""
    name = f"n{number}"
    holder = subprocess.Popen(
        ["unshare", *NAMESPACES, "sh", "-ec"]
        + [
            f"hostname {name}; mount -t tmpfs tmpfs /dev/shm;"
            f"mount --bind {SCRATCH}/hosts /etc/hosts; {more}"
            "ip link set lo up; echo ready; exec sleep infinity"
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    if holder.stdout.readline() != "ready\n":
        sys.exit(f"nodes.py: node {name} did not start")
    inside = f"nsenter --target {holder.pid} --net"
    lines = [
        f"ip link add {name} type veth peer name eth0 netns {holder.pid}",
        f"ip link set {name} master switch up",
        f"{inside} ip address add {NETWORK}.{number + 1}/24 dev eth0",
        f"{inside} ip link set eth0 up",
    ]
    if rate:
        lines.append(
            f"{inside} tc qdisc add dev eth0 root tbf rate {rate} burst 256kb latency 100ms"
        )
    for line in lines:
        subprocess.run(line.split(), check=True)
    (SCRATCH / f"{name}.pid").write_text(str(holder.pid))


def play_numa_nodes():
    """The shell's command that puts two NUMA nodes in the place of those there are."""
    cores = sorted(os.sched_getaffinity(0))
    half = (len(cores) + 1) // 2
    for number, some in enumerate((cores[:half], cores[half:])):
        node = SCRATCH / "numa" / f"node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(",".join(map(str, some)) + "\n")
    return f"mount --bind {SCRATCH}/numa /sys/devices/system/node;"


def play(options):
    """In the simulation: starts the nodes and runs the program on them."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(SCRATCH)], check=True)
    subprocess.run("ip link add switch type bridge".split(), check=True)
    subprocess.run("ip link set switch up".split(), check=True)
    nodes = range(len(options.ranks))
    (SCRATCH / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{NETWORK}.{n + 1} n{n}\n" for n in nodes)
    )
    (SCRATCH / "tmp").mkdir()
    more = play_numa_nodes() if options.numa else ""
    if options.own_tmp:
        more += f"mount -t tmpfs tmpfs {SCRATCH}/tmp;"
    for number in nodes:
        start_node(number, more, options.rate)
    environment = {
        **os.environ,
        "RTRAIN_NODES": ",".join(map(str, options.ranks)),
        "TMPDIR": str(SCRATCH / "tmp"),
        # A rank counts on the cores of its node, but these nodes share theirs.
        "OMP_NUM_THREADS": str(max(1, os.cpu_count() // sum(options.ranks))),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    settings = {
        "plm_rsh_agent": HERE / "agent",
        "orte_tmpdir_base": SCRATCH / "tmp",
        "oob_tcp_if_include": "eth0",
        "btl_tcp_if_include": "eth0",
        "pml": "ob1",
        "btl": "self,vader,tcp",
        "mpi_yield_when_idle": "1",
    }
    environment |= {f"OMPI_MCA_{name}": str(value) for name, value in settings.items()}
    hosts = ["--host", ",".join(f"n{n}:{ranks}" for n, ranks in enumerate(options.ranks) if ranks)]
    command = options.program
    if options.alone:
        environment["RTRAIN_TEST_MPIRUN_ARGS"] = " ".join(hosts)
    else:
        mpirun = [options.mpirun, "--oversubscribe", "--bind-to", "none", *hosts]
        for name in ("RTRAIN_NODES", "TMPDIR", "OMP_NUM_THREADS"):
            mpirun += ["-x", name]
        command = mpirun + command
    first = ["nsenter", "--target", (SCRATCH / "n0.pid").read_text(), *NAMESPACES]
    first += [f"--wd={os.getcwd()}"]
    process = subprocess.Popen([*first, *command], env=environment)
    if options.cut:
        node, *pauses = options.cut.split(":")
        while options.once and not options.once.exists() and process.poll() is None:
            time.sleep(0.1)
        for seconds, state in zip(pauses, ("down", "up")):
            time.sleep(float(seconds))
            print(f"nodes.py: node {node} is {state}", flush=True)
            subprocess.run(["ip", "link", "set", f"n{node}", state], check=True)
    return process.wait()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mpirun", default="mpirun", help="Open MPI's launcher")
    parser.add_argument("--alone", action="store_true", help="the program starts mpirun itself")
    parser.add_argument("--cut", help="NODE:SECONDS[:SECONDS], see above")
    parser.add_argument("--once", type=pathlib.Path, help="see above")
    parser.add_argument("--numa", action="store_true", help="see above")
    parser.add_argument("--own-tmp", action="store_true", help="see above")
    parser.add_argument("--rate", help="such as 10gbit, see above")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("ranks", help="ranks of each node, such as 2,2 or 3,1")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="program and arguments")
    options = parser.parse_args()
    options.ranks = [int(ranks) for ranks in options.ranks.split(",")]
    return options


def main():
    options = parse_arguments()
    if options.inside:
        return play(options)
    require_tools()
    require_namespaces()
    SCRATCH.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen(simulation([sys.executable, __file__, "--inside", *sys.argv[1:]]))
    try:
        return process.wait()
    finally:
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
