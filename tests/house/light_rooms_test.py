#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the rooms that need no tensors, or no ranks, are free of the library for them.

Usage: light_rooms_test.py ROOT

What includes neither libtorch nor MPI compiles in seconds, and so do its tests. A room is listed when none
of its headers reaches the library through any include, so a room that has become free joins the list.
rtrain::core promises the rooms of CORE, which therefore stay in both lists.

Then it breaks the rule in a copy of the headers, and fails when it does not notice."""

import argparse
import pathlib
import re
import shutil
import sys
import tempfile

from rooms_test import HEADERS, includes_of, is_forwarding, read_headers

# <torch/version.h> holds nothing but macros.
INCLUDES = {"libtorch": re.compile(r"#include <(?:torch|ATen|c10)/(?!version\.h>)"),
            "MPI": re.compile(r"#include <mpi\.h>")}

# The component core (docs/packages.md).
CORE = {
    "base", "base/text", "checkpoint/store", "config", "console", "journal", "launch", "launch/calls",
    "launch/control", "launch/supervise", "launch/watch", "process", "process/memory", "process/os", "process/preemption",
    "process/stack", "process/status", "process/stdio", "program", "program/options", "program/process", "program/report",
    "schedule", "storage", "storage/file", "storage/node", "track", "track/callback", "track/delivery", "track/files", "track/http", "track/live", "track/mlflow", "track/offline", "track/page",
    "track/tensorboard", "track/terminal"}
WITHOUT_LIBTORCH = CORE | {
    "comm/memory", "format/pickle", "storage/cloud", "tune/base", "tune/controller", "tune/ranks", "tune/record",
    "tune/resources", "tune/schedule", "tune/search"}
WITHOUT_MPI = WITHOUT_LIBTORCH | {
    "checkpoint", "checkpoint/layout", "checkpoint/policy", "comm/device", "comm/kernels", "comm/nccl", "data",
    "data/batch", "data/dataset", "data/files", "data/images", "data/order", "data/readers", "data/stream",
    "data/tables", "fit", "fit/callbacks", "format", "metric", "model/activation", "model/amp", "model/batch_norm",
    "model/ddp", "model/hooks", "model/options", "model/parameters", "model/profile", "model/reduction",
    "model/script", "preprocess", "run", "run/options", "state", "testing", "track/lines",
    "tune/processes", "tune/threads"}


def read_includes(root):
    """{header: (headers of ours that it includes, libraries that it includes)}"""
    return {header: (includes_of(header, text), {name for name, found in INCLUDES.items() if found.search(text)})
            for header, text in read_headers(root).items() if not is_forwarding(header, text)}


def way_to(library, header, includes):
    """The includes that lead from the header to the library, or None."""
    open_, seen = [(header,)], {header}
    while open_:
        way = open_.pop(0)
        ours, libraries = includes.get(way[-1], ((), ()))
        if library in libraries:
            return way
        for following in ours:
            if following not in seen:
                seen.add(following)
                open_.append((*way, following))
    return None


def faults(root):
    includes = read_includes(root)
    rooms = {str(pathlib.PurePosixPath(header).parent) for header in includes} - {"."}
    found = []
    for library, free in (("libtorch", WITHOUT_LIBTORCH), ("MPI", WITHOUT_MPI)):
        for room in sorted(rooms | free):
            here = [header for header in sorted(includes) if str(pathlib.PurePosixPath(header).parent) == room]
            ways = [way for header in here if (way := way_to(library, header, includes))]
            if not here:
                found.append(f"the list of rooms without {library} names {room}, which holds no header")
            elif room in free and ways:
                found.append(f"{room} is listed as free of {library}, but includes it: {' > '.join(ways[0])}")
            elif room not in free and not ways:
                found.append(f"{room} is free of {library}; add it to the list in {pathlib.Path(__file__).name}")
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("root", type=pathlib.Path)
    root = arguments.parse_args().root
    found = faults(root)
    for fault in found:
        print(f"light_rooms_test: {fault}")
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch)
        shutil.copytree(root / HEADERS, copy / HEADERS)
        header = copy / HEADERS / "launch/fit_outcome.hpp"
        header.write_text(header.read_text(encoding="utf-8") + "#include <c10/util/Exception.h>\n", encoding="utf-8")
        if not any("launch is listed as free of libtorch" in fault for fault in faults(copy)):
            found.append("not noticed")
            print("light_rooms_test: a header of launch/ that includes libtorch was not noticed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
