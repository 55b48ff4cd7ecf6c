# SPDX-License-Identifier: Apache-2.0
"""Eager PyTorch: the twin of gpu_bench.cpp.  gpu_bench.py resnet50 bf16 256 40 [mlp fp32 64 400 ...]
RANK and WORLD_SIZE set: DistributedDataParallel over NCCL."""
import json, os, sys, time
import torch
from torch import nn
import torch.nn.functional as F

rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")

class Block(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

class Gpt(nn.Module):
    def __init__(self, layers=12, c=768, heads=12, length=1024, words=50304):
        super().__init__()
        self.words, self.places = nn.Embedding(words, c), nn.Embedding(length, c)
        self.blocks = nn.ModuleList(Block(c, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(c)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0.0, 0.02)
    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln(x), self.words.weight)

def build(model):
    if model == "resnet50":
        import torchvision
        return torchvision.models.resnet50()
    if model == "gpt2":
        return Gpt()
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

def inputs(model, kind, batch):
    torch.manual_seed(1 + rank)
    if model == "resnet50":
        x = torch.randn(batch, 3, 224, 224).to(device)
        if kind == "bf16":
            x = x.contiguous(memory_format=torch.channels_last)
        return x, torch.randint(1000, (batch,)).to(device)
    if model == "gpt2":
        ids = torch.randint(50257, (batch, 1025)).to(device)
        return ids[:, :1024], ids[:, 1:].reshape(-1)
    return torch.randn(batch, 784).to(device), torch.randint(10, (batch,)).to(device)

def sync():
    if device.type == "cuda":
        torch.cuda.synchronize()

def run(model, kind, batch, steps, fused):
    if device.type == "cuda":
        torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    net = build(model).to(device)
    if model == "resnet50" and kind == "bf16":
        net = net.to(memory_format=torch.channels_last)
    if size > 1:
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    extra = {"fused": True} if fused else {}
    if model == "resnet50":
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, **extra)
    elif model == "gpt2":
        optimizer = torch.optim.AdamW(net.parameters(), 3e-4, weight_decay=0.1, **extra)
    else:
        optimizer = torch.optim.SGD(net.parameters(), 1e-3, **extra)
    x, y = inputs(model, kind, batch)
    def step():
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=kind == "bf16"):
            out = net(x)
        loss = F.cross_entropy(out.float().view(-1, out.shape[-1]), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    for _ in range(max(3, steps // 4)):
        loss = step()
    sync(); begin = time.perf_counter()
    for _ in range(steps):
        loss = step()
    told = time.perf_counter(); sync(); s = time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({"bench": model, "impl": ("ddp" if size > 1 else "eager") + (".fused" if fused else ""),
            "type": kind, "batch": batch, "ranks": size, "ms_step": round(1e3 * s / steps, 4),
            "host_ms_step": round(1e3 * (told - begin) / steps, 4), "samples_s": round(batch * size * steps / s, 1),
            "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20) if device.type == "cuda" else 0,
            "loss": round(loss.item(), 5)}), flush=True)

torch.backends.cudnn.benchmark = True
if size > 1:
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
words = sys.argv[1:]
for i in range(0, len(words) - 3, 4):
    for fused in (False, True):
        run(words[i], words[i + 1], int(words[i + 2]), int(words[i + 3]), fused)
if size > 1:
    torch.distributed.destroy_process_group()
