"""Mounts of several machines of one source: what one of them writes, the others read by its time, or fail.

    python3 cluster.py

The mounts keep their listings for an hour, as if each had been made at another time. The last line is `N passed, N failed`.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tiledb

from mount import mounted, stats
from plain_tools import Checks
from stores import KEYS, Moto

CELLS = 1000


def context(moto):
    """What libtiledb writes to the store with."""
    key, secret = KEYS.values()
    return tiledb.Ctx({"vfs.s3.endpoint_override": moto.host, "vfs.s3.scheme": "http", "vfs.s3.use_virtual_addressing": "false",
                       "vfs.s3.region": "us-east-1", "vfs.s3.aws_access_key_id": key, "vfs.s3.aws_secret_access_key": secret})


def create(ctx, sparse, uri):
    """An array without cells."""
    dim = tiledb.Dim("x", domain=(0, 100 * CELLS - 1), tile=CELLS, dtype="i8")
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("a", dtype="i8")], sparse=sparse)
    tiledb.Array.create(uri, schema, ctx=ctx)
    return uri


def write(uri, ctx, number):
    """Write `number`: the next cells. Returns its stamp, once that is past."""
    cells = np.arange(number * CELLS, (number + 1) * CELLS)
    stamp = int(time.time() * 1000)
    with tiledb.open(uri, "w", ctx=ctx, timestamp=stamp) as array:
        if array.schema.sparse:
            array[cells] = cells
        else:
            array[cells[0] : cells[-1] + 1] = cells
    time.sleep(0.01)
    return stamp


def rows(view):
    """How many cells a view shows."""
    return len(np.load(view / "columns/a/data.npy"))


def compare_times(checks, ctx, env):
    """`at/<time>` is the same on a mount that listed the source before that time as on one that listed it later."""
    for sparse in (False, True):
        name = "sparse" if sparse else "dense"
        uri = create(ctx, sparse, f"s3://cluster/arrays/{name}")
        write(uri, ctx, 0)
        with mounted("s3://cluster/arrays", "--refresh", "3600", env=env) as older:
            checks.equal(f"{name}: the older mount, of now", rows(older / name / "data"), CELLS)
            stamp = write(uri, ctx, 1)
            checks.equal(f"{name}: its listing holds", rows(older / name / "data"), CELLS)
            with mounted("s3://cluster/arrays", "--refresh", "3600", env=env) as newer:
                newest = sorted(os.listdir(newer / name / "at"))[-1]
                checks.equal(f"{name}: at/{newest} on the newer mount", rows(newer / name / "at" / newest / "data"), 2 * CELLS)
                checks.equal(f"{name}: ... on the older one", rows(older / name / "at" / newest / "data"), 2 * CELLS)
            checks.equal(f"{name}: ... which knows it now", rows(older / name / "data"), 2 * CELLS)
            lists = stats(older)["list_requests"]
            for _ in range(3):
                checks.equal(f"{name}: an earlier time", rows(older / name / f"at/{stamp - 1}/data"), CELLS)
                rows(older / name / f"at/{stamp}/data")
            checks.equal(f"{name}: ... needs no listing", stats(older)["list_requests"] - lists, 0)
            write(uri, ctx, 2)
            checks.equal(f"{name}: a time in the future holds as now does", rows(older / name / "at/2999/data"), 2 * CELLS)
            between = int(time.time() * 1000)
            time.sleep(0.01)
            checks.equal(f"{name}: a time without a write", rows(older / name / f"at/{between}/data"), 3 * CELLS)
            write(uri, ctx, 3)
            now = int(time.time() * 1000)
            time.sleep(0.01)
            checks.equal(f"{name}: a range", rows(older / name / f"at/{stamp}..{now}/data"), 3 * CELLS)
        tiledb.VFS(ctx=ctx).remove_dir(uri)


def compare_vacuumed(checks):
    """A time that vacuum has emptied says so, and is not listed; a sparse array keeps its times."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        for sparse in (False, True):
            name = "sparse" if sparse else "dense"
            uri = create(None, sparse, f"{folder}/{name}")
            stamps = [write(uri, None, number) for number in range(3)]
            with mounted(folder) as point:
                incomplete = lambda time: json.loads((point / name / f"at/{time}/data/view.json").read_text())["incomplete"]
                listed = lambda: len(os.listdir(point / name / "at"))
                before = listed()
                checks.equal(f"{name}: nothing is incomplete", [incomplete(stamp) for stamp in stamps], 3 * [[]])
                tiledb.consolidate(uri)
                time.sleep(0.5)
                checks.equal(f"{name}: nothing is when consolidated", ([incomplete(stamp) for stamp in stamps], listed()), (3 * [[]], before))
                tiledb.vacuum(uri)
                time.sleep(0.5)
                [fragment] = tiledb.array_fragments(uri).uri
                lost = [] if sparse else [os.path.basename(fragment)]
                got = [incomplete(time) for time in (stamps[0] - 1, stamps[0], stamps[1], stamps[2])]
                checks.equal(f"{name}: the fragment is named when vacuumed", got, [[], lost, lost, []])
                checks.equal(f"{name}: of a range as well", incomplete(f"{stamps[1]}..{stamps[2]}"), lost)
                checks.equal(f"{name}: rows as libtiledb reads them", rows(point / name / f"at/{stamps[1]}/data"), 2 * CELLS if sparse else 0)
                names = os.listdir(point / name / "at")
                stamp = lambda time: np.datetime_as_string(np.datetime64(time, "ms"), unit="ms") + "Z"
                checks.equal(f"{name}: what is listed", [stamp(time) in names for time in stamps], [sparse, False, True])


def main():
    """Runs all of it."""
    checks = Checks()
    compare_vacuumed(checks)
    with Moto() as moto:
        moto.bucket("cluster")
        compare_times(checks, context(moto), moto.env())
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
