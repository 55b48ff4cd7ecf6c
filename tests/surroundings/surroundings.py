#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""surroundings.py user|container|booted|locale BUILD COMMAND...: the command where users run rtrain, on a copy of the
build directory that is thrown away.

    user        a user without rights, with a home and a temporary directory of its own
    container   root, but without CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_SYS_PTRACE, and with 64 MB of
                /dev/shm, which is what Docker gives
    booted      a machine that has booted a minute ago (steady_clock counts from there), in another time
                zone, without a network, for a process that yields to all others and has no terminal
    locale      every program begins with a global locale that writes 21,7 and 14.972: de_DE where localedef
                can make it, else one of C++ streams only

Exits with the command's status, or with 77 (skipped) where this machine does not let us play them."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from namespaces import unshared  # noqa: E402

SKIPPED = 77
NOBODY = 65534
MINUTE = 60
DROPPED = "-sys_admin,-net_admin,-sys_ptrace"
INSIDE = "RTRAIN_SURROUNDINGS"  # the scratch directory, in the process with its own namespaces


def overlay(directory, scratch):
    """What is written to the directory goes to the scratch directory from now on, for this process."""
    layers = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    for layer in ("upper", "work"):
        (layers / layer).mkdir()
    (layers / "upper").chmod(0o755)
    subprocess.run(
        ["mount", "-t", "overlay", "overlay", str(directory), "-o",
         f"metacopy=on,lowerdir={directory},upperdir={layers}/upper,workdir={layers}/work"], check=True)


def become_user(build, scratch):
    """The words that start a command as that user."""
    subprocess.run(["chown", "--recursive", f"{NOBODY}:{NOBODY}", str(build)], check=True)
    home = pathlib.Path.home()
    if home.exists() and home.stat().st_mode & 0o005 != 0o005:
        overlay(home, scratch)  # the interpreter may be there
    for name, variable in (("home", "HOME"), ("tmp", "TMPDIR")):
        directory = scratch / name
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
        os.environ[variable] = str(directory)
    for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "CCACHE_DIR"):
        os.environ.pop(variable, None)
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            "--inh-caps=-all", "--bounding-set=-all"]


def inside(where, build, command):
    scratch = pathlib.Path(os.environ.pop(INSIDE))
    scratch.chmod(0o755)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    overlay(build, scratch)
    if where == "user":
        words = become_user(build, scratch)
    elif where == "locale":
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(scratch / "de_DE.UTF-8")], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        words = ["env", "-u", "LC_ALL", f"LOCPATH={scratch}", "LC_NUMERIC=de_DE.UTF-8", "LANG=C.UTF-8",
                 f"LD_PRELOAD={os.environ['RTRAIN_OTHER_LOCALE']}"]
    elif where == "container":
        subprocess.run("mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm".split(), check=True)
        words = ["setpriv", f"--bounding-set={DROPPED}", f"--inh-caps={DROPPED}"]
    else:
        subprocess.run("ip link set lo up".split(), check=True)
        os.environ["TZ"] = "Asia/Kathmandu"
        words = ["setsid", "--wait", "nice", "-n", "19"]
    os.chdir(build)  # the directory that was current is below the overlay
    return subprocess.run([*words, *command], stdin=subprocess.DEVNULL).returncode


def main():
    where, build, command = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    if INSIDE in os.environ:
        return inside(where, build, command)
    namespaces = unshared("--ipc")
    if where == "booted":
        offset = str(MINUTE - int(time.clock_gettime(time.CLOCK_BOOTTIME)))
        namespaces = unshared("--ipc", "--net", "--time", "--monotonic", offset, "--boottime", offset)
    if os.getuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        print("SKIPPED: only root can play other surroundings, with unshare and setpriv")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="surroundings-") as scratch:
        probe = "mount -t tmpfs tmpfs \"$0\" && mkdir \"$0\"/l \"$0\"/u \"$0\"/w && " \
                "mount -t overlay overlay -o metacopy=on,lowerdir=\"$0\"/l,upperdir=\"$0\"/u,workdir=\"$0\"/w \"$0\"/l"
        refused = subprocess.run([*namespaces, "sh", "-c", probe, scratch], capture_output=True,
                                 text=True)
        if refused.returncode != 0:
            print(f"SKIPPED: the kernel refuses: {refused.stderr.strip()}")
            return SKIPPED
        return subprocess.run(
            [*namespaces, sys.executable, __file__, where, str(build), *command],
            env={**os.environ, INSIDE: scratch}).returncode


if __name__ == "__main__":
    sys.exit(main())
