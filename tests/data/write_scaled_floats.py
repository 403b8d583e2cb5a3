"""Writes `tests/data/scaled_floats/`: SCALE_FLOAT before other filters, as releases before format version 20 wrote it.

    python3 tests/data/write_scaled_floats.py [--wheels FOLDER]

Those told every filter of a pipeline the attribute's own type, later ones the type of the integers that SCALE_FLOAT puts out. libtiledb 2.30 decodes
both by the later rule: what 2.11 wrote it returns wrong, or not at all. Every attribute holds the same values, and `plain` has no filter, so it has the right
answer. `new` is the same array written by libtiledb 2.30, which reads that one right. `wrong.json` says what libtiledb 2.30 makes of each attribute.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import tiledb

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "oracle"))
from capi import Attr, Column, Dim, Pipeline, Schema, library_path  # noqa: E402
from old_capi import OldLib  # noqa: E402
from write_versions import fetch  # noqa: E402

TARGET = HERE / "scaled_floats"
CELLS = 1000
# Multiples of 0.25 above 8, ascending for POSITIVE_DELTA, that fit in two bytes once scaled, so that nothing
# is lost.
VALUES = (8 + 0.25 * (30 * np.arange(CELLS) + np.arange(CELLS) ** 2 % 29)).astype("<f4")
SCALE = ("SCALE_FLOAT", {"scale": 0.25, "offset": 8.0, "byte_width": 2})
BEHIND = {
    "plain": None,
    "alone": [],
    "byteshuffle": [("BYTESHUFFLE", {})],
    "bitshuffle": [("BITSHUFFLE", {})],
    "bit_width_reduction": [("BIT_WIDTH_REDUCTION", {})],
    "positive_delta": [("POSITIVE_DELTA", {})],
    "shuffled_twice": [("BITSHUFFLE", {}), ("BYTESHUFFLE", {}), ("ZSTD", {})],
    "reduced_and_packed": [("BIT_WIDTH_REDUCTION", {}), ("ZSTD", {})],
}


def write(library, name):
    """The array as one release writes it."""
    lib = OldLib(library)
    uri = str(TARGET / name)
    attributes = [
        Attr(attribute, "FLOAT32", pipeline=Pipeline([SCALE, *behind]) if behind is not None else None)
        for attribute, behind in BEHIND.items()
    ]
    lib.create(uri, Schema("dense", [Dim("x", "INT32", 0, CELLS - 1, CELLS // 2)], attributes), 1)
    ranges = [np.array([0, CELLS - 1], "<i4")]
    lib.write(uri, {attribute: Column(VALUES) for attribute in BEHIND}, "row-major", ranges, 10)


def opinion(name):
    """What libtiledb 2.30 reads, attribute by attribute."""
    found = {}
    for attribute in BEHIND:
        try:
            with tiledb.open(str(TARGET / name)) as array:
                same = np.array_equal(array.query(attrs=[attribute])[:][attribute], VALUES)
            found[attribute] = "right" if same else "other values"
        except tiledb.TileDBError as error:
            found[attribute] = "error: " + str(error).split("Error: ")[-1]
    return found


def main():
    """Writes everything anew."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--wheels", type=Path, default=HERE.parent.parent / "target" / "wheels")
    parser.add_argument("--library", nargs=2, metavar=("PATH", "NAME"))
    args = parser.parse_args()
    if args.library:
        write(*args.library)
        return
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    for name, library in (("old", fetch(args.wheels)[15]), ("new", library_path())):
        subprocess.run([sys.executable, __file__, "--library", str(library), name], check=True)
    for path in sorted(TARGET.rglob("*"), reverse=True):
        if path.name == "__lock.tdb":
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    text = json.dumps({name: opinion(name) for name in ("old", "new")}, indent=1)
    (TARGET / "wrong.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
