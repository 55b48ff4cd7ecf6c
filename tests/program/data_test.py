#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data sets of scripts, through the module of examples/python.

Usage: data_test.py TOOL CASES --rows PROGRAM [-v]

PROGRAM is permuted_rows, which prints the rows that C++ reads."""
import gzip
import importlib.util
import itertools
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
from unittest import mock

import run_test
from python_test import MODULE, Python

sys.path.insert(0, str(MODULE))
import rtrain  # noqa: E402

# Reports each epoch, and the second one after its first batch too; `rows` has what was read.
EPOCHS = """
    import os, tempfile
    import rtrain
    rank = rtrain.get_context().get_world_rank()
    shard = rtrain.get_dataset_shard("train")
    def report():
        with tempfile.TemporaryDirectory() as directory:
            open(os.path.join(directory, f"rank-{rank}"), "w").write("saved")
            rtrain.report({}, checkpoint=rtrain.Checkpoint.from_directory(directory))
    while shard.state_dict()["epoch"] < 3:
        epoch = shard.state_dict()["epoch"]
        for batch in shard.iter_batches(batch_size=4, shuffle=True, seed=5):
            with open(f"rows-{rank}", "a") as file:
                print(epoch, *batch["row"].tolist(), file=file)
            if epoch == 1 and "stop" in rtrain.get_config() and shard.state_dict()["samples"] > 4:
                report()
                raise SystemExit(3)
        report()
