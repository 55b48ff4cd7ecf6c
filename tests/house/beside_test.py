#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each header with behavior has a test next to it, or is in untested.json, which only gets shorter.

    beside_test.py ROOT            compares
    beside_test.py ROOT --update   removes from untested.json what has a test now; makes it, if there is none

The tests of include/rtrain/ROOM/HEADER.hpp are next to it in tests/ROOM: one is named HEADER_test, HEADER_ranks_test,
HEADER_gpu_test or HEADER_nodes_test, or a source there includes the header. A header has behavior if it computes
something, itself or in its definitions."""

import json
import pathlib
import re
import sys

from rooms_test import GENERATED, HEADERS, includes_of, is_forwarding, read_headers

RECORD = "tests/house/untested.json"
NAMED = re.compile(r"(.+?)(?:_ranks|_gpu|_nodes)?_test\.(?:cpp|py)")
SUITES = "testing/"  # tests for users' types, which rtrain's types pass


def has_behavior(headers, header):
    stem = header.removesuffix(".hpp")
    if header.startswith(SUITES) or stem.endswith("_definitions") or is_forwarding(header, headers[header]) \
            or GENERATED.search(headers[header]):
        return False
    text = headers[header] + headers.get(f"{stem}_definitions.hpp", "")
    return re.search(r"\breturn\b|\bthrow\b", re.sub(r"//[^\n]*", "", text)) is not None


def untested(root):
    headers = read_headers(root)
    tested = set()
    for test in (root / "tests").rglob("*"):
        room = test.parent.relative_to(root / "tests").as_posix()
        below = "" if room == "." else room + "/"
        named = NAMED.fullmatch(test.name)
        if named:
            tested.add(f"{below}{named[1]}.hpp")
        if test.suffix in (".cpp", ".hpp") and test.is_file():
            tested.update(header for header in includes_of("", test.read_text(encoding="utf-8"))
                          if header.rpartition("/")[0] + "/" == (below or "/"))
    return sorted(header for header in headers if has_behavior(headers, header) and header not in tested)


def main():
    root = pathlib.Path(sys.argv[1])
    record = root / RECORD
    found = untested(root)
    allowed = json.loads(record.read_text(encoding="utf-8")) if record.exists() else found
    if sys.argv[2:3] == ["--update"]:
        record.write_text(json.dumps([header for header in allowed if header in found], indent=0) + "\n", encoding="utf-8")
        return 0
    wrong = [f"{HEADERS}/{header} has no test in tests/{header.rpartition('/')[0]}; docs/testing.md says where one goes"
             for header in found if header not in allowed]
    wrong += [f"{RECORD}: {header} has a test now, or is gone; run beside_test.py . --update"
              for header in allowed if header not in found]
    for line in wrong:
        print(f"beside_test: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
