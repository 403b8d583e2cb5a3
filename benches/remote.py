"""Rows on an object store: whole processes on both sides, through a proxy that counts requests and adds 30 ms to each."""

import contextlib
import dataclasses
import math
import os
import subprocess
import sys
import threading
import time

import arrays
from bench import MIB, cat, median, seconds
from garage import BUCKET, Garage
from proxy import Proxy
from remote_requests import COLUMNS, read_at

LINK = {"latency": 0.03, "total_rate": 100 * MIB, "connection_rate": 40 * MIB}
COLUMN = "fragments/latest/columns/a/data.bin"

OPEN = "a = tiledb.open(url, ctx=ctx)\n"
INFO = "tiledb.array_fragments(url, ctx=ctx)"
READ_COLUMN = OPEN + "sys.stdout.buffer.write(a[:]['a'].data)"
SCHEMA = "tiledb.ArraySchema.load(url, ctx=ctx)"
TYPES = "v = tiledb.VFS(ctx=ctx)\n[tiledb.object_type(u, ctx=ctx) for u in v.ls(url)]"
MEMBERS = "g = tiledb.Group(url, ctx=ctx)\n[(m.uri, m.name, m.type) for m in g]"
DUCKDB = "import duckdb\n{}duckdb.sql('SELECT avg(c07) FROM {}').fetchall()"
ARROW = OPEN + "arrow = a.query(attrs=['c07'], dims=[], return_arrow=True).df[:]\n"


@dataclasses.dataclass
class Run:
    """One process, or what was done in one mount."""

    seconds: float
    counts: object
    log: list
    """The requests."""


def files(path, pattern="*"):
    """Below a local path."""
    return [file for file in path.rglob(pattern) if file.is_file()]


def pages(path):
    """Of a listing of its files."""
    return math.ceil(len(files(path)) / 1000)


def size(path, pattern="*"):
    """Bytes of files below a local path."""
    return sum(file.stat().st_size for file in files(path, pattern))


class Remote:
    """Arrays in a store, and both sides on them."""

    def __init__(self, bench, garage):
        self.bench, self.garage = bench, garage

    def run(self, command, env, proxy, **options):
        start = time.perf_counter()
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True, **options)
        return Run(time.perf_counter() - start, proxy.snapshot(), list(proxy.log))

    def ours(self, command, name, *paths):
        """A process of this program."""
        with Proxy(self.garage.host, **LINK) as proxy:
            return self.run([self.bench.program, command, f"s3://{BUCKET}/{name}", *paths], self.garage.env(proxy), proxy)

    def mounted(self, name, act, *more, label=None, options=()):
        """A mount, until `act` has been done with it: and what each of `more` took after that."""
        with Proxy(self.garage.host, **LINK) as proxy:
            start, before = time.perf_counter(), proxy.snapshot()
            runs = []
            with self.bench.mounted(f"s3://{BUCKET}/{name}", *options, name=label, env=self.garage.env(proxy)) as (mountpoint, _):
                for step in (act, *more):
                    step(mountpoint)
                    runs.append(Run(time.perf_counter() - start, proxy.snapshot() - before, list(proxy.log)))
                    start, before = time.perf_counter(), proxy.snapshot()
            return runs if more else runs[0]

    def theirs(self, name, body):
        """A Python with TileDB-Py."""
        with Proxy(self.garage.host, **LINK) as proxy:
            code = f"import sys, tiledb\nurl, ctx = 's3://{BUCKET}/{name}', tiledb.Ctx({self.garage.tiledb(proxy)!r})\n{body}"
            return self.run([sys.executable, "-c", code], None, proxy)

    def alone(self, name, run, at_once):
        """The GETs of a run, by `object_store` alone."""
        lines = []
        for request in run.log:
            if request.kind == "get":
                start, end = request.headers["range"].removeprefix("bytes=").split("-")
                lines.append(f"{request.path.removeprefix(f'/{BUCKET}/')} {start} {int(end) + 1}\n")
        with Proxy(self.garage.host, **LINK) as proxy:
            command = [self.bench.examples / "get_ranges", BUCKET, f"{name}/", str(at_once)]
            return self.run(command, self.garage.env(proxy), proxy, input="".join(lines), text=True)

    def row(self, what, ours, theirs, ratio, requests=None, size=None, rounds=None):
        """Requests and bytes, which are exact, and the ratio of times. Gives the runs of this program."""
        pairs = [(ours(), theirs()) for _ in range(rounds or self.bench.rounds)]
        mine, its = zip(*pairs)
        self.bench.row(f"s3: {what}", f"{seconds(median([run.seconds for run in mine]))} against {seconds(median([run.seconds for run in its]))}",
                       median([o.seconds / t.seconds for o, t in pairs]), ratio)
        self.counted(mine, requests, size, f" against {its[-1].counts.requests}")
        return mine

    def counted(self, runs, requests=None, size=None, against="", what="  "):
        """Rows of the most requests and bytes of some runs."""
        if requests is not None:
            most = max(run.counts.requests for run in runs)
            self.bench.row(f"{what}requests", f"{most}{against}", most, requests)
        if size is not None:
            most = max(run.counts.bytes for run in runs)
            self.bench.row(f"{what}MiB", f"{most / MIB:.2f}", most / MIB, size / MIB)

    def against_alone(self, name, runs, at_once):
        """A row: what `object_store` alone takes for the GETs of runs, against them."""
        alone = [self.alone(name, run, at_once).seconds for run in runs]
        mine = [run.seconds for run in runs]
        self.bench.row("  object_store alone / ours", f"{seconds(median(alone))} / {seconds(median(mine))}",
                       median([a / m for a, m in zip(alone, mine)]), 0.6, at_least=True)


