"""What a dense view is as a grid: the variables that `array.zarr/` and rasters must have. Made from libtiledb's answers in a family of views, or, where there
are none, from columns and documents of the same mount, which other tests compare with libtiledb."""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import fragment_cover
import names
from capi import Lib, np_type
from facts import TEXT_BYTES, TEXT_WIDE, Facts
from mount import mounted
from shares import share
from view_files import Differs, load, read
from views import chosen

NOT_A_TIME = -(2**63)
FAMILY_KEY = b"0123456789abcdeF0123456789abcdeF"
MOST_METADATA = 65535
"""The most bytes of a metadata value that is an attribute."""
UNITS = {
    "YEAR": "days", "MONTH": "days", "WEEK": "days", "DAY": "days", "HR": "hours", "MIN": "minutes", "SEC": "seconds",
    "MS": "milliseconds", "US": "microseconds", "NS": "nanoseconds",
}
"""The CF conventions' units of datetimes. CF lacks others."""
CHUNK_CELLS, CHUNK_BYTES = 1 << 16, 64 << 20
"""Whole extents are joined below this size, and halved above."""
IMAGED = {"u": 1, "b": 1, "i": 2, "f": 3}


@dataclass
class Variable:
    """One array of a grid."""

    name: str
    of: str
    """`axis`, `values` or `validity`."""
    dims: list
    values: np.ndarray
    fill: np.ndarray | None = None
    """The value of null and unwritten cells: one value or several. None for coordinates."""
    missing: object = None
    """The `_FillValue`; None if there is none."""
    attributes: dict = field(default_factory=dict)
    stored: np.ndarray | None = None
    """For an attribute: the values with nulls filled, but dates as stored."""


@dataclass
class Grid:
    """A dense view."""

    path: str
    shape: list
    variables: list
    attributes: dict


