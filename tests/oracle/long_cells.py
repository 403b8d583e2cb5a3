"""Hunts for wrong bytes in random arrays of long cells: `python3 long_cells.py --seed N --count N [--keep FOLDER]`.

Cells of 1 byte to 1 MiB, longer than a chunk, a request of the kernel, or the cache, with fragments that hide, overwrite and delete between them. Each
array is mounted twice, with a large and with a tiny cache. At random times and in random parts, columns are first read in small pieces at random
places (buffered, past the page cache, and mapped) and then whole, and compared with what libtiledb reads; so are `tiledbfs cat` and the exports.
`tiledbfs check` must find nothing.

`--only I` writes and compares array `I` alone and prints its life. The last line is `N passed, N failed`, counting views.
"""

import contextlib
import ctypes as ct
import json
import mmap
import os
import re
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import zarr

import exports_csv
import exports_parquet
import names
from capi import LAYOUT_ID, VAR, Attr, Column, Dim, Pipeline, Schema, TileDBError, library_path, np_type
from mount import binary, errors, mounted
from random_arrays import PiecesLib, apart
from random_schemas import Draw
from random_views import BASE, ArrayHunt, Moment, ViewLib, ViewLife, arguments, run
from view_files import Differs, ViewComparison, npy_header, same

BATCH = 20
MAX_CELLS = 100
"""The most cells that libtiledb is asked for."""
LENGTHS = [1, 100, 5000, 65_535, 65_536, 65_537, 131_072, 300_000, 1 << 20]
CELLS = [("UINT8", 100_000), ("INT32", 100_000), ("UINT8", 65_536), ("UINT8", 65_537), ("FLOAT64", 20_000), ("CHAR", 70_000), ("INT16", 40_000), ("UINT8", 600_000)]
CHUNKS = [None, None, 1000, 4096, 65_536, 200_000, 4 << 20]
MAX_EXPORTED = 8 << 20
"""Exports of views of more bytes are not read, nor tables of more numbers in lists than an eighth of that: Python is slow with them."""
SIZES = [1, 2, 7, 8, 100, 4096, 65_536, 131_072, 131_073, 300_000]
CACHES = ["1G", "64K"]


# -- lives ---------------------------------------------------------------------------------------------------


def length(d):
    """Bytes of a cell."""
    longest = d.choice(LENGTHS)
    return max(1, longest - d.randint(0, 2)) if d.chance(0.5) else d.randint(1, longest)


def pipeline(d):
    """Filters of a field, with chunks longer and shorter than cells."""
    name = d.choice([None, "NONE", "ZSTD", "ZSTD", "LZ4", "GZIP", "BYTESHUFFLE", "CHECKSUM_MD5"])
    return name and Pipeline([(name, {"level": 1} if name in ("ZSTD", "GZIP") else {})], d.choice(CHUNKS))


