# SPDX-License-Identifier: Apache-2.0
"""A server that answers as MLflow's REST API 2.0 does, as far as a tracker needs it, holds clients to
MLflow's limits, and has faults when it is told to.

A fault is a function of a request (`Handler`) and of what answers it (`answer()`); True: it has dealt with
the request. It is called for each request while it is `Server.fault`.
"""

import collections
import http.server
import json
import posixpath
import re
import threading
import time
import urllib.parse

NAME = re.compile(r"[/\w.\- :]*")


class Refusal(Exception):
    def __init__(self, reason, message, status=400):
        super().__init__(message)
        self.reason, self.status = reason, status


def require(holds, message):
    if not holds:
        raise Refusal("INVALID_PARAMETER_VALUE", message)


def require_name(name):
    require(NAME.fullmatch(name) and len(name) <= 250, f"name {name!r}")
    normal = posixpath.normpath(name)
    require(normal == name and normal != "." and not normal.startswith(("..", "/")), f"path {name!r}")


def require_file(name, names):
    """As MLflow's store of files, where "a" is a file and "a/b" one in a directory."""
    for other in names:
        if name.startswith(other + "/") or other.startswith(name + "/"):
            raise Refusal("INTERNAL_ERROR", f"[Errno 20] Not a directory: '{name}'", 500)


class Run:
    def __init__(self, number, request):
        self.id = f"{number:032x}"
        self.experiment, self.name = request["experiment_id"], request["run_name"]
        self.start_time, self.end_time = request["start_time"], None
        self.status, self.stage = "RUNNING", "active"
        self.tags, self.params, self.points = {}, {}, set()
        self.writes = collections.Counter()  # of each point
        for tag in request["tags"]:
            self.set_tag(tag)

    def set_tag(self, tag):
        require_name(tag["key"])
        require(len(tag["value"]) <= 8000, "tag")
        self.tags[tag["key"]] = tag["value"]

    def set_param(self, param):
        require_name(param["key"])
        require(len(param["value"]) <= 6000, "param")
        require(self.params.get(param["key"], param["value"]) == param["value"], "Changing param values")
        self.params[param["key"]] = param["value"]

    def add(self, metric):
        require_name(metric["key"])
        assert isinstance(metric["timestamp"], int) and isinstance(metric["step"], int), metric
        # Equal points are one where MLflow has SQL, but not where it has files.
        point = (metric["key"], metric["step"], metric["timestamp"], str(float(metric["value"])))
        self.points.add(point)
        self.writes[point] += 1

    def history(self, key):
        return sorted((step, float(value)) for name, step, _, value in self.points if name == key)

    def as_json(self, artifacts):
        info = {"run_id": self.id, "run_name": self.name, "status": self.status, "start_time": self.start_time,
                "lifecycle_stage": self.stage, "artifact_uri": f"{artifacts}/{self.experiment}/{self.id}/artifacts"}
        return {"info": info, "data": {"tags": [{"key": k, "value": v} for k, v in self.tags.items()]}}


