"""What tables show where it is not simply the value: cells that nobody wrote, labels of any length, attributes whose type changed. Arrays are written by
libtiledb; what is expected is painted cell by cell from what was written.

    python3 table_corners.py [--seed N] [--count N]

The last line is `N passed, N failed`.
"""

import argparse
import csv
import datetime
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import exports_parquet
import fragment_cover
from capi import VAR, Attr, Column, Dim, Enum, Lib, Schema, np_type
from exports_csv import Tally, compare_shown
from exports_parquet import READERS, compare, filters, footer
from mount import binary, mounted
from view_files import Differs, load, same

ATTRIBUTES = [
    Attr("i4", "INT32"), Attr("u1", "UINT8"), Attr("f8", "FLOAT64"), Attr("null", "INT64", nullable=True), Attr("char", "CHAR", VAR), Attr("text", "STRING_ASCII", VAR),
    Attr("two", "INT16", 2), Attr("list", "INT32", VAR), Attr("fixed", "STRING_ASCII", 3), Attr("bool", "BOOL"), Attr("label", "INT8", enumeration="e"),
]
KINDS = {"i4": "int32", "u1": "uint8", "f8": "double", "null": "int64", "char": "binary", "text": "string", "two": "list<int16>", "list": "list<int32>",
         "fixed": "string", "bool": "bool", "label": "string"}
LABELS = [b"red", b"", b"blue"]


def cell(attr, chance):
    """A random cell: its bytes, its validity, and the value that readers are to show."""
    if attr.cvn == VAR and attr.type != "INT32":
        raw = bytes(chance.choice(b"abc,\"") for _ in range(chance.randrange(1, 4)))
        return raw, 1, raw.decode() if attr.type != "CHAR" else raw
    if attr.name == "fixed":
        raw = bytes(chance.choice(b"xyz") for _ in range(3))
        return raw, 1, raw.decode()
    count = attr.cvn if attr.cvn != VAR else chance.randrange(1, 4)
    dtype = np_type(attr.type)
    values = np.array([chance.randrange(2) if attr.type == "BOOL" else chance.randrange(-1, 4) if attr.enumeration else chance.randrange(100) for _ in range(count)]).astype(dtype)
    valid = int(not attr.nullable or chance.random() < 0.7)
    shown = values.tolist() if attr.cvn != 1 else values.tolist()[0]
    if attr.type == "BOOL":
        shown = bool(shown)
    if attr.enumeration:
        shown = LABELS[shown].decode() if 0 <= shown < len(LABELS) else None
    return values.tobytes(), valid, shown if valid else None


class Painted:
    """A dense array, and what its tables are to show."""

    def __init__(self, lib, uri, chance, sides, extents, attrs):
        self.lib, self.uri, self.chance, self.attrs = lib, str(uri), chance, attrs
        self.low = [lo for lo, _ in sides]
        self.shape = [hi - lo + 1 for lo, hi in sides]
        dims = [Dim(f"d{i}", "INT64", lo, hi, extent) for i, ((lo, hi), extent) in enumerate(zip(sides, extents))]
        enums = [Enum("e", "STRING_UTF8", LABELS)] if any(a.enumeration for a in attrs) else []
        lib.create(self.uri, Schema("dense", dims, attrs, enums=enums), timestamp=1)
        self.cells = {attr.name: np.full(self.shape, None, object) for attr in attrs}
        self.boxes = []

    def write(self, box):
        """Writes random cells of a box, both ends in."""
        count = int(np.prod([hi - lo + 1 for lo, hi in box]))
        place = tuple(slice(lo - low, hi - low + 1) for (lo, hi), low in zip(box, self.low))
        columns = {}
        for attr in self.attrs:
            raw, valid, shown = zip(*(cell(attr, self.chance) for _ in range(count)))
            column = Column.of_cells(raw) if attr.cvn == VAR else Column(np.frombuffer(b"".join(raw), "u1"))
            column.validity = np.array(valid, "u1") if attr.nullable else None
            if attr.cvn == VAR and attr.type == "INT32":
                column.data = np.frombuffer(b"".join(raw), "<i4")
            columns[attr.name] = column
            values = np.empty(count, object)
            values[:] = shown
            self.cells[attr.name][place] = values.reshape(self.cells[attr.name][place].shape)
        self.lib.write(self.uri, columns, ranges=[np.array(ends, "<i8") for ends in box], timestamp=10 + len(self.boxes))
        self.boxes.append(box)

    def expected(self):
        """The columns of the table: name, type, values."""
        ends = np.array(self.boxes)
        low, high = ends[:, :, 0].min(axis=0), ends[:, :, 1].max(axis=0)
        region = tuple(slice(a - lo, b - lo + 1) for a, b, lo in zip(low, high, self.low))
        axes = np.meshgrid(*[np.arange(a, b + 1) for a, b in zip(low, high)], indexing="ij")
        out = [(f"d{i}", "int64", axis.reshape(-1).tolist()) for i, axis in enumerate(axes)]
        for attr in self.attrs:
            none = [None] * attr.cvn if attr.cvn not in (1, VAR) and attr.type == "INT16" else None
            cells = self.cells[attr.name][region].reshape(-1).tolist()
            out.append((attr.name, KINDS[attr.name], [none if value is None else value for value in cells]))
        return out


