# SPDX-License-Identifier: Apache-2.0
"""The program of the ranks of launch(): calls the function that a file has. It is run by its path."""
import contextlib
import inspect
import json
import os
import pickle
import runpy
import sys
import types


def main(file: str) -> None:
    with open(file, "rb") as source:
        path, script, arguments, function = pickle.load(source)
    sys.path[:], sys.argv[:] = path, arguments
    if script:  # as multiprocessing does for a function of a script
        module = types.ModuleType("__mp_main__")
        module.__dict__.update(runpy.run_path(script, run_name="__mp_main__"))
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    import rtrain
    try:
        call = pickle.loads(function)
        call(rtrain.get_config()) if inspect.signature(call).parameters else call()
    except Exception as error:
        keep(error, file)
        raise


def keep(error: Exception, file: str) -> None:
    """For launch(), of the first rank that fails: the others fail because of it."""
    from rtrain import Error, _link
    code, message = (error.code, error.message) if isinstance(error, Error) else (
        "RT-T1", f"{type(error).__name__}: {error}")
    facts = _link.welcome()
    own = f"{file}.{facts['rank']}.{facts['restarts']}"
    with open(own, "w", encoding="utf-8") as target:
        json.dump([code, f"rank {facts['rank']}: {message}"], target)
    with contextlib.suppress(FileExistsError):
        os.link(own, f"{file}-{facts['restarts']:06}")


if __name__ == "__main__":
    main(sys.argv[1])
