#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the index of docs/errors.md, between its markers, from the headers: each code with its class and
the headers that throw it. The text below each heading is written by hand.

Usage: errors.py ROOT [--check]

With --check it writes nothing, and fails if the page would change, or if the text of a code begins with
another class than the headers have.
"""

import collections
import pathlib
import re
import sys

HEADERS = "include/rtrain"
PAGE = "docs/errors.md"
BASE = "base/error.hpp"
MARKER = "<!-- index -->\n"
COMPILE_TIME, MESSAGE = "compile time", "message"

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
CODE = re.compile(r"RT-[A-Z]\d+")
CLASS = re.compile(r"\bclass (\w+)(?: final)? : public (?:\w+::)*(\w+) \{")
FUNCTION = re.compile(r"\b(\w+)\s+(?:\w+::)*(\w+)\(")


def sort_key(code):
    return code[3], int(code[4:])


def plain(text):
    """The text without comments, and with nothing but codes in its literals, so that marks are the compiler's."""
    def shortened(token):
        codes = CODE.findall(token[0]) if token[0][0] == '"' else []
        whole = codes and token[0] == f'"{codes[0]}"'
        if token[0][0] != '"':
            return ""
        return token[0] if whole else "".join(f'"[{code}]"' for code in codes) or '""'

    return TOKEN.sub(shortened, text)


class Library:
    """The headers, the exceptions they define, and the functions that return one."""

    def __init__(self, root):
        top = root / HEADERS
        self.texts = {str(path.relative_to(top)): plain(path.read_text(encoding="utf-8"))
                      for path in sorted(top.rglob("*.hpp"))}
        self.base_of = {name: base for text in self.texts.values() for name, base in CLASS.findall(text)}
        self.exceptions = {name for name in self.base_of if "Error" in self.lineage(name)} | {"Error"}
        base = self.texts[BASE]
        self.public = {name for name, _ in CLASS.findall(base) if name in self.exceptions} | {"Error"}
        self.own = {}  # codes that a class gives itself
        for piece in re.split(r"(?=\bclass )", base):
            if found := CLASS.match(piece):
                self.own |= {code: found[1] for code in re.findall(r"(?:: Error\(|own_code = )\"(RT-\w+)\"", piece)}
        self.returns = {name: type for text in self.texts.values() for type, name in FUNCTION.findall(text)
                        if type in self.exceptions}
        self.by_letter = dict(re.findall(r"case '([A-Z])':\s*throw (\w+)\(code", base))

    def lineage(self, name):
        found = [name]
        while found[-1] in self.base_of and self.base_of[found[-1]] not in found:
            found.append(self.base_of[found[-1]])
        return found

    def class_of(self, text, place, code):
        """What the code at `place` is given to; None where it is only compared."""
        before = text[:place]
        if before.endswith("["):
            asserted = before.rpartition("static_assert(")
            return COMPILE_TIME if asserted[1] and asserted[2].count("(") >= asserted[2].count(")") else MESSAGE
        if re.search(r"[=!<>]= \"$", before):
            return None
        if code in self.own:
            return self.own[code]
        for pattern in (r"(\w+)\s*[({]\s*\"$", r"(\w+)\s+\w+\s*[({]\s*\"$"):  # Error("...", Error name("..."
            called = re.search(pattern, before)
            if called and called[1] in self.exceptions:
                return called[1]
        called = re.search(r"(\w+)\((?:[^;{}()]|\([^;{}]*\))*\"$", before)
        if called and called[1] in self.returns:
            return self.returns[called[1]]
        if re.search(r"return\s*\{\s*\"$", before) or re.search(r"const char\* code = \"$", before):
            return [type for type, _ in FUNCTION.findall(before) if type in self.exceptions][-1]
        return self.by_letter.get(code[3], "Error")  # carried as a Failure, and thrown by throw_error()

    def named(self, name):
        """The class that users catch."""
        if name in (COMPILE_TIME, MESSAGE):
            return name
        return next(each for each in self.lineage(name) if each in self.public)

    def codes(self):
        """{code: ({class}, {header})}"""
        found = collections.defaultdict(set)
        for header, text in self.texts.items():
            for mention in CODE.finditer(text):
                if name := self.class_of(text, mention.start(), mention[0]):
                    found[mention[0]].add((self.named(name), header))
        for code, uses in found.items():  # of an exception that a text only mentions, the text does not count
            thrown = {use for use in uses if use[0] != MESSAGE}
            found[code] = tuple(map(set, zip(*(thrown or uses))))
        return dict(found)


def words(classes):
    return ", ".join(name if name in (COMPILE_TIME, MESSAGE) else f"`{name}`" for name in sorted(classes))


def table_of(codes):
    lines = ["| code | class | headers |", "|---|---|---|"]
    for code in sorted(codes, key=sort_key):
        classes, headers = codes[code]
        files = ", ".join(f"`{name}`" for name in sorted(headers))
        lines.append(f"| [{code}](#{code.lower()}) | {words(classes)} | {files} |")
    return "\n".join(lines) + "\n"


def contradictions(text, codes, exceptions):
    """Codes whose text begins with a class that the headers do not give them."""
    for code, named in re.findall(r"^##+ (RT-[A-Z]\d+)\n+`(\w+)`", text, re.M):
        if named in exceptions and code in codes and named not in codes[code][0]:
            yield f"{PAGE}: {code} begins with {named}, but the headers have {words(codes[code][0])}"


def main():
    root = pathlib.Path(sys.argv[1])
    library = Library(root)
    codes = library.codes()
    text = (root / PAGE).read_text(encoding="utf-8")
    parts = text.split(MARKER)
    if len(parts) != 3:
        sys.exit(f"{PAGE}: needs the line {MARKER.strip()} twice, around the index")
    page = MARKER.join([parts[0], table_of(codes), parts[2]])
    wrong = list(contradictions(text, codes, library.public))
    if "--check" not in sys.argv:
        (root / PAGE).write_text(page, encoding="utf-8")
    elif text != page:
        wrong.append(f"{PAGE}: the index differs from the headers; run {sys.argv[0]} {sys.argv[1]}")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    if not wrong:
        print(f"{len(codes)} codes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
