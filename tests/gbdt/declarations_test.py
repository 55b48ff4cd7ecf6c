#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the C functions that rtrain declares are those of the libraries' headers: one source includes both,
and the compiler compares them. A wrong declaration must not compile.

Usage: declarations_test.py ROOT SCRATCH COMPILER

The headers come from the source packages of the installed versions, which pip downloads once into SCRATCH; without
a network the test is skipped (77).
"""

import pathlib
import subprocess
import sys
import tarfile

from importlib import metadata

LIBRARIES = {
    "xgboost": ("xgboost-cpu", "xgboost", "XGBOOST", "xgboost/c_api.h"),
    "lightgbm": ("lightgbm", "lightgbm", "LIGHTGBM", "LightGBM/c_api.h"),
}


def headers_of(package, source, header, scratch):
    """The include directory of a library's source package, or None."""
    found = sorted(scratch.rglob(f"include/{header}"))
    if not found:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            return None
        command = ["download", "--quiet", "--no-deps", "--no-binary", source, "--dest"]
        subprocess.run(
            [sys.executable, "-m", "pip", *command, str(scratch), f"{source}=={version}"],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for archive in scratch.glob(f"{source}-*.tar.gz"):
            with tarfile.open(archive) as files:
                files.extractall(scratch, filter="data")
        found = sorted(scratch.rglob(f"include/{header}"))
    return found[0].parents[1] if found else None


def compiles(compiler, root, include, macro, header, ours):
    source = f"#include <{header}>\n#define RTRAIN_OWN_{macro}_DECLARATIONS\n{ours}\n"
    command = [compiler, "-std=gnu++20", "-fsyntax-only", "-w", "-x", "c++", f"-I{root}/include", f"-isystem{include}", "-"]
    return subprocess.run(command, input=source, text=True, capture_output=True, check=False)


def main(root, scratch, compiler):
    checked = 0
    for name, (package, source, macro, header) in LIBRARIES.items():
        include = headers_of(package, source, header, scratch)
        if include is None:
            print(f"skipped: the headers of {name} cannot be downloaded")
            continue
        ours = f"#include <rtrain/gbdt/{name}/functions.hpp>"
        done = compiles(compiler, root, include, macro, header, ours)
        assert done.returncode == 0, done.stderr
        text = (root / f"include/rtrain/gbdt/{name}/functions.hpp").read_text()
        free = "BoosterFree(BoosterHandle handle);"
        wrong = text.replace("#pragma once", "").replace(f"int XG{free}", f"long XG{free}")
        wrong = wrong.replace(f"int LGBM_{free}", f"long LGBM_{free}")
        assert compiles(compiler, root, include, macro, header, wrong).returncode != 0, "a wrong type went unnoticed"
        checked += 1
    return 0 if checked == len(LIBRARIES) else 77


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]))