class LongLife(ViewLife):
    """The life of an array of few long cells."""

    def draw_schema(self):
        """A random schema: short numbers `n`, var-sized cells `v`, and often long cells of one length, `f`."""
        d, sparse = self.d, self.d.chance(0.65)
        self.style, self.members, self.limit = {}, {}, 4
        sides = d.choice([[30], [30], [9, 9]] if sparse else [[12], [12], [4, 5]])
        dims = [Dim(name, "INT32", 0, side - 1, d.choice([1, 3, side])) for name, side in zip("xy", sides)]
        if sparse and d.chance(0.15):
            dims[-1] = Dim("s", "STRING_ASCII", pipeline=pipeline(d))
        attrs = [Attr("n", "INT32", 1, d.chance(0.3)), self.attribute("v", True)]
        if d.chance(0.5):
            attrs.append(self.attribute("f", False))
        d.shuffle(attrs)
        orders = ["row-major", "col-major"]
        schema = Schema("sparse" if sparse else "dense", dims, attrs, d.choice(orders + ["hilbert"] * 2 * sparse), d.choice(orders), d.choice([1, 2, 3, 7, 100]), sparse and d.chance(0.3))
        schema.offsets = pipeline(d) if d.chance(0.3) else None
        return schema

    def attribute(self, name, var):
        """An attribute of long cells; sometimes its fill value is long."""
        d = self.d
        datatype, count = (d.choice(["UINT8", "STRING_ASCII", "STRING_UTF8", "BLOB", "INT32"]), VAR) if var else d.choice(CELLS)
        size = min(length(d), 300_000) // 4 * 4 + 4 if var else count * np_type(datatype).itemsize
        fill = self.bytes(datatype, size) if d.chance(0.4) else None
        return Attr(name, datatype, count, d.chance(0.4), pipeline(d), fill)

    def bytes(self, datatype, size):
        """The bytes of a cell."""
        if datatype.startswith("STRING") or datatype == "CHAR":
            return (self.d.values.integers(0x21, 0x7F, size, "u1")).tobytes()
        raw = self.d.values.integers(0, 256, size, "u1") if self.d.chance(0.5) else np.repeat(self.d.values.integers(0, 256, size // 1000 + 1, "u1"), 1000)[:size]
        return (raw & 0x3F if datatype == "FLOAT64" else raw).tobytes()

    def columns(self, n):
        """Columns of all attributes."""
        return {a.name: self.column(a, n) for a in self.schema.attrs}

    def column(self, a, n):
        d = self.d
        validity = (d.values.random(n) < 0.7).astype("u1") if a.nullable else None
        if a.name == "n":
            return Column(d.values.integers(0, 10, n, "<i4"), None, validity)
        size = np_type(a.type).itemsize
        if a.cvn == VAR:
            lengths = [0 if d.chance(0.1) else length(d) // size * size for _ in range(n)]
            return Column.of_cells([self.bytes(a.type, k) for k in lengths], validity)
        return Column(np.frombuffer(b"".join(self.bytes(a.type, a.cvn * size) for _ in range(n)), np_type(a.type)), None, validity)

    def write_cells(self, when):
        """Writes a few cells, some of them over others."""
        d, dims = self.d, self.schema.dims
        places = [tuple(self.place(dim) for dim in dims) for _ in range(d.choice([1, 2, 3, 5]))]
        places = places if self.schema.dups else list(dict.fromkeys(places))
        self.pool += places
        columns = self.columns(len(places))
        for dim, one in zip(dims, zip(*places)):
            columns[dim.name] = Column.of_cells(list(one)) if dim.type == "STRING_ASCII" else Column(np.array(one, "<i4"))
        with self.trying(f"write {len(places)} cells at {when}"):
            self.lib.write(self.uri, columns, timestamp=when)

    def place(self, dim):
        """A coordinate, often one of those written before."""
        d, at = self.d, self.schema.dims.index(dim)
        if self.pool and d.chance(0.6):
            return d.choice(self.pool)[at]
        if dim.type == "STRING_ASCII":
            return d.choice([b"a", b"bb", b"tile"]) + (self.bytes(dim.type, d.randint(1, 90_000)) if d.chance(0.3) else b"")
        return d.randint(0, 8 if d.chance(0.7) else dim.hi)

    def rewrite(self):
        """Writes nothing in pieces."""

    def evolve(self):
        """Adds an attribute that older fragments lack, or drops one and takes it back."""
        d, known = self.d, {a.name for a in self.schema.attrs}
        back = [name for name in self.gone if name not in known]
        self.time += 1
        when = self.base + self.time
        if back and d.chance(0.7):
            self.come_back(d.choice(back))
        elif len(known) > 2 and d.chance(0.4):
            name = d.choice(sorted(known - {"n"}))
            with self.trying(f"drop {name} at {when}"):
                self.lib.evolve(self.uri, when, [], [name])
                self.gone |= {a.name: a for a in self.schema.attrs if a.name == name}
                self.schema.attrs = [a for a in self.schema.attrs if a.name != name]
        else:
            one = self.attribute(f"late{self.time}", d.chance(0.5))
            with self.trying(f"add {one.name} at {when}"):
                self.lib.evolve(self.uri, when, [one])
                self.schema.attrs = [*self.schema.attrs, one]
        self.remember()

    def delete(self):
        """Deletes by short numbers or by coordinates."""
        if self.schema.kind == "dense":
            return
        d, when = self.d, self.now()
        fields = ["n", *(dim.name for dim in self.schema.dims if dim.type == "INT32")]
        condition = (d.choice(fields), d.choice(["<", ">", "==", "=="]), np.int32(d.randint(0, 9)))
        with self.trying(f"delete {condition} at {when}"):
            self.lib.delete(self.uri, condition, when)

    def live(self):
        """Creates the array and lets it live."""
        d = self.d
        self.create()
        self.remember()
        self.write()
        steps = [self.write] * 6 + [self.consolidate, self.delete, self.delete, self.evolve]
        for _ in range(d.choice([1, 2, 4, 6, 9])):
            d.choice(steps)()

    def note(self, what, error=None):
        """Notes what was done, in short."""
        super().note(what if len(what) < 1500 else re.sub(r"fill=b'.*?'(?=, enum)", "fill=..", what)[:3000], error)


def write(uri, seed, index):
    """Writes one array; its life."""
    lib = PiecesLib(library_path())
    life = LongLife(lib, uri, Draw(seed, index), lib.release)
    life.live()
    return life.log


# -- reading -------------------------------------------------------------------------------------------------


class LongLib(ViewLib):
    """`ViewLib` with room for few cells, which may be long."""

    def read(self, array, fields, layout, ranges=None, cells=1 << 16):
        """Reads fields of an open array."""
        query, sizes = self.get("tiledb_query_alloc", array, 0), {}
        try:
            self.call("tiledb_query_set_layout", query, LAYOUT_ID[layout])
            if ranges is not None:
                self._set_ranges(array, query, ranges)
            for name, datatype, cvn, nullable in fields:
                size = MAX_CELLS << 20 if cvn == VAR else MAX_CELLS * cvn * np_type(datatype).itemsize
                offsets = np.empty(MAX_CELLS, "<u8") if cvn == VAR else None
                self._set_buffer(query, name, Column(np.empty(size, "u1"), offsets, np.empty(MAX_CELLS, "u1") if nullable else None), sizes)
            self.call("tiledb_query_submit", query)
            status = self.get("tiledb_query_get_status", query, kind=ct.c_uint32)
        finally:
            self.c.tiledb_query_free(ct.byref(query))
        if status != 1:
            raise TileDBError(f"query status {status}")
        return {f[0]: self._filled(f[0], sizes) for f in fields}


def buffered(path, places):
    """Parts of a file through the page cache."""
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return [os.pread(f.fileno(), size, at) for at, size in places]


def direct(path, places):
    """Parts of a file past the page cache."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return [os.pread(handle, size, at) for at, size in places]
    finally:
        os.close(handle)


def mapped(path, places):
    """Parts of a mapped file."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        return [memory[at : at + size] for at, size in places]


WAYS = [buffered, direct, direct, mapped]


def pieces(d, path, whole, edges):
    """Reads parts of a file, many around `edges`, before anything else of it has been read."""
    if not whole:
        return 0
    places = []
    for _ in range(5):
        at = d.choice(edges) + d.choice([-9, -1, 0, 0, 1, 65_530]) if edges and d.chance(0.6) else d.randint(0, len(whole))
        size = d.choice(SIZES) if d.chance(0.7) else d.randint(1, 300_000)
        places.append((min(max(at, 0), len(whole)), size))
    way = d.choice(WAYS)
    try:
        parts = way(path, places)
    except OSError as error:
        raise Differs(f"{path}, {way.__name__}: {error}") from error
    for (at, size), part in zip(places, parts):
        if part != whole[at : at + size]:
            raise Differs(f"{path}, {way.__name__}: {size} bytes at {at} of {len(whole)} differ")
    return len(places)


def files_of(folder, view):
    """(path, bytes, beginnings of cells) of all files of columns."""
    for one in view.fields:
        where = os.path.join(folder, "columns", names.encode(one.name))
        for part in ("data", "offsets", "validity"):
            raw = getattr(one, part)
            if raw is None:
                continue
            edges = []
            if part == "data":
                size = len(raw) // max(int(np.prod(one.shape)), 1)
                edges = np.frombuffer(one.offsets, "<u8").tolist() if one.offsets is not None else list(range(0, len(raw), size)) if size else []
            yield os.path.join(where, part + ".bin"), raw, edges
            dtype, shape = npy_header(one, part)
            header = npy_bytes(dtype, shape)
            yield os.path.join(where, part + ".npy"), header + raw, [len(header) + at for at in edges]


def npy_bytes(dtype, shape):
    """The header of a `.npy` file."""
    dictionary = f"{{'descr': {np.lib.format.dtype_to_descr(dtype)!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text = dictionary + " " * (-(len(dictionary) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


class LongHunt(ArrayHunt):
    """Compares one array at random times and in random parts."""

    def __init__(self, d, uri, shown, views, cat, share):
        super().__init__(d, uri, shown, None, views)
        self.lib, self.cat, self.share, self.reads = LongLib(library_path()), cat, share, 0

    def run(self):
        """Compares all views."""
        passed, _, files, failures = super().run()
        return passed, files, self.reads, failures

    def documents(self, moment, prefix):
        """Other tests compare them."""

    def outside(self, moment):
        """Other tests ask for views that do not exist."""
        return []

    def view(self, moment, path, picks):
        """One view."""
        view = self.truth(moment, path, picks)
        d, folder = self.d, os.path.join(self.shown, view.path)
        view.facts["schema"], view.facts["enumerations"] = moment.schema, {}
        files = list(files_of(folder, view))
        d.shuffle(files)
        for file in files:
            self.reads += pieces(d, *file)
        view.facts, facts = {}, view.facts
        self.comparison.compare(view)
        view.facts = facts
        file, whole, _ = d.choice(files)
        done = subprocess.run([*self.cat, os.path.relpath(file, self.shown)], capture_output=True, timeout=120)
        if done.returncode or done.stdout != whole:
            raise Differs(f"cat {file}: {len(done.stdout)} bytes, other than {len(whole)}: {done.stderr[:300]}")
        if d.chance(self.share) and sum(len(one.data) for one in view.fields) <= MAX_EXPORTED:
            self.exports(folder, view)

    def exports(self, folder, view):
        """The files of other formats: first pieces, then the readers, then all bytes, of which those were pieces."""
        said = json.loads(Path(folder, "view.json").read_text())["exports"]
        numbers = sum(len(one.data) // np_type(one.type).itemsize for one in view.fields if one.cvn != 1 and not one.type.startswith(("STRING", "CHAR", "BLOB")))
        for name, compare in (("table.parquet", self.parquet), ("table.csv", self.csv), ("array.nc", self.netcdf)):
            path = os.path.join(folder, name)
            if not said[name]["exists"] or name.startswith("table") and numbers > MAX_EXPORTED // 8:
                continue
            size, way = os.stat(path).st_size, self.d.choice(WAYS)
            places = [(self.d.randint(0, size - 1), self.d.choice(SIZES)) for _ in range(6)]
            parts = way(path, places)
            compare(path, view)
            whole = Path(path).read_bytes()
            same(f"size of {path}", len(whole), size)
            for (at, length), part in zip(places, parts):
                if part != whole[at : at + length]:
                    raise Differs(f"{path}, {way.__name__}: {length} bytes at {at} of {size} differ from the whole")
            self.reads += len(places)
        if said["array.zarr"]["exists"]:
            self.zarr(os.path.join(folder, "array.zarr"), view)

    def rows(self, what, view, one, found, wanted, fill):
        """Compares a column of a table. A cell that nobody wrote may be null where libtiledb gives the fill value."""
        same(f"number of rows of {what}", len(found), len(wanted))
        for row, (got, want) in enumerate(zip(found, wanted)):
            hole = view.dense and one.kind == "attribute" and (got is None or isinstance(got, list) and set(got) == {None}) and exports_parquet.key(want) == exports_parquet.key(fill)
            if not hole and got != want and exports_parquet.key(got) != exports_parquet.key(want):
                raise Differs(f"row {row} of {what}: got {str(got)[:80]}, expected {str(want)[:80]}")

    def parquet(self, path, view):
        """`table.parquet`, read by row groups and whole."""
        exports_parquet.footer(path)
        file = pq.ParquetFile(path)
        groups = [file.read_row_group(i, use_threads=False) for i in range(file.num_row_groups)]
        for index, one in enumerate(view.fields):
            repeat = None
            if view.dense and one.kind == "dimension":
                inner = int(np.prod(view.shape[index + 1 :]))
                repeat = [row // inner % view.shape[index] for row in range(view.cells)]
            field = {"datatype": one.type, "cell_val_num": one.cvn}
            _, wanted = exports_parquet.column(field, lambda part, one=one: getattr(one, part), repeat)
            found = [value for group in groups for value in exports_parquet.plain_values(group.column(index))]
            self.rows(f"{one.name} of {path}", view, one, found, wanted, self.fill(view, one, lambda f, raw: exports_parquet.column(f, raw, None)[1]))

    def fill(self, view, one, convert):
        """The fill value of a field as a table has it."""
        known = next((a for a in view.facts["schema"]["attributes"] if a["name"] == one.name), None)
        if known is None or one.kind == "dimension":
            return None
        raw = known["fill_value"].bytes
        parts = {"data": raw, "offsets": np.array([0, len(raw)], "<u8").tobytes() if one.offsets is not None else None, "validity": None}
        return convert({"datatype": one.type, "cell_val_num": one.cvn}, parts.get)[0]

    def csv(self, path, view):
        """`table.csv`."""
        columns = exports_csv.table(view)
        try:
            Path(path).read_bytes().decode()
            encoding = "utf-8"
        except UnicodeDecodeError:
            encoding = "latin-1"
        found = exports_csv.raw_reader(path, columns, encoding)
        for one, column, values in zip(view.fields, columns, found):
            values = [v if v is None or column.kind != "list" else exports_csv.parse_list(v, column.type) for v in values]
            wanted = [v.decode(encoding, "surrogateescape") if isinstance(v, bytes) else v for v in column.values]
            fill = self.fill(view, one, lambda f, raw, one=one: exports_csv.values_of(one, [raw("data")], None)[1])
            self.rows(f"{one.name} of {path}", view, one, values, wanted, fill.decode(encoding, "surrogateescape") if isinstance(fill, bytes) else fill)

    def grids(self, view):
        """(name, values, which of them are not null) of the attributes that grids have."""
        for one in view.fields:
            if one.kind == "attribute" and one.offsets is None and one.type not in ("CHAR", "BLOB"):
                shape = [*view.shape, one.cvn][: len(view.shape) + (one.cvn != 1)]
                valid = np.ones(view.cells, "u1") if one.validity is None else np.frombuffer(one.validity, "u1")
                valid = np.repeat(valid, one.cvn).reshape(shape) != 0
                yield one.name, np.frombuffer(one.data, np_type(one.type)).reshape(shape), valid

    def grid(self, what, view, read):
        """Compares boxes of the variables of a grid, then all of them. What stands for nulls is not compared, nor the type, which depends on them."""
        for name, cells, valid in self.grids(view):
            variable = read(name)
            same(f"shape of {name} of {what}", variable.shape, cells.shape)
            boxes = [[sorted(self.d.randint(0, n) for _ in range(2)) for n in cells.shape] for _ in range(3)]
            for ends in [*boxes, [[0, n] for n in cells.shape]]:
                box = tuple(slice(a, b) for a, b in ends)
                got, want = (values.astype("f8")[valid[box]] for values in (variable[box], cells[box]))
                same(f"whether box {ends} of {name} of {what} is right", np.array_equal(got, want, equal_nan=True), True)

    def netcdf(self, path, view):
        """`array.nc`."""
        with h5py.File(path, "r") as file:
            self.grid(path, view, lambda name: file[name])

    def zarr(self, path, view):
        """`array.zarr`."""
        group = zarr.open_group(path, mode="r")
        self.grid(path, view, lambda name: group[name])


def compare(seed, index, cache, uri, shown, views, cat, share):
    """Compares one array of a mount."""
    return LongHunt(Draw(seed, 5_000_000 + index * len(CACHES) + cache), uri, shown, views, cat, share).run()


class Hunt:
    """Writes arrays with `write` and compares them with `compare`, batch after batch."""

    def __init__(self, args, write, compare):
        self.args, self.write, self.compare = args, write, compare
        self.total = dict.fromkeys(("arrays", "refused", "crashed", "files", "reads", "passed", "failed"), 0)

    def batch(self, first, count):
        """One batch."""
        with tempfile.TemporaryDirectory(prefix="tiledbfs-long-", dir=self.args.scratch) as top, contextlib.ExitStack() as stack:
            lives = {}
            for index in range(first, first + count):
                kind, what = apart(self.write, f"{top}/{index}", self.args.seed, index)
                if kind == "ok":
                    lives[index] = what
                    if self.args.only is not None:
                        print("\n".join(what))
                    continue
                self.total["refused" if kind == "refused" else "crashed"] += 1
                print(f"array {index} not written: {kind} {what}", flush=True)
                shutil.rmtree(f"{top}/{index}", ignore_errors=True)
            for number, cache in enumerate(CACHES):
                point = stack.enter_context(mounted(top, "--cache-size", cache))
                for index in lives:
                    cat = [binary(), "cat", "--cache-size", cache, f"{top}/{index}"]
                    outcome = apart(self.compare, self.args.seed, index, number, f"{top}/{index}", str(point / str(index)), self.args.views, cat, self.args.exports)
                    self.tell(f"{top}/{index}", index, cache, lives[index], outcome)

            done = subprocess.run([binary(), "check", "--quiet", top], capture_output=True, text=True, timeout=600)
            found = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and not line.startswith("note: ")]
            for line in found:
                print(f"FAIL check: {line[:600]}")
            self.total["failed"] += len(found)

    def tell(self, path, index, cache, life, outcome):
        """Counts what one array gave, prints what differs, and keeps the array."""
        kind, what = outcome
        self.total["arrays"] += 1
        passed, files, reads, failures = what if kind == "ok" else (0, 0, 0, [f"{kind} {str(what)[-500:]}"])
        for name, count in (("passed", passed), ("files", files), ("reads", reads), ("failed", len(failures))):
            self.total[name] += count
        for line in failures[:4]:
            print(f"FAIL array {index}, cache {cache}: {line[:600]}", flush=True)
        if failures and self.args.keep:
            to = os.path.join(self.args.keep, f"{self.args.seed}_{index}")
            shutil.copytree(path, to, dirs_exist_ok=True)
            Path(to + ".log").write_text("\n".join(life) + "\n\n" + "\n".join(failures) + "\n")


def main(description=__doc__, write=write, compare=compare):
    """Runs the hunt for wrong bytes in the arrays that `write` writes."""
    warnings.filterwarnings("ignore")
    parser = arguments(description, 20, 2)
    parser.add_argument("--exports", type=float, default=0.5, help="the share of views whose exports are read, too")
    args = parser.parse_args()
    run(args, lambda: Hunt(args, write, compare), BATCH)


if __name__ == "__main__":
    main()
