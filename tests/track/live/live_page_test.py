#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The live page of a run: who may read it, what its events say, what a browser shows, what a restart changes.

Usage: live_page_test.py SERVE_LIVE_PAGE [FOLLOWED]

SERVE_LIVE_PAGE is serve_live_page.cpp's program, FOLLOWED launch/followed.cpp's.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "page"))
from report_page_test import BROWSERS, find_browser  # noqa: E402

ADDRESS = re.compile(r"can be watched on \S+: http://127\.0\.0\.1:(\d+)/\?token=(\w+)")


class Page:
    """A program that serves a page."""

    def __init__(self, directory, port=0):
        self.said = []
        self.child = subprocess.Popen([sys.argv[1], str(directory), str(port)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.listener = threading.Thread(
            target=lambda: self.said.extend(iter(self.child.stderr.readline, "")), daemon=True)
        self.listener.start()

    def does(self, *commands):
        for command in commands:
            self.child.stdin.write(command + "\n")
            self.child.stdin.flush()
            assert self.child.stdout.readline() == "done\n", self.said

    def address(self):
        for _ in range(500):
            found = [ADDRESS.search(line) for line in self.said]
            if any(found):
                match = next(filter(None, found))
                return int(match.group(1)), match.group(2)
            time.sleep(0.01)
        raise AssertionError(self.said)

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.listener.join()

    def end(self):
        self.child.stdin.close()
        self.child.wait(timeout=30)
        self.listener.join()


def ask(port, text, host="127.0.0.1"):
    """What the server answers to these bytes: status, header, body."""
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(text.encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, head, body


def get(port, target, host="localhost", method="GET", more=""):
    return ask(port, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n")


class Events:
    """A stream of events, read as a browser reads it."""

    def __init__(self, port, token, last=None):
        self.last = last
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        more = f"Last-Event-ID: {last}\r\n" if last else ""
        self.connection.sendall(f"GET /events?token={token} HTTP/1.1\r\nHost: localhost:{port}\r\n{more}\r\n".encode())
        self.file = self.connection.makefile("r", encoding="utf-8", newline="\n")
        assert self.file.readline() == "HTTP/1.1 200 OK\r\n"
        while self.file.readline() != "\r\n":
            pass

    def next(self):
        fields = {}
        while (line := self.file.readline()) != "\n" or not fields.keys() - {"", "retry"}:
            if line == "":
                return None, None
            name, _, value = line.rstrip("\n").partition(":")
            if name:
                fields[name] = value.strip()
        self.last = fields.get("id", self.last)
        return fields["event"], json.loads(fields["data"])

    def reports(self, count):
        found = []
        while len(found) < count:
            kind, data = self.next()
            assert kind == "report", (kind, data)
            found.append((data["training_iteration"], data["attempt"]))
        return found

    def close(self):
        self.file.close()
        self.connection.close()


def only_for_who_may(directory):
    page = Page(directory)
    page.does("begin 0", "report", "report")
    port, token = page.address()
    secret = f"/?token={token}"
    note = directory / "live.json"
    assert stat.S_IMODE(note.stat().st_mode) == 0o600, oct(note.stat().st_mode)

    status, head, body = get(port, secret)
    assert status == 200 and "text/html" in head and "EventSource" in body and "a live run" in body, head
    assert "no-store" in head and "no-referrer" in head and "nosniff" in head and "DENY" in head
    for target in ("/", "/?token=", f"/?token={token[:-1]}", f"/?token={token}0", f"/?tokens={token}",
                   f"/?token={token[:-1]}{'0' if token[-1] != '0' else '1'}", "/events", "/events?token=1"):
        assert get(port, target)[0] == 403, target
    assert get(port, f"/?other=1&token={token}")[0] == 200
    assert get(port, f"/result.json?token={token}")[0] == 404
    assert get(port, f"/../live.json?token={token}")[0] == 404
    assert get(port, f"/%zz?token={token}")[0] == 400
    for host in ("127.0.0.1", f"127.0.0.1:{port}", "localhost:1234", "[::1]", "[::1]:80"):
        assert get(port, secret, host=host)[0] == 200, host
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", "",
                 f"10.0.0.1:{port}", "127.evil.example", "evil@localhost", "localhost@evil.example", "[::2]"):
        assert get(port, secret, host=host)[0] == 421, host
        assert get(port, f"/events?token={token}", host=host)[0] == 421, host
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        status, head, _ = get(port, secret, method=method)
        assert status == 405 and "Allow: GET" in head, (method, head)
    for more in ("Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n0\r\n"):
        for method in ("POST", "PUT", "PATCH", "ODD"):
            assert get(port, secret, method=method, more=more)[0] == 405, (method, more)
    # Connections that have not shown the token lock nobody out, and do not end those that have.
    events = Events(port, token)
    events.reports(2)
    idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(40)]
    assert get(port, secret)[0] == 200
    page.does("report")
    events.reports(1)
    events.close()
    for connection in idle:
        connection.close()
    assert get(port, secret, more=f"X: {'x' * 20_000}\r\n")[0] in (0, 431)
    assert get(port, "/" + "x" * 20_000)[0] in (0, 431)
    assert ask(port, "no HTTP\r\n\r\n")[0] == 400
    assert ask(port, f"GET {secret} HTTP/1.1\r\n\r\n")[0] == 421
    # Other machines do not reach it.
    others = {item[4][0] for item in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)}
    for address in others - {"127.0.0.1"}:
        if address.startswith("127."):
            continue
        try:
            ask(port, f"GET {secret} HTTP/1.1\r\n\r\n", host=address)
            raise AssertionError(f"{address} is served")
        except ConnectionRefusedError:
            pass

    # Connections that say nothing keep nobody out for good, and no report waits for them.
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
    page.does(*["report"] * 20)
    for connection in idle:
        connection.close()
    assert any(get_or_none(port, secret) for _ in range(20))
    page.end()


def get_or_none(port, target):
    try:
        return get(port, target)[0] == 200
    except OSError:
        time.sleep(0.2)
        return False


def each_report_once(directory):
    page = Page(directory)
    page.does("begin 0", "report", "report")
    port, token = page.address()
    early, late = Events(port, token), None
    assert early.reports(2) == [(1, 1), (2, 1)]
    page.does("report", "report", "report")
    assert early.reports(3) == [(3, 1), (4, 1), (5, 1)]
    # The function is called again in this process, behind report 3.
    page.does("begin 3")
    assert early.next() == ("rewind", {"iteration": 3})
    page.does("report")
    assert early.reports(1) == [(4, 2)]
    late = Events(port, token)
    assert late.reports(4) == [(1, 1), (2, 1), (3, 1), (4, 2)]
    # A page that lost its connection goes on.
    seen = early.last
    early.close()
    page.does("report")
    assert late.reports(1) == [(5, 2)]
    early = Events(port, token, seen)
    assert early.reports(1) == [(5, 2)]
    strange = Events(port, token, "of another run-7")
    assert strange.next() == ("rewind", {"iteration": 0}) and len(strange.reports(5)) == 5
    strange.close()

    # The process dies; another resumes after report 2, at the same address.
    seen = early.last
    page.kill()
    assert early.next() == (None, None)
    again = Page(directory)
    again.does("begin 2", "report")
    assert again.address() == (port, token)
    early = Events(port, token, seen)
    assert early.next() == ("rewind", {"iteration": 2})
    assert early.reports(1) == [(3, 1)]
    # Pages that are open show the end.
    again.does("end")
    assert early.next() == ("status", {"status": "finished"}) and early.next() == ("end", {})
    again.end()
    assert early.next() == (None, None)
    early.close()
    late.close()

    # Others could have read the secret: there is a new one.
    os.chmod(directory / "live.json", 0o644)
    page = Page(directory)
    page.does("begin 3")
    assert page.address()[1] != token
    page.end()


def nobody_is_waited_for(directory):
    """One who reads nothing, and 20,000 reports."""
    page = Page(directory)
    page.does("begin 0")
    port, token = page.address()
    lazy, eager = Events(port, token), Events(port, token)
    page.does(*["report"] * 20_000)
    assert [number for number, _ in eager.reports(20_000)] == list(range(1, 20_001))
    assert get(port, f"/?token={token}")[0] == 200
    lazy.close()
    eager.close()
    page.end()


def a_port_in_use(directory):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        page = Page(directory, port)
        page.does("begin 0", "report", "begin 1", "report", "end")
        page.end()
        assert len(page.said) >= 1 and all(f"port {port} " in line and "RT-V80" in line for line in page.said), page.said
        # Where any port will do, another is taken.
        note = {"token": "0123", "port": port, "starts": []}
        (directory / "live.json").write_text(json.dumps(note))
        os.chmod(directory / "live.json", 0o600)
        page = Page(directory)
        page.does("begin 2")
        assert page.address()[0] != port and page.address()[1] == "0123"
        page.end()
    # Nonsense in the note is no reason not to begin.
    (directory / "live.json").write_text("[{")
    os.chmod(directory / "live.json", 0o600)
    page = Page(directory)
    page.does("begin 0")
    page.address()
    page.end()


class Browser:
    """One tab, spoken to over two pipes."""

    def __init__(self, program, profile, address):
        (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()

        def arrange():
            keep = [os.dup(theirs_in), os.dup(theirs_out)]
            os.dup2(keep[0], 3)
            os.dup2(keep[1], 4)

        self.child = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--disable-component-update", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
             f"--user-data-dir={profile}", "--remote-debugging-pipe"], preexec_fn=arrange, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.answers, self.number = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb", 0), 0
        self.rest, self.complaints, self.session = b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)

    def message(self):
        while b"\0" not in self.rest:
            part = os.read(self.answers.fileno(), 65536)
            assert part, "the browser has ended"
            self.rest += part
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.out.write(json.dumps(request).encode() + b"\0")
        while (answer := self.message()).get("id") != self.number:
            if answer.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                self.complaints.append(answer["params"])
        assert "result" in answer, answer
        return answer["result"]

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return answer["result"].get("value")

    def waits_for(self, expression, expected):
        for _ in range(200):
            if (found := self.value(expression)) == expected:
                return
            time.sleep(0.1)
        raise AssertionError((expression, expected, found, self.complaints))

    def close(self):
        self.child.kill()
        self.child.wait()
        self.out.close()
        self.answers.close()


