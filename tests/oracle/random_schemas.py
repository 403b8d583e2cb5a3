"""Random schemas from a seed, for `random_lives.py`. Known gaps of a release are left out."""


import random

import numpy as np

import values
from capi import DATATYPES, FILTER_ID, VAR, Attr, Dim, Enum, Pipeline, np_type
from facts import OPAQUE, TEXT_BYTES, TEXT_WIDE
from matrix_filters import loses_bytes, random_options

TEMPORAL = [t for t in DATATYPES if t.startswith(("DATETIME_", "TIME_"))]
INTEGERS = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]
PLAIN_FILTERS = ["NONE", "GZIP", "ZSTD", "LZ4", "BZIP2", "RLE", "BITSHUFFLE", "BYTESHUFFLE", "CHECKSUM_MD5", "CHECKSUM_SHA256", "BIT_WIDTH_REDUCTION"]
STRING_FILTERS = ("RLE", "DICTIONARY")
CHUNKS = [None, None, None, None, 1, 3, 8, 16, 17, 64, 100, 1000, 4096, 65536, 1 << 20]
NAMES = ["", "a/b", ".hidden", "50%", "sp ace", "größe", "tab\t", "x[0]*?", "l" * 120, "data.bin", "t", "x_var", "x", "tiles", "<|>\\", "A", "é" * 70]
WORDS = [b"", b"a", b"b", b"aa", b"tile", b"Tile", b"zzzz", b"a longer piece of text", b"~", b"0", b"a b", b"same", b"samf"]
MOST_CELLS = 60_000
"""The most cells of all tiles of a dense fragment."""
TIMES = (10, 99)
RELEASES_OF_TYPES = {"BLOB": (2, 12), "BOOL": (2, 10), "GEOM_WKB": (2, 21), "GEOM_WKT": (2, 21), "ANY": (1, 5)}


class Refused(Exception):
    """libtiledb accepted none of several attempts."""


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


# -- schemas -------------------------------------------------------------------------------------------------


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
    """A pipeline of plain filters, sometimes with one of `first` before them."""
    front = filters(d, first, 1) if d.chance(0.6) and release >= (2, 0) else []
    front = [(n, {}) for n, o in front if "reinterpret" in o] or front  # var-sized cells are no multiple of another type
    # A second RLE of strings makes libtiledb crash.
    without = without | {n for n, _ in front}
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
    # Before 2.3, names are those of files, and `x_var` is also the file of the cells of `x`.
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
        if release < (2, 3) and np_type(datatype).itemsize == 8:
            # Up to 2.2, tiles are numbered in f64.
            count = min(count, 1 << 50)
            lo, extent = d.randint(-1000 if datatype != "UINT64" else 0, 1000), min(extent, count)
        dims.append(Dim(name_of(d, taken, release), datatype, lo, lo + count - 1, extent))
    return dims, limit


def box_of(d, dims, limit, aligned):
    """A box of [lo, hi] by dimension, of whole tiles if `aligned`; None if there is none."""
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
        # Before 2.0, RLE loses the rest after a multiple of a cell's coordinates.
        schema.coords = plain(d, ["DOUBLE_DELTA"], release, {"RLE"} if release < (2, 0) else set())
    for one in ("offsets", "validity", "coords"):
        known = getattr(schema, one)
        if known and loses_bytes(Attr("", "UINT64", 1, False, known)):
            setattr(schema, one, None)
