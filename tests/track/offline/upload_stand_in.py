# SPDX-License-Identifier: Apache-2.0
"""A server that says yes to what programs upload to it, and remembers it; and how to check that all
of a run was uploaded."""

import contextlib
import gzip
import http.server
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

SKIPPED = 77
SECRET = "0123456789abcdef0123456789abcdef01234567"


@contextlib.contextmanager
def stand_in(answer):
    """`answer(path, body)` returns what is sent as JSON; yields the server's URI and a list of
    (path, body) that it has got."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def respond(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            got.append((self.path, body))
            text = json.dumps(answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = respond

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def upload(home, program, arguments, environment):
    """Runs a program that lies beside this Python's own."""
    command = [str(pathlib.Path(sys.executable).parent / program)] + [str(word) for word in arguments]
    done = subprocess.run(command, env=os.environ | {"HOME": str(home)} | environment, cwd=home,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def skip(package, error):
    print(f"skipped: {package} is not installed (pip install {package}): {error}")
    sys.exit(SKIPPED)


@contextlib.contextmanager
def written_runs():
    """Yields a directory with what the program of the first argument, write_events.cpp's, has
    written, and one for HOME."""
    with tempfile.TemporaryDirectory() as place:
        runs, home = pathlib.Path(place, "runs"), pathlib.Path(place, "home")
        runs.mkdir()
        home.mkdir()
        subprocess.run([sys.argv[1], str(runs)], check=True, env=os.environ | {
            "WANDB_API_KEY": SECRET, "COMET_API_KEY": SECRET})
        for file in runs.rglob("*"):
            assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
        yield runs, home


def number(value):
    """As JSON, Python and protocol buffers name numbers; None for none."""
    if isinstance(value, bool) or isinstance(value, (int, float)):
        return float(value)
    names = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return names.get(value)


def same(left, right):
    return left == right or (left is not None and right is not None
                             and math.isnan(left) and math.isnan(right))


def reported(run, metric):
    """What result.json has: number of the report, and value."""
    values = []
    for line in (run / "result.json").read_text().splitlines():
        report = json.loads(line)
        if metric in report:
            value = {None: math.nan, "inf": math.inf, "-inf": -math.inf}.get(report[metric], report[metric])
            values.append((report["training_iteration"], value))
    return values


def check_same(found, expected):
    assert len(found) == len(expected), (found, expected)
    for (step, value), (other_step, other) in zip(found, expected):
        assert step == other_step and same(value, other), (found, expected)