def chunk_shape(shape, extents, size):
    """The chunk shape of an array of cells of `size` bytes."""
    sides = [min(a, b) for a, b in zip(shape, extents)]
    while np.prod(sides, dtype=object) < CHUNK_CELLS:
        growing = [i for i in range(len(sides)) if sides[i] < shape[i]]
        if not growing:
            break
        shortest = min(growing, key=lambda i: sides[i])
        sides[shortest] = min(2 * sides[shortest], shape[shortest])
    while np.prod(sides, dtype=object) * size > CHUNK_BYTES and max(sides) > 1:
        longest = max(range(len(sides)), key=lambda i: (sides[i], i))
        sides[longest] = -(-sides[longest] // 2)
    return sides


def days_of(year, month):
    """Days since 1970 of the first day of a month (1 to 12) of the proleptic Gregorian calendar."""
    year -= month <= 2
    day_of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719468


def days(unit, count):
    """Days since 1970 of a stored date of a unit without a number of days; not-a-time if they do not fit."""
    if count == NOT_A_TIME:
        return count
    found = {"YEAR": lambda: days_of(1970 + count, 1), "MONTH": lambda: days_of(1970 + count // 12, count % 12 + 1), "WEEK": lambda: 7 * count}[unit]()
    return found if -(2**63) <= found < 2**63 else NOT_A_TIME


def converted(datatype, values):
    """Stored values converted to those of grids."""
    if datatype == "BOOL":
        return values != 0
    unit = datatype.removeprefix("DATETIME_")
    if unit in ("YEAR", "MONTH", "WEEK") and unit != datatype:
        return np.array([days(unit, int(v)) for v in values.reshape(-1)], "<i8").reshape(values.shape)
    return values


def left_out(datatype, cvn):
    """Whether grids leave out a field."""
    return cvn == "var" or datatype in TEXT_BYTES or datatype in TEXT_WIDE or datatype in ("BLOB", "ANY", "GEOM_WKB")


def unique(name, suffix, taken):
    """A made-up name beside `name`."""
    while True:
        made = within(name, 255 - len(suffix)) + suffix
        if made not in taken:
            taken.add(made)
            return made
        suffix += "_"


def within(name, room):
    """A name of at most `room` bytes."""
    if len(name.encode()) <= room:
        return name
    import hashlib

    tail = "~" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return name.encode()[: room - len(tail)].decode("utf-8", "ignore") + tail


class Grids:
    """The grids of a family of views, in a mount of its arrays."""

    def __init__(self, family, point):
        self.family, self.point = Path(family), point
        self.lib = Lib()
        self.facts = Facts(self.lib)

    def arrays(self):
        """The names of all arrays."""
        return [row["name"] for row in json.loads((self.family / "expected/manifest.json").read_text())["arrays"]]

    def views(self, array, every=False):
        """The views of a dense array: (description, bytes that it refers to); none for a sparse one."""
        base = self.family / "expected" / array
        doc = json.loads(base.with_suffix(".json").read_text())
        if doc["array_type"] != "dense":
            return []
        blob = memoryview(base.with_suffix(".bin").read_bytes())
        return [(view, blob) for view in doc["views"] if every or view["path"] == "data"]

    def fills(self, array, view):
        """{attribute: (fill value of a cell, whether that is valid)} in the schema in force."""
        end = view["time"][1]
        handle = self.lib.open(str(self.family / "arrays" / array), 0, end)
        try:
            schema = self.facts.schema(self.lib.get("tiledb_array_get_schema", handle))
        finally:
            self.lib.close(handle)
        return {a["name"]: (a["fill_value"].bytes, a["fill_value_valid"]) for a in schema["attributes"]}

    def covered(self, array, view):
        """Whether the domains of dense fragments together have all cells of the region."""
        shown = os.path.join(self.point, array)
        return fragment_cover.written(shown, os.path.join(shown, view["path"]), self.domains(array))[1]

    def domains(self, array):
        """What `fragment_cover.written` is to know of an array's fragments."""
        return fragment_cover.domains(self.family / "arrays" / array, os.path.join(self.point, array))

    def grid(self, array, view, blob):
        """The grid of a view; None if it has no cells."""
        if 0 in view["shape"]:
            return None
        fills, covered = self.fills(array, view), self.covered(array, view)
        shown = [names.dimension(f["name"], i) if f["kind"] == "dimension" else names.attribute(f["name"]) for i, f in enumerate(view["fields"])]
        shown = ["%7Aarr.json" if name == "zarr.json" else name for name in shown]
        taken, variables, dims = set(shown), [], []
        enumerated = {a["name"]: a["enumeration"] for a in view["schema"]["attributes"]}
        part = lambda entry, name: bytes(blob[entry[name][0] : sum(entry[name])])  # noqa: E731
        for index, (entry, name) in enumerate(zip(view["fields"], shown)):
            datatype, cvn = entry["datatype"], entry["cell_val_num"]
            dtype = np_type(datatype)
            if entry["kind"] == "dimension":
                stored = np.frombuffer(part(entry, "data"), dtype)
                values, attributes = converted(datatype, stored), units(datatype)
                if datatype.startswith("DATETIME_") and NOT_A_TIME in values and NOT_A_TIME not in stored:
                    values, attributes = stored, {}
                variables.append(Variable(name, "axis", [name], values, attributes=attributes))
                dims.append(name)
                continue
            if left_out(datatype, cvn):
                continue
            axes, shape = list(dims), list(view["shape"])
            if cvn > 1:
                axes.append(unique(name, "_cell", taken))
                shape.append(cvn)
            raw, valid = fills[entry["name"]]
            fill = np.frombuffer(raw, dtype)
            stored = np.frombuffer(part(entry, "data"), dtype).reshape(shape).copy()
            dated = datatype.startswith("DATETIME_")
            missing = self.missing(entry, dtype, fill, covered)
            attributes = units(datatype) | flags(view, enumerated[entry["name"]], dtype)
            null = None
            if entry["nullable"]:
                if dated:
                    fill = np.full_like(fill, NOT_A_TIME)
                validity = np.frombuffer(part(entry, "validity"), "u1").reshape(view["shape"])
                null = validity == 0
                stored[null] = fill if cvn > 1 else fill[0]
                beside = unique(name, "__validity", taken)
                attributes["ancillary_variables"] = beside
            if datatype == "BOOL":
                stored = (stored != 0).astype("u1")
            variables.append(Variable(name, "values", axes, converted(datatype, stored), converted(datatype, fill), missing, attributes, stored))
            if entry["nullable"]:
                variables.append(Variable(beside, "validity", list(dims), validity, np.array([valid], "u1")))
        return Grid(view["path"], view["shape"], variables, metadata(view))

    @staticmethod
    def missing(entry, dtype, fill, covered):
        """The value for missing values, if the type allows one."""
        if entry["datatype"].startswith("DATETIME_"):
            return np.int64(NOT_A_TIME)
        useful = dtype.kind == "f" or entry["datatype"] != "BOOL" and (entry["nullable"] or not covered and dtype.itemsize > 1)
        raw = fill.tobytes()
        return fill[0] if useful and raw == raw[: dtype.itemsize] * fill.size else None


class Compared:
    """Counts what readers make of the files of an export."""

    def __init__(self, grids):
        self.grids, self.point = grids, grids.point
        self.pairs, self.failures = 0, []

    def check(self, label, reader, function, *args):
        """Counts one image or array in one reader."""
        try:
            function(*args)
            self.pairs += 1
        except Exception as error:  # noqa: BLE001 - readers raise anything
            text = str(error) if isinstance(error, Differs) else f"{type(error).__name__}: {error}"
            self.failures.append(f"{label} in {reader}: {text}")


class ShownGrids(Grids):
    """The grids of all arrays in a mount."""

    def __init__(self, point):
        self.point = point

    def arrays(self):
        found = []
        for folder, subfolders, files in os.walk(self.point):
            if "schema.json" in files:
                found.append(os.path.relpath(folder, self.point))
                subfolders[:] = [name for name in subfolders if name == "labels"]
        return sorted(found)

    def views(self, array, every=False):
        try:
            return self.shown(os.path.join(self.point, array))
        except Differs as error:
            print(f"not compared, because its columns cannot be read: {error}")
            return []

    @staticmethod
    def shown(folder):
        """The view `data/` of an array in `folder`; none for a sparse one, or one with very many cells."""
        schema = load(os.path.join(folder, "schema.json"))
        shown = load(os.path.join(folder, "data/view.json"))
        if not shown["dense"] or shown["cells"] is None or shown["cells"] > 1 << 22:
            return []
        blob, fields = b"", []
        for index, field in enumerate(shown["fields"]):
            entry = {name: field[name] for name in ("name", "datatype", "cell_val_num", "nullable")} | {"kind": field["role"]}
            name = names.dimension(field["name"], index) if field["role"] == "dimension" else names.attribute(field["name"])
            for part in ("data", "validity") if field["nullable"] else ("data",):
                raw = read(os.path.join(folder, "data/columns", name, part + ".bin"))
                entry[part] = [len(blob), len(raw)]
                blob += raw
            fields.append(entry)
        listed = os.path.join(folder, "enumerations")
        labels = [load(os.path.join(listed, name)) for name in os.listdir(listed)]
        view = {
            "path": "data", "time": [None, None], "shape": shown["shape"], "region": shown["region"], "fields": fields, "schema": schema,
            "metadata": load(os.path.join(folder, "metadata.json")), "enumerations": {one["name"]: one["values"] for one in labels},
        }
        return [(view, blob)]

    def domains(self, array):
        return fragment_cover.shown_domains(os.path.join(self.point, array))

    def fills(self, array, view):
        found = {}
        for attribute in view["schema"]["attributes"]:
            if not left_out(attribute["datatype"], attribute["cell_val_num"]):
                values = np.array([attribute["fill_value"]]).reshape(-1)
                fill = np.array([float(v) if isinstance(v, str) else v for v in values.tolist()])
                found[attribute["name"]] = fill.astype(np_type(attribute["datatype"])).tobytes(), attribute["fill_value_valid"]
        return found


@contextlib.contextmanager
def opened(family, source):
    """The grids of a family of views, or of any source, while it is mounted."""
    if family:
        family = os.path.realpath(family)
        with mounted(os.path.join(family, "arrays")) as point:
            yield Grids(family, point)
        return
    with tempfile.NamedTemporaryFile() as key:
        key.write(FAMILY_KEY)
        key.flush()
        with mounted(os.path.realpath(source), "--key-file", key.name) as point:
            yield ShownGrids(point)


def units(datatype):
    """The CF attributes of a datatype."""
    unit = UNITS.get(datatype.removeprefix("DATETIME_")) if datatype.startswith("DATETIME_") else None
    return {"units": f"{unit} since 1970-01-01", "calendar": "proleptic_gregorian"} if unit else {}


def flags(view, enumeration, dtype):
    """The CF attributes of an enumerated attribute with labels of text."""
    labels = view["enumerations"].get(enumeration)
    if not labels or not all(isinstance(label, str) for label in labels) or dtype.kind not in "iu":
        return {}
    values = list(range(min(len(labels), int(np.iinfo(dtype).max) + 1)))
    words = ["_".join(part for part in [*label.replace("\0", " ").split(" ")] if part) or "_" for label in labels]
    return {"flag_values": values[0] if len(values) == 1 else values, "flag_meanings": " ".join(words[: len(values)])}


def metadata(view):
    """The array's metadata as attributes: numbers and text."""
    found = {}
    for key, entry in view["metadata"].items():
        value = entry["value"]
        if key.startswith("_") or isinstance(value, dict) or value is None or value == []:
            continue
        if entry["value_num"] * np_type(entry["datatype"]).itemsize > MOST_METADATA:
            continue
        words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        text = entry["datatype"] in TEXT_BYTES or entry["datatype"] in TEXT_WIDE
        short = entry["datatype"] == "FLOAT32"
        plain = lambda v: v if text else words.get(v, float(np.float32(v)) if short else v)  # noqa: E731
        found[names.encode(key)] = [plain(v) for v in value] if isinstance(value, list) else plain(value)
    return found


def compare_all(description, make):
    """The command line of a comparison of what is made of grids: `make(grids)` has `view(array, view, blob)`, and counts `pairs` and `failures`."""
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--family")
    which.add_argument("--source")
    parser.add_argument("--all", action="store_true", help="every view, and not `data/` alone")
    parser.add_argument("--array", help="only arrays whose name contains this")
    parser.add_argument("--share", type=share, help="with --all, `data` and part N of M of the rest: N/M")
    args = parser.parse_args()
    start = time.time()
    with opened(args.family, args.source) as grids:
        comparison = make(grids)
        for array in grids.arrays():
            if args.array and args.array not in array:
                continue
            for view, blob in grids.views(array, args.all):
                if chosen(args.share, array, view["path"]):
                    comparison.view(array, view, blob)
    for line in comparison.failures[:400]:
        print("FAIL " + line[:600])
    print(f"{comparison.seen()} compared in {time.time() - start:.0f} s")
    print(f"{comparison.pairs} passed, {len(comparison.failures)} failed")
    sys.exit(1 if comparison.failures or not comparison.pairs else 0)
