#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cmake/module/rtrain_names.inc, what `import rtrain;` gives: the names that the public headers
(public_headers.txt) declare in rtrain, without those of components and of conformance suites, which take more
than the library needs.

Usage: module_names.py ROOT [--check]

With --check it writes nothing, and fails when the file is not as it would be written.
"""

import pathlib
import re
import sys

TARGET = "cmake/module/rtrain_names.inc"
# What these need, not every user has.
LEFT_OUT = ("backend/nccl.hpp", "data/tables/arrow.hpp", "data/tables/csv.hpp", "data/tables/csv_options.hpp",
            "data/images/images.hpp", "data/tables/parquet.hpp", "storage/cloud/arrow.hpp", "testing/",
            "track/http/https.hpp", "process/stack/stacktrace.hpp", "gbdt/", "xgboost.hpp", "lightgbm.hpp")
HIDDEN = {"detail", "internal"}

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<text>R"\((?:.*?)\)"|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:'?[\w.])*)
  | (?P<mark>::|->|<=>|[=!<>]=|&&|\|\||\[\[|\]\]|.)
""", re.X | re.S)


def tokens_of(text):
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.)*$", "", re.sub(r"\\\n", " ", text), flags=re.M)
    for found in TOKEN.finditer(text):
        if found.lastgroup != "skip":
            yield found[0]


def behind_brackets(tokens, at, opening, closing):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    while True:
        depth += (tokens[at] == opening) - (tokens[at] == closing)
        at += 1
        if depth == 0:
            return at


def behind_attributes(tokens, at):
    while at < len(tokens) and tokens[at] == "[[":
        at = behind_brackets(tokens, at, "[[", "]]")
    return at


def behind_template(tokens, at):
    """Behind `template <...> requires ...`; `requires` needs brackets, or is a conjunction of names."""
    while tokens[at] == "template":
        at = behind_brackets(tokens, at + 1, "<", ">")
        if tokens[at] != "requires":
            continue
        at += 1
        while True:
            if tokens[at] == "!":
                at += 1
            if tokens[at] == "requires":  # an expression
                at += 1
                if tokens[at] == "(":
                    at = behind_brackets(tokens, at, "(", ")")
                at = behind_brackets(tokens, at, "{", "}")
            elif tokens[at] == "(":
                at = behind_brackets(tokens, at, "(", ")")
            else:
                at += 1
                while tokens[at] in ("::", "<"):
                    at = behind_brackets(tokens, at, "<", ">") if tokens[at] == "<" else at + 2
            if tokens[at] not in ("&&", "||"):
                break
            at += 1
    return at


def name_of(tokens):
    """What a declaration, without its template head and body, declares; None: nothing of its own."""
    at = behind_attributes(tokens, 0)
    first = tokens[at]
    if first == "TORCH_MODULE":
        return tokens[at + 2]
    if first in ("using", "concept", "namespace"):
        return tokens[at + 1] if "=" in tokens else None  # no using-declaration
    if first in ("class", "struct", "enum", "union"):
        at += 1 + (first == "enum" and tokens[at + 1] in ("class", "struct"))
        at = behind_attributes(tokens, at)
        is_definition = tokens[at + 1:at + 2] in ([], [":"], ["final"])
        if is_definition:
            return tokens[at]
        if tokens[at + 1] == "<":
            return None  # a specialization
    if first in ("static_assert", "extern", "friend"):
        return None
    if "operator" in tokens:
        at = tokens.index("operator")
        return "".join(tokens[at:tokens.index("(", at)])
    depth = 0
    for at, token in enumerate(tokens):
        if token in ("<", "(", "[["):
            if token == "(" and depth == 0:
                return tokens[at - 1] if tokens[at - 2] != "::" else None
            depth += 1
        elif token in (">", ")", "]]"):
            depth -= 1
        elif token == "=" and depth == 0:
            tokens = tokens[:at]
            break
    if tokens[-1] == ">":  # of a variable's specialization
        return None
    return tokens[-1]


def names_in(text):
    """The namespaces below rtrain, "" for itself, each with a name that is declared there."""
    tokens = list(tokens_of(text))
    scopes, at, begin = [], 0, 0
    while at < len(tokens):
        token = tokens[at]
        if token == "}":
            scopes.pop()
            at = begin = at + 1
        elif token == "namespace" and at == begin and tokens[at + 2] != "=":
            parts = [] if tokens[at + 1] == "{" else [tokens[at + 1]]
            at += 1 + len(parts)
            while tokens[at] == "::":
                parts.append(tokens[at + 1])
                at += 2
            assert tokens[at] == "{", tokens[begin:at + 1]
            scopes.append(parts or ["internal"])
            at = begin = at + 1
        elif token == "template":
            at = behind_template(tokens, at)
            begin = at
        elif token == "(":
            at = behind_brackets(tokens, at, "(", ")")
        elif token in (";", "{"):
            path = [part for scope in scopes for part in scope]
            declared = tokens[begin:at]
            if declared and path[:1] == ["rtrain"] and not HIDDEN & set(path):
                name = name_of(declared)
                if name:
                    yield "::".join(path[1:]), name
            if token == "{":
                at = behind_brackets(tokens, at, "{", "}")
                if at < len(tokens) and tokens[at] == ";":
                    at += 1
            else:
                at += 1
            begin = at
        else:
            at += 1


def page_of(root):
    listed = (root / "scripts/documentation/public_headers.txt").read_text(encoding="utf-8").splitlines()
    headers = [line for line in listed if line and not line.startswith(("#", *LEFT_OUT))]
    names = {}
    for header in headers:
        for space, name in names_in((root / "include/rtrain" / header).read_text(encoding="utf-8")):
            names.setdefault(space, set()).add(name)
    lines = ["// SPDX-License-Identifier: Apache-2.0",
             "// Made by scripts/documentation/module_names.py from the public headers."]
    for space in sorted(names):
        lines.append(f"export namespace {'::'.join(['rtrain', space] if space else ['rtrain'])} {{")
        lines += [f"using {'::'.join(['rtrain', space, name] if space else ['rtrain', name])};"
                  for name in sorted(names[space])]
        lines.append("}")
    return headers, "\n".join(lines) + "\n", sum(len(each) for each in names.values())


def main():
    root = pathlib.Path(sys.argv[1])
    headers, page, count = page_of(root)
    unit = (root / "cmake/module/rtrain.cppm").read_text(encoding="utf-8")
    missing = [header for header in headers if f"#include <rtrain/{header}>\n" not in unit]
    if missing:
        print(f"cmake/module/rtrain.cppm does not include {', '.join(missing)}", file=sys.stderr)
        return 1
    if "--check" not in sys.argv:
        (root / TARGET).write_text(page, encoding="utf-8")
    elif (root / TARGET).read_text(encoding="utf-8") != page:
        print(f"{TARGET} is not what the public headers declare; run {sys.argv[0]} {sys.argv[1]}", file=sys.stderr)
        return 1
    print(f"{count} names of {len(headers)} headers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
