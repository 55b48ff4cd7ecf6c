#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The epochs of creators_bench.cpp with Ray's TorchTrainer, a report for each."""
import json
import sys
import time

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def train():
    torch.manual_seed(1)
    x = torch.randn(6400, 64)
    rows = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    loader = prepare_data_loader(torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True))
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256),
                                              torch.nn.ReLU(), torch.nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(11):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        ray.train.report({"loss": loss.item()})


if __name__ == "__main__":
    began = time.monotonic()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    TorchTrainer(train, scaling_config=ray.train.ScalingConfig(num_workers=2),
                 run_config=ray.train.RunConfig(storage_path=sys.argv[1])).fit()
    print(json.dumps({"epochs_s": time.monotonic() - began}))
