# SPDX-License-Identifier: Apache-2.0
"""The training function of reports.py: seconds of report() with metrics only, of report() with a checkpoint of one file,
and of writing and syncing the same bytes by hand. Rank 0 writes them to the file $SECONDS."""
import json
import os
import pathlib
import tempfile
import time

MB = 64


def seconds_of(function):
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def write_and_sync(path, data):
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def train(config):
    """`config`: module, storage, output, reports, files."""
    import importlib
    api = importlib.import_module(config["module"])
    is_first = api.get_context().get_world_rank() == 0
    here = pathlib.Path(config["storage"])
    found = {"metrics": [], "by hand": [], "checkpoint": []}
    for step in range(config["reports"]):
        found["metrics"].append(seconds_of(lambda step=step: api.report({"step": step, "loss": 0.5})))
    data = os.urandom(MB << 20)
    for _ in range(config["files"]):
        with tempfile.TemporaryDirectory(dir=here) as directory:
            checkpoint = None
            if is_first:
                write_and_sync(pathlib.Path(directory, "model"), data)
                checkpoint = api.Checkpoint.from_directory(directory)
                found["by hand"].append(seconds_of(lambda: write_and_sync(here / "by_hand", data)))
            api.report({"loss": 0.5})  # all ranks are here
            found["checkpoint"].append(seconds_of(
                lambda checkpoint=checkpoint: api.report({"loss": 0.5}, checkpoint=checkpoint)))
    if is_first:
        pathlib.Path(config["output"]).write_text(json.dumps(found))


if __name__ == "__main__":
    import rtrain
    train(rtrain.get_config())
