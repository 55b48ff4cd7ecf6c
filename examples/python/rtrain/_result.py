# SPDX-License-Identifier: Apache-2.0
"""Result: what a run has left in its directory."""
import contextlib
import json
import os
from typing import Any, Dict, List, Optional, Tuple, Union

from ._checkpoint import MANIFEST, Checkpoint
from ._errors import Error


class Result:
    """The outcome of a run: of launch(), or of its directory."""

    def __init__(self, path: str, metrics_history: List[Dict[str, Any]],
                 best_checkpoints: List[Tuple[Checkpoint, Dict[str, Any]]], stop_reason: str = "") -> None:
        self.path = path
        self.stop_reason = stop_reason  # which stop condition has ended the run; "": none
        self.metrics_history = metrics_history  # every report, oldest first
        self.best_checkpoints = best_checkpoints  # those that were kept, oldest first, with their reports

    @classmethod
    def from_path(cls, path: Union[str, "os.PathLike[str]"]) -> "Result":
        run = os.path.abspath(path)
        try:
            with open(os.path.join(run, "result.json"), encoding="utf-8") as file:
                lines = [line for line in file if line.endswith("\n")]  # a run may be writing the last one
        except OSError:
            raise Error("RT-S6", f"{run} is not an rtrain run: it has no result.json") from None
        kept = []
        for entry in os.scandir(run):
            manifest = os.path.join(entry.path, MANIFEST)
            if entry.is_dir() and not entry.name.startswith(".") and os.path.exists(manifest):
                with open(manifest, encoding="utf-8") as file:
                    content = json.load(file)
                kept.append((content["index"], Checkpoint(entry.path), content["metrics"]))
        kept.sort(key=lambda item: item[0])
        stop_reason = ""
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(run, "stopped.json"), encoding="utf-8") as file:
                stop_reason = json.load(file)["reason"]
        return cls(run, [json.loads(line) for line in lines], [(checkpoint, metrics) for _, checkpoint, metrics in kept],
                   stop_reason)

    @property
    def metrics(self) -> Dict[str, Any]:
        """The last report: rank 0's metrics, and the fields that rtrain adds, such as training_iteration."""
        return self.metrics_history[-1] if self.metrics_history else {}

    @property
    def checkpoint(self) -> Optional[Checkpoint]:
        """The newest one."""
        return self.best_checkpoints[-1][0] if self.best_checkpoints else None

    @property
    def metrics_dataframe(self) -> Any:
        """The reports as a pandas.DataFrame, one per row; nested metrics are columns such as "time/data"."""
        try:
            import pandas
        except ImportError:
            raise Error("RT-E58", "metrics_dataframe needs the package pandas; run `pip install pandas`") from None
        return pandas.json_normalize(self.metrics_history, sep="/")

    def __repr__(self) -> str:
        return f"Result(path={self.path!r}, metrics={self.metrics!r}, checkpoint={self.checkpoint!r})"
