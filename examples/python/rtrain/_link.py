# SPDX-License-Identifier: Apache-2.0
"""The socket to `rtrain exec`, the parent of this rank: frames of 4 bytes with the length, little-endian, and JSON."""
import json
import os
import stat
import sys
from typing import Any, Dict, Optional

from ._errors import Error

PROTOCOL = 3
MAX_BYTES = 512 * 1024  # of a message
MAX_DEPTH = 30  # of its values

_owner = os.getpid()


def _take_socket() -> Optional[int]:
    """Removes the socket's number from the environment, and keeps programs that this one starts from inheriting it."""
    number = os.environ.pop("RTRAIN_MODULE", None)
    if number is None:
        return None
    try:
        if not stat.S_ISSOCK(os.fstat(int(number)).st_mode):
            return -1
        os.set_inheritable(int(number), False)
    except OSError:
        return -1
    return int(number)


_socket = _take_socket()  # None: outside of a run; -1: lost
_welcome: Optional[Dict[str, Any]] = None
_is_waiting = False


def _close_in_child() -> None:
    if _socket is not None and _socket >= 0:
        os.close(_socket)


os.register_at_fork(after_in_child=_close_in_child)


def start_over() -> None:
    """In a process that was forked to be a rank."""
    global _owner, _socket
    _owner = os.getpid()
    _socket = _take_socket()


def is_in_run() -> bool:
    return _socket is not None


def require_main_thread() -> None:
    """The calls of a rank have an order, in which they meet those of other ranks."""
    import threading
    multiprocessing = sys.modules.get("multiprocessing")
    if os.getpid() != _owner or (multiprocessing is not None and multiprocessing.parent_process() is not None):
        raise Error("RT-E52", f"process {os.getpid()} is a child of the one that trains, which alone may use rtrain")
    if threading.current_thread() is not threading.main_thread():
        raise Error("RT-E52", f"the thread {threading.current_thread().name} is not the main one, which alone may use "
                              "rtrain")
    if _socket is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise Error("RT-E53", f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but `rtrain run` has not started this "
                              "process; start the script with `rtrain run -n N`")


def welcome() -> Dict[str, Any]:
    """What the parent says of this rank and its run."""
    global _welcome
    if _welcome is None:
        require_main_thread()
        if _socket == -1:
            raise Error("RT-E52", "the program that started this one has closed the socket of `rtrain run`; start this "
                                  "script directly, or pass on its open files")
        from . import __version__
        _welcome = _exchange({"kind": "hello", "protocol": PROTOCOL, "version": __version__})
    return _welcome


def call(message: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the answer; raises Error if it is one."""
    require_main_thread()
    welcome()
    return _exchange(message)


def tell(message: Dict[str, Any]) -> None:
    """Sends a message that has no answer."""
    require_main_thread()
    welcome()
    _send(_frame(message))


def _frame(message: Dict[str, Any]) -> bytes:
    text = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    if len(text) > MAX_BYTES:
        raise Error("RT-E50", f"a call has {len(text)} bytes of JSON; the limit is {MAX_BYTES}; pass large objects in "
                              "files")
    return len(text).to_bytes(4, "little") + text


def _exchange(message: Dict[str, Any]) -> Dict[str, Any]:
    global _is_waiting
    frame = _frame(message)
    if _is_waiting:
        raise Error("RT-E46", "an earlier call was interrupted before its answer came")
    _is_waiting = True
    _send(frame)
    answer = json.loads(_receive(int.from_bytes(_receive(4), "little")))
    _is_waiting = False
    if answer["kind"] == "error":
        raise Error(answer["code"], answer["message"])
    return answer  # type: ignore[no-any-return]


def _send(data: bytes) -> None:
    assert _socket is not None
    try:
        while data:
            data = data[os.write(_socket, data):]
    except OSError:
        raise _lost() from None


def _receive(size: int) -> bytes:
    assert _socket is not None
    data = b""
    try:
        while len(data) < size:
            some = os.read(_socket, size - len(data))
            if not some:
                raise _lost()
            data += some
    except OSError:
        raise _lost() from None
    return data


def _lost() -> Error:
    return Error("RT-L10", "the connection to `rtrain run` has ended")
