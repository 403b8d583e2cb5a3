"""Whatever a directory lists can be looked up: `stat` never says that it does not exist.

    python3 listed.py [--share I/N] [FOLDER ...]

walks arrays of many kinds, made with libtiledb, and every N-th directory of each FOLDER from the I-th on: listings of arrays, views,
past states and exports. Chunks, fragments and the files of columns are left out. The last line is `N passed, N failed`.
"""

import argparse
import errno
import itertools
import os
import stat
import sys
import tempfile

import numpy as np
import tiledb

from damage import Checks
from mount import mounted, stats

LEFT_OUT = {"fragments", "schemas", "c", ".tiledbfs"}
SUBARRAYS = ("0", "3..3", "0..0", "..", ",", "..,..", "1..2,0..1")
"""Parts that some of the arrays have."""


def create(path, dimensions, attributes, **options):
    """An array."""
    domain = tiledb.Domain(*(tiledb.Dim(f"d{i}", domain=(lo, hi), tile=tile, dtype=np.int64) for i, (lo, hi, tile) in enumerate(dimensions)))
    tiledb.Array.create(path, tiledb.ArraySchema(domain, attributes, **options))


def make(folder):
    """Arrays of many kinds: of no, one and more fragments, small and immense, dense and sparse, of all kinds of fields."""
    number, text = tiledb.Attr("n", dtype=np.int32, nullable=True), tiledb.Attr("t", dtype="U", var=True)
    wide = tiledb.Attr("w", dtype=np.dtype([("", np.float32)] * 3))
    blob = tiledb.Attr("b", dtype="blob", var=True)
    for name, attributes in (("plain", [tiledb.Attr("a", dtype=np.uint8)]), ("number", [number]), ("text", [text]), ("mixed", [number, text, wide]), ("blob", [blob])):
        for sparse, rank in itertools.product((False, True), (1, 2, 3)):
            path = os.path.join(folder, f"empty_{name}_{'sparse' if sparse else 'dense'}_{rank}")
            create(path, [(0, 7, 2)] * rank, attributes, sparse=sparse)
    for rank in (1, 2, 3):
        path = os.path.join(folder, f"written_{rank}")
        create(path, [(0, 7, 4)] * rank, [tiledb.Attr("a", dtype=np.uint8), tiledb.Attr("f", dtype=np.float64)])
        for stamp in (10, 20):
            with tiledb.open(path, "w", timestamp=stamp) as array:
                array[(slice(0, 4),) * rank] = {"a": np.ones((4,) * rank, np.uint8), "f": np.zeros((4,) * rank)}
    # Regions of so many cells that some exports do not exist.
    for bits in (27, 33, 36, 50, 62):
        for attribute in (tiledb.Attr("a", dtype=np.uint8), tiledb.Attr("a", dtype=np.float64)):
            path = os.path.join(folder, f"corners_{bits}_{attribute.dtype}")
            create(path, [(0, (1 << bits) - 1, 1 << (bits // 2))] if bits < 50 else [(0, (1 << bits // 2) - 1, 2)] * 2, [attribute])
            with tiledb.open(path, "w", timestamp=10) as array:
                rank = array.ndim
                for low in (0, int(array.schema.domain.dim(0).domain[1]) - 1):
                    array[(slice(low, low + 1),) * rank] = np.ones((1,) * rank, attribute.dtype)
    path = os.path.join(folder, "sparse_deletes")
    create(path, [(0, 99, 10)], [tiledb.Attr("a", dtype=np.int32)], sparse=True)
    with tiledb.open(path, "w", timestamp=10) as array:
        array[np.arange(20)] = np.arange(20, dtype=np.int32)
    with tiledb.open(path, "d", timestamp=20) as array:
        array.query(cond="a > 3").submit()


def states(folder):
    """The directories of views that are not listed."""
    for at in sorted(os.listdir(os.path.join(folder, "at")))[-3:] + ["1000000..", "..1"]:
        yield os.path.join(folder, "at", at)
    for part in SUBARRAYS:
        yield os.path.join(folder, "data/subarray", part)


def walk(checks, top):
    """Looks at everything that is listed below `top`."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            names = os.listdir(folder)
        except OSError as error:
            checks.equal(f"ls {folder}", error.errno in (errno.EIO, errno.EACCES), True)
            continue
        if {"schema.json", "fragments"} <= set(names):
            # `data` of an array that is mostly empty is not listed.
            more = [os.path.join(folder, "data")] if "data" not in names else []
            waiting += [path for path in itertools.chain(more, states(folder)) if os.path.isdir(path)]
        for name in set(names) - LEFT_OUT:
            path = os.path.join(folder, name)
            try:
                found = os.stat(path)
            except OSError as error:
                checks.equal(f"stat {path}", errno.errorcode[error.errno] in ("EIO", "EACCES"), True)
                continue
            checks.passed += 1
            if stat.S_ISDIR(found.st_mode):
                waiting.append(path)


ALIKE = 8
"""Arrays that look-ups are counted for."""
LOOKUPS = 11
"""Look-ups in the cache for each dense array of one attribute, below which everything is listed."""


def count(checks, folder):
    """A listing asks for nothing twice, in directories and in groups: what is in the cache is looked up a few times for each array."""
    for kind in ("directory", "group"):
        top = os.path.join(folder, kind)
        os.mkdir(top) if kind == "directory" else tiledb.Group.create(top)
        for number in range(ALIKE):
            create(f"{top}/v{number}", [(0, 7, 4)] * 2, [tiledb.Attr("a", dtype=np.float64)])
            with tiledb.open(f"{top}/v{number}", "w") as array:
                array[:] = np.zeros((8, 8))
        if kind == "group":
            with tiledb.Group(top, "w") as group:
                for number in range(ALIKE):
                    group.add(f"v{number}", name=f"v{number}", relative=True)
        with mounted(top) as point:
            before = stats(point)["cache_hits"]
            os.listdir(point)
            entries = {sum(len(below) + len(files) for _, below, files in os.walk(point / f"v{number}")) for number in range(ALIKE)}
            hits = stats(point)["cache_hits"] - before
            checks.equal(f"arrays in a {kind} have the same entries, and exports", (len(entries), min(entries) > 30), (1, True))
            checks.equal(f"look-ups for {ALIKE} arrays in a {kind}: {hits}, within bounds", 0 < hits <= LOOKUPS * ALIKE, True)


def tops(folder):
    """The arrays and groups below a folder that are in no other one: what is in them has other names in the mount."""
    found = []
    for above, below, _ in os.walk(folder, followlinks=True):
        if "__schema" in below or "__group" in below:
            found.append(above)
            below.clear()
    return sorted(found)


def main():
    """Walks all sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--share", default="1/1", metavar="I/N")
    args = parser.parse_args()
    first, step = map(int, args.share.split("/"))
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-listed-") as scratch:
        make(scratch)
        with mounted(scratch) as point:
            walk(checks, str(point))
        count(checks, scratch)
    for folder in args.folders:
        with mounted(folder) as point:
            for top in tops(folder)[first - 1 :: step]:
                walk(checks, str(point / os.path.relpath(top, folder)))
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
