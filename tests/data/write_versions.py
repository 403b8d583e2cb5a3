"""Writes `tests/data/versions/` with old releases of libtiledb: `python3 tests/data/write_versions.py [--wheels FOLDER]`.

One folder for each format version from 2 to 22 (version 1, of which there is no wheel, is kept as it is: see `versions/v01/NOTICE.md`), with a dense and a sparse array and, where the version has more to show, further ones; `mixed/`
has arrays that several releases wrote. The shared libraries come out of the wheels of TileDB-Py, which pip downloads (kept in FOLDER); libtiledb 2.30
is the one installed with `tests/oracle/requirements.txt`. Afterwards `answers.py` has that one read everything and writes `answers.json`.

Values and timestamps are always the same; identifiers in names are new each time. Releases before 2.0 stamp with the clock: their folders are
renamed. Arrays are written below /tmp/versions, because `.vac` files up to version 18 and groups keep absolute URIs.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "oracle"))
from capi import VAR, Attr, Column, Dim, Enum, Label, Pipeline, Schema, library_path  # noqa: E402
from old_capi import OldLib  # noqa: E402

WORK = Path("/tmp/versions")
TARGET = HERE / "versions"
KEY = b"versions of TileDB, 32 bytes key"
RELEASES = {
    # format version: (TileDB-Py, Python, platform); the number of the format is checked in the bytes
    2: ("0.4.1", "37", "manylinux1_x86_64"), 3: ("0.4.4", "37", "manylinux1_x86_64"), 4: ("0.5.9", "37", "manylinux2010_x86_64"),
    5: ("0.6.6", "37", "manylinux2010_x86_64"), 6: ("0.7.7", "37", "manylinux2010_x86_64"), 7: ("0.8.0", "37", "manylinux2010_x86_64"),
    8: ("0.8.7", "37", "manylinux2010_x86_64"), 9: ("0.9.5", "37", "manylinux2010_x86_64"), 10: ("0.10.5", "37", "manylinux2014_x86_64"),
    11: ("0.13.3", "37", "manylinux2014_x86_64"), 12: ("0.14.5", "37", "manylinux2014_x86_64"), 13: ("0.15.6", "37", "manylinux2014_x86_64"),
    14: ("0.16.5", "37", "manylinux2014_x86_64"), 15: ("0.17.6", "37", "manylinux2014_x86_64"), 16: ("0.18.3", "37", "manylinux2014_x86_64"),
    17: ("0.20.0", "37", "manylinux2014_x86_64"), 18: ("0.21.6", "37", "manylinux2014_x86_64"), 19: ("0.22.3", "37", "manylinux2014_x86_64"),
    20: ("0.23.4", "37", "manylinux2014_x86_64"), 21: ("0.25.0", "37", "manylinux2014_x86_64"), 22: None,
}
CHAINS = [
    [("BYTESHUFFLE", {}), ("ZSTD", {})], [("DOUBLE_DELTA", {}), ("GZIP", {})], [("BITSHUFFLE", {}), ("LZ4", {})], [("RLE", {})],
    [("BZIP2", {})], [("BIT_WIDTH_REDUCTION", {}), ("ZSTD", {})], [],
]
WORDS = [b"", b"tile", b"bb", b"a longer cell of text", b"z", b"bb", b"\x7f~"]


def chain(n):
    """One of several pipelines."""
    return Pipeline(CHAINS[n % len(CHAINS)])


def texts(n, seed, nullable, empty=True):
    """A var-sized column; with `empty` false, without empty cells, which early versions did not allow."""
    words = WORDS if empty else WORDS[1:]
    cells = [words[(seed + 3 * i) % len(words)] for i in range(n)]
    return Column.of_cells(cells, (np.arange(n) % 4 != seed % 4).astype("u1") if nullable else None)


def numbers(n, seed, datatype, nullable=False):
    """A fixed-size column."""
    values = (np.arange(n) * (7 + seed) % 31 + seed).astype(datatype)
    return Column(values, None, (np.arange(n) % 3 != 1).astype("u1") if nullable else None)


class Writer:
    """One release at work below one folder."""

    def __init__(self, lib, version, root):
        self.lib, self.version, self.root = lib, version, root

    def create(self, name, schema, key=None):
        """Makes an array; its URI."""
        uri = str(self.root / name)
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        self.lib.create(uri, schema, 1, key)
        return uri

    # -- what every version has ------------------------------------------------------------------------------

    def dense(self):
        """Two dimensions, extents that do not divide the domain, a write that begins and ends inside tiles."""
        v = self.version
        attrs = [Attr("a", "INT32", pipeline=chain(v)), Attr("s", "CHAR" if v < 5 else "STRING_ASCII", VAR, pipeline=chain(v + 3) if v % 2 else None)]
        attrs.append(Attr("n", "UINT16", nullable=True, pipeline=chain(v + 1)) if v >= 7 else Attr("n", "FLOAT32", 2, pipeline=chain(0)))
        dims = [Dim("x", "INT32", 1, 10, 4), Dim("y", "INT32", -2, 5, 3)]
        order = {"cell_order": "row-major" if v % 2 else "col-major", "tile_order": "row-major" if v % 3 else "col-major"}
        uri = self.create("dense", Schema("dense", dims, attrs, **order))
        for when, (x, y) in ((10, ((2, 8), (-1, 4))), (20, ((4, 5), (0, 0)))) if v in (4, 22) else ((10, ((2, 8), (-1, 4))),):
            n = (x[1] - x[0] + 1) * (y[1] - y[0] + 1)
            last = numbers(n, when, "<u2", True) if v >= 7 else Column(np.arange(2 * n, dtype="<f4") / 3)
            columns = {"a": numbers(n, v, "<i4"), "s": texts(n, v + when, False, v >= 5), "n": last}
            self.lib.write(uri, columns, ranges=[np.array(x, "<i4"), np.array(y, "<i4")], timestamp=when)

    def sparse(self):
        """Two dimensions, from version 5 on a string one among them; two fragments, consolidated; what else the version has."""
        v, lib = self.version, self.lib
        # 2.2 cannot consolidate nullable attributes, 2.11 none with run-length encoded strings, 1.6 no sparse
        # ones.
        nullable = v >= 7 and v != 8
        attrs = [Attr("v", "CHAR" if v < 5 else "STRING_ASCII", VAR, nullable, chain(0 if v == 15 else v + 2))]
        if v < 5:
            dims = [Dim("x", "INT32", 0, 99, 10), Dim("y", "INT32", -50, 49, 10)]
        else:
            dims = [Dim("x", "INT64", 0, 99, None if v in (9, 15, 20) else 10), Dim("name", "STRING_ASCII")]
        order = "hilbert" if v in (9, 15, 20) else "row-major" if v % 2 else "col-major"
        schema = Schema("sparse", dims, attrs, capacity=2, cell_order=order, coords=chain(v) if v % 3 == 0 and v > 3 else None, dups=v in (6, 13))
        uri = self.create("sparse", schema)
        for when, n in ((10, 23), (20, 5)):
            self.scatter(uri, n, when, nullable)
        if v >= 4:
            lib.put_metadata(uri, [("one", "INT32", [-7]), ("text", "CHAR", b"first"), ("gone", "FLOAT64", [0.5])], timestamp=30)
            lib.put_metadata(uri, [("text", "CHAR", b"second")], ["gone"], timestamp=40)
        if v >= 16:
            lib.delete(uri, ("v", "==", b"bb"), 50)
        if v >= 5 and v % 2:
            lib.consolidate(uri, "fragment_meta")
        if v not in (3, 7):
            lib.consolidate(uri)
        if v < 5:
            self.scatter(uri, 3, 60, nullable)
        if v >= 12 and v % 2 == 0:
            lib.consolidate(uri, "commits", v % 4 == 0)

    def scatter(self, uri, n, when, nullable):
        """Cells of the sparse array; a coordinate occurs in several fragments."""
        x = (np.arange(n) * 37 + when) % 100
        y = (np.arange(n) * 11) % 100 - 50
        columns = {"v": texts(n, when, nullable, self.version >= 5)}
        if self.version < 5:
            columns["__coords"] = Column(np.stack([x, y], 1).astype("<i4").reshape(-1))
        else:
            columns |= {"x": Column(x.astype("<i8")), "name": Column.of_cells([WORDS[k % 7] + b"%d" % (k % 3) for k in range(n)])}
        self.lib.write(uri, columns, timestamp=when)

    # -- what some have --------------------------------------------------------------------------------------

    def sparse_in_dense(self):
        """A dense array with a fragment of single cells, as libraries before 2.5 allowed."""
        dims = [Dim("x", "INT32", 0, 19, 5)]
        uri = self.create("sparse_in_dense", Schema("dense", dims, [Attr("a", "INT32", pipeline=chain(0))], capacity=3))
        self.lib.write(uri, {"a": numbers(20, 1, "<i4")}, ranges=[np.array([0, 19], "<i4")], timestamp=10)
        coordinates = "__coords" if self.version < 5 else "x"
        cells = {"a": numbers(4, 900, "<i4"), coordinates: Column(np.array([17, 2, 9, 3], "<i4"))}
        self.lib.write(uri, cells, timestamp=20)

    def names(self):
        """An attribute without a name, and names that are difficult as file names."""
        odd = ["", "q?m", "a:b", "per%cent", "sp ace", "less<more>", "bar|", "t"] if self.version != 4 else ["", "q?m", "t"]
        attrs = [Attr(n, "UINT8") for n in odd]
        uri = self.create("names", Schema("dense", [Dim("d 1", "INT32", 0, 3, 4)], attrs))
        columns = {n: numbers(4, i, "u1") for i, n in enumerate(odd)}
        self.lib.write(uri, columns, ranges=[np.array([0, 3], "<i4")], timestamp=10)

    def metadata(self):
        """Metadata of many types, consolidated and vacuumed, changed afterwards."""
        uri = self.create("metadata", Schema("dense", [Dim("x", "INT32", 0, 3, 4)], [Attr("a", "INT32")]))
        items = [
            ("i8", "INT8", [-1]), ("u8", "UINT8", [1, 2]), ("i16", "INT16", [-300]), ("u16", "UINT16", [60_000]), ("i32", "INT32", [-7]),
            ("u32", "UINT32", [4_000_000_000]), ("i64", "INT64", [-(2**62)]), ("u64", "UINT64", [2**64 - 1]), ("f32", "FLOAT32", [0.1]),
            ("f64", "FLOAT64", [1.5, float("nan")]), ("char", "CHAR", b"gr\xf6\xdfer"), ("ascii", "STRING_ASCII", b"plain"),
            ("utf8", "STRING_UTF8", "größer".encode()), ("utf16", "STRING_UTF16", "wide".encode("utf-16-le")), ("empty", "STRING_UTF8", b""),
            ("day", "DATETIME_DAY", [19_000]), ("ns", "DATETIME_NS", [-1]),
        ]
        if self.version >= 9:
            items.append(("hours", "TIME_HR", [5]))
        if self.version >= 16:
            items += [("blob", "BLOB", b"\x00\xff"), ("bool", "BOOL", [1, 0])]
        self.lib.put_metadata(uri, items, timestamp=10)
        self.lib.put_metadata(uri, [("i8", "CHAR", b"now text")], ["u8", "never there"], timestamp=20)
        self.lib.consolidate(uri, "array_meta", self.version % 2 == 0)
        self.lib.put_metadata(uri, [("u8", "UINT8", [9])], ["f32"], timestamp=30)

    def evolved(self):
        """Attributes added and dropped between fragments."""
        attrs = [Attr("a", "INT32"), Attr("s", "STRING_ASCII", VAR)]
        uri = self.create("evolved", Schema("dense", [Dim("x", "INT32", 0, 9, 5)], attrs))
        box = [np.array([0, 9], "<i4")]
        self.lib.write(uri, {"a": numbers(10, 1, "<i4"), "s": texts(10, 1, False)}, ranges=box, timestamp=10)
        self.lib.evolve(uri, 20, [Attr("b", "FLOAT64", nullable=True)], ["a"])
        self.lib.write(uri, {"s": texts(5, 2, False), "b": numbers(5, 2, "<f8", True)}, ranges=[np.array([3, 7], "<i4")], timestamp=30)
        self.lib.evolve(uri, 40, [Attr("a", "UINT8")], ["b"])
        self.lib.write(uri, {"s": texts(5, 3, False), "a": numbers(5, 3, "u1")}, ranges=[np.array([5, 9], "<i4")], timestamp=50)

    def labels(self):
        """Dimension labels."""
        schema = Schema("dense", [Dim("x", "INT32", 0, 9, 5)], [Attr("a", "INT32")], labels=[Label(0, "height", "FLOAT64"), Label(0, "word", "STRING_ASCII", 2)])
        self.create("labels", schema)

    def enumerations(self):
        """Enumerations of texts and numbers."""
        enums = [Enum("colours", "STRING_ASCII", [b"red", b"", b"blue"]), Enum("sizes", "INT64", np.array([5, -1, 2**60], "<i8"), True)]
        attrs = [Attr("c", "UINT8", enumeration="colours"), Attr("z", "INT16", enumeration="sizes")]
        uri = self.create("enumerations", Schema("dense", [Dim("x", "INT32", 0, 5, 3)], attrs, enums=enums))
        columns = {"c": Column(np.arange(6, dtype="u1") % 3), "z": Column(np.arange(6, dtype="<i2") % 2)}
        self.lib.write(uri, columns, ranges=[np.array([0, 5], "<i4")], timestamp=10)

    def changed_enumerations(self):
        """An enumeration extended, another dropped with its attribute."""
        self.enumerations()
        uri = str(self.root / "enumerations")
        self.lib.evolve(uri, 20, extend=("colours", [b"green", b"black"]))
        self.lib.evolve(uri, 30, drop=["z"])

    def current_domain(self):
        """A current domain, expanded."""
        dims = [Dim("x", "INT32", 0, 99, 10), Dim("s", "STRING_ASCII")]
        uri = self.create("current_domain", Schema("sparse", dims, [Attr("a", "INT32")], current_domain=[(0, 49), (b"b", b"m")]))
        self.lib.evolve(uri, 20, current_domain=(dims, [(0, 79), (b"a", b"z")]))

    def encrypted(self):
        """An encrypted array with metadata."""
        attrs = [Attr("a", "INT32", pipeline=chain(0)), Attr("s", "STRING_ASCII", VAR)]
        uri = self.create("encrypted", Schema("dense", [Dim("x", "INT32", 0, 9, 5)], attrs), KEY)
        box = [np.array([1, 7], "<i4")]
        self.lib.write(uri, {"a": numbers(7, 1, "<i4"), "s": texts(7, 1, False)}, ranges=box, timestamp=10, key=KEY)
        self.lib.put_metadata(uri, [("k", "INT32", [1, 2])], timestamp=20, key=KEY)

    def ignored(self):
        """Commits consolidated, then fragments consolidated and vacuumed: an ignore file. A delete condition in the consolidated commits."""
        dims = [Dim("x", "INT64", 0, 99, 10), Dim("name", "STRING_ASCII")]
        uri = self.create("ignored", Schema("sparse", dims, [Attr("v", "STRING_ASCII", VAR, True)], capacity=4))
        for when in (10, 20):
            self.scatter(uri, 9, when, True)
        self.lib.delete(uri, ("v", "==", b"tile"), 30)
        self.lib.consolidate(uri, "commits", True)
        self.lib.consolidate(uri, "fragments", True)
        self.scatter(uri, 2, 40, True)

    def uncommitted(self):
        """A fragment without its commit, and files that are not TileDB's."""
        uri = self.create("uncommitted", Schema("dense", [Dim("x", "INT32", 0, 3, 2)], [Attr("a", "INT32")]))
        for when in (10, 20):
            self.lib.write(uri, {"a": numbers(4, when, "<i4")}, ranges=[np.array([0, 3], "<i4")], timestamp=when)
        at = Path(uri)
        folder = at / "__commits" if self.version >= 12 else at
        sorted(p for p in folder.iterdir() if p.suffix in (".ok", ".wrt"))[-1].unlink()
        for name in ("README.txt", "__commits/README.txt", "__meta/__30_30_0123456789abcdef0123456789abcdef.tmp", "__schema/.hidden", "__fragments/notes/x"):
            if (at / name).parent.parent.is_dir() and name.split("/")[0] in os.listdir(at) + [name]:
                (at / name).parent.mkdir(exist_ok=True)
                (at / name).write_bytes(b"not TileDB's")

    def group(self):
        """Groups in groups: relative and absolute, named and unnamed, removed, missing and foreign members, a cycle; metadata."""
        lib = self.lib
        top, inner = str(self.root / "group"), str(self.root / "group/inner")
        for uri in (top, inner, str(self.root / "group/empty")):
            lib.create_group(uri)
        for name in ("group/one", "group/two", "group/inner/three", "group/gone"):
            self.create(name, Schema("dense", [Dim("x", "INT32", 0, 3, 2)], [Attr("a", "INT32")]))
        lib.change_group(top, add=[("one", True, None), ("two", True, "zwei"), ("inner", True, "inner group"), ("gone", True, "gone")], timestamp=10)
        lib.change_group(inner, add=[("three", True, "three")], timestamp=10)
        if self.version >= 14:
            lib.change_group(top, add=[(f"file://{self.root}/dense", False, "absolute"), ("empty", True, "empty")], timestamp=20)
            lib.change_group(top, remove=["gone"], timestamp=30)
            lib.change_group(inner, add=[("..", True, "cycle")], timestamp=30) if self.version == 22 else None
            shutil.rmtree(self.root / "group/gone")
        lib.put_metadata(top, [("about", "STRING_UTF8", b"a group"), ("n", "INT32", [1, 2, 3])], timestamp=50, kind="group")

    def old_group(self):
        """A group from before members were registered."""
        top = str(self.root / "old_group")
        self.lib.create_group(top)
        self.lib.create_group(top + "/below")
        for name in ("old_group/one", "old_group/below/two"):
            self.create(name, Schema("dense", [Dim("x", "INT32", 0, 3, 2)], [Attr("a", "INT32")]))