def small(it, column, cells):
    """Little of an array of one fragment."""
    it.row("ls, against opening", lambda: it.ours("ls", column), lambda: it.theirs(column, OPEN), 0.4, 2)
    it.row("schema.json", lambda: it.ours("cat", column, "schema.json"), lambda: it.theirs(column, SCHEMA), 0.5, 3)
    it.row("fragments.json of 1, against array_fragments", lambda: it.ours("cat", column, "fragments.json"), lambda: it.theirs(column, INFO), 0.5, 4)
    more = []

    def eight():
        near, far = (lambda mountpoint, at=at: read_at(mountpoint / COLUMN, 8 * at, 8) for at in (1000, cells // 8 * 7))
        first, second = it.mounted(column, near, far)
        more.append(second)
        return first

    it.row("8 bytes of a column", eight, lambda: it.theirs(column, OPEN + "a[1000:1001]['a']"), 0.6, 6, 3 * MIB)
    it.counted(more, 2, 2 * MIB, what="s3: 8 bytes more, of another tile: ")
    tile = MIB // 8
    low = cells // tile // 8 * 5 * tile
    part = f"data/subarray/{low}..{low + tile - 1}/columns/a/data.bin"
    it.row("a subarray of one tile", lambda: it.ours("cat", column, part),
           lambda: it.theirs(column, OPEN + f"sys.stdout.buffer.write(a[{low}:{low + tile}]['a'].data)"), 0.6, 6)


def members(it, group):
    """A group of 26 arrays."""
    types = lambda: it.theirs(group, TYPES)
    it.row("ls of a group of 26, against vfs.ls with types", lambda: it.ours("ls", group), types, 0.2, 4)
    it.row("group.json, against members with types", lambda: it.ours("cat", group, "group.json"), lambda: it.theirs(group, MEMBERS), 0.7, 5)
    it.row("every schema.json of a group of 26, against vfs.ls with types", lambda: it.ours("cat", group, "*/schema.json"), types, 1.5, 60)


# Of so many fragments: requests besides the pages of the listing and the ratio to TileDB-Py's time; the same
# of consolidated ones.
FRAGMENTS = {100: (104, 0.1, 6, 0.2), 10_000: (10_008, 0.04, 8, 0.02)}


def fragments(it, count):
    """Many fragments, as they were written and with metadata and commits consolidated."""
    plain, consolidated = arrays.copied_fragments(it.bench.folder, count)
    many, ratio, few, ratio_of_few = FRAGMENTS[count]
    # TileDB-Py asks for the size of each, which takes minutes.
    rounds = 1 if count >= 10_000 else None

    def row(name, what, requests, ratio):
        return it.row(f"fragments.json of {count}{what}, against array_fragments", lambda: it.ours("cat", name, "fragments.json"),
                      lambda: it.theirs(name, INFO), ratio, requests, rounds=rounds)

    name = it.garage.load(consolidated, f"consolidated-{count}")
    listing = pages(consolidated)
    it.row(f"ls fragments of {count}, consolidated, against opening", lambda: it.ours("ls", name, "fragments"),
           lambda: it.theirs(name, OPEN), 1.2, listing + 4)
    row(name, ", consolidated", listing + few, ratio_of_few)
    name = it.garage.load(plain, f"plain-{count}")
    it.against_alone(name, row(name, "", pages(plain) + many, ratio), 64)


def in_sequence(it, column, stored):
    """A column from its first byte to its last."""
    requests = 10 + math.ceil(stored / (4 * MIB))
    read = lambda mountpoint: cat(mountpoint / COLUMN)
    for what, ours in (("mount and cat", lambda: it.mounted(column, read, label="a column of a store")),
                       ("tiledbfs cat", lambda: it.ours("cat", column, COLUMN))):
        runs = it.row(f"a ZSTD column of {it.bench.size // MIB} MiB, {stored / MIB:.0f} MiB stored: {what}", ours, lambda: it.theirs(column, READ_COLUMN),
                      0.6, requests, 1.05 * stored)
        least, mine = stored / LINK["total_rate"], median([run.seconds for run in runs])
        it.bench.row("  least time of the link / ours", f"{seconds(least)} / {seconds(mine)}", least / mine, 0.8, at_least=True)
        it.against_alone(column, runs, 16)

    def four(mountpoint):
        threads = [threading.Thread(target=read, args=(mountpoint,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run = it.mounted(column, four, label="four readers of a column of a store")
    it.counted([run], size=1.1 * stored, what="s3: four readers of one column: ")


def again(it, column):
    """What is known is not asked for."""
    look = lambda mountpoint: (cat(mountpoint / "schema.json"), cat(mountpoint / "fragments.json"), os.listdir(mountpoint / "fragments"))
    _, second = it.mounted(column, look, look)
    it.counted([second], 0, what="s3: the same looks again: ")

    def looks(mountpoint):
        for _ in range(40):
            os.listdir(mountpoint / "fragments")
            time.sleep(0.05)

    _, some, none = it.mounted(column, os.listdir, looks, lambda _: time.sleep(3), options=["--refresh", "1"])
    it.counted([some], 4, what="s3: 40 looks in 2 s: ")
    it.counted([none], 0, what="s3: 3 s without a look: ")


def query(it, table, stored):
    """DuckDB on a table."""
    def ours():
        act = lambda mountpoint: subprocess.run([sys.executable, "-c", DUCKDB.format("", f"\"{mountpoint}/data/table.parquet\"")], check=True)
        return it.mounted(table, act, label="DuckDB on a table of a store")

    it.row("DuckDB on table.parquet, one column of twenty", ours, lambda: it.theirs(table, DUCKDB.format(ARROW, "arrow")), 0.7,
           size=1.3 * stored / COLUMNS)


@contextlib.contextmanager
def store(bench):
    """Both sides on garage."""
    with Garage(bench.folder) as garage:
        yield Remote(bench, garage)


def column(it):
    """The name in the bucket of a column of ZSTD, and the bytes that it takes there."""
    path = arrays.other_floats(it.bench.folder, "amounts", it.bench.size)
    return it.garage.load(path), size(path, "a0.tdb")


def remote(bench):
    """s3:// through 30 ms a request, 100 MiB/s in all and 40 a connection."""
    with store(bench) as it:
        name, _ = column(it)
        small(it, name, bench.size // 8)
        again(it, name)
        members(it, it.garage.load(arrays.group(bench.folder), "group-26"))
        fragments(it, 100)


def remote_columns(bench):
    """The same, a column and a table in whole."""
    with store(bench) as it:
        in_sequence(it, *column(it))
        table = arrays.wide_table(bench.folder)
        query(it, it.garage.load(table), size(table / "__fragments"))


def remote_fragments(bench):
    """The same, 10,000 fragments."""
    with store(bench) as it:
        fragments(it, 10_000)


ROWS = {"remote": remote, "remote-columns": remote_columns, "remote-fragments": remote_fragments}
