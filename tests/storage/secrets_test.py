#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No secret of a run turns up where others may read it.

    secrets_test.py PROGRAM

PROGRAM is storage_secrets. Each run has a canary in each of SECRET_VARIABLES, and some have one in
the storage URI or the service's address. They, and the token of the control channel, are looked for
in all that driver and ranks print, in the command line of every process, in the temporary
directories and in shared memory during the run and after it, and in all that it stores. A
rank's memory, which a core file would hold, is searched for the token.
"""

import contextlib
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time

import boto3

MARKER = "SECRETS_TEST_ID"
LIMIT_S = 60
SECRET_VARIABLES = (
    "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_STORAGE_KEY "
    "AZURE_CLIENT_SECRET GOOGLE_API_KEY WANDB_API_KEY HF_TOKEN MLFLOW_TRACKING_PASSWORD "
    "SHOP_DATABASE_PASSWORD"
).split()
TOKEN = "RTRAIN_CONTROL_TOKEN"


def canary():
    return "CANARY" + secrets.token_hex(12)


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


class Run:
    """One start of the program; finds canaries."""

    def __init__(self, program, directory, kind, storage, variables=()):
        self.program = program
        self.marker = canary()
        self.directory = directory
        self.tmp = directory / "tmp"
        self.tmp.mkdir(parents=True)
        self.log = directory / "output"
        self.go = directory / "go"
        self.secrets = {name: canary() for name in SECRET_VARIABLES}
        self.hits = set()
        self.looks = 0
        environment = dict(
            os.environ,
            TMPDIR=str(self.tmp),
            SECRETS_STORAGE=storage,
            SECRETS_GO=str(self.go),
            AWS_EC2_METADATA_DISABLED="true",
            OMPI_MCA_mpi_yield_when_idle="1",
            **self.secrets,
        )
        environment.update(variables)
        environment[MARKER] = self.marker
        with open(self.log, "wb") as log:
            self.driver = subprocess.Popen(
                [program, kind], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def add_canaries(self, places):
        self.secrets.update(places)
        return self

    def processes(self):
        """Process id and environment of each of the run's."""
        for entry in os.listdir("/proc"):
            settings = read(f"/proc/{entry}/environ") if entry.isdigit() else b""
            if f"{MARKER}={self.marker}".encode() in settings.split(b"\0"):
                yield int(entry), dict(
                    word.split(b"=", 1) for word in settings.split(b"\0") if b"=" in word
                )

    def search(self, where, content):
        for name, secret in self.secrets.items():
            if secret.encode() in content or secret.encode() in where.encode():
                self.hits.add(f"{name} in {where.replace(secret, '***')}")

    def search_files(self, root, where):
        for folder, _, names in os.walk(root):  # which may change meanwhile
            for name in names:
                path = pathlib.Path(folder, name)
                if path.is_file():
                    self.search(f"{where}/{path.relative_to(root)}", read(path))

    def look_around(self):
        """What others than the run's processes may read while it lives."""
        self.looks += 1
        for pid, variables in self.processes():
            token = variables.get(TOKEN.encode(), b"").decode().strip("\0")
            if token:
                self.secrets[TOKEN] = token
            name = read(f"/proc/{pid}/comm").decode().strip()
            self.search(f"the command line of {name}", read(f"/proc/{pid}/cmdline"))
        self.search_files(self.tmp, "TMPDIR")
        for path in pathlib.Path("/dev/shm").glob("rtrain-*"):
            self.search_files(path, "/dev/shm")

    def output(self):
        return self.log.read_text(errors="replace")

    def search_memory_of_ranks(self):
        """For the token. The search must find what a program's environment holds of necessity."""
        found = 0
        for pid, variables in self.processes():
            words = read(f"/proc/{pid}/cmdline").split(b"\0")
            if b"OMPI_COMM_WORLD_RANK" not in variables or words[0] != self.program.encode():
                continue
            try:
                places = memory_of(pid)
            except PermissionError:
                print("  (the kernel refuses to show a rank's memory)")
                return
            found += 1
            if not any(self.secrets["HF_TOKEN"].encode() in memory for _, memory in places):
                self.hits.add("nothing in a rank's memory: the search is broken")
            for name, memory in places:
                if self.secrets[TOKEN].encode() in memory:
                    self.hits.add(f"{TOKEN} in a rank's memory, {name}")
        if found != 2:
            self.hits.add(f"{found} ranks, not 2, were looked into")

    def watch(self, memory):
        """Until the run ends. Returns its exit status."""
        end = time.monotonic() + LIMIT_S
        while self.driver.poll() is None and time.monotonic() < end:
            self.look_around()
            if "HALFWAY" in self.output() and not self.go.exists():
                if memory:
                    self.search_memory_of_ranks()
                self.go.touch()
            time.sleep(0.1)
        for pid, _ in list(self.processes()) if self.driver.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        status = self.driver.wait()
        self.look_around()
        self.search("the output", self.log.read_bytes())
        return status


