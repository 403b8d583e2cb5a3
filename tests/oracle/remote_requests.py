"""Requests and bytes of each operation on an object store, in mounts through a counting proxy.

    python3 remote_requests.py [--fragments 10000]

The bounds are those of docs/object-stores.md. The last line is `N passed, N failed`.
"""

import argparse
import contextlib
import math
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import duckdb
import numpy as np
import tiledb

from mount import mounted, stats
from proxy import Proxy
from stores import Moto

MIB = 1 << 20
TILES = 256
CELLS = 1 << 16
"""Values in a tile: 256 KiB of int32."""


def schema(cells=TILES * CELLS, tile=CELLS):
    """The schema of a dense array of int32 in one dimension."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, cells - 1), tile=tile, dtype="i4"))
    attribute = tiledb.Attr("a", dtype="i4", filters=tiledb.FilterList([tiledb.ZstdFilter()]))
    return tiledb.ArraySchema(domain=domain, attrs=[attribute])


def column():
    """Values that ZSTD hardly compresses."""
    return np.random.default_rng(7).integers(0, 1 << 16, TILES * CELLS, dtype="i4")


def write_many(folder, count):
    """An array of `count` fragments of one cell, all copies of one; and the same with metadata and commits consolidated."""
    array = os.path.join(folder, "many")
    tiledb.Array.create(array, schema(100, 10))
    # Numbers have equally many digits, because libtiledb expects sorted names.
    first = 1_700_000_000_000
    with tiledb.open(array, "w", timestamp=first) as opened:
        opened[3:4] = np.array([5], "i4")
    fragment = Path(array, "__fragments", os.listdir(array + "/__fragments")[0])
    version = fragment.name.rsplit("_", 1)[1]
    for stamp in range(first + 1, first + count):
        name = f"__{stamp}_{stamp}_{uuid.uuid4().hex}_{version}"
        shutil.copytree(fragment, fragment.parent / name, copy_function=os.link)
        Path(array, "__commits", name + ".wrt").touch()
    consolidated = os.path.join(folder, "consolidated")
    shutil.copytree(array, consolidated, copy_function=os.link)
    for mode in ("fragment_meta", "commits"):
        config = tiledb.Config({"sm.consolidation.mode": mode, "sm.vacuum.mode": mode})
        tiledb.consolidate(consolidated, config=config)
        tiledb.vacuum(consolidated, config=config)


COLUMNS = 20
ROWS = 4_000_000


def write_table(path, ctx):
    """A table of twenty columns, and the bytes of its fragment."""
    zstd = tiledb.FilterList([tiledb.ZstdFilter()])
    domain = tiledb.Domain(tiledb.Dim("row", domain=(0, ROWS - 1), tile=100_000, dtype="i8"))
    names = [f"c{number:02}" for number in range(COLUMNS)]
    attributes = [tiledb.Attr(name, dtype="f8", filters=zstd) for name in names]
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=attributes), ctx=ctx)
    random = np.random.default_rng(1)
    with tiledb.open(path, "w", ctx=ctx) as array:
        array[:] = {name: np.round(20 + np.cumsum(random.normal(0, 0.02, ROWS)), 2) for name in names}
    return tiledb.VFS(ctx=ctx).dir_size(path + "/__fragments")


def write_group(folder):
    """A group of 26 arrays."""
    group = os.path.join(folder, "group")
    tiledb.Group.create(group)
    with tiledb.Group(group, "w") as opened:
        for letter in "abcdefghijklmnopqrstuvwxyz":
            tiledb.Array.create(f"{group}/{letter}", schema(100, 10))
            with tiledb.open(f"{group}/{letter}", "w") as array:
                array[0:10] = np.arange(10, dtype="i4")
            opened.add(letter, name=letter, relative=True)


def read_at(path, offset, length):
    """Some bytes of a file, and as few others as the kernel allows."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


