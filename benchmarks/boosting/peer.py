#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of the libraries' own training on run.py's table, in one process: peer.py LIBRARY ROWS COLUMNS ROUNDS DIRECTORY THREADS"""
import json
import pathlib
import sys
import time

import numpy as np

library, rows, columns, rounds, directory, threads = sys.argv[1], *map(int, sys.argv[2:5]), pathlib.Path(sys.argv[5]), int(sys.argv[6])
x = np.memmap(directory / "x.f4", np.float32, "r", shape=(rows, columns))
y = np.memmap(directory / "y.f4", np.float32, "r", shape=(rows,))
history = {}
if library == "xgboost":
    import xgboost

    begin = time.monotonic()
    data = xgboost.QuantileDMatrix(x, y, nthread=threads)
    params = {"objective": "binary:logistic", "eval_metric": "logloss", "nthread": threads}
    xgboost.train(params, data, rounds, evals=[(data, "train")], evals_result=history, verbose_eval=False)
    metric = history["train"]["logloss"][-1]
else:
    import lightgbm

    begin = time.monotonic()
    params = {"objective": "binary", "metric": "binary_logloss", "num_threads": threads, "verbosity": -1,
              "deterministic": True, "force_col_wise": True}
    data = lightgbm.Dataset(x, y, params=params)
    lightgbm.train(params, data, rounds, valid_sets=[data], valid_names=["train"],
                   callbacks=[lightgbm.record_evaluation(history)])
    metric = history["train"]["binary_logloss"][-1]
print(json.dumps({"seconds": time.monotonic() - begin, "metric": metric}))