def memory_of(pid):
    """All that the process may write to, with its name in /proc/PID/maps."""
    parts = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in read(f"/proc/{pid}/maps").decode().splitlines():
            words = line.split(maxsplit=5)
            if "w" in words[1]:
                begin, end = (int(word, 16) for word in words[0].split("-"))
                with contextlib.suppress(OSError):
                    memory.seek(begin)
                    name = words[5] if len(words) > 5 else "anonymous"
                    parts.append((name, memory.read(end - begin)))
    return parts


class Service:
    """server.py, playing S3."""

    def __init__(self):
        script = pathlib.Path(__file__).with_name("server.py")
        self.process = subprocess.Popen(
            [sys.executable, script, "s3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.port = int(self.process.stdout.readline())

    def uri(self, path):
        return f"s3://{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http"

    def objects(self, prefix):
        """Names and contents of all below a path in the bucket."""
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        for item in client.list_objects_v2(Bucket="bucket", Prefix=prefix + "/")["Contents"]:
            body = client.get_object(Bucket="bucket", Key=item["Key"])["Body"]
            yield item["Key"], body.read()

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


def check(program, directory, service):
    """A line of text for each run that is not as it should be."""
    number = 0
    wrong = []

    def case(name, kind, storage, ends_with, prefix="", places=None, memory=False, **variables):
        nonlocal number
        number += 1
        begin = time.monotonic()
        run = Run(program, directory / str(number), kind, storage, variables)
        run.add_canaries(places or {})
        status = run.watch(memory)
        stored = []
        if prefix == storage:
            stored = [(str(path), read(path)) for path in pathlib.Path(storage).rglob("*")]
        elif prefix:
            stored = list(service.objects(prefix))
        for where, content in stored:
            run.search(f"the stored {where}", content)
        mistakes = sorted(run.hits)
        if status != (ends_with[:6] != "RESULT"):
            mistakes.append(f"status {status}")
        if ends_with not in run.output():
            mistakes.append(f"it does not say {ends_with!r}")
        if prefix and len(stored) < 8:
            mistakes.append(f"only {len(stored)} files are stored")
        if prefix and TOKEN not in run.secrets:
            mistakes.append("no process had a token")
        print(f"{name}: status {status}, {len(run.secrets)} secrets, {run.looks} looks, "
              f"{len(stored)} files, {time.monotonic() - begin:.1f} s: {mistakes or 'nothing'}")
        if mistakes:
            print("".join(f"  | {line}\n" for line in run.output().splitlines()[-20:]))
        wrong.extend(f"{name}: {mistake}" for mistake in mistakes)

    user, word = canary(), canary()
    key = {"user in the URI": user, "key in the URI": word}
    address = f"127.0.0.1:{service.port}"
    case("finished on S3", "ok", service.uri("bucket/done"), "RESULT 3", "done")
    local = directory / "local"  # without Arrow's big and empty pools in memory
    case("finished in a directory", "ok", str(local), "RESULT 3", str(local), memory=True)
    case("exception on a rank", "throw", service.uri("bucket/thrown"), "RT-T1", "thrown")
    case("killed rank", "kill", service.uri("bucket/killed"), "RT-L2", "killed")
    case("no such bucket", "ok", service.uri("absent/run"), "RT-S1")
    dead = "s3://bucket/run?endpoint_override=127.0.0.1:1&scheme=http"
    case("dead endpoint", "ok", dead, "RT-S1")
    good = service.uri("bucket/run")
    case("key in the URI", "ok", f"s3://{user}:{word}@bucket/run", "RT-S8", places=key)
    case("key in the query", "ok", f"{good}&secret_key={word}", "RT-S9", places=key)
    case("key in the query's name", "ok", f"{good}&{word}=1", "RT-S9", places=key)
    other = f"s4://bucket/run?token={word}"
    case("key in an unknown scheme", "ok", other, "RT-S9", places=key)
    case("key in the endpoint", "ok", "s3://bucket/run", "RT-S8", places=key,
         AWS_ENDPOINT_URL=f"http://{user}:{word}@{address}")
    return wrong


def main():
    with tempfile.TemporaryDirectory(prefix="secrets-") as directory:
        service = Service()
        try:
            wrong = check(os.path.realpath(sys.argv[1]), pathlib.Path(directory), service)
        finally:
            service.end()
    print("\n".join(wrong) or "no secret turns up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
