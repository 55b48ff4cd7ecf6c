#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what a page shows: its scripts, and the commands of its sessions.

Usage: page_test.py ROOT TOOL PAGE"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT, TOOL = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
sys.path.insert(0, str(ROOT / "scripts/documentation"))
sys.dont_write_bytecode = True
import sessions  # noqa: E402

PAGE = (ROOT / sys.argv[3]).read_text(encoding="utf-8")
SCRIPTS = {name: text for text, name in re.findall(r"```python\n(# (\S+\.py)\n.*?)```", PAGE, re.S)}
SESSION = re.compile(r"<!-- session (\S+) -->\n```console\n(.*?)```\n<!-- session -->", re.S)


def main():
    try:
        if any("import torch" in text for text in SCRIPTS.values()):
            import torch  # noqa: F401
    except ImportError:
        print("skipped: this Python has no torch")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        here = pathlib.Path(directory)
        for name, text in SCRIPTS.items():
            (here / name).write_text(text)
        (here / "bin").mkdir()
        shutil.copy(TOOL, here / "bin" / "rtrain")
        path = f"{here / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**sessions.environment(), "PATH": path, "OMP_NUM_THREADS": "1",
                       "PYTHONPATH": str(ROOT / "examples/python"), "PYTHONDONTWRITEBYTECODE": "1"}
        wrong = 0
        for name, block in SESSION.findall(PAGE):
            printed = []
            for command in sessions.commands_of(block):
                done = subprocess.run(["sh", "-c", command], cwd=here, env=environment, stdout=subprocess.PIPE,
                                      text=True, check=False, timeout=300)
                printed += done.stdout.splitlines()
            shown = sessions.shapes(sessions.output_of(block))
            for line in sorted(shown ^ sessions.shapes(printed)):
                if line not in shown and line.startswith("[rank"):
                    continue  # Torch prints more when a peer is lost, depending on the moment.
                where = "shown, but not printed" if line in shown else "printed, but not shown"
                print(f"session {name}: {where}: {line}")
                wrong += 1
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
