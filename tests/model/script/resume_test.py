# SPDX-License-Identifier: Apache-2.0
"""Runs of a network with dropout on two ranks (the case Script.run) are killed in a step, and resumed to the same
bits, or by one rank. Python loads their weights into its class, and the other way round.
Usage: resume_test.py SCRIPT_TESTS CHECKPOINT_TOOL NETWORKS DIRECTORY [STEP...], by default each step"""
import os
import shutil
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
from safetensors.torch import load_file, save_model

import export

tests, tool, networks, directory = sys.argv[1:5]
STEPS = 12
shutil.rmtree(directory, ignore_errors=True)


def mpirun(name, ranks=2, case="Script.run", kill=None):
    """Whether the case passes. With `kill`, the last rank ends itself in that step."""
    storage = os.path.join(directory, name)
    os.makedirs(storage, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OMPI_COMM")}
    environment.update(RTRAIN_SCRIPT_RUN=storage, RTRAIN_SCRIPT_NETWORKS=networks)
    if kill is not None:
        environment["RTRAIN_KILL_STEP"] = str(kill)
    done = subprocess.run(["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", tests, "--no-skip",
                           f"-tc={case}"], capture_output=True, text=True, env=environment)
    assert (done.returncode == 0) == (kill is None), f"{name}: {done.stdout}{done.stderr}"
    return storage


whole = torch.jit.load(os.path.join(mpirun("whole"), "tuned.pt")).state_dict()
for step in [int(text) for text in sys.argv[5:]] or range(1, STEPS + 1):
    killed = mpirun(f"step{step}", kill=step)
    assert not os.path.exists(os.path.join(killed, "tuned.pt"))
    resumed = torch.jit.load(os.path.join(mpirun(f"step{step}"), "tuned.pt")).state_dict()
    assert list(whole) == list(resumed)
    for name in whole:
        assert torch.equal(whole[name], resumed[name]), f"killed in step {step}: {name} differs"
mpirun("one", kill=8)
assert os.path.exists(os.path.join(mpirun("one", ranks=1), "tuned.pt"))

# From C++: the weights of a file and of a checkpoint have the names of the class.
storage = os.path.join(directory, "whole")
runs = os.path.join(storage, "run")
with open(os.path.join(runs, "latest")) as file:
    checkpoint = os.path.join(runs, file.read().strip())
subprocess.run([tool, "merge", checkpoint, os.path.join(storage, "merged.safetensors")], check=True)
part = "model/"
merged = {name.removeprefix(part): value for name, value in load_file(os.path.join(storage, "merged.safetensors")).items()
          if name.startswith(part)}
for weights in load_file(os.path.join(storage, "tuned.safetensors")), merged:
    net = export.Net(dropout=0.3)
    net.load_state_dict(weights)
    assert net.decoder.weight is net.embedding.weight
    for name, value in net.state_dict().items():
        assert torch.equal(value, whole[name]), name

# From Python: tied weights are in a safetensors file once, in PyTorch's twice.
torch.nn.init.constant_(net.embedding.weight, 0.25)
save_model(net, os.path.join(storage, "python.safetensors"))
torch.save(net.state_dict(), os.path.join(storage, "python.pt"))
mpirun("whole", ranks=1, case="Script.load")
print("script resumes: ok")
