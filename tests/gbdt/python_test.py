#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether rtrain trains as the libraries' own Python packages do, and models go both ways.

Usage: python_test.py BOOSTING_TESTS REVERSED

The program trains both libraries, on one rank and on two that each have a part of the rows. Python then trains on the
same rows, in as many processes: metrics within 1e-6 of rtrain's, and rtrain's models predict the same floats in
Python. Python's models go back: a second run of the program predicts with them. REVERSED, which is linked in the other
order, trains the same models. The table has missing values and a column of categories.
"""

import json
import multiprocessing
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

try:
    import lightgbm
    import numpy as np
    import xgboost
    from xgboost.tracker import RabitTracker
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

NAMES = ["a", "b", "c", "d_0", "d_1"]
TYPES = ["float", "float", "c", "float", "float"]
ROUNDS = 8
FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt"}


def run(program, directory, ranks=1):
    launcher = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
    subprocess.run(
        [*launcher, program, "-tc=Boosting.writes_for_python"],
        env={
            **os.environ,
            "RTRAIN_BOOSTING_FILES": str(directory),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
        check=True,
        stdout=subprocess.DEVNULL,
    )


def read(directory, name, dtype=np.float32):
    return np.fromfile(directory / name, dtype=dtype)


def tables_of(directory):
    """Features and labels of train and valid, as rtrain has written them."""
    return {
        name: (read(directory, f"{name}_x.f4").reshape(-1, len(NAMES)), read(directory, f"{name}_y.f4"))
        for name in ("train", "valid")
    }


def part_of(tables, rank, ranks):
    """The rows of a rank: consecutive ones."""
    return {name: tuple(values[len(values) * rank // ranks : len(values) * (rank + 1) // ranks] for values in table)
            for name, table in tables.items()}


def close(name, ours, theirs, most=1e-6):
    assert abs(ours - theirs) <= most, f"{name}: rtrain {ours}, Python {theirs}"


def equal(name, ours, theirs):
    assert np.array_equal(ours, theirs), f"{name}: {np.abs(ours - theirs).max()} apart"


def train_xgboost(tables):
    """A booster and its last metrics."""
    options = {"feature_names": NAMES, "feature_types": TYPES, "enable_categorical": True, "nthread": 1}
    rows = xgboost.QuantileDMatrix(*tables["train"], **options)
    others = xgboost.QuantileDMatrix(*tables["valid"], ref=rows, **options)
    history = {}
    booster = xgboost.train(
        {"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "eta": 0.3, "nthread": 1},
        rows,
        ROUNDS,
        evals=[(rows, "train"), (others, "valid")],
        evals_result=history,
        verbose_eval=False,
    )
    return booster, {f"{table}-{name}": values[-1] for table in history for name, values in history[table].items()}


def train_lightgbm(tables, **more):
    params = {
        "objective": "binary",
        "metric": "binary_logloss",
        "min_data_in_leaf": 5,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
        **more,
    }
    (x, y), (valid_x, valid_y) = tables["train"], tables["valid"]
    rows = lightgbm.Dataset(x.astype(np.float64), y, feature_name=NAMES, categorical_feature=["c"], params=params)
    others = lightgbm.Dataset(valid_x.astype(np.float64), valid_y, reference=rows)
    history = {}
    booster = lightgbm.train(
        params,
        rows,
        ROUNDS,
        valid_sets=[rows, others],
        valid_names=["train", "valid"],
        callbacks=[lightgbm.record_evaluation(history)],
    )
    return booster, {f"{table}-binary_logloss": history[table]["binary_logloss"][-1] for table in history}


def xgboost_worker(rank, tables, arguments, results):
    with xgboost.collective.CommunicatorContext(**arguments, dmlc_task_id=str(rank)):
        results.put(train_xgboost(tables)[1])


def lightgbm_worker(rank, tables, ports, results):
    machines = ",".join(f"127.0.0.1:{port}" for port in ports)
    network = {"num_machines": len(ports), "machines": machines, "local_listen_port": ports[rank]}
    results.put(train_lightgbm(tables, tree_learner="data", pre_partition=True, **network)[1])


def trained_in_processes(worker, tables, shared, ranks):
    """The metrics of workers that train together, which each have a part of the rows; None if they fail."""
    spawned = multiprocessing.get_context("spawn")
    results = spawned.Queue()
    workers = [
        spawned.Process(target=worker, args=(rank, part_of(tables, rank, ranks), shared, results), daemon=True)
        for rank in range(ranks)
    ]
    for process in workers:
        process.start()
    for process in workers:
        process.join(60)
    for process in workers:
        process.kill()
        process.join()
    return [results.get() for _ in workers] if all(process.exitcode == 0 for process in workers) else None


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def compare_ranks(program, directory, ranks):
    """Several ranks next to the same number of Python processes."""
    run(program, directory, ranks)
    tables = tables_of(directory)
    tracker = RabitTracker(n_workers=ranks, host_ip="127.0.0.1", sortby="task")
    tracker.start()
    theirs = {"xgboost": trained_in_processes(xgboost_worker, tables, tracker.worker_args(), ranks)}
    for _ in range(3):  # another process may take a port between our look and LightGBM's
        theirs["lightgbm"] = theirs.get("lightgbm") or trained_in_processes(
            lightgbm_worker, tables, free_ports(ranks), ranks
        )
    for library, found in theirs.items():
        assert found, f"{library}'s own processes have failed"
        ours = json.loads((directory / f"{library}.json").read_text())
        for name in found[0]:  # LightGBM's are of each worker's rows, of which all have as many
            close(f"{library}, {ranks} ranks, {name}", ours[name], sum(metrics[name] for metrics in found) / ranks)


def compare(program, directory):
    """One rank next to Python, and models passed in both directions."""
    run(program, directory)
    tables = tables_of(directory)
    valid = tables["valid"][0]
    trained = {"xgboost": train_xgboost(tables), "lightgbm": train_lightgbm(tables)}
    for library, (_, metrics) in trained.items():
        ours = json.loads((directory / f"{library}.json").read_text())
        assert len(metrics) == len([name for name in ours if name.startswith(("train-", "valid-"))]), ours
        for name, value in metrics.items():
            close(f"{library}, {name}", ours[name], value)

    loaded = xgboost.Booster(model_file=directory / FILES["xgboost"])
    assert loaded.feature_names == NAMES and loaded.feature_types == TYPES, loaded.feature_types
    plain = xgboost.DMatrix(valid, feature_names=NAMES, feature_types=TYPES, enable_categorical=True)
    equal("xgboost", read(directory, "xgboost_odds"), loaded.predict(plain))
    loaded = lightgbm.Booster(model_file=directory / FILES["lightgbm"])
    assert loaded.feature_name() == NAMES
    wide = valid.astype(np.float64)
    equal("lightgbm", read(directory, "lightgbm_odds", np.float64), loaded.predict(wide))

    for library, (booster, _) in trained.items():
        booster.save_model(directory / f"python_{FILES[library]}")
        shutil.rmtree(directory / "runs" / library)  # else the runs are finished
    run(program, directory)
    equal("xgboost from Python", read(directory, "xgboost_python_odds"), trained["xgboost"][0].predict(plain))
    equal(
        "lightgbm from Python",
        read(directory, "lightgbm_python_odds", np.float64),
        trained["lightgbm"][0].predict(wide),
    )


def main(program, reversed_program, scratch):
    for name in ("one", "two", "reversed"):
        (scratch / name).mkdir()
    compare(program, scratch / "one")
    compare_ranks(program, scratch / "two", 2)
    run(reversed_program, scratch / "reversed")
    for name in FILES.values():
        assert (scratch / "reversed" / name).read_bytes() == (scratch / "one" / name).read_bytes(), name


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(*(str(pathlib.Path(word).resolve()) for word in sys.argv[1:]), pathlib.Path(directory))
    print("equal")
