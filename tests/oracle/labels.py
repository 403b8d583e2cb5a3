"""Dimension labels, through a mount: ranges of them in `subarray/` against `label_index` of TileDB-Py, and coordinates in array.nc and array.zarr
against the labels that it reads.

    python3 labels.py

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

from mount import binary, mounted
from plain_tools import Checks

ROWS, COLUMNS, LOW = 40, 12, -7
LAT = np.round(np.linspace(-90, 90, ROWS), 3)
LON = np.linspace(60, -50, COLUMNS)
NAMES = np.array(sorted(["ab", "b:c", "c,d", "d=e", "e..f", "f", "g%", "h", "zürich", "j", "kk", "l"], key=str.encode), dtype=object)
DAYS = np.datetime64("2022-12-20") + np.arange(ROWS)
CREATED, FIRST, SECOND = 1000, 5000, 9000


def write(uri):
    """A dense array with labels of each kind; at `SECOND` both values and one label change."""
    row = tiledb.Dim("row", domain=(LOW, LOW + ROWS - 1), tile=8, dtype=np.int32)
    column = tiledb.Dim("column", domain=(LOW, LOW + COLUMNS - 1), tile=5, dtype=np.int32)
    labels = {0: {"lat": row.create_label_schema("increasing", np.float64), "day": row.create_label_schema("increasing", np.dtype("datetime64[D]"))},
              1: {"lon": column.create_label_schema("decreasing", np.float32), "name": column.create_label_schema("increasing", "ascii"),
                  "never": column.create_label_schema("increasing", np.int64)}}
    schema = tiledb.ArraySchema(tiledb.Domain(row, column), [tiledb.Attr("a", dtype=np.int64)], dim_labels=labels)
    tiledb.Array.create(uri, schema)
    names = np.array([name.encode("utf-8").decode("ascii", "ignore") for name in NAMES], dtype=object)
    names.sort()
    cells = np.arange(ROWS * COLUMNS, dtype=np.int64).reshape(ROWS, COLUMNS)
    for when, lat in ((FIRST, LAT), (SECOND, LAT / 2)):
        with tiledb.open(uri, "w", timestamp=when) as array:
            array[:] = {"a": cells + when, "lat": lat, "lon": LON.astype(np.float32), "name": names, "day": DAYS}
    return names


def wanted(uri, label, low, high, when):
    """What `label_index` gives; None if it gives nothing.

    Where labels were written again, libtiledb 2.30 finds tiles by the bounds of labels that are no longer there: of -45 to 45, written over
    -90 to 90, it leaves out the first for a range from -48. There the labels themselves are compared."""
    with tiledb.open(uri, timestamp=when) as array:
        if when is None and label == "lat":
            every = array[:]["a"][(LAT / 2 >= low) & (LAT / 2 <= high)]
            return every if every.size else None
        picks = slice(low, high)
        try:
            if label in ("lat", "day"):
                return array.label_index([label])[picks]["a"]
            return array.label_index([label])[LOW : LOW + ROWS - 1, picks]["a"]
        except tiledb.TileDBError:
            return None


def encoded(bound):
    """A bound as text."""
    if isinstance(bound, str):
        return "".join(c if c.isalnum() else f"%{ord(c):02X}" for c in bound)
    return str(bound) if isinstance(bound, np.datetime64) else repr(float(bound))


def shown(view):
    """The values of a view; None if it does not exist."""
    return np.load(view / "columns/a/data.npy") if os.path.lexists(view) else None


def compare(checks, uri, point, names):
    """Ranges of labels, ends in and between labels."""
    chance = np.random.default_rng(3)
    picks = {"lat": [], "lon": [], "name": [], "day": []}
    for _ in range(25):
        for label, values, margin in (("lat", LAT, 7.0), ("lon", LON, 13.0)):
            ends = [float(chance.choice(values)) + float(chance.choice([0, 0, margin, -margin, 0.01])) for _ in "ab"]
            picks[label].append(sorted(np.float32(end).item() if label == "lon" else end for end in ends))
        picks["name"].append(sorted(str(chance.choice(names)) + str(chance.choice(["", "a", "~"])) for _ in "ab"))
        picks["day"].append(sorted(chance.choice(DAYS) + np.timedelta64(int(chance.integers(-9, 9)), "D") for _ in "ab"))
    picks["lat"] += [[-1000.0, -500.0], [500.0, 501.0], [-1000.0, 1000.0], [0.001, 0.002]]
    exist = 0
    for label, ranges in picks.items():
        for low, high in ranges:
            for path, when in (("data", None), (f"at/+{FIRST}/data", FIRST)):
                want = wanted(uri, label, low, high, when)
                name = f"{label}:{encoded(low)}..{encoded(high)}"
                got = shown(point / path / "subarray" / name)
                exist += want is not None
                checks.equal(f"{path}/subarray/{name}", None if got is None else got.tolist(), None if want is None else want.tolist())
    checks.equal("most of them exist", exist > 150, True)


def compare_others(checks, uri, point):
    """Lone labels, open ends, labels beside dimensions, and what does not exist."""
    part = point / "data/subarray"
    with tiledb.open(uri) as array:
        every = array[:]["a"]
    lat = LAT / 2
    for name, rows, columns in [
        (f"lat:{float(lat[7])!r}", slice(7, 8), slice(None)),
        (f"lat:{float(lat[7])!r}..", slice(7, None), slice(None)),
        (f"lat:..{float(lat[7])!r}", slice(0, 8), slice(None)),
        (f"lon:{float(LON[3])!r}..", slice(None), slice(0, 4)),
        (f"lon:..{float(LON[3])!r}", slice(None), slice(3, None)),
        ("lat:", slice(None), slice(None)),
        ("day:2022", DAYS < np.datetime64("2023-01-01"), slice(None)),
        (f"column:{LOW}..{LOW + 2},lat={float(lat[7])!r}..{float(lat[9])!r}", slice(7, 10), slice(0, 3)),
        (f"lon:{float(LON[3])!r},day:2023-01-01", DAYS == np.datetime64("2023-01-01"), slice(3, 4)),
    ]:
        checks.equal(f"subarray/{name}", shown(part / name).tolist(), every[rows][:, columns].tolist())
    for name, reason in [("never:1..2", "no labels were written"), ("lat:3..2", "is empty"), ("lat:x", "is not a number"),
                         (f"lat:0..1,row:{LOW}", "second range"), ("lat:500..501", "no labels in it"), ("lot:1..2", "no dimension or label")]:
        checks.equal(f"subarray/{name} does not exist", os.path.lexists(part / name), False)
        done = subprocess.run([binary(), "ls", os.path.dirname(uri), f"labelled/data/subarray/{name}"], capture_output=True, text=True, timeout=60)
        checks.equal(f"the reason: {reason}", (done.returncode, reason in done.stderr), (1, True))
    early = point / f"at/+{FIRST - 1}/data/subarray"
    checks.equal("labels are not visible before they are written", os.path.lexists(early / "lat:0..1"), False)


def write_others(uri):
    """A dense array whose labels have names that are made up for fields, are years, are written in part, or hold a blank in their name; there are no values
    where the labels go on."""
    row = tiledb.Dim("row", domain=(0, 19), tile=8, dtype=np.int32)
    column = tiledb.Dim("column", domain=(0, 5), tile=5, dtype=np.int32)
    labels = {0: {"b__validity": row.create_label_schema("increasing", np.int32), "half": row.create_label_schema("increasing", np.int64),
                  "year": row.create_label_schema("increasing", np.dtype("datetime64[Y]"))},
              1: {"two words": column.create_label_schema("increasing", np.float64), "+a": column.create_label_schema("decreasing", np.uint8)}}
    attributes = [tiledb.Attr("_+a", dtype=np.int16), tiledb.Attr("b", dtype=np.float32, nullable=True)]
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(row, column), attributes, dim_labels=labels))
    cells = np.arange(60, dtype=np.int16).reshape(10, 6)
    with tiledb.open(uri, "w", timestamp=FIRST) as array:
        array[0:10, :] = {"_+a": cells, "b": cells.astype(np.float32)}


def label_array(uri, name):
    """The array of a label, and the attribute with its values."""
    labels = json.loads(subprocess.run([binary(), "cat", os.path.dirname(uri), f"{os.path.basename(uri)}/schema.json"],
                                       capture_output=True, check=True, timeout=60).stdout)["dimension_labels"]
    label = next(label for label in labels if label["name"] == name)
    return os.path.join(uri, label["uri"]), label["attribute"]


def write_label(uri, name, first, values, when):
    """Writes some labels, and nothing else."""
    path, attribute = label_array(uri, name)
    with tiledb.open(path, "w", timestamp=when) as array:
        array[first : first + len(values)] = {attribute: values}


def grids(view):
    """What xarray opens of a view: by engine, with and without fill values masked."""
    return {(engine, masked): xarray.open_dataset(view / name, engine=engine, mask_and_scale=masked)
            for name, engine in (("array.nc", "netcdf4"), ("array.nc", "h5netcdf"), ("array.zarr", "zarr")) for masked in (False, True)}


def compare_grids(checks, view, labels, data, left_out):
    """Labels as coordinates: `labels` are dimension and values by name, `data` the names of the data variables; `left_out` labels are not there,
    for reasons that contain these words."""
    reasons = json.loads((view / "view.json").read_text())["exports"]
    for name in ("array.nc", "array.zarr"):
        got = reasons[name]["left_out"]
        for label, words in left_out.items():
            checks.equal(f"{view} {name} leaves out {label}", words in got.get(label, ""), True)
        checks.equal(f"{view} {name} leaves out nothing else", sorted(got), sorted(left_out))
    for (engine, masked), grid in grids(view).items():
        what = f"{view} {engine}{' masked' if masked else ''}"
        checks.equal(f"{what}: coordinates", sorted(set(grid.coords) - set(grid.dims)), sorted(labels))
        checks.equal(f"{what}: data", sorted(grid.data_vars), sorted(data))
        for name, (dimension, values) in labels.items():
            if name not in grid.variables:
                continue
            found = grid[name]
            checks.equal(f"{what}: dimensions of {name}", found.dims, (dimension,))
            same = np.array_equal(found.values, values, equal_nan=values.dtype.kind in "fM")
            checks.equal(f"{what}: {name}", (same, found.values.tolist()), (True, values.tolist()))
        grid.close()


def compare_exports(checks, uri, point):
    """The labels of the first array at two times and in a part, and before they were written."""
    never, text = {"never": "no labels were written"}, {"name": "do not fit"}
    for path, lat in (("data", LAT / 2), (f"at/+{FIRST}/data", LAT)):
        labels = {"lat": ("row", lat), "day": ("row", DAYS.astype("datetime64[ns]")), "lon": ("column", LON.astype(np.float32))}
        compare_grids(checks, point / path, labels, ["a"], never | text)
        part = {"lat": ("row", lat[3:9]), "day": ("row", labels["day"][1][3:9]), "lon": ("column", labels["lon"][1][2:4])}
        compare_grids(checks, point / path / f"subarray/{LOW + 3}..{LOW + 8},{LOW + 2}..{LOW + 3}", part, ["a"], never | text)


def compare_other_exports(checks, uri, point):
    """Labels of the second array, which come one after the other while the view is open."""
    view, data = point / "data", ["_+a", "b", "b__validity"]
    missing = dict.fromkeys(["b__validity", "half", "year", "two words", "+a"], "no labels were written")
    compare_grids(checks, view, {}, data, missing)
    signs = np.arange(-5, 5, dtype=np.int32)
    write_label(uri, "b__validity", 0, signs, FIRST + 1)
    write_label(uri, "half", 2, np.arange(2, 6), FIRST + 2)
    years = np.arange("1960", "1980", dtype="datetime64[Y]")
    write_label(uri, "year", 0, years, FIRST + 3)
    write_label(uri, "two words", 0, np.linspace(0, 1, 6), FIRST + 4)
    write_label(uri, "+a", 0, np.arange(9, 3, -1).astype(np.uint8), FIRST + 5)
    time.sleep(2.5)
    unwritten = np.iinfo(np.int64).min
    half = np.array([unwritten] * 2 + [2, 3, 4, 5] + [unwritten] * 4)
    for (engine, masked), grid in grids(view).items():
        what = f"labels that came later, {engine}{' masked' if masked else ''}"
        # netCDF has no name `+a`, and an attribute has the one that it becomes.
        odd = "+a" if engine == "zarr" else "_+a_"
        labels = {"b__validity": ("row", signs), "year": ("row", years[:10].astype("datetime64[ns]")), odd: ("column", np.arange(9, 3, -1).astype(np.uint8))}
        # A name with a blank cannot be in a list of names.
        checks.equal(f"{what}: data", sorted(grid.data_vars), sorted(["_+a", "b", "b__validity_", "two words"]))
        checks.equal(f"{what}: two words", grid["two words"].values.tolist(), np.linspace(0, 1, 6).tolist())
        checks.equal(f"{what}: coordinates", sorted(set(grid.coords) - set(grid.dims)), sorted([*labels, "half"]))
        for name, (dimension, values) in labels.items():
            checks.equal(f"{what}: {name}", (grid[name].dims, grid[name].values.tolist()), ((dimension,), values.tolist()))
        want = np.where(half == unwritten, np.nan, half.astype(float)) if masked else half
        checks.equal(f"{what}: half", np.array_equal(grid["half"].values, want, equal_nan=masked), True)
        grid.close()
    compare_grids(checks, point / f"at/+{FIRST}/data", {}, data, missing)


def main():
    """Writes the array and compares."""
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-labels-") as top:
        uri = os.path.join(top, "labelled")
        names = write(uri)
        other = os.path.join(top, "other")
        write_others(other)
        with mounted(top) as mount:
            compare(checks, uri, Path(mount, "labelled"), names)
            compare_others(checks, uri, Path(mount, "labelled"))
            compare_exports(checks, uri, Path(mount, "labelled"))
            compare_other_exports(checks, other, Path(mount, "other"))
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
