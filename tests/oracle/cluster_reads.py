"""What each of several machines fetches from a store, and how they share a table: two mounts, each behind a counting proxy.

    python3 cluster_reads.py

"Needed" are the stored bytes of the columns asked for, in the tiles asked for, once; of an array that is merged also all coordinates, and all offsets
of text, by each mount. "Fetched" are those of the files of values and offsets, by all mounts. The last line is `N passed, N failed`.
"""

import contextlib
import re
import sys
import tempfile

import dask
import dask.dataframe
import duckdb
import numpy as np
import polars
import pyarrow.parquet
import tiledb
import zarr

from cluster_arrays import VALUES, stored, write_arrays
from mount import ROOT, mounted
from plain_tools import Checks
from proxy import Proxy
from stores import Moto

ROWS, COLUMNS = 4096, 512
CELLS = 400_000
SOURCE = "s3://cluster/arrays"
BOUND = 1.1
"""The most that a job may fetch, as a multiple of what it needs."""
MAPPED = 1.35
"""The same for who maps a file, as Polars does: the kernel reads 128 KiB ahead, into the next column."""


@contextlib.contextmanager
def two_mounts(moto):
    """Two mounts, with nothing cached, and a function that gives the bytes of values that both have fetched."""
    with Proxy(moto.host) as first, Proxy(moto.host) as second:
        with mounted(SOURCE, env=moto.env(first.host)) as one, mounted(SOURCE, env=moto.env(second.host)) as two:
            requests = lambda: [request for proxy in (first, second) for request in proxy.log]
            yield (one, two), lambda: sum(r.bytes for r in requests() if r.kind == "get" and re.search(VALUES, r.path))


