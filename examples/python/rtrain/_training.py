# SPDX-License-Identifier: Apache-2.0
"""What a training script calls. Outside of a run, the process is a world of size one."""
import json
import math
import os
import sys
from typing import Any, Dict, Mapping, NamedTuple, Optional

from . import _link
from ._checkpoint import Checkpoint, optional
from ._errors import Error, Stopped

_ALONE = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "node": 0, "run": "", "directory": "", "checkpoint": "",
          "stop": ""}
_FIELDS_OF_STEPS = ("step", "training_iteration", "timestamp", "checkpoint")
_newest: Optional[Checkpoint] = None
_has_stopped = False
_reports = 0  # outside of a run


def _facts() -> Dict[str, Any]:
    return _link.welcome() if _link.is_in_run() else _ALONE


class Context:
    """Which rank this process is, of which run. The names are Ray Train's."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def get_world_size(self) -> int:
        return int(self._facts["size"])

    def get_world_rank(self) -> int:
        return int(self._facts["rank"])

    def get_local_world_size(self) -> int:
        return int(self._facts["local_size"])

    def get_local_rank(self) -> int:
        return int(self._facts["local_rank"])

    def get_node_rank(self) -> int:
        return int(self._facts["node"])

    def get_experiment_name(self) -> str:
        """The name of the run; "" outside of one."""
        return str(self._facts["run"])

    get_trial_name = get_experiment_name

    def get_trial_dir(self) -> str:
        """The run's directory; "" outside of a run."""
        return str(self._facts["directory"])


class Preemption(NamedTuple):
    """The run is to save and end."""
    seconds_left: float


def get_context() -> Context:
    return Context(_facts())


def get_config() -> Dict[str, Any]:
    """The entries of `rtrain run --config`."""
    return json.loads(os.environ.get("RTRAIN_CONFIG") or "{}")  # type: ignore[no-any-return]


def get_checkpoint() -> Optional[Checkpoint]:
    """The newest checkpoint of the run; None if it has none."""
    return _newest or optional(_facts()["checkpoint"])


def report(metrics: Mapping[str, Any], checkpoint: Optional[Checkpoint] = None, *, checkpoint_dir_name: str = "",
           checkpoint_upload_mode: str = "sync", metadata: Optional[Mapping[str, Any]] = None) -> None:
    """Records metrics, and the files of a checkpoint. All ranks call it together; it returns on all of them once the
    report is stored, or raises Error on all of them. Rank 0's metrics count, and the files of all ranks form one
    checkpoint. If the run stops at this report, report() raises Stopped, which ends the script.

    With the upload mode "async", report() returns once the files are copied, and the checkpoint is stored in the
    background, which the next report with a checkpoint waits for. An error there is raised by the next report."""
    global _has_stopped, _newest, _reports
    if not isinstance(metrics, Mapping):
        raise Error("RT-E51", f"metrics are {_type_of(metrics)}; expected a dict")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise Error("RT-E51", f"the checkpoint is {_type_of(checkpoint)}; expected rtrain.Checkpoint")
    if checkpoint_upload_mode not in ("sync", "async"):
        raise Error("RT-E51", f'checkpoint_upload_mode is {checkpoint_upload_mode!r}; expected "sync" or "async"')
    values = {_key(name, ""): json_value(value, str(name)) for name, value in metrics.items()}
    added = json_value(dict(metadata or {}), "metadata")
    if not _link.is_in_run():
        _link.require_main_thread()
        _reports += 1
        print(f"rtrain: report {_reports}: " + ", ".join(f"{name} {json.dumps(value)}" for name, value in values.items()),
              file=sys.stderr)
        return
    if checkpoint is not None:
        from . import _data  # which imports this module
        added = {**_data.positions(), **added}
    answer = _link.call({"kind": "report", "metrics": values, "directory": checkpoint.path if checkpoint else "",
                         "checkpoint": checkpoint_dir_name, "metadata": added,
                         "in_background": checkpoint_upload_mode == "async"})
    _newest = optional(answer["checkpoint"])
    if answer["stop"]:
        _has_stopped = True
        raise Stopped(answer["stop"])


def log(metrics: Mapping[str, Any]) -> None:
    """Logs metrics of a step, which are numbers, in the run's steps.jsonl and to its trackers. Those of rank 0 count.
    Unlike report(), it is not collective, and waits for nothing."""
    if get_context().get_world_rank() != 0:
        return
    values = {_key(name, "log()"): json_value(value, str(name)) for name, value in metrics.items()}
    for name, value in values.items():
        if not (value is None or isinstance(value, (int, float)) or value in ("inf", "-inf")):
            raise Error("RT-E51", f'log() was given {value!r} as "{name}"; expected a number')
        if name in _FIELDS_OF_STEPS:
            raise Error("RT-C33", f'log() was given a metric "{name}", which rtrain fills in; rename the metric')
    if _link.is_in_run():
        _link.tell({"kind": "log", "metrics": values})


def should_stop() -> bool:
    """True if a stop condition has ended the run, perhaps before this start: then the next report() raises Stopped."""
    return _has_stopped or bool(_facts()["stop"])


def preemption() -> Optional[Preemption]:
    """Whether the run is to save and end soon. All ranks call it together and get the same answer. A script that has
    called it gets no SIGTERM: it reports a checkpoint, and returns."""
    left = meet("preemption", "")
    return Preemption(float(left)) if left else None


def meet(function: str, text: str) -> str:
    """Waits until all ranks call it. Returns the first text that is not empty, by rank."""
    if not _link.is_in_run():
        _link.require_main_thread()
        return text
    return str(_link.call({"kind": "meet", "function": function, "text": text})["text"])


def _type_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _key(name: Any, where: str) -> str:
    if not isinstance(name, str):
        raise Error("RT-E51", f"{where or 'a report'} has the key {name!r}; expected a text")
    return name


def json_value(value: Any, where: str, depth: int = 0) -> Any:
    """As JSON has it: NaN is null, infinities are texts, as in all files of rtrain."""
    if depth > _link.MAX_DEPTH:
        raise Error("RT-E51", f'"{where}" is nested more than {_link.MAX_DEPTH} deep')
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if not -2**63 <= value < 2**64:
            raise Error("RT-E51", f'"{where}" is {value}, which does not fit into 64 bits; pass a float or a text')
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {_key(name, f'"{where}"'): json_value(item, f"{where}/{name}", depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item, f"{where}/{i}", depth + 1) for i, item in enumerate(value)]
    shape = getattr(value, "shape", None)  # numpy, PyTorch, TensorFlow
    if shape is not None and all(size == 1 for size in shape):
        number = value if hasattr(value, "item") else value.numpy()
        return json_value(number.item(), where, depth + 1)
    what = f"of shape {tuple(shape)}; pass its mean, or tolist()" if shape is not None else "; pass a number or a text"
    raise Error("RT-E51", f'"{where}" is {_type_of(value)}{" " if shape is not None else ""}{what}')
