"""Writes `tests/data/corners/`: small arrays that random ones (`tests/oracle/random_arrays.py`) have shown to be worth keeping.

    python3 tests/data/write_corners.py [--wheels FOLDER]

The shared libraries of old releases are found as `write_versions.py` finds them. `tests/formats/corners.rs` says what is to be seen of each array.
Identifiers in names are new each time.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "oracle"))
from capi import VAR, Attr, Column, Dim, Enum, Pipeline, Schema, library_path  # noqa: E402
from old_capi import OldLib  # noqa: E402
from write_versions import fetch  # noqa: E402

TARGET = HERE / "corners"
MIXED = HERE.parent / "formats/mixed_validity"


def create(lib, name, schema):
    """Makes an array; its URI."""
    uri = str(TARGET / name)
    lib.create(uri, schema, 1)
    return uri


def one_more(lib):
    """libtiledb 2.2 writes an empty tile after the last one of nullable var-sized attributes in global order."""
    attrs = [Attr("s", "STRING_ASCII", VAR, True)]
    uri = create(lib, "one_more", Schema("dense", [Dim("x", "INT32", 0, 19, 4)], attrs))
    cells = Column.of_cells([b"cell %d" % i for i in range(8)], (np.arange(8) % 3 > 0).astype("u1"))
    lib.write(uri, {"s": cells}, "global-order", [np.array([4, 11], "<i4")], timestamp=10)


def twice(lib):
    """For nullable fixed-size attributes it writes as many empty tiles as there are tiles."""
    uri = create(lib, "twice", Schema("dense", [Dim("x", "INT32", 0, 19, 4)], [Attr("n", "INT32", 1, True)]))
    cells = Column(np.arange(12, dtype="<i4"), validity=(np.arange(12) % 3 > 0).astype("u1"))
    lib.write(uri, {"n": cells}, "global-order", [np.array([4, 15], "<i4")], timestamp=10)


def mixed_validity(lib):
    """In sparse fragments it mixes values and validity of nullable fixed-size attributes, from the second tile on, and no release reads them. It is no corner of
    `tests/data`, of which all can be read."""
    shutil.rmtree(MIXED, ignore_errors=True)
    attrs = [Attr("n", "UINT8", 1, True), Attr("a", "UINT8")]
    lib.create(str(MIXED), Schema("sparse", [Dim("x", "INT32", 0, 19, 4)], attrs, capacity=2), 1)
    cells = Column(np.arange(40, 45, dtype="u1"), validity=np.array([1, 0, 1, 1, 0], "u1"))
    lib.write(str(MIXED), {"x": Column(np.arange(5, dtype="<i4")), "n": cells, "a": Column(np.arange(50, 55, dtype="u1"))}, timestamp=10)


def no_cells(lib):
    """Before 2.0, a write without cells makes a fragment without files."""
    attrs = [Attr("a", "INT32"), Attr("s", "CHAR", VAR)]
    uri = create(lib, "no_cells", Schema("sparse", [Dim("x", "INT32", 0, 19, 4)], attrs))
    nothing = np.zeros(0, "<i4")
    lib.write(uri, {"a": Column(nothing), "s": Column.of_cells([]), "__coords": Column(nothing)}, timestamp=10)


def hilbert_line(lib):
    """One dimension: the upper end of the domain is in a bucket one above the largest."""
    uri = create(lib, "hilbert_line", Schema("sparse", [Dim("x", "UINT32", 0, 238, None)], [Attr("a", "UINT8")], "hilbert", capacity=3))
    x = np.array([238, 0, 237, 5, 119, 120, 238 // 4], "<u4")
    lib.write(uri, {"x": Column(x), "a": Column(np.arange(7, dtype="u1"))}, timestamp=10)


def hilbert_far(lib):
    """Coordinates that are equal in f64."""
    lo = 2**63 - 4000
    dims = [Dim("x", "INT64", lo, lo + 3000, None), Dim("y", "UINT16", 0, 99, None)]
    uri = create(lib, "hilbert_far", Schema("sparse", dims, [Attr("a", "UINT8")], "hilbert", capacity=100))
    rng = np.random.default_rng(5)
    x, y = np.array([lo + k for k in rng.integers(0, 3001, 60).tolist()], "<i8"), rng.integers(0, 100, 60).astype("<u2")
    lib.write(uri, {"x": Column(x), "y": Column(y), "a": Column(np.arange(60, dtype="u1"))}, timestamp=10)


def scaled(lib):
    """Lossy filters: statistics, boxes and the order of cells are those of the original values."""
    lossy = Pipeline([("SCALE_FLOAT", {"byte_width": 1, "scale": 3.0, "offset": 0.0})])
    dims = [Dim("x", "FLOAT32", 0.0, 99.0, None, lossy), Dim("y", "INT32", 0, 99, None)]
    uri = create(lib, "scaled", Schema("sparse", dims, [Attr("f", "FLOAT64", pipeline=lossy), Attr("i", "INT64", 1, True, lossy)], capacity=4))
    n = np.arange(11)
    columns = {"x": Column((n * 1.1).astype("<f4")), "y": Column((99 - n).astype("<i4")), "f": Column(n * 7.7)}
    lib.write(uri, columns | {"i": Column(n * 1000, validity=(n % 3 > 0).astype("u1"))}, timestamp=10)


def null_texts(lib):
    """A tile of nulls alone has bounds that are no text; the fragment's bounds take them for values."""
    attrs = [Attr("c", "CHAR", 3, True), Attr("v", "STRING_ASCII", VAR, True)]
    uri = create(lib, "null_texts", Schema("sparse", [Dim("x", "INT32", 0, 99, 10)], attrs, capacity=2))
    valid = np.array([1, 1, 0, 0, 1, 0], "u1")
    columns = {"x": Column(np.arange(6, dtype="<i4")), "c": Column(np.frombuffer(b"abcdefghijklmnopqr", "u1"), validity=valid)}
    lib.write(uri, columns | {"v": Column.of_cells([b"one", b"two", b"three", b"four", b"five", b"six"], valid)}, timestamp=10)


