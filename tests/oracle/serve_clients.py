"""Programs that read URLs, on what `tiledbfs serve` shows: each reads what it reads from a mount, and fetches no more than a bound says.

What a program fetches is counted by the server's log of requests. Programs that are not installed are told of and not run. The last line is
`N passed, N failed`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import duckdb
import fsspec
import h5py
import numpy as np
import obstore.store
import pandas
import polars
import pyarrow.parquet
import rasterio
import tiledb
import xarray
import zarr
from rasterio.windows import Window

from mount import mounted
from plain_tools import Checks
from serve import serving

ROWS, COLUMNS = 2000, 1000
"""Of the array `grid`, which has two attributes of 8 bytes."""
PART = (slice(150, 160), slice(20, 40))
DATA = "grid/data/"
COLUMN, TABLE, TEXT, HEAD, IMAGE = "columns/a/data.bin", "table.parquet", "table.csv", "head.csv", "raster/a.tif"
KIB, MIB = 1 << 10, 1 << 20


def grid(folder):
    """Makes the array `grid`."""
    dimensions = [tiledb.Dim(name, domain=(0, size - 1), tile=100, dtype=np.int64) for name, size in (("y", ROWS), ("x", COLUMNS))]
    attributes = [tiledb.Attr(name, dtype=np.float64, filters=[tiledb.ZstdFilter()]) for name in ("a", "b")]
    path = os.path.join(folder, "grid")
    tiledb.Array.create(path, tiledb.ArraySchema(tiledb.Domain(*dimensions), attributes))
    cells = np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS)
    with tiledb.open(path, "w", timestamp=10) as array:
        array[:] = {"a": cells, "b": cells / 3}


class Clients:
    """Compares what programs read over HTTP with what they read from a mount, and counts what they fetch by the log of requests."""

    def __init__(self, checks, url, point, log):
        self.checks, self.url, self.point = checks, url + DATA, point / DATA
        self.log, self.read = log, 0

    def taken(self):
        """Requests, and bytes of bodies, since the last question."""
        # A line is written when the server is done with an answer, which its client may be before.
        time.sleep(0.1)
        text = self.log.read_text()
        lines, self.read = text[self.read:].splitlines(), len(text)
        requests = [line.split('"')[2].split() for line in lines]
        return len(requests), sum(int(sent) for _, sent in requests)

    def size(self, path):
        return (self.point / path).stat().st_size

    def count(self, name, read, expected, requests, most):
        """Runs `read`, which has to return `expected` with at most this many requests and bytes."""
        self.taken()
        got = read()
        fetched = self.taken()
        print(f"{name}: {fetched[0]} requests, {fetched[1]} bytes")
        same = np.array_equal(got, expected) if isinstance(expected, np.ndarray) else got == expected
        self.checks.equal(name, same or got, True)
        good = 0 < fetched[0] <= requests and fetched[1] <= most
        self.checks.equal(f"{name}: at most {requests} requests and {most} bytes", good or fetched, True)

    def compare(self, name, read, path, requests, most):
        """Compares `read` of the file at `path` here and there."""
        self.count(name, lambda: read(self.url + path), read(str(self.point / path)), requests, most)


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, timeout=60, **options)


def tables(clients):
    """Tables, of which a column or some rows are wanted."""
    table, text = clients.size(TABLE), clients.size(TEXT)

    def arrow(path):
        # fsspec reads 5 MiB ahead unless told not to.
        with fsspec.open(path, **({"cache_type": "none"} if path.startswith("http") else {})) as file:
            return pyarrow.parquet.read_table(file, columns=["a"])["a"].to_numpy()

    def rows(path):
        return polars.scan_parquet(path).filter(polars.col("y") == 150).select("a").collect()["a"].to_numpy()

    clients.compare("pyarrow: a column", arrow, TABLE, 60, table // 3)
    clients.compare("Polars: a column", lambda path: polars.scan_parquet(path).select("a").collect()["a"].to_numpy(), TABLE, 40, table // 3)
    clients.compare("Polars: rows of a group", rows, TABLE, 10, table // 15)
    # pandas downloads a file whole, whatever is wanted of it.
    clients.compare("pandas: a column", lambda path: pandas.read_parquet(path, columns=["a"])["a"].to_numpy(), TABLE, 1, table)
    clients.compare("pandas: the first rows", lambda path: pandas.read_csv(path, nrows=5).to_numpy(), TEXT, 1, text)
    clients.compare("pandas: head.csv", lambda path: pandas.read_csv(path).to_numpy(), HEAD, 1, clients.size(HEAD))


def arrays(clients):
    """A part of an array."""
    def through_fsspec(top):
        store = zarr.storage.FsspecStore.from_url(top, read_only=True) if top.startswith("http") else top
        return zarr.open_group(store, mode="r")["a"][PART]

    def through_obstore(top):
        if not top.startswith("http"):
            return top
        store = obstore.store.HTTPStore.from_url(top, client_options={"allow_http": True})
        return zarr.storage.ObjectStore(store, read_only=True)

    def xarray_of(store):
        with xarray.open_zarr(store, chunks=None, consolidated=None) as opened:
            return opened["a"][PART].values

    def h5py_through_fsspec(path):
        with fsspec.open(path, block_size=64 * KIB) as file, h5py.File(file) as opened:
            return opened["a"][PART]

    def window(path):
        with warnings.catch_warnings(action="ignore"), rasterio.open(path) as opened:
            return opened.read(1, window=Window(PART[1].start, PART[0].start, 20, 10))

    clients.compare("zarr through fsspec", through_fsspec, "array.zarr", 20, MIB)
    clients.compare("zarr through obstore", lambda top: zarr.open_group(through_obstore(top), mode="r")["a"][PART], "array.zarr", 20, MIB)
    clients.compare("xarray through fsspec", xarray_of, "array.zarr", 20, MIB)
    clients.compare("xarray through obstore", lambda top: xarray_of(through_obstore(top)), "array.zarr", 20, MIB)
    # Without consolidated metadata, as `anndata.zarr` is. A store of a URL below the root lists nothing.
    members = lambda store, path: sorted(zarr.open_group(store, path=path, mode="r", use_consolidated=False))  # noqa: E731
    top, inside = clients.url.removesuffix(DATA), f"{DATA}array.zarr"
    here = members(str(clients.point / "array.zarr"), "")
    clients.count("members through obstore", lambda: members(through_obstore(top), inside), here, 20, MIB)
    clients.compare("h5py through fsspec", h5py_through_fsspec, "array.nc", 20, MIB)
    # GDAL asks for each of the names that a file beside an image may have.
    here = window(str(clients.point / IMAGE))
    clients.count("rasterio: a window", lambda: window(f"/vsicurl/{clients.url}{IMAGE}"), here, 60, MIB)
    for name, options, requests in [("GDAL /vsicurl", {}, 60), ("... without siblings", {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR"}, 5)]:
        if not shutil.which("gdal_translate"):
            print(f"{name}: not run, because gdal_translate is not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            def part(options=options, target=f"{folder}/part.tif"):
                run("gdal_translate", "-q", "-srcwin", 20, 150, 20, 10, f"/vsicurl/{clients.url}{IMAGE}", target, env=os.environ | options)
                with warnings.catch_warnings(action="ignore"), rasterio.open(target) as opened:
                    return opened.read(1)
            clients.count(name, part, here, requests, MIB)


ZARRITA = """
import { pathToFileURL } from "node:url";
const [modules, top, rows, columns] = process.argv.slice(1);
const load = (name) => import(pathToFileURL(`${modules}/${name}/dist/src/index.js`));
const zarr = await load("zarrita");
const { FetchStore } = await load("@zarrita/storage");
const array = await zarr.open(zarr.root(new FetchStore(top)).resolve("a"), { kind: "array" });
const { data } = await zarr.get(array, [zarr.slice(...JSON.parse(rows)), zarr.slice(...JSON.parse(columns))]);
console.log(JSON.stringify(Array.from(data)));
"""


def zarrita(clients):
    """zarrita in Node.js; scripts/test-page.sh has it in a browser."""
    modules = os.environ.get("TILEDBFS_ZARRITA")
    if not modules:
        print("zarrita: not run, because TILEDBFS_ZARRITA is not set")
        return
    rows, columns = ([part.start, part.stop] for part in PART)

    def read():
        done = run("node", "--input-type=module", "-e", ZARRITA, modules, f"{clients.url}array.zarr", rows, columns)
        return np.array(json.loads(done.stdout)) if done.stdout else done.stderr

    expected = np.fromfile(clients.point / COLUMN).reshape(ROWS, COLUMNS)[PART].ravel()
    clients.count("zarrita", read, expected, 10, MIB)


IN_DUCKDB = """
import json, sys, duckdb
from duckdb_extensions import import_extension
connection = duckdb.connect()
import_extension("httpfs", con=connection)
connection.execute("LOAD httpfs; SET enable_progress_bar = false")
print(json.dumps(connection.execute(sys.argv[1]).fetchall()))
"""


def duck(clients):
    """DuckDB's httpfs, in a Python that has it: the extension is of one release of DuckDB, and of PyPI."""
    python = os.environ.get("TILEDBFS_DUCKDB")
    if not python:
        print("DuckDB: not run, because TILEDBFS_DUCKDB names no Python that has httpfs")
        return
    table, text = clients.size(TABLE), clients.size(TEXT)
    for name, path, query, most in [
        ("rows of a group", TABLE, "SELECT sum(b), count(*) FROM '{}' WHERE y = 150", table // 10),
        ("a column", TABLE, "SELECT sum(a), count(*) FROM '{}'", table // 2),
        ("all of a CSV", TEXT, "SELECT sum(a), count(*) FROM '{}'", text * 11 // 10),
    ]:
        [expected] = duckdb.connect().execute(query.format(clients.point / path)).fetchall()

        def read(query=query.format(clients.url + path), expected=expected):
            with tempfile.TemporaryDirectory() as home:
                done = run(python, "-c", IN_DUCKDB, query, env=os.environ | {"HOME": home}, text=True)
            [got] = json.loads(done.stdout or "[[]]")
            # Threads add up the sums in their own order.
            return got and np.allclose(got, expected, rtol=1e-12) or done.stderr

        clients.count(f"DuckDB: {name}", read, True, 120, most)


def downloads(clients):
    """Programs that download: a file, a part of one, the rest of one, a directory."""
    url, path = clients.url + COLUMN, clients.point / COLUMN
    whole = path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        remote = f":http,url='{clients.url}':{COLUMN}"
        for name, command, requests, most in [
            ("curl", ["curl", "-sg", "-o", folder / "curl", url], 1, len(whole)),
            # aria2 opens the whole file, and cuts that off when it opens the other parts.
            ("aria2c", ["aria2c", "-q", "-x4", "-s4", "-k1M", "-d", folder, "-o", "aria2c", url], 8, 2 * len(whole)),
            ("rclone", ["rclone", "--config", "/dev/null", "copyto", remote, folder / "rclone"], 4, len(whole) + 64 * KIB),
            ("wget", ["wget", "-q", "-O", folder / "wget", url], 1, len(whole)),
        ]:
            if not shutil.which(name):
                print(f"{name}: not run, because it is not installed")
                continue
            clients.count(name, lambda command=command, name=name: run(*command) and (folder / name).read_bytes() == whole, True, requests, most)
        clients.count("curl -r", lambda: run("curl", "-sg", "-r", "1000-1099", url).stdout, whole[1000:1100], 1, 100)
        part = folder / "part"
        part.write_bytes(whole[:-1000])
        clients.count("curl -C -", lambda: run("curl", "-sg", "-C", "-", "-o", part, url) and part.read_bytes() == whole, True, 1, 1000)
        if shutil.which("wget"):
            top = clients.point / "columns"
            files = [path.relative_to(top) for path in top.rglob("*") if path.is_file()]
            size = sum((top / name).stat().st_size for name in files)

            def tree():
                run("wget", "-q", "-r", "-np", "-nH", "--cut-dirs=3", "-e", "robots=off", "-P", folder / "tree", clients.url + "columns/")
                return [name for name in files if not (folder / "tree" / name).exists()]

            # Each file once, and the pages, which wget asks for without their slash as well.
            clients.count("wget -r", tree, [], 3 * len(files) + 10, size + 200 * KIB)


def in_r(clients):
    """R reads a table by its URL: as far as it asks for rows, and a little ahead."""
    if not shutil.which("Rscript"):
        print("R: not run, because it is not installed")
        return
    program = "a <- commandArgs(TRUE); t <- read.csv(a[1], nrows = as.integer(a[3])); cat(nrow(t), identical(t, read.csv(a[2], nrows = nrow(t))))"
    for path, rows, most in [(HEAD, -1, clients.size(HEAD)), (TEXT, 5, clients.size(TEXT) // 3)]:
        names = (clients.url + path, clients.point / path, rows)
        expected = f"{1000 if rows < 0 else rows} TRUE"
        clients.count(f"R: {path}", lambda names=names: run("Rscript", "--vanilla", "-e", program, *names, text=True).stdout, expected, 1, most)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        source, log = Path(folder, "source"), Path(folder, "log")
        source.mkdir()
        grid(source)
        with mounted(source) as point, serving(source, "--listen", "127.0.0.1:0", "--access-log", str(log)) as ([url], _):
            clients = Clients(checks, url, point, log)
            for look in (tables, arrays, zarrita, duck, downloads, in_r):
                look(clients)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
