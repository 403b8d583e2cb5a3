"""Corners of `array.nc`: names, extremes, nulls, text, labels, metadata, each by the readers of exports_netcdf.py; sizes; how little is decoded.

    python3 netcdf_corners.py

Arrays are written with libtiledb, and held against what it reads. The last line is `N passed, N failed`.
"""

import errno
import json
import os
import resource
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import h5py
import numpy as np
import xarray

from capi import Attr, Column, Dim, Enum, Lib, Pipeline, Schema, np_type
from exports_netcdf import Comparison
from mount import ROOT, binary, errors, mounted, stats, unmount

ZSTD = Pipeline([("ZSTD", {"level": 1})])
BOX = [np.array([0, 3], "i4"), np.array([0, 4], "i4")]
CELLS = 20


class Writer:
    """Writes arrays, by default of 4 by 5 cells."""

    def __init__(self, lib, root):
        self.lib, self.root = lib, root
        self.rng = np.random.default_rng(7)

    def axes(self):
        """Two dimensions."""
        return [Dim("y", "INT32", 0, 3, 2), Dim("x", "INT32", 0, 4, 3)]

    def column(self, attr, values=None):
        """Values of an attribute: those given, repeated, or any bytes."""
        count = CELLS * attr.cvn
        if values is None:
            data = self.rng.integers(0, 256, count * np_type(attr.type).itemsize).astype("u1").view(np_type(attr.type))
        else:
            data = np.resize(np.asarray(values, np_type(attr.type)), count)
        validity = self.rng.integers(0, 2, CELLS).astype("u1") if attr.nullable else None
        return Column(data.view("u1"), None, validity)

    def array(self, name, attrs, values=None, enums=(), axes=None, box=None):
        """One array with one fragment; `values` by attribute."""
        uri = str(self.root / name)
        self.lib.create(uri, Schema("dense", axes or self.axes(), attrs, enums=list(enums)))
        self.lib.write(uri, {a.name: self.column(a, (values or {}).get(a.name)) for a in attrs}, ranges=box or BOX)
        return uri


def write_names(writer):
    """Names that are difficult for a file system, netCDF or HDF5, and names that others are derived from."""
    plain = ["a/b", "50%", ".hidden", 'q"uote', "a,b", "sp ace", " lead", "-minus", "größe", "长度", "+", "zarr.json", "7", "a__validity", "CLASS", "b_cell", "trail ", "tab\there", "del\x7f", "e\u0301"]
    attrs = [Attr(name, "INT16") for name in plain]
    attrs += [Attr("a", "INT16", nullable=True), Attr("b", "INT16", 3), Attr("x" * 255, "UINT32", nullable=True), Attr("é" * 120, "FLOAT32", 2)]
    attrs += [Attr("t", "CHAR", 4, nullable=True), Attr("t_strlen", "INT8"), Attr("(", "INT8", 2, nullable=True)]
    axes = [Dim("row/col", "INT32", 0, 3, 2), Dim("%", "INT32", 0, 4, 5)]
    uri = writer.array("names", attrs, axes=axes)
    writer.lib.put_metadata(uri, [("a/b", "INT32", np.array([1])), ("-", "UINT8", np.array([1, 2])), ("_hidden", "INT8", np.array([1])), ("NAME", "INT8", np.array([2])), ("NAME_", "INT8", np.array([3])), ("CLASS", "STRING_ASCII", b"c"), ("REFERENCE_LIST", "INT8", np.array([4])), ("o\u0308 ", "STRING_UTF8", "ü".encode())])


def write_extremes(writer):
    """The ends of every type, and special floats."""
    attrs, values = [], {}
    for datatype in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"):
        info = np.iinfo(np_type(datatype))
        values[datatype] = [info.min, info.max, info.min + 1, info.max - 1, 0]
    for datatype in ("FLOAT32", "FLOAT64"):
        tiny = np.finfo(np_type(datatype)).smallest_subnormal
        values[datatype] = [np.nan, np.inf, -np.inf, -0.0, tiny, np.finfo(np_type(datatype)).max, 0.1]
    for unit in ("YEAR", "MONTH", "WEEK", "DAY", "HR", "MIN", "SEC", "MS", "US", "NS", "PS", "FS", "AS"):
        values["DATETIME_" + unit] = [-(2**63), -(2**63) + 1, 2**63 - 1, -1, 0, 55, 661, 25 * 10**15, 26 * 10**15, -25 * 10**15]
    values["TIME_MS"] = [-(2**63), 2**63 - 1, 5]
    values["BOOL"] = [0, 1, 2, 255]
    attrs = [Attr(name, name) for name in values]
    attrs += [Attr("nullable " + name, name, nullable=True) for name in values]
    values |= {"nullable " + name: value for name, value in list(values.items())}
    writer.array("extremes", attrs, values)


