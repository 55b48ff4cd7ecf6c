#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the assertions of tests at a commit and in this tree, and lists the test cases that are gone or assert less.

    assertions.py ROOT COMMIT      exits with 1 if a count is lower; a case that was renamed counts as gone
"""
import collections
import io
import pathlib
import re
import subprocess
import sys
import tarfile

CASE = re.compile(r'^(?:\w+_)?TEST_CASE\w*\(\s*"((?:[^"\\]|\\.)*)"|^(RTRAIN_TEST_\w+\(\w+)', re.MULTILINE)
ASSERTION = re.compile(r"\b(?:CHECK|REQUIRE|DOCTEST_CHECK|DOCTEST_REQUIRE)\w*\s*\(|^\s+assert\b", re.MULTILINE)


def sources_at(root, commit):
    listed = subprocess.run(["git", "-C", str(root), "archive", commit, "tests"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(listed)) as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.endswith((".cpp", ".hpp", ".py")):
                yield member.name, archive.extractfile(member).read().decode(errors="replace")


def sources_of(root):
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix in (".cpp", ".hpp", ".py") and path.is_file():
            yield path.name, path.read_text(errors="replace")


def count(sources):
    """Assertions, and those of each test case."""
    total, cases = 0, collections.Counter()
    for _, text in sources:
        total += len(ASSERTION.findall(text))
        starts = list(CASE.finditer(text))
        for start, end in zip(starts, [*starts[1:], None]):
            cases[start[1] or start[2] + ")"] += len(ASSERTION.findall(text, start.end(), end.start() if end else len(text)))
    return total, cases


def main():
    root = pathlib.Path(sys.argv[1])
    before, cases_before = count(sources_at(root, sys.argv[2]))
    now, cases_now = count(sources_of(root))
    gone = [name for name in cases_before if name not in cases_now]
    fewer = [name for name in cases_before if name in cases_now and cases_now[name] < cases_before[name]]
    for name in gone:
        print(f"gone:  {name} ({cases_before[name]} assertions)")
    for name in fewer:
        print(f"fewer: {name}: {cases_before[name]} -> {cases_now[name]}")
    print(f"{sys.argv[2]}: {len(cases_before)} test cases, {before} assertions; "
          f"now {len(cases_now)} and {now}; {len(gone)} cases gone, {len(fewer)} with fewer assertions")
    return 1 if now < before or len(cases_now) < len(cases_before) else 0


if __name__ == "__main__":
    sys.exit(main())
