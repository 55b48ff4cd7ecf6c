#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes include/rtrain/track/page/page_assets.hpp from the files beside this one, so that programs need only headers.

Usage: embed.py ROOT [--check]
"""

import pathlib
import sys

TARGET = "include/rtrain/track/page/page_assets.hpp"
NAMES = {"report.html": "report_html", "search.html": "search_html", "style.css": "page_style",
         "report.js": "report_script", "live.js": "live_script"}
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Made by assets/pages/embed.py from the other files there; change those.
/// @file
/// Templates, style and scripts of report.html, the live page and tune.html. Cost tier 0: std only.
#pragma once

namespace rtrain::track {
"""


def embedded(root):
    text = HEAD
    for file, name in NAMES.items():
        content = (root / "assets/pages" / file).read_text(encoding="utf-8")
        tag = file.rpartition(".")[2]
        assert f'){tag}"' not in content, f'{file}: a raw string cannot contain ){tag}"'
        text += f'\ninline constexpr const char* {name} =\n    R"{tag}({content}){tag}";\n'
    return text + "\n} // namespace rtrain::track\n"


def main():
    root = pathlib.Path(sys.argv[1])
    if "--check" not in sys.argv:
        (root / TARGET).write_text(embedded(root), encoding="utf-8")
    elif (root / TARGET).read_text(encoding="utf-8") != embedded(root):
        print(f"{TARGET} differs from assets/pages; run {sys.argv[0]} {sys.argv[1]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
