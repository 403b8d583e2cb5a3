"""The `filters` set: every filter alone on every datatype, every ordered pair on four datatypes, 200 random chains, WebP.

What libtiledb accepts was found by asking it, see `probe.py`: attributes that it refuses when the schema is made or when cells are written, that make
it crash, that it does not read back as they were written, or whose values it loses, are left out, and listed in `matrix.json` under `refused`.
"""

import zlib

import numpy as np

from capi import DATATYPES, TYPE_ID, VAR, Attr, Column, Dim, Pipeline, Schema, np_type
from probe import ByTable, fill, line_schema

ALONE = {
    "NONE": [{}], "GZIP": [{"level": 1}, {"level": 9}], "ZSTD": [{"level": -5}, {"level": 19}], "LZ4": [{}], "BZIP2": [{"level": 1}], "RLE": [{}],
    "DOUBLE_DELTA": [{}, {"reinterpret": TYPE_ID["INT32"]}, {"reinterpret": TYPE_ID["UINT8"]}],
    "DELTA": [{}, {"reinterpret": TYPE_ID["INT16"]}], "BIT_WIDTH_REDUCTION": [{"window": 32}, {"window": 4096}], "BITSHUFFLE": [{}],
    "BYTESHUFFLE": [{}], "POSITIVE_DELTA": [{"window": 40}, {"window": 1024}], "CHECKSUM_MD5": [{}], "CHECKSUM_SHA256": [{}], "DICTIONARY": [{}],
    "SCALE_FLOAT": [{"byte_width": b, "scale": s, "offset": o} for b, s, o in ((1, 4.0, 1.0), (2, 0.25, -3.5), (4, 0.125, 0.0), (8, 0.1, 7.0))],
    "XOR": [{}],
}
ONE = {name: options[-1] for name, options in ALONE.items()} | {"DOUBLE_DELTA": {}, "DELTA": {}, "SCALE_FLOAT": ALONE["SCALE_FLOAT"][1]}
PAIR_TYPES = {"INT32": 1, "INT64": 1, "FLOAT64": 1, "STRING_ASCII": VAR}
LEVELS = {"GZIP": (1, 9), "ZSTD": (-7, 12), "LZ4": (1, 12), "BZIP2": (1, 9), "RLE": (-1, -1), "DICTIONARY": (-1, -1)}


def style_of(pipeline, datatype):
    """Values that the pipeline accepts: ascending for non-negative differences, small for scaled floats."""
    names = [n for n, _ in pipeline.filters]
    if "POSITIVE_DELTA" in names:
        return "sorted"
    if "SCALE_FLOAT" in names or datatype.startswith("FLOAT"):
        return "small"
    return "runs" if "RLE" in names or "DICTIONARY" in names else "random"


RESIZING = {"GZIP", "ZSTD", "LZ4", "BZIP2", "RLE", "DICTIONARY", "DELTA", "DOUBLE_DELTA", "BIT_WIDTH_REDUCTION"}


def loses_bytes(attr):
    """Whether what libtiledb writes for a pipeline does not hold the values any more.

    After a filter whose output has any number of bytes, DELTA and DOUBLE_DELTA drop what is left beyond the last whole value (reading, libtiledb
    leaves those bytes as they are in its memory, which often is right by chance), and SCALE_FLOAT rounds bytes that are no floats.
    """
    resized = False
    for name, options in attr.pipeline.filters:
        reinterpret = options.get("reinterpret", TYPE_ID["ANY"])
        width = np_type(DATATYPES[reinterpret] if reinterpret != TYPE_ID["ANY"] else attr.type).itemsize
        if resized and (name == "SCALE_FLOAT" or (name in ("DELTA", "DOUBLE_DELTA") and width > 1)):
            return True
        resized |= name in RESIZING
    return False