FURTHER = {
    2: ["sparse_in_dense"], 4: ["sparse_in_dense", "names"], 5: ["sparse_in_dense", "metadata", "old_group"], 7: ["names"], 8: ["names", "metadata"],
    9: ["names"], 10: ["sparse_in_dense", "uncommitted"], 11: ["old_group"], 12: ["uncommitted"], 13: ["group"], 14: ["group"], 15: ["evolved"],
    16: ["metadata", "ignored"], 18: ["labels"], 20: ["enumerations"],
    22: ["evolved", "labels", "changed_enumerations", "current_domain", "encrypted", "ignored", "uncommitted", "group", "metadata", "names"],
}


def write(library, version):
    """Everything that one release writes, in a process of its own."""
    lib = OldLib(library)
    w = Writer(lib, version, WORK / f"v{version:02}")
    shutil.rmtree(w.root, ignore_errors=True)
    for name in ["dense", "sparse", *FURTHER.get(version, [])]:
        getattr(w, name)()
    for path in w.root.rglob("__array_schema.tdb" if version < 10 else "__schema"):
        check_version(path, version)
    if lib.release < (2, 0):
        for path in w.root.iterdir():
            rename(path)
    print(f"format version {version}: libtiledb {'.'.join(map(str, lib.release))}", flush=True)


