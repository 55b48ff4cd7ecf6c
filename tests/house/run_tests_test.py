#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether scripts/test takes the right tests, and refuses what it does not know.

Usage: run_tests_test.py ROOT BUILD"""

import contextlib
import io
import pathlib
import subprocess
import sys


def main():
    root, build = map(pathlib.Path, sys.argv[1:])
    sys.path.insert(0, str(root / "scripts"))
    import run_tests

    def refused(*words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                run_tests.parse(list(words))
            except SystemExit as end:
                assert end.code == 2, end.code
                return said.getvalue()
        raise AssertionError(f"{words} was taken")

    assert "unknown room chekpoint (did you mean checkpoint?)" in refused("chekpoint")
    assert "the rooms are checkpoint, comm," in refused("xyzzy")
    assert "unknown option --al (did you mean --all?)" in refused("--al")
    assert "expected at least 1" in refused("-j", "0")
    assert "mpi( is not a regular expression" in refused("-R", "mpi(")
    assert run_tests.parse(["comm", "-j", "3", "model"]).rooms == ["comm", "model"]

    tests = run_tests.registered(build)

    def names(*words):
        return {test.name for test in run_tests.select(tests, run_tests.parse(list(words)))}

    quick, everything, deep = names(), names("--all"), names("--deep")
    assert quick < everything < deep == {test.name for test in tests}
    assert "unit" in quick and "mpi.sharded.4" in everything - quick and "house.tidy" in deep - everything
    rooms = run_tests.read_rooms()
    assert set().union(*(names(room) for room in rooms if room != "nccl")) <= everything
    assert all(test.room in rooms for test in tests)
    assert names("comm") < everything and "comm.8" in names("comm", "--deep") - names("comm")
    assert names("-R", "^package.run$") >= {"package.run", "package.build", "package.install"}, "what it needs"
    try:
        names("-R", "^house.tidy$")
        raise AssertionError("a deep test was taken without --deep")
    except SystemExit as end:
        assert "add --deep" in str(end), end

    unit = [test for test in tests if test.name == "unit"]
    assert run_tests.Build(build).targets_of(unit) == ["tests/unit_tests"]
    for test in unit:
        test.status, test.seconds = "passed", 100 * max(test.expected_s, 1)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run_tests.summary(unit, 1.0) == 0
    assert "Slow: unit took" in said.getvalue() and said.getvalue().endswith("1 passed, 0 failed, 0 skipped\n")

    shown = subprocess.run([sys.executable, root / "scripts/run_tests.py", build, "--list", "comm"],
                           capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in shown.splitlines()} == names("comm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
