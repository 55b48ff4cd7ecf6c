# SPDX-License-Identifier: Apache-2.0
"""The network of fit_bench.cpp under Lightning with DDP on two ranks: lightning_peer.py UNITS [EPOCHS]."""
import json
import os
import sys
import time

begun = time.time() - float(open("/proc/uptime").read().split()[0])
with open("/proc/self/stat") as stat:
    begun += int(stat.read().rsplit(") ", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")

import lightning  # noqa: E402
import torch  # noqa: E402

ROWS, STEPS = 64, 100
units, epochs = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
torch.set_num_threads(1)


class Mlp(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(784, units), torch.nn.ReLU(), torch.nn.Linear(units, units),
                                       torch.nn.ReLU(), torch.nn.Linear(units, 10))
        self.best, self.thread, self.first = float("inf"), float("inf"), None

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_train_epoch_start(self):
        self.first = self.first or time.time() - begun
        self.begin, self.thread_begin = time.perf_counter(), time.thread_time()

    def on_train_epoch_end(self):
        self.best = min(self.best, (time.perf_counter() - self.begin) / STEPS)
        self.thread = min(self.thread, (time.thread_time() - self.thread_begin) / STEPS)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    torch.manual_seed(0)
    rows = torch.utils.data.TensorDataset(torch.randn(2 * ROWS * STEPS, 784), torch.randint(10, (2 * ROWS * STEPS,)))
    loader = torch.utils.data.DataLoader(rows, batch_size=ROWS, shuffle=True)
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", devices=2, strategy="ddp", logger=False,
                                enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    model = Mlp()
    trainer.fit(model, loader)
    if trainer.is_global_zero:
        print(json.dumps({"contestant": "lightning", "units": units, "ranks": 2, "step_us": 1e6 * model.best,
                          "cpu_us": 1e6 * model.thread, "first_s": model.first}))
