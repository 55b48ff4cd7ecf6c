# SPDX-License-Identifier: Apache-2.0
"""Exports the networks of tests/mpi/script_test.cpp, and trains them in Python: alone, and with PyTorch's DDP
on two ranks. Usage: export.py DIRECTORY"""
import io
import json
import os
import sys
import warnings
import zipfile
from typing import Dict, List, Optional, Tuple

warnings.filterwarnings("ignore")
os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
import torch
import torch.multiprocessing
from torch import Tensor, nn
from torch.nn import functional

STEPS = 50
ROWS = 8


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        return x + self.drop(y)


class Net(nn.Module):
    """Each kind of layer once; the decoder's weight is the embedding's."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([Block(8) for _ in range(2)])
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.convolution = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.decoder = nn.Linear(8, 20, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, scale: float = 1.0) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        x, _ = self.lstm(x)
        if x.size(1) > 3:
            x = self.norm(self.convolution(x.transpose(1, 2))).transpose(1, 2)
        else:
            x = x * 2
        return self.decoder(x.mean(1)) * scale


class Traced(nn.Module):
    """Without control flow."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 20))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.norm(self.first(x))).mean((2, 3)))


class Bits(nn.Module):
    """Its gradients get other bits when libtorch optimizes the program."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 64)
        self.norm = nn.LayerNorm(64)
        self.last = nn.Linear(64, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = functional.gelu(x) * torch.sigmoid(x) + torch.tanh(x)
        return self.last(functional.silu(functional.dropout(self.norm(x), 0.2)))


class Kinds(nn.Module):
    """Values of each type, other methods, and buffers that forward assigns."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor, options: Dict[str, Tensor], sizes: List[int], name: str = "a",
                extra: Optional[Tensor] = None) -> Tuple[Tensor, Dict[str, Tensor], List[int], str]:
        y = x * self.weight + options["bias"]
        if extra is not None:
            y = y + extra
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        return y, {"y": y * 2}, [len(sizes), sizes[0]], name + "!"

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return x @ self.weight

    @torch.jit.export
    def fail(self, x: Tensor) -> Tensor:
        return x @ torch.ones(7)  # does not fit


def batch(step: int, image: bool):
    generator = torch.Generator().manual_seed(step)
    labels = torch.randint(0, 20, (ROWS,), generator=generator)
    if image:
        return torch.randn(ROWS, 1, 6, 6, generator=generator, dtype=torch.double), labels
    return torch.randint(0, 20, (ROWS, 5), generator=generator), labels


def train(net: nn.Module, image: bool, rank: int = 0, size: int = 1, steps: int = STEPS) -> List[float]:
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    rows = slice(rank * ROWS // size, (rank + 1) * ROWS // size)
    losses = []
    for step in range(steps):
        x, y = batch(step, image)
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_rank(rank: int, directory: str, name: str):
    """DDP trains the program itself; rank 0 writes its losses."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/{name}.group", rank=rank,
                                         world_size=2)
    net = nn.parallel.DistributedDataParallel(networks()[name])
    losses = train(net, name == "traced", rank, 2)
    if rank == 0:
        with open(f"{directory}/{name}.ddp.json", "w") as file:
            json.dump(losses, file)
    torch.distributed.destroy_process_group()


def networks() -> Dict[str, nn.Module]:
    torch.manual_seed(3)
    return {"scripted": Net().double(), "traced": Traced().double()}


def bad_files(at):
    """Each kind of file that is not a program for training."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    torch.save(net.state_dict(), at("weights.pt"))
    torch.save(net.state_dict(), at("old.pt"), _use_new_zipfile_serialization=False)
    try:
        from safetensors.torch import save_file
        save_file(net.state_dict(), at("weights.safetensors"))
    except ImportError:
        with open(at("weights.safetensors"), "wb") as file:
            file.write(b"\x02\0\0\0\0\0\0\0{}")
    import pickle
    with open(at("pickle.pkl"), "wb") as file:
        pickle.dump({"a": 1}, file)
    torch.export.save(torch.export.export(nn.Linear(3, 4), (torch.ones(2, 3),)), at("program.pt2"))
    scripted = torch.jit.script(net.eval())
    torch.jit.freeze(scripted).save(at("frozen.pt"))
    torch.jit.optimize_for_inference(torch.jit.script(net.eval())).save(at("inference.pt"))
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4)), {nn.Linear})
    torch.jit.script(quantized).save(at("quantized.pt"))
    torch.jit.trace(net.eval(), torch.ones(2, 3)).save(at("traced_eval.pt"))
    torch.jit.trace(net.train(), torch.ones(2, 3), check_trace=False).save(at("traced_train.pt"))
    with open(at("empty.pt"), "wb"), open(at("text.pt"), "w") as file:
        file.write("not a program")
    with open(at("kinds.pt"), "rb") as file:
        content = file.read()
    with open(at("truncated.pt"), "wb") as file:
        file.write(content[:len(content) // 2])

    def rewrite(name, change):
        with zipfile.ZipFile(at("kinds.pt")) as source, zipfile.ZipFile(at(name), "w") as target:
            for item in source.namelist():
                target.writestr(item, change(item, source.read(item)))
    rewrite("newer.pt", lambda item, data: b"99\n" if item.endswith("/version") else data)
    rewrite("operator.pt", lambda item, data: data.replace(b"torch.matmul(", b"ops.torchvision.nms(")
            if item.endswith(".py") else data)


def main(directory: str):
    def at(name):
        return os.path.join(directory, name)
    os.makedirs(directory, exist_ok=True)
    torch.set_num_threads(1)
    for name, net in networks().items():
        image = name == "traced"
        program = torch.jit.trace(net, batch(0, True)[0], check_trace=False) if image else torch.jit.script(net)
        # Tracing runs the network, which changes its statistics: export the values of the start.
        program.load_state_dict(networks()[name].state_dict())
        program.save(at(name + ".pt"))
        net = networks()[name]
        with open(at(name + ".json"), "w") as file:
            json.dump({"names": list(net.state_dict()), "losses": train(net, image)}, file)
        torch.save({f"{step}.{part}": value for step in range(STEPS)
                    for part, value in zip("xy", batch(step, image))}, at(name + ".data.pt"))
        group = at(name + ".group")
        if os.path.exists(group):
            os.remove(group)
        torch.multiprocessing.spawn(train_rank, (directory, name), nprocs=2)
    torch.jit.script(Kinds()).save(at("kinds.pt"))
    torch.manual_seed(3)
    torch.jit.script(Bits()).save(at("bits.pt"))
    torch.jit.trace(networks()["traced"].eval(), batch(0, True)[0]).save(at("still.pt"))
    bad_files(at)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
