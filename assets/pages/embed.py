#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes headers of include/rtrain/track/page from the files beside this one, so that programs need only headers.

Usage: embed.py ROOT [--check]
"""

import pathlib
import sys

HEADERS = {
    "page_assets": ("Templates and style of report.html, the live page and tune.html.",
                    {"report.html": "report_html", "search.html": "search_html", "style.css": "page_style",
                     "live.js": "live_script"}),
    "report_script": ("The script of report.html, which draws its charts.", {"report.js": "report_script"}),
}
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Made by assets/pages/embed.py from the other files there; change those.
/// @file
/// {what} Cost tier 0: std only.
#pragma once

namespace rtrain::track {{
"""


def embedded(root, what, names):
    text = HEAD.format(what=what)
    for file, name in names.items():
        content = (root / "assets/pages" / file).read_text(encoding="utf-8")
        tag = file.rpartition(".")[2]
        assert f'){tag}"' not in content, f'{file}: a raw string cannot contain ){tag}"'
        text += f'\ninline constexpr const char* {name} =\n    R"{tag}({content}){tag}";\n'
    return text + "\n} // namespace rtrain::track\n"


def main():
    root = pathlib.Path(sys.argv[1])
    for header, (what, names) in HEADERS.items():
        path = f"include/rtrain/track/page/{header}.hpp"
        text = embedded(root, what, names)
        if "--check" not in sys.argv:
            (root / path).write_text(text, encoding="utf-8")
        elif (root / path).read_text(encoding="utf-8") != text:
            print(f"{path} differs from assets/pages; run {sys.argv[0]} {sys.argv[1]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
