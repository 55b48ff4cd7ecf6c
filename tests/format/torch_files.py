# SPDX-License-Identifier: Apache-2.0
"""Weights between Python and rtrain, in files that torch and safetensors really wrote, and files
that nobody should trust. Usage: torch_files.py convert_weights [mutations] [seed]"""
import argparse
import builtins
import collections
import io
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import warnings
import zipfile

import safetensors.torch
import torch

warnings.filterwarnings("ignore")
PROGRAM = sys.argv[1]
MUTATIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1


def convert(pairs):
    """What the program says of each (from, to)."""
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    result = subprocess.run([PROGRAM], input=lines, stdout=subprocess.PIPE, text=True, errors="replace")
    assert result.returncode == 0, f"ended with {result.returncode} after {result.stdout[-500:]}"
    verdicts = result.stdout.split("\n")[:-1]
    assert len(verdicts) == len(pairs)
    return verdicts


def flat(value, name=""):
    """The tensors in dictionaries and lists, as rtrain names them."""
    if isinstance(value, torch.Tensor):
        return {name: value.detach()}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    tensors = {}
    for key, item in items:
        tensors |= flat(item, f"{name}.{key}" if name else str(key))
    return tensors


def bits(tensor):
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def check_equal(left, right, what):
    assert left.keys() == right.keys(), (what, left.keys() ^ right.keys())
    for name, tensor in left.items():
        other = right[name]
        assert tensor.dtype == other.dtype and tensor.shape == other.shape, (what, name, tensor, other)
        assert torch.equal(bits(tensor), bits(other)), (what, name, tensor, other)


def module():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(4, 5),
                               torch.nn.Embedding(7, 3))


def trained():
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), amsgrad=True)
    for _ in range(2):
        net(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    return net, optimizer


def sound():
    """What people save."""
    net, optimizer = trained()
    base = torch.randn(6, 4)
    parameter = torch.nn.Parameter(torch.randn(3))
    parameter.partition_dim = 0
    attributed = torch.randn(2)
    attributed.note = "x"
    tied = collections.OrderedDict(a=base, b=base, c=base.t(), d=base[2:5, 1:3], e=base[::2])
    types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
             torch.int8, torch.uint8, torch.bool, torch.complex64, torch.uint16, torch.uint32, torch.uint64,
             torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
             torch.float8_e8m0fnu]
    return {
        "state_dict": module().state_dict(),
        "half": module().to(torch.bfloat16).state_dict(),
        "checkpoint": {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.5,
                       "args": {"lr": 1e-3, "name": "x", "none": None, "sizes": [1, 2, (3, 4)]}},
        "optimizer": optimizer.state_dict(),
        "types": {str(t): torch.randint(0, 2, (3, 5)).to(t) for t in types},
        "views": tied | {"expanded": torch.ones(1).expand(4, 4), "empty": torch.empty(0, 3), "scalar": torch.tensor(2.5)},
        "lazy": {"conj": torch.randn(4, dtype=torch.complex64).conj(),
                 "neg": torch.randn(4, dtype=torch.complex64).conj().imag},
        "parameters": {"p": parameter, "q": torch.nn.Parameter(torch.randn(2), requires_grad=False), "t": attributed},
        "odd leaves": {"t": torch.randn(2), "size": torch.Size([1, 2]), "device": torch.device("cpu"),
                       "dtype": torch.float32, "bytes": b"\x00\xff", "set": {1, 2}, "complex": 1j, "big": 1 << 100,
                       "negative": -5, "count": collections.Counter("aab"), "layout": torch.strided},
        "lists": {"ema": [torch.randn(2), {"x": torch.randn(1)}], "pair": (torch.randn(1), torch.randn(1))},
        "no tensors": {"epoch": 1},
        "numbers as keys": {0: torch.randn(2), 10**12: torch.randn(1), -3: torch.randn(1)},
        "unicode": {"\u20ac.w\u00e9ight": torch.randn(2)},
        "large": {f"layer.{i}.weight": torch.randn(3) for i in range(2000)},
    }