def check_version(path, version):
    """The first word of a file of an array's schema is the version of the library."""
    files = [path] if path.is_file() else [p for p in path.iterdir() if p.name.startswith("__") and p.is_file()]
    for one in files:
        found = int.from_bytes(one.read_bytes()[:4], "little")
        assert found == version, f"{one}: version {found} instead of {version}"


def rename(array):
    """Replaces the clock's times in names by 10, 20, 30…; no file refers to them."""
    times = sorted({t for p in array.rglob("*") for t in re.findall(r"(?<=_)\d{13}(?=_|$)", p.name)})
    new = {t: str(10 * (i + 1)) for i, t in enumerate(times)}
    for path in sorted(array.rglob("*"), key=lambda p: -len(p.parts)):
        name = re.sub(r"(?<=_)\d{13}(?=_|$)", lambda m: new[m[0]], path.name)
        path.rename(path.with_name(name))


def write_mixed():
    """Arrays of old releases that libtiledb 2.30 continues to write to."""
    lib = OldLib(library_path())
    root = WORK / "mixed"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for version in (4, 9):
        for kind in ("dense", "sparse"):
            shutil.copytree(WORK / f"v{version:02}" / kind, root / f"{kind}{version:02}")
            uri = str(root / f"{kind}{version:02}")
            config = lib.config()
            if kind == "dense":
                n = 6
                last = numbers(n, 5, "<u2", True) if version >= 7 else Column(np.arange(2 * n, dtype="<f4"))
                columns = {"a": numbers(n, 5, "<i4"), "s": texts(n, 5, False), "n": last}
                box = [np.array([5, 6], "<i4"), np.array([1, 3], "<i4")]
                lib.write(uri, columns, ranges=box, timestamp=100)
                lib.call("tiledb_array_upgrade_version", uri, config)
                lib.write(uri, columns, ranges=box, timestamp=110)
                lib.consolidate(uri, "fragment_meta")
            else:
                # From here on dimensions have buffers of their own.
                cells = {"v": texts(4, 6, version >= 7), "x": Column(np.array([1, 5, 77, 90], "<i4" if version < 5 else "<i8"))}
                other = Column(np.array([0, 3, -4, 9], "<i4")) if version < 5 else Column.of_cells([b"n", b"m", b"", b"k"])
                cells["y" if version < 5 else "name"] = other
                lib.write(uri, cells, timestamp=100)
                if version > 4:
                    lib.consolidate(uri, "fragments", version == 9)
        

