#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node is cut off in the middle of a run: the run goes on with the other one, or, when it needs
both, as soon as the node is back.

    cut_nodes_test.py SCENARIO {lost|back}
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

NODES = pathlib.Path(__file__).resolve().parents[1] / "nodes"
LIMIT = 150  # seconds


def main():
    scenario, case = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="rtrain-cut-") as storage:
        ended = subprocess.run(
            [sys.executable, NODES / "nodes.py", "--alone"]
            + ["--cut", {"lost": "1:3", "back": "1:3:25"}[case]]
            + ["--once", pathlib.Path(storage) / "r" / "result.json", "1,1"]
            + [scenario, {"lost": "nodes", "back": "both-nodes"}[case], storage],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        print(ended.stdout)
        if ended.returncode == 77:
            return 77
        said = ended.stdout
        results = pathlib.Path(storage) / "r" / "result.json"
        iterations = [
            json.loads(line)["training_iteration"] for line in results.read_text().splitlines()
        ]
        checks = {
            "it ends well": ended.returncode == 0,
            "both nodes trained": "SIZE 2" in said,
            # By mpirun, whose connection is cut, or by who watches reports: whoever is first.
            "the lost rank is named": "rank 1 of 2 ended" in said
            or "rank 1 has not reported" in said,
            "one restart": "restart 1 of 2" in said and "restart 2" not in said,
            "each report once": iterations == list(range(1, len(iterations) + 1)),
            "the last report": "RESULT 40" in said,
        }
        if case == "lost":
            checks["it continues with one rank"] = "SIZE 1" in said
        else:
            checks["it waits for the node"] = "no answer from n1; waiting for up to" in said
            checks["it never trains on one"] = "SIZE 1" not in said
        for what, holds in checks.items():
            print(f"{'ok   ' if holds else 'WRONG'} {what}")
        return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    os.environ.pop("OMPI_MCA_plm_rsh_agent", None)
    sys.exit(main())
