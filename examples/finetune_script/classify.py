# SPDX-License-Identifier: Apache-2.0
import sys
import torch
net = torch.jit.load(sys.argv[1])
print("classes", net(torch.zeros(2, 28, 28)).argmax(1).tolist(), "training", net.training)