def python_to_rtrain(folder):
    files = []
    for what, value in sound().items():
        path = folder / f"{what}.pt"
        torch.save(value, path)
        files.append((what, path, value))
    crc = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    torch.save(module().state_dict(), folder / "without checksums.bin")
    torch.serialization.set_crc32_options(crc)
    files.append(("without checksums", folder / "without checksums.bin", module().state_dict()))
    pairs = [(path, path.with_suffix(suffix)) for _, path, _ in files for suffix in (".safetensors", ".pth")]
    for (source, target), verdict in zip(pairs, convert(pairs)):
        assert verdict == "ok", (source.name, target.suffix, verdict)
    for what, path, value in files:
        expected = flat(value)
        check_equal(expected, safetensors.torch.load_file(path.with_suffix(".safetensors")), what)
        check_equal(expected, dict(torch.load(path.with_suffix(".pth"), weights_only=True)), what)
        mapped = torch.load(path.with_suffix(".pth"), weights_only=True, mmap=True)
        assert type(mapped) is collections.OrderedDict
        check_equal(expected, dict(mapped), what)
    net = module()
    for parameter in net.parameters():
        parameter.data.zero_()
    assert str(net.load_state_dict(torch.load(folder / "state_dict.pth", weights_only=True))) == "<All keys matched successfully>"
    check_equal(flat(module().state_dict()), flat(net.state_dict()), "module")
    assert all(tensor.data_ptr() % 64 == 0 for tensor in mapped.values())

    for name, tensors, metadata in [("a", module().state_dict(), {"format": "pt"}), ("b", {}, None),
                                    ("c", {"x": torch.zeros(0, 5), "y": torch.ones(3, dtype=torch.bool)}, None)]:
        path = folder / f"{name}.safetensors"
        safetensors.torch.save_file(dict(tensors), path, metadata)
        assert convert([(path, folder / f"{name}.back.safetensors"), (path, folder / f"{name}.back.pt")]) == ["ok"] * 2
        check_equal(dict(tensors), safetensors.torch.load_file(folder / f"{name}.back.safetensors"), name)
        check_equal(dict(tensors), dict(torch.load(folder / f"{name}.back.pt", weights_only=True)), name)
    print(f"{len(files)} kinds of file there and back")


class Call:
    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


class Subclass(torch.Tensor):
    pass