def null_padding(lib):
    """Var-sized nulls of a dense tile with padding are miscounted."""
    uri = create(lib, "null_padding", Schema("dense", [Dim("x", "INT32", 0, 9, 3), Dim("y", "INT32", 0, 9, 3)], [Attr("v", "CHAR", VAR, True)]))
    valid = (np.arange(20) % 7 > 0).astype("u1")
    lib.write(uri, {"v": Column.of_cells([b"x" * (i % 4) for i in range(20)], valid)}, "row-major", [np.array([2, 6], "<i4"), np.array([1, 4], "<i4")], 10)


def extended_late(lib):
    """An index is written before the enumeration gets the value for it."""
    enums = [Enum("colours", "STRING_ASCII", [b"red", b"green"])]
    schema = Schema("dense", [Dim("x", "INT32", 0, 3, 4)], [Attr("c", "UINT8", enumeration="colours")], enums=enums)
    uri = create(lib, "extended_late", schema)
    lib.write(uri, {"c": Column(np.array([0, 1, 2, 1], "u1"))}, "row-major", [np.array([0, 3], "<i4")], 10)
    lib.evolve(uri, 20, extend=("colours", [b"blue"]))


WRITERS = {8: [one_more, twice, mixed_validity], 4: [no_cells], 22: [hilbert_line, hilbert_far, scaled, null_texts, null_padding, extended_late]}
"""What the release of a format version writes."""


def main():
    """Writes everything anew; each release in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--wheels", type=Path, default=HERE.parent.parent / "target" / "wheels")
    parser.add_argument("--library")
    parser.add_argument("--version", type=int)
    args = parser.parse_args()
    if args.library:
        for write in WRITERS[args.version]:
            write(OldLib(args.library))
        return
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    libraries = fetch(args.wheels) | {22: library_path()}
    for version in WRITERS:
        subprocess.run([sys.executable, __file__, "--library", str(libraries[version]), "--version", str(version)], check=True)
    for path in [*TARGET.rglob("__lock.tdb"), *MIXED.rglob("__lock.tdb")]:
        path.unlink()


if __name__ == "__main__":
    main()
