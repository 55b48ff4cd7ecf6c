# SPDX-License-Identifier: Apache-2.0
"""Loops over batches of torch tensors, as each peer's documentation has them, in one process and
shuffled as far as the peer can.

    python peers.py PEER FORMAT PATH BATCH

PATH is the number of rows for the format `memory`. Prints what ingest.cpp prints: rows, seconds, and
seconds to the first batch.
"""

import json
import os
import sys
import time

import torch

BUFFER_ROWS = 10_000
BUFFER_IMAGES = 1_000
IMAGE_SIZE = (64, 64)


def size_of(batch):
    """The rows of a dictionary or a list of columns."""
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(first)


def torch_memory(_, rows, batch):
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(int(rows), 64), torch.randint(10, (int(rows),)))
    return DataLoader(data, batch_size=batch, shuffle=True)


def resized(row):
    import numpy

    pixels = numpy.asarray(row["image"].convert("RGB").resize(IMAGE_SIZE)).copy()
    return {"image": torch.from_numpy(pixels), "label": row["label"]}


def torchvision(_, path, batch):
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    steps = transforms.Compose([transforms.Resize(IMAGE_SIZE), transforms.PILToTensor()])
    rows = datasets.ImageFolder(path, steps)
    return DataLoader(rows, batch_size=batch, shuffle=True)


def datasets(kind, path, batch):
    from datasets import load_dataset

    if kind == "jpeg":
        rows = load_dataset("imagefolder", data_dir=path, split="train", streaming=True)
        return rows.shuffle(buffer_size=BUFFER_IMAGES).map(resized).batch(batch_size=batch)
    loader = {"csv": "csv", "parquet": "parquet", "json": "json", "tar": "webdataset"}[kind]
    rows = load_dataset(loader, data_files=path, split="train", streaming=True)
    return rows.shuffle(buffer_size=BUFFER_ROWS).with_format("torch").iter(batch_size=batch)


def ray(kind, path, batch):
    import ray

    ray.init(log_to_driver=False, logging_level="error", num_cpus=os.cpu_count())
    ray.data.DataContext.get_current().enable_progress_bars = False
    if kind == "jpeg":
        rows = ray.data.read_images(path, size=IMAGE_SIZE, mode="RGB")
        return rows.iter_torch_batches(batch_size=batch, local_shuffle_buffer_size=BUFFER_IMAGES)
    readers = {"csv": "read_csv", "parquet": "read_parquet", "json": "read_json"}
    rows = getattr(ray.data, readers[kind])(path)
    return rows.iter_torch_batches(batch_size=batch, local_shuffle_buffer_size=BUFFER_ROWS)


def webdataset(_, path, batch):
    import numpy
    import webdataset as wds

    def decoded(sample):
        return (
            torch.from_numpy(numpy.frombuffer(sample["bin"], dtype=numpy.uint8).copy()),
            int(sample["cls"]),
        )

    rows = wds.WebDataset(path, shardshuffle=False).shuffle(BUFFER_ROWS).map(decoded)
    return rows.batched(batch)


def grain(_, rows, batch):
    import grain.python as pygrain

    x, label = torch.randn(int(rows), 64), torch.randint(10, (int(rows),))

    class Rows:
        def __len__(self):
            return int(rows)

        def __getitem__(self, row):
            return {"x": x[row].numpy(), "label": label[row].numpy()}

    return pygrain.MapDataset.source(Rows()).shuffle(seed=0).batch(batch).to_iter_dataset()


def streaming(_, path, batch):
    import streaming
    from torch.utils.data import DataLoader

    streaming.base.util.clean_stale_shared_memory()
    rows = streaming.StreamingDataset(local=path, shuffle=True, batch_size=batch)
    return DataLoader(rows, batch_size=batch)


PEERS = {"torch": torch_memory, "datasets": datasets, "ray": ray, "webdataset": webdataset}
PEERS |= {"grain": grain, "streaming": streaming, "torchvision": torchvision}


def main():
    torch.set_num_threads(1)
    peer, kind, path, batch = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    batches = PEERS[peer](kind, path, batch)
    start = time.perf_counter()
    rows, first = 0, None
    for got in batches:
        first = first or time.perf_counter() - start
        rows += size_of(got)
    seconds = time.perf_counter() - start
    print(json.dumps({"rows": rows, "seconds": seconds, "first_s": first}), flush=True)


main()
