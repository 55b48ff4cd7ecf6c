# SPDX-License-Identifier: Apache-2.0
"""Files of rows: .npy, IDX, CSV and Parquet. A table has columns of equally many rows."""
import os
from typing import Any, Callable, Dict, List, Tuple

from ._errors import Error

Column = Any  # an array, or something else that an array of row numbers indexes
Columns = Dict[str, Column]


class Pixels:
    """Images as C++'s idx_images() returns them, from the bytes of an IDX file."""

    def __init__(self, data: Any) -> None:
        self._bytes = data

    def __len__(self) -> int:
        return len(self._bytes)

    def __getitem__(self, rows: Any) -> Any:
        return self._bytes[rows][:, None].astype("float32") / 255


def read(path: str) -> Columns:
    """`path` is a file, a directory, or a pattern such as "data/part-*.csv"."""
    files = _files(path)
    found = {_reader_of(file) for file in files}
    if len(found) != 1:
        raise Error("RT-E56", f"{path} has no data files" if not found else
                    f"{path} has files of different formats; select some with a pattern such as *.csv")
    try:
        columns: Columns = found.pop()(files)
    except (OSError, ValueError, EOFError) as error:
        raise Error("RT-E56", f"{path} cannot be read: {error}") from error
    sizes = {name: len(column) for name, column in columns.items()}
    for name, size in sizes.items():
        first = next(iter(sizes))
        if size != sizes[first]:
            raise Error("RT-D6", f'{path}: column "{name}" has {size} rows, but "{first}" has {sizes[first]}; all columns '
                                 "need the same number of rows")
    if not any(sizes.values()):
        raise Error("RT-D7", f"the data set {path} is empty")
    return columns


def _files(path: str) -> List[str]:
    import glob
    if os.path.isfile(path):
        if _reader_of(path) is None:
            raise Error("RT-E56", f"{path} is not a file of a known format; expected the ending {', '.join(_READERS)}")
        return [path]
    found = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else glob.glob(path)
    if not found:
        raise Error("RT-E56", f"{path} does not exist, or is empty")
    return sorted(file for file in found if os.path.isfile(file) and _reader_of(file) is not None)


def _add(columns: Columns, name: str, column: Column, file: str) -> None:
    if name in columns:
        raise ValueError(f'{file} is a second column "{name}"; select files with a pattern such as train-*')
    columns[name] = column


def _read_npy(files: List[str]) -> Columns:
    """Each file is a column with its name."""
    import numpy
    columns: Columns = {}
    for file in files:
        array = numpy.load(file, mmap_mode="r", allow_pickle=False)
        if not array.shape:
            raise ValueError(f"{file} has a single number; its first dimension must be the rows")
        _add(columns, os.path.splitext(os.path.basename(file))[0], array, file)
    return columns


def _read_idx(files: List[str]) -> Columns:
    """Files with one dimension are the column "label", with three "image"."""
    columns: Columns = {}
    for file in files:
        data = _bytes_of_idx(file)
        if data.ndim == 1:
            _add(columns, "label", data.astype("int64"), file)
        else:
            _add(columns, "image", Pixels(data), file)
    return columns


def _bytes_of_idx(file: str) -> Any:
    import struct

    import numpy
    if file.endswith(".gz"):
        import gzip
        with gzip.open(file) as packed:
            data = numpy.frombuffer(packed.read(), dtype=numpy.uint8)
    else:
        data = numpy.memmap(file, dtype=numpy.uint8, mode="r")
    dimensions = data[3] if len(data) >= 4 and data[:3].tobytes() == b"\0\0\x08" else 0
    if dimensions not in (1, 3):
        raise ValueError(f"{file} is not an IDX file of bytes with one or three dimensions")
    start = 4 + 4 * int(dimensions)
    if len(data) < start:
        raise ValueError(f"{file} ends within its header")
    return data[start:].reshape(struct.unpack(f">{dimensions}I", data[4:start].tobytes()))


def _read_csv(files: List[str]) -> Columns:
    """Columns of whole numbers, of numbers, or of texts; the first line has their names."""
    import csv
    names: List[str] = []
    rows: List[List[str]] = []
    for file in files:
        with open(file, newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines, strict=True)
            try:
                header = next(reader, [])
                rows += [row for row in reader if row]
            except csv.Error as error:
                raise ValueError(f"{file}, line {reader.line_num}: {error}") from None
        names = names or header
        if header != names or len(set(header)) != len(header) or not header:
            raise ValueError(f"{file} has the columns {header}; expected {names or 'a line with different names'}")
        wrong = next((row for row in rows if len(row) != len(names)), None)
        if wrong is not None:
            raise ValueError(f"{file} has the row {wrong} of {len(wrong)} values; expected {len(names)}")
    values = list(zip(*rows)) or [()] * len(names)
    return {name: _typed(column) for name, column in zip(names, values)}


def _typed(values: Tuple[str, ...]) -> Column:
    import numpy
    if not any("_" in value for value in values):  # 1_000 is a number for Python only
        try:
            return numpy.array([int(value) for value in values], dtype=numpy.int64)
        except (ValueError, OverflowError):
            pass
        try:
            return numpy.array([float(value or "nan") for value in values], dtype=numpy.float64)
        except ValueError:
            pass
    return numpy.array(values, dtype=object)


def _read_parquet(files: List[str]) -> Columns:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Error("RT-E58", "reading Parquet needs the package pyarrow; run `pip install pyarrow`") from None
    tables = [pyarrow.parquet.read_table(file, memory_map=True) for file in files]
    table = pyarrow.concat_tables(tables)
    return {name: _array_of(table.column(name).combine_chunks()) for name in table.column_names}


def _array_of(column: Any) -> Column:
    """Lists of equally many numbers become one array; missing numbers are NaN."""
    import numpy
    import pyarrow
    kinds = pyarrow.types
    is_list = kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type)
    if not is_list:
        return column.to_numpy(zero_copy_only=False)
    if column.null_count or len(column.value_lengths().unique()) > 1:
        lists = numpy.empty(len(column), dtype=object)
        lists[:] = [None if row is None else numpy.asarray(row) for row in column.to_pylist()]
        return lists
    values = _array_of(column.flatten())
    return values.reshape(len(column), -1, *values.shape[1:])


_READERS: Dict[str, Callable[[List[str]], Columns]] = {
    ".npy": _read_npy, ".csv": _read_csv, ".parquet": _read_parquet, "-ubyte": _read_idx, "-ubyte.gz": _read_idx}


def _reader_of(file: str) -> Any:
    return next((reader for ending, reader in _READERS.items() if file.endswith(ending)), None)
