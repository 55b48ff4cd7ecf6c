#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether each link within the repository's Markdown leads to a file, and each anchor to a heading
there. Addresses on the network are not asked for.

Usage: links_test.py ROOT
"""

import pathlib
import re
import sys
import tempfile
import urllib.parse

PAGES = ["*.md", "docs/**/*.md", "benchmarks/**/*.md", "examples/**/*.md", ".github/**/*.md"]


def without_code(text):
    """The text without blocks and spans of code, line for line."""
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2[^\n]*$",
                  lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)


def anchors(text):
    """What GitHub calls the headings of a page, and names that the page gives itself."""
    found, seen = set(re.findall(r'<a (?:id|name)="([^"]+)"', text)), {}
    blocks = re.sub(r"^( *)(```+|~~~+).*?^\1\2[^\n]*$", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#{1,6} +(.*?)#* *$", blocks, re.M):
        heading = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        again = seen.get(name, 0)
        seen[name] = again + 1
        found.add(f"{name}-{again}" if again else name)
    return found


def links(text):
    """Line and target of each link: [words](target), <img src>, [name]: target."""
    for number, line in enumerate(without_code(text).replace("](\n", "](").splitlines(), 1):
        for target in re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", line):
            yield number, target
        for target in re.findall(r'<(?:a|img)[^>]* (?:href|src)="([^"]+)"', line):
            yield number, target
        for target in re.findall(r"^ {0,3}\[[^]]+\]: +(\S+)", line):
            yield number, target


def dead_links(root):
    pages = sorted({page for pattern in PAGES for page in root.glob(pattern)})
    known, wrong, count = {}, [], 0
    for page in pages:
        for line, target in links(page.read_text()):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            count += 1
            path, _, anchor = urllib.parse.unquote(target).partition("#")
            file = (page.parent / path).resolve() if path else page.resolve()
            where = f"{page.relative_to(root)}:{line}: {target}"
            if not file.exists():
                wrong.append(f"{where}: there is no such file")
            elif root.resolve() not in [file, *file.parents]:
                wrong.append(f"{where}: leads out of the repository")
            elif anchor and file.suffix == ".md":
                if file not in known:
                    known[file] = anchors(file.read_text())
                if anchor not in known[file]:
                    wrong.append(f"{where}: no such heading")
    return wrong, len(pages), count


def check_that_dead_links_are_noticed():
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        (root / "docs").mkdir()
        (root / "docs/b.md").write_text("# A `b()`, twice\n# A b, twice\n```sh\n# no heading\n```\n")
        (root / "a.md").write_text(
            "[1](docs/b.md#a-b-twice-1) `[code](none.md)` [2](https://example.org)\n"
            "[3](docs/c.md)\n[4](docs/b.md#no-heading) ![5](docs/b.png)\n\n[6]: docs/d.md\n")
        wrong, pages, count = dead_links(root)
        found = [line.rsplit(": ", 1)[0] for line in wrong]
        assert found == ["a.md:2: docs/c.md", "a.md:3: docs/b.md#no-heading", "a.md:3: docs/b.png",
                         "a.md:5: docs/d.md"], wrong
        assert (pages, count) == (2, 5), (pages, count)


def main():
    check_that_dead_links_are_noticed()
    wrong, pages, count = dead_links(pathlib.Path(sys.argv[1]))
    print(*wrong, f"{count} links of {pages} pages", sep="\n")
    assert count > 100, "this test reads the pages no more"
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
