#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Selects tests, builds the programs that they run, runs them, and sums up. scripts/test calls it.

    run_tests.py --check ARGUMENT...     whether scripts/test takes these arguments
    run_tests.py BUILD ARGUMENT...       BUILD is a configured build directory

tests/tests.txt says to which room and depth each test belongs, and how long it takes."""

import argparse
import difflib
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/tests.txt"
DEPTHS = ("quick", "all", "deep")
CHECKED_BENCHMARK = "rtrain_parity"
SLOW = 3  # times the expected duration, and a few seconds: then a test is reported
SLOW_AT_LEAST_S = 10
RESULT = re.compile(r"\s*\d+/\d+ +Test +#\d+: (\S+) \.*\s*(?:\*\*\*)?(.*?) +([0-9.]+) sec")
ADDED = re.compile(r"^add_test\(\[=*\[(.+?)\]=*\] (.*)\)$", re.MULTILINE)
STARTED = re.compile(r"\s*Start +\d+: ")


def read_rooms():
    rows = [line.split() for line in TABLE.read_text(encoding="utf-8").splitlines()]
    return sorted({row[1] for row in rows if row and not row[0].startswith("#")})


class Test:
    """What ctest knows of one; cmake/rtrainTestTable.cmake has labelled it with room and depth."""

    def __init__(self, entry, command):
        self.name = entry["name"]
        properties = {each["name"]: each["value"] for each in entry.get("properties", [])}
        self.labels = labels = properties["LABELS"]
        self.room = next(label for label in labels if label.startswith("room:")).removeprefix("room:")
        self.depth = next(depth for depth in DEPTHS if depth in labels)
        self.expected_s = float(properties.get("COST", 1))
        self.files = [*command, *properties.get("REQUIRED_FILES", [])]
        self.processors = int(properties.get("PROCESSORS", 1))
        self.requires = set(properties.get("FIXTURES_REQUIRED", []))
        self.sets_up = set(properties.get("FIXTURES_SETUP", []))
        self.status, self.seconds, self.output = "not run", 0.0, ""


def parser(rooms):
    # allow_abbrev: a misspelt option gets a suggestion instead of another option's meaning.
    words = argparse.ArgumentParser(
        prog="scripts/test", allow_abbrev=False, usage="scripts/test [options] [ROOM...]",
        description="Without a room: the quick tests. With rooms: all tests of these, but deep ones.",
        epilog=f"Rooms: {', '.join(rooms)}")
    words.add_argument("rooms", nargs="*", metavar="ROOM")
    words.add_argument("--all", action="store_true", help="all tests that CI runs")
    words.add_argument("--deep", action="store_true",
                       help="also the tests that take hours; without rooms, then --sanitize")
    words.add_argument("--sanitize", action="store_true",
                       help="processes and ranks under AddressSanitizer, in build/asan")
    words.add_argument("-R", "--tests-regex", metavar="REGEX", help="tests whose name matches")
    words.add_argument("-L", "--label-regex", metavar="REGEX", help="tests with a label that matches")
    words.add_argument("--again", action="store_true",
                       help="with --all: also what scripts/test has passed on the same source")
    words.add_argument("--list", action="store_true", help="show the selected tests; run none")
    words.add_argument("-j", "--jobs", type=int, default=2 * (os.cpu_count() or 1), metavar="N",
                       help="tests at a time (%(default)s: ranks often wait for each other)")
    return words


def parse(arguments):
    rooms = read_rooms()
    words = parser(rooms)
    options, unknown = words.parse_known_intermixed_args(arguments)
    for option in unknown:
        known = [name for action in words._actions for name in action.option_strings]
        words.error(f"unknown option {option}{did_you_mean(option, known)}; --help lists the options")
    for room in options.rooms:
        if room not in rooms:
            words.error(f"unknown room {room}{did_you_mean(room, rooms)}; the rooms are {', '.join(rooms)}")
    for regex in (options.tests_regex, options.label_regex):
        try:
            re.compile(regex or "")
        except re.error as error:
            words.error(f"{regex} is not a regular expression: {error}")
    if options.jobs < 1:
        words.error(f"-j {options.jobs}; expected at least 1")
    return options


def did_you_mean(word, known):
    near = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def registered(build):
    # ctest leaves out the command of a test whose program is not built yet; its files have it.
    commands = {}
    for file in build.rglob("CTestTestfile.cmake"):
        for name, words in ADDED.findall(file.read_text(encoding="utf-8")):
            commands[name] = re.findall(r'"((?:\\.|[^"\\])*)"', words)
    shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"],
                           capture_output=True, text=True, check=True)
    return [Test(entry, commands[entry["name"]]) for entry in json.loads(shown.stdout)["tests"]]


def is_whole(options):
    """Neither a room nor a pattern narrows the selection."""
    return not (options.rooms or options.tests_regex or options.label_regex or options.sanitize)


def select(tests, options):
    narrowed = [test for test in tests
                if (not options.rooms or test.room in options.rooms)
                and (not options.tests_regex or re.search(options.tests_regex, test.name))
                and (not options.label_regex or any(re.search(options.label_regex, label)
                                                    for label in test.labels))
                and (not options.sanitize or "sanitize" in test.labels)]
    deepest = ("deep" if options.deep or options.sanitize else
               "all" if options.all or not is_whole(options) else "quick")
    depths = DEPTHS[:DEPTHS.index(deepest) + 1]
    chosen = [test for test in narrowed if test.depth in depths]
    if narrowed and not chosen:
        sys.exit(f"scripts/test: only deep tests match, such as {narrowed[0].name}; add --deep")
    while True:  # what the chosen ones need, ctest runs too
        needed = set().union(*(test.requires for test in chosen))
        more = [test for test in tests if test not in chosen and test.sets_up & needed]
        if not more:
            return chosen
        chosen += more


# What scripts/test has passed, so that --all does not repeat it on the same source.

def source_state():
    """A hash of all that git sees of the source; None outside a clone, or without git."""
    if not shutil.which("git"):
        return None
    digest = hashlib.sha256()
    for command in ("rev-parse HEAD", "diff HEAD", "ls-files --others --exclude-standard"):
        found = subprocess.run(["git", "-C", str(ROOT), *command.split()], capture_output=True)
        if found.returncode != 0:
            return None
        digest.update(found.stdout)
    return digest.hexdigest()


def recall(record, state):
    try:
        passed = json.loads(record.read_text(encoding="utf-8"))
        return set(passed["names"]) if state and passed["source"] == state else set()
    except (OSError, ValueError, KeyError):
        return set()


# Building.

class Build:
    def __init__(self, directory):
        self.directory = directory
        self.programs = self.query("-t", "targets", "all")

    def query(self, *words):
        """The first words of the lines that ninja prints, up to the colon."""
        shown = subprocess.run(["ninja", "-C", str(self.directory), *words], capture_output=True,
                               text=True)
        return {line.split(":")[0] for line in shown.stdout.splitlines() if ":" in line}

    def targets_of(self, tests):
        """The files among the words of the tests' commands that this build makes."""
        found = set()
        for test in tests:
            for word in test.files:
                if os.path.isabs(word):
                    found.add(os.path.relpath(word, self.directory))
        found &= self.programs
        return sorted(found)

    def expected_s(self, targets):
        """How long the missing steps take: as long as last time, else what is usual."""
        usual = {"pch": 45, "torch": 28, "plain": 9, "link": 0.5}
        last = {}
        log = self.directory / ".ninja_log"
        for line in log.read_text().splitlines() if log.exists() else []:
            cells = line.split("\t")
            if len(cells) == 5:
                last[cells[3]] = (int(cells[1]) - int(cells[0])) / 1000
        # Under its own name, ninja would plan to run CMake first, and no more.
        shutil.copy(self.directory / "build.ninja", self.directory / "plan.ninja")
        plan = subprocess.run(["ninja", "-C", str(self.directory), "-f", "plan.ninja", "-n", "-v", *targets],
                              capture_output=True, text=True).stdout
        total = 0.0
        for line in plan.splitlines():
            output = re.search(r" -o (\S+)", line)
            if not output:
                continue
            kind = ("pch" if output[1].endswith(".gch") else
                    "link" if not output[1].endswith(".o") else
                    "torch" if "torch" in line or "cmake_pch" in line else "plain")
            total += last.get(output[1], usual[kind])
        return total / (os.cpu_count() or 1)

    def make(self, targets):
        """Ends this process where the build fails."""
        log = self.directory / "build.log"
        with open(log, "w", encoding="utf-8", buffering=1) as copy, subprocess.Popen(
                ["ninja", "-C", str(self.directory), *targets], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace") as ninja:
            for line in ninja.stdout:
                copy.write(line)
                step = re.match(r"\[(\d+)/(\d+)\] (.*)", line)
                if step and sys.stdout.isatty():
                    draw(int(step[1]), int(step[2]), pathlib.PurePath(step[3].split()[-1]).name)
                elif not step or int(step[1]) % 10 == 0 or step[1] == step[2]:
                    print(line, end="", flush=True)
        clear()
        if ninja.returncode == 0:
            return
        if "No space left on device" in log.read_text(encoding="utf-8"):
            sys.exit(f"scripts/test: the disk is full; the build needs about 4 GB in {self.directory}. "
                     "Free some space and run the same command: it resumes the build")
        sys.exit(f"scripts/test: the build failed; {log} has the whole output")


# Running.

def draw(done, total, what):
    if not sys.stdout.isatty():
        return
    width = 30
    filled = width * done // max(total, 1)
    columns = os.get_terminal_size().columns
    print(f"\r\x1b[K[{'#' * filled}{'.' * (width - filled)}] {done}/{total} {what}"[:columns + 3],
          end="", flush=True)


def clear():
    if sys.stdout.isatty():
        print("\r\x1b[K", end="", flush=True)


def run(build, tests, jobs):
    """Sets status, seconds and output of each."""
    by_name = {test.name: test for test in tests}
    junit = build / "Testing/results.xml"
    junit.unlink(missing_ok=True)
    regex = "^(" + "|".join(re.escape(name) for name in by_name) + ")$"
    done = failed = 0
    with subprocess.Popen(
            ["ctest", "--test-dir", str(build), "-j", str(jobs), "--output-on-failure",
             "--output-junit", str(junit), "-R", regex],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as ctest:
        draw(0, len(tests), "")
        for line in ctest.stdout:
            result = RESULT.match(line)
            if result and result[1] in by_name:
                test = by_name[result[1]]
                done += 1
                test.status = {"Passed": "passed", "Skipped": "skipped"}.get(result[2].strip(), "failed")
                test.seconds = float(result[3])
                failed += test.status == "failed"
                if test.status == "failed" or not sys.stdout.isatty():
                    clear()
                    print(f"[{done}/{len(tests)}] {test.name}: {result[2].strip().lower()} "
                          f"after {test.seconds:.1f} s", flush=True)
                draw(done, len(tests), f"{test.name}{f', {failed} failed' if failed else ''}")
            elif "tests passed," in line:
                break  # a list of what failed follows; ours is below
            elif failed and not STARTED.match(line):
                clear()
                print(line, end="")
        clear()
        ctest.stdout.read()
    if junit.exists():
        for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
            if case.get("name") in by_name:
                by_name[case.get("name")].output = case.findtext("system-out") or ""


def why_skipped(test):
    lines = [line.strip() for line in test.output.splitlines() if line.strip()]
    said = [line for line in lines if "skip" in line.lower()] or lines or ["it did not say why"]
    return said[-1] if "skip" not in said[0].lower() else said[0]


def summary(tests, speed):
    rooms = sorted({test.room for test in tests})
    width = max(len(room) for room in rooms)
    print(f"\n{'room':<{width}}  passed  failed  skipped  seconds")
    for room in rooms:
        here = [test for test in tests if test.room == room]
        counts = [sum(test.status == status for test in here) for status in ("passed", "failed", "skipped")]
        print(f"{room:<{width}}  {counts[0]:>6}  {counts[1]:>6}  {counts[2]:>7}"
              f"  {sum(test.seconds for test in here):>7.1f}")
    for test in tests:
        if test.status == "skipped":
            print(f"Skipped: {test.name}: {why_skipped(test)}")
    slowest = sorted(tests, key=lambda test: -test.seconds)[:3]
    print("Slowest: " + ", ".join(f"{test.name} {test.seconds:.1f} s" for test in slowest))
    for test in tests:
        limit = max(SLOW * test.expected_s * speed, SLOW_AT_LEAST_S)
        if test.status == "passed" and test.seconds > limit:
            print(f"Slow: {test.name} took {test.seconds:.1f} s; expected {test.expected_s * speed:.1f} s")
    for test in tests:
        if test.status in ("failed", "not run"):
            print(f"{test.status.capitalize()}: {test.name} (scripts/test {'--deep ' if test.depth == 'deep' else ''}"
                  f"-R '^{re.escape(test.name)}$')")
    failed = sum(test.status in ("failed", "not run") for test in tests)
    print(f"\n{sum(test.status == 'passed' for test in tests)} passed, {failed} failed, "
          f"{sum(test.status == 'skipped' for test in tests)} skipped", flush=True)
    return failed


class Speed:
    """How much longer tests take here than the table says: learned from each run."""

    def __init__(self, build):
        self.file = build / "Testing/speed.txt"
        try:
            self.factor = float(self.file.read_text())
        except (OSError, ValueError):
            self.factor = max(1.0, 2 / (os.cpu_count() or 1))

    def learn(self, tests):
        expected = sum(test.expected_s for test in tests if test.status == "passed")
        took = sum(test.seconds for test in tests if test.status == "passed")
        if expected > 20:
            self.file.write_text(f"{min(max(took / expected, 0.2), 10):.2f}\n")


def minutes(seconds):
    return "less than a minute" if seconds < 60 else f"{math.ceil(seconds / 60)} min"


def expected_s(tests, jobs, speed):
    """Tests share the cores; the longest one is the least that it takes."""
    cores = os.cpu_count() or 1
    places = min(jobs, 2 * cores)
    busy = sum(test.expected_s * max(1, test.processors) for test in tests) / places
    return speed * max([busy, *(test.expected_s for test in tests)])


def main():
    if sys.argv[1:2] == ["--check"]:
        parse(sys.argv[2:])
        return 0
    directory = pathlib.Path(sys.argv[1]).resolve()
    options = parse(sys.argv[2:])
    tests = select(registered(directory), options)
    quick = is_whole(options) and not (options.all or options.deep)

    record, state = directory / "Testing/passed.json", source_state()
    (directory / "Testing").mkdir(exist_ok=True)
    if options.all and is_whole(options) and not options.again:
        passed = recall(record, state)
        record.unlink(missing_ok=True)
        repeated = [test for test in tests if test.name in passed]
        if repeated:
            print(f"{len(repeated)} tests passed in scripts/test on the same source and are not "
                  "repeated (--again repeats them)")
            tests = [test for test in tests if test.name not in passed]
    if not tests:
        print("scripts/test: no test is selected", file=sys.stderr)
        return 2
    if options.list:
        for test in sorted(tests, key=lambda test: (test.room, test.name)):
            print(f"{test.room:<12} {test.depth:<6} {test.expected_s:>6.1f} s  {test.name}")
        return 0

    build, speed = Build(directory), Speed(directory)
    targets = build.targets_of(tests)
    if is_whole(options) and (options.all or options.deep):
        targets = ["all", CHECKED_BENCHMARK, *(["deep"] if options.deep else []), *targets]
    to_build = build.expected_s(targets)
    to_test = expected_s(tests, options.jobs, speed.factor)
    print(f"{len(tests)} tests. Expected on this machine: {minutes(to_build + to_test)} "
          f"(to build: {minutes(to_build)}, to test: {minutes(to_test)})", flush=True)
    begin = time.monotonic()
    build.make(targets or ["help"])
    built = time.monotonic()
    run(directory, tests, options.jobs)
    ended = time.monotonic()
    print(f"\nBuilt in {built - begin:.0f} s, tested in {ended - built:.0f} s")
    failed = summary(tests, speed.factor)
    speed.learn(tests)
    if quick and state:
        record.write_text(json.dumps(
            {"source": state, "names": [test.name for test in tests if test.status == "passed"]}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