class AttrRng:
    """The random generator of an attribute's values."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, attr):
        return np.random.default_rng([self.seed, zlib.crc32(f"{attr.name} {attr.type} {attr.cvn}".encode())])


class Batches:
    """Writes attributes together in arrays, without those that libtiledb refuses."""

    def __init__(self, w, decider):
        self.w, self.decider, self.rng_of = w, decider or ByTable(), AttrRng(w.seed)

    def write(self, name, attrs, what, cells=70, extent=35, most=None):
        """Writes an array of at most `most` of the attributes; returns their number."""
        sound = [a for a in attrs if not loses_bytes(a)]
        styles = self.decider.decide(name, sound, cells, extent, lambda a: style_of(a.pipeline, a.type))
        taken = [a for a in attrs if a.name in styles][:most]
        for attr in attrs:
            if attr.name not in styles:
                self.w.refused.append({"type": attr.type, "cell_val_num": attr.cvn, "filters": attr.pipeline.filters})
        if taken:
            uri = self.w.create(name, line_schema(taken, cells, extent), what)
            fill(self.w.lib, uri, taken, cells, styles, self.rng_of)
        return len(taken)


def alone(w, decider=None):
    """Every filter on every datatype: one value per cell, two, var-sized, nullable."""
    batches = Batches(w, decider)
    for name, all_options in ALONE.items():
        for i, options in enumerate(all_options):
            pipeline = Pipeline([(name, options)])
            for shape, cvn, nullable in (("one", 1, False), ("null", 1, True), ("two", 2, False), ("var", VAR, True)):
                attrs = [Attr(t, t, cvn, nullable, pipeline) for t in DATATYPES if cvn == VAR or t != "ANY"]
                batches.write(f"alone/{name}_{i}_{shape}", attrs, ["alone", name, shape])


def pairs(w, decider=None):
    """Every ordered pair of filters on four datatypes."""
    batches = Batches(w, decider)
    for first in ONE:
        for datatype, cvn in PAIR_TYPES.items():
            attrs = [Attr(f"{first}-{second}", datatype, cvn, False, Pipeline([(first, ONE[first]), (second, ONE[second])])) for second in ONE]
            batches.write(f"pairs/{first}_{datatype}", attrs, ["pairs", first, datatype], 48, 24)


def random_options(rng, name):
    """Random parameters of one filter."""
    if name in LEVELS:
        return {"level": int(rng.integers(LEVELS[name][0], LEVELS[name][1] + 1))}
    if name in ("BIT_WIDTH_REDUCTION", "POSITIVE_DELTA"):  # a window smaller than a value makes libtiledb divide by zero
        return {"window": int(rng.choice([8, 24, 100, 256, 1000, 5000]))}
    if name == "SCALE_FLOAT":
        return {"byte_width": int(rng.choice([2, 4, 8])), "scale": float(rng.choice([0.25, 0.5, 1.0])), "offset": float(rng.integers(-4, 5))}
    if name in ("DELTA", "DOUBLE_DELTA") and rng.random() < 0.3:
        return {"reinterpret": TYPE_ID[str(rng.choice(["INT8", "INT16", "INT32", "INT64", "UINT32"]))]}
    return {}


def chains(w, decider=None):
    """200 accepted random chains of three to five filters; with random datatype, shape, tile extent, number of cells and chunk limit."""
    rng, made, tried = w.rng("chains"), 0, 0
    batches = Batches(w, decider)
    while made < 200:
        tried += 1
        cells = int(rng.choice([1, 2, 7, 50, 333, 3000]))
        extent = int(rng.integers(1, cells + 1)) if cells < 300 else int(rng.integers(cells // 5, cells + 1))
        attrs = [random_attr(rng, f"c{tried}_{k}") for k in range(6)]
        what = ["random chains", *(a.pipeline.filters for a in attrs)]
        made += batches.write(f"chains/{tried:03}", attrs, what, -(-cells // extent) * extent, extent, 200 - made)
    print(f"{made} random chains, of {6 * tried} candidates")


def random_attr(rng, name):
    """An attribute with a random chain."""
    datatype = str(rng.choice(DATATYPES))
    cvn = VAR if datatype == "ANY" else int(rng.choice([1, 1, 1, 2, 5, VAR]))
    filters = [(str(n), random_options(rng, n)) for n in rng.choice(list(ONE), rng.integers(3, 6))]
    limit = [None, None, 64, 1000, 4096][rng.integers(0, 5)]
    return Attr(name, datatype, cvn, bool(rng.random() < 0.3), Pipeline(filters, limit))


def strings(w):
    """String RLE and dictionary with every possible next filter; lengths and runs of several bytes; sparse and dense."""
    first = [("RLE", {}), ("DICTIONARY", {})]
    after = [[], [("ZSTD", {})], [("BYTESHUFFLE", {}), ("LZ4", {})], [("CHECKSUM_SHA256", {})], [("BITSHUFFLE", {}), ("GZIP", {}), ("CHECKSUM_MD5", {})]]
    attrs = [
        Attr(f"{f[0]}{i}_{t}{'_null' if n else ''}", t, VAR, n, Pipeline([f, *rest]))
        for f in first for i, rest in enumerate(after) for t in ("STRING_ASCII", "STRING_UTF8") for n in (False, True)
    ]
    w.dense("strings/dense", Schema("dense", [Dim("x", "INT32", 0, 99, 25)], attrs), ["string filters"], [[(0, 99)], [(25, 49)]], "runs", layout="global-order")
    schema = Schema("sparse", [Dim("x", "INT32", 0, 999, 100)], attrs, capacity=20)
    w.sparse("strings/sparse", schema, ["string filters"], (70, 21), "runs")
    for f in first:
        dims = [Dim("s", "STRING_ASCII", pipeline=Pipeline([f, ("ZSTD", {})]))]
        w.sparse(f"strings/dimension_{f[0]}", Schema("sparse", dims, attrs[:2], capacity=15, dups=True), ["string filters on a dimension"], (60, 4))
    cases = {"long": [b"y" * 300, b"z"], "longer": [b"q" * 70_000, b"", b"r"], "runs": [b"same"] * 70_000 + [b"a"],
             "many": [b"w%d" % i for i in range(70_000)] + [b"w1"], "empty": [b""] * 40, "one": [b"only"]}
    for case, cells in cases.items():
        few = [Attr(f[0], "STRING_ASCII", VAR, False, Pipeline([f])) for f in first]
        n = len(cells)
        uri = w.create(f"strings/{case}", Schema("dense", [Dim("x", "INT32", 0, n - 1, n)], few), ["string filters", case])
        w.lib.write(uri, {a.name: Column.of_cells(cells) for a in few}, ranges=[np.array([0, n - 1], "<i4")], timestamp=10)


def webp(w):
    """WebP of all four pixel layouts, lossless and lossy, images of several tiles."""
    for number, (layout, depth) in enumerate((("RGB", 3), ("BGR", 3), ("RGBA", 4), ("BGRA", 4)), 1):
        for lossless in (1, 0):
            for rows, columns in ((16, 12), (37, 21)):
                options = {"quality": 80.0, "format": number, "lossless": lossless}
                attr = Attr("pixels", "UINT8", 1, False, Pipeline([("WEBP", options)]))
                dims = [Dim("y", "INT32", 0, 2 * rows - 1, rows), Dim("x", "INT32", 0, columns * depth - 1, columns * depth)]
                name = f"webp/{layout}_{'lossless' if lossless else 'lossy'}_{rows}"
                uri = w.create(name, Schema("dense", dims, [attr]), ["webp", layout])
                y, x = np.mgrid[0 : 2 * rows, 0 : columns * depth]
                noise = w.rng(name).integers(0, 30, y.shape)
                pixels = ((3 * y + 5 * x + noise) % 256).astype("u1")
                ranges = [np.array([0, 2 * rows - 1], "<i4"), np.array([0, columns * depth - 1], "<i4")]
                w.lib.write(uri, {"pixels": Column(pixels.reshape(-1))}, ranges=ranges, timestamp=10)


def parts(w):
    """The further filters on offsets, validity and coordinates."""
    attrs = [Attr("v", "STRING_UTF8", VAR, True), Attr("i", "INT32", 1, True)]
    for i, names in enumerate((["DELTA"], ["DELTA", "BIT_WIDTH_REDUCTION", "ZSTD"], ["XOR", "LZ4"], ["XOR", "CHECKSUM_MD5", "BZIP2"], ["DELTA", "XOR", "RLE"])):
        pipeline = Pipeline([(n, ONE[n]) for n in names])
        schema = Schema("sparse", [Dim("x", "INT32", 0, 499, 50), Dim("y", "INT64", 0, 9, 10)], attrs, capacity=12)
        schema.offsets = schema.validity = schema.coords = pipeline
        w.sparse(f"parts/{i}_" + "-".join(names), schema, ["pipelines", *names], (60, 13))


ALL = [alone, pairs, chains, strings, webp, parts]
