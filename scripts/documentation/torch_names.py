#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cmake/module/torch_names.inc: what `import rtrain;` gives of torch. Those are the names of the
namespaces below that all given versions of libtorch have and a module can export.

Usage: torch_names.py ROOT CLANG TORCH...

CLANG is a clang++ that can do modules; each TORCH holds libtorch's include/, the first the version whose names
are looked through. Takes half a minute for each. torch's own names of at:: and c10:: are among them, such as
torch::relu. What has a name for itself in each file cannot be exported: constants such as torch::kFloat32.
"""

import collections
import pathlib
import re
import subprocess
import sys

TARGET = "cmake/module/torch_names.inc"
SPACES = ["at::indexing", "torch", "torch::autograd", "torch::cuda", "torch::data", "torch::data::datasets",
          "torch::data::samplers", "torch::data::transforms", "torch::fft",
          "torch::linalg", "torch::nn", "torch::nn::functional", "torch::nn::init", "torch::nn::utils",
          "torch::nn::utils::rnn", "torch::optim", "torch::serialize", "torch::special"]
SEEN_IN = {"at": "torch", "c10": "torch"}  # by using-directives
OPERATORS = ["at", "c10", "torch", "torch::nn", "torch::optim"]  # found by their arguments
FOR_ITSELF = re.compile(r"^_|_symint$|_outf$|ImplBase$|Impl_Base$")
WIDTH = 110


def clang(command, torch, text, *flags):
    include = pathlib.Path(torch) / "include"
    words = [command, "-std=c++20", "-w", "-fsyntax-only", "-ferror-limit=0", f"-isystem{include}",
             f"-isystem{include / 'torch/csrc/api/include'}", *flags, "-"]
    return subprocess.run(words, input=text, text=True, capture_output=True, check=False)


def names_of(command, torch):
    listed = clang(command, torch, "#include <torch/torch.h>\n", "-Xclang", "-ast-list", "-x", "c++")
    if listed.returncode != 0:
        sys.exit(listed.stderr)
    names = collections.defaultdict(set)
    for line in listed.stdout.splitlines():
        space, _, name = line.rpartition("::")
        if space in OPERATORS and re.fullmatch(r"operator[^\w\s]+", name):
            names[space].add(name)
        space = SEEN_IN.get(space, space)
        if space in SPACES and re.fullmatch(r"[A-Za-z]\w*", name) and not FOR_ITSELF.search(name):
            names[space].add(name)
    return [(space, name) for space in dict.fromkeys(OPERATORS + SPACES) for name in sorted(names[space])]


def exportable(command, torch, names):
    """Those of them that a module can export; the compiler says which it cannot."""
    while True:
        lines = ["module;", "#include <torch/torch.h>", "export module names;"]
        lines += [f"export namespace {space} {{ using {space}::{name}; }}" for space, name in names]
        said = clang(command, torch, "\n".join(lines) + "\n", "-x", "c++-module")
        wrong = {int(line) - 4 for line in re.findall(r"^<stdin>:(\d+):\d+: error: ", said.stderr, re.M)}
        if not wrong:
            if said.returncode != 0:
                sys.exit(said.stderr)
            return names
        names = [name for number, name in enumerate(names) if number not in wrong]


def page_of(names):
    lines = ["// SPDX-License-Identifier: Apache-2.0",
             "// Made by scripts/documentation/torch_names.py: names of torch that all supported versions have."]
    for space in dict.fromkeys(of for of, _ in names):
        line = f"export namespace {space} {{\nusing"
        for name in (name for of, name in names if of == space):
            word = f" {space}::{name},"
            if len(line.rpartition("\n")[2]) + len(word) > WIDTH:
                lines.append(line)
                line = "   "
            line += word
        lines += [line.rstrip(",") + ";", "}"]
    return "\n".join(lines) + "\n"


def main():
    root, command, *versions = sys.argv[1:]
    names = names_of(command, versions[0])
    for torch in versions:
        names = exportable(command, torch, names)
        print(f"{torch}: {len(names)} names", flush=True)
    (pathlib.Path(root) / TARGET).write_text(page_of(names), encoding="utf-8")


if __name__ == "__main__":
    main()
