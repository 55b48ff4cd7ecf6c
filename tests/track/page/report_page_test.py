# SPDX-License-Identifier: Apache-2.0
"""The page of a run in a browser: what it draws, what it says on the console, whom it asks.

report_page_test.py <write_report_page>
"""
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import net_log  # noqa: E402

BROWSERS = ["chromium-headless-shell", "chromium", "google-chrome"]
SKIPPED = 77


def find_browser():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("skipped: no", ", ".join(BROWSERS), "(apt-get install chromium-headless-shell)")
        sys.exit(SKIPPED)
    return browser


def browse(browser, page, *arguments):
    """What the browser prints, what the page says on the console, and whom it asks."""
    with tempfile.TemporaryDirectory() as profile:
        log = pathlib.Path(profile, "net.json")
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-background-networking", "--disable-component-update", "--no-first-run",
             "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}/user",
             "--enable-logging=stderr", f"--log-net-log={log}", "--virtual-time-budget=5000",
             *arguments, page.as_uri()],
            capture_output=True, text=True, timeout=120, check=True)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout, console, net_log.asked_by_pages(log)


def changes(screenshot):
    """The share of bytes of a PNG file that differ from what its filters expect: 0 where all is of
    one colour."""
    data = screenshot.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    bytes_ = zlib.decompress(packed)
    return 1 - bytes_.count(0) / len(bytes_)


def check_that_faults_are_noticed(browser, directory):
    page = directory / "faults.html"
    page.write_text("<img src='http://example.invalid/x'><script>undefined_function()</script>")
    _, console, asked = browse(browser, page, "--dump-dom")
    assert any("undefined_function" in line for line in console), console
    assert "http://example.invalid/x" in asked, asked
    blank = directory / "blank.html"
    blank.write_text("<body style='background: #fff'></body>")
    picture = directory / "blank.png"
    browse(browser, blank, f"--screenshot={picture}", "--window-size=1000,1000")
    assert changes(picture) < 0.005, changes(picture)


def check_page(browser, page, reports):
    assert page.stat().st_size < 5_000_000
    dom, console, asked = browse(browser, page, "--dump-dom")
    assert not console, console
    assert not asked, asked
    assert f"<title>a run of {reports} reports</title>" in dom, "a metric's name was run"
    assert "&lt;script&gt;document.title = 'broken'&lt;/script&gt;</h3>" in dom
    curves = re.findall(r'<path class="curve" d="([^"]*)"', dom)
    assert len(curves) == 6, len(curves)  # loss, grad_norm, <script>, val/loss, val/accuracy, rows/s
    for curve in curves:
        points = len(re.findall("[ML]", curve))
        assert 1 <= points <= 2500, points
        assert reports == 1 or points >= 10, points
        assert "NaN" not in curve and "undefined" not in curve
    assert dom.count('class="part ') == (6 if reports > 1 else 0)
    gaps = re.findall(r'<path class="odd" d="([^"]*)"', dom)
    assert any(gaps) == (reports > 1)
    picture = page.with_suffix(".png")
    browse(browser, page, f"--screenshot={picture}", "--window-size=1000,1000")
    assert changes(picture) > 0.01, changes(picture)


USE = """<script>
const svg = document.querySelector("svg.chart"), box = svg.getBoundingClientRect();
const point = (kind, share) => svg.dispatchEvent(new PointerEvent(kind, {pointerId: 1,
  clientX: box.left + box.width * share, clientY: box.top + 50}));
const value = () => svg.parentNode.querySelector(".value").textContent;
const labels = () => [...svg.querySelectorAll("text")].map(text => text.textContent).join(" ");
svg.setPointerCapture = () => {};
const seen = [];
point("pointermove", 54 / 460);
seen.push(value());
point("pointerleave", 0);
seen.push(value().slice(0, 4));
svg.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft"}));
seen.push(value().split(":")[0]);
document.querySelector("#tools input[type=checkbox]").click();
seen.push(labels().split(" ").slice(0, 2).join(" "));
point("pointerdown", 0.5);
point("pointerup", 0.7);
seen.push(labels().includes(" 60 ") && !labels().includes(" 20 "));
document.querySelector("#tools button").click();
seen.push(labels().includes(" 20 "));
const select = document.querySelector("#tools select");
seen.push([...select.options].map(option => option.value).join(" "));
select.value = "time";
select.dispatchEvent(new Event("change"));
seen.push(labels().endsWith(" time") && labels().includes(" min "));
point("pointermove", 54 / 460);
seen.push(value());
select.value = "rows";
select.dispatchEvent(new Event("change"));
seen.push(labels().endsWith(" rows") && labels().includes(" 200000 "));
document.title = seen.join("; ");
</script>"""


def check_use(browser, page):
    """Values under the pointer and at the keyboard, the logarithmic scale, zooming in and out."""
    used = page.with_name("used.html")
    used.write_text(page.read_text() + USE)
    dom, console, _ = browse(browser, used, "--dump-dom")
    assert not console, console
    title = re.search("<title>(.*?)</title>", dom).group(1)
    assert title == ("1: 2.30198; last; 99; 1 10; true; true; "
                     "iteration time rows; true; 1: 2.30198; true"), title


PHONE = """<script>
const sizes = [...document.querySelectorAll("svg.chart text")].map(text =>
  text.getBoundingClientRect().height);
document.title = [innerWidth, document.documentElement.scrollWidth, Math.min(...sizes) >= 9,
  sizes.length > 20].join("; ");
</script>"""


def check_phone(browser, page):
    """Nothing is wider than the screen but tables, which scroll by themselves; letters can be read."""
    used = page.with_name("phone.html")
    used.write_text(page.read_text() + PHONE)
    frame = page.with_name("frame.html")  # a browser's window may have a least width
    frame.write_text(f"<iframe src='{used.name}' style='width: 360px; height: 700px' onload='"
                     "document.title = this.contentDocument.title'></iframe>")
    dom, console, _ = browse(browser, frame, "--dump-dom", "--allow-file-access-from-files")
    assert not console, console
    title = re.search("<title>(.*?)</title>", dom).group(1)
    assert title == "360; 360; true; true", title


def main():
    browser = find_browser()
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        check_that_faults_are_noticed(browser, directory)
        for reports in (1, 100, 100_000):
            page = directory / f"{reports}.html"
            subprocess.run([sys.argv[1], str(reports), page], check=True)
            check_page(browser, page, reports)
            if reports == 100:
                check_use(browser, page)
                check_phone(browser, page)
            print(reports, "reports:", page.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
