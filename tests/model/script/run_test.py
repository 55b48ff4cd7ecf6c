# SPDX-License-Identifier: Apache-2.0
"""A run of examples/finetune_script, and what Python sees of what it and `checkpoint_tool script` write.
Usage: run_test.py FINETUNE_SCRIPT CHECKPOINT_TOOL EXAMPLES FILES DIRECTORY"""
import os
import shutil
import subprocess
import sys
import warnings
import zipfile

warnings.filterwarnings("ignore")
import torch

program, tool, examples, files, directory = sys.argv[1:6]
shutil.rmtree(directory, ignore_errors=True)
os.makedirs(directory)
network = os.path.join(directory, "net.pt")
EPOCHS = 1


def at(name):
    return os.path.join(directory, name)


def run(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done


def weights(name):
    return torch.jit.load(at(name)).state_dict()


def require_equal(one, other, what):
    assert list(one) == list(other), what
    for name in one:
        assert torch.equal(one[name], other[name]), f"{what}: {name} differs"


def code(name):
    with zipfile.ZipFile(at(name)) as file:
        return {item.split("/", 1)[1]: file.read(item) for item in file.namelist() if item.endswith(".py")}


run([sys.executable, os.path.join(examples, "export.py"), network])
print(run([program, network, at("whole.pt"), str(EPOCHS), at("whole"), files]).stdout, end="")

# What Python sees: names, code, the frozen backbone, outputs.
original, tuned = torch.jit.load(network), torch.jit.load(at("whole.pt"))
assert list(original.state_dict()) == list(tuned.state_dict())
assert code("net.pt") == code("whole.pt"), "the code has changed"
assert not tuned.training and original.training
changed = {name for name, value in original.state_dict().items() if not torch.equal(value, tuned.state_dict()[name])}
assert changed == {name for name in original.state_dict() if name.startswith("head.")}, changed
print(run([sys.executable, os.path.join(examples, "classify.py"), at("whole.pt")]).stdout, end="")

checkpoint = at(f"whole/finetune-script/checkpoint_{EPOCHS - 1:06}")
run([tool, "script", checkpoint, network, at("from_checkpoint.pt"), "--evaluation"])
require_equal(weights("whole.pt"), weights("from_checkpoint.pt"), "a checkpoint's program")
x = torch.rand(4, 28, 28)
assert torch.allclose(torch.jit.load(at("from_checkpoint.pt"))(x), tuned(x), rtol=0, atol=1e-6)
torch.jit.script(torch.nn.Linear(3, 4)).save(at("other.pt"))
refused = subprocess.run([tool, "script", checkpoint, at("other.pt"), at("none.pt")], capture_output=True, text=True)
assert refused.returncode == 1 and "RT-M92" in refused.stderr and not os.path.exists(at("none.pt")), refused
print("script runs: ok")
