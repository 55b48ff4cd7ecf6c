# SPDX-License-Identifier: Apache-2.0
"""launch(): a function as ranks of `rtrain run`, from a script or a notebook."""
import json
import os
import sys
from typing import Any, Callable, List, Mapping, Optional, Sequence, Union

from . import _link
from ._errors import Error
from ._result import Result
from ._training import json_value


def launch(function: Callable[..., Any], config: Optional[Mapping[str, Any]] = None, *, num_workers: int = 1,
           name: str = "", storage_path: Union[str, "os.PathLike[str]"] = "", max_restarts: Optional[int] = None,
           datasets: Optional[Mapping[str, str]] = None, run_config: Optional[Mapping[str, Any]] = None,
           options: Sequence[str] = ()) -> Result:
    """Runs `function(config)`, or `function()`, on several ranks of this machine, and returns what they reported.
    `run_config` is what a file of `rtrain run --options` has, such as {"checkpoint": {"num_to_keep": 2}}; `options` are
    other words of the command. The same name resumes a run. Raises Error if the run fails."""
    import tempfile
    import time
    if _link.is_in_run():
        raise Error("RT-E59", "launch() was called by a rank of `rtrain run`, which cannot start others; in a script, call "
                              'launch() after `if __name__ == "__main__":`')
    _link.require_main_thread()
    values = json_value(dict(config or {}), "config")
    given = json_value(dict(run_config or {}), "run_config")
    run = name or given.get("name") or f"{time.strftime('run_%Y-%m-%d_%H-%M-%S')}_{os.urandom(3).hex()}"
    storage = os.path.abspath(os.path.expanduser(storage_path or given.get("storage_path") or
                                                 "~/rtrain_results"))
    with tempfile.TemporaryDirectory(prefix="rtrain-launch-") as directory:
        file = os.path.join(directory, "function")
        with open(file, "wb") as target:
            target.write(_pack(function))
        config_file = os.path.join(directory, "run.json")
        with open(config_file, "w", encoding="utf-8") as target:
            json.dump(given, target)
        words = [_tool(), "run", "-n", str(num_workers), "--options", config_file, "--name", run, "--storage", storage]
        words += [] if max_restarts is None else ["--max-restarts", str(max_restarts)]
        words += options
        for key, value in values.items():
            words += ["--config", f"{key}={json.dumps(value)}"]
        for key, path in (datasets or {}).items():
            words += ["--dataset", f"{key}={path}"]
        rank = os.path.join(os.path.dirname(__file__), "_launched.py")
        failure = _run([*words, "--no-python", sys.executable, rank, file])
        exceptions = sorted(name for name in os.listdir(directory) if "-" in name)  # of the first ranks that failed
        if failure and failure.code == "RT-T1" and exceptions:
            with open(os.path.join(directory, exceptions[-1]), encoding="utf-8") as source:
                failure = Error(*json.load(source))
    if failure:
        raise failure
    return Result.from_path(os.path.join(storage, run))


def _pack(function: Callable[..., Any]) -> bytes:
    """What _launched.py reads: a function by its name, or, if it is in a notebook or another function, its code."""
    import pickle
    is_in_main = getattr(function, "__module__", None) == "__main__"
    script: str = getattr(sys.modules["__main__"], "__file__", None) or ""
    dumps: Callable[[Any], bytes] = pickle.dumps
    if (is_in_main and not script) or "<" in getattr(function, "__qualname__", ""):
        try:
            import cloudpickle
        except ImportError:
            raise Error("RT-E58", "launch() needs the package cloudpickle for a function that is in a notebook or within "
                                  "another function; run `pip install cloudpickle`, or move it into a module") from None
        dumps = cloudpickle.dumps
    try:
        packed = dumps(function)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Error("RT-E60", f"launch() cannot send its function to the ranks: {error}; pass large or open objects by "
                              "name in its config, and create them on the ranks") from error
    by_name = script and is_in_main and dumps is pickle.dumps
    return pickle.dumps((sys.path, os.path.abspath(script) if by_name else "", sys.argv, packed))


def _tool() -> str:
    import shutil
    beside = os.path.dirname(sys.executable)  # a notebook's PATH may lack its environment
    found = shutil.which("rtrain") or shutil.which("rtrain", path=beside)
    if found is None:
        raise Error("RT-E58", f"launch() needs the tool rtrain, which is neither on PATH nor in {beside}; install it, or "
                              "add its directory to PATH")
    return found


def _run(words: List[str]) -> Optional[Error]:
    """Passes the output on, also to a notebook. Returns the run's error."""
    import re
    import subprocess
    failure = None
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding="utf-8", errors="replace") as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="")
                if found := re.fullmatch(r"rtrain: (?:error: )?(.*) \[(RT-[A-Z]\d+)\]", line.strip()):
                    failure = Error(found[2], found[1])
        except BaseException:  # KeyboardInterrupt
            process.terminate()
            raise
    if process.returncode == 0:
        return None
    return failure or Error("RT-E61", f"`rtrain run` ended with exit code {process.returncode}; its output has the reason")
