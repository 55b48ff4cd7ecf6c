# SPDX-License-Identifier: Apache-2.0
"""Namespaces of Linux, for tests that play machines, users and accidents."""

import os


def unshared(*more):
    """Words in front of a command, which then runs as root of processes and mounts of its own, and
    of what `more` names for unshare; it is killed when this process ends."""
    words = ["setpriv", "--pdeathsig", "KILL", "unshare"]
    if os.getuid() != 0:
        words += ["--user", "--map-root-user"]
    return [*words, *more, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
