#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether runs with an MLflow tracker are on the server as in result.json, whatever servers do and wherever
processes are killed.

Usage: mlflow_stand_in_test.py MLFLOW_RUN [SYNC]

MLFLOW_RUN is mlflow_run.cpp's program, SYNC examples/sync.cpp's. The server is mlflow_stand_in.py's.
"""

import json
import math
import pathlib
import sys
import tempfile
import time

import mlflow_stand_in as stand_in
from mlflow_place import TOKEN, Place, reports_in
from mlflow_stand_in import Server, times

def check_values(root):
    server = Server()
    place = Place(root, "values", server.uri)
    place.do("begin", 0, "odd", "many", 100000, "close", "finished")
    (run,) = server.active()
    assert run.status == "FINISHED" and run.end_time >= run.start_time
    assert run.name == "stand" and run.tags["team"] == "a" and run.tags["rtrain.directory"] == str(place.path)
    assert run.params["lr"] == "2.5E-1" and run.params["deep/er"] == "twice" and run.params["deep/er_2"] == "text" and run.params["option 249"] == "249"
    assert len(run.params) == 254 and run.params["long"] == "x" * 6000
    assert math.isnan(run.history("loss")[0][1]) and run.history("loss")[1] == (2, 2)
    assert run.history("up") == [(1, math.inf)] and run.history("down") == [(1, -math.inf)]
    assert run.history("nested/f1") == [(1, 0.5)] and run.history("nested/f1_2") == [(1, 0.75)] and run.history("ok") == [(1, 1)]
    assert run.history("great") == [(1, float(2**63 - 1))] and run.history("small") == [(1, 5e-324)]
    assert run.history("many/99999") == [(2, 99999)]
    names = {key for key, *_ in run.points if not key.startswith("many/")}
    assert len(names) == 14 and "words" not in names, names
    assert sorted(run.history(name)[0][1] for name in names if name[-9:-8] == "-") == [1, 2, 3, 4, 5, 6], names
    assert server.authorizations == {f"Bearer {TOKEN}"}
    assert all(size <= 1_000_000 for _, size in server.requests)


def check_goes_on_in_the_same_run(root):
    server = Server()
    place = Place(root, "same", server.uri)
    place.do("begin", 0, "report", 5, "sent", 5, "kill")
    first = place.check(server, "RUNNING")
    place.do("begin", 5, "report", 3, "close", "paused")
    assert place.check(server, "RUNNING", runs=1) is first
    place.do("begin", 8, "report", 1, "close", "failed")
    place.check(server, "FAILED", runs=1)
    place.do("begin", 9, "close", "finished")
    place.check(server, runs=1)
    created = [what for what, _ in server.requests if what in ("runs/create", "runs/search")]
    assert created == ["runs/create"], created


def check_shows_nothing_that_is_made_again(root):
    server = Server()
    place = Place(root, "again", server.uri)
    place.do("begin", 0, "report", 5, "sent", 5, "kill")
    first = place.check(server, "RUNNING")
    first.name, first.start_time = "renamed", 1000
    first.tags["mlflow.note.content"] = "a person's note"
    place.do("begin", 3, "add", 0.5, "report", 4, "close", "finished")
    run = place.check(server, runs=2)
    assert run is not first and run.name == "renamed" and run.start_time == 1000
    assert run.tags["mlflow.note.content"] == "a person's note" and run.tags["team"] == "a"
    place.do("begin", 7, "report", 3, "sent", 10, "begin", 8, "add", 0.25, "report", 1, "close", "finished")
    place.check(server, runs=3)


def check_steps(root):
    server = Server()
    place = Place(root, "steps", server.uri)
    place.do("begin", 0, "log", 7, "report", 2, "log", 5, "sent", 2, "close", "paused")
    first = place.check(server, "RUNNING", runs=1)
    assert [step for step, _ in first.history("steps/loss")] == list(range(1, 13))
    place.do("go_on", 2, 12, "log", 3, "report", 1, "close", "paused")
    assert place.check(server, "RUNNING", runs=1) is first
    place.do("go_on", 3, 14, "add", 0.5, "log", 2, "close", "finished")  # 15 is made again
    assert place.check(server, runs=2) is not first
    place.do("no_steps", "go_on", 3, 16, "log", 4, "report", 1, "close", "finished")
    (run,) = server.active()
    assert [step for step, _ in run.history("steps/loss")] == list(range(1, 17)) and len(run.history("loss")) == 4
    place.do("sync")  # which knows that
    assert len(run.history("steps/loss")) == 16 and run.status == "FINISHED"


def check_names_of_steps(root):
    """A report's metric is never taken for a step's."""
    server = Server()
    place = Place(root, "names", server.uri)
    place.do("begin", 0, "prefixed", "log", 2, "close", "finished")
    (run,) = server.active()
    assert run.history("steps/loss") == [(1, 1), (2, 2)], run.history("steps/loss")
    assert sorted(key for key, *_ in run.points if key.startswith("steps/loss-")) and len(run.points) > 3


def check_server_that_keeps_files(root):
    """It has no metric "loss/val" beside "loss", nor such a parameter, and takes what comes before them."""
    server = Server()
    server.keeps_files = True
    place = Place(root, "files", server.uri)
    said = place.do("nested_lr", "begin", 0, "stepped", "log", 3, "nested", 20, "sent", 21, "nested", 9,
                    "close", "finished")
    run = place.check(server, runs=1)
    assert run.history("zz") == [(step, step) for step in range(2, 31)] and not run.history("loss/val")
    assert len([key for key, *_ in run.points if key.startswith("steps-")]) == 1, run.points
    assert run.tags["rtrain.refused"] == "metric loss/val, parameter lr/nested"
    assert run.params["lr"] == "2.5E-1" and "lr/nested" not in run.params
    assert said.count("without the metric loss/val,") == 1 and said.count("without the") == 2, said
    assert "may be missing data" not in said and max(run.writes.values()) == 1, (said, run.writes)
    place.do("sync")
    assert max(run.writes.values()) == 1
    # Another process knows what was refused.
    said = place.do("go_on", 30, 3, "nested", 2, "close", "finished")
    assert "without the" not in said and run.history("zz")[-1] == (32, 32), said
    assert run.tags["rtrain.refused"] == "metric loss/val, parameter lr/nested"


def check_server_that_keeps_files_is_synced(root):
    server = Server()
    server.keeps_files = True
    place = Place(root, "files synced", "http://127.0.0.1:9")
    place.do("begin", 0, "log", 3, "nested", 2000, "close", "finished")
    note = place.path / "mlflow.json"
    note.write_text(note.read_text().replace("http://127.0.0.1:9", server.uri))
    place.uri = ""
    assert "without the metric loss/val," in place.do("sync")
    assert len(place.check(server, runs=1).history("zz")) == 2000


def check_nothing_is_left_out_by_a_server_out_of_order(root):
    """It answers 500 to all writes for a while, or the run is gone: that is no fault of a metric."""
    for name, refusal in {"500": stand_in.status(500), "400": stand_in.status(400)}.items():
        server = Server()
        place = Place(root, f"out of order {name}", server.uri)
        place.do("begin", 0, "report", 2, "close", "paused")

        def fault(handler, answer):
            return handler.what in ("runs/log-batch", "runs/set-tag") and failing(handler, answer)

        failing = times(9, lambda handler, answer: refusal(handler, answer) or True)
        server.fault = fault
        said = place.do("begin", 2, "report", 3, "sent", 5, "close", "finished")
        run = place.check(server, runs=1)
        assert "without the" not in said and said.count("may be missing data") == 1 and "rtrain.refused" not in run.tags, said


def check_refused_tag_is_of_what_is_missing(root):
    """The server refuses a batch, then its metric by itself, and then takes it."""
    server = Server()
    place = Place(root, "not refused", server.uri)
    place.do("begin", 0, "close", "paused")
    failing = times(2, lambda handler, answer: stand_in.status(500)(handler, answer) or True)
    server.fault = lambda handler, answer: handler.what == "runs/log-batch" and failing(handler, answer)
    said = place.do("begin", 0, "report", 3, "close", "finished")
    assert "rtrain.refused" not in place.check(server, runs=1).tags and "without the" not in said, said


def check_no_point_is_there_twice(root):
    """Whatever the server has written of a batch that it did not confirm."""
    for name, fault in {"hangs up": stand_in.hangs_up_afterwards, "half": stand_in.half}.items():
        server = Server()
        place = Place(root, f"twice {name}", server.uri)
        place.do("begin", 0, "report", 2, "close", "paused")
        failing = times(2, fault)
        server.fault = lambda handler, answer: handler.what == "runs/log-batch" and failing(handler, answer)
        place.do("begin", 2, "report", 3, "close", "paused")
        server.fault = None
        place.do("begin", 5, "report", 3, "close", "finished")
        place.check(server, runs=1)


def sync_fails(place):
    process = place.start("sync")
    said = "".join(process.communicate(timeout=60))
    assert process.returncode != 0 or "refused: " in said, said
    return said


def check_run_from_elsewhere(root):
    """Its note names a server, files and links."""
    server = Server()
    place = Place(root, "from elsewhere", "http://127.0.0.1:9")
    place.do("begin", 0, "report", 2, "close", "finished")
    outside = root / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (place.path / "inside.txt").write_text("inside")
    (place.path / "link.txt").symlink_to(outside / "secret.txt")
    (place.path / "linked").symlink_to(outside)
    (place.path / "deep").mkdir()
    (place.path / "deep" / "link").symlink_to("../../outside/secret.txt")
    note = place.path / "mlflow.json"
    noted = json.loads(note.read_text())
    noted["artifacts"] = ["*.txt", "linked", "linked/*", "deep", "../outside/secret.txt",
                          str(outside / "secret.txt"), str(outside), str(place.path / "inside.txt")]
    noted["uri"], noted["experiment"] = server.uri, "a\x1b[31m"
    note.write_text(json.dumps(noted, separators=(",", ":")))
    place.uri = ""

    def wants_credentials(handler, _):
        return not handler.headers.get("Authorization") and (stand_in.status(401)(handler, _) or True)

    server.fault = wants_credentials
    assert "only to a server that you name" in sync_fails(place)
    server.fault = None
    said = place.do("sync")
    assert server.authorizations == {None} and "\x1b" not in said, said
    assert f"sending missing data to {server.uri}" in said and "without the environment's credentials" in said, said
    assert server.artifacts_of(place.check(server, runs=1)) == {"inside.txt": b"inside"}, server.artifacts.keys()
    assert "outside and omitted" in said and "unencrypted" not in said, said
    (place.path / "inside.txt").write_text("another")
    place.uri = server.uri  # now the caller has named it
    other = Place(root, "other run", server.uri)
    other.do("begin", 0, "report", 1, "close", "finished")
    (victim,) = [run for run in server.active() if run.tags["rtrain.directory"] == str(other.path)]
    noted = json.loads(note.read_text())
    noted["old"] = [victim.id]
    note.write_text(json.dumps(noted, separators=(",", ":")))
    said = place.do("sync")
    assert "unencrypted" not in said and server.authorizations == {None, f"Bearer {TOKEN}"}
    place.uri = server.uri.replace("127.0.0.1", "0.0.0.0")  # the same server, not by a loopback address
    assert "unencrypted" in place.do("sync")
    place.uri = server.uri
    assert "is not deleted: it was not created from" in said and victim.stage == "active", said
    for name in ("params.json", "run.json", "superseded.json", "stopped.json"):  # which the report shows
        (place.path / name).unlink(missing_ok=True)
        (place.path / name).symlink_to(outside / "secret.txt")
        assert "[RT-V102]" in sync_fails(place), name
        (place.path / name).unlink()
    results = place.path / "result.json"
    results.rename(outside / "result.json")
    results.symlink_to(outside / "result.json")
    assert "[RT-V102]" in sync_fails(place)


def check_foreign_result_json(root):
    """Its lines have no configuration."""
    server = Server()
    place = Place(root, "foreign", "http://127.0.0.1:9")
    place.do("begin", 0, "report", 3, "close", "finished")
    note, results = place.path / "mlflow.json", place.path / "result.json"
    note.write_text(note.read_text().replace("http://127.0.0.1:9", server.uri))
    noted = json.loads(note.read_text())
    del noted["refused"]  # as rtrain 0.1 has left it
    note.write_text(json.dumps(noted, separators=(",", ":")))
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert all(line.pop("config") for line in lines)
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    place.uri = ""
    (place.path / "steps.jsonl").write_text("\0" * 9 + "\n[]\n{}\n")  # as a power failure may leave it
    assert "synced mlflow.json" in place.do("sync")
    (place.path / "steps.jsonl").unlink()
    assert not place.check(server, runs=1).params


def check_artifacts(root):
    server = Server()
    place = Place(root, "artifacts", server.uri)
    (place.path / "report.html").write_text("first")
    (place.path / "checkpoint_000003" / "deep").mkdir(parents=True)
    (place.path / "checkpoint_000003" / "deep" / "a b%\u00fc").write_bytes(bytes(range(256)) * 80_000)  # 20 MB
    (place.path / "other").write_text("stays here")
    elsewhere = root / "elsewhere.txt"
    elsewhere.write_text("")
    place.do("artifact", "checkpoint_*", "artifact", elsewhere, "begin", 0, "report", 1, "close", "paused")
    assert not server.artifacts
    place.do("artifact", "checkpoint_*", "artifact", elsewhere, "begin", 1, "report", 1, "close", "failed")
    (run,) = server.active()
    assert run.status == "FAILED" and server.artifacts_of(run) == {
        "report.html": b"first", "elsewhere.txt": b"",
        "checkpoint_000003/deep/a b%\u00fc": bytes(range(256)) * 80_000}, server.artifacts.keys()
    (place.path / "report.html").write_text("another")
    before = len(server.requests)
    place.do("begin", 2, "close", "finished")  # which uploads no checkpoint any more
    assert server.artifacts_of(run)["report.html"] == b"another" and run.status == "FINISHED"
    assert len([what for what, _ in server.requests[before:] if "/artifacts/" in what]) == 1
    before = len(server.requests)
    place.do("sync")
    assert not [what for what, _ in server.requests[before:] if "/artifacts/" in what]


def check_artifacts_that_fail(root):
    """They come later, and cost no report."""
    for name, fault in {"500": stand_in.status(500), "hangs up": stand_in.hangs_up, "html": stand_in.html(200)}.items():
        server = Server()
        server.fault = lambda handler, answer: "/artifacts/" in handler.path and (fault(handler, answer) or True)
        place = Place(root, f"artifacts {name}", server.uri)
        (place.path / "report.html").write_text("page")
        said = place.do("begin", 0, "report", 3, "close", "finished")
        run = place.check(server, runs=1)
        assert "MLflow has all reports but has failed to finish" in said and not server.artifacts, said
        server.fault = None
        place.do("sync")
        assert server.artifacts_of(run) == {"report.html": b"page"} and run.status == "FINISHED"


def check_artifacts_that_go(root):
    """As checkpoints do that are not kept."""
    server = Server()
    place = Place(root, "gone", server.uri)
    for name in ("a.txt", "b.txt"):
        (place.path / name).write_text("page")

    def remove_the_other(handler, _):
        if "/artifacts/" in handler.path:
            (place.path / "b.txt").unlink(missing_ok=True)
        return False

    server.fault = remove_the_other
    said = place.do("artifact", "*.txt", "begin", 0, "report", 1, "close", "finished")
    assert "b.txt cannot be read" in said and "[RT-V69]" in said, said
    assert server.artifacts_of(place.check(server, runs=1)) == {"a.txt": b"page"}, server.artifacts.keys()


def check_artifacts_that_are_elsewhere(root):
    server = Server()
    server.artifact_root = "s3://CANARY:secret@bucket"
    place = Place(root, "no proxy", server.uri)
    (place.path / "report.html").write_text("page")
    said = place.do("begin", 0, "report", 3, "close", "finished")
    place.check(server, runs=1)
    assert said.count("does not accept uploads") == 1 and "CANARY" not in said and not server.artifacts, said
    assert "failed" not in said, said


def check_how_it_has_ended(root):
    """Whoever brings the rest of a run tells the server how the run has ended."""
    endings = {"killed": ("kill",), "failed": ("close", "failed"), "finished": ("close", "finished"),
               "paused": ("close", "paused")}
    statuses = {"killed": "KILLED", "failed": "FAILED", "finished": "FINISHED", "paused": "RUNNING"}
    for name, end in endings.items():
        for away in (False, True):
            server = Server()
            place = Place(root, f"{name}-{away}", "http://127.0.0.1:9" if away else server.uri)
            wait = () if away or name != "killed" else ("sent", 3)
            place.do("begin", 0, "log", 2, "report", 3, *wait, *end)
            if name == "killed" and away and not (place.path / "mlflow.json").exists():
                continue  # it was killed before that was there
            note = place.path / "mlflow.json"
            note.write_text(note.read_text().replace("http://127.0.0.1:9", server.uri))
            place.uri = ""
            place.do("sync")
            place.check(server, statuses[name], runs=1)
            place.uri = server.uri  # and it may go on
            place.do("go_on", 3, 2, "report", 1, "close", "finished")
            place.check(server, "FINISHED", runs=1)


def check_server_that_is_away(root):
    server = Server()
    place = Place(root, "away", "http://127.0.0.1:9")
    started = time.monotonic()
    said = place.do("begin", 0, "report", 20, "close", "finished")
    assert time.monotonic() - started < 10, said
    assert said.count("MLflow may be missing data") == 1 and "127.0.0.1:9" in said, said
    assert "MLflow has failed and lacks the last 20 of this run's 20 reports" in said, said
    assert [number for number, _ in reports_in(place.path)] == list(range(1, 21))
    (place.path / "foreign.json").write_text("{")
    note = place.path / "mlflow.json"
    note.write_text(note.read_text().replace("http://127.0.0.1:9", server.uri))
    place.uri = ""  # the note has it
    assert "synced mlflow.json" in place.do("sync")
    place.check(server, runs=1)
    sizes = len(server.requests)
    place.do("sync")  # has nothing to do
    place.check(server, runs=1)
    assert not [what for what, _ in server.requests[sizes:] if what == "runs/log-batch"]


def check_faults(root):
    faults = {
        "400": stand_in.status(400), "401": stand_in.status(401), "500": stand_in.status(500),
        "429": stand_in.status(429, Retry_After="1"), "503": stand_in.status(503, Retry_After="-7 a"),
        "302": stand_in.status(302, Location="http://127.0.0.1:9/"),
        "html": stand_in.html(200), "html 502": stand_in.html(502), "empty": stand_in.empty,
        "huge": stand_in.huge, "endless body": stand_in.endless_body, "endless head": stand_in.endless_head,
        "hangs up": stand_in.hangs_up, "hangs up afterwards": stand_in.hangs_up_afterwards,
        "half": stand_in.half, "no HTTP": stand_in.no_http,
    }
    for name, fault in faults.items():
        server = Server()
        server.fault = times(2, fault)
        place = Place(root, name, server.uri)
        said = place.do("begin", 0, "report", 3, "sent", 3, "report", 3, "close", "finished")
        assert said.count("MLflow may be missing data") == 1 and "\x1b" not in said, (name, said)
        assert name != "html" or "[RT-V64]" in said, said
        place.check(server, runs=1)


def check_server_that_wants_to_be_left_alone(root):
    """It answers that there is no such experiment, and asks for a pause before it is asked to make it."""
    server = Server()
    none = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"}
    server.fault = times(1, lambda handler, _: handler.send(429, none, head=[("Retry-After", "60")]))
    place = Place(root, "alone", server.uri)
    said = place.do("begin", 0, "report", 3, "close", "finished")
    assert "has asked clients to retry later [RT-V63]" in said, said
    place.do("sync")
    place.check(server, runs=1)


def check_slow_server(root):
    server = Server()
    server.fault = stand_in.slow(10)
    place = Place(root, "slow", server.uri)
    started = time.monotonic()
    said = place.do("begin", 0, "report", 20, "close", "finished")
    assert time.monotonic() - started < 10, said
    assert "MLflow takes too long and lacks the last 20 of this run's 20 reports" in said, said
    server.fault = None
    assert "synced" in place.do("sync")
    place.check(server)


def kill_at_request(server, place, count, behind):
    left = [count]
    process = None

    def kill(_, answer):
        left[0] -= 1
        if left[0] != 0:
            return False
        if behind:
            answer()
        process.kill()
        return True

    server.fault = kill
    process = place.start("begin", 0, "report", 3, "sent", 3, "report", 3, "sent", 6, "report", 1, "close", "finished")
    process.communicate(timeout=60)
    server.fault = None


def check_parameters_that_were_changed(root):
    server = Server()
    place = Place(root, "parameters", server.uri)
    kill_at_request(server, place, 3, behind=True)
    assert server.requests[-1][0] == "runs/log-batch" and len(server.active()[0].params) == 100
    said = place.do("lr", 0.5, "begin", 0, "report", 2, "close", "finished")
    assert place.check(server, runs=1).params["lr"] == "2.5E-1"
    assert said.count("without the parameter") == 1 and "the parameter lr, which" in said, said


def check_killed_at_each_request(root):
    """Before the server handles a request, and afterwards."""
    for behind in (False, True):
        for count in range(1, 12):
            server = Server()
            place = Place(root, f"kill-{behind}-{count}", server.uri)
            kill_at_request(server, place, count, behind)
            counts = len(reports_in(place.path)) // 3 * 3
            place.do("begin", counts, "add", 0.5, "report", 2, "close", "finished")
            place.check(server)


def check_run_that_was_deleted(root):
    server = Server()
    place = Place(root, "deleted", server.uri)
    place.do("begin", 0, "report", 2, "close", "paused")
    (run,) = server.active()
    run.stage = "deleted"
    said = place.do("begin", 2, "report", 1, "close", "finished")
    assert said.count("must be in the 'active' state [RT-V62]") == 1, said
    run.stage = "active"
    place.do("sync")
    place.check(server, runs=1)


def check_bad_notes_and_uris(root):
    server_uri = Server().uri
    place = Place(root, "bad", "http://user:password@127.0.0.1:9")
    said = place.do("begin", 0, "report", 1, "close", "finished")
    assert "[RT-V60]" in said and "password@" not in said, said
    for uri in ("https://", "file:/tmp", "", "http://", "http://a:b", "https://a:", "http://a b", "http://a?x"):
        place.uri = uri
        assert "[RT-V60]" in place.do("begin", 0, "report", 1, "close", "finished"), uri
    place.uri = "https://127.0.0.1"
    said = place.do("no_https", "begin", 0, "report", 1, "close", "finished")
    assert "link rtrain::https" in said and "[RT-V66]" in said, said
    place.uri = server_uri
    (place.path / "mlflow.json").write_text('{"tracker":"mlflow","uri"')
    said = place.do("begin", 0, "report", 1, "close", "finished")
    assert "mlflow.json is damaged" in said and "[RT-V65]" in said, said


def main():
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    with tempfile.TemporaryDirectory() as root:
        for check in checks:
            started = time.monotonic()
            check(pathlib.Path(root))
            print(f"{check.__name__}: {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
