#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""booted.py COMMAND...: the command on a machine that seems to have booted a minute ago.

steady_clock counts from there. Exits with the command's status, or with 77 (skipped) where the kernel has
no time namespaces."""

import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from namespaces import unshared  # noqa: E402

SKIPPED = 77
MINUTE = 60


def main():
    offset = str(MINUTE - int(time.clock_gettime(time.CLOCK_BOOTTIME)))
    namespaces = unshared("--time", "--monotonic", offset, "--boottime", offset)
    probe = subprocess.run([*namespaces, "cat", "/proc/uptime"], capture_output=True, text=True)
    if probe.returncode != 0:
        print(f"SKIPPED: the kernel refuses: {probe.stderr.strip()}")
        return SKIPPED
    return subprocess.run([*namespaces, *sys.argv[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
