"""The arrays of which several machines read parts, and which of a store's bytes are their values."""

import glob
import os
import re

import numpy as np
import tiledb

VALUES = r"/__fragments/[^/]*/[ad]\d+(_var|_validity)?\.tdb"
"""Files of values and of offsets in a request's path."""


def write_arrays(folder, rows, columns, tile, events, capacity):
    """`grid`, dense, `rows` by `columns` in tiles of `tile` rows, with INT32 `a` and FLOAT32 `b`, and `events`, sparse, whose four fragments interleave."""
    random = np.random.default_rng(27)
    zstd = tiledb.FilterList([tiledb.ZstdFilter(3)])
    domain = tiledb.Domain(tiledb.Dim("y", (0, rows - 1), tile, dtype=np.int32), tiledb.Dim("x", (0, columns - 1), columns, dtype=np.int32))
    attributes = [tiledb.Attr("a", dtype=np.int32, filters=zstd), tiledb.Attr("b", dtype=np.float32, filters=zstd)]
    tiledb.Array.create(f"{folder}/grid", tiledb.ArraySchema(domain, attributes))
    with tiledb.open(f"{folder}/grid", "w") as array:
        shape = rows, columns
        array[:] = {"a": random.integers(0, 1 << 25, shape, np.int32), "b": random.integers(0, 1 << 17, shape).astype(np.float32)}

    domain = tiledb.Domain(tiledb.Dim("time", (0, 1 << 40), 1 << 20, dtype=np.int64))
    attributes = [tiledb.Attr("host", dtype="ascii", var=True, filters=zstd), tiledb.Attr("value", dtype=np.int32, filters=zstd)]
    schema = tiledb.ArraySchema(domain, attributes, sparse=True, capacity=capacity, coords_filters=zstd, offsets_filters=zstd)
    tiledb.Array.create(f"{folder}/events", schema)
    hosts = np.array([f"host-{number:04}" for number in range(1000)], dtype="S")
    times = np.sort(random.choice(1 << 32, events, replace=False))
    for part in range(4):
        mine = times[part::4]
        with tiledb.open(f"{folder}/events", "w") as array:
            array[mine] = {"host": hosts[random.integers(0, 1000, len(mine))], "value": random.integers(0, 1 << 20, len(mine), np.int32)}


def stored(array, pattern):
    """The stored bytes of the files of an array's fragments whose whole name fits."""
    return sum(os.path.getsize(path) for path in glob.glob(f"{array}/__fragments/*/*") if re.fullmatch(pattern, os.path.basename(path)))
