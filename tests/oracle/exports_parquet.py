"""The oracle test of `table.parquet`: what programs read from it through a mount, against what libtiledb reads from the array.

    python3 exports_parquet.py --family FOLDER          `data/` of arrays written for this, with libtiledb's answers
    python3 exports_parquet.py --family FOLDER --all    every view of theirs

Each file is opened by each reader and compared with the rules for tables: names, types, values, nulls. Then each engine that skips row groups is
asked to filter the file, by random comparisons and IS NULL, and has to find as many rows as in a copy in memory. `--share N/M` takes a fixed
part of the arrays, `--array NAME` those whose name contains it. The last line is `N passed, N failed`, counting (file, reader) pairs.
"""

import argparse
import collections
import datetime
import json
import math
import multiprocessing
import os
import random
import sys
import time
from pathlib import Path

import numpy as np

import fragment_cover
from mount import mounted
from shares import belongs, share

TEXT = {"STRING_ASCII", "STRING_UTF8", "GEOM_WKT"}
BYTES = {"CHAR", "BLOB", "ANY", "GEOM_WKB", "STRING_UTF16", "STRING_UCS2", "STRING_UTF32", "STRING_UCS4"}
WIDE = {"STRING_UTF16": 2, "STRING_UCS2": 2, "STRING_UTF32": 4, "STRING_UCS4": 4}
NUMBERS = {"INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "FLOAT32": "f4", "FLOAT64": "f8", "BOOL": "u1"}
NAT = -(2**63)
TICK = {"ms": 10**6, "us": 10**3, "ns": 1}
TIMES = {"HR": ("ms", 3_600_000), "MIN": ("ms", 60_000), "SEC": ("ms", 1000), "MS": ("ms", 1), "US": ("us", 1), "NS": ("ns", 1)}
SHOWN = 200
"""The most failures to print."""


class Differs(Exception):
    """A file differs from its expected content."""


# -- what a table is to be -----------------------------------------------------------------------------------


def days(unit, value):
    """A date as days since 1970; None if they do not fit into 32 bits."""
    if value == NAT:
        return None
    if unit == "WEEK":
        value *= 7
    elif unit in ("YEAR", "MONTH"):
        year, month = (1970 + value, 1) if unit == "YEAR" else (1970 + value // 12, value % 12 + 1)
        cycles, year = divmod(year - 1, 400)
        value = cycles * 146_097 + datetime.date(year + 1, month, 1).toordinal() - 719_163
    return value if -(2**31) <= value < 2**31 else None


def scaled(factor, value):
    """A time in smaller units; None if it does not fit."""
    out = value * factor
    return out if value != NAT and -(2**63) < out < 2**63 else None


def number_type(datatype):
    """The readers' type of a value, and a function of the stored integer; None if it is shown unchanged."""
    if not datatype.startswith("DATETIME_"):
        return {"BOOL": "bool", "FLOAT32": "float", "FLOAT64": "double"}.get(datatype, "int64" if datatype.startswith("TIME_") else datatype.lower()), None
    unit = datatype.removeprefix("DATETIME_")
    if unit in ("YEAR", "MONTH", "WEEK", "DAY"):
        return "date", lambda value: days(unit, value)
    if unit in TIMES:
        tick, factor = TIMES[unit]
        return "timestamp", lambda value: None if (out := scaled(factor, value)) is None else out * TICK[tick]
    return "int64", lambda value: scaled(1, value)


def numbers(datatype, data, axis=False):
    """The type and the values of stored numbers."""
    values = np.frombuffer(data, NUMBERS.get(datatype, "i8"))
    if datatype == "BOOL":
        return "bool", (values != 0).tolist()
    kind, convert = number_type(datatype)
    values = values.tolist()
    if convert is None:
        return kind, values
    out = [convert(value) for value in values]
    return ("int64", values) if axis and None in out else (kind, out)


def text(datatype, raw, fixed):
    """Text or bytes in the form of readers."""
    if fixed and datatype in ("CHAR", "STRING_ASCII", "STRING_UTF8"):
        raw = raw.rstrip(b"\0")
    return raw.decode("utf-8", "surrogateescape") if datatype in TEXT else raw


def column(field, part, repeat):
    """Type and values of a field; `part` gives its bytes, `repeat` makes rows of coordinates."""
    data, offsets, validity = part("data"), part("offsets"), part("validity")
    datatype, cvn = field["datatype"], field["cell_val_num"]
    if offsets is not None:
        starts = np.frombuffer(offsets, "<u8").tolist()
        if datatype in TEXT | BYTES:
            kind, cells = "string" if datatype in TEXT else "binary", [text(datatype, data[a:b], False) for a, b in zip(starts, starts[1:])]
        else:
            kind, flat = numbers(datatype, data)
            size = np.dtype(NUMBERS.get(datatype, "i8")).itemsize
            kind, cells = f"list<{kind}>", [flat[a // size : b // size] for a, b in zip(starts, starts[1:])]
    elif datatype in TEXT | BYTES:
        size = WIDE.get(datatype, 1) * cvn
        kind, cells = "string" if datatype in TEXT else "binary", [text(datatype, data[i : i + size], True) for i in range(0, len(data), size)]
    else:
        kind, cells = numbers(datatype, data, repeat is not None)
        if cvn != 1:
            kind, cells = f"list<{kind}>", [cells[i : i + cvn] for i in range(0, len(cells), cvn)]
    if repeat is not None:
        cells = [cells[i] for i in repeat]
    if validity is not None:
        none = [None] * cvn if kind.startswith("list") and cvn != "var" else None
        cells = [cell if valid else none for cell, valid in zip(cells, validity)]
    return kind, cells


def labelled(view, index, kind, cells):
    """Replaces indexes by labels: those of the family are text."""
    name = view["schema"]["attributes"][index]["enumeration"]
    if name is None:
        return kind, cells
    labels = view["enumerations"][name]
    return "string", [labels[i] if i is not None and 0 <= i < len(labels) else None for i in cells]


def expected(blob, view, written):
    """The columns of a view: name, type, values. `written` tells of each cell of a dense view whether somebody wrote it; None for a sparse one."""
    dense = written is not None
    out, names = [], {field["name"] for field in view["fields"]}
    dimensions = sum(field["kind"] == "dimension" for field in view["fields"])
    shape, count = view["shape"], view["cells"]
    for index, field in enumerate(view["fields"]):
        def part(name, field=field):
            return bytes(blob[field[name][0] : sum(field[name])]) if name in field else None

        repeat, name = None, field["name"]
        if dense and field["kind"] == "dimension":
            inner = math.prod(shape[index + 1 :])
            repeat = [row // inner % shape[index] for row in range(count)]
        kind, cells = column(field, part, repeat)
        if field["kind"] == "attribute":
            kind, cells = labelled(view, index - dimensions, kind, cells)
            if dense:
                cvn = field["cell_val_num"]
                none = [None] * cvn if kind.startswith("list") and cvn != "var" else None
                cells = [cell if there else none for cell, there in zip(cells, written)]
        if not name:
            name = f"__dim_{index}" if field["kind"] == "dimension" else "__attr"
            while name in names:
                name += "_"
        out.append((name, kind, cells))
    return out


# -- what readers read ---------------------------------------------------------------------------------------


def plain_type(of):
    """A type of Arrow in the words of this test."""
    import pyarrow as pa

    if pa.types.is_dictionary(of):
        return plain_type(of.value_type)
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return f"list<{plain_type(of.value_type)}>"
    if pa.types.is_timestamp(of):
        return "timestamp" if of.tz is None else str(of)
    if pa.types.is_date(of):
        return "date"
    word = str(of).replace("large_", "").replace("_view", "")
    return {"halffloat": "float16"}.get(word, word)


def plain_values(array):
    """The values of an array of Arrow: dates as days, timestamps as nanoseconds."""
    import pyarrow as pa

    of = array.type
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in plain_values(chunk)]
    if pa.types.is_dictionary(of):
        return plain_values(array.dictionary_decode())
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        flat = plain_values(array.values)
        starts, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
        return [flat[a:b] if there else None for a, b, there in zip(starts, starts[1:], valid)]
    if pa.types.is_timestamp(of):
        return [None if value is None else value * {"s": 10**9, **TICK}[of.unit] for value in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(of):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_date64(of):
        return [None if value is None else value // 86_400_000 for value in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_string(of) or pa.types.is_large_string(of) or str(of) == "string_view":
        raw = array.cast(pa.large_string()).cast(pa.large_binary()).to_pylist() if str(of) == "string_view" else array.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw]
    return array.to_pylist()


def key(value):
    """A key that distinguishes values: NaNs are equal, zeros have a sign."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, list):
        return [key(one) for one in value]
    return value


def from_arrow(table):
    """Names, types and values of a table of Arrow."""
    return [(name, plain_type(one.type), plain_values(one)) for name, one in zip(table.column_names, table.columns)]


def read_pyarrow(path):
    import pyarrow.parquet as pq

    return from_arrow(pq.ParquetFile(path).read())


def read_pyarrow_mapped(path):
    import pyarrow.parquet as pq

    return from_arrow(pq.read_table(path, memory_map=True))


def read_pandas(path):
    import pandas as pd
    import pyarrow as pa

    frame = pd.read_parquet(path, engine="pyarrow", dtype_backend="pyarrow")
    return from_arrow(pa.table({name: pa.chunked_array(frame[name].array.__arrow_array__()) if len(frame) else pa.array([], frame[name].dtype.pyarrow_dtype) for name in frame.columns}))


def read_polars(path):
    import polars as pl

    return from_arrow(pl.read_parquet(path).to_arrow())


def scan_polars(path):
    import polars as pl

    return from_arrow(pl.scan_parquet(path).collect().to_arrow())


def connection():
    """A connection to DuckDB: one thread, so that rows come in order."""
    global CONNECTION
    if CONNECTION is None:
        import duckdb

        CONNECTION = duckdb.connect()
        CONNECTION.execute("SET threads = 1; SET enable_object_cache = false")
    return CONNECTION


CONNECTION = None


def parquet(path):
    """A file in DuckDB's SQL, which would take `row=1..2` in a path for the value of a column."""
    return "read_parquet('" + str(path).replace("'", "''") + "', hive_partitioning = false)"


def read_duckdb(path):
    return from_arrow(connection().cursor().sql(f"SELECT * FROM {parquet(path)}").to_arrow_table())


def infinite(value):
    """DuckDB's infinite time: the greatest number, in any unit. It shows it in microseconds."""
    if isinstance(value, list):
        return [infinite(one) for one in value]
    greatest = [(2**63 - 1) * tick for tick in TICK.values()]
    return value if value is None or abs(value) not in greatest else math.copysign(math.inf, value)


def read_datafusion(path):
    # Its batches forget that dictionaries are ordered, which its schema says.
    return from_arrow(context().read_parquet(path).to_arrow_table())


CONTEXT = None


def context():
    """A context of DataFusion with one partition, so that rows come in order."""
    global CONTEXT
    if CONTEXT is None:
        import datafusion

        CONTEXT = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    return CONTEXT


READERS = {
    "pyarrow": read_pyarrow,
    "pyarrow, mapped": read_pyarrow_mapped,
    "pandas": read_pandas,
    "polars": read_polars,
    "polars, lazy": scan_polars,
    "duckdb": read_duckdb,
    "datafusion": read_datafusion,
}


def compare(reader, wanted, found):
    """Fails unless a reader has read the expected table."""
    if reader == "duckdb":
        wanted, found = ([(name, kind, infinite(values) if "timestamp" in kind else values) for name, kind, values in of] for of in (wanted, found))
    if [name for name, *_ in wanted] != [name for name, *_ in found]:
        raise Differs(f"columns {[name for name, *_ in found]}, expected {[name for name, *_ in wanted]}")
    for (name, kind, values), (_, other, got) in zip(wanted, found):
        if kind != other:
            raise Differs(f"{name} is {other}, expected {kind}")
        if len(values) != len(got):
            raise Differs(f"{name} has {len(got)} rows, expected {len(values)}")
        for row, (value, one) in enumerate(zip(values, got)):
            if key(value) != key(one):
                raise Differs(f"{name} ({kind}), row {row}: {str(one)[:120]}, expected {str(value)[:120]}")


# -- filters -------------------------------------------------------------------------------------------------

OPERATORS = ["=", "<", "<=", ">", ">=", "<>"]


def quoted(name):
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(scalar):
    """A value in DuckDB's SQL; None if it has no notation."""
    import pyarrow as pa

    of = scalar.type
    if pa.types.is_timestamp(of):
        count = scalar.value
        if abs(count * TICK[of.unit]) >= 2**62:
            return None
        return f"make_timestamp_ns({count})" if of.unit == "ns" else f"make_timestamp({count * TICK[of.unit] // 1000})"
    if pa.types.is_date(of):
        return f"(DATE '1970-01-01' + {scalar.value}::INTEGER)" if abs(scalar.value) < 10**6 else None
    value = scalar.as_py()
    if isinstance(value, bytes):
        return None
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'" if "\0" not in value else None
    if isinstance(value, float):
        return f"'{value!r}'::{'FLOAT' if of == pa.float32() else 'DOUBLE'}"
    return str(value)


def counts_duckdb(path, table, name, operator, scalar):
    column = quoted(name)
    if scalar is None:
        condition = f"{column} {operator}"
    elif (value := literal(scalar)) is None:
        return None
    else:
        condition = f"{column} {operator} {value}"
    con = connection()
    if table is not LAST.get("duckdb"):
        con.execute(f"CREATE OR REPLACE TEMP TABLE memory AS SELECT * FROM {parquet(path)}")
        LAST["duckdb"] = table
    found = con.execute(f"SELECT count(*) FROM {parquet(path)} WHERE {condition}").fetchone()[0]
    return found, con.execute(f"SELECT count(*) FROM memory WHERE {condition}").fetchone()[0]


LAST = {}
"""The table that an engine has in memory."""


def compared(column, operator, value):
    """A comparison of an expression, in any engine."""
    return {"=": column == value, "<>": column != value, "<": column < value, "<=": column <= value, ">": column > value, ">=": column >= value}[operator]


def counts_polars(path, table, name, operator, scalar):
    import polars as pl

    column = pl.col(name)
    if scalar is None:
        condition = column.is_null() if operator == "IS NULL" else column.is_not_null()
    else:
        temporal = plain_type(scalar.type) in ("date", "timestamp")
        lit = pl.lit(scalar.value if temporal else scalar.as_py(), dtype=pl.from_arrow(table[name].slice(0, 0)).dtype)
        condition = compared(column, operator, lit)
    if table is not LAST.get("polars"):
        LAST["polars"], LAST["frame"] = table, pl.read_parquet(path, use_statistics=False)
    return pl.scan_parquet(path).filter(condition).select(pl.len()).collect().item(), LAST["frame"].filter(condition).height


def counts_pyarrow(path, table, name, operator, scalar):
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    column = pc.field(name)
    if scalar is None:
        condition = column.is_null() if operator == "IS NULL" else column.is_valid()
    else:
        condition = {"=": column == scalar, "<>": column != scalar, "<": column < scalar, "<=": column <= scalar, ">": column > scalar, ">=": column >= scalar}[operator]
    return ds.dataset(path, format="parquet").count_rows(filter=condition), table.filter(condition).num_rows


def counts_datafusion(path, table, name, operator, scalar):
    import datafusion
    from datafusion import functions

    column = datafusion.col(quoted(name))
    if scalar is None:
        condition = column.is_null() if operator == "IS NULL" else column.is_not_null()
    else:
        condition = {"=": column == datafusion.lit(scalar), "<>": column != datafusion.lit(scalar)}.get(operator)
        condition = compared(column, operator, datafusion.lit(scalar)) if condition is None else condition
    if table is not LAST.get("datafusion"):
        LAST["datafusion"], LAST["copy"] = table, context().from_arrow(table)
    count = [functions.count(datafusion.lit(1)).alias("n")]
    return tuple(frame.filter(condition).aggregate([], count).to_pydict()["n"][0] for frame in (context().read_parquet(path), LAST["copy"]))


ENGINES = {"duckdb": counts_duckdb, "polars": counts_polars, "pyarrow": counts_pyarrow, "datafusion": counts_datafusion}


def filters(path, chance, number):
    """Fails if an engine finds another number of rows than in a copy without statistics; returns the number of comparisons."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    scalars = [name for name, one in zip(table.column_names, table.columns) if not plain_type(one.type).startswith("list")]
    made = collections.Counter()
    if not scalars or not table.num_rows:
        return made
    for _ in range(number):
        name = chance.choice(scalars)
        operator, scalar = chance.choice(["IS NULL", "IS NOT NULL"]), None
        if chance.random() < 0.8:
            row = chance.randrange(table.num_rows)
            scalar, operator = table[name][row], chance.choice(OPERATORS)
            if not scalar.is_valid:
                operator, scalar = "IS NULL", None
        for engine, counts in ENGINES.items():
            both = counts(path, table, name, operator, scalar)
            if both is None:
                continue
            if both[0] != both[1]:
                raise Differs(f"{engine}: {both[0]} rows where {name} {operator} {scalar}, expected {both[1]}")
            made[engine] += 1
    return made


# -- what the footer says ------------------------------------------------------------------------------------


def exact_bounds(path):
    """The row groups and columns whose bounds are said to be exact."""
    found = connection().execute("SELECT row_group_id, column_id FROM parquet_metadata(?) WHERE min_is_exact AND max_is_exact", [str(path)])
    return set(found.fetchall())


def footer(path):
    """Fails where the footer is not what the data are: rows, sizes, encodings, bounds, null counts. How many bounds were held against values."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file, bounds = pq.ParquetFile(path), 0
    size, end = os.stat(path).st_size, 4
    metadata = file.metadata
    exact = exact_bounds(path)
    for number in range(metadata.num_row_groups):
        group, table = metadata.row_group(number), file.read_row_group(number)
        if group.num_rows != table.num_rows:
            raise Differs(f"row group {number} of {group.num_rows} rows has {table.num_rows}")
        for i in range(group.num_columns):
            chunk = group.column(i)
            start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            at_page = start % 4096 == 0 and end <= start < end + 4096
            if not (start == end or at_page) or chunk.total_compressed_size != chunk.total_uncompressed_size:
                raise Differs(f"column {i} of row group {number} begins at {start}, the one before ends at {end}")
            end = start + chunk.total_compressed_size
            said = chunk.statistics
            if said is None:
                continue
            values = table.column(i)
            nulls = values.null_count
            if file.schema.column(i).max_definition_level and (not said.has_null_count or said.null_count != nulls):
                raise Differs(f"{chunk.path_in_schema}: {said.null_count} nulls in row group {number}, there are {nulls}")
            if not said.has_min_max:
                if nulls < len(values):
                    raise Differs(f"{chunk.path_in_schema}: statistics without bounds, and {len(values) - nulls} values")
                continue
            plain = values.cast(pa.int64()) if plain_type(values.type) == "timestamp" else values.cast(pa.int32()) if plain_type(values.type) == "date" else values
            kept = pc.drop_null(plain).to_pylist()
            low, high = said.min_raw, said.max_raw
            if isinstance(low, bytes) and kept and isinstance(kept[0], str):
                kept = [value.encode("utf-8", "surrogateescape") for value in kept]
            if pa.types.is_uint32(plain.type) or pa.types.is_uint64(plain.type):
                low, high = (value % (1 << plain.type.bit_width) for value in (low, high))
            if any(value != value for value in kept):
                raise Differs(f"{chunk.path_in_schema}: bounds in row group {number}, and a NaN")
            if kept and not low <= min(kept) <= max(kept) <= high:
                raise Differs(f"{chunk.path_in_schema}: {min(kept)} to {max(kept)} in row group {number}, not within {low} to {high}")
            if kept and (number, i) in exact and (low, high) != (min(kept), max(kept)):
                raise Differs(f"{chunk.path_in_schema}: {min(kept)} to {max(kept)} in row group {number}, not exactly {low} to {high}")
            bounds += 1
    gap = size - (end + metadata.serialized_size + 8)
    # DuckDB, DataFusion and Polars read no more first, but of smaller files.
    first = min(max(64 << 10, size // 128), 576 << 10)
    if gap and not first <= gap + metadata.serialized_size + 8 < 2 * first + (8 << 10):
        raise Differs(f"row groups to {end}, a footer of {metadata.serialized_size}, and {size} bytes")
    return bounds


def optional(path, view, covered):
    """Fails unless those columns are optional that may have nulls by what schema and footers tell."""
    import pyarrow.parquet as pq

    leaves = pq.ParquetFile(path).schema
    enumerated = {a["name"] for a in view["schema"]["attributes"] if a["enumeration"]}
    for i, field in enumerate(view["fields"]):
        leaf = leaves.column(i)
        attribute = field["kind"] == "attribute"
        dated = field["datatype"].startswith("DATETIME_") and (attribute or view["region"] is None)
        nullable = attribute and (field["nullable"] or not covered or field["name"] in enumerated)
        lowest = 1 if leaf.max_repetition_level else 0
        if (leaf.max_definition_level > lowest) != (dated or nullable):
            raise Differs(f"{leaf.path}: definition level {leaf.max_definition_level}, nullable {dated or nullable}")


# -- running -------------------------------------------------------------------------------------------------


def work(job):
    """Compares the files of one array: the number of equal (file, reader) pairs, the number of filters, and the differences."""
    family, point, array, paths, number = job
    base = os.path.join(family, "expected", array)
    doc, blob = json.loads(Path(base + ".json").read_text()), memoryview(Path(base + ".bin").read_bytes())
    passed, made, failures, seconds = collections.Counter(), collections.Counter(), [], collections.Counter()
    for view in doc["views"]:
        if paths and view["path"] not in paths:
            continue
        file = os.path.join(point, array, view["path"], "table.parquet")
        written, sure = None, True
        if doc["array_type"] == "dense":
            shown = os.path.join(point, array)
            known = fragment_cover.domains(os.path.join(family, "arrays", array), shown)
            written, sure = fragment_cover.written(shown, os.path.join(shown, view["path"]), known)
        wanted = expected(blob, view, written)
        for reader, read in READERS.items():
            start = time.time()
            try:
                compare(reader, wanted, read(file))
                passed[reader] += 1
            except BaseException as error:  # noqa: BLE001 - panics of Rust are no Exception
                failures.append(f"{array} {view['path']} {reader}: {type(error).__name__}: {error}")
            seconds[reader] += time.time() - start
        start = time.time()
        try:
            made["bounds"] += footer(file)
            optional(file, view, sure)
            made["holes"] += written is not None and not written.all()
            made += filters(file, random.Random(f"{array} {view['path']}"), number)
        except BaseException as error:  # noqa: BLE001
            failures.append(f"{array} {view['path']} filters: {type(error).__name__}: {error}")
        seconds["filters"] += time.time() - start
    return passed, made, failures, seconds


def main():
    """Compares a family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--family", required=True)
    parser.add_argument("--all", action="store_true", help="every view, and not `data/` alone")
    parser.add_argument("--array", help="only arrays whose name contains this")
    parser.add_argument("--share", type=share, help="part N of M of the arrays: N/M")
    parser.add_argument("--filters", type=int, default=4, help="filters that each engine is asked for, for each file")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    family, start = os.path.realpath(args.family), time.time()
    arrays = [row["name"] for row in json.loads(Path(family, "expected/manifest.json").read_text())["arrays"]]
    arrays = [a for a in arrays if (args.array or "") in a and belongs(args.share, a)]
    passed, made, failures, seconds = collections.Counter(), collections.Counter(), [], collections.Counter()
    with mounted(os.path.join(family, "arrays")) as point:
        jobs = [(family, str(point), array, None if args.all else ["data"], args.filters) for array in arrays]
        with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
            for one, filtered, failed, took in pool.imap_unordered(work, jobs):
                passed, made, seconds = passed + one, made + filtered, seconds + took
                for line in failed:
                    if len(failures) < SHOWN:
                        print("FAIL " + line[:500], flush=True)
                    failures.append(line)
    print("files read: " + ", ".join(f"{reader} {count}" for reader, count in sorted(passed.items())))
    print("filters and bounds compared: " + ", ".join(f"{engine} {count}" for engine, count in sorted(made.items())))
    print("seconds: " + ", ".join(f"{reader} {count:.1f}" for reader, count in sorted(seconds.items())) + f", in all {time.time() - start:.0f}")
    print(f"{sum(passed.values())} passed, {len(failures)} failed")
    sys.exit(1 if failures or not passed else 0)


if __name__ == "__main__":
    main()
