#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the table of a backend's optional members in docs/architecture.md says what
backend::capabilities<B>() does: the same members, and the same words for what happens without one.

Usage: capabilities_test.py ROOT
"""

import pathlib
import re
import sys

HEADER = "include/rtrain/backend/capabilities.hpp"
PAGE = "docs/architecture.md"
HEAD = "| optional member | effect | without it |"


def in_header(text):
    found = re.findall(r'Capability\{"(\w+)",\s*[^"]*?((?:"[^"]*"\s*)+)\}', text)
    return {member: "".join(re.findall(r'"([^"]*)"', words)) for member, words in found}


def in_page(text):
    rows = text.split(HEAD, 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    found = {}
    for row in rows:
        members, _, otherwise = (cell.strip() for cell in row.strip("|").split("|"))
        for code in re.findall(r"`([^`]*)`", members):
            name = re.search(r"(\w+)\(", code)
            if name:
                found[name[1]] = otherwise
    found.pop("can_survive_deaths")  # one capability with survives_deaths
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    ours, shown = in_header((root / HEADER).read_text()), in_page((root / PAGE).read_text())
    assert len(ours) > 10, f"{HEADER} has another form than this test reads: {ours}"
    wrong = [name for name in sorted(ours | shown) if ours.get(name) != shown.get(name)]
    for name in wrong:
        print(f"{name}: {HEADER} says {ours.get(name)!r}, {PAGE} {shown.get(name)!r}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
