# SPDX-License-Identifier: Apache-2.0
"""Reports and checkpoints of training scripts under `rtrain run`. Guide: docs/python.md."""
from . import collective
from ._checkpoint import Checkpoint
from ._data import DatasetShard, get_dataset_shard
from ._errors import Error, Stopped
from ._launch import launch
from ._result import Result
from ._training import (Context, Preemption, get_checkpoint, get_config, get_context, log, preemption,
                        report, should_stop)

__version__ = "0.1.0"
__all__ = ["Checkpoint", "Context", "DatasetShard", "Error", "Preemption", "Result", "Stopped", "collective",
           "get_checkpoint", "get_config", "get_context", "get_dataset_shard", "launch", "log", "preemption", "report",
           "should_stop"]
