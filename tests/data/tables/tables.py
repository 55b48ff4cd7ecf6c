# SPDX-License-Identifier: Apache-2.0
"""Writes tables for table_test.cpp, and what pyarrow reads from them.

usage: tables.py DIRECTORY

For each NAME.parquet or NAME.csv there is a NAME.safetensors: for a column "x" the tensor "x"; with
rows of different lengths "x.values" and "x.offsets"; and "x.valid" when rows have no value. All are
made of Python's values, one at a time, so that nothing is shared with what is tested.
"""
import datetime
import decimal
import os
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from safetensors.numpy import save_file

UNSIGNED = {pa.uint16(): np.int32, pa.uint32(): np.int64, pa.uint64(): np.int64}
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def item_of(type):
    """(numpy's dtype, shape, how a value becomes one of it) of a type with values of one length."""
    if pa.types.is_boolean(type):
        return np.bool_, (), bool
    if pa.types.is_integer(type):
        return UNSIGNED.get(type, None) or type.to_pandas_dtype(), (), int
    if pa.types.is_floating(type):
        return type.to_pandas_dtype(), (), float
    if pa.types.is_decimal(type) or pa.types.is_null(type):
        return np.float64, (), float
    if pa.types.is_fixed_size_binary(type):
        return np.uint8, (type.byte_width,), lambda value: np.frombuffer(value, np.uint8)
    if pa.types.is_fixed_size_list(type):
        dtype, shape, convert = item_of(type.value_type)
        return dtype, (type.list_size, *shape), lambda value: [
            convert(item) if item is not None else float("nan") for item in value]
    raise ValueError(type)


def numbers(column):
    """Times and dates as the integers that they are stored as."""
    type = column.type
    if pa.types.is_dictionary(type):
        return numbers(column.cast(type.value_type))
    if pa.types.is_date32(type) or pa.types.is_time32(type):
        return column.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_temporal(type):
        return column.cast(pa.int64())
    return column


def is_ragged(type):
    return (pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_binary(type)
            or pa.types.is_large_binary(type) or pa.types.is_list(type)
            or pa.types.is_large_list(type))


def add_expected(tensors, name, column):
    column = numbers(column)
    values = column.to_pylist()
    valid = np.array([value is not None for value in values], np.bool_)
    if is_ragged(column.type):
        is_list = hasattr(column.type, "value_type")
        rows = [value.encode() if isinstance(value, str) else value or (() if is_list else b"")
                for value in values]
        tensors[name + ".offsets"] = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
        if not is_list:
            tensors[name + ".values"] = np.frombuffer(b"".join(rows), np.uint8).copy()
        else:
            dtype, shape, convert = item_of(column.type.value_type)
            items = [float("nan") if item is None else convert(item) for row in rows for item in row]
            tensors[name + ".values"] = np.array(items, dtype).reshape((-1, *shape))
    else:
        dtype, shape, convert = item_of(column.type)
        is_float = np.issubdtype(dtype, np.floating)
        missing = np.full(shape, float("nan") if is_float else 0, dtype)
        rows = [missing if value is None else np.array(convert(value), dtype) for value in values]
        tensors[name] = np.stack(rows) if rows else np.zeros((0, *shape), dtype)
        if is_float:
            valid[:] = True
    if not valid.all():
        tensors[name + ".valid"] = valid


def save_expected(path, table):
    tensors = {}
    for name in table.column_names:
        add_expected(tensors, name, table[name])
    save_file(tensors, path)


def words(rng, longest):
    alphabet = "abc xyz,;\"'\n\té€😀0"
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, longest)))


