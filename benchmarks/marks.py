# SPDX-License-Identifier: Apache-2.0
"""Reads what ranks have left while they trained: marks.hpp, and what the driver says of restarts."""

import pathlib
import re
from typing import NamedTuple

RESTARTED = re.compile(r"rtrain: .*\brestart \d")  # a line of the driver's


class Mark(NamedTuple):
    time: float
    rank: int
    process: int
    what: str
    step: int


def read_marks(directory):
    """Those that are written to their end."""
    try:
        lines = (pathlib.Path(directory) / "marks").read_text().splitlines()
    except FileNotFoundError:
        return []
    words = [line.split() for line in lines if line.count(" ") == 4]
    return [Mark(float(w[0]), int(w[1]), int(w[2]), w[3], int(w[4])) for w in words]