def write_texts(writer):
    """Text with and without terminators, and fields that are left out."""
    text = b"one\0\0 \0x\xff\xfe'\"\\"
    attrs = [Attr("char", "CHAR", 3), Attr("ascii", "STRING_ASCII", 1), Attr("null", "STRING_ASCII", 5, nullable=True), Attr("utf8", "STRING_UTF8", 2)]
    attrs += [Attr("wide", "STRING_UTF16", 2), Attr("blob", "BLOB", 2), Attr("wkt", "GEOM_WKT", 3)]
    writer.array("texts", attrs, {a.name: np.frombuffer(text, "u1") for a in attrs if a.name in ("char", "ascii", "null", "utf8")})


def write_holes(writer):
    """Unwritten cells: two corners of a larger array, with custom fill values."""
    attrs = [Attr("u1", "UINT8"), Attr("i4", "INT32"), Attr("f8", "FLOAT64"), Attr("own", "INT16", fill=b"\x07\x00"), Attr("day", "DATETIME_DAY", fill=b"\x05" + bytes(7))]
    attrs += [Attr("year", "DATETIME_YEAR"), Attr("three", "INT16", 3, fill=b"\1\0\1\0\1\0"), Attr("other", "INT16", 2, fill=b"\1\0\2\0"), Attr("bool", "BOOL", nullable=True)]
    attrs += [Attr("nulls", "INT64", 2, nullable=True, fill=bytes(15) + b"\1"), Attr("text", "CHAR", 2)]
    axes = [Dim("y", "INT16", -50, 50, 7), Dim("x", "INT16", -9, 99, 10)]
    uri = writer.array("holes", attrs, axes=axes, box=[np.array([-5, -2], "i2"), np.array([-9, -5], "i2")])
    box = [np.array([6, 9], "i2"), np.array([20, 24], "i2")]
    writer.lib.write(uri, {a.name: writer.column(a) for a in attrs}, ranges=box)


def write_labels(writer):
    """Enumerations whose labels are not words, too many, or numbers."""
    labels = [b"red", b"light  blue", b"", b" ", b"a,b", "grün".encode(), b"tab\tand\nmore"]
    enums = [Enum("words", "STRING_UTF8", labels), Enum("numbers", "INT32", np.array([5, 7, 9], "i4")), Enum("many", "STRING_ASCII", [b"label %05d" % i for i in range(7000)])]
    attrs = [Attr("w", "UINT8", enumeration="words"), Attr("n", "INT16", enumeration="numbers"), Attr("m", "INT32", nullable=True, enumeration="many")]
    writer.array("labels", attrs, enums=enums)


def write_metadata(writer):
    """Metadata of every kind."""
    uri = writer.array("metadata", [Attr("a", "INT8")])
    items = [(datatype, datatype, np.array([1, 2, 3])) for datatype in ("INT8", "UINT64", "FLOAT32", "FLOAT64", "TIME_NS", "DATETIME_DAY", "BOOL")]
    items += [("one", "INT16", np.array([-3])), ("text", "STRING_UTF8", "naïve\n".encode()), ("bytes", "BLOB", b"x"), ("wide", "STRING_UTF16", "ab".encode("utf-16-le"))]
    items += [("largest", "STRING_ASCII", b"x" * (65_535 - 23 - 7)), ("too large", "STRING_ASCII", b"x" * (65_535 - 23 - 8)), ("Conventions", "STRING_ASCII", b"COARDS")]
    items += [("large", "INT64", np.arange(8_000)), ("larger", "INT64", np.arange(10_000)), ("nan", "FLOAT64", np.array([np.nan, np.inf]))]
    writer.lib.put_metadata(uri, items, timestamp=10)
    writer.lib.put_metadata(uri, [("one", "INT32", np.array([4]))], deletes=["FLOAT32"], timestamp=20)


