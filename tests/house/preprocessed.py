#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether public headers stay small: what they hold after preprocessing, beside <torch/torch.h>.

Usage: preprocessed.py HEADER=LIMIT... -- COMPILER...

LIMIT is a ratio of lines. COMPILER defines RTRAIN_COMPILED. The same header without that must be above
its limit if it is trainer.hpp: else the gate would not see what comes through an open door.
"""

import subprocess
import sys


def lines_of(compiler, header, *more):
    text = subprocess.run([*compiler, *more, "-E", "-P", "-x", "c++", "-"], check=True, text=True,
                          input=f"#include <{header}>\n", stdout=subprocess.PIPE).stdout
    return text.count("\n")


def main():
    border = sys.argv.index("--")
    limits = dict(word.split("=") for word in sys.argv[1:border])
    compiler = sys.argv[border + 1:]
    torch = lines_of(compiler, "torch/torch.h")
    failed = False
    for header, limit in limits.items():
        ratio = lines_of(compiler, header) / torch
        print(f"{header}: {ratio:.2f} of torch/torch.h, at most {limit}")
        failed = failed or ratio > float(limit)
        if header.endswith("/trainer.hpp"):
            if lines_of(compiler, header, "-URTRAIN_COMPILED") / torch <= float(limit):
                print(f"{header}: an open door makes no difference, so this gate sees nothing")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
