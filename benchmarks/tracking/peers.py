#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a report of ten metrics costs elsewhere: Ray Train's report() on two workers, and Lightning's
MLFlowLogger with MLflow's own store in SQLite.

    python benchmarks/tracking/peers.py ray|lightning REPORTS

Prints a JSON line with the median and the 99th percentile in microseconds. tracking/run.py calls it.
"""

import json
import os
import statistics
import sys
import tempfile
import time


def ten_metrics(report):
    return {f"metric/{i}": 0.001 * report + i for i in range(10)}


def timed(reports, report):
    times = []
    for number in range(reports):
        begin = time.perf_counter()
        report(number)
        times.append(1e6 * (time.perf_counter() - begin))
    times.sort()
    return {"reports": reports, "median_us": round(statistics.median(times), 1),
            "p99_us": round(times[int(0.99 * (reports - 1))], 1)}


def lightning(reports):
    from lightning.pytorch.loggers import MLFlowLogger
    with tempfile.TemporaryDirectory() as directory:
        logger = MLFlowLogger("tracking", tracking_uri=f"sqlite:///{directory}/mlflow.db")
        logger.log_metrics(ten_metrics(0), 0)  # makes experiment and run
        return timed(reports, lambda number: logger.log_metrics(ten_metrics(number), number + 1))


def ray(reports):
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    import ray.train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def train(config):
        found = timed(config["reports"], lambda number: ray.train.report(ten_metrics(number)))
        if ray.train.get_context().get_world_rank() == 0:
            with open(config["file"], "w") as file:
                json.dump(found, file)

    with tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/found.json"
        trainer = DataParallelTrainer(
            train, train_loop_config={"reports": reports, "file": file},
            scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=ray.train.RunConfig(name="tracking", storage_path=directory))
        trainer.fit()
        with open(file) as found:
            return json.load(found)


print(json.dumps({"ray": ray, "lightning": lightning}[sys.argv[1]](int(sys.argv[2]))))