def write_axes(writer):
    """Dimensions of dates that do and do not become days, of the ends of types, and many."""
    attrs = [Attr("a", "INT32")]
    for name, datatype, low in (("year", "DATETIME_YEAR", -3), ("month", "DATETIME_MONTH", 600), ("week", "DATETIME_WEEK", -2), ("far", "DATETIME_YEAR", 10**17), ("second", "DATETIME_SEC", 10**9)):
        axes = [Dim("t", datatype, low, low + 19, 7)]
        writer.array("axis_" + name, attrs, axes=axes, box=[np.array([low, low + 19], "i8")])
    axes = [Dim("x", "UINT64", 2**64 - 29, 2**64 - 10, 5)]
    writer.array("axis_unsigned", attrs, axes=axes, box=[np.array([2**64 - 29, 2**64 - 10], "u8")])
    axes = [Dim(f"d{i}", "INT8", 1, [4, 5, 1, 1, 1][i], 1) for i in range(5)]
    writer.array("axes_five", attrs, axes=axes, box=[np.array([1, length], "i1") for length in (4, 5, 1, 1, 1)])
    writer.array("many_attributes", [Attr(f"attribute {i}", "INT16", 1 + i % 2, i % 3 == 0) for i in range(400)])


def write_chunks(writer):
    """Variables in chunks of several kinds, with padding on all sides, beside contiguous ones."""
    attrs = [Attr("u1", "UINT8"), Attr("f8", "FLOAT64", nullable=True), Attr("three", "INT16", 3, nullable=True, fill=b"\1\0\2\0\3\0"), Attr("text", "CHAR", 2)]
    attrs += [Attr("month", "DATETIME_MONTH", nullable=True), Attr("bool", "BOOL", nullable=True), Attr("own", "INT32", fill=b"\7\0\0\0")]

    def array(name, axes, box, attrs, dtype="i4"):
        uri = str(writer.root / name)
        writer.lib.create(uri, Schema("dense", axes, attrs))
        count = int(np.prod([high - low + 1 for low, high in box]))
        columns = {}
        for attr in attrs:
            data = writer.rng.integers(0, 256, count * attr.cvn * np_type(attr.type).itemsize).astype("u1")
            if attr.type.startswith("DATETIME"):
                data = writer.rng.integers(-9999, 9999, count).astype("i8").view("u1")
            columns[attr.name] = Column(data, None, writer.rng.integers(0, 2, count).astype("u1") if attr.nullable else None)
        writer.lib.write(uri, columns, ranges=[np.array(ends, dtype) for ends in box])

    array("chunks_two", [Dim("y", "INT32", -400, 399, 50), Dim("x", "INT32", -1000, 999, 64)], [(-333, 250), (-777, 111)], attrs)
    array("chunks_three", [Dim("z", "INT32", 1, 40, 7), Dim("y", "INT32", 1, 200, 60), Dim("x", "INT32", 5, 200, 70)], [(2, 40), (1, 150), (5, 190)], attrs[:3])
    # Those of the first are cut along the first axis alone, and stay contiguous.
    array("rows_alone", [Dim("y", "INT32", 0, 4095, 64), Dim("x", "INT32", 0, 63, 64)], [(0, 4095), (0, 63)], attrs[:1])
    array("rows_in_parts", [Dim("y", "INT32", 0, 9, 1), Dim("x", "INT32", 0, 2_999_999, 65_536)], [(0, 2), (0, 99_999)], attrs[:1])


