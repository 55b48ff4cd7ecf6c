#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation that scripts/site builds, in a browser: no page is wider than a telephone or a desk's
screen, none complains on the console, none asks for anything elsewhere, and the search finds.

Usage: site_test.py ROOT
"""

import functools
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import net_log  # noqa: E402

BROWSERS = ["chromium-headless-shell", "chromium", "google-chrome"]
SKIPPED = 77
WIDTHS = (360, 1280)
REFERENCE = re.compile(r"(index|annotated|namespaces|files|hierarchy|functions|classrtrain_1_1(Trainer|Worker|State|"
                       r"Checkpoint).*|namespacertrain.*|structrtrain_1_1\w*(Config|Options))\.html")
# Shows each page in a frame of each width, and notes those that are wider than their frame.
FRAMES = """<!doctype html><title>running</title><body><script>
(async () => {
  const wide = [];
  for (const width of WIDTHS) for (const page of PAGES) {
    const frame = document.createElement("iframe");
    frame.style.cssText = `border: 0; width: ${width}px; height: 800px`;
    await new Promise(done => { frame.onload = done; frame.src = page; document.body.append(frame); });
    await new Promise(done => setTimeout(done, 20));
    const root = frame.contentDocument.documentElement;
    if (root.scrollWidth > width) wide.push(`${page} at ${width}: ${root.scrollWidth}`);
    frame.remove();
  }
  await fetch("/done", {method: "POST", body: JSON.stringify(wide)});
})();
</script>"""


class Server(http.server.SimpleHTTPRequestHandler):
    answers = []

    def do_POST(self):
        self.answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def copyfile(self, source, outputfile):
        try:
            super().copyfile(source, outputfile)
        except ConnectionError:  # a page was left before all of it had come
            pass

    def log_message(self, *_):
        pass


def find(names, package):
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        print("skipped: no", ", ".join(names), f"(apt-get install {package}, or scripts/site)")
        sys.exit(SKIPPED)
    return found


def command(browser, profile, log, *arguments):
    return [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--disable-component-update", "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={profile}/user",
            "--enable-logging=stderr", f"--log-net-log={log}", *arguments]


def asked_elsewhere(log, port):
    return [url for url in net_log.asked_by_pages(log) if not url.startswith(f"http://127.0.0.1:{port}/")]


def check(browser, site, pages):
    """What is too wide, what pages say on the console, and whom they ask."""
    with tempfile.TemporaryDirectory() as profile:
        frames = site / "frames-of-test.html"
        frames.write_text(FRAMES.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGES", json.dumps(pages)))
        handler = functools.partial(Server, directory=str(site))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port, log, errors = server.server_address[1], pathlib.Path(profile, "net.json"), \
            pathlib.Path(profile, "errors")
        Server.answers.clear()
        try:
            with errors.open("w") as out:
                running = subprocess.Popen(
                    command(browser, profile, log, "--window-size=1400,900", "--remote-debugging-port=0",
                            f"http://127.0.0.1:{port}/{frames.name}"), stdout=out, stderr=out)
                end = time.monotonic() + 540
                while not Server.answers and running.poll() is None and time.monotonic() < end:
                    time.sleep(0.1)
                running.terminate()
                running.wait(30)
        finally:
            server.shutdown()
            frames.unlink()
        assert Server.answers, "the browser never came to the end:\n" + errors.read_text()[-3000:]
        console = [line for line in errors.read_text().splitlines() if "CONSOLE" in line]
        return Server.answers[0], console, asked_elsewhere(log, port)


def check_that_faults_are_noticed(browser):
    with tempfile.TemporaryDirectory() as temporary:
        site = pathlib.Path(temporary)
        (site / "wide.html").write_text("<!doctype html><div style='width: 500px'>x</div>")
        (site / "bad.html").write_text(
            "<!doctype html><img src='http://example.invalid/x'><script>undefined_function()</script>")
        wide, console, asked = check(browser, site, ["wide.html", "bad.html"])
        assert len(wide) == 1 and wide[0].startswith("wide.html at 360: 50"), wide
        assert any("undefined_function" in line for line in console), console
        assert asked == ["http://example.invalid/x"], asked


def check_search(browser, site):
    """From a file, without a server."""
    with tempfile.TemporaryDirectory() as profile:
        log = pathlib.Path(profile, "net.json")
        done = subprocess.run(
            command(browser, profile, log, "--virtual-time-budget=20000", "--dump-dom",
                    (site / "index.html").as_uri() + "?q=preemption"),
            capture_output=True, text=True, timeout=120, check=True)
        found = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', done.stdout)
        assert any("h=preemption" in link for link in found), (found, done.stderr[-2000:])
        assert not asked_elsewhere(log, 0), asked_elsewhere(log, 0)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    browser = find(BROWSERS, "chromium-headless-shell")
    find(["doxygen"], "doxygen")
    if not (root / "build/site-venv/bin/mkdocs").exists():
        print("skipped: scripts/site has not installed MkDocs here")
        sys.exit(SKIPPED)
    check_that_faults_are_noticed(browser)
    begin = time.monotonic()
    subprocess.run([root / "scripts/site"], check=True)
    print(f"built in {time.monotonic() - begin:.0f} s")
    site = root / "build/site"
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    pages = [page for page in pages if not page.startswith("reference/") or REFERENCE.fullmatch(page[10:])]
    wide, console, asked = check(browser, site, pages)
    print(f"{len(pages)} pages", *wide, *console, *asked, sep="\n")
    assert not wide and not console and not asked
    check_search(browser, site)


if __name__ == "__main__":
    main()
