# SPDX-License-Identifier: Apache-2.0
"""The data sets of `rtrain run --dataset`, divided between ranks as by C++'s data::Permuted."""
import json
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._errors import Error
from ._order import Permutation, Steps, hash_of
from ._training import get_checkpoint, get_context

_KEY = "rtrain_datasets"  # in the metadata of checkpoints
_shards: Dict[str, "DatasetShard"] = {}


class DatasetShard:
    """This rank's part of a data set. Each loop over its batches is an epoch. The position is the same on all ranks,
    and is part of each reported checkpoint: a resumed run continues with the rows that it has not read."""

    def __init__(self, name: str, columns: Mapping[str, Any]) -> None:
        self.name = name
        self._columns = columns
        self._rows = len(next(iter(columns.values())))
        self._epoch = 0
        self._samples = 0  # rows of this epoch that all ranks have taken
        self._order = ""  # in which they were taken
        self._loop: Optional[object] = None  # in progress

    def count(self) -> int:
        """The rows of all ranks together."""
        return self._rows

    def columns(self) -> List[str]:
        return list(self._columns)

    def iter_batches(self, *, batch_size: int = 256, shuffle: bool = False, seed: int = 0, drop_last: bool = False,
                     each_row_once: bool = False, columns: Optional[Sequence[str]] = None,
                     prefetch_batches: int = 1) -> "Batches":
        """Batches of numpy arrays, by column. `batch_size` is that of one rank. `shuffle`: a new order in each epoch,
        from `seed`. `each_row_once`: repeats no row if fewer rows than ranks are left; some ranks then have no batch."""
        if batch_size < 1:
            raise Error("RT-D8", f"batch_size is {batch_size}; expected at least 1")
        context = get_context()
        steps = Steps(self._rows, batch_size, context.get_world_size(), drop_last, each_row_once)
        chosen = {name: self._column(name) for name in (self._columns if columns is None else columns)}
        return Batches(self, steps, context.get_world_rank(), seed if shuffle else None, chosen, prefetch_batches)

    def iter_torch_batches(self, *, dtypes: Any = None, device: Any = None, **options: Any) -> "Batches":
        """The same with tensors. `dtypes` is a type, or types by column. Texts remain numpy arrays."""
        import torch

        def convert(array: Any, dtype: Any) -> Any:
            return torch.as_tensor(array).to(dtype=dtype, device=device)
        return self._converted(convert, dtypes, options)

    def iter_tf_batches(self, *, dtypes: Any = None, **options: Any) -> "Batches":
        """The same with TensorFlow's tensors."""
        import tensorflow

        def convert(array: Any, dtype: Any) -> Any:
            tensor = tensorflow.convert_to_tensor(array)
            return tensor if dtype is None else tensorflow.cast(tensor, dtype)
        return self._converted(convert, dtypes, options)

    def set_epoch(self, epoch: int) -> None:
        """The next loop is this epoch. If a checkpoint was made within it, the loop reads the rest."""
        if epoch != self._epoch or self._loop is not None:
            self._epoch, self._samples, self._loop = epoch, 0, None

    def state_dict(self) -> Dict[str, Any]:
        """The position: within a loop, its current batch counts as read."""
        return {"epoch": self._epoch, "samples": self._samples, "rows": self._rows, "order": self._order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next loop continues at a position, with any number of ranks."""
        if state["samples"] and state["rows"] != self._rows:
            raise Error("RT-D12", f'the checkpoint was made after {state["samples"]} rows of an epoch over {state["rows"]} '
                                  f'rows, but the data set "{self.name}" has {self._rows} now; use the same rows')
        self._epoch, self._samples, self._order = state["epoch"], state["samples"], state["order"]
        self._loop = None

    def _column(self, name: str) -> Any:
        if name not in self._columns:
            raise Error("RT-E57", f'the data set "{self.name}" has no column "{name}"; it has '
                                  f'{", ".join(self._columns)}')
        return self._columns[name]

    def _converted(self, convert: Callable[[Any, Any], Any], dtypes: Any, options: Dict[str, Any]) -> "Batches":
        batches = self.iter_batches(**options)
        for name in dtypes if isinstance(dtypes, Mapping) else ():
            self._column(name)
        batches._convert = lambda name, array: array if array.dtype.kind not in "biufc" else convert(
            array, dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes)
        return batches

    def _begin(self, order: str) -> object:
        """Begins a loop; one that was left early counts as an epoch."""
        if self._loop is not None:
            self._epoch, self._samples = self._epoch + 1, 0
        if self._samples and order != self._order:
            raise Error("RT-D13", f'the checkpoint was made after {self._samples} rows of an epoch in the order '
                                  f'"{self._order}", but this loop reads in the order "{order}"; use the same order, or '
                                  "start another epoch with set_epoch()")
        self._order = order
        self._loop = object()
        return self._loop


class Batches:
    """What iter_batches() returns: each loop over it is an epoch."""

    def __init__(self, shard: DatasetShard, steps: Steps, rank: int, seed: Optional[int], columns: Mapping[str, Any],
                 prefetch: int) -> None:
        self._shard = shard
        self._steps = steps
        self._rank = rank
        self._seed = seed  # None: rows in their order
        self._columns = columns
        self._prefetch = prefetch
        self._convert: Callable[[str, Any], Any] = lambda name, array: array

    def __len__(self) -> int:
        """The batches of this rank in a whole epoch."""
        return self._steps.count(self._rank)

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        shard = self._shard
        loop = shard._begin("permuted, " + ("in order" if self._seed is None else f"shuffled with seed {self._seed}"))
        permutation = None if self._seed is None else Permutation(self._steps.rows, hash_of(self._seed, shard._epoch))
        try:
            for taken, batch in _ahead(lambda part: self._read(permutation, *part), self._parts(shard._samples),
                                       self._prefetch):
                if shard._loop is loop:
                    shard._samples = taken
                yield batch
        finally:
            if shard._loop is loop:
                shard._loop = None
                shard._epoch, shard._samples = shard._epoch + 1, 0

    def _parts(self, taken: int) -> Iterator[Tuple[int, int, int]]:
        """The positions of this rank's batches, and the rows that all ranks have taken after each."""
        while step := self._steps.step_at(taken):
            begin, end = self._steps.part(taken, self._rank)
            taken += step
            if begin < end:
                yield taken, begin, end

    def _read(self, permutation: Optional[Permutation], taken: int, begin: int,
              end: int) -> Tuple[int, Dict[str, Any]]:
        import numpy
        rows = numpy.arange(begin, end) if permutation is None else permutation.rows(begin, end)
        return taken, {name: self._convert(name, numpy.asarray(column[rows])) for name, column in self._columns.items()}


def _ahead(read: Callable[[Any], Any], parts: Iterator[Any], count: int) -> Iterator[Any]:
    """Reads up to `count` batches ahead, in a thread."""
    if count < 1:
        yield from map(read, parts)
        return
    import collections
    import concurrent.futures
    waiting: Any = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(1, "rtrain-batches") as thread:
        try:
            for part in parts:
                waiting.append(thread.submit(read, part))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def get_dataset_shard(name: str = "train") -> DatasetShard:
    """This rank's part of the data of `rtrain run --dataset NAME=PATH`; the same object in each call."""
    if name not in _shards:
        given = json.loads(os.environ.get("RTRAIN_DATASETS") or "{}")
        if name not in given:
            raise Error("RT-E55", f'the data set "{name}" was not given; ' + (
                f'there is {", ".join(sorted(given))}' if given else "there is none") +
                f"; pass `rtrain run --dataset {name}=PATH`")
        try:
            import numpy  # noqa: F401
        except ImportError:
            raise Error("RT-E58", "data sets need the package numpy; run `pip install numpy`") from None
        from . import _tables
        shard = DatasetShard(name, _tables.read(given[name]))
        checkpoint = get_checkpoint()
        states = checkpoint.get_metadata().get(_KEY, {}) if checkpoint else {}
        if name in states:
            shard.load_state_dict(states[name])
        _shards[name] = shard
    return _shards[name]


def positions() -> Dict[str, Any]:
    """The entry of a checkpoint's metadata from which a resumed run continues."""
    return {_KEY: {name: shard.state_dict() for name, shard in _shards.items()}} if _shards else {}
