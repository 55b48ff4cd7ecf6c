#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What run.py compares with: the libraries' own training and prediction, and Ray's. Prints a line of JSON.

    peer.py train LIBRARY ROUNDS SOURCE THREADS PROCESSES
    peer.py predict LIBRARY MODEL SOURCE THREADS
    peer.py ray-train LIBRARY ROUNDS SOURCE
    peer.py ray-predict LIBRARY MODEL SOURCE

SOURCE is a directory of Parquet files, or one that has the float32 arrays x.f4 and y.f4.
"""
import json
import multiprocessing
import pathlib
import socket
import sys
import time

import numpy as np

BATCH_ROWS = 8192
METRICS = {"xgboost": ["logloss", "error"], "lightgbm": ["binary_logloss", "binary_error"]}


def split(table):
    """Features and labels of an Arrow table."""
    names = [name for name in table.column_names if name != "y"]
    return np.column_stack([table[name].to_numpy() for name in names]), table["y"].to_numpy()


def read(source, rank=0, ranks=1):
    if (source / "x.f4").exists():
        y = np.memmap(source / "y.f4", np.float32, "r")
        x = np.memmap(source / "x.f4", np.float32, "r").reshape(len(y), -1)
    else:
        import pyarrow.parquet

        x, y = split(pyarrow.parquet.read_table(source))
    part = slice(len(y) * rank // ranks, len(y) * (rank + 1) // ranks)
    return x[part], y[part]


def fit(library, rounds, x, y, threads, **more):
    history = {}
    if library == "xgboost":
        import xgboost

        rows = xgboost.QuantileDMatrix(x, y, nthread=threads)
        params = {"objective": "binary:logistic", "eval_metric": METRICS[library], "nthread": threads, **more}
        return xgboost.train(params, rows, rounds, evals=[(rows, "train")], evals_result=history, verbose_eval=False)
    import lightgbm

    params = {"objective": "binary", "metric": METRICS[library], "num_threads": threads, "verbosity": -1,
              "deterministic": True, "force_col_wise": True, **more}
    rows = lightgbm.Dataset(x, y, params=params)
    return lightgbm.train(params, rows, rounds, valid_sets=[rows], valid_names=["train"],
                          callbacks=[lightgbm.record_evaluation(history)])


def work(library, rounds, source, threads, rank, network, ready, seconds):
    """One of several processes that train together: what it takes from reading to the model."""
    __import__(library)
    ready.wait()
    begin = time.monotonic()
    if library == "xgboost":
        import xgboost

        with xgboost.collective.CommunicatorContext(**network, dmlc_task_id=str(rank)):
            fit(library, rounds, *read(source, rank, ready.parties), threads)
    else:
        fit(library, rounds, *read(source, rank, ready.parties), threads, tree_learner="data", pre_partition=True,
            num_machines=len(network), local_listen_port=network[rank],
            machines=",".join(f"127.0.0.1:{port}" for port in network))
    seconds.put(time.monotonic() - begin)


def network_of(library, processes):
    """How processes find each other, and what is to exist meanwhile."""
    if library == "xgboost":
        from xgboost.tracker import RabitTracker

        tracker = RabitTracker(n_workers=processes, host_ip="127.0.0.1", sortby="task")
        tracker.start()
        return tracker.worker_args(), tracker
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(processes)]
    return [one.getsockname()[1] for one in sockets], None


def train(library, rounds, source, threads, processes):
    rounds, source, threads, processes = int(rounds), pathlib.Path(source), int(threads), int(processes)
    if processes == 1:
        __import__(library)
        begin = time.monotonic()
        fit(library, rounds, *read(source), threads)
        return {"seconds": time.monotonic() - begin}
    spawned = multiprocessing.get_context("spawn")
    ready, seconds = spawned.Barrier(processes), spawned.Queue()
    network, _tracker = network_of(library, processes)
    workers = [spawned.Process(target=work, args=(library, rounds, source, threads, rank, network, ready, seconds))
               for rank in range(processes)]
    for worker in workers:
        worker.start()
    return {"seconds": max(seconds.get(timeout=300) for _ in workers)}


def predict(library, model, source, threads):
    import pyarrow.dataset

    booster = load(library, model, int(threads))
    begin = time.monotonic()
    total = rows = 0
    for batch in pyarrow.dataset.dataset(source).to_batches(batch_size=BATCH_ROWS):
        odds = odds_of(library, booster, split(batch)[0])
        total, rows = total + odds.sum(dtype=np.float64), rows + len(odds)
    return {"seconds": time.monotonic() - begin, "mean": total / rows, "rows": rows}


def load(library, model, threads):
    if library == "xgboost":
        import xgboost

        booster = xgboost.Booster(model_file=model)
        booster.set_param({"nthread": threads})
        return booster
    import lightgbm

    return lightgbm.Booster(model_file=model)  # its threads: OMP_NUM_THREADS


def odds_of(library, booster, x):
    return booster.inplace_predict(x, validate_features=False) if library == "xgboost" else booster.predict(x)


def ray_train(library, rounds, source):
    import ray
    import ray.data
    from ray.train import ScalingConfig

    if library == "xgboost":
        from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer as Trainer
    else:
        from ray.train.lightgbm import LightGBMTrainer as Trainer, RayTrainReportCallback

    def loop():
        frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
        y, frame = frame.pop("y").to_numpy(np.float32), frame.to_numpy(np.float32)  # LightGBM takes no Arrow types
        if library == "xgboost":
            import xgboost

            rows = xgboost.QuantileDMatrix(frame, y, nthread=1)
            params = {"objective": "binary:logistic", "eval_metric": METRICS[library], "nthread": 1}
            xgboost.train(params, rows, rounds, evals=[(rows, "train")], verbose_eval=False,
                          callbacks=[RayTrainReportCallback(checkpoint_at_end=True)])
        else:
            import lightgbm
            from ray.train.lightgbm import get_network_params

            params = {"objective": "binary", "metric": METRICS[library], "num_threads": 1, "verbosity": -1,
                      "tree_learner": "data", "pre_partition": True, **get_network_params()}
            rows = lightgbm.Dataset(frame, y, params=params)
            lightgbm.train(params, rows, rounds, valid_sets=[rows], valid_names=["train"],
                           callbacks=[RayTrainReportCallback(checkpoint_at_end=True)])

    rounds = int(rounds)
    ray.init(num_cpus=4, log_to_driver=False)  # two for the workers, two for Ray Data
    begin = time.monotonic()
    Trainer(loop, scaling_config=ScalingConfig(num_workers=2),
            datasets={"train": ray.data.read_parquet(source)}).fit()
    return {"seconds": time.monotonic() - begin}


def ray_predict(library, model, source):
    import ray
    import ray.data

    class Predictor:
        def __init__(self):
            self.booster = load(library, model, 1)

        def __call__(self, frame):
            frame.pop("y")
            return {"odds": odds_of(library, self.booster, frame.to_numpy(np.float32))}

    ray.init(num_cpus=4, log_to_driver=False)
    begin = time.monotonic()
    odds = ray.data.read_parquet(source).map_batches(Predictor, batch_format="pandas", batch_size=BATCH_ROWS, concurrency=2)
    mean = odds.mean("odds")
    return {"seconds": time.monotonic() - begin, "mean": mean}


if __name__ == "__main__":
    mode = {"train": train, "predict": predict, "ray-train": ray_train, "ray-predict": ray_predict}[sys.argv[1]]
    print(json.dumps(mode(*sys.argv[2:])), flush=True)