"""


class Shards:
    """The shards of all ranks of a data set in memory."""

    def __init__(self, ranks, columns):
        self.contexts = [rtrain.Context({"rank": rank, "size": ranks}) for rank in range(ranks)]
        self.shards = [rtrain.DatasetShard("train", columns) for _ in range(ranks)]

    def batches(self, **options):
        """What the rest of the epoch has, by rank."""
        read = []
        for context, shard in zip(self.contexts, self.shards):
            with mock.patch("rtrain._data.get_context", lambda: context):
                batches = shard.iter_batches(prefetch_batches=0, **options)
            is_whole = shard.state_dict()["samples"] == 0
            read.append([batch["row"].tolist() for batch in batches])
            assert len(batches) == len(read[-1]) or not is_whole
        return read


class Data(Python):
    def read(self, path, **batch_size):
        with mock.patch.dict(os.environ, {"RTRAIN_DATASETS": json.dumps({"train": str(path)})}), \
                mock.patch.dict("rtrain._data._shards", clear=True):
            shard = rtrain.get_dataset_shard()
            return next(iter(shard.iter_batches(**{"batch_size": 100, **batch_size})))

    def fails(self, code, action):
        with self.assertRaises(rtrain.Error) as caught:
            action()
        self.assertEqual(code, caught.exception.code)
        return str(caught.exception)

    def test_rows_equal_those_of_data_permuted(self):
        import numpy
        cases = [(rows, size, ranks, seed, epoch, taken, drop, once)
                 for rows, size, ranks in itertools.product((1, 2, 7, 64, 300), (1, 4, 33), (1, 2, 3, 5))
                 for seed, epoch, taken, drop, once in ((0, 0, 0, 0, 0), (7, 3, 0, 1, 0), (2**63, 1, 0, 0, 1),
                                                        (1, 2, rows // 2, 0, 0), (1, 2, rows - 1, 0, 1))]
        text = "\n".join(" ".join(map(str, case)) for case in cases)
        done = subprocess.run([run_test.ROWS], input=text, capture_output=True, text=True, check=True)
        for case, line in zip(cases, done.stdout.splitlines(), strict=True):
            rows, size, ranks, seed, epoch, taken, drop, once = case
            expected = [[[int(row) for row in batch.split()] for batch in rank.split(",") if batch]
                        for rank in line.split(";")[:-1]]
            shards = Shards(ranks, {"row": numpy.arange(rows)})
            for shard in shards.shards:
                shard.load_state_dict({"epoch": epoch, "samples": taken, "rows": rows,
                                       "order": f"permuted, shuffled with seed {seed}"})
            read = shards.batches(batch_size=size, shuffle=True, seed=seed, drop_last=bool(drop), each_row_once=bool(once))
            self.assertEqual(expected, read, case)

    def test_every_row_once_per_epoch(self):
        import numpy
        for ranks, shuffle in itertools.product(range(1, 6), (False, True)):
            shards = Shards(ranks, {"row": numpy.arange(101)})
            orders = []
            for _ in range(2):
                read = shards.batches(batch_size=8, shuffle=shuffle)
                orders.append(sum(sum(read, []), []))
                self.assertEqual(list(range(101)), sorted(orders[-1]))
            self.assertEqual(shuffle, orders[0] != orders[1])

    def test_positions(self):
        import numpy
        shard = rtrain.DatasetShard("train", {"row": numpy.arange(10)})
        for prefetch in (0, 1, 4):
            batches = shard.iter_batches(batch_size=4, shuffle=True, prefetch_batches=prefetch)
            self.assertEqual(3, len(batches))
            shard.set_epoch(6)
            whole = [(shard.state_dict(), batch["row"].tolist()) for batch in batches]
            self.assertEqual([4, 8, 10], [state["samples"] for state, _ in whole])
            self.assertEqual((7, 0), (shard.state_dict()["epoch"], shard.state_dict()["samples"]))
            shard.load_state_dict(json.loads(json.dumps(whole[0][0])))
            self.assertEqual(whole[1:], [(shard.state_dict(), batch["row"].tolist()) for batch in batches])
            shard.load_state_dict(whole[0][0])
            shard.set_epoch(6)  # the rest of it
            for batch in batches:
                self.assertEqual(whole[1][1], batch["row"].tolist())
                break
            self.assertEqual((7, 0), (shard.state_dict()["epoch"], shard.state_dict()["samples"]))
            kept = iter(batches)
            next(kept)
            self.assertEqual(7, shard.state_dict()["epoch"])
            next(iter(batches))  # the loop before was left early
            self.assertEqual(2, len(list(kept)))
            self.assertEqual((9, 0), (shard.state_dict()["epoch"], shard.state_dict()["samples"]))
            kept = iter(batches)
            next(kept)
            shard.set_epoch(6)
            self.assertEqual([rows for _, rows in whole], [batch["row"].tolist() for batch in batches])
            del kept
            self.assertEqual(7, shard.state_dict()["epoch"])
        state = {**whole[0][0], "order": "permuted, in order"}
        shard.load_state_dict(state)
        self.fails("RT-D13", lambda: list(batches))
        self.fails("RT-D12", lambda: shard.load_state_dict({**state, "rows": 11}))

    def test_files(self):
        import numpy
        numpy.save(self.directory / "x.npy", numpy.arange(6, dtype=numpy.int16).reshape(3, 2))
        numpy.save(self.directory / "y.npy", numpy.arange(3) / 2)
        found = self.read(self.directory)
        self.assertEqual(([[0, 1], [2, 3], [4, 5]], [0, 0.5, 1]), (found["x"].tolist(), found["y"].tolist()))
        self.assertEqual((numpy.int16, numpy.float64), (found["x"].dtype, found["y"].dtype))
        found["x"][0, 0] = 9  # not the file
        self.assertEqual(["x"], list(self.read(self.directory / "x.npy")))
        self.assertEqual(0, self.read(self.directory / "x.npy")["x"][0, 0])

        for i, text in enumerate(("n,x,text,m\n1,0.5,a,1\n2,,\"b,\nc\",\n\n", "n,x,text,m\n3,inf,1_0,7\n")):
            (self.directory / f"{i}.csv").write_text(text)
        found = self.read(self.directory / "*.csv")
        self.assertEqual(([1, 2, 3], ["a", "b,\nc", "1_0"]), (found["n"].tolist(), found["text"].tolist()))
        numpy.testing.assert_equal([[0.5, numpy.nan, numpy.inf], [1, numpy.nan, 7]], [found["x"], found["m"]])
        self.assertEqual((numpy.int64, numpy.float64), (found["n"].dtype, found["m"].dtype))

    def test_idx_files_as_cpp_has_them(self):
        import numpy
        pixels = bytes(range(0, 240, 20))
        for kind in ("train", "t10k"):
            (self.directory / f"{kind}-images-idx3-ubyte").write_bytes(b"\0\0\x08\3" + struct.pack(">3I", 3, 2, 2) + pixels)
            with gzip.open(self.directory / f"{kind}-labels-idx1-ubyte.gz", "wb") as file:
                file.write(b"\0\0\x08\1" + struct.pack(">I", 3) + b"\3\1\2")
        found = self.read(self.directory / "train-*")
        self.assertEqual((numpy.float32, numpy.int64), (found["image"].dtype, found["label"].dtype))
        self.assertEqual([3, 1, 2], found["label"].tolist())
        numpy.testing.assert_equal(numpy.frombuffer(pixels, numpy.uint8).reshape(3, 1, 2, 2).astype(numpy.float32) / 255,
                                   found["image"])
        self.assertIn("train-*", self.fails("RT-E56", lambda: self.read(self.directory)))

    def test_parquet(self):
        if importlib.util.find_spec("pyarrow") is None:
            self.skipTest("this Python has no pyarrow")
        import numpy
        import pyarrow
        import pyarrow.parquet
        path = self.directory / "a.parquet"
        pyarrow.parquet.write_table(pyarrow.table({
            "n": [1, None, 3], "pairs": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "text": ["a", "b", None],
            "ragged": [[1], [1, 2], []], "image": [[[1, 2]], [[3, 4]], [[5, 6]]], "flag": [True, False, True]}), path)
        found = self.read(path)
        numpy.testing.assert_equal([1, numpy.nan, 3], found["n"])
        self.assertEqual([[1, 2], [3, 4], [5, 6]], found["pairs"].tolist())
        self.assertEqual([[[1, 2]], [[3, 4]], [[5, 6]]], found["image"].tolist())
        self.assertEqual((["a", "b", None], [True, False, True]), (found["text"].tolist(), found["flag"].tolist()))
        self.assertEqual([[1], [1, 2], []], [row.tolist() for row in found["ragged"]])
        with mock.patch.dict(sys.modules, {"pyarrow": None}):
            self.assertIn("pip install pyarrow", self.fails("RT-E58", lambda: self.read(path)))
        path.write_bytes(b"PAR1")
        self.fails("RT-E56", lambda: self.read(path))

    def test_tensors(self):
        import numpy
        import torch
        shard = rtrain.DatasetShard("train", {"x": numpy.arange(6.0).reshape(3, 2), "y": numpy.arange(3),
                                              "text": numpy.array(["a", "b", "c"], dtype=object)})
        batch, = shard.iter_torch_batches(batch_size=3, dtypes={"x": torch.float32}, device="cpu")
        self.assertEqual((torch.float32, torch.int64), (batch["x"].dtype, batch["y"].dtype))
        self.assertEqual(["a", "b", "c"], batch["text"].tolist())
        batch, = shard.iter_torch_batches(batch_size=3, dtypes=torch.float16, columns=["y"])
        self.assertEqual((["y"], torch.float16, [0, 1, 2]), (list(batch), batch["y"].dtype, batch["y"].tolist()))
        self.assertEqual((3, ["x", "y", "text"]), (shard.count(), shard.columns()))
        for mistake in (lambda: shard.iter_batches(columns=["z"]), lambda: shard.iter_torch_batches(dtypes={"z": torch.int})):
            self.assertIn('no column "z"; it has x, y, text', self.fails("RT-E57", mistake))
        self.fails("RT-D8", lambda: shard.iter_batches(batch_size=0))

    def test_tensors_of_tensorflow(self):
        if importlib.util.find_spec("tensorflow") is None:
            self.skipTest("this Python has no tensorflow")
        import numpy
        import tensorflow
        shard = rtrain.DatasetShard("train", {"x": numpy.arange(6.0).reshape(3, 2), "y": numpy.arange(3)})
        batch, = shard.iter_tf_batches(batch_size=3, dtypes={"x": tensorflow.float32})
        self.assertEqual((tensorflow.float32, tensorflow.int64), (batch["x"].dtype, batch["y"].dtype))
        self.assertEqual([[0, 1], [2, 3], [4, 5]], batch["x"].numpy().tolist())

    def test_mistakes_in_files_have_codes(self):
        import numpy
        numpy.save(self.directory / "x.npy", numpy.arange(3))
        numpy.save(self.directory / "y.npy", numpy.arange(4))
        self.assertIn('"y" has 4 rows', self.fails("RT-D6", lambda: self.read(self.directory)))
        for name, content in (("no-such.csv", None), ("a.txt", b"a"), ("number.npy", None), ("broken.npy", b"broken"),
                              ("short.csv", b"a,b\n1\n"), ("twice.csv", b"a,a\n1,2\n"), ("a-ubyte", b"\0\0\x0d\3"),
                              ("b-ubyte", b"\0\0\x08\1" + struct.pack(">I", 9) + b"1"), ("c-ubyte.gz", b"no gzip"),
                              ("*", None)):
            with self.subTest(name=name):
                if name == "number.npy":
                    numpy.save(self.directory / name, numpy.float64(1))
                elif content:
                    (self.directory / name).write_bytes(content)
                self.fails("RT-E56", lambda: self.read(self.directory / name))
        (self.directory / "empty.csv").write_text("a,b\n")
        self.fails("RT-D7", lambda: self.read(self.directory / "empty.csv"))

    def test_a_run_reads_each_row_once_per_epoch_and_resumes_within_one(self):
        (self.directory / "data.csv").write_text("row\n" + "\n".join(map(str, range(50))))
        script = self.write(EPOCHS)
        orders = []
        for plan in ([2], [1], [3], ["2 stop", 2], ["1 stop", 3]):
            shutil.rmtree(self.directory / "results", ignore_errors=True)
            for file in self.directory.glob("rows-*"):
                file.unlink()
            for start in map(str, plan):
                stop = ["--config", "stop=1"] if "stop" in start else []
                run = self.run_tool("-n", start[0], "--name", "r", "--resume", "always", "--dataset", "train=data.csv",
                                    *stop, script)
                self.check(run, 3 if stop else 0)
            read = [list(map(int, line.split())) for file in self.directory.glob("rows-*")
                    for line in file.read_text().splitlines()]
            for epoch in range(3):
                self.assertEqual(list(range(50)), sorted(sum((rows for number, *rows in read if number == epoch), [])), plan)
            if plan == [1]:
                orders = [sum((rows for number, *rows in read if number == epoch), []) for epoch in range(3)]
        self.assertEqual(3, len(set(map(tuple, orders))))

    def test_a_data_set_that_was_not_given(self):
        run = self.train("import rtrain\nrtrain.get_dataset_shard('valid')", "--dataset", "train=a.csv")
        self.check(run, 1, 'the data set "valid" was not given; there is train')
        self.assertIn("[RT-E55]", run.err)
        for value in ("train", "train=", "=a"):
            self.check(self.run_tool("--dataset", value, "true"), 2, "[RT-E9]")
        self.check(self.alone("import rtrain\nprint(rtrain.get_dataset_shard().count())",
                              RTRAIN_DATASETS='{"train":"script.py"}'), 1, "[RT-E56]")


if __name__ == "__main__":
    sys.exit(run_test.main(sys.modules[__name__]))
