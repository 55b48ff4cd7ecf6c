#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether W&B's own program uploads what was reported, and its messages have the fields we write.

Usage: wandb_test.py WRITE_EVENTS

WRITE_EVENTS is write_events.cpp's program. `wandb sync` talks to a stand-in for W&B's server.
"""

import json
import struct
import sys
import zlib

import upload_stand_in as stand_in

try:
    import wandb
    from google.protobuf.unknown_fields import UnknownFieldSet
    from wandb.proto import wandb_internal_pb2
except ImportError as error:
    stand_in.skip("wandb==0.31.0", error)


def records(file):
    data, at, text = file.read_bytes(), 7, b""
    assert data[:7] == b":W&B\xe1\xbe\x00", data[:7]
    while at < len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        checksum, size, sort = struct.unpack("<IHB", data[at:at + 7])
        part = data[at + 7:at + 7 + size]
        assert zlib.crc32(bytes([sort]) + part) == checksum
        at += 7 + size
        text = part if sort in (1, 2) else text + part
        if sort in (1, 4):
            yield wandb_internal_pb2.Record.FromString(text)


def has_unknown_fields(message):
    return len(UnknownFieldSet(message)) > 0 or any(
        has_unknown_fields(part)
        for field, value in message.ListFields() if field.message_type
        for part in (value if hasattr(value, "__len__") else [value]))


def answer(path, body):
    if path != "/graphql":
        return {}
    query = json.loads(body)
    text, variables = query["query"], query["variables"]
    if "upsertBucket" in text:
        project = {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": "we"}}
        return {"data": {"upsertBucket": {"inserted": True, "bucket": {
            "id": "b", "name": variables["name"], "displayName": variables["displayName"],
            "project": project, "historyLineCount": 0}}}}
    if "createRunFiles" in text:
        return {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": []}}}
    return {"data": {}}


def sync(run, home):
    with stand_in.stand_in(answer) as (uri, got):
        out = stand_in.upload(home, "wandb", ["sync", *(run / "wandb").glob("offline-run-*")],
                              {"WANDB_BASE_URL": uri, "WANDB_API_KEY": stand_in.SECRET,
                               "WANDB_ERROR_REPORTING": "false"})
        assert "Finished syncing" in out, out
    history, summary, ends = {}, {}, []
    for path, body in got:
        if not path.endswith("/file_stream"):
            continue
        sent = json.loads(body)
        for offset, line in enumerate(sent.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])):
            history[sent["files"]["wandb-history.jsonl"]["offset"] + offset] = json.loads(line)
        for line in sent.get("files", {}).get("wandb-summary.json", {}).get("content", []):
            summary = json.loads(line)
        ends += [sent["exitcode"]] if sent.get("complete") else []
    assert ends == [0], ends
    buckets = [json.loads(body)["variables"] for path, body in got
               if path == "/graphql" and b"upsertBucket" in body]
    return [history[i] for i in range(len(history))], summary, buckets


def values(history, metric):
    return [(line["_step"], line[metric]) for line in history if metric in line]


def check_all(run, home):
    history, summary, buckets = sync(run, home)
    for metric in ("loss", "count"):
        stand_in.check_same(values(history, metric), stand_in.reported(run, metric))
    assert values(history, "nested/f1") == [(1, 0.75)]
    assert values(history, 'a/"b"\n<script>') == [(1, 1)]
    assert values(history, "broken ?") == [(1, "text ?")]
    assert values(history, "changes") == [(1, 1), (2, "now a text")]
    assert values(history, "words") == [(1, "gr\u00fc\u00dfe")] and values(history, "ok") == [(1, True)]
    assert values(history, "weights") == [(1, [-1, 0, 0.5, 3, "inf"])] and values(history, "empty") == [(1, [])]
    assert not values(history, "grey"), "an image"
    assert values(history, "many/9999") == [(4, 9999)] and len(history[3]) == 10003
    assert summary["changes"] == "now a text" and summary["_step"] == 4
    first = buckets[0]
    assert (first["project"], first["displayName"], first["notes"], first["tags"]) == (
        "digits", "r", "of a test", ["a", "b"]), first
    config = json.loads(first["config"])
    assert config["lr"]["value"] == 0.25 and config["deep"]["value"] == {"er": "text"}, config
    assert config["layers"]["value"] == [1, 2] and config["on"]["value"] is True, config


def main():
    with stand_in.written_runs() as (runs, home):
        files = list(runs.glob("*/wandb/*/*.wandb"))
        assert len(files) == 2, files
        for file in files:
            for record in records(file):
                assert not has_unknown_fields(record), record
        check_all(runs / "all", home)
        history, _, _ = sync(runs / "restarts", home)
        stand_in.check_same(values(history, "loss"), stand_in.reported(runs / "restarts", "loss"))
    print(f"checked with wandb {wandb.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
