"""Writes a matrix of arrays with the installed libtiledb: `python3 matrix.py --set core|filters DIRECTORY`.

Everything comes from a fixed seed. Two sets: `core` varies datatypes, kinds of array, orders, dimensions, fragments, chunks and the
life of an array; `filters` every filter and their combinations. `matrix.json` in the folder lists what was written; the keys of
encrypted arrays lie in files named there.
"""

import argparse
import json
import os
import sys
import time
import zlib
from pathlib import Path

import numpy as np

import values
from capi import DATATYPES, VAR, Attr, Column, Dim, Enum, Lib, Pipeline, Schema, TileDBError, np_type

SEED = 20250101
KEY = b"0123456789abcdeffedcba9876543210"
CORE_FILTERS = {
    "NONE": {}, "GZIP": {"level": 5}, "ZSTD": {"level": 3}, "LZ4": {"level": 1}, "BZIP2": {"level": 2}, "RLE": {},
    "DOUBLE_DELTA": {}, "BIT_WIDTH_REDUCTION": {"window": 64}, "BITSHUFFLE": {}, "BYTESHUFFLE": {},
    "POSITIVE_DELTA": {"window": 128}, "CHECKSUM_MD5": {}, "CHECKSUM_SHA256": {},
}
CORE_CHAINS = [
    ["BYTESHUFFLE", "ZSTD"], ["BITSHUFFLE", "LZ4"], ["DOUBLE_DELTA", "ZSTD"], ["BIT_WIDTH_REDUCTION", "GZIP"],
    ["POSITIVE_DELTA", "BIT_WIDTH_REDUCTION", "ZSTD"], ["ZSTD", "CHECKSUM_SHA256"], ["CHECKSUM_MD5", "LZ4"],
    ["GZIP", "CHECKSUM_MD5", "BZIP2"], ["RLE", "ZSTD"], ["BYTESHUFFLE", "RLE", "CHECKSUM_SHA256"], ["BITSHUFFLE", "BYTESHUFFLE"],
    ["BYTESHUFFLE", "CHECKSUM_MD5", "ZSTD", "CHECKSUM_SHA256"], ["LZ4", "LZ4", "LZ4"],
    ["POSITIVE_DELTA", "BIT_WIDTH_REDUCTION", "BYTESHUFFLE", "BZIP2"], ["DOUBLE_DELTA", "BIT_WIDTH_REDUCTION"], ["NONE", "ZSTD", "NONE"],
]
TEMPORAL = [t for t in DATATYPES if t.startswith(("DATETIME_", "TIME_"))]
INTEGERS = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]


def chain(*names, **options):
    """A pipeline of filters with the options of `CORE_FILTERS`."""
    return Pipeline([(n, CORE_FILTERS.get(n, {})) for n in names], **options)


def line(n, extent, datatype="INT32", name="x", lo=0):
    """One dimension of `n` coordinates."""
    return Dim(name, datatype, lo, lo + n - 1, extent)


def styled(attr, style):
    """The style of values for an attribute: second differences of arbitrary 64-bit numbers do not fit the filter."""
    wide = np_type(attr.type).itemsize == 8 and attr.pipeline and any(n == "DOUBLE_DELTA" for n, _ in attr.pipeline.filters)
    return "small" if wide and style == "random" else style


