"""Counts what a mount decodes for tables of sparse arrays: nothing for lengths and footers, and only the columns asked for.

    python3 table_reads.py

Also arrays whose cells are not in global order: whoever reads their coordinates gets an error, and what is opened then is sorted. The last line is
`N passed, N failed`.
"""

import concurrent.futures
import contextlib
import errno
import mmap
import os
import re
import subprocess
import sys
import tempfile
import time

import duckdb
import numpy as np
import pyarrow.parquet
import tiledb

from capi import Column, Lib
from mount import binary, errors, mounted, stats
from plain_tools import Checks

ROWS, FRAGMENTS, CAPACITY = 200_000, 4, 10_000
CHUNK = 65_536
BOUND = 1.1
"""The most chunks that a job may decode, as a multiple of those of its columns."""

LABELS = ["north", "east", "south", "west"]


def write(path, order, capacity=CAPACITY):
    """A sparse array of some fragments with text, nulls, labels and dates; `order` gives the keys of each fragment."""
    zstd = [tiledb.ZstdFilter()]
    dimension = tiledb.Dim("id", domain=(0, 10**9), tile=capacity, dtype=np.int64, filters=zstd)
    attributes = [
        tiledb.Attr("v", dtype=np.float64, filters=zstd),
        tiledb.Attr("n", dtype=np.int32, nullable=True, filters=zstd),
        tiledb.Attr("side", dtype=np.uint8, enum_label="sides", filters=zstd),
        tiledb.Attr("day", dtype="datetime64[D]", filters=zstd),
        tiledb.Attr("text", dtype="ascii", var=True, filters=zstd),
    ]
    schema = tiledb.ArraySchema(tiledb.Domain(dimension), attrs=attributes, sparse=True, capacity=capacity, enums=[tiledb.Enumeration("sides", True, LABELS)])
    tiledb.Array.create(path, schema)
    for keys in order:
        with tiledb.open(path, "w") as array:
            array[keys] = {
                "v": keys / 4, "n": (keys % 1000).astype(np.int32), "side": (keys % 4).astype(np.uint8),
                "day": (keys % 20_000).astype("datetime64[D]"), "text": np.array([f"text {key % 977}" for key in keys], dtype=object),
            }
    return path