REPORTS = "document.querySelector('.facts').innerText.match(/Reports\\s+(\\d+)/)?.[1]"
POINTS = "document.querySelector('path.curve')?.getAttribute('d').match(/[ML]/g).length"
STATUS = "document.querySelector('.facts').innerText.match(/Status\\s+(.*)/)?.[1]"


def in_a_browser(directory, program):
    """While the page is open, reports come, the run is restarted, and ends."""
    page = Page(directory)
    page.does("begin 0", *["report"] * 3)
    port, token = page.address()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile, f"http://127.0.0.1:{port}/?token={token}")
        browser.waits_for(REPORTS, "3")
        browser.waits_for(POINTS, 3)
        assert browser.value("document.title") == "a live run", "a metric's name was run"
        # What somebody has chosen to look at stays.
        browser.value("group.show([2, 3]); document.querySelector('#tools input[type=search]').value = 'lo'")
        page.does(*["report"] * 2)
        browser.waits_for(REPORTS, "5")
        browser.waits_for(POINTS, 5)
        assert browser.value("group.range.join()") == "2,3"
        assert browser.value("document.querySelector('#tools input[type=search]').value") == "lo"
        assert browser.value("group.charts.filter(chart => !chart.card.hidden).map(chart => chart.name).join()") == "loss"
        page.does("begin 4")
        browser.waits_for(REPORTS, "4")
        assert browser.complaints == [], browser.complaints
        # Another process goes on.
        page.kill()
        page = Page(directory)
        page.does("begin 3", *["report"] * 4)
        assert page.address() == (port, token)
        browser.waits_for(REPORTS, "7")
        known = "net::ERR_"  # between the two processes, nobody has answered
        assert all(known in json.dumps(complaint) for complaint in browser.complaints), browser.complaints
        browser.complaints.clear()
        page.does("end")
        browser.waits_for(STATUS, "finished")
        browser.waits_for("events.readyState", 2)  # closed: nobody is asked any more
        assert browser.complaints == [], browser.complaints
        page.end()
        browser.close()


