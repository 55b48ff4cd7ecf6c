#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files beside it, which the tests of readers read: by webdataset 1.0.2 and
mosaicml-streaming 0.13.0 of PyPI.

Usage: python3 write.py   (pip install webdataset==1.0.2 mosaicml-streaming==0.13.0)
"""

import pathlib
import shutil

import numpy
import streaming
import webdataset

HERE = pathlib.Path(__file__).parent
LONG = "deep/" + "long" * 60  # more than ustar's 255 bytes with what follows


def write_tar():
    with webdataset.TarWriter(str(HERE / "samples.tar"), mtime=0, user="u", group="g") as sink:
        for i in range(12):
            sink.write({
                "__key__": f"{LONG if i == 5 else 'part'}/{i:03d}",
                "txt": f"sample {i} \u00e4",
                "cls": i % 10,
                "json": {"number": i, "half": i / 2},
                "bin": bytes([i] * i),
            })


def write_mds():
    columns = {"text": "str", "raw": "bytes", "label": "int", "small": "uint8", "half": "float16",
               "real": "float64", "grid": "ndarray:int16:2,3"}
    shutil.rmtree(HERE / "mds", ignore_errors=True)
    with streaming.MDSWriter(out=str(HERE / "mds"), columns=columns, compression=None,
                             hashes=["sha1"], size_limit=2000) as out:
        for i in range(40):
            out.write({"text": f"row {i} \u00e4", "raw": bytes([i] * (i % 5)), "label": i * 10**9 - 7,
                       "small": numpy.uint8(i), "half": numpy.float16(i / 2),
                       "real": numpy.float64(i / 3),
                       "grid": numpy.arange(6, dtype=numpy.int16).reshape(2, 3) + i})
    shutil.rmtree(HERE / "mds-zstd", ignore_errors=True)
    with streaming.MDSWriter(out=str(HERE / "mds-zstd"), columns={"x": "int"}, compression="zstd") as out:
        out.write({"x": 1})


if __name__ == "__main__":
    write_tar()
    write_mds()
