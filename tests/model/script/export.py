# SPDX-License-Identifier: Apache-2.0
"""Exports the networks of tests/model/script/script_ranks_test.cpp, and trains them in Python alone; with `ddp`, trains them
with PyTorch's DDP on two ranks instead. Usage: export.py DIRECTORY [ddp]"""
import json
import os
import pickle
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
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        return x + self.drop(y)


class Net(nn.Module):
    """Each kind of layer once; the decoder's weight is the embedding's."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([Block(8, dropout) for _ in range(2)])
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


class BasicBlock(nn.Module):
    """As in torchvision's ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: Optional[nn.Module] = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(4, 4, 1), BasicBlock(4, 4, 1))
        self.layer2 = nn.Sequential(BasicBlock(4, 8, 2), BasicBlock(8, 8, 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 20)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))


class BertLayer(nn.Module):
    """As in Hugging Face's BertModel."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.intermediate = nn.Linear(width, 2 * width)
        self.last = nn.Linear(2 * width, width)
        self.last_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        def split(y):
            return y.view(y.size(0), y.size(1), self.heads, -1).transpose(1, 2)
        y = functional.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)), mask)
        x = self.norm(x + self.output(y.transpose(1, 2).reshape(x.shape)))
        return self.last_norm(x + self.last(functional.gelu(self.intermediate(x))))


class Bert(nn.Module):
    """The decoder of its head is tied to the embedding of words."""

    def __init__(self, words: int = 20, width: int = 8):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.positions = nn.Embedding(16, width)
        self.register_buffer("position_ids", torch.arange(16).expand(1, -1))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.drop = nn.Dropout(0.0)
        self.layer = nn.ModuleList([BertLayer(width, 2) for _ in range(2)])
        self.pooler = nn.Linear(width, width)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        mask = (tokens != 0)[:, None, None, :]
        x = self.words(tokens) + self.positions(self.position_ids[:, :tokens.size(1)])
        x = self.drop(self.norm(x))
        for layer in self.layer:
            x = layer(x, mask)
        return self.decoder(torch.tanh(self.pooler(x[:, 0])))


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
        self.spare = nn.Parameter(torch.ones(3))
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
    def decode(self, x: Tensor) -> Tensor:
        return x @ self.weight + x @ self.spare

    @torch.jit.export
    def drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5, self.training)

    @torch.jit.export
    def refuse(self, x: Tensor) -> Tensor:
        if x.dim() > 1:
            raise ValueError("rows are not welcome")
        return x

    @torch.jit.export
    def fail(self, x: Tensor) -> Tensor:
        return x @ torch.ones(7)  # does not fit


IMAGES = ("traced", "resnet")
TRACED = ("traced", "bert")


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


def train_rank(rank: int, directory: str):
    """DDP trains the networks; rank 0 writes its losses."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/group", rank=rank, world_size=2)
    losses = {name: train(nn.parallel.DistributedDataParallel(net), name in IMAGES, rank, 2)
              for name, net in networks().items()}
    if rank == 0:
        with open(f"{directory}/ddp.json", "w") as file:
            json.dump(losses, file)
    torch.distributed.destroy_process_group()


def networks() -> Dict[str, nn.Module]:
    torch.manual_seed(3)
    return {name: kind().double() for name, kind in
            {"scripted": Net, "traced": Traced, "resnet": ResNet, "bert": Bert}.items()}


class PartlyFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.layer(x) * self.scale


class Attention(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1 if self.training else 0.0)


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
    with open(at("pickle.pkl"), "wb") as file:
        pickle.dump({"a": 1}, file)
    torch.export.save(torch.export.export(nn.Linear(3, 4), (torch.ones(2, 3),)), at("program.pt2"))
    scripted = torch.jit.script(net.eval())
    torch.jit.freeze(scripted).save(at("frozen.pt"))
    torch.jit.freeze(torch.jit.script(PartlyFrozen().eval()), ["scale"]).save(at("partly_frozen.pt"))
    torch.jit.optimize_for_inference(torch.jit.script(net.eval())).save(at("inference.pt"))
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4)), {nn.Linear})
    torch.jit.script(quantized).save(at("quantized.pt"))
    torch.jit.trace(net.eval(), torch.ones(2, 3)).save(at("traced_eval.pt"))
    torch.jit.trace(net.train(), torch.ones(2, 3), check_trace=False).save(at("traced_train.pt"))
    torch.jit.trace(Attention(), torch.ones(2, 3, 4), check_trace=False).save(at("traced_attention.pt"))
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


def export_all(at):
    alone = {}
    for name, net in networks().items():
        example = batch(0, name in IMAGES)[0]
        program = torch.jit.trace(net, example, check_trace=False) if name in TRACED else torch.jit.script(net)
        # Tracing runs the network, which changes its statistics: export the values of the start.
        program.load_state_dict(networks()[name].state_dict())
        program.save(at(name + ".pt"))
        net = networks()[name]
        alone[name] = {"names": list(net.state_dict()), "losses": train(net, name in IMAGES)}
    with open(at("alone.json"), "w") as file:
        json.dump(alone, file)
    for kind in "image", "tokens":
        torch.save({f"{step}.{part}": value for step in range(STEPS)
                    for part, value in zip("xy", batch(step, kind == "image"))}, at(kind + ".data.pt"))
    torch.jit.script(Kinds()).save(at("kinds.pt"))
    torch.manual_seed(3)
    torch.jit.script(Bits()).save(at("bits.pt"))
    torch.jit.script(Net(dropout=0.3)).save(at("dropout.pt"))
    torch.jit.trace(networks()["traced"].eval(), batch(0, True)[0]).save(at("still.pt"))
    bad_files(at)


def main(directory: str, what: str = ""):
    os.makedirs(directory, exist_ok=True)
    torch.set_num_threads(1)
    if what == "ddp":
        if os.path.exists(f"{directory}/group"):
            os.remove(f"{directory}/group")
        torch.multiprocessing.spawn(train_rank, (directory,), nprocs=2)
    else:
        export_all(lambda name: os.path.join(directory, name))


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), *sys.argv[2:])
