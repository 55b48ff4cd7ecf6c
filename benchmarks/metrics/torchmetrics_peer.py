# SPDX-License-Identifier: Apache-2.0
"""The metrics of metrics_bench.cpp in torchmetrics, over torch.distributed's Gloo.

    python -m torch.distributed.run --standalone --nproc-per-node 2 torchmetrics_peer.py SAMPLES

Rank 0 prints a JSON line for "update" and for "reduce", which is MetricCollection.compute() and reset().
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torchmetrics import (Accuracy, AUROC, AveragePrecision, CalibrationError, F1Score, MaxMetric, MeanMetric,
                          MetricCollection, Precision, Recall)

CLASSES, ROWS = 10, 64


def main():
    samples = int(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    kind = {"task": "multiclass", "num_classes": CLASSES}
    compared = MetricCollection({
        "accuracy": Accuracy(**kind), "best_three": Accuracy(**kind, top_k=3),
        "precision": Precision(**kind, average="macro"), "recall": Recall(**kind, average="macro"),
        "f1": F1Score(**kind, average="macro"), "precisions": AveragePrecision(**kind, thresholds=50),
        "auroc": AUROC(**kind, thresholds=50), "calibration": CalibrationError(**kind)})
    others = MetricCollection({"loss": MeanMetric(), "longest": MaxMetric()})
    scores = torch.rand(ROWS, CLASSES).softmax(1)
    targets = torch.randint(CLASSES, (ROWS,))

    def see():
        compared.update(scores, targets)
        others["loss"].update(0.5, ROWS)
        others["longest"].update(0.5)

    def reduce():
        compared.compute()
        others.compute()
        compared.reset()
        others.reset()

    times = {"update": [], "reduce": []}
    for sample in range(-3, samples):
        for name, action in (("update", see), ("reduce", reduce)):
            dist.barrier()
            start = time.perf_counter()
            action()
            if sample >= 0:
                times[name].append((time.perf_counter() - start) * 1e6)
    for name, own in times.items():
        slowest = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            ordered = slowest.sort().values
            print(json.dumps({"what": name, "median_us": ordered[len(ordered) // 2].item(),
                              "p99_us": ordered[int(len(ordered) * 0.99)].item()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
