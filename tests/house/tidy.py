#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether clang-tidy 16 finds nothing in the headers, with the checks of .clang-tidy.

Usage: tidy.py ROOT BUILD [HEADER...]

One text includes all of them, for header-only use and so with what stands behind doors; with HEADERs, as users include
them without rtrain/, these. It leaves out those whose libraries this machine lacks. Takes directories from
BUILD/compile_commands.json. Ends with 77, which is to skip, where there is no clang-tidy-16: other versions find other
things.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import self_contained

TIDY = "clang-tidy-16"
SKIP = 77
OPTIONAL = ("arrow/api.h", "nccl.h", "doctest/doctest.h", "openssl/ssl.h", "turbojpeg.h", "png.h")
OTHER_MPI = re.compile(r"/(ompi5|mpich)/")
WRONG = """#pragma once
#include <string>
#include <utility>
inline std::string twice(std::string text) {
    std::string taken = std::move(text);
    return taken + text;
}
"""


def flags_of(tree):
    """The library's own macros, and the directories of all libraries that the build knows."""
    directories = []
    for entry in tree.entries:
        flags, _ = self_contained.flags_of(entry)
        directories += [at for word, at in zip(flags, flags[1:]) if word == "-isystem" and not OTHER_MPI.search(at)]
    return ["-std=gnu++20", "-w", f"-I{tree.root / 'include'}", "-DOMPI_SKIP_MPICXX=1", "-DBOOST_JSON_DYN_LINK",
            *(f"-isystem{directory}" for directory in dict.fromkeys(directories))]


def headers_of(tree, flags):
    """Those whose libraries are here, doors before what is behind them."""
    places = [pathlib.Path(flag.removeprefix("-isystem")) for flag in flags if flag.startswith("-isystem")]
    missing = [f"#include <{header.split('/')[0]}" for header in OPTIONAL
               if not any((place / header).exists() for place in [*places, pathlib.Path("/usr/include")])]
    headers = [header for header in tree.headers if not tree.takes(header, missing)]
    return sorted(headers, key=lambda header: ("/" in header, header))


def found_by(tree, text, directory, flags):
    """What clang-tidy says; empty when it finds nothing."""
    source = directory / "text.cpp"
    source.write_text(text, encoding="utf-8")
    done = subprocess.run([TIDY, "--quiet", f"--config-file={tree.root / '.clang-tidy'}", str(source), "--", *flags],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return "" if done.returncode == 0 else done.stdout or f"it ended with {done.returncode}"


def main():
    if not shutil.which(TIDY):
        print(f"tidy: there is no {TIDY}", file=sys.stderr)
        return SKIP
    tree = self_contained.Tree(*(pathlib.Path(word).resolve() for word in sys.argv[1:3]))
    flags = flags_of(tree)
    headers = sys.argv[3:] or headers_of(tree, flags)
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        header = directory / "include/rtrain/wrong.hpp"
        header.parent.mkdir(parents=True)
        header.write_text(WRONG, encoding="utf-8")
        said = found_by(tree, f'#include "{header}"\n', directory, flags)
        if "wrong.hpp:6" not in said or "use-after-move" not in said:
            print(f"tidy: a use after a move in a header is not found:\n{said}", file=sys.stderr)
            return 1
        began = time.monotonic()
        said = found_by(tree, "".join(f"#include <rtrain/{name}>\n" for name in headers), directory, flags)
    print(said, end="", file=sys.stderr)
    print(f"{len(headers)} headers in {time.monotonic() - began:.0f} s")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
