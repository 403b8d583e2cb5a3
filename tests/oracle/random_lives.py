"""Random arrays: schemas, values and lives drawn from a seed, for `random_arrays.py`.

Whatever libtiledb refuses is left out and noted in `Life.log`; so the same generator serves every release from 1.5 on.
"""

import contextlib
import random
import time

import numpy as np

import values
from capi import DATATYPES, FILTER_ID, VAR, Attr, Column, Dim, Enum, Label, Lib, Pipeline, Schema, TileDBError, np_type
from facts import OPAQUE, TEXT_BYTES, TEXT_WIDE
from matrix_filters import loses_bytes, random_options, style_of
from truth import gather

TEMPORAL = [t for t in DATATYPES if t.startswith(("DATETIME_", "TIME_"))]
INTEGERS = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]
PLAIN_FILTERS = ["NONE", "GZIP", "ZSTD", "LZ4", "BZIP2", "RLE", "BITSHUFFLE", "BYTESHUFFLE", "CHECKSUM_MD5", "CHECKSUM_SHA256", "BIT_WIDTH_REDUCTION"]
STRING_FILTERS = ("RLE", "DICTIONARY")
CHUNKS = [None, None, None, None, 1, 3, 8, 16, 17, 64, 100, 1000, 4096, 65536, 1 << 20]
NAMES = ["", "a/b", ".hidden", "50%", "sp ace", "größe", "tab\t", "x[0]*?", "l" * 120, "data.bin", "t", "x_var", "x", "tiles", "<|>\\", "A", "é" * 70]
WORDS = [b"", b"a", b"b", b"aa", b"tile", b"Tile", b"zzzz", b"a longer piece of text", b"~", b"0", b"a b", b"same", b"samf"]
MOST_CELLS = 60_000
"""Cells of all tiles of a dense fragment."""
TIMES = (10, 99)
RELEASES_OF_TYPES = {"BLOB": (2, 12), "BOOL": (2, 10), "GEOM_WKB": (2, 21), "GEOM_WKT": (2, 21), "ANY": (1, 5)}


class Refused(Exception):
    """libtiledb took none of several attempts."""


class Draw(random.Random):
    """Random choices, and a NumPy generator for values."""

    def __init__(self, seed, index):
        super().__init__(f"{seed}/{index}")
        self.values = np.random.default_rng([seed, index])

    def chance(self, p):
        """True with this probability."""
        return self.random() < p

    def upto(self, most):
        """A number from 1 to `most`, small ones more often."""
        return max(1, int(most ** self.random())) if self.chance(0.7) else self.randint(1, most)


# -- schemas ----------------------------------------------------------------------------------------------------


def filters(d, names, most):
    """A random chain with random options."""
    return [(n, random_options(d.values, n)) for n in d.choices(names, k=d.randint(1, most))]


def pipeline(d, datatype, cvn, release):
    """A random pipeline for a field, or None."""
    if d.chance(0.25):
        return None
    usual = d.chance(0.5)
    for _ in range(20):
        everything = [n for n in FILTER_ID if n != "WEBP"]
        chosen = filters(d, PLAIN_FILTERS if usual else everything, 3 if usual else 5)
        if any(n in ("DELTA", "DOUBLE_DELTA", "XOR", "SCALE_FLOAT") for n, _ in chosen[1:]):
            continue  # behind other filters they lose what is no multiple of a value
        if release < (2, 0):
            chosen = [(n, {}) if n in ("RLE", "DOUBLE_DELTA") else (n, o) for n, o in chosen]
        one = Pipeline(chosen, d.choice(CHUNKS))
        if not loses_bytes(Attr("", datatype, cvn, False, one)):
            return one
    return None


def plain(d, first, release, without=frozenset()):
    """A pipeline of plain filters, one of `first` in front of them now and then."""
    front = filters(d, first, 1) if d.chance(0.6) and release >= (2, 0) else []
    front = [(n, {}) for n, o in front if "reinterpret" in o] or front  # var-sized cells are no multiple of another type
    return Pipeline(front + filters(d, [n for n in PLAIN_FILTERS if n not in without], 3), d.choice(CHUNKS))


