#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes hook_log.txt: the hooks that Lightning 2.6 calls in small trainings, which tests/mpi/fit_test.cpp
repeats with rtrain::Fit. A line is `callback hook` or `module hook`.

Usage: hook_log.py [--check]

With --check it writes nothing, and fails if the file differs. Exits with 77 without Lightning 2.6.
"""

import pathlib
import sys
import tempfile
import warnings

try:
    import lightning
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import EarlyStopping
except ImportError:
    sys.exit(77)
if not lightning.__version__.startswith("2.6."):
    sys.exit(77)

TARGET = pathlib.Path(__file__).with_name("hook_log.txt")
OF_EPOCHS = [f"on_{stage}_{when}" for stage in ("train", "validation")
             for when in ("start", "end", "epoch_start", "epoch_end", "batch_start", "batch_end")]
OF_MODULE = ["setup", "teardown", "on_fit_start", "on_fit_end", *OF_EPOCHS, "on_before_zero_grad", "on_before_backward",
             "on_after_backward", "on_before_optimizer_step", "on_save_checkpoint", "training_step", "validation_step"]
OF_CALLBACK = ["setup", "teardown", "on_fit_start", "on_fit_end", "on_sanity_check_start", "on_sanity_check_end",
               *OF_EPOCHS, "on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step",
               "on_save_checkpoint", "on_exception"]


def logged(base, label, names, log):
    """A class derived from `base` that logs calls of `names`."""
    def method(name):
        def run(self, *arguments, **options):
            log.append(f"{label} {name}")
            return getattr(super(made, self), name)(*arguments, **options)
        return run
    made = type(base.__name__, (base,), {name: method(name) for name in names})
    return made


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        if getattr(self, "fails_at", None) == index:
            raise RuntimeError("as planned")
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, index):
        self.log("val/loss", 1.0)

    # Saves where Fit does: after validation within an epoch, else at the end of epochs. ModelCheckpoint is a callback,
    # so that its place among hooks depends on other callbacks.
    def on_validation_end(self):
        if self.trainer.val_check_interval != 1.0:
            self.trainer.save_checkpoint(self.checkpoint)

    def on_train_epoch_end(self):
        if self.trainer.val_check_interval == 1.0:
            self.trainer.save_checkpoint(self.checkpoint)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class TwoOptimizers(Net):
    automatic_optimization = False

    def training_step(self, batch, index):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.net(batch[0]).square().mean())
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), 0.01), torch.optim.SGD(self.parameters(), 0.01)]


def scenario(name, module=Net, fails_at=None, val_rows=2, callbacks=(), **options):
    log = []
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(6, 1)))
    val = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(val_rows, 1)))
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(default_root_dir=directory, logger=False, enable_progress_bar=False, enable_model_summary=False,
                          accelerator="cpu", callbacks=[logged(Callback, "callback", OF_CALLBACK, log)(), *callbacks],
                          enable_checkpointing=False, **options)
        model = logged(module, "module", OF_MODULE, log)()
        model.fails_at = fails_at
        model.checkpoint = pathlib.Path(directory) / "checkpoint"
        try:
            trainer.fit(model, rows, val)
        except RuntimeError as error:
            if "as planned" not in str(error):
                raise
    return [f"# {name}", *log]


def everything():
    lines = scenario("accumulation", max_epochs=2, accumulate_grad_batches=4)
    lines += scenario("validation_within_an_epoch", max_epochs=1, val_check_interval=3, num_sanity_val_steps=0)
    lines += scenario("early_stop", max_epochs=5, num_sanity_val_steps=0,
                      callbacks=[EarlyStopping("val/loss", patience=1)])
    lines += scenario("exception", max_epochs=1, num_sanity_val_steps=0, fails_at=2)
    lines += scenario("two_optimizers", TwoOptimizers, max_epochs=1, num_sanity_val_steps=0, limit_train_batches=2)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    text = everything()
    if "--check" not in sys.argv:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.exit(f"{TARGET} is not what Lightning {lightning.__version__} calls now")
