#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether each header compiles on its own: included first, twice, and nothing beside it.

Usage: self_contained.py ROOT BUILD [--jobs N] [HEADER...]

Takes the compiler's flags from BUILD/compile_commands.json: those of a program that includes the
header, so that parts that need NCCL or Arrow are compiled where these are. Nothing is generated.

A header that reaches torch or MPI is compiled behind a precompiled header of the build that holds
none of ours, in a second or two instead of twenty: it must include whatever it needs of ours, while a
missing <string> is not seen. All others are compiled without it, and must include everything. What
looks otherwise to programs that link rtrain::compiled is compiled for these, too.

First it compiles headers that lack an include, and fails when the compiler does not mind. Ends with 77,
which is to skip, when the precompiled header was not built.
"""

import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import rooms_test

HEAVY = ("#include <torch/", "#include <ATen/", "#include <c10/", "#include <mpi.h>",
         "#include <nccl.h>")
SKIP = 77
PRECOMPILED = "cmake_pch.hxx"


class Tree:
    def __init__(self, root, build):
        self.root = root
        self.headers = rooms_test.read_headers(root)
        self.entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        self.reached_by = {header: self.closure(header, text)
                           for header, text in self.headers.items()}
        self.programs = []  # (what it includes of ours, flags, whether they precompile)
        for entry in self.entries:
            source = pathlib.Path(entry["file"])
            if source.suffix != ".cpp" or not source.exists():
                continue
            flags, precompiled = flags_of(entry)
            if "-fsanitize" in " ".join(flags):
                continue
            reached = self.closure(str(source), source.read_text(encoding="utf-8"))
            self.programs.append((reached, flags, precompiled))

    def closure(self, name, text):
        """The headers of ours that a text reaches, with those beside a program passed over."""
        reached, waiting = {name}, rooms_test.includes_of(name, text)
        while waiting:
            header = waiting.pop()
            if header not in reached and header in self.headers:
                reached.add(header)
                waiting += rooms_test.includes_of(header, self.headers[header])
        return reached

    def takes(self, header, libraries):
        """Whether a header reaches one of these: beginnings of lines that include them."""
        return any(word in self.headers.get(each, "") for each in self.reached_by[header]
                   for word in libraries)

    def flags(self, header):
        """Of a program that includes it; else of any that has all libraries."""
        first = self.with_all_libraries()
        for reached, flags, precompiled in first + self.programs:
            if header in reached:
                return flags, precompiled
        return first[0][1:]

    def with_all_libraries(self):
        """The programs that have a precompiled header without any of ours."""
        found = [program for program in self.programs if program[2] and not holds_ours(program[2])]
        if not found:
            sys.exit("self_contained: no program of the build has a precompiled header without ours")
        return found


@functools.cache
def holds_ours(precompiled):
    text = pathlib.Path(precompiled).read_text(encoding="utf-8")
    return re.search(r'#include [<"](.*/)?rtrain/[a-z0-9_/]+\.hpp', text) is not None


def flags_of(entry):
    """(compiler and flags of a compile command without its files, the precompiled header or None)"""
    words = entry.get("arguments") or shlex.split(entry["command"])
    while not pathlib.Path(words[0]).name.startswith(("c++", "g++", "clang++", "mpicxx")):
        words = words[1:]  # a launcher, such as ccache
    flags, precompiled, skip = [], None, 0
    for word, following in zip(words, words[1:] + [""]):
        if skip:
            skip -= 1
        elif word in ("-c", "-o"):
            skip = 1
        elif word == "-include" and following.endswith(PRECOMPILED):
            precompiled, skip = following, 1
        elif word in ("-Winvalid-pch", "-fpch-preprocess"):
            pass
        else:
            flags.append(word)
    return flags, precompiled


def compile_text(text, flags, precompiled=None):
    """What the compiler says against it; empty when it compiles."""
    command = [*flags, "-fsyntax-only", "-x", "c++"]
    if precompiled:
        command += ["-include", precompiled, "-Winvalid-pch"]
    done = subprocess.run([*command, "-"], input=text, text=True, capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stderr or f"it ended with {done.returncode}"


def jobs_of(tree, headers):
    """(name, text, flags, precompiled header or None)"""
    for header in headers:
        flags, precompiled = tree.flags(header)
        heavy = tree.takes(header, HEAVY)
        text = "#undef RTRAIN_COMPILED\n" + f"#include <rtrain/{header}>\n" * 2
        yield header, text, flags, precompiled if heavy else None
        if "RTRAIN_COMPILED" in tree.headers[header]:
            yield (f"{header} with RTRAIN_COMPILED",
                   text.replace("\n", "\n#define RTRAIN_COMPILED 1\n", 1), flags,
                   precompiled if heavy else None)


def controls(tree, directory):
    """(name, text, flags, precompiled header, whether it is to compile)"""
    _, flags, precompiled = tree.with_all_libraries()[0]
    flags = [*flags, f"-I{directory}"]

    def header(name, text):
        (directory / name).write_text(f"#pragma once\n{text}", encoding="utf-8")
        return f'#include "{name}"\n' * 2

    ours = "inline void f() { throw rtrain::Error(\"RT-T2\", \"\"); }\n"
    include = "#include <rtrain/base/error.hpp>\n"
    standard = "inline std::map<int, int> numbers() { return {}; }\n"
    yield "one that is right", header("right.hpp", include + ours), flags, None, True
    yield "one that lacks a header of ours", header("ours.hpp", ours), flags, None, False
    yield "one that lacks a standard header", header("standard.hpp", standard), flags, None, False
    yield ("one that is right, precompiled", header("heavy.hpp", include + ours), flags, precompiled,
           True)
    yield ("one that lacks a header of ours, precompiled", header("heavy_ours.hpp", ours), flags,
           precompiled, False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("headers", nargs="*", help="as users include them, without rtrain/")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    tree = Tree(arguments.root.resolve(), arguments.build.resolve())
    headers = arguments.headers or list(tree.headers)
    for header in headers:
        if header not in tree.headers:
            sys.exit(f"self_contained: there is no {header}")
    jobs = list(jobs_of(tree, headers))
    needed = {job[3] for job in jobs if job[3]}
    for each in needed:
        if not pathlib.Path(each + ".gch").exists():
            print(f"self_contained: {each}.gch was not built: cmake --build {arguments.build} "
                  "--target rtrain_compiled", file=sys.stderr)
            sys.exit(SKIP)

    began = time.monotonic()
    problems = []
    with tempfile.TemporaryDirectory() as temporary, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        tried = [job for job in controls(tree, pathlib.Path(temporary))
                 if job[3] is None or pathlib.Path(job[3] + ".gch").exists()]
        for (name, *_, right), said in zip(tried, pool.map(lambda job: compile_text(*job[1:4]), tried)):
            if (said == "") != right:
                problems.append(f"negative control, {name}: it {'does not compile' if said else 'compiles'}"
                                f"\n{said}")
        if not problems:
            for (name, *_), said in zip(jobs, pool.map(lambda job: compile_text(*job[1:4]), jobs)):
                if said:
                    first = next((line for line in said.splitlines() if "error" in line), said)
                    problems.append(f"{name}: {first}")
    for problem in problems:
        print(f"self_contained: {problem}", file=sys.stderr)
    print(f"{len(jobs)} compiled, {sum(job[3] is not None for job in jobs)} of them behind the "
          f"precompiled header, in {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
