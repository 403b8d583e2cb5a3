"""Rows on exports: what people open here against what they build on TileDB-Py."""

import pathlib
import subprocess
import sys
import tempfile

import arrays
from bench import MIB, cat, median, seconds
from views import compare, inside, whole


def parquet(bench):
    """DuckDB on table.parquet."""
    rows = 4_000_000 * bench.size // (256 * MIB)
    path = arrays.table(bench.folder, rows)
    low, high = rows // 4, rows // 2 - 1
    queries = {
        "a filtered mean": (f"avg(price) FROM % WHERE row BETWEEN {low} AND {high}", f"attrs=['price'], dims=['row']", f"{low}:{high}"),
        "a group-by over all rows": ("symbol, avg(price) FROM % GROUP BY symbol", "attrs=['symbol', 'price'], dims=[]", ":"),
    }
    for what, (query, columns, span) in queries.items():
        fetch = f"duckdb.sql(\"SELECT {query}\").fetchall()"
        ours = fetch.replace("%", "'{}'").replace(").fetchall", ".format(path)).fetchall")
        theirs = f"arrow = tiledb.open(path).query({columns}, return_arrow=True).df[{span}]\n" + fetch.replace("%", "arrow")
        compare(bench, f"DuckDB on table.parquet: {what}", path,
                lambda mountpoint: inside("duckdb", ours, mountpoint / "data/table.parquet"),
                lambda: inside("duckdb, pyarrow, tiledb", theirs, path), 0.8)


TO_CSV = """
import sys, tiledb
with tiledb.open(sys.argv[1]) as a:
    a.df[:].to_csv(sys.stdout, index=False)
"""


def csv(bench):
    """A table as CSV, against pandas."""
    rows = 4_000_000 * bench.size // (256 * MIB)
    path = arrays.table(bench.folder, rows)
    compare(bench, f"{rows} rows as CSV", path, lambda mountpoint: cat(mountpoint / "data/table.csv")[0],
            lambda: whole(TO_CSV, path), 0.1, arguments=["--csv-values", str(6 * rows)])


def imported_later(imports, body, path):
    """What `body` imports besides: xarray leaves 41 modules to its first use, which take it 150 ms."""
    code = f"import sys, {imports}\npath = sys.argv[1]\nbefore = set(sys.modules)\n{body}\nprint(*sorted(set(sys.modules) - before), sep=', ')"
    return subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True).stdout.strip()


def xarray(bench):
    """xarray on array.zarr and array.nc, and on plain copies of both; the imports are not counted."""
    path = arrays.grid(bench.folder, bench.size, 10)
    low = int((bench.size // 4) ** 0.5) // 3
    box = f"[{low}:{low + 1000}, {low}:{low + 1000}]"
    libraries = "dask, netCDF4, xarray, zarr"
    for name, load, most, least in [("array.zarr", "open_zarr(path)", None, 0.8), ("array.nc", "open_dataset(path)", 1.3, None)]:
        mean = f"float(xarray.{load}['a']{box}.mean())"
        with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-", dir=bench.folder) as copies:
            copy = pathlib.Path(copies) / name
            with bench.mounted(path) as (mountpoint, _):
                subprocess.run(["cp", "-r", mountpoint / "data" / name, copies], check=True)
            imports = f"{libraries}, {imported_later(libraries, mean, copy)}"
            pairs = []

            def ours(mountpoint):
                pairs.append((inside(imports, mean, copy), inside(imports, mean, mountpoint / "data" / name)))
                return pairs[-1][1]

            compare(bench, f"mean over a box of 1000 x 1000, xarray on {name}", path, ours,
                    lambda: inside("tiledb", f"float(tiledb.open(path){box}['a'].mean())", path), most)
        bench.row(f"  a copy of {name} on a disk, against that", seconds(median([plain for plain, _ in pairs])),
                  median([plain / took for plain, took in pairs]), least, at_least=True)


ROWS = {"parquet": parquet, "csv": csv, "xarray": xarray}
