"""Hunts for wrong bytes in random arrays of many cells: `python3 many_cells.py --seed N --count N [--keep FOLDER]`.

Arrays of up to 300,000 cells in a few large fragments or in more than 64 small ones, which overlap in full, in part or not at all: more than fit a
block of a merge, a window of a fragment, a batch, or a tile of the default capacity. They are mounted and compared as in `long_cells.py`; pieces of
several files are read at once.

`--only I` writes and compares array `I` alone and prints its life. The last line is `N passed, N failed`, counting views.
"""

import concurrent.futures
import os

import numpy as np

import long_cells
import random_views
from capi import VAR, Attr, Column, Dim, Pipeline, Schema, TileDBError, library_path, np_type
from long_cells import LongHunt, files_of, main, pieces
from random_arrays import PiecesLib
from random_lives import column
from random_schemas import Draw
from random_views import ViewLib, ViewLife, between

CELLS = [20_000, 70_000, 150_000, 300_000]
FILTERS = [None, None, ["ZSTD"], ["BYTESHUFFLE", "ZSTD"], ["BITSHUFFLE", "LZ4"], ["RLE"], ["CHECKSUM_MD5"]]
CHUNKS = [None, None, None, 1000, 4096, 65_536, 65_537, 1 << 20]
CAPACITIES = [100, 1000, 10_000, 10_000, 16_384, 65_536, 100_000]
MAX_EDGES = 1000
"""Beginnings of cells of a file near which pieces may begin."""
THREADS = 4


def pipeline(d):
    """Filters of a field."""
    names = d.choice(FILTERS)
    return names and Pipeline([(name, {}) for name in names], d.choice(CHUNKS))


