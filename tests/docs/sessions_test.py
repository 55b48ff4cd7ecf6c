#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether sessions.py notices an output that the page does not show, and brings the right one on it; and whether each
session of docs/examples.md is a test.

Usage: sessions_test.py ROOT
"""

import contextlib
import io
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "scripts/documentation"))
sys.dont_write_bytecode = True
import sessions  # noqa: E402

PAGE = """Before.

<!-- session first -->
```console
$ echo "loss 0.25, lr 1e-3 in $PWD"
loss 0.5, lr 2.5E-4 in /home/me/rtrain
$ echo rank 1 && echo rank 0
rank 0
```
3 s on 2 cores, 2026-01-01
<!-- session -->

<!-- session second -->
```console
$ false
```
not yet
<!-- session -->
"""
PROBLEMS = []


def expect(holds, what):
    if not holds:
        PROBLEMS.append(what)


def checked(page, name="first"):
    """The status of a check against this page, with what it says left out."""
    sessions.PAGE.write_text(page, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return sessions.check(name, sessions.ROOT, sessions.PAGE.parent / "played")
        except SystemExit as end:
            return str(end)


def main():
    names = list(sessions.sessions())
    expect(len(names) > 10, f"docs/examples.md has {len(names)} sessions")
    tests = set(re.findall(r"rtrain_example_test\((\S+) ", (ROOT / "examples/CMakeLists.txt").read_text("utf-8")))
    expect(set(names) == tests, f"sessions without a test, or the reverse: {sorted(set(names) ^ tests)}")

    with tempfile.TemporaryDirectory() as directory:
        sessions.PAGE = pathlib.Path(directory) / "page.md"
        expect(checked(PAGE) == 0, "other numbers, and a line more of a shape, are taken for another output")
        expect(checked(PAGE.replace("rank 0\n", "")) == 1, "a line that is not shown is not noticed")
        expect(checked(PAGE.replace("rank 0\n", "rank 0\nrank 0 of 2\n")) == 1, "a line that is not printed is not noticed")
        expect(checked(PAGE.replace("loss 0.5", "lost 0.5")) == 1, "another word is not noticed")
        expect("false has ended with 1" in str(checked(PAGE, "second")), "a command that fails is not noticed")
        expect("no session third" in str(checked(PAGE, "third")), "a session that is not there is not noticed")
        sessions.PAGE.write_text(PAGE, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()):
            sessions.write(["first"], sessions.ROOT)
        written = sessions.PAGE.read_text(encoding="utf-8")
        expect("loss 0.25, lr 1e-3 in /home/me/rtrain\n" in written and "rank 1\nrank 0\n```\n0 s on " in written
               and written.endswith(PAGE.partition("-->\n\n<!--")[2]), f"written is\n{written}")
    print("\n".join(PROBLEMS) or f"{len(names)} sessions")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main())
