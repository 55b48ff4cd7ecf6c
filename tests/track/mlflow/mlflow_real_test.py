#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether runs with an MLflow tracker are on MLflow's own server as in result.json.

Usage: mlflow_real_test.py MLFLOW_RUN [SYNC]

MLFLOW_RUN is mlflow_run.cpp's program, SYNC examples/sync.cpp's. The server is `mlflow server` of this Python, with SQLite, on loopback.
"""

import importlib.util
import json
import math
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from mlflow_place import Place

SKIPPED = 77


class Run:
    def __init__(self, server, found):
        info, data = found["info"], found["data"]
        self.server, self.id = server, info["run_id"]
        self.status, self.name, self.start_time = info["status"], info["run_name"], info["start_time"]
        self.params = {param["key"]: param["value"] for param in data.get("params", [])}
        self.tags = {tag["key"]: tag["value"] for tag in data.get("tags", [])}
        self.metrics = {metric["key"] for metric in data.get("metrics", [])}

    def history(self, key):
        query = urllib.parse.urlencode({"run_id": self.id, "metric_key": key, "max_results": 1000})
        points = self.server.ask(f"metrics/get-history?{query}").get("metrics", [])
        return sorted((point["step"], float(point["value"])) for point in points)

    def artifact(self, name):
        path = urllib.parse.quote(f"{self.server.experiment}/{self.id}/artifacts/{name}")
        with urllib.request.urlopen(f"{self.server.uri}/api/2.0/mlflow-artifacts/artifacts/{path}") as answer:
            return answer.read()


class Server:
    def __init__(self, directory):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self.experiment = "0"
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", port, "--workers", 1,
                   "--backend-store-uri", f"sqlite:///{directory}/mlflow.db",
                   "--artifacts-destination", directory]
        with open(directory / "server.log", "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, cwd=directory)
        limit = time.monotonic() + 200
        while True:
            try:
                self.ask("experiments/get?experiment_id=0")
                return
            except urllib.error.URLError:
                if time.monotonic() > limit:
                    self.process.terminate()
                    raise
                time.sleep(0.5)

    def ask(self, what, body=None):
        request = urllib.request.Request(f"{self.uri}/api/2.0/mlflow/{what}",
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def search(self, view):
        found = self.ask("runs/search", {"experiment_ids": [self.experiment], "run_view_type": view})
        return [Run(self, run) for run in found.get("runs", [])]

    def active(self):
        return self.search("ACTIVE_ONLY")

    @property
    def runs(self):
        return self.search("ALL")

    def use(self, name):
        """A new experiment, so that each check sees its own runs."""
        self.experiment = self.ask("experiments/create", {"name": name})["experiment_id"]


def check_values(server, place):
    said = place.do("begin", 0, "odd", "many", 3000, "sent", 2, "close", "finished")
    (run,) = server.active()
    assert run.status == "FINISHED" and run.name == "stand" and run.tags["team"] == "a", (said, run.status)
    assert len(run.params) == 254 and run.params["long"] == "x" * 6000 and run.params["deep/er_2"] == "text"
    assert math.isnan(run.history("loss")[0][1]) and run.history("loss")[1] == (2, 2)
    assert run.history("up")[0][1] >= sys.float_info.max and run.history("down")[0][1] <= -sys.float_info.max
    assert run.history("nested/f1") == [(1, 0.5)] and run.history("ok") == [(1, 1)]
    assert run.history("many/2999") == [(2, 2999)]
    assert len([name for name in run.metrics if name.startswith("many/")]) == 3000
    names = {name for name in run.metrics if not name.startswith("many/")}
    assert len(names) == 13 and "words" not in names, names


def check_goes_on(server, place):
    place.do("begin", 0, "report", 5, "sent", 5, "kill")
    first = place.check(server, "RUNNING")
    place.do("begin", 5, "report", 3, "close", "failed")
    assert place.check(server, "FAILED", runs=1).id == first.id
    place.do("begin", 8, "report", 2, "close", "finished")
    assert place.check(server, runs=1).id == first.id


def check_made_again(server, place):
    place.do("begin", 0, "report", 5, "sent", 5, "kill")
    first = place.check(server, "RUNNING")
    server.ask("runs/set-tag", {"run_id": first.id, "key": "mlflow.note.content", "value": "a person's note"})
    place.do("begin", 3, "add", 0.5, "report", 400, "close", "finished")
    run = place.check(server, runs=2)
    assert run.id != first.id and run.tags["mlflow.note.content"] == "a person's note"
    assert run.start_time == first.start_time and run.name == "stand"


def check_steps_and_artifacts(server, place):
    (place.path / "report.html").write_text("<p>page</p>")
    (place.path / "checkpoint_000000" / "deep").mkdir(parents=True)
    contents = bytes(range(256)) * 40_000
    (place.path / "checkpoint_000000" / "deep" / "a b").write_bytes(contents)
    place.do("artifact", "checkpoint_*", "begin", 0, "log", 700, "report", 2, "log", 3, "steps_sent", 703,
             "close", "failed")
    run = place.check(server, "FAILED", runs=1)
    assert len(run.history("steps/loss")) == 703
    assert run.artifact("report.html") == b"<p>page</p>" and run.artifact("checkpoint_000000/deep/a b") == contents


def check_killed(server, place):
    place.do("begin", 0, "report", 5, "sent", 5, "kill")
    place.check(server, "RUNNING", runs=1)
    place.do("sync")
    place.check(server, "KILLED", runs=1)
    place.do("begin", 5, "report", 1, "close", "finished")
    place.check(server, "FINISHED", runs=1)


def check_sync(server, place):
    uri, place.uri = place.uri, "http://127.0.0.1:9"
    place.do("begin", 0, "report", 1000, "close", "finished")
    place.uri = uri
    note = place.path / "mlflow.json"
    note.write_text(note.read_text().replace("http://127.0.0.1:9", server.uri))
    assert "synced" in place.do("sync")
    place.check(server, runs=1)


def main():
    if importlib.util.find_spec("mlflow") is None:
        print("skipped: MLflow is not installed")
        return SKIPPED
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        started = time.monotonic()
        server = Server(root)
        print(f"the server has started within {time.monotonic() - started:.1f} s", flush=True)
        try:
            for check in (check_values, check_goes_on, check_made_again, check_steps_and_artifacts, check_killed,
                          check_sync):
                name = check.__name__
                server.use(name)
                place = Place(root, name, server.uri, experiment=name)
                started = time.monotonic()
                check(server, place)
                print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
        finally:
            server.process.terminate()
            server.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
