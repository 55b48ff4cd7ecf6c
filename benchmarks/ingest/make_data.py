# SPDX-License-Identifier: Apache-2.0
"""Writes the files that the contestants read: the same numbers as CSV, Parquet and JSON lines, small
samples in a tar archive, and many small files; as MDS shards, too, where mosaicml-streaming is installed; and
crops of the photographs of Debian's mate-backgrounds as JPEG, where these and Pillow are.

    python make_data.py DIRECTORY ROWS
"""

import io
import json
import pathlib
import sys
import tarfile

import numpy
import pyarrow
from pyarrow import csv, parquet

COLUMNS = 10
GROUP_ROWS = 50_000


def table(rows, seed=0):
    random = numpy.random.default_rng(seed)
    columns = {f"x{i}": random.standard_normal(rows).round(6) for i in range(COLUMNS)}
    columns["label"] = random.integers(10, size=rows)
    return pyarrow.table(columns)


def write_json(path, rows):
    names = rows.column_names
    with open(path, "w") as file:
        for batch in rows.to_batches():
            for values in zip(*(column.to_pylist() for column in batch.columns)):
                file.write(json.dumps(dict(zip(names, values))) + "\n")


def write_tar(path, samples):
    random = numpy.random.default_rng(1)
    with tarfile.open(path, "w") as archive:
        for number in range(samples):
            for ending, data in (("bin", random.bytes(3072)), ("cls", str(number % 10).encode())):
                member = tarfile.TarInfo(f"{number:07}.{ending}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def write_mds(path, rows):
    try:
        from streaming import MDSWriter
    except ImportError:
        return
    names = rows.column_names
    columns = {name: "int" if name == "label" else "float64" for name in names}
    with MDSWriter(out=str(path), columns=columns, compression=None) as out:
        for batch in rows.to_batches():
            for values in zip(*(column.to_numpy() for column in batch.columns)):
                out.write({n: int(v) if n == "label" else v for n, v in zip(names, values)})


def write_small_files(directory, count):
    for number in range(count):
        folder = directory / f"{number // 1000:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(f"file {number}\n" * 10)


def write_crops(directory, count):
    photographs = sorted(pathlib.Path("/usr/share/backgrounds/mate").glob("*/*.jpg"))
    try:
        from PIL import Image
    except ImportError:
        return
    if not photographs:
        return
    random = numpy.random.default_rng(2)
    opened = [Image.open(path).convert("RGB") for path in photographs]
    for number in range(count):
        image = opened[number % len(opened)]
        width, height = (int(side) for side in random.integers(256, 501, size=2))
        left = int(random.integers(image.width - width + 1))
        top = int(random.integers(image.height - height + 1))
        folder = directory / f"{number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        crop = image.crop((left, top, left + width, top + height))
        crop.save(folder / f"{number:06}.jpg", quality=90)


def main():
    directory, rows = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    for name, count in (("rows", rows), ("tenth", rows // 10)):
        numbers = table(count)
        csv.write_csv(numbers, directory / f"{name}.csv")
        parquet.write_table(numbers, directory / f"{name}.parquet", row_group_size=GROUP_ROWS)
    write_mds(directory / "mds", table(rows))
    write_json(directory / "rows.jsonl", table(rows // 5))
    write_tar(directory / "rows.tar", rows // 25)
    write_crops(directory / "jpeg", rows // 100)
    write_small_files(directory / "small", 100_000)


main()
