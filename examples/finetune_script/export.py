# SPDX-License-Identifier: Apache-2.0
"""Writes the network that finetune_script.cpp trains: export.py net.pt"""
import sys
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
                                      nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(800, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(image.view(-1, 1, 28, 28)))


torch.manual_seed(0)
torch.jit.script(Net()).save(sys.argv[1])