class Server:
    def __init__(self, tls=None):
        """`tls`: an ssl.SSLContext; without one it speaks http."""
        self.experiments = {"Default": "0"}
        self.artifact_root = "mlflow-artifacts:"  # or where else artifacts are
        self.artifacts = {}  # path: bytes
        self.runs = {}
        self.fault = None
        self.keeps_files = False
        self.requests = []  # (what, size)
        self.authorizations = set()
        self.lock = threading.Lock()
        handler = type("Handler", (Handler,), {"server_state": self})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        if tls:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.http.server_port
        self.uri = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def active(self):
        return [run for run in self.runs.values() if run.stage == "active"]

    def run(self, run_id, active=True):
        if run_id not in self.runs:
            raise Refusal("RESOURCE_DOES_NOT_EXIST", f"Run with id={run_id} not found", 404)
        run = self.runs[run_id]
        require(run.stage == "active" or not active, f"The run {run_id} must be in the 'active' state")
        return run

    def answer(self, what, request):
        with self.lock:
            return getattr(self, what.replace("/", "_").replace("-", "_"))(request)

    def experiments_get_by_name(self, request):
        name = request["experiment_name"]
        if name not in self.experiments:
            raise Refusal("RESOURCE_DOES_NOT_EXIST", "Could not find experiment", 404)
        return {"experiment": {"experiment_id": self.experiments[name], "name": name}}

    def experiments_create(self, request):
        if request["name"] in self.experiments:
            raise Refusal("RESOURCE_ALREADY_EXISTS", "already exists")
        self.experiments[request["name"]] = str(len(self.experiments))
        return {"experiment_id": self.experiments[request["name"]]}

    def runs_create(self, request):
        run = Run(len(self.runs) + 1, request)
        self.runs[run.id] = run
        return {"run": run.as_json(self.artifact_root)}

    def runs_get(self, request):
        return {"run": self.run(request["run_id"], active=False).as_json(self.artifact_root)}

    def artifacts_of(self, run):
        root = f"{run.experiment}/{run.id}/artifacts/"
        return {path.removeprefix(root): text for path, text in self.artifacts.items() if path.startswith(root)}

    def runs_search(self, request):
        tag, value = re.fullmatch(r"tags\.`([^`]*)` = '([^']*)'", request["filter"]).groups()
        found = [run.as_json(self.artifact_root) for run in self.active()
                 if run.experiment in request["experiment_ids"] and run.tags.get(tag) == value]
        return {"runs": found} if found else {}

    def runs_update(self, request):
        run = self.run(request["run_id"])
        run.status = request["status"]
        run.end_time = request.get("end_time", run.end_time)
        return {"run_info": run.as_json(self.artifact_root)["info"]}

    def metrics_get_history(self, request):
        points = self.run(request["run_id"], active=False).points
        found = [{"key": key, "step": step, "timestamp": time, "value": float(value)}
                 for key, step, time, value in sorted(points) if key == request["metric_key"]]
        return {"metrics": found} if found else {}

    def runs_set_tag(self, request):
        self.run(request["run_id"]).set_tag(request)
        return {}

    def runs_delete(self, request):
        self.run(request["run_id"], active=False).stage = "deleted"
        return {}

    def runs_log_batch(self, request):
        run = self.run(request["run_id"])
        metrics, params = request.get("metrics", []), request.get("params", [])
        require(len(metrics) <= 1000 and len(params) <= 100, "too many")
        require(len({param["key"] for param in params}) == len(params), "Duplicate parameter keys")
        for param in params:
            if self.keeps_files:
                require_file(param["key"], run.params)
            run.set_param(param)
        for metric in metrics:
            if self.keeps_files:
                require_file(metric["key"], {key for key, *_ in run.points})
            run.add(metric)
        return {}


class Handler(http.server.BaseHTTPRequestHandler):
    server_state = None

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:  # the client is gone
            self.close_connection = True

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        self.deal_with(url.path, dict(urllib.parse.parse_qsl(url.query, strict_parsing=True)), 0)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.deal_with(self.path, json.loads(body), len(body))

    def do_PUT(self):
        path = urllib.parse.unquote(self.path).removeprefix("/api/2.0/mlflow-artifacts/artifacts/")
        assert path != self.path, path
        size = int(self.headers["Content-Length"])
        text = self.rfile.read(size)
        assert len(text) == size, "it was cut off"

        def answer():
            self.server_state.artifacts[path] = text
            return b""  # as MLflow 3.17; earlier ones answer {}

        self.server_state.requests.append((path, 0))
        self.server_state.authorizations.add(self.headers.get("Authorization"))
        self.give(answer)

    def deal_with(self, path, request, size):
        state = self.server_state
        self.what = path.removeprefix("/api/2.0/mlflow/")
        state.requests.append((self.what, size))
        state.authorizations.add(self.headers.get("Authorization"))

        def answer():
            require(size <= 1_000_000, "too long")
            return state.answer(self.what, request)

        self.give(answer)

    def give(self, answer):
        fault = self.server_state.fault
        if fault and fault(self, answer):
            self.close_connection = True
            return
        try:
            self.send(200, answer())
        except Refusal as refusal:
            self.send(refusal.status, {"error_code": refusal.reason, "message": str(refusal)})

    def send(self, status, body, kind="application/json", head=()):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        for name, value in head:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)


def times(count, fault):
    """For the first `count` requests."""
    left = [count]

    def first(handler, answer):
        if left[0] == 0:
            return False
        left[0] -= 1
        fault(handler, answer)
        return True

    return first


def status(code, **head):
    message = {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "come\nback \x1b[31mlater"}
    fields = [(name.replace("_", "-"), value) for name, value in head.items()]
    return lambda handler, _: handler.send(code, message, head=fields)


def html(code):
    return lambda handler, _: handler.send(code, b"<html><body>a proxy</body></html>", kind="text/html")


def huge(handler, _):
    handler.send(200, b'{"text":"' + b"x" * (20 << 20) + b'"}')


def endless_body(handler, _):
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65536)


def endless_head(handler, _):
    while True:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X-More: more\r\n" * 1000)


def hangs_up(handler, _):
    pass


def hangs_up_afterwards(_, answer):
    answer()


def half(handler, answer):
    answer()
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"{")


def no_http(handler, _):
    handler.wfile.write(b"220 mail.example.org ESMTP\r\n")


def empty(handler, _):
    handler.send(200, b"")


def slow(seconds):
    def wait(handler, answer):
        time.sleep(seconds)
        handler.send(200, answer())
        return True

    return wait