def check_example(root, point, failures):
    """The file that the documentation shows is the one that a mount does, and h5dump reads it."""
    lib, uri = Lib(), str(root / "example")
    lib.create(uri, Schema("dense", [Dim("d", "INT16", 1, 2, 2)], [Attr("a", "CHAR", 3)]))
    lib.write(uri, {"a": Column(np.frombuffer(b"onetwo", "u1"))}, ranges=[np.array([1, 2], "i2")])
    lib.put_metadata(uri, [("n", "UINT8", np.array([7]))])
    path = point / "example/data/array.nc"
    dumped = subprocess.run(["hexdump", "-C", path], capture_output=True, text=True, check=True).stdout
    shown = (ROOT / "src/export/netcdf/example.md").read_text().split("```text\n")[1].split("```")[0]
    if dumped != shown:
        failures.append(f"the example is not the one that is shown:\n{dumped}")
    done = subprocess.run(["h5dump", path], capture_output=True, text=True, check=False)
    for part in ('DATASET "d"', "H5T_STD_I16LE", "(0): 1, 2", 'DATASET "a"', "STRSIZE 1", '(0,0): "o", "n", "e"', '(1,0): "t", "w", "o"', '"CF-1.12"'):
        if part not in done.stdout:
            failures.append(f"h5dump shows no {part}:\n{done.stdout}{done.stderr}")