def random_array(lib, uri, seed):
    """An array of random boxes."""
    chance = random.Random(seed)
    rank = chance.randrange(1, 4)
    sides = [(low, low + chance.randrange(4, 12)) for low in (chance.randrange(-9, 9) for _ in range(rank))]
    painted = Painted(lib, uri, chance, sides, [chance.randrange(1, 5) for _ in sides], ATTRIBUTES)
    for _ in range(chance.randrange(1, 5)):
        ends = [sorted(chance.randint(*side) for _ in range(2)) for side in sides]
        painted.write([tuple(pair) for pair in ends])
    return painted


def large_array(lib, uri):
    """Several row groups: some whole, one with holes, some of holes alone."""
    chance = random.Random(5)
    painted = Painted(lib, uri, chance, [(0, 599), (0, 999)], [50, 100], [ATTRIBUTES[0], ATTRIBUTES[3]])
    painted.write([(0, 129), (0, 499)])
    painted.write([(0, 129), (500, 999)])
    painted.write([(150, 170), (20, 90)])
    painted.write([(590, 599), (999, 999)])
    return painted


def holes(lib, root, seed, count):
    """Arrays with holes."""
    arrays = {f"random{i}": random_array(lib, root / f"random{i}", seed + i) for i in range(count)}
    arrays["large"] = large_array(lib, root / "large")

    def check(point, name):
        file, wanted = point / name / "data/table.parquet", arrays[name].expected()
        for reader, read in READERS.items():
            compare(reader, wanted, read(file))
        footer(file)
        filters(file, random.Random(name), 12)
        # The model agrees with the domains of fragments as libtiledb tells them.
        written, sure = fragment_cover.written(str(point / name), str(point / name / "data"), fragment_cover.domains(root / name, str(point / name)))
        i4 = next(values for column, _, values in wanted if column == "i4")
        same("written cells", written.tolist(), [value is not None for value in i4])
        import pyarrow.parquet as pq

        fields = {field.name: field.nullable for field in pq.read_schema(file)}
        same("optional columns", (fields["i4"], fields["d0"]), (not sure, False))
        if name == "large":
            groups = [pq.read_metadata(file).row_group(i) for i in range(pq.read_metadata(file).num_row_groups)]
            nulls = [group.column(2).statistics.null_count for group in groups]
            same("groups without holes and of nulls alone", (0 in nulls, any(n == group.num_rows for n, group in zip(nulls, groups))), (True, True))
            return
        tally = Tally()
        tally = compare_shown(str(point), name)
        same("failures of table.csv", (tally.failures, tally.passed > 3), ([], True))
        (point / name / "data/table.csv").read_bytes().decode()

    return arrays, check


