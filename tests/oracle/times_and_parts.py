"""Times and parts of the domain as people write them, through a mount and on the command line, against libtiledb.

    python3 times_and_parts.py

The last line is `N passed, N failed`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tiledb
import xarray

from mount import ROOT, binary, mounted, stats
from plain_tools import Checks

YEARS = [2022, 2023, 2024, 2025]
DAY = 86_400_000
PATIENCE = 2.0
"""Seconds within which a commit must be visible, on a busy machine."""


def stamp(text):
    """Milliseconds since 1970 of a time."""
    return int(np.datetime64(text, "ms").astype(np.int64))


def write_years(folder):
    """A sparse array of days: a write in the middle of each year, one after 1.5 s of 1970, and one in the future."""
    uri = str(folder / "days")
    days = tiledb.Dim("day", domain=(np.datetime64("1900-01-01"), np.datetime64("2100-12-31")), tile=np.timedelta64(365, "D"), dtype="datetime64[D]")
    host = tiledb.Dim("host", dtype="ascii")
    schema = tiledb.ArraySchema(tiledb.Domain(days, host), [tiledb.Attr("a", dtype=np.int32)], sparse=True)
    tiledb.Array.create(uri, schema)
    for number, when in enumerate([1500, *(stamp(f"{year}-06-15") for year in YEARS), stamp("2090-01-01")]):
        with tiledb.open(uri, "w", timestamp=when) as array:
            first = np.datetime64(f"{2020 + number}-12-30")
            array[first + np.arange(6), np.array(["a", "b:c", "d=e", "f", "g", "h"])] = np.arange(6, dtype=np.int32) + 10 * number
    return uri


def write_grid(folder):
    """A dense array whose writes grow its region downwards."""
    uri = str(folder / "grid")
    dims = [tiledb.Dim(name, domain=(0, 9999), tile=256, dtype=np.int32) for name in "yx"]
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("a", dtype=np.int64)]))
    write_box(uri, 1000, 300)
    return uri


def write_box(uri, low, side):
    """Writes a square whose cells tell where they are."""
    y, x = np.meshgrid(*2 * [np.arange(low, low + side, dtype=np.int64)], indexing="ij")
    with tiledb.open(uri, "w") as array:
        array[low : low + side, low : low + side] = {"a": y * 10_000 + x}


def write_split(folder):
    """A dense array whose fragments were consolidated into several of one range of time, and are still there."""
    uri = str(folder / "split")
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 9999), tile=100, dtype=np.int32))
    tiledb.Array.create(uri, tiledb.ArraySchema(domain, [tiledb.Attr("a", dtype=np.int64)]))
    for when in range(1000, 1003):
        with tiledb.open(uri, "w", timestamp=when) as array:
            array[:1000] = np.arange(1000) + when
    tiledb.consolidate(uri, config=tiledb.Config({"sm.consolidation.max_fragment_size": 3000, "sm.mem.total_budget": 64 << 20}))


def compare_split(checks, point):
    """All times of it can be read, and are told so."""
    split = point / "split"
    checks.equal("consolidated into several: times", sorted(os.listdir(split / "at"))[:3], [f"1970-01-01T00:00:01.00{n}Z" for n in range(3)])
    for when in range(1000, 1003):
        data = split / f"at/+{when}/data"
        checks.equal(f"consolidated into several: values at {when}", values(data), [when + n for n in range(1000)])
        checks.equal(f"consolidated into several: what is missing at {when}", json.loads((data / "view.json").read_text())["incomplete"], [])


def write_outside(folder):
    """A sparse array with cells outside of its domain, which writers need not check."""
    uri = str(folder / "outside")
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32))
    tiledb.Array.create(uri, tiledb.ArraySchema(domain, [tiledb.Attr("a", dtype=np.int32)], sparse=True, capacity=2))
    places = np.array([-7, 5, 50, 98, 99, 100, 150], dtype=np.int32)
    with tiledb.open(uri, "w", ctx=tiledb.Ctx({"sm.check_coord_oob": "false"})) as array:
        array[places] = places
    return uri


def compare_outside(checks, uri, point):
    """Both ends of a range are ends, those of the domain as well."""
    for low, high in [(0, 99), (0, 98), (50, 99), (0, 50), (0, 0), (99, 99)]:
        name = f"{low}..{high}" if low < high else str(low)
        with tiledb.open(uri) as array:
            want = array.multi_index[low:high]["a"].tolist()
        checks.equal(f"subarray/{name} of cells outside of the domain", values(point / "outside/data/subarray" / name), want)


def values(path):
    """The values of `a` in a view."""
    return np.load(path / "columns/a/data.npy").tolist()


def shown(uri, end, start=0):
    """What libtiledb reads in a range of time, sorted."""
    with tiledb.open(uri, timestamp=(start, end)) as array:
        return sorted(array[:]["a"].tolist())


def compare_times(checks, uri, point):
    """Names in `at/`."""
    at = point / "days/at"
    for name, end in [("2024", stamp("2025") - 1), ("2023", stamp("2024") - 1), ("1970", stamp("1971") - 1), ("1969", 0), ("+1500", 1500), ("1499", None),
                      ("+1499", 1499), ("01500", 1500), ("-5", 0), ("2024-06", stamp("2024-07") - 1), (str(stamp("2024-06-15")), stamp("2024-06-15")),
                      ("2024-06-14", stamp("2024-06-15") - 1), ("9999", stamp("9999-12-31") + DAY - 1)]:
        end = stamp("1500") if end is None else end
        checks.equal(f"at/{name}", sorted(values(at / name / "data")), shown(uri, max(end, 0)))
    for name, start, end in [("2023..2024", stamp("2023"), stamp("2025") - 1), ("2024..", stamp("2024"), int(time.time() * 1000)), ("..2022", 0, stamp("2023") - 1),
                             ("+1000..2023-06-15", 1000, stamp("2023-06-15") + DAY - 1), ("2025..2022", stamp("2025"), stamp("2023") - 1)]:
        got = sorted(values(at / name / "data"))
        checks.equal(f"at/{name}", got, shown(uri, end, start) if start <= end else [])
    for name in ["yesterday", "2024-13", "12024-01", "2024Z", "--5", "2024-"]:
        checks.equal(f"at/{name} does not exist", os.path.lexists(at / name), False)


def compare_parts(checks, uri, point):
    """Names in `subarray/`."""
    part = point / "days/data/subarray"
    now = int(time.time() * 1000)

    def wanted(first, last, low=None, high=None):
        with tiledb.open(uri, timestamp=now) as array:
            hosts = slice(low, high) if low is not None else slice(None)
            return sorted(array.multi_index[np.datetime64(first) : np.datetime64(last), hosts]["a"].tolist())

    for name, want in [
        ("2023,", ("2023-01-01", "2023-12-31")),
        ("day:2023", ("2023-01-01", "2023-12-31")),
        ("day=2023", ("2023-01-01", "2023-12-31")),
        ("day:2022..2023", ("2022-01-01", "2023-12-31")),
        ("day:2022-12-31..2023", ("2022-12-31", "2023-12-31")),
        ("day:19357..+19358", ("2022-12-31", "2023-01-01")),
        ("day:+5..2022", ("1970-01-06", "2022-12-31")),
        ("host:d..g,day:2022", ("2022-01-01", "2022-12-31", "d", "g")),
        ("day=2022,host:d=e", ("2022-01-01", "2022-12-31", "d=e", "d=e")),
        ("host:b%3Ac,day:2022..", ("2022-01-01", "2100-12-31", "b:c", "b:c")),
        ("host:b:c", ("1900-01-01", "2100-12-31", "b:c", "b:c")),
        (",b:c", ("1900-01-01", "2100-12-31", "b:c", "b:c")),
        (",d=e..f", ("1900-01-01", "2100-12-31", "d=e", "f")),
    ]:
        checks.equal(f"subarray/{name}", sorted(values(part / name)), wanted(*want))
        then = point / "days/at/2023/data/subarray" / name
        with tiledb.open(uri, timestamp=stamp("2024") - 1) as array:
            hosts = slice(*want[2:]) if want[2:] else slice(None)
            past = sorted(array.multi_index[np.datetime64(want[0]) : np.datetime64(want[1]), hosts]["a"].tolist())
        checks.equal(f"at/2023/data/subarray/{name}", sorted(values(then)), past)
    for name in ["day:2023,a", "2023,host:a", "day:2023,day=2022", "night:2023", "night:2023,", "day:2023..2022", "day:1800", "day:", "day:2023-02-30", "+1,a,b"]:
        exists = os.path.lexists(part / name)
        checks.equal(f"subarray/{name} {'exists' if name == 'day:' else 'does not exist'}", exists, name == "day:")


def compare_latest(checks, uri, folder, point):
    """`at/latest`."""
    link = point / "days/at/latest"
    newest = os.readlink(link)
    checks.equal("at/latest is of the newest stamp but for future ones", newest[:4], time.strftime("%Y", time.gmtime()))
    checks.equal("it is not listed", "latest" in os.listdir(point / "days/at"), False)
    now = int(time.time() * 1000)
    checks.equal("it is the state of now", values(link / "data"), values(point / "days/data"))
    checks.equal("as libtiledb reads it", sorted(values(link / "data")), shown(uri, now))
    resolved = Path(os.path.realpath(link / "data/columns"))
    checks.equal("readlink -f pins a state", resolved, point / "days/at" / newest / "data/columns")
    before = values(resolved.parent)
    with tiledb.open(uri, "w") as array:
        array[np.datetime64("1999-01-01"), "new"] = np.int32(99)
    limit = time.time() + 20
    while os.readlink(link) == newest and time.time() < limit:
        time.sleep(0.05)
    checks.equal("a write moves the link", os.readlink(link) > newest, True)
    checks.equal("and is there", 99 in values(link / "data"), True)
    checks.equal("what is pinned stays", values(resolved.parent), before)
    checks.equal("an array from before stamps has it too", os.path.isdir(point / "legacy/at/latest/data"), True)
    checks.equal("it is as the array", load(point / "legacy/at/latest/schema.json"), load(point / "legacy/schema.json"))
    checks.equal("and empty before its first stamp", os.readlink(point / "future/at/latest").split("~")[0], "1970-01-01T00:00:00.000Z")
    for command, want in [
        (["ls", folder / "days/at/latest/data"], b"columns\n"),
        (["ls", "-d", folder / "days", "at/latest"], b"at/latest\n"),
        (["cat", folder / "days", "at/latest/data/columns/a/data.bin"], (point / "days/data/columns/a/data.bin").read_bytes()),
    ]:
        done = subprocess.run([binary(), *map(str, command)], capture_output=True, timeout=60)
        checks.equal(" ".join(map(str, command[:2])), (done.returncode, want in done.stdout), (0, True))
    with tempfile.TemporaryDirectory() as copies:
        done = subprocess.run([binary(), "cp", "-r", str(folder / "days"), "at/latest/data/columns/a", copies + "/a"], capture_output=True, timeout=60)
        checks.equal("cp of at/latest", (done.returncode, Path(copies, "a/data.bin").read_bytes()), (0, (point / "days/data/columns/a/data.bin").read_bytes()))
    for path, reason in [("at/yesterday", '"yesterday" is not a time'), ("data/subarray/day:2023,a", '"a" names no dimension'), ("data/subarray/day:2023..2022", "is empty")]:
        done = subprocess.run([binary(), "ls", str(folder / "days"), path], capture_output=True, timeout=60, text=True)
        checks.equal(f"the reason why {path} does not exist", (done.returncode, reason in done.stderr), (1, True))
    done = subprocess.run([binary(), "ls", "-d", str(folder / "days"), "at/202[34]-*"], capture_output=True, timeout=60, text=True)
    checks.equal("patterns match times", done.stdout.split(), ["at/2023-06-15T00:00:00.000Z", "at/2024-06-15T00:00:00.000Z"])


def load(path):
    """The bytes of a file."""
    return Path(path).read_bytes()


def compare_open_data_sets(checks, uri, point):
    """What data sets that are open see of writes, as docs/exports.md says."""
    pinned = xarray.open_zarr(os.path.realpath(point / "grid/at/latest") + "/data/array.zarr")
    moving = xarray.open_zarr(str(point / "grid/data/array.zarr"))
    checks.equal("both begin alike", (pinned.a.shape, moving.a.shape), ((300, 300), (300, 300)))
    write_box(uri, 900, 20)
    time.sleep(PATIENCE)
    want = 1050 * 10_000 + 1050
    checks.equal("the pinned data set keeps its cells", int(pinned.a.sel(y=1050, x=1050)), want)
    checks.equal("the other one reads other cells", int(moving.a.sel(y=1050, x=1050)) != want, True)
    again = xarray.open_zarr(str(point / "grid/data/array.zarr"))
    checks.equal("opened anew it is right", int(again.a.sel(y=1050, x=1050)), want)


def write_heads(folder):
    """Arrays of more than a thousand rows, and how many chunks a head may take: one tile a column and fragment, and what is read ahead."""
    dims = [tiledb.Dim(name, domain=(1, 2000), tile=100, dtype=np.int32) for name in "yx"]
    attrs = [tiledb.Attr("a", dtype=np.int64), tiledb.Attr("v", dtype="ascii", var=True), tiledb.Attr("n", dtype=np.int32, nullable=True)]
    y, x = (axis.ravel() for axis in np.meshgrid(*2 * [np.arange(1, 2001, dtype=np.int32)], indexing="ij"))

    def cells(y, x):
        number = y.astype(np.int64) * 10_000 + x
        text = np.char.mod("t%d", number % 977).astype("S")
        return {"a": number, "v": text, "n": number.astype(np.int32)}

    tiledb.Array.create(str(folder / "dense"), tiledb.ArraySchema(tiledb.Domain(*dims), attrs))
    with tiledb.open(str(folder / "dense"), "w") as array:
        array[:] = {name: value.reshape(2000, 2000) for name, value in cells(y, x).items()}
    bounds = {"dense": 20 * 8}
    for name, options in [("appended", {}), ("scattered", {}), ("duplicates", {"allows_duplicates": True}), ("hilbert", {"cell_order": "hilbert"})]:
        schema = tiledb.ArraySchema(tiledb.Domain(*dims), attrs, sparse=True, capacity=1000, **options)
        tiledb.Array.create(str(folder / name), schema)
        chance = np.random.default_rng(5)
        for number in range(5):
            if name == "appended":
                some = np.arange(number * 800_000, (number + 1) * 800_000, 20)
            else:
                some = np.sort(chance.choice(y.size, 40_000, replace=False))
            with tiledb.open(str(folder / name), "w", timestamp=10 + number) as array:
                array[y[some], x[some]] = cells(y[some] + number, x[some])
        with tiledb.open(str(folder / name), "d", timestamp=20) as array:
            array.query(cond="a < 10300").submit()
        bounds[name] = 5 * 3 * 8
    return bounds


def compare_heads(checks, bounds, folder):
    """`head.csv` is the first rows of `table.csv`, and takes no more than these."""
    for name, most in bounds.items():
        with mounted(folder) as point:
            for part in ["", "subarray/y:700..1999/"]:
                before = stats(point)["chunks_decoded"]
                head = (point / name / "data" / part / "head.csv").read_bytes()
                decoded = stats(point)["chunks_decoded"] - before
                checks.equal(f"{name}/{part}: chunks of head.csv, {decoded}, are at most {most}", decoded <= most, True)
                done = subprocess.run([binary(), "cat", str(folder / name), f"data/{part}table.csv"], capture_output=True, check=True, timeout=300)
                checks.equal(f"{name}/{part}: it is the first rows", head == b"".join(done.stdout.splitlines(True)[:1001]), True)
            checks.equal(f"{name}: head.csv is not listed", "head.csv" in os.listdir(point / name / "data"), False)
            checks.equal(f"{name}: there is no table.csv beside it" if name == "dense" else name, os.path.exists(point / name / "data/table.csv"), name != "dense")


def write_others(folder):
    """An array of format 1 with no stamp, and one whose stamps are all in the future."""
    os.mkdir(folder / "legacy")
    (folder / "legacy/__array_schema.tdb").write_bytes((ROOT / "tests/data/versions/v01/zipped_coords/__array_schema.tdb").read_bytes())
    uri = str(folder / "future")
    schema = tiledb.ArraySchema(tiledb.Domain(tiledb.Dim("d", domain=(1, 9), tile=9, dtype=np.int32)), [tiledb.Attr("a", dtype=np.int32)])
    tiledb.Array.create(uri, schema)
    ahead = stamp("2091-01-01")
    for name in os.listdir(uri + "/__schema"):
        if name != "__enumerations":
            os.rename(f"{uri}/__schema/{name}", f"{uri}/__schema/__{ahead}_{ahead}_{name.split('_')[-1]}")


def main():
    """Writes the arrays and compares."""
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-times-") as top:
        folder = Path(top)
        days, grid = write_years(folder), write_grid(folder)
        outside = write_outside(folder)
        write_others(folder)
        write_split(folder)
        with mounted(folder, "-o", "show_at") as point:
            compare_split(checks, point)
        with mounted(folder) as point:
            compare_times(checks, days, point)
            compare_parts(checks, days, point)
            compare_outside(checks, outside, point)
            compare_latest(checks, days, folder, point)
            compare_open_data_sets(checks, grid, point)
        with mounted(folder, "--at", "2022-12-31") as point:
            names = os.listdir(point)
            checks.equal("a past time: arrays that were there", ("days" in names, "grid" in names), (True, False))
            checks.equal("a past time: what is listed is there", [name for name in names if not (point / name).exists()], [])
    with tempfile.TemporaryDirectory(prefix="tiledbfs-heads-") as top:
        compare_heads(checks, write_heads(Path(top)), Path(top))
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
