#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people see of real runs: on pseudo-terminals, in pipes, and where nobody reads.

Usage: console_test.py SHOWN MPIRUN [NAME...]

SHOWN is the program of tests/console/shown.cpp. Bytes that come from a terminal are shown to an emulator
of one, so that a line counts as broken when it would look broken.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

SHOWN, MPIRUN = sys.argv[1:3]
LIMIT_S = 120
BAR = re.compile(r"^epoch \d+/\d+: +\d+%")
CLEAR = "\r\x1b[K"


def environment(**variables):
    plain = {name: value for name, value in os.environ.items()
             if name not in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG")}
    return {**plain, "TERM": "xterm", "LC_ALL": "C", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}


def open_terminal(columns):
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return master, slave


def resize(master, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def on_terminal(command, columns=80, resized=None, signalled=None, **variables):
    """(exit status, all that came to the terminal). Behind the first bar, the terminal is `resized` to so many
    columns, or the program gets a signal."""
    master, slave = open_terminal(columns)
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment(**variables),
                               start_new_session=True)
    os.close(slave)
    data = b""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        ready, _, _ = select.select([master], [], [], 0.1)
        if ready:
            try:
                part = os.read(master, 65536)
            except OSError:  # the last writer has gone
                break
            data += part
            if resized and b"%|" in data:
                resize(master, resized)
                resized = None
            if signalled and b"%|" in data:
                process.send_signal(signalled)
                signalled = None
        elif process.poll() is not None:
            break
    os.close(master)
    return process.wait(timeout=10), data.decode("utf-8", "strict")


class Emulator:
    """A terminal without end: what stands on it, and each bar that ever stood in its last line."""

    def __init__(self, text):
        self.lines, self.row, self.column, self.bars = [], "", 0, []
        at = 0
        while at < len(text):
            code = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])").match(text, at)
            if code:
                assert code.group(2) in "Km", code.group(0)
                if code.group(2) == "K":
                    self.row = self.row[:self.column]
                at = code.end()
                continue
            self.put(text[at])
            at += 1
        self.note_bar()

    def put(self, character):
        if character == "\r":
            self.note_bar()
            self.column = 0
        elif character == "\n":
            self.lines.append(self.row)
            self.row, self.column = "", 0
        else:
            assert character >= " ", f"{character!r} reached the terminal"
            self.row = self.row[:self.column].ljust(self.column) + character + self.row[self.column + 1:]
            self.column += 1

    def note_bar(self):
        if BAR.match(self.row) and self.row not in self.bars[-1:]:
            self.bars.append(self.row)


def run(*arguments, **options):
    with tempfile.TemporaryDirectory() as storage:
        return on_terminal([SHOWN, storage, *map(str, arguments)], **options)


def check_story(text, ranks, model=True):
    """The header, the model and the end stand there once, in this order, and whole."""
    parts = [r"rtrain \d+\.\d+\.\d+: run run\n", r"  libtorch +\d+\.\d+.*\(/.*libtorch",
             rf"  ranks +{ranks} on 1 host, \d+ threads? each, cpu\n", r"  storage +/"]
    if model:
        parts += [r"  part +type +parameters +trainable +bytes\n",
                  r"  first +Linear +40 +32 +160 B\n", r"  odd\?\[2J +Sequential +81 +81 +324 B\n",
                  r"  all +Net +121 +113 +484 B\n", r"  first step +[\d.]+ k?FLOP per rank",
                  rf"  batch +8 per rank, {8 * ranks} in total\n"]
    parts += [r"rtrain: run run has finished, with 2 reports\n", r"  last +loss=\S+, epoch=1\n",
              r"  best +loss=\S+, in checkpoint_\d+\n", r"  time +[\d,]+ rows/s; \w+ \d+ %", r"  files +/.*/run\n",
              r"  resume +/"]
    at = 0
    for part in parts:
        found = re.compile(part).search(text, at)
        assert found, f"{part!r} is missing behind {text[:at]!r} in {text!r}"
        assert len(re.findall(part, text)) == 1, f"{part!r} is there twice in {text}"
        at = found.end()