def repacked(path, target, change=None, compression=zipfile.ZIP_STORED):
    """A zip file with the records of `path`, those in `change` replaced."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w", compression) as to:
        for name in source.namelist():
            data = source.read(name)
            to.writestr(name, change(name, data) if change else data)


def strangers(folder):
    """Files that hold more than weights, or are none."""
    marker = folder / "it ran"
    tensor = torch.randn(3)
    touch = f"touch '{marker}'"
    cases = {
        "posix.system": {"w": tensor, "x": Call(os.system, touch)},
        "Popen": {"w": Call(subprocess.Popen, ["touch", str(marker)])},
        "eval": {"w": Call(builtins.eval, f"open({str(marker)!r}, 'w')")},
        "exec": {"w": Call(builtins.exec, f"open({str(marker)!r}, 'w')")},
        "getattr": {"w": Call(builtins.getattr, "x", "upper")},
        "io.open": {"w": Call(io.open, str(marker), "w")},
        "torch.serialization.load": {"w": Call(torch.load, str(marker))},
        "torch.nn.modules.linear.Linear": {"model": torch.nn.Linear(2, 2)},
        "argparse.Namespace": {"args": argparse.Namespace(x=1), "w": tensor},
        "pathlib.PosixPath": {"path": pathlib.PosixPath("x"), "w": tensor},
        "numpy": {"w": torch.randn(2).numpy()},
        "Subclass": {"w": tensor.as_subclass(Subclass)},
        "_rebuild_sparse_tensor": {"w": torch.eye(3).to_sparse()},
        "_rebuild_qtensor": {"w": torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)},
        "_rebuild_meta_tensor_no_storage": {"w": torch.empty(3, device="meta")},
    }
    pairs = []
    for number, value in enumerate(cases.values()):
        torch.save(value, folder / f"stranger{number}.pt")
        pairs.append((folder / f"stranger{number}.pt", folder / "out.safetensors"))
    for what, verdict in zip(cases, convert(pairs)):
        assert "[RT-K22]" in verdict and what in verdict, (what, verdict)
    assert not marker.exists()

    net = torch.nn.Linear(2, 2)
    billion = {"w": tensor}
    for _ in range(40):
        billion = {"a": billion, "b": billion}
    good = folder / "good.pt"
    torch.save(net.state_dict(), good)
    other = []

    def case(what, make):
        path = folder / f"other{len(other)}.pt"
        make(path)
        other.append((what, path))

    case("before PyTorch 1.6", lambda p: torch.save(net.state_dict(), p, _use_new_zipfile_serialization=False))
    case("not a zip file", lambda p: p.write_bytes(pickle.dumps({"a": 1}, protocol=4)))
    case("not a zip file", lambda p: p.write_bytes(b""))
    case("TorchScript", lambda p: torch.jit.save(torch.jit.script(net), str(p)))
    case("compressed", lambda p: repacked(good, p, compression=zipfile.ZIP_DEFLATED))
    case("no data.pkl", lambda p: zipfile.ZipFile(p, "w").writestr("archive/x", "y"))
    case("big-endian", lambda p: repacked(good, p, lambda n, d: b"big" if n.endswith("byteorder") else d))
    case("not as large as declared", lambda p: repacked(good, p, lambda n, d: d + b"x" if n.endswith("data/0") else d))
    case("no dictionary", lambda p: torch.save(tensor, p))
    case("too", lambda p: torch.save(billion, p))
    case('two tensors are called "a.b"', lambda p: torch.save({"a.b": tensor, "a": {"b": tensor}}, p))
    case("not a string or number", lambda p: torch.save({(1, 2): tensor}, p))
    case("control characters", lambda p: torch.save({"a\n": tensor}, p))
    case("longer than 512", lambda p: torch.save({"a" * 600: tensor}, p))
    case("protocol", lambda p: torch.save(net.state_dict(), p, pickle_protocol=4))
    case("beyond its storage", lambda p: repacked(good, p, lambda n, d: d.replace(b"K\x02K\x02\x86", b"K\x02K\x03\x86", 1)))
    verdicts = convert([(path, folder / "out.pt") for _, path in other])
    for (what, _), verdict in zip(other, verdicts):
        assert "[RT-K21]" in verdict and what in verdict, (what, verdict)
    print(f"{len(cases) + len(other)} strange files refused")


def mutated(folder):
    """Pickles with changed bytes: no crash, and no other weights than Python's."""
    rng = random.Random(SEED)
    seeds = []
    net, optimizer = trained()
    for value in (net.state_dict(), optimizer.state_dict(), {"p": torch.nn.Parameter(torch.randn(2, 3).t())},
                  {"v": torch.randn(9)[1:5], "u": torch.zeros(3, dtype=torch.uint16), "n": [1, -2, "x", None]}):
        torch.save(value, folder / "seed.pt")
        with zipfile.ZipFile(folder / "seed.pt") as archive:
            seeds.append((folder / f"seed{len(seeds)}.pt", [n for n in archive.namelist() if n.endswith("data.pkl")][0]))
        os.rename(folder / "seed.pt", seeds[-1][0])
    instructions = bytes(b"\x80.(NJKMXU)tR}]aseucbQqrhj\x85\x86\x87\x88\x89\x8a\x8f0123GIil")

    def change(data):
        data = bytearray(data)
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            place = rng.randrange(len(data))
            kind = rng.randrange(7)
            if kind == 0:
                data[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[place] = rng.choice(instructions)
            elif kind == 2:
                data[place:place] = bytes([rng.choice(instructions)])
            elif kind == 3:
                del data[place:place + rng.randrange(1, 4)]
            elif kind == 4:  # a small number, such as a size or an offset
                numbers = [i + 1 for i in range(len(data) - 1) if data[i] == ord("K")]
                data[rng.choice(numbers)] = rng.randrange(16)
            elif kind == 5:  # a letter, mostly of a name
                data[rng.choice([i for i, byte in enumerate(data) if chr(byte).isalpha()])] = rng.randrange(97, 123)
            else:
                other = rng.randrange(len(data))
                data[place:place] = data[other:other + rng.randrange(1, 12)]
        return bytes(data)

    pairs = []
    for number in range(MUTATIONS):
        path, record = rng.choice(seeds)
        target = folder / f"m{number}.pt"
        repacked(path, target, lambda name, data: change(data) if name == record else data)
        pairs.append((target, folder / f"m{number}.pth"))
    both = ours = 0
    for (source, target), verdict in zip(pairs, convert(pairs)):
        if verdict != "ok":
            assert "[RT-K2" in verdict, verdict
            continue
        try:
            expected = flat(torch.load(source, weights_only=True))
        except Exception:  # Python checks some things that are no tensors
            ours += 1
            continue
        check_equal(expected, dict(torch.load(target, weights_only=True)), source.name)
        both += 1
    print(f"{MUTATIONS} mutated files: {both} accepted and equal, {ours} accepted by ours only")
    assert both > MUTATIONS / 50


with tempfile.TemporaryDirectory(prefix="rtrain-torch-") as name:
    directory = pathlib.Path(name)
    python_to_rtrain(directory)
    strangers(directory)
    mutated(directory)
