# SPDX-License-Identifier: Apache-2.0
"""peers.py's training on Ray Train: two workers, checkpoints reported, unlimited failures.

python ray_peer.py DIRECTORY
"""

import os
import pathlib
import sys
import tempfile

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

WORKERS = 2


def load():
    checkpoint = ray.train.get_checkpoint()
    return (pathlib.Path(checkpoint.path) / "state.pt").read_bytes() if checkpoint else None


def save(state, step):
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report({"step": step})
        return
    with tempfile.TemporaryDirectory() as files:
        torch.save(state, f"{files}/state.pt")
        checkpoint = ray.train.Checkpoint.from_directory(files)
        ray.train.report({"step": step}, checkpoint=checkpoint)


def main():
    directory = sys.argv[1]
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
    )
    ray.train.torch.TorchTrainer(
        lambda config: peers.train(
            config["directory"], ray.train.torch.prepare_model, load, save
        ),
        train_loop_config={"directory": directory},
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=WORKERS),
        run_config=ray.train.RunConfig(
            name="run",
            storage_path=directory,
            failure_config=ray.train.FailureConfig(max_failures=-1),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()


if __name__ == "__main__":
    main()