def labels(lib, root):
    """Labels of numbers: one, two, and any number of them; an index without a label, and a null."""
    two, var = np.array([[1, 2], [3, 4], [5, 6]], "<i4"), [np.array(values, "<i2").tobytes() for values in ([7], [], [8, 9, -1])]
    enums = [Enum("one", "FLOAT64", np.array([0.5, 1.5, 2.5])), Enum("two", "INT32", two), Enum("var", "INT16", var)]
    attrs = [Attr(e.name, "UINT8", nullable=True, enumeration=e.name) for e in enums]
    indexes, valid = np.array([2, 0, 9, 1, 1, 255, 0, 2], "u1"), np.array([1, 1, 1, 0, 1, 1, 0, 1], "u1")
    index = np.tile(indexes, 700)
    columns = {e.name: Column(index, validity=np.tile(valid, 700)) for e in enums}
    values = {"one": [0.5, 1.5, 2.5], "two": two.tolist(), "var": [[7], [], [8, 9, -1]]}
    kinds = {"one": "double", "two": "list<int32>", "var": "list<int16>"}
    for kind in ("sparse", "dense"):
        lib.create(str(root / kind), Schema(kind, [Dim("d", "INT32", 0, 9999, 100)], attrs, enums=enums), timestamp=1)
    place = np.arange(len(index), dtype="<i4")
    lib.write(str(root / "sparse"), {"d": Column(place), **columns})
    lib.write(str(root / "dense"), columns, ranges=[np.array([0, len(index) - 1], "<i4")])

    def check(point, name):
        wanted = [("d", "int32", place.tolist())]
        for one in enums:
            none = [None, None] if one.name == "two" else None
            cells = [values[one.name][i] if there and i < 3 else none for i, there in zip(indexes, valid)] * 700
            wanted.append((one.name, kinds[one.name], cells))
        for reader, read in READERS.items():
            compare(reader, wanted, read(point / name / "data/table.parquet"))
        data = (point / name / "data/table.parquet").read_bytes()
        chance = random.Random(3)
        with open(point / name / "data/table.parquet", "rb", buffering=0) as file:
            for _ in range(300):
                at = chance.randrange(len(data))
                same(f"bytes at {at}", os.pread(file.fileno(), 99, at), data[at : at + 99])
        with open(point / name / "data/table.csv", newline="") as file:
            rows = list(csv.reader(file))
        shown = [[None if cell == "" else json.loads(cell) for cell in column] for column in zip(*rows[1:])]
        plain = [[None if value == [None, None] else value for value in column] for _, _, column in wanted]
        same("table.csv", shown, plain)

    return {"sparse": None, "dense": None}, check


def changed(lib, root):
    """An attribute that was dropped and added again with another type: needed, hidden by newer cells, and in a part that does not need it."""

    def evolve(uri, kind):
        dims = [Dim("d", "INT32", 0, 99, 10)]
        lib.create(uri, Schema(kind, dims, [Attr("a", "INT32"), Attr("b", "INT32"), Attr("v", "STRING_UTF8", VAR)]), timestamp=1)

        def write(first, last, dtype, stamp):
            place = np.arange(first, last + 1, dtype="<i4")
            columns = {"a": Column(place.astype(dtype)), "b": Column(place * 2), "v": Column.of_cells([b"x"] * len(place))}
            if kind == "sparse":
                return lib.write(uri, {"d": Column(place), **columns}, timestamp=stamp)
            return lib.write(uri, columns, ranges=[np.array([first, last], "<i4")], timestamp=stamp)

        write(0, 9, "<i4", 10)
        lib.evolve(uri, 20, drop=["a"])
        lib.evolve(uri, 30, add=[Attr("a", "FLOAT64")])
        write(5, 14, "<f8", 40)
        return write

    arrays = {}
    for kind in ("dense", "sparse"):
        evolve(str(root / f"{kind} needed"), kind)
        evolve(str(root / f"{kind} hidden"), kind)(0, 9, "<f8", 50)
        arrays |= {f"{kind} needed": kind, f"{kind} hidden": kind}

    def check(point, name):
        dense, needed = arrays[name] == "dense", "needed" in name
        parts = {"data": needed, "data/subarray/5..9": False, "at/15/data": False} | ({"data/subarray/3..4": True} if needed else {})
        for path, gone in parts.items():
            folder = point / name / path
            old = path.startswith("at/")
            view, rows = load(str(folder / "view.json")), list(csv.reader(open(folder / "table.csv", newline="")))
            same("columns of table.csv", sorted(rows[0]), ["b", "d", "v"] if gone else ["a", "b", "d", "v"])
            for file in ("table.csv", "table.parquet", *(("array.nc", "array.zarr") if dense else ())):
                said = view["exports"][file]
                left_out = set(said["left_out"])
                same(f"{file} of {path}: {said}", (said["exists"], left_out), (True, ({"a"} if gone else set()) | ({"v"} if "array" in file else set())))
            for reader, read in READERS.items():
                names = [column for column, *_ in read(folder / "table.parquet")]
                same(f"columns of {reader}", sorted(names), sorted(rows[0]))
            same(f"{path}: whether the column can be read", readable(folder / "columns/a/data.bin"), not gone)
            if dense:
                import xarray

                same("variables of array.nc", sorted(xarray.open_dataset(folder / "array.nc", engine="h5netcdf").variables), ["b", "d"] if gone else ["a", "b", "d"])
                same("arrays of array.zarr", (folder / "array.zarr/a").exists(), not gone)
            same("first row of `a`", old or gone or float(rows[1][rows[0].index("a")]) == float(rows[1][rows[0].index("d")]), True)
        said = subprocess.run([binary(), "check", str(root / name)], capture_output=True, text=True)
        same("what check says", "attribute `a` cannot be read" in said.stdout + said.stderr, needed)

    return arrays, check


