# SPDX-License-Identifier: Apache-2.0
"""The parity workload on Ray Train: two workers, its TorchTrainer, the same tuned DDP inside.

python ray_parity.py --epochs 5
"""

import os
import pathlib
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

import ddp_parity  # noqa: E402

WORKERS = 2


def train(config):
    with open(config["lines"], "a") as lines:
        ddp_parity.train(
            config["options"],
            lambda model: ray.train.torch.prepare_model(
                model, parallel_strategy_kwargs=ddp_parity.DDP_OPTIONS
            ),
            lambda line: print(line, file=lines, flush=True),
        )


def main():
    options = ddp_parity.parse_arguments()
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
    )
    with tempfile.TemporaryDirectory(prefix="rtrain-ray-") as directory:
        lines = pathlib.Path(directory) / "lines"
        trainer = ray.train.torch.TorchTrainer(
            train,
            train_loop_config={"options": options, "lines": str(lines)},
            torch_config=ray.train.torch.TorchConfig(backend="gloo"),
            scaling_config=ray.train.ScalingConfig(num_workers=WORKERS),
            run_config=ray.train.RunConfig(storage_path=directory),
        )
        trainer.fit()
        print(lines.read_text(), end="", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
