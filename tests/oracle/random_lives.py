"""Random arrays: schemas, values and lives from a seed, for `random_arrays.py`.

Whatever libtiledb refuses is left out and noted in `Life.log`; so the same generator serves every release from 1.5 on.
"""

import contextlib
import time

import numpy as np

import values
from capi import VAR, Attr, Column, Dim, Label, Lib, Schema, TileDBError, np_type
from facts import TEXT_BYTES
from matrix_filters import style_of
from random_schemas import (
    INTEGERS, PLAIN_FILTERS, STRING_FILTERS, WORDS, Refused, attribute, box_of, dense_dims, enumeration, parts, sparse_dims, type_of,
)
from truth import gather


# -- values --------------------------------------------------------------------------------------------------


def elements(d, datatype, n, style):
    """Values of a datatype; floats and wide text sometimes have arbitrary bits."""
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
    """One coordinate, often an edge or a repetition."""
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


# -- lives ---------------------------------------------------------------------------------------------------


class Life:
    """Creates one array and changes it."""

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
        """Continues if libtiledb refuses, or the release lacks a function."""
        try:
            yield
            self.note(what)
        except (TileDBError, AttributeError) as error:
            self.note(what, error)
            self.lib.use()

    def now(self):
        """The next timestamp, sometimes equal to the one before."""
        if self.release < (2, 0):
            time.sleep(0.003)
        self.time = min(self.time + self.d.choice([0, 1, 1, 2, 5]), 99)
        return self.base + self.time

    def create(self):
        """Creates the array with a schema that libtiledb accepts."""
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
        """An attribute that can be made and written, if necessary with other filters; `self.style` is its style of values."""
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

    # -- steps -----------------------------------------------------------------------------------------------

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
        n = 0 if d.chance(0.03) and self.release >= (2, 17) else d.upto(most)
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
        """Writes the cells of a sparse array again in global order, in several submits."""
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

    def consolidation(self):
        """What to consolidate, and how; None for nothing."""
        d = self.d
        mode = d.choice(["fragments", "fragments", "fragments", "commits", "fragment_meta", "array_meta"])
        if mode == "fragments" and self.schema.kind == "dense" and self.schema.current_domain:
            return None  # what libtiledb makes of tiles beyond the current domain it does not read
        settings = {}
        if mode == "fragments" and self.release >= (2, 0):
            if d.chance(0.3):
                settings |= {"sm__consolidation__buffer_size": d.choice([100, 1000, 100_000])}
            if d.chance(0.3):
                settings |= {"sm__consolidation__step_min_frags": 2, "sm__consolidation__step_max_frags": 2, "sm__consolidation__steps": d.randint(1, 3)}
            if d.chance(0.2) and self.release >= (2, 14):
                settings |= {"sm__consolidation__max_fragment_size": d.choice([500, 2000, 20_000])}
        return mode, settings

    def consolidate(self):
        """Consolidates something, perhaps vacuums."""
        chosen = self.consolidation()
        if chosen is None:
            return
        mode, settings = chosen
        with self.trying(f"consolidate {mode} {settings}"):
            self.now()
            self.lib.consolidate(self.uri, mode, self.d.chance(0.4), self.key, **settings)

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

    def taken(self):
        """Names that new attributes may not have."""
        return {x.name for x in self.schema.dims} | {a.name for a in self.schema.attrs}

    def evolve(self):
        """Adds and drops attributes, extends enumerations, expands the current domain."""
        if self.release < (2, 4) or self.base == 0 and self.time >= 98:
            return
        d, schema = self.d, self.schema
        self.time += 1
        when = self.base + self.time
        taken = self.taken()
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
        """Creates the array and applies random steps."""
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