def rounded(lib, root):
    """Coordinates that a lossy filter rounds to equal ones, and past ends of tiles and of the domain, in fragments that seem apart: the newest cell counts."""
    import tiledb

    writes = {"one": [([2.4], [1]), ([2.45], [2])], "more": [([2.4, 9.6, 9.7, 30.0], [1, 2, 3, 4]), ([2.45, 10.1, 50.0], [5, 6, 7])], "apart": [([1.0, 2.0], [1, 2]), ([3.0], [3])], "below": [([0.0, 2.0, 30.0], [1, 2, 3]), ([1.0, 40.0], [4, 5])]}
    arrays = {}
    for (name, parts), order, duplicates in itertools.product(writes.items(), ("row-major", "hilbert"), (False, True)):
        folder = f"{name} {order} {duplicates}"
        filters = tiledb.FilterList([tiledb.FloatScaleFilter(factor=1.0, offset=0.75 if name == "below" else 0.0, bytewidth=4)])
        dim = tiledb.Dim("d", domain=(0.0, 100.0), tile=None if order == "hilbert" else 10.0, dtype=np.float64, filters=filters)
        schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("a", dtype=np.int32)], sparse=True, allows_duplicates=duplicates, cell_order=order, capacity=2)
        tiledb.Array.create(str(root / folder), schema)
        for stamp, (places, values) in enumerate(parts, 1):
            with tiledb.open(str(root / folder), "w", timestamp=stamp) as array:
                array[np.array(places)] = np.array(values, np.int32)
        arrays[folder] = None

    def check(point, name):
        with tiledb.open(str(root / name)) as array:
            for path, read in {"data": array[:], "data/subarray/2.2..3": array.multi_index[2.2:3.0], "data/subarray/9.9..10.05": array.multi_index[9.9:10.05]}.items():
                rows = list(csv.reader(open(point / name / path / "table.csv", newline="")))[1:]
                same(path, sorted((float(d), int(a)) for d, a in rows), sorted(zip(read["d"].tolist(), read["a"].tolist())))
                same(f"cells of {path}", load(str(point / name / path / "view.json"))["cells"], len(rows))
            rows = list(csv.reader(open(point / name / "data/table.csv", newline="")))[1:]
            same("order", [float(d) for d, _ in rows], array.query(order="G")[:]["d"].tolist())

    return arrays, check