def compare_groups(checks, moto):
    """Row groups are alike, small enough to be shared, and begin at tiles."""
    with two_mounts(moto) as (points, _):
        for name, cells, tile in ("grid", ROWS * COLUMNS, 64 * COLUMNS), ("events", CELLS, None):
            files = [pyarrow.parquet.ParquetFile(point / name / "data/table.parquet").metadata for point in points]
            rows, others = [[file.row_group(group).num_rows for group in range(file.num_row_groups)] for file in files]
            checks.equal(f"{name}: the row groups are the same on both mounts", rows, others)
            checks.equal(f"{name}: they have all cells", sum(rows), cells)
            most = max(1 << 16, cells // 16 + (tile or 0))
            checks.equal(f"{name}: none has more than {most} rows of {cells}", max(rows) <= most, True)
            if len(rows) >= 8:
                checks.equal(f"{name}: none has more than 1.3 of the mean: {rows}", max(rows) <= 1.3 * cells / len(rows), True)
            if tile:
                checks.equal(f"{name}: they begin at tiles", [count % tile for count in rows[:-1]], [0] * (len(rows) - 1))


def compare_fetched(checks, moto, folder):
    """Jobs as engines do them, on cold mounts."""
    a = stored(f"{folder}/grid", r"a0\.tdb")
    with tiledb.open(f"{folder}/grid") as array:
        values = array.query(attrs=["a"])[:]["a"]
    with tiledb.open(f"{folder}/events") as array:
        events = array.query(attrs=["host"])[:]
    hosts, times = events["host"], np.sort(events["time"])
    table = lambda point, name: str(point / name / "data/table.parquet")

    def job(what, needed, work, want, bound=BOUND):
        with two_mounts(moto) as (points, fetched):
            checks.equal(f"{what}: as TileDB-Py reads it", work(points), want)
            ratio = fetched() / needed
            checks.equal(f"{what}: fetched {fetched():,} of needed {needed:,}, {ratio:.2f}, bound {bound}", ratio <= bound, True)

    def by_dask(points, **options):
        """Each mount has its share of the partitions."""
        halves = [
            dask.dataframe.read_parquet(table(point, "grid"), columns=["a"], split_row_groups=True, **options).partitions[number :: len(points)]
            for number, point in enumerate(points)
        ]
        return [int(number) for number in dask.compute(sum(half["a"].count() for half in halves), sum(half["a"].sum() for half in halves), scheduler="sync")]

    groups = pyarrow_groups(moto)
    low, high = groups[len(groups) // 2]
    part = values[low : high + 1]
    job("Dask, split_row_groups", a, by_dask, [values.size, int(values.sum(dtype=np.int64))])
    job("Dask, a filter on one row group", a * len(part) // ROWS,
        lambda points: by_dask(points[:1], filters=[("y", ">=", low), ("y", "<=", high)]), [part.size, int(part.sum(dtype=np.int64))])
    job("DuckDB, a filter on one row group", a * len(part) // ROWS,
        lambda points: duckdb.sql(f"SELECT sum(a) FROM '{table(points[0], 'grid')}' WHERE y >= {low} AND y <= {high}").fetchall(), [(int(part.sum(dtype=np.int64)),)])
    job("pyarrow, a filter on one row group", a * len(part) // ROWS,
        lambda points: pyarrow.parquet.read_table(table(points[0], "grid"), columns=["a"], filters=[("y", ">=", low), ("y", "<=", high)])["a"].to_numpy().sum(dtype=np.int64),
        part.sum(dtype=np.int64))
    job("Polars, a filter on one row group", a * len(part) // ROWS,
        lambda points: polars.scan_parquet(table(points[0], "grid")).filter(polars.col("y").is_between(low, high)).select(polars.col("a").cast(polars.Int64).sum()).collect().item(),
        int(part.sum(dtype=np.int64)), bound=MAPPED)
    job("one row group, mapped", a * len(part) // ROWS,
        lambda points: pyarrow.parquet.ParquetFile(table(points[0], "grid"), memory_map=True).read_row_group(len(groups) // 2, columns=["a"])["a"].to_numpy().sum(dtype=np.int64),
        part.sum(dtype=np.int64), bound=MAPPED)
    job("one row group", a * len(part) // ROWS,
        lambda points: pyarrow.parquet.ParquetFile(table(points[0], "grid")).read_row_group(len(groups) // 2, columns=["a"])["a"].to_numpy().sum(dtype=np.int64),
        part.sum(dtype=np.int64))
    job("the footer", 1 << 16,
        lambda points: pyarrow.parquet.ParquetFile(table(points[0], "grid")).metadata.num_rows, values.size, bound=0)
    job("a subarray", a * len(part) // ROWS,
        lambda points: int(np.load(points[0] / f"grid/data/subarray/{low}..{high},/columns/a/data.npy").sum(dtype=np.int64)), int(part.sum(dtype=np.int64)))
    job("a box of array.zarr", a * len(part) // ROWS,
        lambda points: int(zarr.open_group(points[0] / "grid/data/array.zarr", mode="r")["a"][low : high + 1].sum(dtype=np.int64)), int(part.sum(dtype=np.int64)))

    def by_halves(points):
        """Each mount has every second row group of the text."""
        found = []
        for number, point in enumerate(points):
            file = pyarrow.parquet.ParquetFile(table(point, "events"))
            found += file.read_row_groups(range(number, file.num_row_groups, 2), columns=["host"])["host"].to_pylist()
        return sorted(found)

    with two_mounts(moto) as (points, _):
        file = pyarrow.parquet.ParquetFile(table(points[0], "events")).metadata
        rows = np.cumsum([0] + [file.row_group(group).num_rows for group in range(file.num_row_groups)])
    spans = [(times[low], times[high - 1]) for low, high in zip(rows, rows[1:])]
    tiles = [[box[0] for box in boxes] for boxes in tiledb.array_fragments(f"{folder}/events", include_mbrs=True).mbrs]
    met = sum(any(first <= high and low <= last for first, last in spans[half::2]) for boxes in tiles for low, high in boxes for half in range(2))
    text = stored(f"{folder}/events", r"a0_var\.tdb") * met // sum(map(len, tiles))
    job("text of a merged array", 2 * stored(f"{folder}/events", r"[ad]0\.tdb") + text, by_halves, sorted(text.decode() if isinstance(text, bytes) else text for text in hosts))


def pyarrow_groups(moto):
    """The first and the last `y` of each row group of `grid`."""
    with two_mounts(moto) as (points, _):
        file = pyarrow.parquet.ParquetFile(points[0] / "grid/data/table.parquet").metadata
        bounds = [file.row_group(group).column(0).statistics for group in range(file.num_row_groups)]
        return [(bound.min, bound.max) for bound in bounds]


def compare_page(checks):
    """docs/cluster.md shows the recipes as they are in examples/cluster."""
    page = (ROOT / "docs/cluster.md").read_text()
    shown = dict(re.findall(r"^```\w+\n# examples/cluster/(\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    recipes = [path for path in sorted((ROOT / "examples/cluster").iterdir()) if path.suffix in (".py", ".conf", ".sh")]
    checks.equal("docs/cluster.md shows every recipe", sorted(shown), [path.name for path in recipes])
    for path in recipes:
        # Without the documentation at its beginning, which the page has in its own words.
        text = re.sub(r'\A""".*?"""\n+', "", path.read_text(), flags=re.DOTALL)
        checks.equal(f"docs/cluster.md shows {path.name} as it is", shown.get(path.name), text)


def main():
    """Runs all of it."""
    checks = Checks()
    compare_page(checks)
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder, Moto() as moto:
        write_arrays(folder, ROWS, COLUMNS, 64, CELLS, 4096)
        moto.load("cluster", "arrays", folder)
        compare_groups(checks, moto)
        compare_fetched(checks, moto, folder)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
