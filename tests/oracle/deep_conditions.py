"""Deletes whose conditions are deep, held against libtiledb, which reads some 30,000 levels.

    python3 deep_conditions.py

The files of the conditions are written here, byte by byte, because clients of libtiledb do not write deep ones. The last line is
`N passed, N failed`.
"""

import json
import os
import struct
import sys
import tempfile

import numpy as np
import tiledb

from damage import Checks
from mount import errors, mounted

CELLS = 50
READ_BY_LIBTILEDB = (1, 2, 64, 65, 150, 1000, 20_000)
DEEPER = (70_000,)
"""As deep as a file of 2 MiB may be: libtiledb overflows its stack."""
NE = 5


def leaf(value):
    """`a != value`, for an INT32."""
    return struct.pack("<BBI", 1, NE, 1) + b"a" + struct.pack("<Qi", 4, value)


def condition(depth):
    """A condition of `depth` levels: AND and OR in turns, each with a comparison before the next level."""
    levels = (struct.pack("<BBQ", 0, level % 2, 2) + leaf(level % 7) for level in range(1, depth))
    return b"".join(levels) + leaf(3)


def kept(values, depth):
    """Which values the condition keeps."""
    inner = values != 3
    for level in range(depth - 1, 0, -1):
        own = values != level % 7
        inner = own | inner if level % 2 else own & inner
    return inner


def generic_tile(body):
    """A file of one unfiltered tile with one chunk."""
    chunk = struct.pack("<QIII", 1, len(body), len(body), 0) + body
    pipeline = struct.pack("<II", 65536, 0)
    return struct.pack("<IQQBQBI", 22, len(chunk), len(body), 4, 1, 0, len(pipeline)) + pipeline + chunk


def write(path, depth):
    """An array of `CELLS` cells, and a delete."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32))
    tiledb.Array.create(path, tiledb.ArraySchema(domain, [tiledb.Attr("a", dtype=np.int32)], sparse=True))
    with tiledb.open(path, "w", timestamp=10) as array:
        array[np.arange(CELLS)] = np.arange(CELLS, dtype=np.int32) % 9
    with open(os.path.join(path, "__commits", f"__20_20_{20:032x}_22.del"), "wb") as f:
        f.write(generic_tile(condition(depth)))


def main():
    """Compares all depths under one mount."""
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-deep-") as scratch:
        for depth in READ_BY_LIBTILEDB + DEEPER:
            write(os.path.join(scratch, str(depth)), depth)
        with mounted(scratch) as point:
            for depth in READ_BY_LIBTILEDB + DEEPER:
                array = point / str(depth)
                values = np.arange(CELLS, dtype=np.int32) % 9
                want = values[kept(values, depth)]
                if depth in READ_BY_LIBTILEDB:
                    with tiledb.open(os.path.join(scratch, str(depth))) as opened:
                        checks.equal(f"{depth} levels: libtiledb", opened[:]["a"].tolist(), want.tolist())
                checks.equal(f"{depth} levels: data", np.load(array / "data/columns/a/data.npy").tolist(), want.tolist())
                with open(array / "commits.json") as f:
                    entry = next(entry for entry in json.load(f) if entry["type"] == "del")
                comparisons = entry["text"].count("!=")
                checks.equal(f"{depth} levels: comparisons in the text", comparisons, depth)
                node, levels = entry["condition"], 1
                while "children" in node:
                    node, levels = node["children"][1], levels + 1
                checks.equal(f"{depth} levels: the tree", (levels, "text" in node), (min(depth, 61), depth > 61))
            checks.equal("no errors", errors(point), [])
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
