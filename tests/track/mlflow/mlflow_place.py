# SPDX-License-Identifier: Apache-2.0
"""Runs of mlflow_run.cpp's program, and whether a server shows them."""

import json
import os
import pathlib
import signal
import subprocess
import sys

PROGRAM = sys.argv[1]
SYNC = sys.argv[2:]  # examples/sync.cpp's, where it is there
TOKEN = "a-secret-token"


def lines_in(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def reports_in(directory):
    return [(line["training_iteration"], float(line["loss"])) for line in lines_in(directory / "result.json")]


def steps_in(directory):
    return [(line["step"], float(line["loss"])) for line in lines_in(directory / "steps.jsonl")]


def check_shown(server, directory, status="FINISHED", runs=None):
    """The only run on the server is as in result.json."""
    active = server.active()
    assert len(active) == 1, [run.id for run in active]
    assert active[0].history("loss") == reports_in(directory), (active[0].history("loss"), reports_in(directory))
    assert active[0].history("steps/loss") == steps_in(directory), (active[0].history("steps/loss"), steps_in(directory))
    assert active[0].status == status, active[0].status
    twice = [point for point, count in getattr(active[0], "writes", {}).items() if count > 1]
    assert not twice, twice
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
            for file in filter(pathlib.Path.is_file, self.path.rglob("*")):
                assert secret.encode() not in file.read_bytes(), file
        return out + error

    def check(self, server, status="FINISHED", runs=None):
        return check_shown(server, self.path, status, runs)