class Bench:
    """The rows of the table."""

    def __init__(self, moto, fragments):
        self.moto, self.fragments = moto, fragments
        self.passed = self.failed = 0

    def check(self, what, got, bound):
        """Counts one comparison."""
        good = got <= bound
        print(f"{'ok  ' if good else 'FAIL'} {what}: {got}, at most {bound}", flush=True)
        self.passed += good
        self.failed += not good

    @contextlib.contextmanager
    def opened(self, source, *options):
        """A mount and its counters."""
        with Proxy(self.moto.host) as proxy, mounted(f"s3://bench/{source}", *options, env=self.moto.env(proxy.host)) as point:
            yield point, proxy

    def row(self, what, source, act, requests, size=None, options=()):
        """Mounts, acts, and compares the counters."""
        with self.opened(source, *options) as (point, proxy):
            act(point)
            counts = proxy.snapshot()
            told = stats(point)
            self.check(what + ": requests", counts.requests, requests)
            if size is not None:
                self.check(what + ": bytes", counts.bytes, size)
            same = (told["list_requests"], told["get_requests"], told["head_requests"]) == (counts.list, counts.get, counts.head)
            self.check(f"{what}: stats.json {told['list_requests'], told['get_requests'], told['head_requests']} tells {counts}", int(not same), 0)

    def run(self, stored, values, table):
        """All rows."""
        pages = math.ceil(self.fragments * 3 / 1000) + 1
        column_file = "fragments/latest/columns/a/data.bin"
        self.row("mount, ls", "one", os.listdir, 2)
        self.row("cat schema.json", "one", lambda p: (p / "schema.json").read_bytes(), 3)
        self.row("cat fragments.json of 1", "one", lambda p: (p / "fragments.json").read_bytes(), 4)
        self.random(column_file, values)
        self.row("ls of a group", "group", os.listdir, 4)
        self.row("group.json", "group", lambda p: (p / "group.json").read_bytes(), 5)
        self.row("every schema.json of a group", "group", lambda p: [(p / n / "schema.json").read_bytes() for n in "abcdefghijklmnopqrstuvwxyz"], 60)
        many = self.fragments
        # moto may be slow, but the listing stays cached.
        self.row(f"fragments.json of {many}", "many", lambda p: (p / "fragments.json").read_bytes(), pages + many + 8, options=["--refresh", "0"])
        self.row(f"fragments.json of {many}, consolidated", "consolidated", lambda p: (p / "fragments.json").read_bytes(), math.ceil(many * 2 / 1000) + 1 + 8)
        self.row(f"ls fragments of {many}, consolidated", "consolidated", lambda p: os.listdir(p / "fragments"), math.ceil(many * 2 / 1000) + 1 + 4)
        self.sequence(column_file, stored, values)
        part = f"data/subarray/{5 * CELLS}..{6 * CELLS - 1}/columns/a/data.bin"
        self.row("a subarray of one tile", "one", lambda p: self.same("a subarray", (p / part).read_bytes(), values[5 * CELLS : 6 * CELLS].tobytes()), 6)
        self.again()
        self.looks()
        self.query(table)

    def query(self, stored):
        """DuckDB reads one column of a table."""
        with self.opened("table") as (point, proxy):
            duckdb.sql(f"SELECT avg(c07) FROM '{point}/data/table.parquet'").fetchall()
            self.check("DuckDB, one column of twenty: bytes", proxy.snapshot().bytes, int(1.1 * stored / COLUMNS))

    def same(self, what, got, wanted):
        """The bytes must be right."""
        self.check(f"{what}: bytes that differ", int(got != wanted), 0)

    def random(self, file, values):
        """8 bytes of a column, and 8 more."""
        with self.opened("one") as (point, proxy):
            got = read_at(point / file, 4 * 1000, 8)
            first = proxy.snapshot()
            self.same("8 bytes", got, values[1000:1002].tobytes())
            self.check("8 bytes of a column: requests", first.requests, 6)
            self.check("8 bytes of a column: bytes", first.bytes, 3 * MIB)
            got = read_at(point / file, 4 * (200 * CELLS + 77), 8)
            more = proxy.snapshot() - first
            self.same("8 bytes of another tile", got, values[200 * CELLS + 77 :][:2].tobytes())
            self.check("8 bytes of another tile: requests", more.requests, 2)
            self.check("8 bytes of another tile: bytes", more.bytes, 2 * MIB)

    def sequence(self, file, stored, values):
        """A column from start to end, by one reader and by four at once."""
        wanted = values.tobytes()
        with self.opened("one") as (point, proxy):
            self.same("a column", (point / file).read_bytes(), wanted)
            counts = proxy.snapshot()
            self.check("a column: requests", counts.requests, 10 + math.ceil(stored / (4 * MIB)))
            self.check("a column: bytes", counts.bytes, int(1.05 * stored))
        with self.opened("one") as (point, proxy):
            threads = [threading.Thread(target=lambda: self.same("a column, four times", (point / file).read_bytes(), wanted)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.check("four readers of a column: bytes", proxy.snapshot().bytes, int(1.1 * stored))

    def again(self):
        """What was read once is cached."""
        with self.opened("one") as (point, proxy):
            for _ in range(2):
                before = proxy.snapshot()
                names = os.listdir(point), os.listdir(point / "fragments")
                (point / "schema.json").read_bytes(), (point / "fragments.json").read_bytes()
            self.check(f"the same again ({len(names)} listings): requests", (proxy.snapshot() - before).requests, 0)

    def looks(self):
        """Accesses make requests once in a while, and without accesses there are none."""
        with self.opened("one", "--refresh", "1") as (point, proxy):
            time.sleep(1.1)
            before = proxy.snapshot()
            for _ in range(40):
                os.listdir(point / "fragments")
                time.sleep(0.05)
            after = proxy.snapshot()
            self.check("40 looks in 2 s: requests", (after - before).requests, 4)
            time.sleep(3)
            self.check("3 s without a look: requests", (proxy.snapshot() - after).requests, 0)


def main():
    """All rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fragments", type=int, default=600)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-requests-") as folder, Moto() as moto:
        values = column()
        # TileDB itself writes to the store.
        moto.bucket("bench")
        ctx = tiledb.Ctx(moto.tiledb())
        tiledb.Array.create("s3://bench/one", schema(), ctx=ctx)
        with tiledb.open("s3://bench/one", "w", ctx=ctx) as array:
            array[:] = values
        stored = tiledb.VFS(ctx=ctx).dir_size("s3://bench/one/__fragments")
        table = write_table("s3://bench/table", ctx)
        write_many(folder, args.fragments)
        write_group(folder)
        for name in ("many", "consolidated", "group"):
            moto.load("bench", name, os.path.join(folder, name))
        bench = Bench(moto, args.fragments)
        bench.run(stored, values, table)
    print(f"{bench.passed} passed, {bench.failed} failed")
    sys.exit(1 if bench.failed or not bench.passed else 0)


if __name__ == "__main__":
    main()
