#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes into docs/errors.md what include/rtrain/base/error_table.inc has: the index, and the text of each
code. The introduction, and the text below the heading of each letter, are written by hand.

Usage: errors.py ROOT [--check]

With --check it writes nothing, and fails if the page would change, if nothing throws or prints a code of the
table, or if a header mentions a code that the table lacks.
"""

import pathlib
import re
import sys
import textwrap

HEADERS = "include/rtrain"
PYTHON = "examples/python"
TABLE = "include/rtrain/base/error_table.inc"
PAGE = "docs/errors.md"
MARKER = "<!-- index -->\n"
WIDTH = 140

ROW = re.compile(r'^RTRAIN_ERROR\((?P<letter>\w), (?P<number>\d+), (?P<kind>\w+), "(?P<meaning>(?:\\.|[^"\\])*)", '
                 r'R"(?P<mark>-?)\(\n(?P<advice>.*?)\)(?P=mark)"\)$', re.M | re.S)
TOKEN = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')  # comments and literals
CODE = re.compile(r"RT-[A-Z]\d+")
LETTER = re.compile(r"^# (\w): .*?(?=^#|\Z)", re.M | re.S)
FROM = re.compile(r"(from|in|of|or|when|with) (?:[^:]|::)*?: ")  # follows the class without a colon


class Row:
    """One error of the table."""

    def __init__(self, match):
        self.letter, self.kind = match["letter"], match["kind"]
        self.code = f"RT-{self.letter}{match['number']}"
        self.meaning = re.sub(r"\\(.)", r"\1", match["meaning"])
        self.advice = match["advice"]

    def name(self):
        """Of the class that users catch."""
        if self.kind in ("compile_time", "message"):
            return self.kind.replace("_", " ")
        return f"`{'' if self.kind == 'plain' else self.kind.title().replace('_', '')}Error`"

    def section(self):
        name = self.name()[0].upper() + self.name()[1:]
        first, *more = self.advice.split("\n\n")
        colon = "" if FROM.match(self.meaning) else ":"
        stop = ":" if first[0].islower() else "."
        paragraphs = [f"{name}{colon} {self.meaning}{stop} {first}", *more]
        texts = (textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) for text in paragraphs)
        return "\n\n".join([f"## {self.code}", *texts]) + "\n\n"

    def index(self):
        return f"| [{self.code}](#{self.code.lower()}) | {self.name()} | {self.meaning} |\n"


def rows_of(root):
    text = (root / TABLE).read_text(encoding="utf-8")
    rows = [Row(match) for match in ROW.finditer(text)]
    if len(rows) != text.count("\nRTRAIN_ERROR("):
        sys.exit(f"{TABLE}: has a row that is not of the form of the others")
    return rows


def page_of(text, rows):
    parts = text.split(MARKER)
    if len(parts) != 3:
        sys.exit(f"{PAGE}: needs the line {MARKER.strip()} twice, around the index")
    index = "| code | class | meaning |\n|---|---|---|\n" + "".join(row.index() for row in rows)
    letters = {match[1]: match[0] for match in LETTER.finditer(parts[2])}
    if missing := {row.letter for row in rows} - set(letters):
        sys.exit(f"{PAGE}: needs a heading for {', '.join(sorted(missing))}")
    sections = (letters[letter] + "".join(row.section() for row in rows if row.letter == letter)
                for letter in sorted(letters))
    return MARKER.join([parts[0], index, "\n" + "".join(sections).rstrip() + "\n"])


def strays(root, rows):
    """Codes of the table that no header throws or prints, and codes that it lacks."""
    tokens = [token for path in (root / HEADERS).rglob("*.hpp")
              for token in TOKEN.findall(path.read_text(encoding="utf-8"))]
    tokens += [token for path in (root / PYTHON).rglob("*.py")
               for token in re.findall(r'"[^"\n]*"', path.read_text(encoding="utf-8"))]
    mentioned = set(CODE.findall("\n".join(tokens)))
    used = set(CODE.findall("\n".join(token for token in tokens if token[0] == '"')))
    codes = {row.code for row in rows}
    yield from (f"{TABLE}: no header throws or prints {code}" for code in sorted(codes - used))
    yield from (f"{TABLE}: lacks {code}, which a header mentions" for code in sorted(mentioned - codes))


def main():
    root = pathlib.Path(sys.argv[1])
    rows = rows_of(root)
    text = (root / PAGE).read_text(encoding="utf-8")
    page = page_of(text, rows)
    wrong = list(strays(root, rows))
    if "--check" not in sys.argv:
        (root / PAGE).write_text(page, encoding="utf-8")
    elif text != page:
        wrong.append(f"{PAGE}: differs from the table; run {sys.argv[0]} {sys.argv[1]}")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    if not wrong:
        print(f"{len(rows)} codes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
