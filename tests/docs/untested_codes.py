#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails for codes of docs/errors.md that nothing in tests/ or examples/ mentions: errors that no test
provokes.

Usage: untested_codes.py ROOT
"""

import pathlib
import re
import sys

SUFFIXES = {".cpp", ".hpp", ".py", ".cmake", ".txt"}


def main():
    root = pathlib.Path(sys.argv[1])
    codes = re.findall(r"^##+ (RT-[A-Z]\d+)$", (root / "docs/errors.md").read_text(), re.M)
    mentioned = {code for directory in ("tests", "examples") for path in (root / directory).rglob("*")
                 if path.suffix in SUFFIXES and path.is_file()
                 for code in re.findall(r"RT-[A-Z]\d+", path.read_text(errors="replace"))}
    untested = [code for code in codes if code not in mentioned]
    print(*untested, f"{len(untested)} of {len(codes)} codes are untested", sep="\n")
    return 1 if untested else 0


if __name__ == "__main__":
    sys.exit(main())
