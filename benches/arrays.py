"""The arrays that benches/compare.py measures, made with libtiledb and kept from run to run."""

import pathlib
import re
import shutil
import sys

import numpy as np
import tiledb

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests/oracle"))
import remote_requests  # noqa: E402

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
    "amounts": lambda random, count: np.round(100 * random.normal(size=count), 2),
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
    """A column of FLOAT64 with ZSTD that holds values of another kind. ZSTD makes 111 MiB of 256 MiB of amounts."""
    name = f"zstd-{re.sub('[^a-z0-9]+', '-', kind)}-{size // MIB}"
    return cached(folder, name, lambda path: column(path, "float64", [tiledb.ZstdFilter()], kind, size))


def many_columns(folder, codec, size, attributes=16):
    """One array of several attributes with ZSTD or BZIP2."""
    codec_filter = {"zstd": tiledb.ZstdFilter, "bzip2": tiledb.Bzip2Filter}[codec]
    make = lambda path: column(path, "float64", [codec_filter()], "measurements", size, attributes)
    return cached(folder, f"attributes-{attributes}-{codec}-{size // MIB}", make)


def cells(folder, count):
    """A dense vector of `count` bytes in tiles of a MiB."""

    def make(path):
        extent = min(MIB, count)
        domain = tiledb.Domain(tiledb.Dim("d", domain=(0, count - 1), tile=extent, dtype="uint64"))
        attr = tiledb.Attr("a", dtype="uint8", filters=F([tiledb.ZstdFilter()]))
        tiledb.Array.create(str(path), tiledb.ArraySchema(domain=domain, attrs=[attr]))
        with tiledb.open(str(path), "w") as array:
            array[:] = np.resize(values("whole numbers below 1,000", 16 * MIB) & 0x3F, count).astype("uint8")

    return cached(folder, f"cells-{count}", make)


def fields(folder, count, cells):
    """A dense vector of `count` attributes."""

    def make(path):
        domain = tiledb.Domain(tiledb.Dim("d", domain=(0, cells - 1), tile=cells, dtype="uint64"))
        names = [f"a{i:04}" for i in range(count)]
        attrs = [tiledb.Attr(name, dtype="float64", filters=F([tiledb.ZstdFilter()])) for name in names]
        tiledb.Array.create(str(path), tiledb.ArraySchema(domain=domain, attrs=attrs))
        data = values("measurements", cells)
        with tiledb.open(str(path), "w") as array:
            array[:] = data if count == 1 else {name: data for name in names}

    return cached(folder, f"fields-{count}-{cells}", make)


def sparse_schema(capacity):
    domain = tiledb.Domain(tiledb.Dim("d", domain=(0, (1 << 62)), tile=1 << 20, dtype="int64"))
    attrs = [tiledb.Attr("a", dtype="float64", filters=F([tiledb.ZstdFilter()]))]
    return tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, capacity=capacity)


def appended(folder, fragments, cells):
    """A sparse vector in fragments of `cells` cells, each behind the one before."""

    def make(path):
        tiledb.Array.create(str(path), sparse_schema(1000))
        for i in range(fragments):
            with tiledb.open(str(path), "w", timestamp=i + 1) as array:
                array[np.arange(cells) + cells * i] = np.arange(cells, dtype="float64")

    return cached(folder, f"appended-{fragments}-{cells}", make)


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


def copied_fragments(folder, count):
    """An array of `count` fragments of one cell, all copies of one; and the same with metadata and commits consolidated."""
    whole = cached(folder, f"copies-{count}", lambda path: (path.mkdir(), remote_requests.write_many(path, count)))
    return whole / "many", whole / "consolidated"


def group(folder):
    """A group of 26 arrays."""
    return cached(folder, "members-26", lambda path: (path.mkdir(), remote_requests.write_group(path))) / "group"


def wide_table(folder):
    """A dense table of twenty columns of FLOAT64."""
    return cached(folder, "wide-table", lambda path: remote_requests.write_table(str(path), tiledb.default_ctx()))


def grid_schema(side):
    dims = [tiledb.Dim(name, domain=(0, side - 1), tile=min(512, side), dtype="int32") for name in "yx"]
    filters = F([tiledb.ByteShuffleFilter(), tiledb.ZstdFilter()])
    return tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[tiledb.Attr("a", dtype="float32", filters=filters)])