class Writer:
    """Writes arrays below a folder and keeps a list of them."""

    def __init__(self, folder, seed=SEED):
        self.root, self.seed, self.lib = Path(folder), seed, Lib()
        self.objects, self.refused = [], []

    def rng(self, name):
        """The random generator of one array."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def takes(self, attr):
        """Whether libtiledb accepts an attribute of this datatype and pipeline."""
        try:
            self.lib.attribute(attr)
        except TileDBError:
            self.refused.append({"type": attr.type, "cell_val_num": attr.cvn, "filters": attr.pipeline.filters})
            return False
        return True

    def create(self, name, schema, what, key=None, timestamp=1):
        """Creates an array and returns its URI."""
        uri = self.root / name
        uri.parent.mkdir(parents=True, exist_ok=True)
        self.lib.create(str(uri), schema, timestamp=timestamp, key=key)
        self.objects.append({"path": name, "what": what, "encrypted": key is not None})
        return str(uri)

    def dense(self, name, schema, what, boxes, style="random", key=None, layout="row-major"):
        """A dense array with one fragment for each box of [lo, hi] by dimension."""
        uri, rng = self.create(name, schema, what, key), self.rng(name)
        for i, box in enumerate(boxes):
            self.fill(uri, schema, box, rng, 10 * (i + 1), style, key, layout)
        return uri

    def fill(self, uri, schema, box, rng, timestamp, style="random", key=None, layout="row-major"):
        """Writes one box of a dense array."""
        cells = int(np.prod([hi - lo + 1 for lo, hi in box]))
        columns = {a.name: values.column(rng, a, cells, styled(a, style)) for a in schema.attrs}
        ranges = [np.array(ends, np_type(d.type)) for d, ends in zip(schema.dims, box)]
        self.lib.write(uri, columns, layout, ranges, timestamp, key)

    def sparse(self, name, schema, what, counts=(30, 17), style="random", key=None):
        """A sparse array with a fragment of approximately each count of cells."""
        uri, rng = self.create(name, schema, what, key), self.rng(name)
        for i, count in enumerate(counts):
            self.scatter(uri, schema, count, rng, 10 * (i + 1), style, key)
        return uri

    def scatter(self, uri, schema, count, rng, timestamp, style="random", key=None):
        """Writes about `count` cells of a sparse array. In the style `sorted`, values ascend with the first coordinate."""
        columns, n = values.coordinates(rng, schema.dims, count, schema.dups)
        if style == "sorted":
            order = np.argsort(columns[schema.dims[0].name].data, kind="stable")
            columns = {k: Column(c.data[order]) for k, c in columns.items()}
        columns |= {a.name: values.column(rng, a, n, styled(a, style)) for a in schema.attrs}
        self.lib.write(uri, columns, timestamp=timestamp, key=key)

    def finish(self, chosen, start):
        """Writes the list of what was written."""
        listing = {"set": chosen, "seed": self.seed, "objects": self.objects, "refused": self.refused}
        (self.root / "matrix.json").write_text(json.dumps(listing, indent=1))
        print(f"wrote {len(self.objects)} arrays and groups of set {chosen} in {time.time() - start:.1f} s")


# -- the core set --------------------------------------------------------------------------------------------


def variants(datatype, pipeline=None):
    """Attributes of one datatype in all shapes: one value, three, var-sized, and the same nullable."""
    shapes = [("one", 1), ("three", 3), ("var", VAR)] if datatype != "ANY" else [("var", VAR)]
    return [Attr(n + s, datatype, c, bool(s), pipeline) for n, c in shapes for s in ("", "_null")]


def types(w):
    """Every datatype, dense and sparse, in all shapes."""
    for datatype in DATATYPES:
        # libtiledb 2.30 may crash while it writes a box of an array with several attributes, var-sized text
        # among them. Hence two arrays here, and global order where there are many attributes.
        apart = datatype in ("CHAR", "STRING_ASCII")
        shapes = variants(datatype)
        for tail, attrs in (("_fixed", shapes[:4]), ("_var", shapes[4:])) if apart else (("", shapes),):
            box = Schema("dense", [line(21, 6)], attrs)
            w.dense(f"types/dense_{datatype}{tail}", box, ["datatype", datatype], [[(0, 20)], [(4, 13)]])
            cloud = Schema("sparse", [line(200, 50)], attrs, capacity=8)
            w.sparse(f"types/sparse_{datatype}{tail}", cloud, ["datatype", datatype])


def dimension(datatype, kind):
    """A dimension of a datatype, with coordinates of both signs if it is signed."""
    if datatype == "STRING_ASCII":
        return Dim("d", datatype)
    if datatype.startswith("FLOAT"):
        return Dim("d", datatype, -5.5, 99.25, 20.0)
    lo = 0 if datatype.startswith("UINT") else -20
    return line(100, 30 if kind == "sparse" else 13, datatype, "d", lo)


def dimensions(w):
    """Every legal datatype of a dimension, the whole range of some, several and mixed dimensions."""
    attrs = [Attr("a", "INT32"), Attr("s", "STRING_ASCII", VAR, True)]
    for datatype in INTEGERS + TEMPORAL:
        dim = dimension(datatype, "dense")
        boxes = [[(dim.lo + 5, dim.lo + 61)], [(dim.lo + 17, dim.lo + 30)]]
        w.dense(f"dims/dense_{datatype}", Schema("dense", [dim], attrs), ["dimension", datatype], boxes)
    for datatype in [*INTEGERS, "FLOAT32", "FLOAT64", *TEMPORAL, "STRING_ASCII"]:
        schema = Schema("sparse", [dimension(datatype, "sparse")], attrs, capacity=10)
        w.sparse(f"dims/sparse_{datatype}", schema, ["dimension", datatype])
    for datatype in ("INT8", "UINT8", "INT64", "UINT64"):
        info = np.iinfo(np_type(datatype))
        extent = 16 if info.bits == 8 else 1 << 40
        whole = Dim("d", datatype, int(info.min), int(info.max) - extent, extent)
        w.sparse(f"dims/sparse_whole_{datatype}", Schema("sparse", [whole], attrs, capacity=7), ["whole range", datatype])
        box = [(whole.lo + 3, whole.lo + 40)]
        extent = 16
        near = Dim("d", datatype, int(info.min), int(info.max) - extent, extent)
        w.dense(f"dims/dense_whole_{datatype}", Schema("dense", [near], attrs), ["whole range", datatype], [box])
    mixed = [Dim("t", "STRING_ASCII"), line(50, 10, "UINT16", "i"), Dim("f", "FLOAT32", 0.0, 9.0, 3.0), line(90, 30, "DATETIME_DAY", "u", -5)]
    w.sparse("dims/sparse_mixed", Schema("sparse", mixed, attrs, capacity=9), ["mixed dimensions"], (60, 20, 5))
    strings = [Dim("p", "STRING_ASCII"), Dim("q", "STRING_ASCII")]
    w.sparse("dims/sparse_strings", Schema("sparse", strings, attrs, capacity=6, dups=True), ["string dimensions"], (40, 3))
    w.sparse("dims/sparse_hilbert_strings", Schema("sparse", strings, attrs, "hilbert", capacity=6), ["hilbert", "string dimensions"])
    five = [line(4, 3, "INT16", f"d{i}", i) for i in range(5)]
    w.dense("dims/dense_five", Schema("dense", five, attrs), ["five dimensions"], [[(i, i + 3) for i in range(5)], [(i + 1, i + 2) for i in range(5)]])


def orders(w):
    """All orders of tiles and cells, extents that do and do not divide the domain, several capacities."""
    attrs = [Attr("a", "UINT32"), Attr("v", "STRING_UTF8", VAR), Attr("n", "FLOAT64", 1, True, chain("BYTESHUFFLE", "ZSTD"))]
    for tile in ("row-major", "col-major"):
        for cell in ("row-major", "col-major"):
            for dims, boxes in _boxes().items():
                name = f"orders/dense{len(dims)}_{tile[:3]}_{cell[:3]}"
                plane = [line(n, e, "INT32", f"d{i}", lo) for i, (lo, n, e) in enumerate(dims)]
                w.dense(name, Schema("dense", plane, attrs, cell, tile), ["order", tile, cell], boxes)
        for cell in ("row-major", "col-major", "hilbert"):
            for capacity in (4, 25):
                plane = [line(40, 9, "INT32", "y", -7), line(33, 10, "INT32", "x", 2)]
                schema = Schema("sparse", plane, attrs, cell, tile, capacity)
                w.sparse(f"orders/sparse_{tile[:3]}_{cell[:3]}_{capacity}", schema, ["order", tile, cell], (120, 60, 1))
    whole = Schema("dense", [line(8, 4), line(6, 3, name="y")], attrs)
    w.dense("orders/dense_global_write", whole, ["global order write"], [[(0, 7), (0, 5)], [(4, 7), (0, 2)]], layout="global-order")
    w.dense("orders/dense_col_write", whole, ["column-major write"], [[(0, 7), (0, 5)], [(1, 6), (1, 4)]], layout="col-major")


def _boxes():
    """Dimensions (lo, count, extent) and boxes to write."""
    return {
        ((0, 10, 4), (5, 7, 3)): [[(0, 9), (5, 11)], [(3, 8), (6, 6)], [(4, 7), (8, 10)]],
        ((-3, 6, 2), (0, 5, 5), (1, 9, 4)): [[(-3, 2), (0, 4), (1, 9)], [(-2, 1), (2, 3), (4, 8)]],
    }


def core_filters(w):
    """Every filter of the core alone on many datatypes; chains of them."""
    numbers = ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]
    others = ["FLOAT32", "FLOAT64", "DATETIME_NS", "TIME_MS", "CHAR", "STRING_ASCII", "STRING_UTF16", "BOOL", "BLOB"]
    for name in CORE_FILTERS:
        rising = name == "POSITIVE_DELTA"
        chosen = numbers + others
        attrs = [Attr(t, t, 1, False, chain(name)) for t in chosen] + [Attr(t + "_null", t, 1, True, chain(name)) for t in chosen]
        attrs += [Attr(t + "_two", t, 2, False, chain(name)) for t in chosen]
        if not rising:
            attrs += [Attr(t + "_var", t, VAR, False, chain(name)) for t in chosen if not (name == "RLE" and t == "STRING_ASCII")]
        _both(w, f"filters/{name}", attrs, ["filter", name], "sorted" if rising else "random")
    for i, names in enumerate(CORE_CHAINS):
        rising = "POSITIVE_DELTA" in names
        attrs = [Attr(t, t, 1, False, chain(*names)) for t in ("INT32", "UINT64", "INT16", "UINT8")]
        attrs += [Attr(t, t, 1, True, chain(*names)) for t in ("FLOAT32", "DATETIME_MS")]
        if not rising:
            attrs += [Attr("var", "INT32", VAR, False, chain(*names))]
            attrs += [Attr("text", "CHAR", VAR, True, chain(*names))]
        _both(w, f"chains/{i:02}_" + "-".join(names), attrs, ["chain", *names], "sorted" if rising else "small")
    text = [Attr(t, t, VAR, n, chain("RLE")) for t, n in (("STRING_ASCII", False), ("STRING_UTF8", True))]
    _both(w, "filters/RLE_strings", text, ["filter", "RLE", "strings"], "runs")


def _both(w, name, attrs, what, style):
    """A dense and a sparse array of those of the attributes that libtiledb makes, tiles full so that every filter gets its values in order."""
    attrs = [a for a in attrs if w.takes(a)]
    w.dense(name + "_dense", Schema("dense", [line(96, 32)], attrs), what, [[(0, 95)], [(32, 63)]], style, layout="global-order")
    schema = Schema("sparse", [line(300, 100)], attrs, capacity=20)
    w.sparse(name + "_sparse", schema, what, (50, 13), style)


def pipelines(w):
    """Pipelines on offsets, validity and coordinates."""
    attrs = [Attr("v", "STRING_UTF8", VAR, True), Attr("i", "INT32", 1, True), Attr("w", "INT16", VAR)]
    rising = [["POSITIVE_DELTA", "BIT_WIDTH_REDUCTION", "ZSTD"], ["DOUBLE_DELTA"], ["BYTESHUFFLE", "LZ4"], ["NONE"], [], ["CHECKSUM_MD5", "GZIP"]]
    validity = [["RLE"], ["BIT_WIDTH_REDUCTION", "ZSTD"], ["BYTESHUFFLE"], ["GZIP"], [], ["RLE", "CHECKSUM_SHA256"]]
    coords = [["ZSTD"], ["DOUBLE_DELTA", "ZSTD"], ["BITSHUFFLE", "LZ4"], ["RLE"], [], ["BIT_WIDTH_REDUCTION", "BZIP2"]]
    for i, (o, v, c) in enumerate(zip(rising, validity, coords)):
        parts = {"offsets": chain(*o), "validity": chain(*v), "coords": chain(*c)}
        dims = [line(60, 20, name="x"), line(30, 30, "INT32", "y")]
        w.sparse(f"pipelines/sparse{i}", Schema("sparse", dims, attrs, capacity=16, **parts), ["pipelines", o, v, c], (70, 9))
        own = [Dim(d.name, d.type, d.lo, d.hi, d.extent, chain("BYTESHUFFLE", *c)) for d in dims]
        w.sparse(f"pipelines/own{i}", Schema("sparse", own, attrs, capacity=16, **parts), ["pipelines of dimensions", c], (40,))
        w.dense(f"pipelines/dense{i}", Schema("dense", dims, attrs, **parts), ["pipelines", o, v], [[(0, 59), (0, 29)]])


def chunks(w):
    """Tiles of many chunks, chunk limits that are no multiple of a cell, cells larger than a chunk, very small tiles."""
    cells = 1 << 20
    big = [Attr("plain", "INT32"), Attr("zstd", "FLOAT64", 1, False, chain("ZSTD")), Attr("shuffled", "INT16", 1, True, chain("BYTESHUFFLE", "LZ4"))]
    w.dense("chunks/dense_big", Schema("dense", [line(cells, cells)], big), ["tile of MiB"], [[(0, cells - 1)]], "small")
    narrow = [Attr("rle", "UINT8", 1, False, chain("RLE")), Attr("delta", "INT64", 1, False, chain("DOUBLE_DELTA", "BITSHUFFLE"))]
    w.dense("chunks/dense_big2", Schema("dense", [line(300_000, 200_000)], narrow), ["tile of MiB"], [[(0, 299_999)]], "runs")
    var = [Attr("v", "STRING_ASCII", VAR, True, chain("ZSTD")), Attr("i", "INT32", VAR, False, chain("GZIP"))]
    w.sparse("chunks/sparse_big", Schema("sparse", [line(1 << 30, 1 << 20)], var, capacity=60_000), ["tile of MiB"], (90_000,), "small")
    for size in (1, 13, 100, 4096, 1 << 20):
        limited = [Attr(t, t, c, n, chain("BYTESHUFFLE", "ZSTD", max_chunk=size)) for t, c, n in
                   (("INT32", 1, False), ("FLOAT64", 3, True), ("STRING_UTF8", VAR, True), ("UINT16", VAR, False))]
        parts = {p: chain("ZSTD", max_chunk=size) for p in ("offsets", "validity", "coords")}
        w.dense(f"chunks/limit_{size}_dense", Schema("dense", [line(500, 300)], limited, **parts), ["chunk limit", size], [[(0, 499)]])
        w.sparse(f"chunks/limit_{size}_sparse", Schema("sparse", [line(4000, 100)], limited, capacity=300, **parts), ["chunk limit", size], (500,))
    wide = [Attr("wide", "UINT8", 100_000, False, chain("LZ4")), Attr("wide_null", "INT32", 20_000, True, chain("BITSHUFFLE", "ZSTD"))]
    w.dense("chunks/wide_cells", Schema("dense", [line(5, 2)], wide), ["cell larger than a chunk"], [[(0, 3)]], "small")
    schema = Schema("sparse", [line(100, 10)], [Attr("v", "BLOB", VAR, False, chain("ZSTD"))], capacity=3)
    uri = w.create("chunks/wide_var_cells", schema, ["var cell larger than a chunk"])
    cells = [bytes([i]) * n for i, n in enumerate((70_000, 0, 200_000, 5, 65_536, 65_537, 1))]
    w.lib.write(uri, {"x": Column(np.arange(7, dtype="<i4")), "v": Column.of_cells(cells)}, timestamp=10)
    tiny = [Attr("a", "INT32"), Attr("v", "CHAR", VAR, True)]
    w.dense("chunks/extent_one", Schema("dense", [line(40, 1)], tiny), ["tiles of one cell"], [[(0, 39)], [(7, 9)]])
    w.sparse("chunks/capacity_one", Schema("sparse", [line(300, 300)], tiny, capacity=1), ["tiles of one cell"], (130,))
    w.sparse("chunks/many_tiles", Schema("sparse", [line(100_000, 10)], tiny, capacity=3), ["R-tree of four levels"], (3500,))


def edges(w):
    """Odd arrays: empty, one cell, all null, all empty, names that file names cannot hold, custom fill values."""
    attrs = [Attr("a", "INT32", 1, True), Attr("v", "STRING_ASCII", VAR, True)]
    w.create("edges/no_fragment_dense", Schema("dense", [line(10, 5)], attrs), ["no fragment"])
    w.create("edges/no_fragment_sparse", Schema("sparse", [line(10, 5)], attrs), ["no fragment"])
    w.dense("edges/one_cell_dense", Schema("dense", [line(10, 5)], attrs), ["one cell"], [[(7, 7)]])
    w.sparse("edges/one_cell_sparse", Schema("sparse", [line(10, 5)], attrs), ["one cell"], (1,))
    for name, cell, valid in (("all_null", b"hidden", 0), ("all_empty", b"", 1)):
        schema = Schema("dense", [line(30, 10)], attrs)
        uri = w.create("edges/" + name, schema, [name])
        flags = np.full(30, valid, "u1")
        columns = {"a": Column(np.arange(30, dtype="<i4"), validity=flags), "v": Column.of_cells([cell] * 30, flags)}
        w.lib.write(uri, columns, ranges=[np.array([0, 29], "<i4")], timestamp=10)
    names = ["a/b", ".hidden", "50%", "with space", "ünï", "tab\there", "x[0]*?", "a" * 200, "data.bin", "", "..."]
    odd = [Attr(n, "INT32") for n in names]
    w.dense("edges/names_dense", Schema("dense", [Dim("d/1", "INT32", 0, 9, 5)], odd), ["odd names"], [[(0, 9)]])
    w.sparse("edges/names_sparse", Schema("sparse", [Dim("d/1 %", "INT32", 0, 9, 5), Dim(".d2", "STRING_ASCII")], odd), ["odd names"], (6,))
    fills = [Attr("i", "INT32", fill=np.int32(-7).tobytes()), Attr("v", "STRING_UTF8", VAR, fill="leer".encode()),
             Attr("n", "FLOAT64", 1, True, fill=np.float64(1.5).tobytes()), Attr("two", "UINT8", 2, fill=b"\x01\x02")]
    w.dense("edges/fills", Schema("dense", [line(20, 7)], fills), ["own fill values"], [[(3, 9)], [(15, 16)]])
    w.dense("edges/far_away", Schema("dense", [Dim("x", "UINT64", 0, (1 << 63) - 1, 1000)], attrs), ["huge domain"], [[((1 << 62), (1 << 62) + 5)]])
    uri = w.dense("edges/uncommitted", Schema("dense", [line(10, 5)], attrs), ["a fragment without its commit"], [[(0, 9)], [(2, 3)]])
    commits = sorted(os.listdir(uri + "/__commits"))
    os.remove(f"{uri}/__commits/{commits[-1]}")
    for i in range(6):
        w.dense(f"edges/nested/deep/er/array{i}", Schema("dense", [line(10, 1 + i)], attrs), ["nested directories"], [[(i, 9)]])


def encrypted(w):
    """Encrypted arrays."""
    attrs = [Attr("a", "INT32", 1, True, chain("ZSTD")), Attr("v", "STRING_ASCII", VAR), Attr("p", "FLOAT64")]
    schema = Schema("dense", [line(40, 10)], attrs, enums=[Enum("e", "STRING_ASCII", [b"x", b"y"])])
    uri = w.dense("encrypted/dense", schema, ["encrypted"], [[(0, 39)], [(5, 17)]], key=KEY)
    w.lib.put_metadata(uri, [("k", "INT32", [1, 2])], timestamp=50, key=KEY)
    w.sparse("encrypted/sparse", Schema("sparse", [line(400, 100)], attrs, capacity=20), ["encrypted"], key=KEY)
    w.sparse("encrypted/strings", Schema("sparse", [Dim("s", "STRING_ASCII")], attrs, capacity=9), ["encrypted"], key=KEY)
    big = Schema("dense", [line(100_000, 50_000)], attrs[::2])
    w.dense("encrypted/big", big, ["encrypted", "many chunks"], [[(0, 99_999)]], "small", key=KEY)


def main():
    """Writes one set."""
    import lives
    import matrix_filters

    sets = {
        "core": [types, dimensions, orders, core_filters, pipelines, chunks, edges, *lives.ALL],
        "filters": [*matrix_filters.ALL, encrypted],
    }
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--set", choices=sets, required=True)
    parser.add_argument("folder")
    args = parser.parse_args()
    start, w = time.time(), Writer(args.folder)
    for write in sets[args.set]:
        before = time.time()
        write(w)
        if "-v" in sys.argv or os.environ.get("VERBOSE"):
            print(f"{write.__name__:20} {time.time() - before:6.2f} s")
    w.finish(args.set, start)


if __name__ == "__main__":
    main()
