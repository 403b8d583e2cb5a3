"""Sparse arrays with schemas of version 4 and below, written to and consolidated by the libtiledb of now, as they were and are.

    python3 old_schemas.py FAMILY

Cells of such consolidated fragments have times of their own, in tiles that are filtered as coordinates are. FAMILY has `arrays/`, written by
many releases. The last line is `N passed, N failed`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import tiledb

from mount import mounted

LATER = 1_700_000_000_000
"""When the new cells are written, in milliseconds since 1970."""


def is_taken(path):
    """Whether it is a sparse array with an old schema, of numbers alone."""
    if tiledb.object_type(str(path)) != "array":
        return False
    try:
        schema = tiledb.ArraySchema.load(str(path))
    except tiledb.TileDBError:
        # Encrypted.
        return False
    fields = [schema.attr(i) for i in range(schema.nattr)]
    return schema.sparse and schema.version <= 4 and all(f.dtype.kind in "iuf" and not f.isvar and f.dtype.names is None for f in fields)


def fields(array):
    """The names and types of dimensions and attributes."""
    schema = array.schema
    return [(field.name, field.dtype) for field in [*schema.domain, *(schema.attr(i) for i in range(schema.nattr))]]


def write(path, at, start):
    """Two cells."""
    with tiledb.open(str(path), "w", timestamp=at) as array:
        schema = array.schema
        coordinates = tuple((np.array([start, start + 1]) + d.domain[0]).astype(d.dtype) for d in schema.domain)
        array[coordinates] = {schema.attr(i).name: np.array([start, start + 1], schema.attr(i).dtype) for i in range(schema.nattr)}


def cells(path, at):
    """What libtiledb reads as of a time: a table of coordinates and values, sorted."""
    with tiledb.open(str(path), timestamp=at) as array:
        found, names = array.query(order="U")[:], fields(array)
    return sorted(zip(*(np.asarray(found[name]).tolist() for name, _ in names)))


def shown(mount, array, at):
    """The same of the mount."""
    with tiledb.open(str(array)) as opened:
        names = fields(opened)
    columns = mount / array.name / "at" / str(at) / "data/columns"
    return sorted(zip(*(np.fromfile(columns / name / "data.bin", dtype).tolist() for name, dtype in names)))


def main():
    family = Path(sys.argv[1]) / "arrays"
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="tiledbfs-old-schemas-") as folder:
        made = []
        for path in sorted(p for release in family.glob("lib-*") for p in release.iterdir() if p.is_dir() and is_taken(p)):
            copy = Path(folder) / f"{path.parent.name}_{path.name}"
            shutil.copytree(path, copy)
            write(copy, LATER, 1)
            write(copy, LATER + 1000, 2)
            tiledb.consolidate(str(copy))
            tiledb.vacuum(str(copy))
            made.append(copy)
        with mounted(folder) as mount:
            for copy in made:
                for at in (LATER - 1, LATER, LATER + 1000):
                    try:
                        wanted = cells(copy, at)
                    except tiledb.TileDBError as error:
                        print(f"libtiledb does not read {copy.name} at {at}: {error}")
                        continue
                    try:
                        same = shown(mount, copy, at) == wanted
                        why = "other cells"
                    except OSError as error:
                        same, why = False, error
                    passed, failed = passed + same, failed + (not same)
                    if not same:
                        print(f"FAIL {copy.name} at {at}: {why}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