def bars_fit_the_terminal():
    for columns in (40, 80, 200):
        status, text = run("--alone", "--pause", 60, columns=columns)
        assert status == 0, text
        screen = Emulator(text)
        assert len(screen.bars) >= 5, screen.bars
        assert max(map(len, screen.bars)) == columns - 1, screen.bars
        assert all(len(bar) <= columns - 1 for bar in screen.bars), screen.bars
        assert not any("%|" in line for line in screen.lines), screen.lines
        assert screen.row == "", screen.row
        assert [bar.split(":")[0] for bar in screen.bars] == sorted(bar.split(":")[0] for bar in screen.bars)
        if columns >= 80:
            check_story("\n".join(screen.lines) + "\n", 1)
            assert any("/10 [" in bar and "it/s" in bar for bar in screen.bars), screen.bars
        if columns == 200:
            assert any("step loss=" in bar and ", epoch=0]" in bar for bar in screen.bars), screen.bars


def a_terminal_may_be_resized():
    status, text = run("--alone", "--pause", 60, columns=80, resized=60)
    assert status == 0, text
    bars = Emulator(text).bars
    assert len(bars[0]) == 79 and len(bars[-1]) == 59, bars


def the_driver_draws_one_bar_for_8_ranks():
    status, text = run("--ranks", 8, "--chatter", 3, "--pause", 80)
    assert status == 0, text
    screen = Emulator(text)
    check_story("\n".join(screen.lines) + "\n", 8)
    assert len(screen.bars) >= 5, screen.bars
    assert not any("%|" in line for line in screen.lines), screen.lines
    said = [line for line in screen.lines if " end" in line]
    whole = [line for line in said if re.fullmatch(r"\[rank \d\] (out|err) \d \d \d end", line)]
    assert said == whole, [line for line in said if line not in whole]
    assert len(said) == len(set(said)) == 8 * 2 * 10 * 3 * 2, len(said)
    counts = [int(re.search(r"(\d+)/10 \[", bar).group(1)) for bar in screen.bars
              if bar.startswith("epoch 1/2") and "/10 [" in bar]
    assert counts == sorted(counts), counts


def under_mpirun_there_is_no_bar_and_one_story():
    with tempfile.TemporaryDirectory() as storage:
        status, text = on_terminal([MPIRUN, "-n", "8", "--oversubscribe", "--bind-to", "none", SHOWN, storage,
                                    "--ranks", "8", "--pause", "5"])
    assert status == 0, text
    assert "\x1b" not in text and "%|" not in text, text
    check_story(text.replace("\r\n", "\n").replace("the same command again", "/"), 8)


