"""Programs that read URLs, on what `tiledbfs serve` shows: each reads what it reads from a mount, and fetches of a part of a file no more than
a part.

What a program fetches is counted by the server's log of requests. Programs that are not installed are told of and not run. The last line is
`N passed, N failed`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import fsspec
import h5py
import numpy as np
import obstore.store
import pyarrow.parquet
import tiledb
import xarray
import zarr

from mount import mounted
from plain_tools import Checks
from serve import serving

ROWS, COLUMNS = 2000, 1000
"""Of the array `grid`, which has two attributes of 8 bytes."""


def grid(folder):
    """Makes the array `grid`."""
    dimensions = [tiledb.Dim(name, domain=(0, size - 1), tile=100, dtype=np.int64) for name, size in (("y", ROWS), ("x", COLUMNS))]
    attributes = [tiledb.Attr(name, dtype=np.float64, filters=[tiledb.ZstdFilter()]) for name in ("a", "b")]
    path = os.path.join(folder, "grid")
    tiledb.Array.create(path, tiledb.ArraySchema(tiledb.Domain(*dimensions), attributes))
    cells = np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS)
    with tiledb.open(path, "w", timestamp=10) as array:
        array[:] = {"a": cells, "b": cells / 3}


class Log:
    """What was fetched since the last question, by the log of requests."""

    def __init__(self, path):
        self.path, self.read = path, 0

    def taken(self):
        text = self.path.read_text()
        lines, self.read = text[self.read:].splitlines(), len(text)
        requests = [line.split('"')[2].split() for line in lines]
        return len(requests), sum(int(sent) for _, sent in requests)


def libraries(checks, url, point, log):
    """Libraries of Python. Each returns what it has read: from the server and from the mount the same."""
    data = "grid/data/"
    part = (slice(150, 160), slice(20, 40))

    def zarr_through_fsspec(top):
        store = zarr.storage.FsspecStore.from_url(top, read_only=True) if top.startswith("http") else top
        return zarr.open_group(store, mode="r")["a"][part]

    def zarr_through_obstore(top):
        if not top.startswith("http"):
            return zarr.open_group(top, mode="r")["a"][part]
        store = obstore.store.HTTPStore.from_url(top, client_options={"allow_http": True})
        return zarr.open_group(zarr.storage.ObjectStore(store, read_only=True), mode="r")["a"][part]

    def xarray_of_zarr(top):
        with xarray.open_zarr(top, chunks=None, consolidated=None) as opened:
            return opened["a"][part].values

    def h5py_through_fsspec(path):
        with fsspec.open(path, block_size=1 << 16) as file, h5py.File(file) as opened:
            return opened["a"][part]

    def arrow(path):
        # fsspec reads 5 MiB ahead unless told not to.
        with fsspec.open(path, **({"cache_type": "none"} if path.startswith("http") else {})) as file:
            return pyarrow.parquet.read_table(file, columns=["a"])["a"].to_numpy()

    for name, read, path, most in [
        ("zarr through fsspec", zarr_through_fsspec, "array.zarr", 1 << 20),
        ("zarr through obstore", zarr_through_obstore, "array.zarr", 1 << 20),
        ("xarray of zarr", xarray_of_zarr, "array.zarr", 1 << 20),
        ("h5py through fsspec", h5py_through_fsspec, "array.nc", 2 << 20),
        ("pyarrow: a column of Parquet", arrow, "table.parquet", None),
    ]:
        expected = read(str(point / data / path))
        log.taken()
        got = read(url + data + path)
        requests, fetched = log.taken()
        print(f"{name}: {requests} requests, {fetched} bytes")
        checks.equal(name, np.array_equal(got, expected), True)
        most = most or (point / data / path).stat().st_size * 2 // 3
        checks.equal(f"{name} fetches a part", fetched < most, True)


IN_DUCKDB = """
import json, sys, duckdb
from duckdb_extensions import import_extension
connection = duckdb.connect()
import_extension("httpfs", con=connection)
connection.execute("LOAD httpfs")
print(json.dumps(connection.execute(sys.argv[1]).fetchall()))
"""


def duck(checks, url, point, log):
    """DuckDB's httpfs, in a Python that has it: the extension is of one release of DuckDB, and of PyPI."""
    python = os.environ.get("TILEDBFS_DUCKDB")
    if not python:
        print("DuckDB: not run, because TILEDBFS_DUCKDB names no Python that has httpfs")
        return
    for file, query in [
        ("table.parquet", "SELECT sum(b), count(*) FROM '{}' WHERE y = 150"),
        ("table.csv", "SELECT sum(a), count(*) FROM '{}'"),
    ]:
        path = f"grid/data/{file}"
        [expected] = duckdb.connect().execute(query.format(point / path)).fetchall()
        log.taken()
        with tempfile.TemporaryDirectory() as home:
            command = [python, "-c", IN_DUCKDB, query.format(url + path)]
            own = os.environ | {"HOME": home}
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=own)
        requests, fetched = log.taken()
        print(f"DuckDB, {file}: {requests} requests, {fetched} bytes")
        [got] = json.loads(done.stdout or "[[]]")
        # Threads add up the sums in their own order.
        checks.equal(f"DuckDB: {file}", np.allclose(got, expected, rtol=1e-12) if got else done.stderr, True)
        if file == "table.parquet":
            checks.equal("DuckDB fetches a part", fetched < (point / path).stat().st_size // 10, True)


def downloads(checks, url, point):
    """Programs that download."""
    column = "grid/data/columns/a/data.bin"
    with tempfile.TemporaryDirectory() as folder:
        for name, command in [
            ("aria2c", ["aria2c", "-q", "-x4", "-s4", "-k1M", "-d", folder, "-o", "aria2c", url + column]),
            ("rclone", ["rclone", "--config", "/dev/null", "copyto", f":http,url='{url}':{column}", f"{folder}/rclone"]),
            ("wget", ["wget", "-q", "-O", f"{folder}/wget", url + column]),
        ]:
            if not shutil.which(name):
                print(f"{name}: not run, because it is not installed")
                continue
            subprocess.run(command, capture_output=True, timeout=60)
            got = Path(folder, name)
            checks.equal(name, got.exists() and got.read_bytes() == (point / column).read_bytes(), True)


def in_r(checks, url, point):
    """R reads a table by its URL."""
    if not shutil.which("Rscript"):
        print("R: not run, because it is not installed")
        return
    path = "grid/data/head.csv"
    program = "a <- commandArgs(TRUE); t <- read.csv(a[1]); cat(nrow(t), identical(t, read.csv(a[2])))"
    command = ["Rscript", "--vanilla", "-e", program, url + path, str(point / path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    rows = len((point / path).read_text().splitlines()) - 1
    checks.equal("R: read.csv", done.stdout.split(), [str(rows), "TRUE"])


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        source, log = Path(folder, "source"), Path(folder, "log")
        source.mkdir()
        grid(source)
        with mounted(source) as point, serving(source, "--listen", "127.0.0.1:0", "--access-log", str(log)) as ([url], _):
            counted = Log(log)
            libraries(checks, url, point, counted)
            duck(checks, url, point, counted)
            downloads(checks, url, point)
            in_r(checks, url, point)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