def fetch(wheels):
    """The wheels, and the shared library out of each: {format version: path}."""
    wheels.mkdir(parents=True, exist_ok=True)
    found = {}
    for version, release in RELEASES.items():
        if release is None:
            found[version] = library_path()
            continue
        number, python, platform = release
        if not list(wheels.glob(f"tiledb-{number}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", python, "--platform", platform]
            subprocess.run([*command, "-d", str(wheels), f"tiledb=={number}"], check=True)
        unpacked = wheels / f"unpacked-{number}"
        if not unpacked.is_dir():
            with zipfile.ZipFile(next(wheels.glob(f"tiledb-{number}-*.whl"))) as wheel:
                wheel.extractall(unpacked, [n for n in wheel.namelist() if ".so" in n])
        found[version] = next(p for p in unpacked.rglob("libtiledb*.so*") if "cpython" not in p.name)
    return found


def main():
    """Writes everything anew, or, with --library, what one release writes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--wheels", type=Path, default=HERE.parent.parent / "target" / "wheels")
    parser.add_argument("--library")
    parser.add_argument("--version", type=int)
    args = parser.parse_args()
    if args.library == "mixed":
        write_mixed()
        return
    if args.library:
        write(args.library, args.version)
        return
    for version, library in fetch(args.wheels).items():
        subprocess.run([sys.executable, __file__, "--library", str(library), "--version", str(version)], check=True)
    subprocess.run([sys.executable, __file__, "--library", "mixed"], check=True)
    for old in TARGET.glob("*"):
        if old.name != "v01":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    # Git does not store empty directories; none of them is needed.
    for path in sorted(WORK.rglob("*")):
        if path.is_file() and path.name != "__lock.tdb":
            to = TARGET / path.relative_to(WORK)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    shutil.rmtree(WORK)
    sizes = [p.stat().st_size for p in TARGET.rglob("*") if p.is_file()]
    print(json.dumps({"files": len(sizes), "bytes": sum(sizes)}))
    subprocess.run([sys.executable, str(HERE / "answers.py")], check=True)


if __name__ == "__main__":
    main()