def type_of(d, release):
    """A datatype that the release has."""
    while True:
        datatype = d.choice(DATATYPES) if d.chance(0.6) else d.choice(["INT32", "INT64", "FLOAT64", "STRING_ASCII", "STRING_UTF8", "CHAR", "UINT8", "FLOAT32"])
        if release < RELEASES_OF_TYPES.get(datatype, (1, 5)) or (datatype.startswith("TIME_") and release < (2, 3)) or (datatype.startswith("DATETIME_") and release < (1, 7)):
            continue
        return datatype


def name_of(d, taken, release):
    """A name that no other field has."""
    odd = d.chance(0.12) and release >= (2, 0)
    # Before 2.3 names are those of files, and `x_var` is also the file of the cells of `x`.
    odd_names = NAMES if release >= (2, 3) else ["", "sp ace", "größe", "50%", "a:b", "q?m", "<|>"]
    name = d.choice(odd_names) if odd else d.choice("abcdefgh") + str(len(taken))
    while name in taken:
        name = f"n{len(taken)}{d.randint(0, 99)}"
    taken.add(name)
    return name


def attribute(d, taken, release, enums=()):
    """A random attribute."""
    datatype = type_of(d, release)
    cvn = VAR if datatype == "ANY" or d.chance(0.35) else d.choice([1, 1, 1, 1, 2, 3, 7])
    nullable = release >= (2, 2) and d.chance(0.35)
    enumeration = None
    if enums and d.chance(0.5):
        datatype, cvn, enumeration = d.choice(INTEGERS), 1, d.choice(enums).name
    fill = None
    if release >= (2, 1) and d.chance(0.3):
        cells = d.randint(1, 5) if cvn == VAR else cvn
        fill = values.elements(d.values, datatype, cells, "random").tobytes()
    return Attr(name_of(d, taken, release), datatype, cvn, nullable, pipeline(d, datatype, cvn, release), fill, enumeration)


