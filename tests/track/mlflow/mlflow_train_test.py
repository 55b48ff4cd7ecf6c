#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a Trainer's run whose rank 0 is killed is on an MLflow server as in result.json.

Usage: mlflow_train_test.py MLFLOW_TRAIN

MLFLOW_TRAIN is mlflow_train.cpp's program. The server is mlflow_stand_in.py's.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from mlflow_place import check_shown
from mlflow_stand_in import Server


def main():
    server = Server()
    with tempfile.TemporaryDirectory() as root:
        environment = os.environ | {"MLFLOW_TRACKING_URI": server.uri}
        done = subprocess.run([sys.argv[1], root], env=environment, capture_output=True, text=True, timeout=100,
                              check=False)
        assert done.returncode == 0 and "RESULT 12\n" in done.stdout, done
        kills = sorted(path.name for path in pathlib.Path(root).glob("killed-*"))
        assert kills == ["killed-10", "killed-5", "killed-9"], kills
        # After 5 and 10 reports it resumes from fewer, after 9 from all.
        run = check_shown(server, pathlib.Path(root) / "r", runs=3)
        assert run.history("step") == [(step, step) for step in range(1, 13)], run.history("step")
        assert run.name == "r" and run.params == {"lr": "1E-1"}, run.params
        page = (pathlib.Path(root) / "r" / "report.html").read_bytes()
        assert server.artifacts_of(run)["report.html"] == page, "the page of the whole run"
    return 0


if __name__ == "__main__":
    sys.exit(main())
