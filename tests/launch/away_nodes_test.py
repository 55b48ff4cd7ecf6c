#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A driver on a node without ranks, as on a cluster's login node: what its ranks have to say of their
end reaches it, though no rank sees its temporary directory.

    away_nodes_test.py SCENARIO {ends|throws|refuses}
"""

import os
import pathlib
import subprocess
import sys
import tempfile

NODES = pathlib.Path(__file__).resolve().parents[1] / "nodes"
LIMIT = 100  # seconds


def main():
    scenario, case = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="rtrain-away-") as storage:
        ended = subprocess.run(
            [sys.executable, NODES / "nodes.py", "--alone", "--own-tmp", "0,2"]
            + [scenario, f"away-{case}", storage],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        print(ended.stdout)
        if ended.returncode == 77:
            return 77
        checks = {"no file is missed": "No such file" not in ended.stdout}
        if case == "ends":
            checks["it ends well"] = ended.returncode == 0
            checks["its result is there"] = "RESULT 3" in ended.stdout
        else:
            checks["it fails"] = ended.returncode == 1
            why = {"throws": "rank 1 of 2: no such luck", "refuses": "RT-C5"}[case]
            checks["and says why"] = why in ended.stdout
        for what, holds in checks.items():
            print(f"{'ok   ' if holds else 'WRONG'} {what}")
        return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    os.environ.pop("OMPI_MCA_plm_rsh_agent", None)
    sys.exit(main())
