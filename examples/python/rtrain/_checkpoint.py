# SPDX-License-Identifier: Apache-2.0
"""Checkpoint: a directory of files."""
import contextlib
import json
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Union

from ._errors import Error

METADATA = ".metadata.json"
MANIFEST = "manifest.json"
_SEAL = ',"crc32c":'
_table: List[int] = []


def _crc32c(data: bytes) -> int:
    if not _table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            _table.append(byte)
    crc = 0xFFFFFFFF
    for value in data:
        crc = crc >> 8 ^ _table[(crc ^ value) & 255]
    return crc ^ 0xFFFFFFFF


class Checkpoint:
    """A handle to a directory; copying it copies no files."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.path.abspath(path)

    @classmethod
    def from_directory(cls, path: Union[str, "os.PathLike[str]"]) -> "Checkpoint":
        if not os.path.isdir(path):
            raise Error("RT-E45", f"{os.fspath(path)} is not a directory, so not a checkpoint")
        return cls(path)

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory, to be read only. Meanwhile, its run does not delete it."""
        import fcntl
        try:
            manifest = os.open(os.path.join(self.path, MANIFEST), os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:  # one that is not part of a run
            yield self.path
            return
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(manifest, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield self.path
        finally:
            os.close(manifest)

    def to_directory(self, path: Union[None, str, "os.PathLike[str]"] = None) -> str:
        """Copies the files to `path`, which is created, or to a new temporary directory; returns it."""
        import shutil  # not above: it would double the time of importing this module
        if path is None:
            import tempfile
            path = tempfile.mkdtemp(prefix="checkpoint_tmp_")
        with self.as_directory() as directory:
            shutil.copytree(directory, path, dirs_exist_ok=True)
        return os.fspath(path)

    def get_metadata(self) -> Dict[str, Any]:
        try:
            with open(os.path.join(self.path, METADATA), encoding="utf-8") as file:
                metadata = json.load(file)
        except FileNotFoundError:
            return {}
        metadata.pop("crc32c", None)
        metadata.pop("empty", None)
        return metadata  # type: ignore[no-any-return]

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replaces the metadata; `metadata` is JSON."""
        text = json.dumps(dict(metadata) or {"empty": True}, allow_nan=False, separators=(",", ":"))[:-1]
        file = os.path.join(self.path, METADATA)
        with open(file + ".new", "w", encoding="utf-8") as new:
            new.write(f"{text}{_SEAL}{_crc32c(text.encode())}}}")
        os.replace(file + ".new", file)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r})"


def optional(path: str) -> Optional[Checkpoint]:
    return Checkpoint(path) if path else None
