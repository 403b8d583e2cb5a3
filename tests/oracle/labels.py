"""Dimension labels, through a mount: ranges of them in `subarray/` against `label_index` of TileDB-Py, and coordinates in array.nc and array.zarr
and columns of table.csv, head.csv and table.parquet against the labels that it reads.

    python3 labels.py

The last line is `N passed, N failed`.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pandas
import pyarrow.parquet
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


def compare_numbers_and_dates(checks, folder, point):
    """Labels of which the last is NaN, and years that are only partly dates of the unit."""
    uri = os.path.join(folder, "ends")
    row = tiledb.Dim("row", domain=(0, 3), tile=4, dtype=np.int32)
    labels = {0: {"f": row.create_label_schema("increasing", np.float64), "d": row.create_label_schema("increasing", np.dtype("datetime64[ns]"))}}
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(row), [tiledb.Attr("a", dtype=np.int64)], dim_labels=labels))
    days = np.array(["1700-01-01", "2000-01-01", "2001-01-01", "2262-02-01"], dtype="datetime64[ns]")
    with tiledb.open(uri, "w", timestamp=FIRST) as array:
        array[:] = {"a": np.arange(4), "f": np.array([1.0, 2.0, 3.0, np.nan]), "d": days}
    time.sleep(2)
    part = point / "ends/data/subarray"
    for name, want in [("f:2..3", [1, 2]), ("f:3..100", [2]), ("f:1..2", [0, 1]), ("f:4..5", None), ("d:2262", [3]), ("d:1677..2000", [0, 1]), ("d:2263", None)]:
        got = shown(part / name)
        checks.equal(f"subarray/{name}", None if got is None else got.tolist(), want)


def compare_rewritten(checks, folder, point):
    """Labels of which some are written again: in order with those beside them, and not; libtiledb refuses the latter."""
    uri = os.path.join(folder, "again")
    row = tiledb.Dim("row", domain=(0, 9), tile=4, dtype=np.int32)
    labels = {0: {"up": row.create_label_schema("increasing", np.float64), "down": row.create_label_schema("decreasing", "ascii")}}
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(row), [tiledb.Attr("a", dtype=np.int64)], dim_labels=labels))
    with tiledb.open(uri, "w", timestamp=FIRST) as array:
        array[:] = {"a": np.arange(10), "up": np.arange(10) * 10.0, "down": np.array(list("jihgfedcba"))}
    write_label(uri, "up", 3, np.array([31.0, 41.0]), FIRST + 1)
    write_label(uri, "up", 3, np.array([100.0, 110.0, 120.0]), FIRST + 3)
    write_label(uri, "down", 2, np.array(["b"]), FIRST + 3)
    time.sleep(2)
    for when, name, want in [(FIRST + 1, "up:31..60", [3, 4, 5, 6]), (FIRST + 1, "up:..31", [0, 1, 2, 3]), (FIRST + 1, "down:b..c", [7, 8]),
                             (FIRST + 3, "up:100..120", None), (FIRST + 3, "up:0..10", None), (FIRST + 3, "down:b..c", None)]:
        path = f"at/+{when}/data/subarray/{name}"
        got = shown(point / "again" / path)
        checks.equal(path, None if got is None else got.tolist(), want)
    done = subprocess.run([binary(), "ls", uri, "data/subarray/up:0..10"], capture_output=True, text=True, timeout=60)
    checks.equal("the reason: not in order", (done.returncode, "are not in order" in done.stderr), (1, True))


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


DEEP = {"x": (3, 62), "y": (0, 49), "z": (10, 49)}
WORDS = ["", "a,b", 'say "no"', "line\nbreak", " blank ", "NA"]
DEEP_LABELS = {"tx": ("x", "increasing", "ascii"), "ty": ("y", "decreasing", "ascii"), "when": ("y", "decreasing", np.dtype("datetime64[s]")),
               "__attr": ("z", "increasing", np.float32), "tz": ("z", "increasing", "ascii"), "hz": ("z", "increasing", np.uint16), "Never": ("z", "increasing", np.int64)}


def write_deep(uri):
    """A dense array of three dimensions and an attribute without name, with text labels of different lengths, some of them unwritten; at `SECOND` one label
    of each row of `ty` changes its length."""
    dims = {name: tiledb.Dim(name, domain=ends, tile=7, dtype=np.int32) for name, ends in DEEP.items()}
    labels = {i: {name: dims[axis].create_label_schema(order, dtype) for name, (axis, order, dtype) in DEEP_LABELS.items() if axis == of}
              for i, of in enumerate(dims)}
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(*dims.values()), [tiledb.Attr("", dtype=np.int64)], dim_labels=labels))
    sizes = [high - low + 1 for low, high in DEEP.values()]
    with tiledb.open(uri, "w", timestamp=FIRST) as array:
        array[:] = np.arange(np.prod(sizes)).reshape(sizes)

    def texts(count, step):
        every = [WORDS[i] if i < len(WORDS) else "t" * (i * step % 23) + str(i) for i in range(count)]
        return np.array(sorted(every), dtype=object)

    write_label(uri, "tx", DEEP["x"][0], texts(sizes[0], 5), FIRST)
    write_label(uri, "ty", 0, texts(sizes[1], 7)[::-1], FIRST)
    write_label(uri, "when", 0, np.datetime64("2022-12-20T10:00:00") - np.arange(sizes[1]) * np.timedelta64(777, "s"), FIRST)
    write_label(uri, "__attr", 10, np.linspace(-1, 1, sizes[2], dtype=np.float32), FIRST)
    # Of these only some are written, in two pieces.
    for first, count in ((12, 5), (20, 17)):
        write_label(uri, "tz", first, texts(count, 3), FIRST)
        write_label(uri, "hz", first, np.arange(first, first + count).astype(np.uint16), FIRST)
    write_label(uri, "ty", 0, texts(sizes[1], 11)[::-1], SECOND)


def wanted_table(uri, region, when):
    """The columns that a table has of a dense array in a region (the ends of each dimension), in their order, and the names of those that are labels. Values are
    those of TileDB-Py; a label is None where the fragments of its array that are visible by then have no cell."""
    with tiledb.open(uri, timestamp=when) as array:
        names = [array.domain.dim(i).name for i in range(array.ndim)]
        attributes = [array.attr(i).name for i in range(array.nattr)]
        cells = array.multi_index[tuple(slice(low, high) for low, high in region)]
        cells = {name or "__attr": cells[name] for name in attributes}
    schema = json.loads(subprocess.run([binary(), "cat", os.path.dirname(uri), f"{os.path.basename(uri)}/schema.json"],
                                       capture_output=True, check=True, timeout=60).stdout)
    axes = np.meshgrid(*[np.arange(low, high + 1) for low, high in region], indexing="ij")
    columns = {name: axis.ravel().tolist() for name, axis in zip(names, axes, strict=True)}
    labels = []
    for label in schema["dimension_labels"]:
        axis = label["dimension_index"]
        low, high = region[axis]
        fragments = tiledb.array_fragments(os.path.join(uri, label["uri"]))
        written = set()
        for stamps, box in zip(fragments.timestamp_range, fragments.nonempty_domain, strict=True):
            if when is None or stamps[1] <= when:
                written |= set(range(int(box[0][0]), int(box[0][1]) + 1))
        if not written:
            continue
        with tiledb.open(os.path.join(uri, label["uri"]), timestamp=when) as array:
            values = array.multi_index[low:high][label["attribute"]]
        name = label["name"]
        while name in columns or name in cells:
            name += "_"
        labels.append(name)
        columns[name] = [values[row - low] if row in written else None for row in columns[names[axis]]]
    return columns | {name: values.ravel().tolist() for name, values in cells.items()}, labels


def plain(value):
    """A value as Python has it; dates as numbers of their unit, text as str."""
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").astype(object)
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


def same_value(value):
    """A value as a reader gives it, comparable to that of `plain`."""
    if value is None or value is pandas.NaT or isinstance(value, float) and value != value:
        return None
    if isinstance(value, pandas.Timestamp):
        return value.to_pydatetime()
    return datetime.datetime(value.year, value.month, value.day) if type(value) is datetime.date else plain(value)


def as_written(value):
    """A value as text in table.csv; None for nothing."""
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def compare_table(checks, view, uri, region, when, missing):
    """The tables of a view against what TileDB reads in its region; `missing` labels are left out, for reasons that contain these words."""
    want, labels = wanted_table(uri, region, when)
    text = {name: [as_written(value) for value in values] for name, values in want.items()}
    want = {name: [plain(value) for value in values] for name, values in want.items()}
    reasons = json.loads((view / "view.json").read_text())["exports"]
    for name in ("table.csv", "head.csv", "table.parquet"):
        got = reasons[name]["left_out"]
        checks.equal(f"{view} {name} leaves out", {label: missing.get(label, "?") in reason for label, reason in got.items()}, dict.fromkeys(missing, True))
    parquet = view / "table.parquet"
    size, data = parquet.stat().st_size, parquet.read_bytes()
    checks.equal(f"{view}: the size of table.parquet", size, len(data))
    chance = np.random.default_rng(5)
    with open(parquet, "rb") as file:
        ranges = [(int(start), int(chance.integers(1, 5000))) for start in chance.integers(0, size, 60)]
        parts = [os.pread(file.fileno(), length, start) == data[start : start + length] for start, length in ranges]
    checks.equal(f"{view}: parts of table.parquet", all(parts), True)
    table = pyarrow.parquet.read_table(parquet, partitioning=None)
    frame = pandas.read_parquet(parquet)
    query = duckdb.sql(f"SELECT * FROM read_parquet('{parquet}', hive_partitioning=false)")
    found = {"pyarrow": {name: table[name].to_pylist() for name in table.column_names}, "pandas": {name: frame[name].tolist() for name in frame.columns},
             "duckdb": dict(zip(query.columns, map(list, zip(*query.fetchall(), strict=True)), strict=True))}
    for reader, columns in found.items():
        checks.equal(f"{view} {reader}: names", list(columns), list(want))
        for name, values in want.items():
            got = [same_value(value) for value in columns.get(name, [])]
            # A missing number makes pandas read floats.
            checks.equal(f"{view} {reader}: {name}", got == values, True)
    for name, rows in (("table.csv", None), ("head.csv", 1000)):
        lines = list(csv_rows((view / name).read_text()))
        checks.equal(f"{view} {name}: names", lines[0], list(text))
        columns = dict(zip(text, zip(*lines[1:], strict=True), strict=False)) if len(lines[0]) == len(text) else {}
        for column, values in text.items():
            checks.equal(f"{view} {name}: {column}", list(columns.get(column, [])) == values[:rows], True)
        checks.equal(f"{view}: the size of {name}", (view / name).stat().st_size, len((view / name).read_bytes()))
    frame = pandas.read_csv(view / "table.csv", keep_default_na=False, dtype=str)
    empty = {name: [value or "" for value in values] for name, values in text.items()}
    checks.equal(f"{view} pandas: table.csv", {name: frame[name].tolist() for name in frame.columns} == empty, True)
    return labels


def csv_rows(text):
    """The rows of a CSV file, with None for an empty field without quotes."""
    field, row, at = "", [], 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"' or text[end + 1] == '"':
                end += 1 + (text[end] == '"')
            field, at = text[at + 1 : end].replace('""', '"'), end + 1
        else:
            end = next(i for i in range(at, len(text)) if text[i] in ",\n")
            field, at = text[at:end] or None, end
        row.append(field)
        if text[at] == "\n":
            yield row
            row = []
        at += 1


def compare_tables(checks, uri, point, other, other_point, deep, deep_point):
    """Labels as columns of tables: in whole arrays and parts of them, at two times and before labels were written."""
    never = {"never": "no labels were written"}
    whole = [(LOW, LOW + ROWS - 1), (LOW, LOW + COLUMNS - 1)]
    part = [(LOW + 3, LOW + 8), (LOW + 2, LOW + 3)]
    for path, when in (("data", None), (f"at/+{FIRST}/data", FIRST)):
        labels = compare_table(checks, point / path, uri, whole, when, never)
        checks.equal(f"{path}: labels", sorted(labels), ["day", "lat", "lon", "name"])
        compare_table(checks, point / path / f"subarray/{LOW + 3}..{LOW + 8},{LOW + 2}..{LOW + 3}", uri, part, when, never)
    compare_table(checks, point / f"data/subarray/lon:{float(LON[3])!r}..", uri, [whole[0], (LOW, LOW + 3)], None, never)
    compare_table(checks, other_point / f"at/+{FIRST}/data", other, [(0, 9), (0, 5)], FIRST,
                  dict.fromkeys(["b__validity", "half", "year", "two words", "+a"], "no labels were written"))
    for path, when in (("data", None), (f"at/+{FIRST}/data", FIRST)):
        labels = compare_table(checks, deep_point / path, deep, list(DEEP.values()), when, {"Never": "no labels were written"})
        checks.equal(f"{path}: labels of the deep array", sorted(labels), sorted(["tx", "ty", "when", "__attr_", "tz", "hz"]))
        region = [(5, 41), (3, 4), (11, 33)]
        compare_table(checks, deep_point / path / "subarray/5..41,3..4,11..33", deep, region, when, {"Never": "no labels were written"})
    early = deep_point / f"at/+{FIRST - 1}/data"
    checks.equal("there is no label before there are cells", (early / "table.csv").read_text(), "x,y,z,__attr\n")


def main():
    """Writes the array and compares."""
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-labels-") as top:
        uri = os.path.join(top, "labelled")
        names = write(uri)
        other = os.path.join(top, "other")
        write_others(other)
        deep = os.path.join(top, "deep")
        write_deep(deep)
        with mounted(top) as mount:
            compare_tables(checks, uri, Path(mount, "labelled"), other, Path(mount, "other"), deep, Path(mount, "deep"))
            compare(checks, uri, Path(mount, "labelled"), names)
            compare_others(checks, uri, Path(mount, "labelled"))
            compare_numbers_and_dates(checks, top, Path(mount))
            compare_rewritten(checks, top, Path(mount))
            compare_exports(checks, uri, Path(mount, "labelled"))
            compare_other_exports(checks, other, Path(mount, "other"))
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
