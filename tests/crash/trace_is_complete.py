#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That interpose.cpp misses nothing: compares the traces that crash_states records with those that
strace sees.  trace_is_complete.py <crash_states>.  Exit code 77 where strace is missing or may not
trace."""
import collections
import re
import shutil
import subprocess
import sys
import tempfile

# What changes nothing. Any other call on a watched file must be one that the comparison knows.
READ_ONLY = {
    "access", "close", "faccessat2", "fadvise64", "fcntl", "flock", "fstat", "getdents64", "ioctl",
    "lseek", "lstat", "munmap", "newfstatat", "pread64", "read", "readlink", "readv", "stat",
    "statx", "sync_file_range", "getcwd", "poll", "chdir",
}


def without_numbers(text):
    return re.sub(r"[0-9a-f]{8,}|[0-9]+", "#", text)


def recorded(lines):
    """The operations that `crash_states --show` prints, with numbers left out."""
    for line in lines:
        match = re.match(r" *\d+ (mkdir|create|write|sync|rename|remove|truncate)\b ?(.*)", line)
        if match:
            kind, what = match.groups()
            if kind == "sync":
                what = re.sub(r"/ after .*", "", what)
            yield kind, without_numbers(what)


def seen(lines):
    """The same from strace's output, and the calls that nobody models."""
    root = None
    created = set()
    unfinished = {}
    for line in lines:
        thread = line.split()[0]
        if line.endswith("<unfinished ...>"):
            unfinished[thread] = line[:-len("<unfinished ...>")]
            continue
        line = re.sub(r"^\d+ +<\.\.\. \w+ resumed>", lambda _: unfinished.pop(thread), line)
        begins = re.search(r'access\("(.*)/recording-begins"', line)
        if begins:
            root = begins.group(1)
            created = set()
            continue
        if "recording-ends" in line:
            root = None
        if root is None or root not in line:
            continue
        match = re.match(r"\d+ +(\w+)\((.*)\) += (-?\d+)", line)
        if not match:
            yield "unreadable", line.strip()
            continue
        name, arguments, result = match.group(1), match.group(2), int(match.group(3))
        if result < 0:
            continue

        def paths():
            found = []
            for directory, path in re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"', arguments):
                whole = path if path.startswith("/") else f"{directory}/{path}"
                found.append(re.sub(r"/+$", "", whole))
            return [without_numbers(p[len(root) + 1:]) or "." for p in found]

        def open_file():
            path = re.match(r"\d+<([^>]*)>", arguments).group(1)
            return without_numbers(path[len(root) + 1:]) or "."

        if name in ("mkdir", "mkdirat"):
            yield "mkdir", paths()[0]
        elif name in ("open", "openat"):
            if "O_TRUNC" in arguments or "O_CREAT" in arguments:
                path = re.search(r'"([^"]*)"', arguments).group(1)
                new = path not in created and "O_CREAT" in arguments
                if new:
                    created.add(path)
                    yield "create", paths()[0]
                elif "O_TRUNC" in arguments:
                    yield "truncate", paths()[0]
        elif name == "write":
            yield "write", f"# to {open_file()}"
        elif name in ("fsync", "fdatasync"):
            yield "sync", open_file()
        elif name in ("rename", "renameat", "renameat2"):
            old, new = re.findall(r'"([^"]*)"', arguments)
            created.discard(old)
            created.add(new)
            yield "rename", " to ".join(paths())
        elif name in ("unlink", "unlinkat", "rmdir"):
            path = re.search(r'"([^"]*)"', arguments).group(1)
            created.discard(path)
            yield "remove", paths()[0]
        elif name == "mmap" and not ("MAP_SHARED" in arguments and "PROT_WRITE" in arguments):
            pass
        elif name not in READ_ONLY:
            yield "not modelled", line.strip()


def main(program):
    if shutil.which("strace") is None:
        print("SKIPPED: no strace here")
        return 77
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as log:
        run = subprocess.run(
            ["strace", "-f", "-y", "-s", "4096", "--seccomp-bpf", "-e", "trace=%file,%desc", "-o",
             log.name, program, "--show", "--resumes", "0"],
            capture_output=True, text=True)
        strace = log.read().splitlines()
    if not strace:
        print("SKIPPED: strace may not trace here:", run.stderr.strip())
        return 77
    if run.returncode != 0:
        print(run.stderr)
        return 1
    ours = collections.Counter(recorded(run.stdout.splitlines()))
    theirs = collections.Counter(seen(strace))
    for kind, what in sorted((ours - theirs).elements()):
        print("only recorded:", kind, what)
    for kind, what in sorted((theirs - ours).elements()):
        print("missed:", kind, what)
    print(f"{sum(ours.values())} operations recorded, {sum(theirs.values())} seen by strace")
    return 0 if ours == theirs and sum(ours.values()) > 500 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
