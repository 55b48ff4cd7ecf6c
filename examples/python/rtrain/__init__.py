# SPDX-License-Identifier: Apache-2.0
"""Reports and checkpoints of training scripts under `rtrain run`. Guide: docs/python.md."""
from . import collective
from ._checkpoint import Checkpoint
from ._errors import Error
from ._training import Context, Preemption, get_checkpoint, get_config, get_context, preemption, report

__version__ = "0.1.0"
__all__ = ["Checkpoint", "Context", "Error", "Preemption", "collective", "get_checkpoint", "get_config", "get_context",
           "preemption", "report"]
