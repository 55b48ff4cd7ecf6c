#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torchmetrics.json beside this file: batches, and what PyPI's torchmetrics 1.9.0 says of them.

With --check it compares instead, and ends with 77 (a skipped test) where there is no torchmetrics.
Scores are multiples of 1/64, so many of them are equal.
"""

import json
import math
import pathlib
import sys
import warnings

try:
    import torch
    import torchmetrics
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FILE = pathlib.Path(__file__).parent / "torchmetrics.json"
SIZES = [9, 1, 20, 5, 4, 13, 2, 16]
CLASSES, LABELS, TOKENS, IGNORED = 5, 3, 7, -100
warnings.filterwarnings("ignore")
generator = torch.Generator().manual_seed(17)


def grid(tensor):
    return torch.round(tensor * 64) / 64


def uniform(*shape):
    return grid(torch.rand(shape, generator=generator, dtype=torch.float64))


def normal(*shape):
    return grid(torch.randn(shape, generator=generator, dtype=torch.float64) * 2)


def logits(*shape):
    """No two are equal: torch's sigmoid would make different scores of them, here and there."""
    return torch.randn(shape, generator=generator, dtype=torch.float64) * 2


def below(count, *shape):
    return torch.randint(count, shape, generator=generator)


def ignoring(targets, value=IGNORED):
    return torch.where(torch.rand(targets.shape, generator=generator) < 0.2, value, targets)


def grown(scores, targets):
    """Scores that tell something about the targets."""
    return grid(scores + torch.nn.functional.one_hot(targets, scores.shape[1]).double() * 2)


def probable(scores):
    """Probabilities; a classifier's of many classes need not be on the grid."""
    return torch.softmax(scores, 1)


def skewed(count, size):
    """No row is of the last class."""
    return below(count - 1, size)


def classed(size):
    targets = skewed(CLASSES, size)
    return grown(normal(size, CLASSES), targets), targets


DATA = {
    "binary": [(uniform(n), below(2, n)) for n in SIZES],
    "binary_logits": [(logits(n), below(2, n)) for n in SIZES],
    "binary_numbers": [(below(2, n), below(2, n)) for n in SIZES],
    "binary_ignored": [(uniform(n, 3), ignoring(below(2, n, 3))) for n in SIZES],
    "binary_one_sided": [(uniform(n), torch.zeros(n, dtype=torch.long)) for n in SIZES],
    "classes": [classed(n) for n in SIZES],
    "classes_probable": [(probable(p), t) for p, t in (classed(n) for n in SIZES)],
    "classes_numbers": [(below(CLASSES, n), skewed(CLASSES, n)) for n in SIZES],
    "classes_deep": [(logits(n, CLASSES, 2), below(CLASSES, n, 2)) for n in SIZES],
    "classes_ignored": [(p, ignoring(t)) for p, t in (classed(n) for n in SIZES)],
    "classes_ignored_own": [(p, ignoring(t, 1)) for p, t in (classed(n) for n in SIZES)],
    "labels": [(uniform(n, LABELS), below(2, n, LABELS)) for n in SIZES],
    "labels_deep": [(uniform(n, LABELS, 2), below(2, n, LABELS, 2)) for n in SIZES],
    "labels_logits": [(logits(n, LABELS), below(2, n, LABELS)) for n in SIZES],
    "labels_ignored": [(uniform(n, LABELS), ignoring(below(2, n, LABELS))) for n in SIZES],
    "numbers": [(normal(n), normal(n)) for n in SIZES],
    "columns": [(normal(n, 3), normal(n, 3) * torch.tensor([1.0, 2.0, 3.0])) for n in SIZES],
    "tokens": [(normal(n, 2, TOKENS), below(TOKENS, n, 2)) for n in SIZES],
    "tokens_ignored": [(normal(n, 2, TOKENS), ignoring(below(TOKENS, n, 2))) for n in SIZES],
}
SCORES = {"Accuracy": "Accuracy", "Precision": "Precision", "Recall": "Recall", "F1": "F1Score"}
CURVES = {"Auroc": "AUROC", "AveragePrecision": "AveragePrecision"}
THEIRS = {**SCORES, **CURVES, "Mean": "MeanMetric", "Sum": "SumMetric", "Min": "MinMetric", "Max": "MaxMetric",
          "Perplexity": "text.Perplexity"}
NAMES = {"bins": "n_bins", "threshold_values": "thresholds"}
NORMALIZE = {"targets": "true", "predictions": "pred"}


def kind_of(data):
    if data.startswith("classes"):
        return {"num_classes": CLASSES}
    if data.startswith("labels"):
        return {"num_labels": LABELS}
    return {}


