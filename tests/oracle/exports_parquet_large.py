"""The oracle test of `table.parquet` where files have many row groups, odd names and values, or very many rows.

    python3 exports_parquet_large.py

It writes arrays with libtiledb, mounts them, and holds what readers read against what was written. Filters have to find as many rows as in a copy in
memory, and a query has to decode no more than the column chunks that it needs: the counters of the mount tell. The last line is
`N passed, N failed`.
"""

import argparse
import datetime
import json
import math
import os
import random
import resource
import sys
import tempfile
import time

import numpy as np

from capi import VAR, Attr, Column, Dim, Enum, Lib, Pipeline, Schema
from exports_parquet import READERS, Differs, compare, connection, filters, footer, parquet
from mount import ROOT, mounted, stats

ZSTD = Pipeline([("ZSTD", {})])
NAT = -(2**63)


def texts(cells, validity=None):
    """A column of text."""
    return Column.of_cells(cells, validity)


def lists(values, lengths, validity=None):
    """A column of var-sized cells of numbers."""
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype("<u8") * values.itemsize
    return Column(values, starts, validity)


# -- arrays and what they hold -------------------------------------------------------------------------------


def dense(lib, folder):
    """Three row groups of two slabs of tiles, and a newer fragment in the last one. Returns the content for Arrow."""
    import pyarrow as pa

    rows, columns = 2100, 1000
    count = rows * columns
    chance = np.random.default_rng(1)
    attrs = [
        Attr("a", "INT32", pipeline=ZSTD), Attr("f", "FLOAT64", pipeline=ZSTD), Attr("n", "INT16", nullable=True, pipeline=ZSTD),
        Attr("t", "DATETIME_MS", pipeline=ZSTD), Attr("s", "STRING_ASCII", VAR, pipeline=ZSTD), Attr("e", "UINT8", enumeration="colours", pipeline=ZSTD),
        Attr("c", "STRING_ASCII", 5, pipeline=ZSTD), Attr("l", "INT16", 3, pipeline=ZSTD), Attr("v", "INT64", VAR, nullable=True, pipeline=ZSTD),
        Attr("b", "BOOL", pipeline=ZSTD),
    ]
    schema = Schema("dense", [Dim("y", "INT32", 0, rows - 1, 500), Dim("x", "INT32", -500, 499, 100)], attrs,
                    enums=[Enum("colours", "STRING_UTF8", [b"red", "grün".encode(), b"blue"])])
    uri = os.path.join(folder, "dense")
    lib.create(uri, schema, 1)
    number = np.arange(count)
    a, f, n = number.astype("<i4"), chance.normal(size=count), (number % 1000).astype("<i2")
    f[1_200_000::1000], f[300_000] = np.nan, -0.0
    valid = np.ones(count, "u1")
    valid[:1_000_000:3], valid[2_000_000:] = 0, 0
    t = number * 1000
    t[1_500_000:1_600_000] = NAT
    words = [b"k%06d" % (i // 7) for i in range(count)]
    e = (number % 5).astype("u1")
    c = np.frombuffer(b"".join((b"%d" % (i % 1234)).ljust(5, b"\0") for i in range(count)), "u1")
    l = chance.integers(-9, 9, count * 3).astype("<i2")
    lengths = number % 4
    v, there = np.arange(lengths.sum()).astype("<i8"), (number % 11 > 0).astype("u1")
    b = (number % 3 == 0).astype("u1")
    columns_of = {"a": Column(a), "f": Column(f), "n": Column(n, validity=valid), "t": Column(t.astype("<i8")), "s": texts(words), "e": Column(e),
                  "c": Column(c), "l": Column(l), "v": lists(v, lengths, there), "b": Column(b)}
    lib.write(uri, columns_of, ranges=[np.array([0, rows - 1], "<i4"), np.array([-500, 499], "<i4")], timestamp=10)
    # A newer box in which all cells have one value.
    box = (slice(2050, 2060), slice(100, 300))
    inner = 10 * 200
    one = {"a": Column(np.full(inner, -7, "<i4")), "f": Column(np.full(inner, 99.0)), "n": Column(np.full(inner, 3, "<i2"), validity=np.ones(inner, "u1")),
           "t": Column(np.full(inner, 5, "<i8")), "s": texts([b"zz"] * inner), "e": Column(np.zeros(inner, "u1")), "c": Column(np.frombuffer(b"zzzzz" * inner, "u1")),
           "l": Column(np.zeros(inner * 3, "<i2")), "v": lists(np.ones(inner, "<i8"), np.ones(inner, int), np.ones(inner, "u1")), "b": Column(np.ones(inner, "u1"))}
    lib.write(uri, one, ranges=[np.array([2050, 2059], "<i4"), np.array([-400, -201], "<i4")], timestamp=20)
    new = np.zeros((rows, columns), bool)
    new[box] = True
    new = new.reshape(-1)
    a[new], f[new], n[new], valid[new], t[new], e[new], b[new] = -7, 99.0, 3, 1, 5, 0, 1
    for i in np.flatnonzero(new).tolist():
        words[i] = b"zz"
    shown = [b"zzzzz" if k else b"%d" % (i % 1234) for i, k in enumerate(new.tolist())]
    l = l.reshape(-1, 3)
    l[new] = 0
    starts = np.concatenate(([0], np.cumsum(lengths)))
    ends = [None if not ok else v[s:x] for ok, s, x in zip(there.tolist(), starts.tolist(), starts[1:].tolist())]
    ends = [np.ones(1, "<i8") if k else cell for cell, k in zip(ends, new.tolist())]
    return pa.table({
        "y": pa.array((number // columns).astype("i4")), "x": pa.array((number % columns - 500).astype("i4")),
        "a": pa.array(a), "f": pa.array(f), "n": pa.array(n, mask=valid == 0), "t": pa.array(t, pa.int64(), mask=t == NAT).cast(pa.timestamp("ms")),
        "s": pa.array([w.decode() for w in words]),
        "e": pa.array([None if i > 2 else ("red", "grün", "blue")[i] for i in e.tolist()]), "c": pa.array([w.decode() for w in shown]),
        "l": pa.array(list(l), pa.list_(pa.int16())), "v": pa.array(ends, pa.list_(pa.int64())), "b": pa.array(b != 0),
    })


def sparse(lib, folder):
    """One fragment: three row groups along the capacity."""
    import pyarrow as pa

    count = 2_200_000
    attrs = [Attr("a", "INT64", pipeline=ZSTD), Attr("f", "FLOAT32", pipeline=ZSTD), Attr("s", "STRING_ASCII", VAR, pipeline=ZSTD),
             Attr("n", "UINT64", nullable=True, pipeline=ZSTD), Attr("t", "DATETIME_NS", pipeline=ZSTD)]
    uri = os.path.join(folder, "sparse")
    lib.create(uri, Schema("sparse", [Dim("x", "INT64", 0, 10**7, 10**6), ], attrs, capacity=10_000), 1)
    number = np.arange(count)
    x, a, f = number * 3 + 5, number[::-1] * 2, (number % 977).astype("<f4")
    f[1_500_000], f[1_500_001] = np.nan, np.inf
    words = [b"%08x" % (i * 2654435761 % 2**32) for i in range(count)]
    n, valid = number.astype("<u8") + np.uint64(2**63), (number % 2000 > 0).astype("u1")
    valid[1_040_000:2_080_000] = 1
    t = number * 10**9
    lib.write(uri, {"x": Column(x), "a": Column(np.ascontiguousarray(a)), "f": Column(f), "s": texts(words), "n": Column(n, validity=valid), "t": Column(t)}, timestamp=10)
    return pa.table({"x": pa.array(x), "a": pa.array(a), "f": pa.array(f), "s": pa.array([w.decode() for w in words]), "n": pa.array(n, mask=valid == 0),
                     "t": pa.array(t).cast(pa.timestamp("ns"))})


def merged(lib, folder):
    """Three fragments that interleave, and a delete."""
    import pyarrow as pa

    uri = os.path.join(folder, "merged")
    lib.create(uri, Schema("sparse", [Dim("x", "INT64", 0, 10**7, 10**6)], [Attr("a", "INT32"), Attr("f", "FLOAT64")], capacity=10_000), 1)
    whole = {}
    for fragment in range(3):
        x = np.arange(800_000) * 4 + fragment * 2
        a = (x % 100_003).astype("<i4") + fragment
        lib.write(uri, {"x": Column(x), "a": Column(a), "f": Column(x / 8)}, timestamp=10 + fragment)
        whole |= dict(zip(x.tolist(), a.tolist()))
    lib.delete(uri, ("a", "<", np.int32(500)), 20)
    rows = sorted((x, a) for x, a in whole.items() if a >= 500)
    x, a = (np.array(column) for column in zip(*rows))
    return pa.table({"x": pa.array(x), "a": pa.array(a.astype("<i4")), "f": pa.array(x / 8)})


def corners(lib, folder):
    """Odd names, texts, extremes, and labels that are numbers: name, type, values."""
    names = ["a/b", "%", ".", 'q"q', "c,d", " e ", "größe", "x\ny"]
    attrs = [Attr(names[0], "STRING_UTF8", VAR, nullable=True), Attr(names[1], "UINT64"), Attr(names[2], "INT64", nullable=True), Attr(names[3], "FLOAT64"),
             Attr(names[4], "INT8", nullable=True, enumeration="floats"), Attr(names[5], "UINT16", enumeration="days"), Attr(names[6], "STRING_ASCII", 4),
             Attr(names[7], "INT32", enumeration="none"), Attr("", "FLOAT32", VAR)]
    enums = [Enum("floats", "FLOAT64", np.array([0.5, np.nan, -0.0])), Enum("days", "DATETIME_DAY", np.array([0, -1, NAT], "<i8")), Enum("none", "STRING_ASCII", [b"x"])]
    uri = os.path.join(folder, "corners")
    lib.create(uri, Schema("dense", [Dim("d", "DATETIME_YEAR", 0, 5, 4)], attrs, enums=enums), 1)
    strings = [b"", b"NA", b"a,\"b\"\n", b" \t ", "ü".encode(), b"null"]
    valid = np.array([1, 1, 1, 0, 1, 1], "u1")
    doubles = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308])
    lib.write(uri, {
        names[0]: texts(strings, valid), names[1]: Column(np.array([0, 2**64 - 1, 1, 2, 3, 2**63], "<u8")),
        names[2]: Column(np.array([NAT, 2**63 - 1, 0, -1, NAT, 7], "<i8"), validity=valid), names[3]: Column(doubles),
        names[4]: Column(np.array([0, 1, 2, 0, 3, -1], "i1"), validity=valid), names[5]: Column(np.array([0, 1, 2, 3, 65535, 1], "<u2")),
        names[6]: Column(np.frombuffer(b"a\0\0\0\0\0\0\0abcda\0b\0 x \0zzzz", "u1")), names[7]: Column(np.arange(1, 7, dtype="<i4")),
        "": lists(np.array([1.5, np.nan, -0.0], "<f4"), [1, 0, 2, 0, 0, 0]),
    }, ranges=[np.array([0, 5], "<i8")], timestamp=10)
    days = [(datetime.date(1970 + i, 1, 1) - datetime.date(1970, 1, 1)).days for i in range(6)]
    return [
        ("d", "date", days), (names[0], "string", ["", "NA", 'a,"b"\n', None, "ü", "null"]), (names[1], "uint64", [0, 2**64 - 1, 1, 2, 3, 2**63]),
        (names[2], "int64", [NAT, 2**63 - 1, 0, None, NAT, 7]), (names[3], "double", doubles.tolist()),
        (names[4], "double", [0.5, math.nan, -0.0, None, None, None]), (names[5], "date", [0, -1, None, None, None, -1]),
        (names[6], "string", ["a", "", "abcd", "a\0b", " x ", "zzzz"]), (names[7], "string", [None] * 6),
        ("__attr", "list<float>", [[1.5], [], [math.nan, -0.0], [], [], []]),
    ]


def huge(lib, folder, name, count, fields):
    """Very many rows, with two tiles written."""
    uri = os.path.join(folder, name)
    lib.create(uri, Schema("dense", [Dim("d", "INT64", 0, count - 1, 1000)], [Attr(f"a{i}", "INT32") for i in range(fields)]), 1)
    for first in (0, count - 1000):
        cells = Column(np.arange(first, first + 1000).astype("<i4"))
        lib.write(uri, {f"a{i}": cells for i in range(fields)}, ranges=[np.array([first, first + 999], "<i8")], timestamp=10 + first)


# -- comparing -----------------------------------------------------------------------------------------------


def same_table(wanted, found):
    """Fails unless two tables of Arrow are equal: NaNs are equal, zeros have a sign."""
    import pyarrow as pa

    if wanted.column_names != found.column_names or wanted.num_rows != found.num_rows:
        raise Differs(f"{found.num_rows} rows of {found.column_names}, expected {wanted.num_rows} of {wanted.column_names}")
    for name in wanted.column_names:
        a, b = wanted[name].combine_chunks(), found[name].combine_chunks()
        if b.type != a.type:
            b = b.cast(a.type)
        if pa.types.is_floating(a.type):
            a, b = (pa.array(np.where(np.isnan(v), np.nan, v).view(f"i{v.itemsize}")) for v in (x.to_numpy(zero_copy_only=False) for x in (a, b)))
        if not a.equals(b):
            raise Differs(f"{name} differs")


def read_all(path, wanted):
    """Compares a large file with the fast readers."""
    import polars as pl
    import pyarrow.parquet as pq

    same_table(wanted, pq.read_table(path))
    same_table(wanted, pl.scan_parquet(path).collect().to_arrow())
    same_table(wanted, connection().cursor().sql(f"SELECT * FROM {parquet(path)}").to_arrow_table())
    import fastparquet

    frame = fastparquet.ParquetFile(path).to_pandas(columns=["a", "f"])
    for name in ("a", "f"):
        one = wanted[name].to_numpy()
        if not np.array_equal(frame[name].to_numpy(), one, equal_nan=name == "f"):
            raise Differs(f"{name} of fastparquet differs")


def chunks(point, path, query):
    """Rows of a query in DuckDB, and the number of column chunks decoded for it."""
    import duckdb

    before = stats(point)["chunks_decoded"]
    with duckdb.connect() as con:
        rows = con.execute(query.replace("FILE", parquet(path))).fetchall()
    return rows, stats(point)["chunks_decoded"] - before


def example():
    """The file in the documentation is right."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shown = (ROOT / "src/export/parquet/example.md").read_text().split("```text\n")[1].split("```")[0]
    raw = bytes.fromhex("".join(line[10:58] for line in shown.splitlines()[:-1]))
    with mounted(ROOT / "tests/data/corners/twice") as point:
        now = (point / "data/table.parquet").read_bytes()
        if b"tiledbfs 0.1.0" in now and raw != now:
            raise Differs("the mount shows another file")
    file = pq.ParquetFile(pa.BufferReader(raw))
    wanted = {"x": list(range(4, 16)), "n": [i if i % 3 else None for i in range(12)]}
    if file.read().to_pydict() != wanted:
        raise Differs(f"{file.read().to_pydict()}, expected {wanted}")
    group = file.metadata.row_group(0)
    places = [group.column(i).data_page_offset for i in range(2)] + [len(raw) - 8 - file.metadata.serialized_size, len(raw) - 8]
    said = [int(line.split("|")[1]) for line in (ROOT / "src/export/parquet/example.md").read_text().splitlines() if line.startswith("| ") and line[2].isdigit()][1:]
    if places != said:
        raise Differs(f"pyarrow finds {places}, the documentation says {said}")


def lazy(source):
    """A filter that only one row group can satisfy decodes the named columns of that row group."""
    with mounted(source) as point:
        path = str(point / "dense/data/table.parquet")
        size = os.stat(path).st_size
        rows, opened = chunks(point, path, "SELECT count(*) FROM FILE")
        # The length of the file takes the offsets of var-sized fields, once.
        rows, decoded = chunks(point, path, "SELECT sum(a) FROM FILE WHERE y BETWEEN 100 AND 110")
        want = sum(range(100_000, 111_000))
        if rows != [(want,)]:
            raise Differs(f"{rows}, expected {want}")
        # 20 tiles of 200 kB in chunks of 64 KiB are 80, some of which are decoded twice.
        if not 0 < decoded <= 160:
            raise Differs(f"{decoded} chunks decoded for one row group of one column")
        _, other = chunks(point, path, "SELECT count(*) FROM FILE WHERE a > 99999999")
        if other:
            raise Differs(f"{other} chunks decoded where no row group can match")
        _, all_of = chunks(point, path, "SELECT sum(hash(f)), max(s), max(c), sum(n) FROM FILE")
        print(f"decoded: {opened} chunks to open {size} bytes, {decoded} for a sum in one row group of three, none for a filter that nothing satisfies, {all_of} for four whole columns")


def scale(lib, source):
    """Very many rows open in little time and memory."""
    huge(lib, source, "huge", 10**9, 10)
    huge(lib, source, "wide", 10**9, 1000)
    with mounted(source) as point:
        path = str(point / "huge/data/table.parquet")
        start = time.time()
        size = os.stat(path).st_size
        rows, decoded = chunks(point, path, "SELECT * FROM FILE LIMIT 5")
        first = time.time() - start
        if rows != [(i,) + (i,) * 10 for i in range(5)]:
            raise Differs(f"{rows}")
        rows, _ = chunks(point, path, "SELECT d, a3 FROM FILE WHERE d >= 999999998")
        if sorted(rows) != [(999_999_998, 999_999_998), (999_999_999, 999_999_999)]:
            raise Differs(f"{rows}")
        pid = next(int(p) for p in os.listdir("/proc") if p.isdigit() and str(point) in open(f"/proc/{p}/cmdline").read().replace("\0", " ") and "tiledbfs" in open(f"/proc/{p}/comm").read())
        peak = next(line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM"))
        print(f"10^9 rows of 11 columns: {size} bytes, LIMIT 5 in {first:.2f} s, {decoded} chunks decoded, the mount took {int(peak) // 1024} MiB at most")
        list(os.scandir(point / "wide"))
        start = time.time()
        size = os.stat(point / "wide/data/table.parquet").st_size
        print(f"10^9 rows of 1001 columns: {size} bytes, stat in {time.time() - start:.3f} s")


def main():
    """Writes, mounts, compares."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", help="arrays and steps whose name contains this")
    parser.add_argument("--keep", help="write the arrays into this folder, which stays")
    args = parser.parse_args()
    lib, passed, failed = Lib(), 0, 0

    def step(name, function, *arguments):
        nonlocal passed, failed
        if args.only and args.only not in name:
            return None
        start = time.time()
        try:
            result = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - panics of Rust are no Exception
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {str(error)[:700]}", flush=True)
            return None
        passed += 1
        print(f"{name}: {time.time() - start:.1f} s", flush=True)
        return result

    with tempfile.TemporaryDirectory(prefix="tiledbfs-parquet-") as folder:
        folder = args.keep or folder
        os.makedirs(folder, exist_ok=True)
        tables = {make.__name__: step(f"write {make.__name__}", make, lib, folder) for make in (corners, merged, sparse, dense)}
        with mounted(folder) as point:
            for name, wanted in tables.items():
                path = str(point / name / "data/table.parquet")
                if wanted is None:
                    continue
                if name == "corners":
                    for reader, read in READERS.items():
                        step(f"{name}, {reader}", lambda: compare(reader, wanted, read(path)))
                else:
                    step(f"{name}, readers", read_all, path, wanted)
                step(f"{name}, footer", lambda: print(f"{footer(path)} bounds of {name} held against values"))
                step(f"{name}, filters", lambda: print(f"filters of {name}: {dict(filters(path, random.Random(name), 30))}"))
        step("example", example)
        step("lazy", lazy, folder)
    with tempfile.TemporaryDirectory(prefix="tiledbfs-parquet-") as folder:
        step("scale", scale, lib, folder)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB of memory at most")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
