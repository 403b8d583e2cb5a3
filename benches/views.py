"""Rows on views: the array as TileDB reads it, in whole, in part, and as it was."""

import json
import random
import subprocess
import sys

import arrays
from bench import CORES, MIB, cat, fragment, median, seconds, stats, timed, warm

# What a row that is measured inside of Python runs on both sides: it prints the seconds after the imports.
INSIDE = """
import sys, time, {imports}
path = sys.argv[1]
start = time.perf_counter()
{body}
print(time.perf_counter() - start)
"""


def inside(imports, body, path):
    return float(timed([sys.executable, "-c", INSIDE.format(imports=imports, body=body), path])[1])


def discarded(command):
    """Wall seconds of a command whose output goes to /dev/null, as that of `cat` does."""
    return timed(command, stdout=subprocess.DEVNULL)[0]


def whole(code, path):
    """Wall seconds of a Python that reads with TileDB-Py and writes what it read to stdout."""
    return discarded([sys.executable, "-c", code, path])


def compare(bench, what, path, ours, theirs, target, arguments=(), rounds=None):
    """A row: `ours(mountpoint)` on a fresh mount each round against `theirs()`, both in seconds."""
    warm(path)
    pairs = []
    for _ in range(rounds or bench.rounds):
        with bench.mounted(path, *arguments, name=what) as (mountpoint, _):
            pairs.append((ours(mountpoint), theirs()))
    bench.row(what, f"{seconds(median([o for o, _ in pairs]))} against {seconds(median([t for _, t in pairs]))}",
              median([o / t for o, t in pairs]), target)


READ_GRID = """
import sys, tiledb
with tiledb.open(sys.argv[1]{options}) as a:
    sys.stdout.buffer.write(a.query(attrs=["a"])[:]["a"].data)
"""
READ_SPARSE = """
import sys, tiledb
with tiledb.open(sys.argv[1]) as a:
    for column in a.query({options})[:].values():
        sys.stdout.buffer.write(column.data)
"""


def cat_columns(folder):
    """Wall seconds of a shell that finds all columns and reads them: the first look at one merges what interleaves."""
    return discarded(["sh", "-c", 'cat "$0"/columns/*/data.bin', folder])


def dense(bench):
    """Dense views in whole, and as they were."""
    for fragments in [1, 10]:
        path = arrays.grid(bench.folder, bench.size, fragments)
        compare(bench, f"cat data/ of a dense array of {fragments} fragments", path,
                lambda mountpoint: cat(mountpoint / "data/columns/a/data.bin")[0],
                lambda: whole(READ_GRID.format(options=""), path), 0.5)
    compare(bench, "time travel to the first of 10 fragments", path,
            lambda mountpoint: cat(mountpoint / "at/1/data/columns/a/data.bin")[0],
            lambda: whole(READ_GRID.format(options=", timestamp=1"), path), 0.5)
    path = arrays.grid(bench.folder, bench.size, 1)
    ratios = []
    for _ in range(bench.rounds):
        with bench.mounted(path) as (mountpoint, _):
            column = cat(fragment(mountpoint) / "columns/a/data.bin")[0]
        with bench.mounted(path) as (mountpoint, _):
            ratios.append(column / cat(mountpoint / "data/columns/a/data.bin")[0])
    bench.row("dense view of one fragment, in throughput of its fragment's column", "", median(ratios), 0.8, at_least=True)


def box(bench):
    """A box of a dense array, and rows of it at random."""
    path = arrays.grid(bench.folder, bench.size, 10)
    side = int((bench.size // 4) ** 0.5)
    low, high = side // 3, side // 3 + 999
    compare(bench, "a box of 1000 x 1000, by numpy.load", path,
            lambda mountpoint: inside("numpy", "numpy.load(path)", mountpoint / f"data/subarray/y:{low}..{high},x:{low}..{high}/columns/a/data.npy"),
            lambda: inside("tiledb", f"tiledb.open(path)[{low}:{high + 1}, {low}:{high + 1}]['a']", path), 0.8)
    rows = random.Random(7).choices(range(side), k=300)
    compare(bench, "300 rows at random, by mmap", path,
            lambda mountpoint: inside("numpy", f"a = numpy.load(path, mmap_mode='r')\nfor y in {rows}: a[y].sum()",
                                      mountpoint / "data/columns/a/data.npy"),
            lambda: inside("tiledb", f"a = tiledb.open(path)\nfor y in {rows}: a[y]['a'].sum()", path), 0.1)


def sparse(bench):
    """Sparse views: fragments one behind the other, and fragments all over each other."""
    cells = 8_000_000 * bench.size // (256 * MIB)
    path = arrays.line(bench.folder, cells, 20)
    compare(bench, "cat all columns of 20 appended fragments", path,
            lambda mountpoint: cat_columns(mountpoint / "data"),
            lambda: whole(READ_SPARSE.format(options=""), path), 0.5)
    path = arrays.points(bench.folder, cells, 20)
    compare(bench, "cat all columns of 20 interleaved fragments", path,
            lambda mountpoint: cat_columns(mountpoint / "data"),
            lambda: whole(READ_SPARSE.format(options="order='G'"), path), 0.05, rounds=1)
    low, high = 40_000, 49_999
    compare(bench, "a box of a hundredth of 20 interleaved fragments, by numpy.load", path,
            lambda mountpoint: inside("numpy", "for name in 'yxab': numpy.load(f'{path}/{name}/data.npy')",
                                      mountpoint / f"data/subarray/y:{low}..{high},x:{low}..{high}/columns"),
            lambda: inside("tiledb", f"a = tiledb.open(path)\na.multi_index[{low}:{high}, {low}:{high}]", path), 0.8)
    first, second, shares = [], [], []
    for _ in range(bench.rounds):
        with bench.mounted(path) as (mountpoint, _):
            start = stats(mountpoint)["chunks_decoded"]
            took = timed(["stat", mountpoint / "data/columns/a/data.bin"])[0]
            decoded = stats(mountpoint)["chunks_decoded"]
            timed(["stat", mountpoint / "data/columns/b/data.bin"])
            first.append(took)
            second.append(stats(mountpoint)["chunks_decoded"] - decoded)
    bench.row(f"first stat of a merged column of {cells} cells (s)", f"{decoded - start} chunks", median(first), 0.5)
    bench.row("chunks decoded by a second stat", "", max(second), 0)
    for _ in range(bench.rounds):
        alone = 0
        with bench.mounted(path) as (mountpoint, _):
            files = [file.relative_to(mountpoint) for file in sorted(mountpoint.glob("fragments/*/columns/*/data.bin"))]
        for file in files:
            alone += json.loads(timed([bench.examples / "decode", path, file, CORES])[1])["wall"]
        with bench.mounted(path) as (mountpoint, _):
            shares.append(alone / cat_columns(mountpoint / "data"))
    bench.row("merged sparse view, in throughput of decoding its columns alone", "", median(shares), 0.5, at_least=True)


def listing(bench):
    """ls -l data/ of very many fragments that do not overlap."""
    count = 10_000
    path = arrays.appended(bench.folder, count, 100)
    compare(bench, f"ls -l data/ of {count} fragments against opening it", path,
            lambda mountpoint: timed(["ls", "-l", mountpoint / "data"])[0],
            lambda: inside("tiledb", "tiledb.open(path)", path), 0.3)


ROWS = {"dense": dense, "box": box, "sparse": sparse, "listing": listing}
