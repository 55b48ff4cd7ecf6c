#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether Comet's own program uploads what was reported.

Usage: comet_test.py WRITE_EVENTS

WRITE_EVENTS is write_events.cpp's program. `comet upload` talks to a stand-in for Comet's server.
"""

import json
import sys

import upload_stand_in as stand_in

try:
    import comet_ml
except ImportError as error:
    stand_in.skip("comet_ml==3.58.8", error)


def answer(path, _):
    if path.endswith("/add/run"):
        return {"runId": "r", "project_id": "p", "focusUrl": "http://127.0.0.1/"}
    return {"is_alive_beat_duration_millis": 1000, "gpu_monitor_interval_millis": 1000,
            "cpu_monitor_interval_millis": 1000}


def upload(run, home):
    with stand_in.stand_in(answer) as (uri, got):
        out = stand_in.upload(home, "comet", ["upload", *(run / "comet").glob("*.zip")],
                              {"COMET_URL_OVERRIDE": f"{uri}/clientlib/",
                               "COMET_API_KEY": stand_in.SECRET[:25]})
        assert "Number of uploaded experiments: 1" in out, out
        assert "invalid" not in out and "Error processing" not in out, out
    return [(path, json.loads(body)) for path, body in got if body.startswith(b"{")]


def all_values(requests, sort):
    return [value for path, body in requests if path.endswith(f"/experiment/{sort}")
            for value in body["values"]]


def metric(requests, name):
    return sorted((value["step"], stand_in.number(value["metricValue"]))
                  for value in all_values(requests, "metric") if value["metricName"] == name)


def check_all(run, home):
    requests = upload(run, home)
    for name in ("loss", "count"):
        stand_in.check_same(metric(requests, name), stand_in.reported(run, name))
    assert metric(requests, "nested/f1") == [(1, 0.75)]
    (odd,) = {value["metricName"] for value in all_values(requests, "metric")
              if value["metricName"].startswith('a/"b"')}
    assert odd.startswith('a/"b" <script>-') and metric(requests, odd) == [(1, 1)], odd
    assert metric(requests, "changes") == [(1, 1)] and metric(requests, "ok") == [(1, 1)]
    assert metric(requests, "many/9999") == [(4, 9999)]
    parameters = {value["parameterName"]: value["parameterValue"]
                  for value in all_values(requests, "parameter")}
    assert parameters == {"lr": 0.25, "deep/er": "text", "on": True, "layers": "[1,2]"}, parameters
    (added,) = [body for path, body in requests if path.endswith("/add/run")]
    assert (added["projectName"], added["teamName"]) == ("digits", "w"), added
    tags = [body["addedTags"] for path, body in requests if path.endswith("/add-tags-to-experiment")]
    assert tags == [["a", "b c"]], tags
    others = {body["key"]: body["value"] for path, body in requests if path.endswith("/log-other")}
    assert others == {"Name": "r", "words": "gr\u00fc\u00dfe", "weights": '[-1,0,5E-1,3,"inf"]', "empty": "[]",
                      "broken ?": "text ?", "changes": "now a text"}, others
    assert metric(requests, "steps/loss") == [(1, 7.5)]


def main():
    with stand_in.written_runs() as (runs, home):
        check_all(runs / "all", home)
        stand_in.check_same(metric(upload(runs / "restarts", home), "loss"),
                            stand_in.reported(runs / "restarts", "loss"))
    print(f"checked with comet_ml {comet_ml.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
