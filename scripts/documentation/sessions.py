#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what docs/examples.md shows: commands at the top of the repository, and what they print.

    sessions.py check NAME BUILD DIRECTORY    # fails when the output is another than the page's
    sessions.py write NAME... --build BUILD   # brings output and time on the page; without NAME: of all

A session on the page is

    <!-- session NAME -->
    ```console
    $ a command
    what it prints
    ```
    4 s on 2 cores with a load of 0.3, 2026-11-25
    <!-- session -->

Its commands run, one after the other, in a directory that has nothing but links to the examples' sources and
programs, so that each session begins anew. Compared are lines of the standard output with their numbers left out, in
any order and any number: ranks and trials of a search print as they come. Never the time.
"""

import argparse
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/examples.md"
SESSION = re.compile(r"<!-- session (\S+) -->\n```console\n(.*?)```\n(.*?)<!-- session -->\n", re.S)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?")
HOME = "/home/me/rtrain"  # where the page's reader has put the repository


def sessions():
    return {name: block for name, block, _ in SESSION.findall(PAGE.read_text(encoding="utf-8"))}


def commands_of(block):
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def output_of(block):
    return [line for line in block.splitlines() if not line.startswith("$ ")]


def shapes(lines):
    return {" ".join(NUMBER.sub("#", line).split()) for line in lines} - {""}


def environment():
    """In which mpirun starts ranks also as root and more than there are cores."""
    return os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                         "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


def played(block, build, directory):
    """The block as it is now, and how many seconds it took."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "build/release").mkdir(parents=True)
    (directory / "build/release/examples").symlink_to(build.resolve() / "examples")
    (directory / "examples").symlink_to(ROOT / "examples")
    text, began = "", time.monotonic()
    for command in commands_of(block):
        done = subprocess.run(["sh", "-c", command], cwd=directory, env=environment(), stdout=subprocess.PIPE,
                              text=True, check=False)
        print(done.stdout, end="", flush=True)
        if done.returncode != 0:
            sys.exit(f"sessions: {command} has ended with {done.returncode}")
        text += f"$ {command}\n{done.stdout.replace(str(directory.resolve()), HOME)}"
    return text, time.monotonic() - began


def check(name, build, directory):
    block = sessions().get(name)
    if block is None:
        sys.exit(f"sessions: {PAGE} has no session {name}")
    text, _ = played(block, build, directory)
    shown, printed = shapes(output_of(block)), shapes(output_of(text))
    for line in sorted(shown - printed):
        print(f"sessions: not printed any more, but shown by {PAGE.name}: {line}", file=sys.stderr)
    for line in sorted(printed - shown):
        print(f"sessions: printed, but not shown by {PAGE.name}: {line}", file=sys.stderr)
    return 0 if shown == printed else 1


def write(names, build):
    for name, block in sessions().items():
        if names and name not in names:
            continue
        load = os.getloadavg()[0]  # of others
        with tempfile.TemporaryDirectory() as directory:
            text, seconds = played(block, build, pathlib.Path(directory) / "rtrain")
        took = (f"{seconds:.0f} s on {os.cpu_count()} cores with a load of {load:.1f}, "
                f"{datetime.date.today().isoformat()}\n")
        # Read again: a session takes its time, in which somebody may write the page.
        page = SESSION.sub(lambda found: f"<!-- session {name} -->\n```console\n{text}```\n{took}<!-- session -->\n"
                           if found[1] == name else found[0], PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(page, encoding="utf-8")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    checking = actions.add_parser("check")
    checking.add_argument("name")
    checking.add_argument("build", type=pathlib.Path)
    checking.add_argument("directory", type=pathlib.Path)
    writing = actions.add_parser("write")
    writing.add_argument("name", nargs="*")
    writing.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    options = parser.parse_args()
    if options.action == "check":
        return check(options.name, options.build, options.directory)
    return write(options.name, options.build)


if __name__ == "__main__":
    sys.exit(main())
