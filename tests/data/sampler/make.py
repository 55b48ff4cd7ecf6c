# SPDX-License-Identifier: Apache-2.0
"""Writes python.json: what torch.utils.data.DistributedSampler gives, to compare rtrain with.

Run with the torch that rtrain is built against: python3 make.py
"""
import itertools
import json
import pathlib

from torch.utils.data import DistributedSampler

cases = []
for rows, size, shuffle, drop_last, seed, epoch in itertools.product(
    (1, 2, 3, 10, 64, 101), (1, 2, 3, 4, 7), (False, True), (False, True), (0, 12345), (0, 1, 5)
):
    if not shuffle and (seed or epoch):
        continue
    if drop_last and rows < size:
        continue  # Python asserts here for some ranks
    for rank in sorted({0, size // 2, size - 1}):
        sampler = DistributedSampler(
            range(rows), size, rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        sampler.set_epoch(epoch)
        cases.append(
            dict(rows=rows, size=size, rank=rank, shuffle=shuffle, drop_last=drop_last,
                 seed=seed, epoch=epoch, order=list(sampler))
        )
text = "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n"
pathlib.Path(__file__).with_name("python.json").write_text(text)