def unbounded(lib, root):
    """Tables of several row groups, of which one has no bounds: DataFusion takes those of the others for bounds of the file."""
    import datafusion
    import pyarrow.parquet as pq
    import tiledb

    place = np.arange(140_000)
    times = place.astype("datetime64[s]")
    arrays = {"whole": place * 1.0, "nan": np.where(place == 1000, np.nan, place), "nat": np.where(place == 1000, np.datetime64("NaT", "s"), times)}
    for name, values in arrays.items():
        domain = tiledb.Domain(tiledb.Dim("d", domain=(0, 10**6), tile=10**6, dtype=np.int64))
        tiledb.Array.create(str(root / name), tiledb.ArraySchema(domain, [tiledb.Attr("v", dtype=values.dtype)], sparse=True, capacity=1000))
        with tiledb.open(str(root / name), "w") as array:
            array[place] = values

    def check(point, name):
        file = str(point / name / "data/table.parquet")
        groups = pq.read_metadata(file)
        bounded = [groups.row_group(group).column(1).statistics is not None for group in range(groups.num_row_groups)]
        same("row groups with bounds", bounded, [name == "whole"] * 3)
        context = datafusion.SessionContext()
        context.register_parquet("t", file)
        bound = "to_timestamp_seconds(500)" if name == "nat" else "500"
        [batch] = context.sql(f"SELECT count(*) AS found FROM t WHERE v < {bound}").collect()
        same("rows below 500", batch.to_pylist(), [{"found": 500}])

    return arrays, check


def wider(lib, root):
    """Tables of cells of which tiles have more: no bounds are said to be exact, and DataFusion finds the least and the greatest value in the way documented."""
    import datafusion
    import tiledb

    place = np.arange(500)
    values = np.where(place == 3, -5, np.where(place == 9, 999, place % 50))
    for name in ("again", "deleted", "part"):
        domain = tiledb.Domain(tiledb.Dim("d", domain=(0, 999), tile=1000, dtype=np.int64))
        attributes = [tiledb.Attr("i", dtype=np.int32), tiledb.Attr("f", dtype=np.float64), tiledb.Attr("t", dtype="datetime64[s]")]
        tiledb.Array.create(str(root / name), tiledb.ArraySchema(domain, attributes, sparse=True, capacity=100))

        def write(stamp, at, to, name=name):
            with tiledb.open(str(root / name), "w", timestamp=stamp) as array:
                array[at] = {"i": to.astype(np.int32), "f": to * 1.0, "t": to.astype("datetime64[s]")}

        write(1, place, values)
        if name == "again":
            write(2, np.array([3, 9]), np.array([20, 20]))
        if name == "deleted":
            with tiledb.open(str(root / name), "d", timestamp=2) as array:
                array.query(cond="i < 0 or i > 100").submit()

    def check(point, name):
        file = str(point / name / ("data/subarray/10..59" if name == "part" else "data") / "table.parquet")
        exact = exports_parquet.exact_bounds(file)
        same("columns with exact bounds", {column for _, column in exact} - {0}, set())
        context = datafusion.SessionContext()
        context.sql("SET datafusion.execution.collect_statistics = false")
        context.register_parquet("t", file)
        [batch] = context.sql("SELECT min(i) AS a, max(i) AS b, min(f) AS c, max(f) AS d, max(t) - min(t) AS e FROM t").collect()
        same("least and greatest values", list(batch.to_pylist()[0].values()), [0, 49, 0.0, 49.0, datetime.timedelta(seconds=49)])
        plan = context.sql("EXPLAIN ANALYZE SELECT d FROM t WHERE i > 2000").to_arrow_table().to_pylist()
        same("row groups are skipped", "row_groups_pruned_statistics=1 total → 0 matched" in str(plan), True)

    return dict.fromkeys(("again", "deleted", "part")), check


def readable(path):
    """Whether a file can be read."""
    try:
        return bool(Path(path).read_bytes())
    except OSError:
        return False


def main():
    """Writes the arrays, and compares their tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    passed = failed = 0
    for make in (lambda lib, root: holes(lib, root, args.seed, args.count), labels, changed, rounded, unbounded, wider):
        with tempfile.TemporaryDirectory(prefix="tiledbfs-tables-") as scratch:
            arrays, check = make(Lib(), Path(scratch))
            with mounted(scratch) as point:
                for name in arrays:
                    try:
                        check(Path(point), name)
                        passed += 1
                    except (Differs, exports_parquet.Differs, OSError, ValueError, KeyError) as error:
                        failed += 1
                        print(f"FAIL {name}: {type(error).__name__}: {str(error)[:500]}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
