#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills ranks, the processes that drive trials, their mpiruns and the search itself, at random, and asks whether the
search comes to what it comes to undisturbed.

Usage: chaos.py TUNING [--kills N] [--seed N] [--pause SECONDS]

TUNING is build/release/tests/tuning, whose variant "chaos" is 16 trials on two ranks each, two at a time. Searches
are run one after the other until there were so many kills. Of each:
  - Each trial has ended well, with the configuration, the reports and the metrics of the undisturbed search.
  - result.json of each trial has each report once. No trial that had ended has begun again.
  - No process is left.
Exit status 1: something was wrong, which a line of JSON says.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 2


def stat_of(pid):
    """State and parent of a process; none: it is gone."""
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return words[0], int(words[1])


def living(storage):
    """The search's processes that live, by what they are."""
    found, names = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        state = stat_of(entry.name)
        if str(storage).encode() in words and state and state[0] != "Z":
            found[int(entry.name)] = state[1]
            names[int(entry.name)] = words[0]
    kinds = collections.defaultdict(list)
    for pid, parent in found.items():
        if names[pid].endswith(b"mpirun"):
            kinds["mpirun"].append(pid)
        elif names.get(parent, b"").endswith(b"mpirun"):
            kinds["rank"].append(pid)
        else:
            kinds["trials" if parent in found else "search"].append(pid)
    return kinds


def start(tuning, storage):
    return subprocess.Popen([tuning, "chaos", str(RANKS), str(storage)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def results_in(storage):
    """What of a search does not depend on the clock."""
    trials = json.loads((storage / "search" / "tuner_state.json").read_text())["trials"]
    results = []
    for trial in trials:
        log = storage / "search" / trial["directory"] / "result.json"
        reports = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        results.append([trial["id"], trial["state"], trial["error"], json.dumps(trial["config"]), trial["reports"],
                        [[report["training_iteration"], repr(report["score"]), report["ranks"]] for report in reports]])
    return results


def begun_again(storage):
    """Trials that had ended well, and began again."""
    ended, again = set(), []
    for line in (storage / "search" / "tuner_events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["op"] == "returned":
            ended.add(event["trial"])
        elif event["op"] == "begin" and event["trial"] in ended:
            again.append(event["trial"])
    return again


def nothing_is_left(storage):
    until = time.monotonic() + 30
    while living(storage) and time.monotonic() < until:
        time.sleep(0.1)
    return not living(storage)


def disturbed(tuning, storage, kills, pause, choose):
    """Runs a search to its end with at most so many kills; returns how many there were, by whom they met."""
    met = collections.Counter()
    search = start(tuning, storage)
    begin = time.monotonic()
    while search.poll() is None:
        time.sleep(choose.uniform(0.2, 2) * pause)
        kinds = living(storage)
        # Ranks and what drives them are killed more often than the search, which takes longest to come back.
        kind = choose.choices(["rank", "trials", "mpirun", "search"], [6, 3, 2, 1])[0]
        if sum(met.values()) < kills and kinds[kind] and (storage / "search" / "tuner_events.jsonl").exists():
            try:
                os.kill(choose.choice(kinds[kind]), signal.SIGKILL)
                met[kind] += 1
            except ProcessLookupError:
                pass
            if kind == "search":
                search.communicate()
                search = start(tuning, storage)
        if time.monotonic() - begin > 1800:
            search.kill()
            return met, "the search has not ended within 1800 s"
    output = search.communicate()[0]
    return met, "" if search.returncode == 0 else f"exit status {search.returncode}:\n{output[-4000:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tuning")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=1.0)
    arguments = parser.parse_args()
    choose = random.Random(arguments.seed)
    wrong, killed = [], collections.Counter()
    with tempfile.TemporaryDirectory(prefix="rtrain-chaos-") as place:
        calm = pathlib.Path(place) / "calm"
        calm.mkdir()
        _, error = disturbed(arguments.tuning, calm, 0, 1, choose)
        if error:
            print(json.dumps({"wrong": error}))
            return 1
        expected = results_in(calm)
        number = 0
        while sum(killed.values()) < arguments.kills and not wrong:
            storage = pathlib.Path(place) / f"search-{number}"
            storage.mkdir()
            met, error = disturbed(arguments.tuning, storage, arguments.kills - sum(killed.values()), arguments.pause,
                                   choose)
            killed += met
            results = results_in(storage) if not error else []
            wrong += [error] if error else []
            wrong += [f"{a} is not {b}" for a, b in zip(results, expected) if a != b]
            wrong += [] if error or len(results) == len(expected) else [f"{len(results)} trials"]
            wrong += [f"{trial} ran again" for trial in begun_again(storage)]
            wrong += [] if nothing_is_left(storage) else [f"left: {dict(living(storage))}"]
            print(json.dumps({"search": number, "killed": dict(met), "wrong": wrong}), flush=True)
            number += 1
    print(json.dumps({"killed": dict(killed), "wrong": len(wrong)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