def span(d, datatype, count, extent):
    """Where a domain of `count` coordinates begins, such that its last tile ends inside the datatype.

    Reading the last tile of all that there could be, libtiledb computes where the next one would begin, and crashes.
    """
    info = np.iinfo(np_type(datatype))
    last = int(info.max) - -(-count // extent) * extent - extent + 1
    if last < int(info.min):
        raise Refused
    near = [int(info.min), int(info.min) + 1, last, last - 1, 0, 0, 1, -count // 2, -7, d.randint(int(info.min), last)]
    return min(max(d.choice(near), int(info.min)), last)


def dense_dims(d, release):
    """Dimensions of a dense array, and the largest box to write."""
    number = d.choice([1, 1, 1, 2, 2, 2, 3, 3, 4, 5])
    datatype = d.choice(INTEGERS + (d.sample(TEMPORAL, 5) if release >= (2, 0) else []))
    if datatype.startswith("TIME_") and release < (2, 3):
        datatype = "INT64"
    limit = {1: 1500, 2: 50, 3: 14, 4: 7, 5: 4}[number]
    dims, taken = [], set()
    for _ in range(number):
        huge = d.chance(0.15) and np_type(datatype).itemsize > 2
        count = d.randint(1 << 20, 1 << (8 * np_type(datatype).itemsize - 3)) if huge else min(d.upto(limit), 100)if np_type(datatype).itemsize == 1 else d.upto(limit)
        extent = d.choice([count, d.randint(1, count), d.randint(1, min(count, 5)), min(count, 4)]) if not huge else d.randint(1, max(limit // 4, 1))
        lo = span(d, datatype, count, extent)
        dims.append(Dim(name_of(d, taken, release), datatype, lo, lo + count - 1, extent))
    return dims, limit


def box_of(d, dims, limit, aligned):
    """A box of [lo, hi] by dimension, of whole tiles when `aligned`; None when there is none."""
    for _ in range(30):
        box, cells = [], 1
        for dim in dims:
            count = dim.hi - dim.lo + 1
            if aligned:
                tiles = count // dim.extent
                if not tiles:
                    return None
                first = d.randint(0, tiles - 1)
                last = min(tiles - 1, first + d.randint(0, max(0, limit // dim.extent - 1)))
                box.append((dim.lo + first * dim.extent, dim.lo + (last + 1) * dim.extent - 1))
            else:
                lo = d.choice([dim.lo, d.randint(dim.lo, dim.hi), max(dim.lo, dim.hi - limit + 1)])
                box.append((lo, min(dim.hi, lo + d.randint(0, limit - 1))))
            a, b = ((x - dim.lo) // dim.extent for x in box[-1])
            cells *= (b - a + 1) * dim.extent
        if cells <= MOST_CELLS:
            return box
        limit = max(1, limit // 2)
    return None


def sparse_dims(d, release):
    """Dimensions of a sparse array."""
    number = d.choice([1, 1, 1, 2, 2, 2, 3, 4, 5])
    kinds = INTEGERS + ["FLOAT32", "FLOAT64"]
    if release >= (2, 0):
        kinds += ["STRING_ASCII"] * 3 + TEMPORAL[:13]
    if release >= (2, 3):
        kinds += TEMPORAL[13:]
    same = d.choice([k for k in kinds if k != "STRING_ASCII"]) if release < (2, 0) or d.chance(0.2) else None
    taken = set()
    return [sparse_dim(d, name_of(d, taken, release), same or d.choice(kinds), release) for _ in range(number)]


def sparse_dim(d, name, datatype, release):
    """One dimension of a sparse array."""
    own = None
    if release >= (2, 0) and d.chance(0.4):
        own = plain(d, ["DOUBLE_DELTA", "POSITIVE_DELTA", "XOR", "DELTA", "DICTIONARY", "RLE"], release)
    if datatype == "STRING_ASCII":
        return Dim(name, datatype, pipeline=own)
    without = release >= (2, 0) and d.chance(0.2)
    if datatype.startswith("FLOAT"):
        most = float(np.finfo(np_type(datatype)).max)
        lo, hi = d.choice([(-5.5, 99.25), (0.0, 1.0), (-most / 4, most / 4), (1e-30, 2e-30), (-1e6, -1e5), (-most, most), (0.0, 1e-37)])
        return Dim(name, datatype, lo, hi, None if without else (hi - lo) / d.choice([1, 3, 7.5, 100]), own)
    info = np.iinfo(np_type(datatype))
    whole = int(info.max) - int(info.min)
    count = d.choice([d.upto(100), d.upto(min(whole, 10_000)), d.randint(1, whole // 2), whole - whole // 4])
    extent = d.choice([count, d.randint(1, count), max(1, count // 3), min(count, 10)])
    lo = span(d, datatype, count, extent)
    return Dim(name, datatype, lo, lo + count - 1, None if without else extent, own)


def enumeration(d, name):
    """A random enumeration."""
    datatype = d.choice(["STRING_ASCII", "STRING_UTF8", "CHAR", "BLOB", *INTEGERS, "FLOAT32", "FLOAT64", "DATETIME_MS", "BOOL", "STRING_UTF16"])
    count = d.choice([0, 1, 2, 5, 40])
    if datatype in TEXT_BYTES or datatype in OPAQUE or datatype in TEXT_WIDE:
        width = np_type(datatype).itemsize
        picks = {bytes(d.choices(range(97, 123), k=d.randint(0, 9) * width)) for _ in range(count)}
        return Enum(name, datatype, sorted(picks, key=lambda _: d.random()), d.chance(0.5))
    return Enum(name, datatype, np.unique(values.elements(d.values, datatype, count, "small")), d.chance(0.5))


def parts(d, schema, release):
    """Pipelines of offsets, validity and coordinates."""
    if d.chance(0.3):
        schema.offsets = plain(d, ["DOUBLE_DELTA", "POSITIVE_DELTA", "XOR", "DELTA"], release)
    if release >= (2, 2) and d.chance(0.3):
        schema.validity = plain(d, ["RLE"], release)
    if d.chance(0.3):
        # Before 2.0, RLE loses what is no multiple of the coordinates of a cell.
        schema.coords = plain(d, ["DOUBLE_DELTA"], release, {"RLE"} if release < (2, 0) else set())
    for one in ("offsets", "validity", "coords"):
        known = getattr(schema, one)
        if known and loses_bytes(Attr("", "UINT64", 1, False, known)):
            setattr(schema, one, None)


# -- values -----------------------------------------------------------------------------------------------------


def elements(d, datatype, n, style):
    """Values of a datatype; floats and wide text of any bits now and then."""
    if style == "random" and d.chance(0.3):
        dtype = np_type(datatype)
        if datatype == "BOOL":
            return values.elements(d.values, datatype, n, style)
        return np.frombuffer(d.values.bytes(n * dtype.itemsize), dtype)
    return values.elements(d.values, datatype, n, style)


def column(d, attr, n, style, members=None):
    """`n` cells of an attribute."""
    validity = None
    if attr.nullable:
        validity = (d.values.random(n) < d.choice([0, 0.02, 0.5, 0.9, 1])).astype("u1")
    if attr.enumeration is not None:
        return Column((d.values.integers(0, max(1, min(members or 1, 100)), n)).astype(np_type(attr.type)), validity=validity)
    if attr.cvn != VAR:
        return Column(elements(d, attr.type, n * attr.cvn, style), validity=validity)
    if attr.pipeline and any(f in STRING_FILTERS for f, _ in attr.pipeline.filters):
        return Column.of_cells(values.var_cells(d.values, attr.type, n, style), validity)
    longest = d.choice([0, 1, 3, 9, 9, 40, 300 if n < 500 else 20])
    counts = d.values.integers(0, longest + 1, n)
    if attr.type in TEXT_BYTES and d.chance(0.4):
        return Column.of_cells([WORDS[k % len(WORDS)] for k in d.values.integers(0, 60, n)], validity)
    flat = elements(d, attr.type, int(counts.sum()), style).tobytes()
    ends = np.cumsum(counts) * np_type(attr.type).itemsize
    return Column.of_cells([flat[a:b] for a, b in zip([0, *ends[:-1]], ends)], validity)


def coordinate(d, dim, release):
    """One coordinate, edges and repetitions more often than chance would have it."""
    if dim.type == "STRING_ASCII":
        if d.chance(0.5):
            return d.choice(WORDS)
        return bytes(d.choices(range(0x20, 0x7F), k=d.randint(0, 12)))
    if dim.type.startswith("FLOAT"):
        dtype = np_type(dim.type).type
        x = d.choice([dim.lo, dim.hi, 0.0, dim.lo + (dim.hi / 2 - dim.lo / 2), (dim.hi - dim.lo) * d.random() + dim.lo if dim.hi < 1e38 else dim.hi * d.uniform(-1, 1)])
        return dtype(min(max(x, dim.lo), dim.hi)).item()
    near = [dim.lo, dim.hi, d.randint(dim.lo, dim.hi), d.randint(dim.lo, dim.hi), d.randint(dim.lo, min(dim.hi, dim.lo + 20))]
    if dim.extent:
        edge = dim.lo + d.randint(0, (dim.hi - dim.lo) // dim.extent) * dim.extent
        near += [edge, max(dim.lo, edge - 1)]
    return d.choice(near)


def scattered(d, schema, n, release, pool):
    """Coordinates of at most `n` cells, some of them from `pool`: ({dimension: Column}, number of cells)."""
    cells = []
    for _ in range(n):
        if pool and d.chance(0.3):
            cells.append(d.choice(pool))
        else:
            cells.append(tuple(coordinate(d, dim, release) for dim in schema.dims))
    cells = cells if schema.dups else list(dict.fromkeys(cells))
    pool += cells[:50]
    out = {}
    for dim, one in zip(schema.dims, zip(*cells) if cells else [()] * len(schema.dims)):
        out[dim.name] = Column.of_cells(list(one)) if dim.type == "STRING_ASCII" else Column(np.array(one, np_type(dim.type)))
    return out, len(cells)


def part(one, a, b):
    """The cells from `a` to `b` of a column of `n` cells."""
    validity = None if one.validity is None else one.validity[a:b]
    if one.offsets is None:
        return None
    sizes = np.diff(np.append(one.offsets, np.uint64(one.data.size)).astype("<i8"))[a:b]
    data = gather(one.data.view("u1"), one.offsets[a:b], sizes)
    return Column(data, (np.cumsum(sizes) - sizes).astype("<u8"), validity)


# -- lives ------------------------------------------------------------------------------------------------------


class Life:
    """Creates one array and does things to it."""

    def __init__(self, lib, uri, d, release, key=None):
        self.lib, self.uri, self.d, self.release, self.key = lib, uri, d, release, key
        self.log, self.pool, self.members = [], [], {}
        self.time = d.randint(10, 40)
        self.base = 0 if release < (2, 0) or d.chance(0.9) else 1_700_000_000_000

    def note(self, what, error=None):
        """Notes what was done or refused."""
        self.log.append(what if error is None else f"{what} REFUSED {str(error)[:160]}")

    @contextlib.contextmanager
    def trying(self, what):
        """Goes on when libtiledb refuses, or the release lacks a function."""
        try:
            yield
            self.note(what)
        except (TileDBError, AttributeError) as error:
            self.note(what, error)
            self.lib.use()

    def now(self):
        """The next timestamp; the same as before now and then."""
        if self.release < (2, 0):
            time.sleep(0.003)
        self.time = min(self.time + self.d.choice([0, 1, 1, 2, 5]), 99)
        return self.base + self.time

    def create(self):
        """Creates the array with some schema that libtiledb takes."""
        for _ in range(12):
            try:
                self.schema = self.draw_schema()
                self.lib.create(self.uri, self.schema, self.base + self.time, self.key)
                self.note(f"create {self.schema}")
                return
            except (TileDBError, Refused, AttributeError) as error:
                self.note("create", error)
                self.lib.use()
        raise Refused

    def draw_schema(self):
        """A random schema."""
        d, release = self.d, self.release
        sparse = d.chance(0.55)
        dims, self.limit = (sparse_dims(d, release), 0) if sparse else dense_dims(d, release)
        taken = {x.name for x in dims}
        enums = [enumeration(d, f"e{i}") for i in range(d.choice([0, 0, 0, 1, 3]))] if release >= (2, 17) else []
        self.members = {e.name: len(e.values) for e in enums}
        attrs = [attribute(d, taken, release, enums) for _ in range(d.choice([1, 1, 2, 2, 3, 4, 6, 12]))]
        orders = ["row-major", "col-major"]
        cells = orders + ["hilbert"] * (sparse and release >= (2, 3))
        schema = Schema("sparse" if sparse else "dense", dims, [], d.choice(cells), d.choice(orders), d.choice([1, 2, 3, 7, 10, 64, 100, 1000, 10_000]), sparse and d.chance(0.4), enums=enums)
        parts(d, schema, release)
        schema.attrs = [a for a in map(self.sound, attrs) if a]
        if not schema.attrs:
            raise Refused
        if release >= (2, 15) and not sparse and d.chance(0.15):
            schema.labels = [Label(d.randrange(len(dims)), f"label{i}", d.choice(["FLOAT64", "INT32", "STRING_ASCII", "DATETIME_DAY"]), d.choice([1, 2])) for i in range(d.randint(1, 2))]
        if release >= (2, 25) and d.chance(0.15):
            self.current(schema)
        return schema

    def current(self, schema):
        """Gives a schema a current domain, and notes the next one."""
        d, first, then = self.d, [], []
        for dim in schema.dims:
            if dim.type == "STRING_ASCII":
                ends = ((b"", b"") if d.chance(0.5) else (b"b", b"mm")), (b"", b"zz")
                ends = (ends[0], ends[0] if ends[0] == (b"", b"") else (b"a", b"zz"))
            elif dim.type.startswith("FLOAT"):
                ends = ((dim.lo, dim.hi / 2 + dim.lo / 2), (dim.lo, dim.hi))
            else:
                half = d.randint(dim.lo, dim.hi)
                ends = ((dim.lo, half), (dim.lo, d.randint(half, dim.hi)))
            first.append(ends[0])
            then.append(ends[1])
        schema.current_domain, self.next_current = first, then

    def sound(self, attr):
        """An attribute that can be made and written, with other filters if need be; its style of values in `self.style`."""
        self.style = getattr(self, "style", {})
        chosen = style_of(attr.pipeline, attr.type) if attr.pipeline else "random"
        names = [n for n, _ in attr.pipeline.filters] if attr.pipeline else []
        if "DOUBLE_DELTA" in names or "DELTA" in names:
            chosen = "small"
        for style in (chosen, "constant", None):
            if style is None:
                attr.pipeline = None
            self.style[attr.name] = style or "random"
            try:
                self.lib.attribute(attr)
                if (set(names) <= set(PLAIN_FILTERS) and "RLE" not in names[1:]) or style is None or self.takes(attr):
                    return attr
            except (TileDBError, AttributeError):
                continue
        return None

    def takes(self, attr):
        """Whether cells of an attribute can be written, in memory."""
        if self.release < (2, 0):
            return False
        self.count = getattr(self, "count", 0) + 1
        uri = f"mem://probe{self.count}"
        one = Attr(attr.name, attr.type, attr.cvn, attr.nullable, attr.pipeline)
        try:
            self.lib.create(uri, Schema("dense", [Dim("x__", "INT32", 0, 99, 50)], [one]))
            written = column(self.d, one, 100, self.style[attr.name])
            self.lib.write(uri, {attr.name: written}, "row-major", [np.array([0, 99], "<i4")])
            array = self.lib.open(uri, 0)
            try:
                read = self.lib.read(array, [(attr.name, attr.type, attr.cvn, attr.nullable)], "row-major", [np.array([0, 99], "<i4")], 100)[attr.name]
            finally:
                self.lib.close(array)
            lossy = any(n == "SCALE_FLOAT" for n, _ in attr.pipeline.filters)
            return lossy or read.data.tobytes() == written.data.tobytes()
        except TileDBError:
            return False

    # -- steps ----------------------------------------------------------------------------------------------------

    def columns(self, n):
        """Columns of all attributes."""
        return {a.name: column(self.d, a, n, self.style[a.name], self.members.get(a.enumeration)) for a in self.schema.attrs}

    def write(self):
        """Writes a fragment."""
        when = self.now()
        if self.schema.kind == "dense":
            self.write_box(when)
        else:
            self.write_cells(when)

    def write_box(self, when):
        d, dims = self.d, self.schema.dims
        layout = d.choice(["row-major", "row-major", "col-major", "global-order"])
        inside = dims
        if self.schema.current_domain:
            layout = "row-major"
            inside = [Dim(x.name, x.type, lo, hi, x.extent) for x, (lo, hi) in zip(dims, self.schema.current_domain)]
        box = box_of(d, inside, self.limit, layout == "global-order")
        if box is None:
            return
        cells = int(np.prod([b - a + 1 for a, b in box]))
        ranges = [np.array(ends, np_type(x.type)) for x, ends in zip(dims, box)]
        with self.trying(f"write {layout} {box} at {when}"):
            self.lib.write(self.uri, self.columns(cells), layout, ranges, when, self.key)

    def write_cells(self, when):
        d, schema = self.d, self.schema
        most = min(3000, 150 * (schema.capacity or 10_000))
        n = 0 if d.chance(0.03) and self.release >= (2, 0) else d.upto(most)
        where = schema
        if schema.current_domain:
            dims = [x if x.type == "STRING_ASCII" else Dim(x.name, x.type, lo, hi, x.extent) for x, (lo, hi) in zip(schema.dims, schema.current_domain)]
            where = Schema("sparse", dims, [], dups=schema.dups)
            self.pool = []
        coords, n = scattered(d, where, n, self.release, self.pool)
        columns = self.columns(n)
        if self.release < (2, 0):
            stacked = np.stack([coords[x.name].data for x in schema.dims], 1).reshape(-1) if n else np.zeros(0, np_type(schema.dims[0].type))
            columns["__coords"] = Column(stacked)
        else:
            columns |= coords
        with self.trying(f"write {n} cells at {when}"):
            self.lib.write(self.uri, columns, timestamp=when, key=self.key)

    def rewrite(self):
        """Writes the cells of a sparse array once more in their global order, in several submits."""
        if self.schema.kind == "dense" or self.release < (2, 0):
            return
        fields = [(a.name, a.type, a.cvn, a.nullable) for a in self.schema.attrs]
        fields += [(x.name, x.type, VAR if x.type == "STRING_ASCII" else 1, False) for x in self.schema.dims]
        with self.trying("rewrite in global order"):
            reader = self.lib if self.release >= (2, 25) else Lib()
            array = reader.open(self.uri, 0, key=self.key)
            try:
                read = reader.read(array, fields, "global-order", cells=5000)
            finally:
                reader.close(array)
            some = next(f for f in fields if f[2] != VAR) if any(f[2] != VAR for f in fields) else fields[-1]
            one = read[some[0]]
            n = one.offsets.size if some[2] == VAR else one.data.nbytes // (some[2] * np_type(some[1]).itemsize)
            cuts = sorted({0, n, *(self.d.randint(0, n) for _ in range(3))})
            pieces = []
            for a, b in zip(cuts, cuts[1:]):
                piece = {}
                for name, datatype, cvn, _ in fields:
                    c = read[name]
                    if cvn == VAR:
                        piece[name] = part(c, a, b)
                    else:
                        size = cvn * np_type(datatype).itemsize
                        piece[name] = Column(c.data[a * size : b * size], None, None if c.validity is None else c.validity[a:b])
                pieces.append(piece)
            self.lib.write_pieces(self.uri, pieces, self.now(), self.key)

    def metadata(self):
        """Puts and deletes array metadata."""
        with self.trying("metadata"):
            deletes = [k for k in self.keys if self.d.chance(0.2)] if hasattr(self, "keys") else []
            items = metadata_items(self.d, self.release)
            self.keys = [i[0] for i in items]
            self.lib.put_metadata(self.uri, items, deletes, self.now(), self.key)

    def consolidate(self):
        """Consolidates something, perhaps vacuums."""
        d = self.d
        mode = d.choice(["fragments", "fragments", "fragments", "commits", "fragment_meta", "array_meta"])
        settings = {}
        if mode == "fragments" and self.release >= (2, 0):
            if d.chance(0.3):
                settings |= {"sm__consolidation__buffer_size": d.choice([100, 1000, 100_000])}
            if d.chance(0.3):
                settings |= {"sm__consolidation__step_min_frags": 2, "sm__consolidation__step_max_frags": 2, "sm__consolidation__steps": d.randint(1, 3)}
            if d.chance(0.2) and self.release >= (2, 14):
                settings |= {"sm__consolidation__max_fragment_size": d.choice([500, 2000, 20_000])}
        with self.trying(f"consolidate {mode} {settings}"):
            self.now()
            self.lib.consolidate(self.uri, mode, d.chance(0.4), self.key, **settings)

    def delete(self):
        """Writes a delete condition."""
        if self.schema.kind == "dense" or self.release < (2, 12):
            return
        fields = [(a.name, a.type, a.cvn) for a in self.schema.attrs if a.enumeration is None] + [(x.name, x.type, VAR if x.type == "STRING_ASCII" else 1) for x in self.schema.dims]
        fields = [f for f in fields if f[1] in (*INTEGERS, "FLOAT32", "FLOAT64", "STRING_ASCII", "DATETIME_MS") and (f[2] == 1 or (f[2] == VAR and f[1] == "STRING_ASCII"))]
        if not fields:
            return
        condition = self.comparison(fields)
        if self.d.chance(0.3):
            condition = (self.d.choice(["and", "or"]), condition, self.comparison(fields))
        if self.d.chance(0.1) and self.release >= (2, 17):
            condition = ("not", condition)
        when = self.now()
        with self.trying(f"delete {condition} at {when}"):
            self.lib.delete(self.uri, condition, when, self.key)

    def comparison(self, fields):
        name, datatype, cvn = self.d.choice(fields)
        op = self.d.choice(["<", "<=", ">", ">=", "==", "!="])
        if cvn == VAR:
            return name, op, self.d.choice(WORDS[1:])
        known = [x for x in self.schema.dims if x.name == name]
        value = coordinate(self.d, known[0], self.release) if known else values.elements(self.d.values, datatype, 9, "small")[8]
        return name, op, np_type(datatype).type(value)

    def evolve(self):
        """Adds and drops attributes, extends enumerations, expands the current domain."""
        if self.release < (2, 4) or self.base == 0 and self.time >= 98:
            return
        d, schema = self.d, self.schema
        self.time += 1
        when = self.base + self.time
        taken = {x.name for x in schema.dims} | {a.name for a in schema.attrs}
        add = [a for a in (self.sound(attribute(d, taken, self.release)) for _ in range(d.randint(0, 2))) if a]
        drop = [a.name for a in schema.attrs if d.chance(0.25)]
        if len(drop) == len(schema.attrs) and not add:
            drop = drop[1:]
        extend = None
        texts = [e for e in schema.enums if isinstance(e.values, list) and e.type in TEXT_BYTES]
        if texts and d.chance(0.6):
            extend = (d.choice(texts).name, [b"new%d" % self.time, b"also new %d" % self.time])
        enums = [enumeration(d, f"late{self.time}")] if self.release >= (2, 17) and d.chance(0.2) else []
        current = None
        if schema.current_domain and d.chance(0.5):
            current = (schema.dims, self.next_current)
        if not (add or drop or extend or enums or current):
            return
        with self.trying(f"evolve +{add} -{drop} extend {extend} {enums} {current} at {when}"):
            self.lib.evolve(self.uri, when, add, drop, enums, extend, current)
            schema.attrs = [a for a in schema.attrs if a.name not in drop] + add
            if extend:
                self.members[extend[0]] += 2
            if current:
                schema.current_domain = self.next_current

    def labels(self):
        """Writes cells of the dimension labels, which are arrays of their own."""
        for i, label in enumerate(self.schema.labels):
            dim = self.schema.dims[label.dim]
            n = min(dim.hi - dim.lo + 1, 40)
            if label.type == "STRING_ASCII":
                data = Column.of_cells([b"%05d" % k for k in range(n)][:: 1 if label.order == 1 else -1])
            else:
                data = Column((np.arange(n) * 2 - 7).astype(np_type(label.type))[:: 1 if label.order == 1 else -1].copy())
            with self.trying(f"label {i}"):
                self.lib.write(f"{self.uri}/__labels/l{i}", {"label": data}, ranges=[np.array([dim.lo, dim.lo + n - 1], np_type(dim.type))], timestamp=self.now(), key=self.key)

    def live(self):
        """Creates the array and lets it live."""
        d = self.d
        self.create()
        self.write()
        steps = [self.write] * 6 + [self.metadata, self.consolidate, self.consolidate, self.delete, self.delete, self.evolve, self.rewrite]
        for _ in range(d.choice([0, 1, 2, 3, 5, 8])):
            d.choice(steps)()
        self.labels()
        if d.chance(0.02) and self.release >= (2, 0):
            self.base, self.time = 1 << 62, 7
            self.write()


def metadata_items(d, release):
    """Random metadata."""
    items = []
    for i in range(d.randint(1, 6)):
        datatype = type_of(d, max(release, (2, 0))) if release >= (2, 12) else d.choice(["INT32", "FLOAT64", "CHAR", "UINT8", "INT64", "UINT64"])
        if datatype == "ANY" or (datatype.startswith(("TIME_", "DATETIME_")) and release < (2, 3)):
            datatype = "CHAR"
        count = d.choice([0, 1, 1, 2, 5, 300])
        if count == 0 and datatype not in TEXT_BYTES:
            count = 1
        value = elements(d, datatype, count, d.choice(["random", "small"])).tobytes()
        key = d.choice([f"k{i}", f"k{d.randint(0, 3)}", "schlüssel", "with space", 'q"uote', "line\nbreak", "/", "日本", "x" * 300])
        items.append((key, datatype, value))
    return list({k[0]: k for k in items}.values())


def grow_group(lib, folder, d, members):
    """Makes the groups of a batch around some of its arrays."""
    for uri in (folder, folder + "/inner", folder + "/inner/empty"):
        lib.create_group(uri)
    lib.change_group(folder, add=[("inner", True, d.choice([None, "in ner", "inner"]))], timestamp=10)
    lib.change_group(folder + "/inner", add=[(folder + "/inner/empty", False, d.choice([None, "leer"]))], timestamp=10)
    for i, name in enumerate(members):
        absolute, called = d.chance(0.3), d.choice([None, f"m{i}", "a/b" + str(i), f"größe{i}"])
        lib.change_group(folder, add=[(f"{folder}/{name}" if absolute else name, not absolute, called)], timestamp=20 + i)
        if called and d.chance(0.3):
            lib.change_group(folder, remove=[called], timestamp=40 + i)
    for when in range(d.randint(0, 3)):
        lib.put_metadata(folder, metadata_items(d, (2, 30)), timestamp=60 + when, kind="group")