class ManyLife(ViewLife):
    """The life of an array of many cells. A place has a number below `places`, whose digits are its coordinates."""

    def draw_schema(self):
        """A random schema."""
        d, sparse = self.d, self.d.chance(0.75)
        self.style, self.members, self.limit = {}, {}, 0
        self.total, self.small, number = d.choice(CELLS), d.chance(0.2), d.choice([1, 1, 2, 2, 3])
        self.side = max(3, round((self.total * d.choice([0.4, 1, 2])) ** (1 / number)))
        self.places = self.side**number
        kinds = ["INT32", "INT64", "UINT32"] + ["FLOAT64", "FLOAT32", "STRING_ASCII", "DATETIME_MS"] * sparse
        same = d.choice(kinds[:3])
        dims = [self.dimension(name, d.choice(kinds) if sparse else same, sparse) for name in "xyz"[:number]]
        attrs = [
            Attr("n", d.choice(["INT32", "UINT8", "INT64"]), 1, d.chance(0.3), pipeline(d)),
            Attr("f", d.choice(["FLOAT64", "FLOAT32"]), d.choice([1, 1, 3]), d.chance(0.2), pipeline(d)),
            Attr("v", d.choice(["STRING_ASCII", "STRING_UTF8", "INT32"]), VAR, d.chance(0.4), pipeline(d)),
            Attr("b", d.choice(["BLOB", "UINT16"]), d.choice([3, 16]), d.chance(0.2), pipeline(d)),
        ]
        attrs = d.sample(attrs, d.randint(1, 4))
        self.style = {a.name: d.choice(["small", "random", "runs", "sorted"]) for a in attrs}
        orders = ["row-major", "col-major"]
        schema = Schema("sparse" if sparse else "dense", dims, attrs, d.choice(orders + ["hilbert"] * sparse), d.choice(orders), d.choice(CAPACITIES), sparse and d.chance(0.35))
        schema.offsets = pipeline(d) if d.chance(0.3) else None
        schema.coords = pipeline(d) if d.chance(0.3) else None
        return schema

    def dimension(self, name, datatype, sparse):
        """A dimension of `side` coordinates; small extents would make too many dense tiles."""
        d = self.d
        if datatype == "STRING_ASCII":
            return Dim(name, datatype, pipeline=pipeline(d))
        extent = min(self.side, d.choice([1, 3, 10, 64, 100, self.side] if sparse else [64, 100, self.side]))
        if datatype.startswith("FLOAT"):
            return Dim(name, datatype, -8.0, self.side / 4, extent / 4, pipeline(d))
        lo = d.choice([0, 7] if datatype == "UINT32" else [0, -5, -self.side])
        return Dim(name, datatype, lo, lo + self.side - 1, extent, pipeline(d))

    def now(self):
        """The next timestamp; none twice, as libtiledb sorts more than 16 fragments of equal stamps in any order."""
        self.ties = False
        return super().now()

    def columns(self, n):
        """Columns of all attributes."""
        return {a.name: column(self.d, a, n, self.style[a.name]) for a in self.schema.attrs}

    def write_cells(self, when):
        """Writes cells of all places or of a part, scattered or next to each other."""
        d, schema = self.d, self.schema
        n = max(1, self.total // (80 if self.small else d.choice([1, 2, 4, 8])) + d.randint(-3, 3))
        lo, hi = 0, self.places
        if d.chance(0.4):
            lo = d.randint(0, self.places - 1)
            hi = min(self.places, lo + max(1, self.places // d.choice([2, 5, 20])))
        at = np.arange(lo, min(hi, lo + n)) if d.chance(0.2) else d.values.integers(lo, hi, n)
        rest = at = at if schema.dups else d.values.permutation(np.unique(at))
        columns = self.columns(at.size)
        for dim in reversed(schema.dims):
            digits, rest = rest % self.side, rest // self.side
            if dim.type == "STRING_ASCII":
                columns[dim.name] = Column.of_cells([b"k%05d" % k if k % 3 else b"k" * (k % 50) + b"%d" % k if k else b"" for k in digits.tolist()])
            elif dim.type.startswith("FLOAT"):
                columns[dim.name] = Column((digits / 4 - 8).astype(np_type(dim.type)))
            else:
                columns[dim.name] = Column((digits + dim.lo).astype(np_type(dim.type)))
        with self.trying(f"write {at.size} cells at {when}"):
            self.lib.write(self.uri, columns, timestamp=when)

    def write_box(self, when):
        """Writes a box."""
        d, box = self.d, []
        for dim in self.schema.dims:
            size = max(1, int(self.side * d.choice([1, 0.7, 0.3, 0.1])))
            lo = dim.lo + d.randint(0, self.side - size)
            box.append((lo, lo + size - 1))
        ranges = [np.array(ends, np_type(dim.type)) for dim, ends in zip(self.schema.dims, box)]
        layout = d.choice(["row-major", "col-major"])
        with self.trying(f"write {layout} {box} at {when}"):
            self.lib.write(self.uri, self.columns(int(np.prod([b - a + 1 for a, b in box]))), layout, ranges, when)

    def evolve(self):
        """Adds an attribute that older fragments lack."""
        self.time += 1
        when, one = self.base + self.time, Attr(f"late{self.time}", "INT32", self.d.choice([1, VAR]), self.d.chance(0.3), pipeline(self.d))
        self.style[one.name] = "small"
        with self.trying(f"add {one} at {when}"):
            self.lib.evolve(self.uri, when, [one])
            self.schema.attrs = [*self.schema.attrs, one]
        self.remember()

    def live(self):
        """Creates the array and lets it live."""
        d = self.d
        self.create()
        self.remember()
        self.write()
        often = 60 if self.small else 8
        steps = [self.write] * often + [self.delete, self.delete, self.evolve] + [self.consolidate] * (not self.small)
        for _ in range(d.choice([66, 100]) if self.small else d.choice([1, 2, 4, 7])):
            d.choice(steps)()


def write(uri, seed, index):
    """Writes one array; its life."""
    lib = PiecesLib(library_path())
    life = ManyLife(lib, uri, Draw(seed, index), lib.release)
    life.live()
    return life.log


class ManyHunt(LongHunt):
    """Compares one array at random times and in random parts."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lib = ViewLib(library_path())

    def view(self, moment, path, picks):
        """One view."""
        try:
            view = self.truth(moment, path, picks)
        except TileDBError as error:
            self.refused(path, error)
            return
        files = list(files_of(os.path.join(self.shown, view.path), view))
        self.d.shuffle(files)
        seeds = [self.d.randint(0, 1 << 30) for _ in files]

        def some(file, seed):
            path, raw, edges = file
            return pieces(Draw(seed, 0), path, raw, edges[:: len(edges) // MAX_EDGES + 1])

        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            self.reads += sum(pool.map(some, files, seeds))
        self.comparison.compare(view)

    def picks(self, moment):
        """A range per dimension, sometimes with open bounds."""
        d, out = self.d, []
        for i, (dim, bounds) in enumerate(zip(moment.dims, moment.bounds)):
            if dim["cell_val_num"] == "var":
                ends = sorted(b"k%05d" % d.randint(0, self.most(moment)) if d.chance(0.7) else b"kk" for _ in range(2))
            else:
                near = self.near(moment, i, dim)
                ends = sorted(between(d, *bounds, near) for _ in range(2))
            if d.chance(0.3):
                ends = [None, None]
            elif d.chance(0.2):
                ends[d.randint(0, 1)] = None
            out.append(ends)
        return out

    @staticmethod
    def most(moment):
        """About the greatest number in a string: there are fewer coordinates along a dimension if there are more dimensions."""
        return int(max(CELLS) ** (1 / len(moment.dims)))


def compare(seed, index, cache, uri, shown, views, cat, share):
    """Compares one array of a mount."""
    return ManyHunt(Draw(seed, 5_000_000 + index * len(long_cells.CACHES) + cache), uri, shown, views, cat, share).run()


if __name__ == "__main__":
    random_views.MOST_CELLS = 2 * max(CELLS)
    long_cells.CACHES[1] = "16M"
    main(__doc__, write, compare)
