# SPDX-License-Identifier: Apache-2.0
"""As much of S3 as reading a file needs, with a delay before each answer: what is compared is who
waits how often, and a whole emulator would be the slowest part of that.

    python slow_s3.py DIRECTORY DELAY_MS

Serves the files of a directory as a bucket of its name. Prints its port, and ends when its standard
input is closed.
"""

import http.server
import pathlib
import re
import sys
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open, as with real services
    disable_nagle_algorithm = True
    files = {}  # by path: their bytes
    delay_s = 0.0

    def answer(self, has_body):
        time.sleep(self.delay_s)
        content = self.files.get(self.path.split("?")[0])
        if content is None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, len(content))
        part = content[begin:end]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(content)}")
        self.send_header("ETag", '"unchanged"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        if has_body:
            self.wfile.write(part)

    def do_GET(self):
        self.answer(True)

    def do_HEAD(self):
        self.answer(False)

    def log_message(self, *_):
        pass


def main():
    directory, delay_ms = pathlib.Path(sys.argv[1]), float(sys.argv[2])
    Handler.delay_s = delay_ms / 1000
    Handler.files = {f"/{directory.name}/{path.name}": memoryview(path.read_bytes())
                     for path in directory.iterdir()}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


main()
