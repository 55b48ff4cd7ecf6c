#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of rooms in docs/architecture.md, between its markers, from tests/house/rooms.json.

Usage: architecture.py ROOT [--check]

With --check it writes nothing, and fails if the page would change.
"""

import json
import pathlib
import sys

ROOMS = "tests/house/rooms.json"
PAGE = "docs/architecture.md"
MARKER = "<!-- rooms -->\n"


def table_of(rooms):
    lines = ["| room | holds | may include |", "|---|---|---|"]
    for each in rooms:
        allowed = each["may include"]
        words = allowed if isinstance(allowed, str) else ", ".join(f"`{room}`" for room in allowed)
        lines.append(" ".join(f"| `{each['room']}` | {each['holds']} | {words} |".split()))
    return "\n".join(lines) + "\n"


def page_with(text, table):
    parts = text.split(MARKER)
    if len(parts) != 3:
        sys.exit(f"{PAGE}: needs the line {MARKER.strip()} twice, around the table of rooms")
    return MARKER.join([parts[0], table, parts[2]])


def main():
    root = pathlib.Path(sys.argv[1])
    rooms = json.loads((root / ROOMS).read_text(encoding="utf-8"))
    text = (root / PAGE).read_text(encoding="utf-8")
    page = page_with(text, table_of(rooms))
    if "--check" not in sys.argv:
        (root / PAGE).write_text(page, encoding="utf-8")
    elif text != page:
        print(f"{PAGE}: the table of rooms differs from {ROOMS}; run {sys.argv[0]} {sys.argv[1]}", file=sys.stderr)
        return 1
    print(f"{len(rooms)} rooms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