def check_changes(root, point, failures):
    """Metadata written meanwhile shows in the next open; damaged metadata is an error of this file that names its place."""
    path, lib = point / "example/data/array.nc", Lib()
    lib.put_metadata(str(root / "example"), [("m", "UINT8", np.array([8]))])
    deadline, found = time.time() + 5, {}
    while "m" not in found and time.time() < deadline:
        time.sleep(0.1)
        with h5py.File(path) as file:
            found = dict(file.attrs)
    if (found.get("n"), found.get("m")) != (7, 8):
        failures.append(f"metadata written while it was mounted: {found}")
    uri = root / "damaged"
    lib.create(str(uri), Schema("dense", [Dim("d", "INT16", 1, 2, 2)], [Attr("a", "CHAR", 3)]))
    lib.write(str(uri), {"a": Column(np.frombuffer(b"onetwo", "u1"))}, ranges=[np.array([1, 2], "i2")])
    lib.put_metadata(str(uri), [("n", "UINT8", np.array([7]))])
    damaged = next((uri / "__meta").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    try:
        (point / "damaged/data/array.nc").read_bytes()
        failures.append("damaged metadata: array.nc can be read")
    except OSError as error:
        told = [line for line in errors(point) if "array.nc" in line["path"]]
        if error.errno != errno.EIO or damaged.name not in json.dumps(told):
            failures.append(f"damaged metadata: {error}, told {told}")
    if (point / "damaged/data/columns/a/data.bin").read_bytes() != b"onetwo":
        failures.append("damaged metadata: the column cannot be read")


def check_laziness(lib, root, failures):
    """Finding the length decodes nothing; opening the file and reading a box decode little beside the box, whatever netCDF and the kernel read ahead."""
    side, tile = 4096, 256
    axes = [Dim("y", "INT32", 0, side - 1, tile), Dim("x", "INT32", 0, side - 1, tile)]
    uri = str(root / "lazy")
    lib.create(uri, Schema("dense", axes, [Attr("a", "UINT8", pipeline=ZSTD)]))
    values = np.random.default_rng(3).integers(0, 256, (side, side)).astype("u1")
    lib.write(uri, {"a": Column(values.reshape(-1))}, ranges=[np.array([0, side - 1], "i4")] * 2)
    for engine, first in (("netcdf4", (0, 0)), ("netcdf4", (1999, 700)), ("netcdf4", (3596, 3596)), ("h5netcdf", (1999, 700))):
        with mounted(uri) as point:
            path = point / "data/array.nc"
            os.stat(path)
            if stats(point)["chunks_decoded"]:
                failures.append(f"stat decoded {stats(point)['chunks_decoded']} chunks")
            part = tuple(slice(a, a + 500) for a in first)
            with xarray.open_dataset(path, engine=engine) as file:
                opened = stats(point)["chunks_decoded"]
                if not (file.a[part].values == values[part]).all():
                    failures.append(f"{engine}: the box at {first} differs")
            count = stats(point)["chunks_decoded"]
            if count > 120:
                failures.append(f"{engine}: a box of 500 x 500 at {first} decoded {count} chunks of 256")
            print(f"{engine}: of 256 chunks opening decoded {opened}, a box of 500 x 500 {count - opened} more")
            with xarray.open_dataset(path, engine=engine, chunks={}) as file:
                if file.a.data.chunks != ((tile,) * 16,) * 2:
                    failures.append(f"{engine}: dask sees the chunks {file.a.data.chunks}")


def check_opening(lib, root, failures):
    """Opening a file of 256 MiB decodes nothing, although netCDF reads the first 4 MiB."""
    side, tile = 1 << 14, 512
    axes = [Dim(name, "INT32", 0, side - 1, tile) for name in "yx"]
    uri = str(root / "opened")
    lib.create(uri, Schema("dense", axes, [Attr("a", "UINT8", pipeline=ZSTD)]))
    values = np.random.default_rng(4).integers(0, 255, (tile, tile)).astype("u1")
    for first in (0, side - tile):
        lib.write(uri, {"a": Column(values.reshape(-1))}, ranges=[np.array([first, first + tile - 1], "i4")] * 2)
    for engine in ("netcdf4", "h5netcdf"):
        with mounted(uri) as point, xarray.open_dataset(point / "data/array.nc", engine=engine) as file:
            time.sleep(0.2)
            opened = stats(point)["chunks_decoded"]
            if opened:
                failures.append(f"{engine}: opening a large file decoded {opened} chunks")
            for part in (slice(0, tile), slice(side - tile, side)):
                if not (file.a[part, part].values == values).all():
                    failures.append(f"{engine}: {part} of a large file differs")


def check_scale(lib, failures):
    """A dense array of 2^40 cells in four million chunks, of which two are written: boxes in h5py, with little memory."""
    with tempfile.TemporaryDirectory() as folder:
        side, tile = 1 << 20, 512
        axes = [Dim(name, "INT32", 0, side - 1, tile) for name in "yx"]
        uri = os.path.join(folder, "huge")
        lib.create(uri, Schema("dense", axes, [Attr("a", "INT64", pipeline=ZSTD), Attr("b", "FLOAT32", nullable=True, pipeline=ZSTD)]))
        count = tile * tile
        columns = {"a": Column(np.arange(count, dtype="i8").view("u1")), "b": Column(np.ones(count, "f4").view("u1"), None, np.ones(count, "u1"))}
        for first in (0, side - tile):
            lib.write(uri, columns, ranges=[np.array([first, first + tile - 1], "i4")] * 2)
        point = os.path.join(folder, "mnt")
        os.mkdir(point)
        process = subprocess.Popen([binary(), "mount", "-f", "--cache-size", "64M", uri, point], stdin=subprocess.DEVNULL)
        try:
            deadline = time.time() + 60
            while not os.path.ismount(point) and time.time() < deadline:
                time.sleep(0.05)
            path = os.path.join(point, "data/array.nc")
            start = time.time()
            size = os.stat(path).st_size
            with h5py.File(path) as file:
                data = file["a"]
                shape = data.shape
                first, last = data[5:8, : 2 * tile], data[side - 2 :, side - 700 :]
            seconds = time.time() - start
            fill = np.full((3, tile), -(2**63))
            good = shape == (side, side) and (first[:, :tile] == np.arange(count).reshape(tile, tile)[5:8]).all() and (first[:, tile:] == fill).all()
            good = good and (last[:, -tile:] == np.arange(count).reshape(tile, tile)[-2:]).all() and (last[:, :-tile] == fill[0, 0]).all()
            peak = int(next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1]) >> 10
            if not good or size < 2**40 * 13:
                failures.append(f"2^40 cells: the boxes differ, or the size is not right: {shape}, {size}")
            if peak > 64 + 128:
                failures.append(f"2^40 cells: {peak} MiB in memory")
            print(f"2^40 cells, {size:,} bytes: two boxes in {seconds:.1f} s, at most {peak} MiB in memory")
        finally:
            unmount(point)
            process.wait(timeout=60)


def main():
    """Runs all."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    start, lib = time.time(), Lib()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        writer = Writer(lib, root)
        for write in (write_names, write_extremes, write_texts, write_holes, write_labels, write_metadata, write_axes, write_chunks):
            write(writer)
        with mounted(root) as point:
            comparison = Comparison(str(root), str(point), 1)
            for array in sorted(os.listdir(root)):
                comparison.array(array)
            check_example(root, point, comparison.failures)
            check_changes(root, point, comparison.failures)
        check_laziness(lib, root, comparison.failures)
        check_opening(lib, root, comparison.failures)
    check_scale(lib, comparison.failures)
    comparison.pairs["others"] = 5
    comparison.finish(start)


if __name__ == "__main__":
    main()
