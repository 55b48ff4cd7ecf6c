#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the C functions that rtrain declares are those of the libraries. pip's packages have no headers, and a
C symbol has no types, so the declarations are compared with the libraries' headers once, when they change:

    declarations_test.py ROOT compare COMPILER XGBOOST LIGHTGBM

where the latter are git clones with tags. One source includes a version's header and rtrain's declarations, for every
version that rtrain supports, and the compiler compares them; a wrong declaration must not compile. The digest of what
was compared is written into declarations.json. The test,

    declarations_test.py ROOT

checks in a moment that the declarations are still those, and that the installed libraries have all functions.
"""

import ctypes
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RECORD = pathlib.Path(__file__).with_name("declarations.json")
LIBRARIES = {  # the header, the oldest version, and the library in pip's package
    "xgboost": ("xgboost/c_api.h", (2, 1, 0), "xgboost/lib/libxgboost.so"),
    "lightgbm": ("LightGBM/c_api.h", (4, 3, 0), "lightgbm/lib/lib_lightgbm.so"),
}


def source_of(root, name):
    return (root / f"include/rtrain/gbdt/{name}/functions.hpp").read_text()


def declarations_of(root, name):
    """rtrain's own declarations, without comments and spaces."""
    text = source_of(root, name).split("#else\n")[1].split("#endif")[0]
    return " ".join(re.sub("//.*", "", text).split())


def digest_of(root, name):
    return hashlib.sha256(declarations_of(root, name).encode()).hexdigest()


def functions_of(root, name):
    return re.findall(r"\b((?:XG|LGBM_)\w+)\(", declarations_of(root, name))


def versions_of(clone, oldest):
    tags = subprocess.run(["git", "-C", clone, "tag"], check=True, capture_output=True, text=True).stdout.split()
    found = [tag for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    numbers = {tag: tuple(map(int, tag[1:].split("."))) for tag in found}
    return sorted((tag for tag in found if numbers[tag] >= oldest), key=numbers.get)


def compiles(compiler, include, header, name, declarations, root):
    own = f"#define RTRAIN_OWN_{name.upper()}_DECLARATIONS\n"
    source = f"#include <{header}>\n{own}{declarations.replace('#pragma once', '')}"
    command = [compiler, "-std=gnu++20", "-fsyntax-only", "-w", "-x", "c++", f"-I{root}/include", f"-I{include}", "-"]
    return subprocess.run(command, input=source, text=True, capture_output=True, check=False)


def compare(root, compiler, clones):
    record = {}
    for (name, (header, oldest, _)), clone in zip(LIBRARIES.items(), clones):
        declarations = source_of(root, name)
        free = "BoosterFree(BoosterHandle handle);"
        wrong = declarations.replace(f"int XG{free}", f"long XG{free}").replace(f"int LGBM_{free}", f"long LGBM_{free}")
        versions = versions_of(clone, oldest)
        assert versions, f"{clone} has no tag of {name}"
        for version in versions:
            with tempfile.TemporaryDirectory() as include:
                archive = subprocess.run(["git", "-C", clone, "archive", version, "include"], check=True, capture_output=True)
                subprocess.run(["tar", "-x", "-C", include, "--strip-components=1"], input=archive.stdout, check=True)
                done = compiles(compiler, include, header, name, declarations, root)
                assert done.returncode == 0, f"{name} {version}:\n{done.stderr}"
                done = compiles(compiler, include, header, name, wrong, root)
                assert "BoosterFree" in done.stderr, f"{name} {version}: a wrong type went unnoticed: {done.stderr}"
        record[name] = {"compared with": versions, "sha256": digest_of(root, name)}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def main(root):
    record = json.loads(RECORD.read_text())
    installed = 0
    for name, (_, _, file) in LIBRARIES.items():
        assert digest_of(root, name) == record[name]["sha256"], (
            f"the declarations of {name} have changed; compare them with the headers: {__doc__}"
        )
        functions = functions_of(root, name)
        assert len(functions) > 20, functions
        libraries = [pathlib.Path(path) / file for path in sys.path if (pathlib.Path(path) / file).exists()]
        if libraries:
            library = ctypes.CDLL(str(libraries[0]))
            missing = [function for function in functions if not hasattr(library, function)]
            assert not missing, f"{libraries[0]} lacks {missing}"
            installed += 1
    print(f"{installed} of {len(LIBRARIES)} libraries are installed")


if __name__ == "__main__":
    if sys.argv[2:3] == ["compare"]:
        compare(pathlib.Path(sys.argv[1]), sys.argv[3], sys.argv[4:])
    main(pathlib.Path(sys.argv[1]))
