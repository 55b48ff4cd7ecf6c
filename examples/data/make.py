#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes breast_cancer.csv beside it: the data of scikit-learn 1.9.1 ("Breast Cancer Wisconsin (Diagnostic)", from
the UCI Machine Learning Repository, CC BY 4.0), with a header.

Usage: python3 make.py   (pip install scikit-learn==1.9.1)
"""

import pathlib

from sklearn.datasets import load_breast_cancer

data = load_breast_cancer()
with open(pathlib.Path(__file__).parent / "breast_cancer.csv", "w", encoding="utf-8", newline="\n") as out:
    print(*(name.replace(" ", "_") for name in data.feature_names), "benign", sep=",", file=out)
    for row, target in zip(data.data, data.target):
        print(*(f"{value:.12g}" for value in row), target, sep=",", file=out)
