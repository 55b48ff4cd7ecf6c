# SPDX-License-Identifier: Apache-2.0
"""What checkpoints of a 512 MB state cost a training loop in Ray Train 2: torch.save into a
directory, and report() of it, in turns with upload modes SYNC and ASYNC.

python ray_peer.py RANKS DIRECTORY CHECKPOINTS

Prints what checkpoint.cpp prints; "report_s" is report() alone. Ray makes nothing durable, so
"durable_s" is when the files are in the storage path.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

HERE = str(pathlib.Path(__file__).resolve().parent)
os.environ.update(  # for the workers, who inherit them
    PYTHONPATH=HERE,
    RAY_USAGE_STATS_ENABLED="0",
    OMP_NUM_THREADS="1",
)

import ray  # noqa: E402
import ray.train  # noqa: E402
import ray.train.torch  # noqa: E402
import torch  # noqa: E402

import peers  # noqa: E402


def wait_for(file, size):
    while not file.exists() or file.stat().st_size < size:
        time.sleep(0.001)


def train(config):
    directory = pathlib.Path(config["directory"])
    rank = ray.train.get_context().get_world_rank()
    torch.set_num_threads(1)
    model = peers.Model()
    background = concurrent.futures.ThreadPoolExecutor(1)
    lines = []
    for number in range(2 * config["checkpoints"]):
        mode = ray.train.CheckpointUploadMode.ASYNC if number % 2 else None
        times = {}

        def save(number=number, mode=mode, times=times):
            checkpoint = None
            files = tempfile.mkdtemp(dir=directory)
            if rank == 0:
                torch.save(model.state_dict(), f"{files}/state.pt")
                checkpoint = ray.train.Checkpoint.from_directory(files)
                size = os.path.getsize(f"{files}/state.pt")
            start = time.perf_counter()
            ray.train.report(
                {"number": number},
                checkpoint=checkpoint,
                checkpoint_dir_name=f"c{number}",
                checkpoint_upload_mode=mode or ray.train.CheckpointUploadMode.SYNC,
            )
            times["report_s"] = time.perf_counter() - start
            if mode is None:
                shutil.rmtree(files)
            elif rank == 0:
                return background.submit(wait_for, directory / f"run/c{number}/state.pt", size)
            return None

        measured, _ = peers.measure_save(model, save)
        kind = "ASYNC" if mode else "SYNC"
        lines.append({"mode": kind, "checkpoint": number // 2, **times, **measured})
    if rank == 0:
        with open(config["lines"], "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def main():
    ranks, directory, checkpoints = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    ray.init(
        num_cpus=ranks,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
    )
    lines = f"{directory}/lines"
    ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"directory": directory, "lines": lines, "checkpoints": checkpoints},
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=ranks),
        run_config=ray.train.RunConfig(name="run", storage_path=directory),
    ).fit()
    print(pathlib.Path(lines).read_text(), end="", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
