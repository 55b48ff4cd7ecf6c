# SPDX-License-Identifier: Apache-2.0
"""The server of `rtrain run --preload`: imports modules once, and forks ranks that run their script as __main__.

    python3 -m rtrain._preload LISTENER SCRIPT MODULE...

LISTENER is the descriptor of a listening socket; SCRIPT is empty for a module. `rtrain exec` connects for a rank, and
gets the number of its process and later its status, or why there is none. Ranks end with this process."""
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import os
import runpy
import select
import signal
import socket
import struct
import sys
import types
import warnings
from typing import Dict, List, NamedTuple, Optional

_PR_SET_PDEATHSIG = 1


class Work(NamedTuple):
    """What a rank runs."""
    words: List[str]  # after the interpreter
    variables: Dict[str, str]
    directory: str
    parent: int  # `rtrain exec`


class _Rank:
    def __init__(self, pid: int, parent: socket.socket) -> None:
        self.pid = pid
        self.parent = parent  # `rtrain exec`
        self.end: Optional[int] = os.pidfd_open(pid)  # until it has ended

    def say(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it has died; its connection says so next
            self.parent.sendall(f"{number}\n".encode())

    def tell_status(self) -> None:
        """Keeps the process's number until its parent has killed the rest of its group."""
        info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert info is not None
        self.say(info.si_status << 8 if info.si_code == os.CLD_EXITED else info.si_status)
        self.close_end()

    def close_end(self) -> None:
        if self.end is not None:
            os.close(self.end)
            self.end = None

    def forget(self) -> None:
        for kill in os.killpg, os.kill:  # it may not have a group yet
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.close_end()
        self.parent.close()


def _fault_of(name: str, script: str) -> Optional[str]:
    """Why ranks cannot be forked from this process after the import of a module."""
    if len(os.listdir("/proc/self/task")) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()  # before that, OpenBLAS ends its threads
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        if len(os.listdir("/proc/self/task")) > 1:
            return f"refused {name} has started threads, which ranks forked after it would lack"
    for number in os.listdir("/proc/self/fd"):
        try:
            file = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if file.startswith(("/dev/nvidia", "/dev/kfd")):
            return f"refused {name} uses a GPU, which ranks forked after it could not"
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if script and file and os.path.realpath(file) == script:
            return f"--preload {name} imports the script {script} itself, which only ranks may run"
    return None


def _import(names: List[str], script: str) -> Optional[str]:
    """Returns what to answer instead of forking ranks."""
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:  # whatever a module does
            return f"--preload cannot import {name}: {type(error).__name__}: {error}"
        fault = _fault_of(name, script)
        if fault:
            return fault
    return None


def _receive(connection: socket.socket) -> "tuple[Work, List[int]]":
    """A request: its size, then the directory, the number of words, the words and the variables, each ended by a null;
    with the standard streams and, perhaps, the module's socket."""
    sender, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.geteuid():
        raise PermissionError
    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 4)
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
        more = connection.recv(1 << 16)
        if not more:
            raise EOFError
        data += more
    fields = [os.fsdecode(field) for field in data[8:].split(b"\0")[:-1]]
    count = int(fields[1])
    words, settings = fields[2:2 + count], fields[2 + count:]
    return Work(words, dict(setting.split("=", 1) for setting in settings), fields[0], sender), files


def _become_rank(work: Work, files: List[int], server: int) -> None:
    """In the forked process: what the kernel and the interpreter do at a start."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(127)
    os.setpgid(0, 0)
    with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(0, os.sched_getaffinity(work.parent))  # its launcher may have bound it
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ.clear()
    os.environ.update(work.variables)
    if len(files) > 3:
        os.environ["RTRAIN_MODULE"] = str(files[3])
    os.chdir(work.directory)
    from . import _link
    _link.start_over()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # type: ignore[attr-defined]  # random does that itself
    if "torch" in sys.modules:
        sys.modules["torch"].seed()  # type: ignore[attr-defined]
    if "torch" in sys.modules and os.environ.get("OMP_NUM_THREADS", threads) != threads:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # type: ignore[attr-defined]


class _Server:
    def __init__(self, listener: socket.socket, fault: Optional[str]) -> None:
        self.listener = listener
        self.fault = fault
        self.ranks: List[_Rank] = []

    def serve(self) -> Work:
        """Returns only in ranks."""
        while True:
            ends = [rank.end for rank in self.ranks if rank.end is not None]
            parents = [rank.parent for rank in self.ranks]
            ready = select.select([self.listener, *ends, *parents], [], [])[0]
            for rank in list(self.ranks):
                if rank.parent in ready:  # it has seen the status, or has died
                    rank.forget()
                    self.ranks.remove(rank)
                elif rank.end in ready:
                    rank.tell_status()
            if self.listener in ready:
                work = self.fork()
                if work is not None:
                    return work

    def fork(self) -> Optional[Work]:
        parent = self.listener.accept()[0]
        try:
            work, files = _receive(parent)
        except (EOFError, OSError, ValueError, IndexError):
            parent.close()
            return None
        if self.fault is not None:
            for file in files:
                os.close(file)
            with contextlib.suppress(OSError):  # it may have died
                parent.sendall(f"{self.fault}\n".encode("utf-8", "replace"))
            parent.close()
            return None
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            for connection in (self.listener, parent, *(rank.parent for rank in self.ranks)):
                connection.close()
            for rank in self.ranks:
                rank.close_end()
            _become_rank(work, files, server)
            return work
        for file in files:
            os.close(file)
        self.ranks.append(_Rank(pid, parent))
        self.ranks[-1].say(pid)
        return None


def _run_script(path: str) -> None:
    """Like the interpreter; its tracebacks begin in the script."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    file = os.path.abspath(path)
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec")
    main = types.ModuleType("__main__")
    main.__file__ = file
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    main.__dict__.update(__builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def run(words: List[str]) -> None:
    sys.argv = words[1:] if words[0] == "-u" else list(words)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [sys.executable, *words]
    if sys.argv[0] == "-m":
        name = sys.argv[1]
        sys.argv[:2] = [name]
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = os.getcwd()
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    try:
        _run_script(sys.argv[0])
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        trace = error.__traceback__
        own = {_run_script.__code__, run.__code__}
        while trace is not None and trace.tb_frame.f_code in own:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.set_inheritable(False)
    script, names = sys.argv[2], sys.argv[3:]
    if script:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    fault = _import(names, os.path.realpath(script) if script else "")
    gc.collect()
    gc.freeze()  # a collection in a rank would copy all pages
    run(_Server(listener, fault).serve().words)


if __name__ == "__main__":
    main()