def in_a_pipe_there_are_lines():
    with tempfile.TemporaryDirectory() as storage:
        begin = time.monotonic()
        programs = [subprocess.Popen([SHOWN, f"{storage}/{ranks}", *arguments, "--batches", "32", "--pause", "200"],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
                    for ranks, arguments in ((1, ["--alone"]), (2, ["--ranks", "2"]))]
        for ranks, program in enumerate(programs, 1):
            output, said = program.communicate(timeout=LIMIT_S)
            assert (program.returncode, output) == (0, ""), (output, said)
            assert "\x1b" not in said and "\r" not in said, said
            check_story(said, ranks)
            lines = re.findall(r"^rtrain: epoch \d/2: +\d+% \d+/32 \[\d\d:\d\d<\S+, \d\.\d(?:it/s|s/it), .*\]$", said,
                               re.MULTILINE)
            assert 1 <= len(lines) <= (time.monotonic() - begin) / 10, said


def colors_are_for_those_who_want_them():
    for variables, colored in (({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False),
                               ({"TERM": "dumb"}, False)):
        for arguments in (["--alone"], ["--ranks", "2"]):
            _, text = run(*arguments, "--pause", 40, **variables)
            assert ("\x1b[32m" in text) == colored, (variables, text)
    assert CLEAR not in text, text  # of a terminal that cannot do it
    _, text = run("--alone", "--pause", 40, LC_ALL="C.UTF-8")
    assert "\u2588" in text, text


def verbose_0_is_silent():
    for arguments in (["--alone"], ["--ranks", "2"]):
        status, text = run(*arguments, "--verbose", 0)
        assert (status, text) == (0, ""), text
        status, text = run(*arguments, "--verbose", 0, "--fail")
        assert status == 1 and "bad luck" in text and "has failed" not in text, text


def verbose_2_shows_parts_of_parts():
    _, text = run("--alone", "--verbose", 2)
    assert re.search(r"\n  odd\?\[2J +Sequential +81 .*\n    0 +Linear +72 .*\n    1 +Linear +9 .*\n", text.replace(
        "\r\n", "\n")), text


def a_failed_run_says_so():
    for arguments in (["--alone"], ["--ranks", "2"]):
        status, text = run(*arguments, "--fail")
        assert status == 1, text
        screen = Emulator(text)
        story = "\n".join(screen.lines)
        assert "rtrain: run run has failed, with 1 report\n" in story, story
        assert "threw" in screen.lines[-1] or "threw" in story, story
        assert not any("%|" in line for line in screen.lines), screen.lines


def an_interrupted_driver_takes_its_bar_with_it():
    status, text = run("--ranks", 2, "--pause", 200, signalled=signal.SIGINT)
    assert status == 75, (status, text)  # it has saved
    screen = Emulator(text)
    assert screen.bars and screen.row == "" and not any("%|" in line for line in screen.lines), text


def a_resumed_run_says_where_from():
    with tempfile.TemporaryDirectory() as storage:
        assert on_terminal([SHOWN, storage, "--alone", "--epochs", "1"])[0] == 0
        status, text = on_terminal([SHOWN, storage, "--alone", "--epochs", "2", "--pause", "60"])
    assert status == 0 and "  resumed   from checkpoint_000000, after 1 report\r\n" in text, text
    assert Emulator(text).bars[0].startswith("epoch 2/2: "), text


def nobody_has_to_read():
    """A closed standard error, a pipe without a reader, a full one, a terminal that is stopped."""
    with tempfile.TemporaryDirectory() as storage:
        command = [SHOWN, storage + "/a", "--alone", "--pause", "1"]
        closed = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *command], env=environment(), check=False,
                                timeout=LIMIT_S)
        assert closed.returncode == 0

        reader, writer = os.pipe()
        os.close(reader)
        command[1] = storage + "/b"
        broken = subprocess.run(command, env=environment(), check=False, stderr=writer, timeout=LIMIT_S)
        os.close(writer)
        assert broken.returncode == 0

        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        command[1] = storage + "/c"
        full = subprocess.run(command, env=environment(), check=False, stderr=writer, timeout=LIMIT_S)
        os.close(writer)
        os.close(reader)
        assert full.returncode == 0

        for arguments in (["--alone"], ["--ranks", "2"]):
            master, slave = open_terminal(80)
            termios.tcflow(slave, termios.TCOOFF)
            stopped = subprocess.run([SHOWN, storage + "/d" + arguments[0], *arguments, "--pause", "20"],
                                     env=environment(), check=False, stderr=slave, timeout=LIMIT_S)
            os.close(slave)
            os.close(master)
            assert stopped.returncode == 0
        for name in "abc":
            assert pathlib.Path(storage, name, "run", "report.html").exists()


TESTS = [bars_fit_the_terminal, a_terminal_may_be_resized, the_driver_draws_one_bar_for_8_ranks,
         under_mpirun_there_is_no_bar_and_one_story, in_a_pipe_there_are_lines, colors_are_for_those_who_want_them,
         verbose_0_is_silent, verbose_2_shows_parts_of_parts, a_failed_run_says_so,
         an_interrupted_driver_takes_its_bar_with_it, a_resumed_run_says_where_from, nobody_has_to_read]

for test in TESTS:
    if sys.argv[3:] and test.__name__ not in sys.argv[3:]:
        continue
    begin = time.monotonic()
    test()
    print(f"{test.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