def chunks(fields, capacity):
    """Chunks of all rows of fields of these widths, in tiles of so many cells."""
    return sum(-(-capacity * width // CHUNK) for width in fields) * (ROWS * FRAGMENTS // capacity)


@contextlib.contextmanager
def counted(path):
    """A cold mount's table, and a function that gives the chunks decoded since it was called last."""
    with mounted(path) as point:
        before = 0

        def decoded():
            nonlocal before
            before, last = stats(point)["chunks_decoded"], before
            return before - last

        yield point / "data/table.parquet", decoded


def compare_counts(checks, folder):
    """Tables of fragments that are not merged."""
    one = [np.arange(ROWS * FRAGMENTS)]
    appended = [np.arange(number * ROWS, (number + 1) * ROWS) for number in range(FRAGMENTS)]
    for name, order, capacity in ("one fragment", one, CAPACITY), ("appended", appended, CAPACITY), ("large tiles", appended, 10 * CAPACITY):
        path = write(f"{folder}/{name}", order, capacity)
        with counted(path) as (table, decoded):
            size = table.stat().st_size
            checks.equal(f"{name}: chunks decoded by stat", decoded(), 0)
            metadata = pyarrow.parquet.ParquetFile(table).metadata
            checks.equal(f"{name}: rows", metadata.num_rows, ROWS * FRAGMENTS)
            groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
            checks.equal(f"{name}: row groups end at tiles: {groups}", [rows % capacity for rows in groups], [0] * len(groups))
            checks.equal(f"{name}: none is larger than 2^16, or a tile", max(groups) <= max(1 << 16, capacity), True)
            checks.equal(f"{name}: they are even", max(groups) <= 1.3 * sum(groups) / len(groups), True)
        with counted(path) as (table, decoded), open(table, "rb", buffering=0) as file:
            file.seek(-(1 << 16), 2)
            file.read()
            checks.equal(f"{name}: chunks decoded by opening it", decoded(), 0)
        with counted(path) as (table, decoded), open(table, "rb", buffering=0) as file:
            # A part of the last column, whose offsets are needed in the tiles that it touches, and a tile of
            # coordinates.
            last = metadata.row_group(metadata.num_row_groups - 1).column(metadata.num_columns - 1)
            file.seek(last.data_page_offset + last.total_compressed_size - (1 << 15))
            file.read(1 << 15)
            took = decoded()
            checks.equal(f"{name}: chunks decoded by reading the last 32 KiB of values: {took}, at most 20", 0 < took <= 20, True)
            checks.equal(f"{name}: gaps take less than a 32nd", size - sum(
                metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)) < size // 32 + metadata.serialized_size, True)
        with counted(path) as (table, decoded), open(table, "rb", buffering=0) as file:
            # Of the tile behind the row group, not even the offset at which its first text begins.
            texts, first = metadata.row_group(1).column(metadata.num_columns - 1), metadata.row_group(0).num_rows
            file.seek(texts.data_page_offset)
            file.read(texts.total_compressed_size)
            lengths = np.array([len(f"text {key % 977}") for key in range(first, first + metadata.row_group(1).num_rows)])
            needed = sum(-(-8 * capacity // CHUNK) + -(-tile.sum() // CHUNK) for tile in lengths.reshape(-1, capacity))
            # One of 64 tiles of coordinates is looked at first.
            needed += len(order[0]) // capacity // 64 * -(-8 * capacity // CHUNK)
            checks.equal(f"{name}: chunks decoded by reading the texts of a row group", decoded(), needed)
        with counted(path) as (table, decoded):
            texts = table.parent / "columns/text/data.bin"
            checks.equal(f"{name}: bytes of the text", texts.stat().st_size, sum(len(f"text {key % 977}") for key in range(ROWS * FRAGMENTS)))
            checks.equal(f"{name}: chunks decoded by stat of the text", decoded(), 0)
        with tiledb.open(path) as array:
            whole = array.query(attrs=["v", "n", "side"])[:]
        jobs = {
            "a mean": ("avg(v)", "", [(float(whole["v"].mean()),)], chunks([8], capacity)),
            "a filtered mean": ("avg(v)", "WHERE id >= 100000 AND id < 200000", [(float(whole["v"][100_000:200_000].mean()),)], None),
            "a mean of those whose number is small": (
                "avg(v)", "WHERE n < 500", [(float(whole["v"][whole["n"] < 500].mean()),)], chunks([8, 4, 1], capacity)),
            "a group-by": ("side, sum(n)", "GROUP BY side ORDER BY side",
                           sorted((label, int(whole["n"][whole["side"] == number].sum())) for number, label in enumerate(LABELS)), chunks([1, 1, 4], capacity)),
        }
        for what, (columns, rest, want, needed) in jobs.items():
            with counted(path) as (table, decoded):
                found = duckdb.sql(f"SELECT {columns} FROM '{table}' {rest}").fetchall()
                checks.equal(f"{name}: {what}", found, want)
                if needed:
                    took = decoded()
                    checks.equal(f"{name}: {what}: {took} chunks decoded of {needed} needed, bound {BOUND}", took <= BOUND * needed, True)


def compare_small_fragments(checks, folder):
    """Very many small fragments are not opened to know the length of the table."""
    path = write(f"{folder}/small", [np.arange(100 * number, 100 * number + 100) for number in range(80)])
    with counted(path) as (table, decoded):
        size = table.stat().st_size
        checks.equal("small fragments: chunks decoded by stat", decoded(), 0)
        rows = pyarrow.parquet.read_table(table)
        checks.equal("small fragments: bytes", size, len(table.read_bytes()))
        checks.equal("small fragments: the rows", np.array_equal(rows["id"], np.arange(8000)), True)


def compare_again(checks, folder):
    """Who goes through the file leaves its pages to the kernel, for all who open it afterwards. The kernel may drop a few at any time."""
    path = write(f"{folder}/again", [np.arange(number * ROWS, (number + 1) * ROWS) for number in range(FRAGMENTS)])

    def pieces(table, size):
        with open(table, "rb", buffering=0) as file:
            return b"".join(iter(lambda: file.read(size), b""))

    with mounted(path) as point:
        table, before = point / "data/table.parquet", {}

        def grown(key):
            """How much a figure of the mount has grown since this was called last."""
            before[key], last = stats(point)[key], before.get(key, 0)
            return before[key] - last

        # One who stops in the middle, off the steps of the next.
        with open(table, "rb", buffering=0) as file:
            part = file.read(3_000_000)
        whole = pieces(table, 1 << 17)
        few = len(whole) // 50
        checks.equal("again: a part", whole[: len(part)] == part, True)
        needed = grown("chunks_decoded")
        checks.equal("again: the first reader decodes values", needed > 100, True)
        time.sleep(0.5)
        grown("bytes_served")
        checks.equal("again: what the second reader reads", pieces(table, 1 << 17) == whole, True)
        asked = grown("bytes_served")
        checks.equal(f"again: bytes that the kernel asks for once more: {asked}, at most {few}", asked <= few, True)
        with open(table, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            checks.equal("again: what is mapped", mapped[:] == whole, True)
        checks.equal("again: rows", pyarrow.parquet.read_table(table, columns=["v"]).column("v").to_pylist()[-1], (ROWS * FRAGMENTS - 1) / 4)
        again = grown("chunks_decoded")
        checks.equal(f"again: chunks decoded once more: {again} of {needed}", again <= needed // 50, True)


def open_and_read(table, way, seed):
    """Pieces of one opening of `table`, pairs of an offset and bytes: read through, at random, past the page cache, or mapped."""
    random, file = np.random.default_rng(seed), os.open(table, os.O_RDONLY | (os.O_DIRECT if way == "direct" else 0))
    try:
        size = os.fstat(file).st_size
        starts = random.integers(size, size=20).tolist()
        if way == "through":
            return [(start, os.pread(file, 1 << 17, start)) for start in range(0, size, 1 << 17)]
        if way == "mapped":
            with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapped:
                return [(start, mapped[start : start + 10_000]) for start in starts]
        if way == "direct":
            # The buffer begins at a page, as direct I/O wants it.
            with mmap.mmap(-1, 1 << 16) as buffer:
                return [(start & -4096, buffer[: os.preadv(file, [buffer], start & -4096)]) for start in starts]
        return [(start, os.pread(file, int(random.choice([8, 4096, 300_000])), start)) for start in starts]
    finally:
        os.close(file)


def compare_ways(checks, folder):
    """Readers of all ways at once, of a table that gets rows before its first while they read, and whose inodes the kernel forgets."""
    path, states, rounds, ways = f"{folder}/ways", [], 20, ["through", "random", "direct", "mapped"] * 3
    dimension = tiledb.Dim("id", domain=(0, 10**9), tile=CAPACITY, dtype=np.int64)
    schema = tiledb.ArraySchema(tiledb.Domain(dimension), attrs=[tiledb.Attr("v", dtype=np.int64)], sparse=True, capacity=CAPACITY)
    tiledb.Array.create(path, schema)

    def write_before(rows):
        """Rows before all others: no byte of the file stays where it was."""
        last = 10**8 if not states else int(pyarrow.parquet.read_table(pyarrow.BufferReader(states[-1]))["id"][0].as_py())
        keys = np.arange(last - rows, last)
        with tiledb.open(path, "w") as array:
            array[keys] = {"v": 4 * keys}
        states.append(subprocess.run([binary(), "cat", path, "data/table.parquet"], check=True, capture_output=True).stdout)

    def fitting(pieces):
        """The numbers of the states that have these pieces."""
        return [number for number, state in enumerate(states) if all(state[start : start + len(piece)] == piece for start, piece in pieces)]

    write_before(ROWS)
    random, held, found, newest = np.random.default_rng(7), [], [], []
    with mounted(path) as point, concurrent.futures.ThreadPoolExecutor(len(ways)) as threads:
        table = point / "data/table.parquet"
        for number in range(rounds):
            if number % 5 == 0:
                held.append((number, os.open(table, os.O_RDONLY)))
            openings = [threads.submit(open_and_read, table, str(way), seed) for seed, way in enumerate(random.permutation(ways))]
            if number % 2:
                # Alone, and then forgotten: the last pages are on their way into the page cache.
                concurrent.futures.wait(openings)
                open_and_read(table, "through", 0)
                with open("/proc/sys/vm/drop_caches", "w") as caches:
                    caches.write("2")
            write_before(10_000)
            found += [opening.result() for opening in openings] + [open_and_read(table, "mapped", number)]
            if number % 5 == 4:
                time.sleep(1)
                newest += [fitting(open_and_read(table, way, number))[-1:] == [len(states) - 1] for way in ways]
        found = [fitting(pieces) for pieces in found]
        checks.equal(f"ways: of {len(found)} openings, those with other bytes than one state's", sum(not states_ for states_ in found), 0)
        checks.equal("ways: what is opened a second later is the newest state", newest, [True] * len(newest))
        for number, file in held:
            with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapped:
                checks.equal(f"ways: state {number}, open since, stays as it was", mapped[:] == states[number], True)
            os.close(file)
    rows = pyarrow.parquet.read_table(pyarrow.BufferReader(states[-1]))
    checks.equal("ways: the rows", np.array_equal(rows["id"], np.arange(10**8 - ROWS - rounds * 10_000, 10**8)), True)
    checks.equal("ways: their values", np.array_equal(rows["v"], 4 * rows["id"].to_numpy()), True)


def compare_disorder(checks, folder):
    """Cells that a writer put out of order."""
    keys = np.arange(60_000)
    swapped = keys.copy()
    swapped[[45_000, 45_001]] = swapped[[45_001, 45_000]]
    all_swapped = keys.reshape(-1, 2)[:, ::-1].reshape(-1)
    for name, stored in ("one tile", swapped), ("every tile", all_swapped), ("a small fragment", np.ascontiguousarray(keys[:100][::-1])):
        path = f"{folder}/unsorted {name}"
        dimension = tiledb.Dim("id", domain=(0, 10**9), tile=CAPACITY, dtype=np.int64)
        schema = tiledb.ArraySchema(tiledb.Domain(dimension), attrs=[tiledb.Attr("v", dtype=np.int64)], sparse=True, capacity=CAPACITY)
        tiledb.Array.create(path, schema)
        columns = {"id": Column(stored), "v": Column(4 * stored)}
        lib = Lib()
        lib.write(path, columns, "global-order", settings={"sm__check_global_order": "false"})
        want = sorted(stored.tolist())
        # The order of small fragments is looked at first.
        failing = stored.size > 1 << 14
        with mounted(path) as point:
            ids, table = point / "data/columns/id/data.bin", point / "data/table.parquet"
            with open(table, "rb") as before:
                size = table.stat().st_size
                try:
                    code = ids.read_bytes() and None
                except OSError as error:
                    code = error.errno
                checks.equal(f"{name}: whoever reads them gets an error", code, errno.EIO if failing else None)
                checks.equal(f"{name}: which is logged", len(errors(point)) > 0, failing)
                try:
                    before.seek(size // 4)
                    code = before.read(100) and None
                except OSError as error:
                    code = error.errno
                checks.equal(f"{name}: so does who opened another file before", code, errno.EIO if failing else None)
            time.sleep(0.1)
            checks.equal(f"{name}: then they are sorted", np.fromfile(ids, np.int64).tolist(), want)
            got = pyarrow.parquet.read_table(table)
            checks.equal(f"{name}: also in tables", (got["id"].to_pylist(), got["v"].to_pylist()), (want, [4 * key for key in want]))


def compare_disordered_groups(checks, folder):
    """What the row groups of a table say of themselves whose one fragment is not in order."""
    path, keys = f"{folder}/disordered groups", np.arange(200_000)
    stored = keys.reshape(-1, 2)[:, ::-1].reshape(-1)
    dimension = tiledb.Dim("id", domain=(0, 10**9), tile=CAPACITY, dtype=np.int64)
    attributes = [tiledb.Attr("n", dtype=np.int32, nullable=True), tiledb.Attr("t", dtype="ascii", var=True)]
    tiledb.Array.create(path, tiledb.ArraySchema(tiledb.Domain(dimension), attrs=attributes, sparse=True, capacity=CAPACITY))
    texts = [b"x" * (key % 7) for key in stored.tolist()]
    offsets = np.cumsum([0] + [len(text) for text in texts[:-1]]).astype("<u8")
    columns = {"id": Column(stored), "n": Column(stored.astype(np.int32), None, (stored >= 10_000).astype("u1")),
               "t": Column(np.frombuffer(b"".join(texts), "u1"), offsets)}
    Lib().write(path, columns, "global-order", settings={"sm__check_global_order": "false"})
    with mounted(path) as point:
        with contextlib.suppress(OSError):
            (point / "data/columns/id/data.bin").read_bytes()
        time.sleep(0.1)
        table = pyarrow.parquet.ParquetFile(point / "data/table.parquet")
        checks.equal("disordered groups: there are several", table.metadata.num_row_groups > 1, True)
        first = 0
        for number in range(table.metadata.num_row_groups):
            group = table.metadata.row_group(number)
            rows = np.arange(first, first + group.num_rows)
            first += group.num_rows
            nulls, bounds = group.column(1).statistics, group.column(0).statistics
            checks.equal(f"disordered groups: nulls of {number}", nulls is None or not nulls.has_null_count or nulls.null_count == (rows < 10_000).sum(), True)
            inside = bounds is None or not bounds.has_min_max or bounds.min <= rows[0] and rows[-1] <= bounds.max
            checks.equal(f"disordered groups: bounds of {number}", inside, True)
        rows = table.read()
        checks.equal("disordered groups: the rows", np.array_equal(rows["id"], keys) and rows["n"].null_count == 10_000, True)
        checks.equal("disordered groups: the texts", rows["t"].to_pylist() == ["x" * (key % 7) for key in keys.tolist()], True)


def compare_not_a_number(checks, folder):
    """A cell at not-a-number and one at the upper end of the domain are two cells."""
    path = f"{folder}/not a number"
    dimension = tiledb.Dim("x", domain=(0.0, 100.0), tile=100.0, dtype=np.float64)
    tiledb.Array.create(path, tiledb.ArraySchema(tiledb.Domain(dimension), attrs=[tiledb.Attr("a", dtype=np.int32)], sparse=True))
    for time_stamp, place, value in (10, 100.0, 1), (20, np.nan, 2):
        with tiledb.open(path, "w", timestamp=time_stamp) as array:
            array[np.array([place])] = np.array([value], np.int32)
    with tiledb.open(path) as array, mounted(path) as point:
        want = sorted(array.multi_index[:]["a"].tolist())
        checks.equal("a cell at not-a-number, and one at the end", sorted(np.fromfile(point / "data/columns/a/data.bin", np.int32).tolist()), want)


def values_at(table, keys):
    """Where the values of `table` lie whose rows have these keys: pairs of an offset and bytes."""
    metadata, found, rows = pyarrow.parquet.ParquetFile(table).metadata, [], 0
    for group in range(metadata.num_row_groups):
        mine = keys[rows : rows + metadata.row_group(group).num_rows]
        rows += len(mine)
        for column, values in enumerate((mine, 4 * mine)):
            chunk = metadata.row_group(group).column(column)
            found.append((chunk.data_page_offset + chunk.total_compressed_size - values.nbytes, values.tobytes()))
    return found


def fits(piece, start, values):
    """Whether a piece of a file has these values where they lie."""
    end = start + len(piece)
    return all(piece[max(at, start) - start : at + len(data) - start] == data[max(start - at, 0) : max(end - at, 0)]
               for at, data in values if at < end and start < at + len(data))


def read_pieces(table, seconds, seed):
    """Pieces that a reader gets who opens a table again and again: for each opening, pairs of an offset and bytes. And how many reads gave EIO.

    It begins with the first third of the table.
    """
    random, begin, openings, refused = np.random.default_rng(seed), time.monotonic(), [], 0
    size = table.stat().st_size
    while time.monotonic() < begin + seconds:
        file, pieces = os.open(table, os.O_RDONLY), []
        for _ in range(random.integers(1, 40)):
            start = int(random.integers(size if time.monotonic() > begin + seconds / 4 else size // 3))
            try:
                pieces.append((start, os.pread(file, int(random.choice([8, 4096, 300_000])), start)))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                refused += 1
        os.close(file)
        openings.append(pieces)
    return openings, refused


def read_whole(table, seconds, keys):
    """What DuckDB and pyarrow, in turn, read wrongly of a table of these keys, and how often they fail."""
    end, wrong, failed = time.monotonic() + seconds, [], 0
    time.sleep(seconds / 4)
    want = [(len(keys), len(keys), int(keys.sum()), True)]
    while time.monotonic() < end:
        try:
            with duckdb.connect(config={"threads": 4}) as engine:
                found = engine.sql(f"SELECT count(*), count(DISTINCT id), sum(id), bool_and(v = 4 * id) FROM '{table}'").fetchall()
            if found != want:
                wrong.append(found)
            rows = pyarrow.parquet.read_table(table)
            if not (np.array_equal(rows["id"], keys) and np.array_equal(rows["v"], 4 * keys)):
                wrong.append("pyarrow")
        except (duckdb.Error, OSError) as error:
            if not re.search(r"Input/output|errno 5|Could not read", str(error)):
                wrong.append(str(error))
            failed += 1
    return wrong, failed


def compare_discovery(checks, folder):
    """Several readers of a table while one of them finds out that a tile among ordered ones is not in order."""
    keys = np.arange(0, 600_000, 2)
    near, far = keys.copy(), keys.copy()
    near[[205_000, 205_001]] = near[[205_001, 205_000]]
    far[205_000] = 11
    for name, stored in ("two cells changed places", near), ("a cell belongs far away", far):
        path, sorted_keys = f"{folder}/{name}", np.sort(stored)
        dimension = tiledb.Dim("id", domain=(0, 10**9), tile=CAPACITY, dtype=np.int64)
        schema = tiledb.ArraySchema(tiledb.Domain(dimension), attrs=[tiledb.Attr("v", dtype=np.int64)], sparse=True, capacity=CAPACITY)
        tiledb.Array.create(path, schema)
        Lib().write(path, {"id": Column(stored), "v": Column(4 * stored)}, "global-order", settings={"sm__check_global_order": "false"})
        with mounted(path) as point, open(point / "data/columns/id/data.bin", "rb") as held, concurrent.futures.ThreadPoolExecutor() as threads:
            table = point / "data/table.parquet"
            before = values_at(table, stored)
            readers = [threads.submit(read_pieces, table, 2, seed) for seed in range(3)]
            engines = [threads.submit(read_whole, table, 2, sorted_keys) for _ in range(2)]
            pieces, refused = zip(*(reader.result() for reader in readers))
            wrong, failed = zip(*(engine.result() for engine in engines))
            after = values_at(table, sorted_keys)
            openings = [opening for reader in pieces for opening in reader]
            mixed = [opening for opening in openings if not any(all(fits(piece, start, state) for start, piece in opening) for state in (before, after))]
            checks.equal(f"{name}: each of {len(openings)} openings has one state, as stored or sorted", len(mixed), 0)
            try:
                code = os.pread(held.fileno(), 8, 0) and None
            except OSError as error:
                code = error.errno
            checks.equal(f"{name}: what was open fails ({sum(refused)} reads, and {sum(failed)} of engines)", code, errno.EIO)
            checks.equal(f"{name}: engines read all rows, or fail", sum(wrong, []), [])
            checks.equal(f"{name}: the log has a line", len(errors(point)) > 0, True)
            rows = pyarrow.parquet.read_table(table)
            checks.equal(f"{name}: what is opened then is sorted", np.array_equal(rows["id"], sorted_keys) and np.array_equal(rows["v"], 4 * sorted_keys), True)


def main():
    """Runs all of it."""
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        compare_counts(checks, folder)
        compare_again(checks, folder)
        compare_ways(checks, folder)
        compare_small_fragments(checks, folder)
        compare_disorder(checks, folder)
        compare_disordered_groups(checks, folder)
        compare_not_a_number(checks, folder)
        compare_discovery(checks, folder)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