def ignores(data):
    return {"ignore_index": 1 if data.endswith("own") else IGNORED} if "ignored" in data else {}


def cases():
    """(our metric, data, our options)"""
    averages = ["micro", "macro", "weighted", "none"]
    for data in DATA:
        if data in ("numbers", "columns") or data.startswith("tokens"):
            continue
        kind = {**kind_of(data), **ignores(data)}
        is_scored = not data.endswith("numbers")
        for metric in SCORES:
            for average in averages if kind_of(data) else ["micro"]:
                yield metric, data, {**kind, "average": average}
        for normalize in ("none", "targets", "predictions", "all"):
            yield "ConfusionMatrix", data, {**kind, "normalize": normalize}
        if is_scored:
            for metric in CURVES:
                for average in averages if data.startswith("labels") else averages[1:] if kind_of(data) else ["macro"]:
                    for curve in ({}, {"thresholds": 7}, {"threshold_values": [0.05, 0.3, 0.8]}):
                        yield metric, data, {**kind, "average": average, **curve}
            if not data.startswith("labels"):
                for norm in ("l1", "l2", "max"):
                    yield "CalibrationError", data, {**kind, "norm": norm, "bins": 8}
    for metric in SCORES:
        for average in averages:
            for top_k in (2, 3):
                for data in ("classes", "classes_deep", "classes_ignored"):
                    yield metric, data, {**kind_of(data), **ignores(data), "average": average, "top_k": top_k}
        yield metric, "binary", {"average": "micro", "threshold": 0.25}
        if metric != "Accuracy":
            yield metric, "classes_ignored", {**kind_of("classes"), **ignores("classes_ignored"), "average": "none",
                                              "zero_division": 1}
    for metric in ("Mean", "Sum", "Min", "Max"):
        yield metric, "numbers", {}
    for metric in ("MeanSquaredError", "MeanAbsoluteError"):
        yield metric, "numbers", {}
        yield metric, "columns", {}
        yield metric, "columns", {"num_outputs": 3}
    yield "MeanSquaredError", "numbers", {"squared": False}
    for multioutput in ("uniform_average", "raw_values", "variance_weighted"):
        for adjusted in (0, 5):
            yield "R2Score", "columns", {"num_outputs": 3, "multioutput": multioutput, "adjusted": adjusted}
    yield "R2Score", "numbers", {}
    yield "Perplexity", "tokens", {}
    yield "Perplexity", "tokens_ignored", {"ignore_index": IGNORED}


def theirs(metric, data, options):
    options = {NAMES.get(name, name): value for name, value in options.items()}
    if "normalize" in options:
        options["normalize"] = NORMALIZE.get(options["normalize"], options["normalize"])
    if metric in SCORES or metric in CURVES or metric in ("ConfusionMatrix", "CalibrationError"):
        options["task"] = ("multiclass" if data.startswith("classes") else
                           "multilabel" if data.startswith("labels") else "binary")
        if metric in CURVES:
            options["thresholds"] = options.get("thresholds")
    if metric == "R2Score":
        options.pop("num_outputs", None)
    of = torchmetrics
    for name in THEIRS.get(metric, metric).split("."):
        of = getattr(of, name)
    return of(**options).set_dtype(torch.float64)


def value_of(metric, data, options):
    their = theirs(metric, data, options)
    for predictions, targets in DATA[data]:
        if metric == "Mean":
            their.update(predictions, targets.abs())
        elif metric in ("Sum", "Min", "Max"):
            their.update(predictions)
        else:
            their.update(predictions, targets)
    value = their.compute()
    numbers = [None if math.isnan(v) else v for v in value.double().flatten().tolist()]
    return {"metric": metric, "data": data, "options": options, "shape": list(value.shape), "value": numbers}


def shortest(tensor):
    return [int(v) if float(v).is_integer() else v for v in tensor.flatten().tolist()]


result = {
    "data": {name: [{"shape": list(predictions.shape), "predictions": shortest(predictions),
                     "floating": predictions.is_floating_point(), "target_shape": list(targets.shape),
                     "targets": shortest(targets), "target_floating": targets.is_floating_point()}
                    for predictions, targets in batches]
             for name, batches in DATA.items()},
    "cases": [value_of(*case) for case in cases()],
}


def is_same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
    return a == b


if sys.argv[1:] == ["--check"]:
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    if not is_same(json.loads(json.dumps(result)), kept):
        sys.exit(f"torchmetrics {torchmetrics.__version__} says something else than {FILE}")
    print(f"{len(kept['cases'])} values are those of torchmetrics {torchmetrics.__version__}")
else:
    FILE.write_text(json.dumps(result, separators=(",", ":")).replace('{"metric"', '\n{"metric"') + "\n", encoding="utf-8")
