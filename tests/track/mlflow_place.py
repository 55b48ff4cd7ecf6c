# SPDX-License-Identifier: Apache-2.0
"""Runs of mlflow_run.cpp's program, and whether a server shows them."""

import json
import os
import signal
import subprocess
import sys

PROGRAM = sys.argv[1]
SYNC = sys.argv[2:]  # examples/sync.cpp's, where it is there
TOKEN = "a-secret-token"


def reports_in(directory):
    lines = [json.loads(line) for line in (directory / "result.json").read_text().splitlines()]
    return [(line["training_iteration"], float(line["loss"])) for line in lines]


def check_shown(server, directory, status="FINISHED", runs=None):
    """The only run on the server is as in result.json."""
    active = server.active()
    assert len(active) == 1, [run.id for run in active]
    assert active[0].history("loss") == reports_in(directory), (active[0].history("loss"), reports_in(directory))
    assert active[0].status == status, active[0].status
    assert runs is None or len(server.runs) == runs, len(server.runs)
    return active[0]


class Place:
    """A run's directory."""

    def __init__(self, root, name, uri, experiment="", **variables):
        self.path, self.uri, self.experiment, self.variables = root / name, uri, experiment, variables
        self.path.mkdir()

    def start(self, *commands):
        environment = os.environ | {"MLFLOW_TRACKING_URI": self.uri, "MLFLOW_TRACKING_TOKEN": TOKEN,
                                    "MLFLOW_EXPERIMENT_NAME": self.experiment} | self.variables
        program = SYNC + [self.path] if SYNC and commands == ("sync",) else [PROGRAM, self.path, *commands]
        return subprocess.Popen([str(word) for word in program], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def do(self, *commands):
        process = self.start(*commands)
        out, error = process.communicate(timeout=60)
        assert process.returncode == (-signal.SIGKILL if "kill" in commands else 0), (commands, out, error)
        secrets = [value for name, value in (os.environ | self.variables).items()
                   if name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")] + [TOKEN]
        for secret in secrets:
            assert secret not in out + error, error
            for file in self.path.iterdir():
                assert secret not in file.read_text(), file
        return out + error

    def check(self, server, status="FINISHED", runs=None):
        return check_shown(server, self.path, status, runs)
