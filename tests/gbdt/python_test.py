#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether rtrain trains as the libraries' own Python packages do, and models go both ways.

Usage: python_test.py BOOSTING_TESTS

The program trains both libraries on one rank. Python then trains on the same rows: metrics within 1e-6 of
rtrain's, and rtrain's models predict the same floats in Python. Python's models go back: a second run of the
program predicts with them. The table has missing values and a column of categories.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import lightgbm
    import numpy as np
    import xgboost
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

NAMES = ["a", "b", "c", "d_0", "d_1"]


def run(program, directory):
    subprocess.run(
        [program, "-tc=Boosting.writes_for_python"],
        env={**os.environ, "RTRAIN_BOOSTING_FILES": str(directory)},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def read(directory, name, dtype=np.float32):
    return np.fromfile(directory / name, dtype=dtype)


def close(name, ours, theirs, most=1e-6):
    assert abs(ours - theirs) <= most, f"{name}: rtrain {ours}, Python {theirs}"


def equal(name, ours, theirs):
    assert np.array_equal(ours, theirs), f"{name}: {np.abs(ours - theirs).max()} apart"


def compare(program, directory):
    run(program, directory)
    train = read(directory, "train_x.f4").reshape(-1, 5), read(directory, "train_y.f4")
    valid = read(directory, "valid_x.f4").reshape(-1, 5), read(directory, "valid_y.f4")

    types = ["float", "float", "c", "float", "float"]
    rows = xgboost.QuantileDMatrix(*train, feature_names=NAMES, feature_types=types, enable_categorical=True, nthread=1)
    others = xgboost.QuantileDMatrix(
        *valid, feature_names=NAMES, feature_types=types, enable_categorical=True, ref=rows, nthread=1
    )
    history = {}
    booster = xgboost.train(
        {"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "eta": 0.3, "nthread": 1},
        rows,
        8,
        evals=[(rows, "train"), (others, "valid")],
        evals_result=history,
        verbose_eval=False,
    )
    ours = json.loads((directory / "xgboost.json").read_text())
    for table in ("train", "valid"):
        for metric in ("logloss", "error"):
            close(f"{table}-{metric}", ours[f"{table}-{metric}"], history[table][metric][-1])
    loaded = xgboost.Booster(model_file=directory / "model.ubj")
    assert loaded.feature_names == NAMES and loaded.feature_types == types, loaded.feature_types
    plain = xgboost.DMatrix(valid[0], feature_names=NAMES, feature_types=types, enable_categorical=True)
    equal("xgboost", read(directory, "xgboost_odds"), loaded.predict(plain))
    booster.save_model(directory / "python_model.ubj")
    python_odds = booster.predict(plain)

    wide = [(x.astype(np.float64), y) for x, y in (train, valid)]
    params = {
        "objective": "binary",
        "metric": "binary_logloss",
        "min_data_in_leaf": 5,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }
    rows = lightgbm.Dataset(*wide[0], feature_name=NAMES, categorical_feature=["c"], params=params)
    others = lightgbm.Dataset(*wide[1], reference=rows)
    history = {}
    model = lightgbm.train(
        params,
        rows,
        8,
        valid_sets=[rows, others],
        valid_names=["train", "valid"],
        callbacks=[lightgbm.record_evaluation(history)],
    )
    ours = json.loads((directory / "lightgbm.json").read_text())
    for table in ("train", "valid"):
        close(table, ours[f"{table}-binary_logloss"], history[table]["binary_logloss"][-1])
    loaded = lightgbm.Booster(model_file=directory / "model.txt")
    assert loaded.feature_name() == NAMES
    equal("lightgbm", read(directory, "lightgbm_odds", np.float64), loaded.predict(wide[1][0]))
    model.save_model(directory / "python_model.txt")

    for name in ("xgboost", "lightgbm"):  # else the runs are finished
        subprocess.run(["rm", "-r", str(directory / "runs" / name)], check=True)
    run(program, directory)
    equal("xgboost from Python", read(directory, "xgboost_python_odds"), python_odds)
    equal(
        "lightgbm from Python",
        read(directory, "lightgbm_python_odds", np.float64),
        model.predict(wide[1][0]),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        compare(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(scratch))
    print("equal")