def makers(rng):
    """A type, and what makes a value of it."""
    day = datetime.date(2000, 1, 1)
    moment = datetime.datetime(2001, 2, 3, 4, 5, 6)

    def integers(bits, signed):
        low, high = (-2**(bits - 1), 2**(bits - 1) - 1) if signed else (0, 2**min(bits, 63) - 1)
        return lambda: rng.choice([low, high, rng.randint(low, high), rng.randint(0, 9)])

    def floats():
        return rng.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), rng.uniform(-1e4, 1e4)])

    def seconds():
        return datetime.timedelta(seconds=rng.randint(-10**6, 10**6))

    def many(make, most):
        return lambda: [make() for _ in range(rng.randint(0, most))]

    text = lambda: words(rng, 20)
    small = lambda: np.float16(rng.uniform(-9, 9))
    return [
        (pa.bool_(), lambda: rng.random() < 0.5),
        *[(getattr(pa, f"{'' if signed else 'u'}int{bits}")(), integers(bits, signed))
          for bits in (8, 16, 32, 64) for signed in (True, False)],
        (pa.float16(), small), (pa.float32(), floats), (pa.float64(), floats),
        (pa.string(), text), (pa.large_string(), text),
        (pa.binary(), lambda: rng.randbytes(rng.randint(0, 9))), (pa.binary(5), lambda: rng.randbytes(5)),
        (pa.date32(), lambda: day + datetime.timedelta(days=rng.randint(-9999, 9999))),
        (pa.date64(), lambda: day + datetime.timedelta(days=rng.randint(-9999, 9999))),
        (pa.time32("ms"), lambda: (moment + seconds()).time()),
        (pa.time64("us"), lambda: (moment + seconds()).time()),
        (pa.timestamp("ms"), lambda: moment + seconds()),
        (pa.timestamp("ns", tz="UTC"), lambda: moment + seconds()),
        (pa.duration("us"), seconds),
        (pa.decimal128(12, 3), lambda: decimal.Decimal(rng.randint(-10**11, 10**11)).scaleb(-3)),
        (pa.decimal256(40, 10), lambda: decimal.Decimal(rng.randint(-10**15, 10**15)).scaleb(-10)),
        (pa.list_(pa.int32()), many(lambda: rng.randint(-9, 9), 5)),
        (pa.list_(pa.float32()), many(lambda: rng.choice([None, rng.random()]), 5)),
        (pa.large_list(pa.bool_()), many(lambda: rng.random() < 0.5, 3)),
        (pa.list_(pa.float64(), 3), lambda: [rng.random() for _ in range(3)]),
        (pa.list_(pa.int16(), 2), lambda: [rng.randint(-9, 9) for _ in range(2)]),
        (pa.dictionary(pa.int16(), pa.string()), lambda: rng.choice(["red", "green", "", "blau"])),
        (pa.null(), lambda: None),
    ]


def write_parquet(directory, number):
    rng = random.Random(number)
    rows = rng.choice([1, 50, 500])
    columns = {}
    for i, (type, make) in enumerate(makers(rng)):
        share = rng.choice([0, 0, 0.1, 1])
        values = [None if rng.random() < share else make() for _ in range(rows)]
        columns[f"{i} {type}"] = pa.array(values, type)
    table = pa.table(columns)
    path = f"{directory}/table-{number}"
    pq.write_table(table, path + ".parquet", row_group_size=rng.choice([7, 300, 10**6]),
                   compression=rng.choice(["none", "snappy", "zstd", "gzip"]),
                   use_dictionary=rng.random() < 0.5, data_page_size=rng.choice([100, 10**6]),
                   data_page_version=rng.choice(["1.0", "2.0"]), version="2.6",
                   write_page_checksum=rng.random() < 0.5, store_schema=rng.random() < 0.7)
    save_expected(path + ".safetensors", pq.read_table(path + ".parquet"))


