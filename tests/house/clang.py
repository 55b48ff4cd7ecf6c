#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether clang, the oldest and the newest here, takes what users include, and the program of docs/training-program.md, without a warning.

Usage: clang.py ROOT BUILD PROGRAM...

Each PROGRAM, and a text that includes all headers of the root, goes through clang's front end, with the
macros and directories of the first entry of BUILD/compile_commands.json that compiles one_model for
header-only use. Ends with 77, which is to skip, where no clang from 14 on is found.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

SKIP = 77
OLDEST = 14


def find_clangs():
    """By version."""
    found = {}
    for name in ("clang++", *(f"clang++-{version}" for version in range(OLDEST, 26))):
        if path := shutil.which(name):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
            version = re.search(r"clang version (\d+)", said.stdout)
            if version and int(version[1]) >= OLDEST:
                found[int(version[1])] = path
    return found


def flags_of(build):
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    command = next(each["command"] for each in entries
                   if "compile_one_model_headers.dir" in each["command"])
    words = command.split()
    kept = [word for word in words if word.startswith(("-D", "-I"))]
    system = [words[i + 1] for i, word in enumerate(words) if word == "-isystem"]
    return kept + [f"-isystem{directory}" for directory in system]


def front_end(clang, flags, text, directory):
    """What it says; empty when it compiles."""
    command = [clang, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *flags]
    done = subprocess.run([*command, "-x", "c++", "-"], input=text, text=True, cwd=directory,
                          capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stderr or f"it ended with {done.returncode}"


def main():
    root, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    clangs = find_clangs()
    if not clangs:
        print(f"clang: there is no clang from {OLDEST} on", file=sys.stderr)
        return SKIP
    flags = flags_of(build)
    headers = sorted(path.name for path in (root / "include" / "rtrain").glob("*.hpp"))
    texts = {"the headers": "".join(f"#include <rtrain/{name}>\n" for name in headers)}
    texts |= {path: pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[3:]}
    failed = 0
    for clang in {clangs[min(clangs)], clangs[max(clangs)]}:
        if not front_end(clang, flags, "#include <rtrain/version.hpp>\nint x = rtrain::none;\n", build):
            print("clang: a program that is wrong compiles, so this sees nothing", file=sys.stderr)
            return 1
        for name, text in texts.items():
            if said := front_end(clang, flags, text, build):
                print(f"{clang}: {name}:\n{said}", file=sys.stderr)
                failed = 1
        print(f"{clang}: {len(headers)} headers and {len(sys.argv) - 3} programs")
    return failed


if __name__ == "__main__":
    sys.exit(main())
