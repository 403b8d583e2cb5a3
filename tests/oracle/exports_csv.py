"""The oracle test of `table.csv`: what programs read from it through a mount, against what libtiledb reads from the array.

    python3 exports_csv.py --family FOLDER          `data/` of every array of a family, see views.py
    python3 exports_csv.py --family FOLDER --all    every view of theirs
    python3 exports_csv.py --source FOLDER          `data/` of every array in any folder, against its columns in the mount

`--share 1/3` takes a third of the arrays.

Each file is read at random places first, then whole, then by each reader. The last line is `N passed, N failed`, counting (file, reader) pairs.
"""

import argparse
import collections
import csv
import functools
import json
import math
import multiprocessing
import os
import random
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fragment_cover
import names
from capi import np_type
from mount import mounted
from shares import belongs, share
from view_files import Differs, ViewField, ViewTruth, load, same
from views import FAMILY_KEY, family_view

BYTES = {"BLOB", "ANY", "GEOM_WKB"}
WIDE = {"STRING_UTF16": "utf-16-le", "STRING_UCS2": "utf-16-le", "STRING_UTF32": "utf-32-le", "STRING_UCS4": "utf-32-le"}
TEXT = {"CHAR", "STRING_ASCII", "STRING_UTF8", "GEOM_WKT", *WIDE}
NOT_A_TIME = -(1 << 63)
UNITS = {"HR": (24, 0), "MIN": (1440, 0), "SEC": (86400, 0), "MS": (86400 * 10**3, 3), "US": (86400 * 10**6, 6), "NS": (86400 * 10**9, 9),
         "PS": (86400 * 10**12, 12), "FS": (86400 * 10**15, 15), "AS": (86400 * 10**18, 18)}
"""Units per day, and decimals of the second."""

# -- what a table is to be -----------------------------------------------------------------------------------


@dataclass
class Column:
    """A column of a table: its values, with None for null."""

    name: str
    kind: str
    """`int`, `uint`, `float`, `bool`, `text`, or `list`, which is text."""
    type: str
    values: list