def write_csv(directory, number):
    rng = random.Random(100 + number)
    rows = [1, 300, 9000][number // 3]
    path = f"{directory}/rows-{number}"
    with open(path + ".csv", "w", newline="", encoding="utf-8-sig" if number % 3 == 2 else "utf-8") as file:
        def write(values):
            quoted = ['"' + value.replace('"', '""') + '"' if set(value) & set('",\r\n') else value
                      for value in map(str, values)]
            file.write(",".join(quoted) + ["\n", "\r\n", "\r"][number % 3])

        write(["count", "share", "said, \"so\"", "is", "day", "at", "none"])
        for row in range(rows):
            write([
                rng.choice([str(rng.randint(-10**12, 10**12)), "NA", "7"]) if row else "1",
                repr(rng.uniform(-1, 1)) if row == 0 or rng.random() < 0.9 else "",
                "t" + words(rng, rng.choice([3, 60])),
                rng.choice(["true", "false"]),
                datetime.date(2020, 1, 1) + datetime.timedelta(days=rng.randint(0, 999)),
                datetime.datetime(2020, 1, 1) + datetime.timedelta(seconds=rng.randint(0, 10**8)),
                "",
            ])
            if rng.random() < 0.01:
                file.write("\n")
    table = pa.csv.read_csv(path + ".csv",
                            read_options=pa.csv.ReadOptions(block_size=1 << 30, use_threads=False),
                            parse_options=pa.csv.ParseOptions(newlines_in_values=True))
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):  # always in nanoseconds
            table = table.set_column(i, field.name, table[i].cast(pa.timestamp("ns", field.type.tz)))
    save_expected(path + ".safetensors", table)


def write_others(directory):
    """Tables whose contents the tests know."""
    numbers = pa.array(range(1000), pa.int64())
    pq.write_table(pa.table({"x": numbers, "text": pa.array([f"row {i}" for i in range(1000)])}),
                   f"{directory}/checked", row_group_size=100, write_page_checksum=True)
    one = pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array([1.5, 2.5])})
    for name, table in {
        "one": one,
        "other-order": one.select(["b", "a"]),
        "other-type": one.set_column(0, "a", pa.array([1.0, 2.0])),
        "other-width": one.set_column(0, "a", pa.array([1, 2], pa.int32())),
        "more": one.append_column("c", pa.array([1, 2])),
        "fewer": one.select(["a"]),
        "none": one.slice(0, 0),
        "struct": one.append_column("s", pa.array([{"x": 1}, {"x": 2}])),
        "lists": one.append_column("l", pa.array([["a"], ["b"]])),
        "null-in-list": one.append_column("l", pa.array([[1], [None]])),
        "large": one.append_column("u", pa.array([1, 2**64 - 1], pa.uint64())),
        **{f"at-{name}": pa.table({"a": pa.array([1, 2], pa.timestamp(*type))})
           for name, type in {"ms": ("ms",), "us": ("us",), "us-utc": ("us", "UTC")}.items()},
        **{f"{name}-us": pa.table({"a": pa.array([1, 2], pa.int64()).cast(type)})
           for name, type in {"time": pa.time64("us"), "duration": pa.duration("us")}.items()},
        "decimals": pa.table({"a": pa.array([decimal.Decimal(2**60), decimal.Decimal(7)],
                                            pa.decimal128(38, 0))}),
        "rounded-decimals": pa.table({"a": pa.array([decimal.Decimal(2**53 + 1)],
                                                    pa.decimal128(38, 0))}),
        "slash": pa.table({"a/b": pa.array([1]), "a.b": pa.array([2]),
                           "a": pa.array([[3]], pa.list_(pa.field("b", pa.int64())))}),
        "days-in-lists": pa.table({"a": pa.array([[1], [2]], pa.list_(pa.date32()))}),
        "at-us-in-lists": pa.table({"a": pa.array([[1], [2]], pa.list_(pa.timestamp("us")))}),
        "twice": pa.table([one["a"], one["b"]], names=["a", "a"]),
    }.items():
        pq.write_table(table, f"{directory}/{name}")
    for year in (2023, 2024):
        for kind in ("a", "b c"):
            pq.write_to_dataset(pa.table({"x": pa.array([year * 10]), "year": pa.array([year]),
                                          "kind": pa.array([kind])}),
                                f"{directory}/hive", partition_cols=["year", "kind"],
                                basename_template="part-{i}.parquet")
    wide = np.random.default_rng(1).standard_normal((400_000, 4)).astype(np.float32)
    pq.write_table(pa.table({f"x{i}": wide[:, i] for i in range(4)}), f"{directory}/wide",
                   compression="zstd", use_dictionary=False, data_page_size=1 << 16)


def main():
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    for number in range(12):
        write_parquet(directory, number)
    for number in range(9):
        write_csv(directory, number)
    write_others(directory)


main()