def grid(folder, size, fragments):
    """A dense square of FLOAT32 in 512 x 512 tiles: one write of all, then `fragments - 1` boxes of a quarter of it each."""
    side = int((size // 4) ** 0.5)

    def make(path):
        tiledb.Array.create(str(path), grid_schema(side))
        random = np.random.default_rng(FILL)
        for i in range(fragments):
            with tiledb.open(str(path), "w", timestamp=i + 1) as array:
                height = side if i == 0 else side // 2
                y, x = (random.integers(0, side - height + 1) for _ in range(2))
                # Measurements of a field: neighbours differ little.
                data = 20 + np.cumsum(random.normal(0, 0.02, (height, height)), axis=1)
                array[y : y + height, x : x + height] = np.round(data, 2).astype("float32")

    return cached(folder, f"grid-{side}-{fragments}", make)


def line_schema():
    zstd = F([tiledb.ZstdFilter()])
    domain = tiledb.Domain(tiledb.Dim("d", domain=(0, 1 << 40), tile=1 << 20, dtype="int64", filters=zstd))
    attrs = [tiledb.Attr("a", dtype="float64", filters=zstd), tiledb.Attr("b", dtype="int32", filters=zstd)]
    return tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, capacity=100_000)


def line(folder, cells, fragments):
    """A sparse vector in `fragments` fragments, each behind the one before."""

    def make(path):
        tiledb.Array.create(str(path), line_schema())
        each = cells // fragments
        for i in range(fragments):
            with tiledb.open(str(path), "w", timestamp=i + 1) as array:
                array[np.arange(each) * 3 + i * each * 3] = {
                    "a": values("measurements", each, FILL + i),
                    "b": values("whole numbers below 1,000", each, FILL + i).astype("int32"),
                }

    return cached(folder, f"line-{cells}-{fragments}", make)


def points(folder, cells, fragments):
    """A sparse square of points at random, in `fragments` fragments that all cover all of it."""

    def make(path):
        zstd = F([tiledb.ZstdFilter()])
        side = 100_000
        dims = [tiledb.Dim(name, domain=(0, side - 1), tile=1000, dtype="int32", filters=zstd) for name in "yx"]
        attrs = [tiledb.Attr("a", dtype="float64", filters=zstd), tiledb.Attr("b", dtype="int32", filters=zstd)]
        schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=attrs, sparse=True, allows_duplicates=False)
        tiledb.Array.create(str(path), schema)
        random = np.random.default_rng(FILL)
        each = cells // fragments
        for i in range(fragments):
            # Distinct places: the product of the domain is 10^10.
            places = np.unique(random.integers(0, side * side, each + each // 100))
            places = random.permutation(places)[:each]
            with tiledb.open(str(path), "w", timestamp=i + 1) as array:
                array[places // side, places % side] = {
                    "a": values("measurements", each, FILL + i),
                    "b": values("whole numbers below 1,000", each, FILL + i).astype("int32"),
                }

    return cached(folder, f"points-{cells}-{fragments}", make)


def table(folder, rows):
    """A sparse table of six columns and one fragment: a row number, a time, two numbers, a flag and a short text."""

    def make(path):
        zstd = F([tiledb.ZstdFilter()])
        domain = tiledb.Domain(tiledb.Dim("row", domain=(0, 1 << 40), tile=1 << 20, dtype="int64", filters=zstd))
        attrs = [
            tiledb.Attr("time", dtype="datetime64[us]", filters=zstd),
            tiledb.Attr("price", dtype="float64", filters=zstd),
            tiledb.Attr("quantity", dtype="int32", filters=zstd),
            tiledb.Attr("flag", dtype="uint8", filters=zstd),
            tiledb.Attr("symbol", dtype="ascii", var=True, filters=zstd),
        ]
        tiledb.Array.create(
            str(path), tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, capacity=100_000)
        )
        random = np.random.default_rng(FILL)
        symbols = np.array([f"SYM{i:03}" for i in range(200)], dtype="S6")
        with tiledb.open(str(path), "w") as array:
            array[np.arange(rows)] = {
                "time": values("times", rows).astype("datetime64[us]"),
                "price": values("measurements", rows),
                "quantity": random.integers(0, 1000, rows).astype("int32"),
                "flag": random.integers(0, 2, rows).astype("uint8"),
                "symbol": random.choice(symbols, rows).astype("S6"),
            }

    return cached(folder, f"table-{rows}", make)


def records(folder, rows, kind, rich):
    """A sparse table of numbers in one fragment, or in four that are appended or interleaved; `rich` ones have text,
    labels, dates and nulls."""

    def make(path):
        zstd = F([tiledb.ZstdFilter()])
        domain = tiledb.Domain(tiledb.Dim("id", domain=(0, 1 << 40), tile=1 << 20, dtype="int64", filters=zstd))
        attrs = [
            tiledb.Attr("price", dtype="float64", filters=zstd),
            tiledb.Attr("amount", dtype="int32", nullable=rich, filters=zstd),
            tiledb.Attr("side", dtype="uint8", enum_label="sides" if rich else None, filters=zstd),
        ]
        if rich:
            attrs += [
                tiledb.Attr("day", dtype="datetime64[D]", filters=zstd),
                tiledb.Attr("text", dtype="ascii", var=True, filters=zstd),
            ]
        enums = [tiledb.Enumeration("sides", False, ["north", "east", "south", "west"])] if rich else None
        schema = tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, capacity=100_000, enums=enums)
        tiledb.Array.create(str(path), schema)
        random = np.random.default_rng(FILL)
        fragments = 1 if kind == "one fragment" else 4
        for i in range(fragments):
            ids = np.arange(i, rows, fragments) if kind == "interleaved" else np.arange(rows // fragments) + i * (rows // fragments)
            columns = {
                "price": values("measurements", ids.size, FILL + i),
                "amount": random.integers(0, 1000, ids.size).astype("int32"),
                "side": random.integers(0, 4, ids.size).astype("uint8"),
            }
            if rich:
                columns["day"] = (ids % 20_000).astype("datetime64[D]")
                columns["text"] = np.char.add("text ", (ids % 977).astype("U3")).astype("S8")
            with tiledb.open(str(path), "w", timestamp=i + 1) as array:
                array[ids] = columns

    return cached(folder, f"records-{kind.replace(' ', '-')}-{'rich' if rich else 'plain'}-{rows}", make)
