#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether examples/boosting_predict.cpp predicts each row of a directory of Parquet files once, as Python does.

Usage: predict_test.py BOOSTING_PREDICT
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import pyarrow
    import pyarrow.parquet
    import xgboost
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROWS = 20_001
NAMES = ["a", "b", "c"]


def main(program):
    random = np.random.default_rng(1)
    x = random.standard_normal((ROWS, len(NAMES))).astype(np.float32)
    y = x[:, 0] * x[:, 1] > 0
    x[::7, 1] = np.nan
    model = xgboost.train(
        {"objective": "binary:logistic", "nthread": 2}, xgboost.QuantileDMatrix(x, y, feature_names=NAMES), 5
    )
    expected = model.predict(xgboost.DMatrix(x, feature_names=NAMES))
    with tempfile.TemporaryDirectory() as scratch:
        rows = pathlib.Path(scratch) / "rows"
        rows.mkdir()
        columns = {"id": np.arange(ROWS), **{name: x[:, i] for i, name in enumerate(NAMES)}}
        for part, (begin, end) in enumerate([(0, 9000), (9000, 9001), (9001, ROWS)]):
            table = pyarrow.table({name: values[begin:end] for name, values in columns.items()})
            pyarrow.parquet.write_table(table, rows / f"part-{part}.parquet", row_group_size=2000)
        model.save_model(f"{scratch}/model.ubj")
        subprocess.run([program, "model.ubj", "rows", "predictions"], cwd=scratch, check=True)
        parts = [np.loadtxt(file) for file in sorted((pathlib.Path(scratch) / "predictions").iterdir())]
    assert len(parts) == 2 and all(len(part) > 8000 for part in parts), [len(part) for part in parts]
    found = np.concatenate(parts)
    assert len(found) == ROWS, len(found)
    assert np.allclose(np.sort(found), np.sort(expected), atol=1e-5), "the predictions differ from Python's"


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()))
