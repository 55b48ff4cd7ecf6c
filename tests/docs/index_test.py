#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether docs/README.md links to every page once, under one of the four kinds, and README.md stays short.

Usage: index_test.py ROOT

The pages of docs/decisions and docs/benchmarks are linked from the README.md there. README.md links to
docs/README.md, has at most 600 words, and a table of at most 12 rows of at most 15 words.

Then it breaks each of these rules in a copy, and fails if it does not notice.
"""

import pathlib
import re
import shutil
import sys
import tempfile

INDEX = "docs/README.md"
DIRECTORIES = ("decisions", "benchmarks")
KINDS = ["Tutorials", "How-to guides", "Explanation", "Reference"]
MOST_WORDS, MOST_ROWS, MOST_WORDS_OF_ROW = 600, 12, 15
LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")


def linked_from(page):
    """The pages of its directory, or below, that a page links to, as often as it does."""
    targets = [(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))]
    return [target for target in targets if target.suffix == ".md" and page.parent.resolve() in target.parents]


def problems_of_index(root):
    docs = (root / "docs").resolve()
    text = (root / INDEX).read_text(encoding="utf-8")
    kinds = re.findall(r"^## (.*)$", text, re.M)
    if kinds != KINDS:
        yield f"{INDEX}: the kinds are {kinds}, not {KINDS}"
    below = text.partition(f"\n## {KINDS[0]}\n")[2]
    for line in below.splitlines():
        if line.startswith("- ") and not re.fullmatch(r"- \[[^]]+\]\([^)]+\): \S.*", line):
            yield f"{INDEX}: not of the form [title](page.md): what it is about: {line}"
    pages = {page for page in docs.glob("*.md") if page != docs / "README.md"}
    pages |= {docs / name / "README.md" for name in DIRECTORIES}
    yield from once(INDEX, linked_from(root / INDEX), pages, docs)
    for name in DIRECTORIES:
        directory = docs / name
        pages = {page for page in directory.glob("*.md") if page.name != "README.md"}
        found = dict.fromkeys(linked_from(directory / "README.md"))  # in text, as often as needed
        yield from once(f"docs/{name}/README.md", list(found), pages, docs)
    known = set(docs.glob("*.md")) | {page for name in DIRECTORIES for page in (docs / name).glob("*.md")}
    for page in sorted(set(docs.rglob("*.md")) - known):
        yield f"docs/{page.relative_to(docs)}: its directory has no index"


def once(index, found, pages, docs):
    for page in sorted(pages):
        if found.count(page) != 1:
            yield f"{index}: links {found.count(page)} times to {page.relative_to(docs)}, not once"


def words_of(row):
    """Those that are read: without targets of links, bars and marks."""
    row = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row)
    return [word for word in row.split() if re.search(r"\w", word)]


def problems_of_readme(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    if INDEX not in LINK.findall(text):
        yield f"README.md: no link to {INDEX}"
    if len(text.split()) > MOST_WORDS:
        yield f"README.md: {len(text.split())} words; at most {MOST_WORDS}"
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    rows = [line for line in prose.splitlines() if line.startswith("|") and re.search(r"\w", line)]
    if not rows:
        yield "README.md: no table"
    if len(rows) > MOST_ROWS:
        yield f"README.md: a table of {len(rows)} rows; at most {MOST_ROWS}"
    for row in rows:
        if len(words_of(row)) > MOST_WORDS_OF_ROW:
            yield f"README.md: a row of {len(words_of(row))} words; at most {MOST_WORDS_OF_ROW}: {row}"
        if not LINK.search(row):
            yield f"README.md: a row without a link: {row}"


def problems_of(root):
    return [*problems_of_index(root), *problems_of_readme(root)]


# Negative controls: file, what is replaced by what, and what must be said of it. "" replaces nothing: text is added.
ROW = "| [Data](docs/data.md) | rows |\n"
CONTROLS = [
    ("docs/new.md", "", "# New\n", "links 0 times to new.md"),
    ("docs/new/page.md", "", "# New\n", "docs/new/page.md: its directory has no index"),
    ("docs/decisions/9999-new.md", "", "# 9999: new\n", "links 0 times to decisions/9999-new.md"),
    ("docs/benchmarks/new.md", "", "# New\n", "links 0 times to benchmarks/new.md"),
    (INDEX, "](errors.md)", "](data.md)", "links 2 times to data.md"),
    (INDEX, "](decisions/README.md)", "](errors.md)", "links 0 times to decisions/README.md"),
    (INDEX, "## Explanation", "## Thoughts", "the kinds are"),
    (INDEX, "", "- [Errors](errors.md)\n", "not of the form"),
    ("README.md", "](docs/README.md)", "](docs/errors.md)", "no link to docs/README.md"),
    ("README.md", "", "word " * MOST_WORDS, f"words; at most {MOST_WORDS}"),
    ("README.md", "", ROW * MOST_ROWS, f"rows; at most {MOST_ROWS}"),
    ("README.md", "", ROW.replace("rows", "word " * MOST_WORDS_OF_ROW), f"words; at most {MOST_WORDS_OF_ROW}"),
    ("README.md", "", "| data | rows |\n", "a row without a link"),
]


def unnoticed(root):
    for name, old, new, expected in CONTROLS:
        with tempfile.TemporaryDirectory() as directory:
            copy = pathlib.Path(directory)
            shutil.copytree(root / "docs", copy / "docs")
            shutil.copy(root / "README.md", copy)
            path = copy / name
            path.parent.mkdir(exist_ok=True)
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            assert old in text, f"{name} has no {old} any more"
            path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")
            if not any(expected in problem for problem in problems_of(copy)):
                yield f"a control is not noticed: nothing says {expected!r}"


def main():
    root = pathlib.Path(sys.argv[1])
    problems = problems_of(root) or list(unnoticed(root))
    print(*problems, sep="\n", end="\n" if problems else "")
    if not problems:
        words = len((root / "README.md").read_text(encoding="utf-8").split())
        print(f"{len(linked_from(root / INDEX))} pages, README.md has {words} words")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