def civil(days):
    """Year, month and day of a count of days since 1970-01-01, of any size."""
    era, of_era = divmod(days + 719468, 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    day_of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def datetime_text(datatype, count):
    """A DATETIME as NumPy prints it, at least in days or seconds."""
    unit = datatype.removeprefix("DATETIME_")
    if count == NOT_A_TIME:
        return "NaT"
    if unit == "YEAR":
        return f"{count + 1970:04}-01-01"
    if unit == "MONTH":
        return f"{count // 12 + 1970:04}-{count % 12 + 1:02}-01"
    if unit in ("WEEK", "DAY"):
        year, month, day = civil(count * 7 if unit == "WEEK" else count)
        return f"{year:04}-{month:02}-{day:02}"
    units, digits = UNITS[unit]
    year, month, day = civil(count // units)
    ticks = count % units
    seconds, part = divmod(ticks, units // 86400) if digits else (ticks * (86400 // units), 0)
    text = f"{year:04}-{month:02}-{day:02}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{part:0{digits}}" if digits else text


def check_numpy():
    """Compares `datetime_text` with NumPy where NumPy prints the same."""
    for unit, code in (("DAY", "D"), ("SEC", "s"), ("MS", "ms"), ("US", "us"), ("NS", "ns"), ("PS", "ps"), ("FS", "fs"), ("AS", "as")):
        for count in (0, 1, -1, 10**9 + 7, -(10**9) - 7, -719529, 2932897, (1 << 62) + 12345 if unit not in ("DAY", "SEC") else 10**6):
            same(f"{count} {unit}", datetime_text("DATETIME_" + unit, count), str(np.datetime64(count, code)))


def element(datatype, value):
    """One value of a NumPy array."""
    if datatype == "BOOL":
        return bool(value)
    if datatype.startswith("DATETIME_"):
        return datetime_text(datatype, int(value))
    return float(value) if datatype.startswith("FLOAT") else int(value)


def kind(datatype):
    """The kind of comparison for values of a datatype."""
    if datatype.startswith("FLOAT"):
        return "float"
    if datatype.startswith("DATETIME_"):
        return "text"
    return {"BOOL": "bool", "UINT64": "uint"}.get(datatype, "int")


def cells(one, count):
    """The bytes of each cell of a field."""
    if one.offsets is not None:
        offsets = np.frombuffer(one.offsets, "<u8").tolist()
        return [one.data[a:b] for a, b in zip(offsets, offsets[1:])]
    size = len(one.data) // max(count, 1)
    return [one.data[i * size : (i + 1) * size] for i in range(count)]


def column(view, index, repeated):
    """A field of a view as a column; `repeated` has the index of the cell of each row."""
    one = view.fields[index]
    name = one.name or (f"__dim_{index}" if one.kind == "dimension" else "__attr")
    count = one.shape[0] if repeated is not None else view.cells
    raw = cells(one, count)
    attribute = next((a for a in view.facts["schema"]["attributes"] if a["name"] == one.name and one.kind == "attribute"), {})
    labels = view.facts["enumerations"].get(attribute.get("enumeration")) if attribute.get("enumeration") else None
    sort, values = values_of(one, raw, labels)
    if one.validity is not None:
        values = [value if valid else None for value, valid in zip(values, one.validity)]
    if repeated is not None:
        values = [values[i] for i in repeated]
    return Column(name, sort, one.type, values)


def values_of(one, raw, labels):
    """The values of cells."""
    if labels is not None:
        indexes = np.frombuffer(b"".join(raw), np_type(one.type)).tolist()
        found = [labels[i] if 0 <= i < len(labels) else None for i in indexes]
        types = {type(label) for label in labels} or {str}
        return {str: "text", int: "int", float: "float", bool: "bool"}[types.pop()], found
    if one.type in BYTES:
        return "text", [cell.hex() for cell in raw]
    if one.type in TEXT:
        padded = one.cvn != "var" and one.type not in WIDE and one.type != "GEOM_WKT"
        raw = [cell.rstrip(b"\0") if padded else cell for cell in raw]
        return "text", [cell.decode(WIDE[one.type], "replace") if one.type in WIDE else cell for cell in raw]
    dtype = np_type(one.type)
    if one.cvn == 1:
        values = [element(one.type, value) for value in np.frombuffer(b"".join(raw), dtype)]
        return kind(one.type), [None if value == "NaT" else value for value in values]
    return "list", [[element(one.type, value) for value in np.frombuffer(cell, dtype)] for cell in raw]


def table(view, written=None):
    """The columns of a view; `written` tells of each cell of a dense one whether somebody wrote it."""
    repeated = [None] * len(view.fields)
    if view.dense:
        axes = np.indices(view.shape).reshape(len(view.shape), -1).tolist()
        repeated[: len(axes)] = axes
    columns = [column(view, i, repeated[i]) for i in range(len(view.fields))]
    for one, field in zip(columns, view.fields):
        if written is not None and field.kind == "attribute":
            one.values = [value if there else None for value, there in zip(one.values, written)]
    return columns


# -- readers -------------------------------------------------------------------------------------------------


class Unreadable(Exception):
    """A file that a reader is known not to read."""


def raw_reader(path, columns, encoding):
    """Parses quotes and commas by hand, in bytes: null differs from empty text."""
    data, at, rows, row = Path(path).read_bytes(), 0, [], []
    while at < len(data):
        if data[at : at + 1] == b'"':
            end = at
            while True:
                end = data.index(b'"', end + 1)
                if data[end + 1 : end + 2] != b'"':
                    break
                end += 1
            text, at = data[at + 1 : end].replace(b'""', b'"'), end + 1
            # Quotes are used only where needed.
            if text and not any(c in text for c in b',"\r\n') and text[:1] not in b" \t" and text[-1:] not in b" \t":
                raise Differs(f"{text!r} in quotes")
        else:
            end = min(i for i in (data.find(b",", at), data.find(b"\n", at)) if i >= 0)
            text, at = data[at:end] or None, end
        row.append(text)
        if data[at : at + 1] == b"\n":
            rows.append(row)
            row = []
        elif data[at : at + 1] != b",":
            raise Differs(f"{data[at : at + 20]!r} behind a field at byte {at}")
        at += 1
    same("names", [name.decode(encoding) for name in rows[0]], [c.name for c in columns])
    same("lengths of rows", {len(r) for r in rows}, {len(columns)})
    texts = [[None if cell is None else cell.decode(encoding) for cell in values] for values in zip(*rows[1:])]
    return [typed(c, values) for c, values in zip(columns, texts or [[]] * len(columns))]


def typed(c, texts):
    """Texts as values of a column."""
    types = {"int": int, "uint": int, "float": float, "bool": {"true": True, "false": False}.__getitem__}
    to = types.get(c.kind, str)
    return [None if text is None else to(text) for text in texts]


def python_reader(path, columns, encoding):
    """Python's csv module, which does not distinguish null from empty text."""
    csv.field_size_limit(1 << 30)
    with open(path, newline="", encoding=encoding) as f:
        header, *rows = csv.reader(f)
    same("names", header, [c.name for c in columns])
    texts = [[cell or None for cell in values] for values in zip(*rows)]
    return [typed(c, values) for c, values in zip(columns, texts or [[]] * len(columns))]


def pandas_reader(path, columns, encoding):
    """pandas with given types."""
    import pandas

    if any(isinstance(v, str) and "\0" in v for c in columns for v in c.values):
        raise Unreadable("NUL bytes in text end it in pandas")
    types = {"int": "Int64", "uint": "UInt64", "float": "float64", "bool": "boolean"}
    frame = pandas.read_csv(path, dtype={c.name: types.get(c.kind, "object") for c in columns},
                            keep_default_na=False, na_values={c.name: ["", "NaN"] if c.kind == "float" else [""] for c in columns}, skip_blank_lines=False, encoding=encoding)
    same("names", list(frame.columns), [c.name for c in columns])
    return [[None if value is pandas.NA or (c.kind != "float" and value != value) else value for value in frame[c.name].tolist()] for c in columns]


def pandas_plain_reader(path, columns, encoding):
    """pandas with defaults: columns of numbers without nulls are numbers."""
    import pandas

    frame = pandas.read_csv(path, encoding=encoding)
    same("names", list(frame.columns), [c.name for c in columns])
    for c in columns:
        if c.kind in ("int", "uint", "float", "bool") and c.values and None not in c.values:
            found = frame[c.name].dtype.kind
            same(f"type of {c.name}", found in {"int": "iu", "uint": "iu", "float": "f", "bool": "b"}[c.kind], True)
            if c.kind != "float":
                same(f"values of {c.name}", frame[c.name].tolist(), c.values)
    return None


def polars_reader(path, columns, encoding):
    """Polars with given types."""
    import polars

    types = {"int": polars.Int64, "uint": polars.UInt64, "float": polars.Float64, "bool": polars.Boolean}
    schema = {f"c{i}": types.get(c.kind, polars.String) for i, c in enumerate(columns)}
    if encoding != "utf-8":
        raise Unreadable("bytes that are not UTF-8: Polars replaces them")
    if any("\n" in c.name for c in columns):
        raise Unreadable("a line feed in a name")
    frame = polars.read_csv(path, has_header=False, skip_rows=1, schema=schema, raise_if_empty=False)
    return [frame[name].to_list() if len(frame) else [] for name in schema]


def polars_plain_reader(path, columns, encoding):
    """Polars with `infer_schema_length=None`: columns of numbers are numbers."""
    import polars

    if encoding != "utf-8":
        raise Unreadable("bytes that are not UTF-8: Polars refuses them")
    frame = polars.read_csv(path, infer_schema_length=None)
    if not any('"' in c.name for c in columns):
        same("names", frame.columns, [c.name for c in columns])
    for name, c in zip(frame.columns, columns):
        if c.kind in ("int", "float", "bool") and any(v is not None for v in c.values):
            found = frame[name].dtype
            right = {"int": found.is_integer(), "float": found.is_float(), "bool": found == polars.Boolean}[c.kind]
            same(f"type of {c.name} is right, {found}", right, True)
            compare(c, frame[name].to_list(), True)
    return None


@functools.cache
def duck():
    """A connection of DuckDB, one per process: making one takes longer than reading a file."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    return connection


def duckdb_reader(path, columns, encoding):
    """DuckDB with given types."""
    types = {"int": "BIGINT", "uint": "UBIGINT", "float": "DOUBLE", "bool": "BOOLEAN"}
    wanted = {f"c{i}": types.get(c.kind, "VARCHAR") for i, c in enumerate(columns)}
    if encoding != "utf-8":
        raise Unreadable("bytes that are not UTF-8: DuckDB refuses them")
    relation = duck().read_csv(str(path), header=True, columns=wanted, auto_detect=False, sep=",", quotechar='"', escapechar='"',
                                   na_values="", allow_quoted_nulls=False, hive_partitioning=False)
    rows = relation.fetchall()
    return [list(values) for values in zip(*rows)] or [[] for _ in columns]


def duckdb_plain_reader(path, columns, encoding):
    """DuckDB inferring types: columns of numbers are numbers, unless an infinity, which it tries as a date first, is among them.

    It is told the quote, because it takes ' for that in some text, and that the subarray `row=1..2` makes no column."""
    if encoding != "utf-8":
        raise Unreadable("bytes that are not UTF-8: DuckDB refuses them")
    relation = duck().sql(f"SELECT * FROM read_csv('{str(path).replace(chr(39), chr(39) * 2)}', header = true, quote = '\"', "
                          "hive_partitioning = false, sample_size = -1)")
    types = [str(t) for t in relation.types]
    rows = relation.fetchall()
    same("rows", len(rows), len(columns[0].values))
    for c, found, values in zip(columns, types, zip(*rows)):
        infinite = c.kind == "float" and any(v is not None and math.isinf(v) for v in c.values)
        if c.kind in ("int", "uint", "float", "bool") and any(v is not None for v in c.values) and not infinite:
            right = {"int": ("BIGINT", "HUGEINT"), "uint": ("BIGINT", "UBIGINT", "HUGEINT"), "float": ("DOUBLE",), "bool": ("BOOLEAN",)}[c.kind]
            same(f"type of {c.name} is one of {right}, {found}", found in right, True)
            compare(c, list(values), True)
    return None


def pyarrow_reader(path, columns, encoding):
    """pyarrow with given types."""
    import pyarrow
    from pyarrow import csv as arrow

    types = {"int": pyarrow.int64(), "uint": pyarrow.uint64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    convert = arrow.ConvertOptions(column_types={c.name: types.get(c.kind, pyarrow.string()) for c in columns}, null_values=[""],
                                   strings_can_be_null=True, quoted_strings_can_be_null=False)
    found = arrow.read_csv(path, parse_options=arrow.ParseOptions(newlines_in_values=True), convert_options=convert,
                           read_options=arrow.ReadOptions(use_threads=False, encoding="utf8" if encoding == "utf-8" else encoding))
    same("names", found.column_names, [c.name for c in columns])
    return [one.to_pylist() for one in found.columns]


READERS = {
    "by hand": (raw_reader, False),
    "python csv": (python_reader, True),
    "pandas": (pandas_reader, True),
    "pandas without options": (pandas_plain_reader, True),
    "Polars": (polars_reader, False),
    "Polars inferring": (polars_plain_reader, False),
    "DuckDB": (duckdb_reader, False),
    "DuckDB inferring": (duckdb_plain_reader, False),
    "pyarrow": (pyarrow_reader, False),
}
"""Each reader, and whether it reads empty text as null."""


# -- comparing -----------------------------------------------------------------------------------------------


def bits(value, datatype):
    """A float that compares by its bits, with all NaN equal."""
    if value is None or math.isnan(value):
        return value if value is None else "NaN"
    return struct.pack("<f", np.float32(value)) if datatype == "FLOAT32" else struct.pack("<d", value)


def parse_list(text, datatype):
    """The elements of a list."""
    same("brackets", (text[:1], text[-1:]), ("[", "]"))
    parts = text[1:-1].split(", ") if text != "[]" else []
    to = {"float": float, "bool": {"true": True, "false": False}.__getitem__, "text": str}.get(kind(datatype), int)
    return [to(part) for part in parts]


def compare(c, found, empty_is_null):
    """Fails unless a column has the expected values."""
    want = c.values
    if c.kind == "text" and empty_is_null:
        want = [value or None for value in want]
    if c.kind == "list":
        found = [None if value is None else parse_list(value, c.type) for value in found]
        if kind(c.type) == "float":
            want, found = ([None if v is None else [bits(e, c.type) for e in v] for v in values] for values in (want, found))
    elif c.kind == "float":
        want, found = ([bits(v, c.type) for v in values] for values in (want, found))
        if empty_is_null:
            # pandas does not distinguish them.
            want, found = (["NaN" if v is None else v for v in values] for values in (want, found))
    same(f"number of values of {c.name!r}", len(found), len(want))
    for row, (a, b) in enumerate(zip(found, want)):
        if a != b:
            raise Differs(f"row {row} of {c.name!r} ({c.type}): got {a!r}, expected {b!r}")


def shown_view(folder):
    """A view made of its columns in a mount, which other tests compare with libtiledb."""
    doc = load(os.path.join(folder, "view.json"))
    above = Path(folder, "..")
    fields = []
    for index, one in enumerate(doc["fields"]):
        anonymous = names.dimension("", index) if one["role"] == "dimension" else names.attribute("")
        where = Path(folder, "columns", names.encode(one["name"]) if one["name"] else anonymous)
        parts = ((where / f"{part}.bin").read_bytes() if (where / f"{part}.bin").exists() else None for part in ("data", "offsets", "validity"))
        fields.append(ViewField(one["name"], one["role"], one["datatype"], one["cell_val_num"], one["nullable"], one["shape"], *parts))
    schema = load(above / "schema.json")
    used = {a["enumeration"] for a in schema["attributes"] if a["enumeration"]}
    labels = {name: load(above / "enumerations" / (names.encode(name) + ".json"))["values"] for name in used}
    return ViewTruth("data", doc["time_range"], doc["dense"], doc["order"], doc["shape"], doc["cells"], doc["region"], fields, True,
                     {"schema": schema, "enumerations": labels})


class Tally:
    """The result of comparing one array."""

    def __init__(self):
        self.passed, self.failures, self.files, self.exceptions, self.seconds = 0, [], 0, collections.Counter(), collections.Counter()


def read_anyhow(path, seed):
    """The whole file, which must agree with earlier random reads."""
    chance = random.Random(seed)
    size = os.stat(path).st_size
    with open(path, "rb", buffering=0) as f:
        parts = [(at, os.pread(f.fileno(), length, at), length) for at, length in
                 ((chance.randrange(size + 10), chance.randrange(3000)) for _ in range(8))]
        whole = f.read()
    same("size", size, len(whole))
    for at, part, length in parts:
        same(f"{length} bytes at {at}", part, whole[at : at + length])
    return whole


def first_rows(whole, count):
    """The header and the first rows of a CSV file, whose text may have line feeds within quotes."""
    end, quoted = -1, False
    for _ in range(count + 1):
        while True:
            start = end + 1
            end = whole.find(b"\n", start)
            if end < 0:
                return whole
            quoted ^= whole.count(b'"', start, end) % 2 == 1
            if not quoted:
                break
    return whole[: end + 1]


def compare_file(path, columns, tally, label):
    """Reads one file with every reader, and `head.csv` before it."""
    try:
        head = Path(path).with_name("head.csv").read_bytes()
        whole = read_anyhow(path, label)
        same("head.csv", head, first_rows(whole, 1000))
    except (Differs, OSError) as error:
        tally.failures.append(f"{label}: {error}")
        return
    tally.files += 1
    try:
        whole.decode()
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "latin-1"
    for c in columns:
        c.values = [v.decode(encoding) if isinstance(v, bytes) else v for v in c.values]
        if encoding != "utf-8" and c.kind == "text":
            # Valid UTF-8 is other text for programs that read the file as Latin-1.
            c.values = [v if v is None or not isinstance(v, str) or c.type in ("CHAR", "STRING_ASCII", "STRING_UTF8", "GEOM_WKT") else v.encode().decode(encoding) for v in c.values]
    if encoding != "utf-8":
        for c in columns:
            c.name = c.name.encode().decode(encoding)
    for name, (reader, empty_is_null) in READERS.items():
        start = time.time()
        try:
            found = reader(path, columns, encoding)
            if found is not None:
                same("columns", len(found), len(columns))
                for c, values in zip(columns, found):
                    compare(c, values, empty_is_null)
            tally.passed += 1
        except Unreadable as reason:
            tally.exceptions[f"{name}: {reason}"] += 1
        except Exception as error:  # noqa: BLE001 - any failure of any reader is one
            tally.failures.append(f"{label}, {name}: {type(error).__name__}: {error}")
        tally.seconds[name] += time.time() - start


def compare_array(family, point, array, every):
    """Compares the files of one array."""
    tally = Tally()
    base = os.path.join(family, "expected", array)
    doc = json.loads(Path(base + ".json").read_text())
    blob = memoryview(Path(base + ".bin").read_bytes())
    for view in doc["views"]:
        if not every and view["path"] != "data":
            continue
        label = f"{array} {view['path']}"
        folder = os.path.join(point, array, view["path"])
        try:
            written = None
            if doc["array_type"] == "dense":
                shown = os.path.join(point, array)
                written, _ = fragment_cover.written(shown, folder, fragment_cover.domains(os.path.join(family, "arrays", array), shown))
            columns = table(family_view(doc, blob, view), written)
            said = load(os.path.join(folder, "view.json"))["exports"]["table.csv"]
            same("exports of view.json", (said["exists"], said["reason"]), (True, None))
            same("listed", "table.csv" in os.listdir(folder), True)
        except Exception as error:  # noqa: BLE001
            tally.failures.append(f"{label}: {type(error).__name__}: {error}")
            continue
        compare_file(os.path.join(folder, "table.csv"), columns, tally, label)
    return tally


def compare_shown(point, array):
    """Compares the file of `data/` of one array with its columns."""
    tally = Tally()
    folder = os.path.join(point, array, "data")
    try:
        said = load(os.path.join(folder, "view.json"))["exports"]["table.csv"]
        if said["exists"] is False:
            tally.exceptions[f"no table.csv: {said['reason']}"] += 1
            return tally
        view = shown_view(folder)
        above = os.path.join(point, array)
        columns = table(view, fragment_cover.written(above, folder, fragment_cover.shown_domains(above))[0] if view.dense else None)
    except (Differs, OSError, UnicodeError) as error:
        tally.exceptions[f"{array} has no columns to compare with: {str(error)[-160:]}"] += 1
        try:
            Path(folder, "table.csv").read_bytes()
            tally.failures.append(f"{array}: columns cannot be read, and table.csv can")
        except OSError:
            pass
        return tally
    compare_file(os.path.join(folder, "table.csv"), columns, tally, array)
    return tally


def arrays_below(point):
    """All arrays that a mount shows, without labels."""
    found = []
    for folder, directories, files in os.walk(point):
        if "schema.json" in files:
            found.append(os.path.relpath(folder, point))
            directories.clear()
    return sorted(found)


def compare_options(family):
    """The effects of `--csv-values` and `hide_exports`."""
    tally = Tally()
    with mounted(os.path.join(family, "arrays"), "-o", "hide_exports,csv_values=500") as point:
        there = 0
        for array in sorted(os.listdir(point))[:60]:
            if array == ".tiledbfs":
                continue
            folder = os.path.join(point, array, "data")
            doc = load(os.path.join(folder, "view.json"))
            few = doc["cells"] * len(doc["fields"]) <= 500
            there += few
            try:
                same("names", sorted(os.listdir(folder)), ["columns", "view.json"])
                same("exists", (os.path.exists(os.path.join(folder, "table.csv")), doc["exports"]["table.csv"]["exists"]), (few, few))
                same("a reason", doc["exports"]["table.csv"]["reason"] is None, few)
                tally.passed += 1
            except (Differs, OSError) as error:
                tally.failures.append(f"{array} with options: {error}")
    if not 0 < there < 60:
        tally.failures.append(f"{there} arrays of 60 have few values")
    return tally


def work(job):
    """One array in a process of its own."""
    return compare_array(*job) if len(job) == 4 else compare_shown(*job)


def main():
    """Compares a family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--family")
    which.add_argument("--source")
    parser.add_argument("--all", action="store_true", help="every view, not only `data`")
    parser.add_argument("--array", help="only arrays whose name contains this")
    parser.add_argument("--share", type=share, help="part N of M of the arrays: N/M")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    check_numpy()
    start, failures, passed, files = time.time(), [], 0, 0
    exceptions, seconds = collections.Counter(), collections.Counter()
    family = args.family and os.path.realpath(args.family)
    source = args.source or os.path.join(family, "arrays")

    def chosen(array):
        """Whether to compare an array."""
        return (not args.array or args.array in array) and belongs(args.share, array)

    def jobs(point):
        """The arrays to compare."""
        if args.source:
            return [(str(point), array) for array in arrays_below(point) if chosen(array)]
        rows = json.loads(Path(family, "expected/manifest.json").read_text())["arrays"]
        return [(family, str(point), row["name"], args.all) for row in rows if chosen(row["name"])]

    def tallies():
        """The result of all arrays."""
        with tempfile.NamedTemporaryFile() as key:
            key.write(FAMILY_KEY)
            key.flush()
            context = multiprocessing.get_context("spawn")
            options = ["--key-file", key.name] if args.source else []
            with mounted(source, *options) as point, context.Pool(args.processes) as pool:
                yield from pool.imap_unordered(work, jobs(point))
        if not args.source:
            yield compare_options(family)

    for tally in tallies():
        passed += tally.passed
        files += tally.files
        exceptions += tally.exceptions
        seconds += tally.seconds
        for line in tally.failures:
            if len(failures) < 60:
                print("FAIL " + line[:500], flush=True)
            failures.append(line)
    for line, count in sorted(exceptions.items()):
        print(f"exception, {count} times: {line}")
    print(", ".join(f"{name} {spent:.0f} s" for name, spent in seconds.most_common()))
    print(f"{files} files compared in {time.time() - start:.0f} s")
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(1 if failures or not passed else 0)


if __name__ == "__main__":
    main()
