"""The arrays that benches/compare.py measures, made with libtiledb and kept from run to run."""

import pathlib
import re
import shutil

import numpy as np
import tiledb

MIB = 1 << 20
FILL = 0x5EED

F = tiledb.FilterList
COLUMNS = {
    # name: (dtype, filters, values)
    "plain": ("float64", [], "measurements"),
    "delta": (
        "int64",
        [tiledb.PositiveDeltaFilter(), tiledb.BitWidthReductionFilter(), tiledb.ZstdFilter()],
        "times",
    ),
    "zstd": ("float64", [tiledb.ZstdFilter()], "measurements"),
    "lz4": ("float64", [tiledb.LZ4Filter()], "measurements"),
    "gzip": ("float64", [tiledb.GzipFilter()], "measurements"),
    "shuffle": ("float64", [tiledb.ByteShuffleFilter(), tiledb.ZstdFilter()], "measurements"),
    "double-delta": ("int64", [tiledb.DoubleDeltaFilter()], "times"),
}


VALUES = {
    # A random walk, to two decimals.
    "measurements": lambda random, count: np.round(20 + np.cumsum(random.normal(0, 0.02, count)), 2),
    # Microseconds of events that come about a millisecond apart.
    "times": lambda random, count: 1_700_000_000_000_000 + np.cumsum(random.integers(900, 1100, count)),
    "whole numbers below 1,000": lambda random, count: random.integers(0, 1000, count),
    "single precision": lambda random, count: random.normal(size=count).astype("float32"),
    "all digits": lambda random, count: random.normal(size=count),
}
OTHER_FLOATS = ["whole numbers below 1,000", "single precision", "all digits"]


def values(kind, count, seed=FILL):
    return VALUES[kind](np.random.default_rng(seed), count)


def cached(folder, name, make):
    """The array `name`, made by `make(path)` unless an earlier run has."""
    path = pathlib.Path(folder) / name
    done = path.with_name(path.name + ".done")
    if not done.exists():
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"making {name}", flush=True)
        make(path)
        done.touch()
    return path


def column(path, dtype, filters, kind, size, attributes=1):
    """A dense vector of `size` bytes an attribute, in tiles of 1 MiB."""
    count = size // 8
    extent = min(MIB // 8, count)
    domain = tiledb.Domain(tiledb.Dim("d", domain=(0, count - 1), tile=extent, dtype="uint64"))
    names = ["a"] if attributes == 1 else [f"a{i:02}" for i in range(attributes)]
    attrs = [tiledb.Attr(name, dtype=dtype, filters=F(filters)) for name in names]
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain=domain, attrs=attrs))
    with tiledb.open(str(path), "w") as array:
        data = [values(kind, count, FILL + i).astype(dtype) for i in range(attributes)]
        array[:] = data[0] if attributes == 1 else dict(zip(names, data))


def columns(folder, name, size):
    dtype, filters, kind = COLUMNS[name]
    return cached(folder, f"{name}-{size // MIB}", lambda path: column(path, dtype, filters, kind, size))


def other_floats(folder, kind, size):
    """A column of FLOAT64 with ZSTD that holds values of another kind."""
    name = f"zstd-{re.sub('[^a-z0-9]+', '-', kind)}-{size // MIB}"
    return cached(folder, name, lambda path: column(path, "float64", [tiledb.ZstdFilter()], kind, size))


def many_columns(folder, codec, size, attributes=16):
    """One array of several attributes with ZSTD or BZIP2."""
    codec_filter = {"zstd": tiledb.ZstdFilter, "bzip2": tiledb.Bzip2Filter}[codec]
    make = lambda path: column(path, "float64", [codec_filter()], "measurements", size, attributes)
    return cached(folder, f"attributes-{attributes}-{codec}-{size // MIB}", make)


def sparse_schema(capacity):
    domain = tiledb.Domain(tiledb.Dim("d", domain=(0, (1 << 62)), tile=1 << 20, dtype="int64"))
    attrs = [tiledb.Attr("a", dtype="float64", filters=F([tiledb.ZstdFilter()]))]
    return tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, capacity=capacity)


def fragments(folder, count):
    """A sparse array of `count` fragments of ten cells."""

    def make(path):
        tiledb.Array.create(str(path), sparse_schema(1000))
        for i in range(count):
            with tiledb.open(str(path), "w", timestamp=i + 1) as array:
                array[np.arange(10) + 10 * i] = np.arange(10, dtype="float64")

    return cached(folder, f"fragments-{count}", make)


def tiles(folder, count):
    """A sparse array of one fragment of `count` tiles of two cells."""

    def make(path):
        tiledb.Array.create(str(path), sparse_schema(2))
        with tiledb.open(str(path), "w") as array:
            array[np.arange(2 * count)] = values("measurements", 2 * count)

    return cached(folder, f"tiles-{count}", make)


def many_arrays(folder, count):
    """`count` copies of a small array of two attributes and one fragment."""

    def make(path):
        path.mkdir()
        first = path / "a00000"
        column(first, "float64", [tiledb.ZstdFilter()], "measurements", 8000, 2)
        for i in range(1, count):
            shutil.copytree(first, path / f"a{i:05}")

    return cached(folder, f"arrays-{count}", make)