def of_a_real_run(followed):
    """Rank 0 is killed, and its driver starts another; a page that is open goes on."""
    with tempfile.TemporaryDirectory() as root:
        options = {"live": 0, "steps": 8, "pause_ms": 250, "fail": "kill", "fail_rank": 0, "failures": 1}
        run = subprocess.Popen([followed, json.dumps(options), root], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        said = []
        listener = threading.Thread(target=lambda: said.extend(iter(run.stderr.readline, "")), daemon=True)
        listener.start()
        while not any(map(ADDRESS.search, said)):
            assert run.poll() is None, said
            time.sleep(0.05)
        port, token = next(filter(None, map(ADDRESS.search, said))).groups()
        counted, last, ended = [], None, False
        while not ended and run.poll() is None:
            try:
                events = Events(int(port), token, last)
                while (found := events.next()) != (None, None):
                    kind, data = found
                    if kind == "report":
                        counted.append(data["training_iteration"])
                    elif kind == "rewind":
                        counted = counted[:data["iteration"]]
                    ended = ended or kind == "end"
            except OSError:
                time.sleep(0.1)
            else:
                last = events.last
                events.close()
        assert run.wait(timeout=60) == 0, said
        listener.join()
        assert counted == list(range(1, 9)) and ended, counted
        addresses = {match.group(0) for match in map(ADDRESS.search, said) if match}
        assert len(addresses) == 1 and sum(bool(ADDRESS.search(line)) for line in said) == 2, said


def main():
    with tempfile.TemporaryDirectory() as temporary:
        for number, test in enumerate((only_for_who_may, each_report_once, nobody_is_waited_for, a_port_in_use)):
            directory = pathlib.Path(temporary, str(number))
            directory.mkdir()
            test(directory)
            print(test.__name__)
        if len(sys.argv) > 2:
            of_a_real_run(sys.argv[2])
        if any(map(shutil.which, BROWSERS)):
            directory = pathlib.Path(temporary, "browser")
            directory.mkdir()
            in_a_browser(directory, find_browser())
        else:
            print("no browser")
    return 0


if __name__ == "__main__":
    sys.exit(main())
