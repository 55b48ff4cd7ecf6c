#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes scikit_learn.json beside this file: columns, and what scikit-learn makes of them. Needs PyPI's
scikit-learn; 1.9.1 has made the file that is here."""

import json
import pathlib

import numpy
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

random = numpy.random.default_rng(7)
ROWS = 211
x = random.normal([0, 1e6, -3, 1e-7], [1, 2, 1e4, 1e-9], size=(ROWS, 4))
x = numpy.column_stack([x, numpy.full(ROWS, 0.1), numpy.full(ROWS, -1e12), random.integers(-3, 4, ROWS)])
x[random.random(x.shape) < 0.1] = numpy.nan  # missing
level = random.integers(-4, 5, ROWS)
color = random.choice(["blue", "Red", "gr\u00fcn", "", "\U0001f600"], ROWS)


def listed(values):
    """NaN as null: JSON has none."""
    return [[None if numpy.isnan(v) else float(v) for v in row] for row in values]


result = {
    "x": listed(x),
    "standard": listed(StandardScaler().fit_transform(x)),
    "min_max": listed(MinMaxScaler().fit_transform(x)),
    "mean": listed(SimpleImputer(strategy="mean").fit_transform(x)),
    "most_frequent": listed(SimpleImputer(strategy="most_frequent").fit_transform(x[:, 6:])),
    "level": level.tolist(),
    "color": color.tolist(),
    "ordinal": OrdinalEncoder().fit_transform(numpy.column_stack([level])).astype(int).ravel().tolist(),
    "color_ordinal": OrdinalEncoder().fit_transform(color.reshape(-1, 1)).astype(int).ravel().tolist(),
    "one_hot": OneHotEncoder(sparse_output=False).fit_transform(color.reshape(-1, 1)).astype(int).tolist(),
}
(pathlib.Path(__file__).parent / "scikit_learn.json").write_text(json.dumps(result) + "\n", encoding="utf-8")
