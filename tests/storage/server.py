# SPDX-License-Identifier: Apache-2.0
"""A storage service for tests that misbehaves on command.

usage: server.py s3|gcs

Prints its port when ready. Then each line of standard input is a command as JSON, answered by a line:
  {"faults": {...}}        replaces the faults, see Faults; answers "ok"
  {"count": ["GET", "/bucket/run"]}  requests of that method whose path begins so; answers the number
  {"injected": true}                 faults so far
  {"open_uploads": "bucket"}         multipart uploads that were neither completed nor aborted
It ends when its standard input is closed, so that it cannot outlive the test.
"""
import json
import os
import random
import socket
import struct
import sys
import threading
import time


class Faults:
    """What to do to requests. Rates are per request; the random sequence is fixed."""

    def __init__(self, error_rate=0.0, error_status=503, reset_rate=0.0, latency_s=0.0,
                 stall_rate=0.0, die_after=None, only=None, path="/"):
        self.error_rate = error_rate
        self.error_status = error_status
        self.reset_rate = reset_rate
        self.latency_s = latency_s
        self.stall_rate = stall_rate  # accept the request and never answer
        self.die_after = die_after  # end the whole server after so many requests
        self.only = only  # requests of this method
        self.path = path  # requests whose path begins so


class Middleware:
    def __init__(self, app):
        self.app = app
        self.faults = Faults()
        self.random = random.Random(1)
        self.requests = []
        self.injected = 0
        self.lock = threading.Lock()

    def __call__(self, environ, start_response):
        with self.lock:
            self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
            faults = self.faults
            draw = self.random.random()
            if faults.die_after is not None:
                faults.die_after -= 1
                if faults.die_after < 0:
                    os._exit(3)
        if (faults.only in (None, environ["REQUEST_METHOD"])
                and environ["PATH_INFO"].startswith(faults.path)):
            if faults.latency_s:
                time.sleep(faults.latency_s)
            self.injected += draw < faults.error_rate + faults.reset_rate + faults.stall_rate
            if draw < faults.error_rate:
                return self.refuse(environ, start_response, faults.error_status)
            if draw < faults.error_rate + faults.reset_rate:
                self.reset(environ)
            if draw < faults.error_rate + faults.reset_rate + faults.stall_rate:
                time.sleep(3600)
        return self.app(environ, start_response)

    def refuse(self, environ, start_response, status):
        self.take_body(environ)
        code = "SlowDown" if status == 503 else "InternalError"
        start_response(f"{status} {code}", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()]

    def take_body(self, environ):
        # Else the client would see a broken connection instead of the answer.
        left = int(environ.get("CONTENT_LENGTH") or 0)
        while left > 0:
            left -= len(environ["wsgi.input"].read(min(left, 1 << 20)) or b" " * left)

    def reset(self, environ):
        connection = environ["werkzeug.socket"]
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        raise ConnectionResetError("injected")


def s3():
    from moto.server import DomainDispatcherApplication, create_backend_app
    return DomainDispatcherApplication(create_backend_app)


def open_uploads(bucket):
    from moto.s3.models import s3_backends
    return sum(len(backend.buckets[bucket].multiparts)
               for account in s3_backends.values() for backend in account.values()
               if bucket in backend.buckets)


def serve_s3():
    import logging
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from werkzeug.serving import WSGIRequestHandler, make_server
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # connections stay open, as with real services
    middleware = Middleware(s3())
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket("bucket", "us-east-1")
    server = make_server("127.0.0.1", 0, middleware, threaded=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return middleware, server.server_port


def serve_gcs():
    import http.server
    http.server.HTTPServer = http.server.ThreadingHTTPServer  # else one open download blocks all
    from gcp_storage_emulator.server import create_server
    with socket.socket() as probe:  # the emulator takes no port 0
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket").start()
    return None, port


def main():
    # Only answers may go to standard output.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    middleware, port = serve_s3() if sys.argv[1] == "s3" else serve_gcs()
    print(port, file=answers)
    for line in sys.stdin:
        command = json.loads(line)
        if "faults" in command:
            middleware.faults = Faults(**command["faults"])
            middleware.random = random.Random(1)
            print("ok", file=answers)
        elif "count" in command:
            method, prefix = command["count"]
            with middleware.lock:
                print(sum(m == method and p.startswith(prefix) for m, p in middleware.requests),
                      file=answers)
        elif "injected" in command:
            print(middleware.injected, file=answers)
        elif "open_uploads" in command:
            print(open_uploads(command["open_uploads"]), file=answers)
    os._exit(0)


if __name__ == "__main__":
    main()
