"""The oracle test of Arrow batches, the crate's feature `arrow`: what pyarrow reads from them, against what libtiledb reads from the array.

    python3 arrow_batches.py --family FOLDER --program PROGRAM          arrays written for this, with libtiledb's answers

PROGRAM is `examples/arrow_ipc.rs`, built. Columns, types and values are those of `table.parquet` (exports_parquet.py), but for hours to seconds,
which Arrow counts in seconds; TIME, which has a type of its own; and lists of fixed length, which are null as a whole. `--share N/M` takes a fixed
part of the arrays. The last line is `N passed, N failed`, counting arrays.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import exports_parquet as parquet
import fragment_cover
from mount import mounted
from shares import belongs, share

parquet.TICK["s"] = 10**9
parquet.TIMES.update({"HR": ("s", 3600), "MIN": ("s", 60), "SEC": ("s", 1)})
UNITS = {"TIME_HR": ("s", 3600), "TIME_MIN": ("s", 60), "TIME_SEC": ("s", 1), "TIME_MS": ("ms", 1), "TIME_US": ("us", 1), "TIME_NS": ("ns", 1)}


def wanted(blob, view, written):
    """What the batches are to be: names, types, values."""
    out = []
    for field, (name, kind, cells) in zip(view["fields"], parquet.expected(blob, view, written)):
        unit, factor = UNITS.get(field["datatype"], (None, 1))
        if unit:
            kind = kind.replace("int64", f"duration[{unit}]")

            def scale(value, factor=factor):
                if isinstance(value, list):
                    return [scale(one) for one in value]
                return value if value is None or -(2**63) <= value * factor < 2**63 else None

            def times(value, factor=factor):
                if isinstance(value, list):
                    return [times(one) for one in value]
                return None if value is None else value * factor

            cells = [times(scale(cell)) for cell in cells]
        if field["cell_val_num"] not in (1, "var") and kind.startswith("list"):
            # Of dates, a list that is there may have nulls alone.
            cells = [cell if there else None for cell, there in zip(cells, present(field, view, blob, written))]
        out.append((name, kind, cells))
    return out


def present(field, view, blob, written):
    """Whether each cell of a field is there: valid, and written."""
    there = [True] * view["cells"] if written is None or field["kind"] == "dimension" else [bool(cell) for cell in written]
    if "validity" not in field:
        return there
    start, length = field["validity"]
    return [bool(valid) and cell for valid, cell in zip(blob[start : start + length], there)]


def plain(array):
    """A column with lists of variable length and times as integers, as exports_parquet.py compares them; and its type."""
    of = array.type
    if pa.types.is_dictionary(of):
        return plain(array.cast(of.value_type))
    if pa.types.is_fixed_size_list(of):
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        kind, cells = "", []
        for chunk in chunks:
            kind, flat = plain(chunk.values)
            offset, size = chunk.offset, of.list_size
            valid = chunk.is_valid().to_pylist()
            cells += [flat[(offset + i) * size : (offset + i + 1) * size] if there else None for i, there in enumerate(valid)]
        return f"list<{kind or plain(pa.array([], of.value_type))[0]}>", cells
    if pa.types.is_large_list(of) and pa.types.is_duration(of.value_type):
        array = array.cast(pa.large_list(pa.int64()))
        return f"list<{of.value_type}>", parquet.plain_values(array)
    if pa.types.is_duration(of):
        return str(of), array.cast(pa.int64()).to_pylist()
    return parquet.plain_type(of), parquet.plain_values(array)


def read(program, array):
    """Names, types and values of the batches of an array."""
    done = subprocess.run([program, array], capture_output=True, check=False)
    if done.returncode:
        raise parquet.Differs(done.stderr.decode())
    table = pa.ipc.open_stream(done.stdout).read_all()
    table.validate(full=True)
    return [(name, *plain(column)) for name, column in zip(table.column_names, table.columns)]


def main():
    """Compares the arrays of a family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--family", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--share", type=share, help="part N of M of the arrays: N/M")
    parser.add_argument("--array", default="", help="only arrays whose name contains this")
    args = parser.parse_args()
    family = os.path.realpath(args.family)
    names = [row["name"] for row in json.loads(Path(family, "expected/manifest.json").read_text())["arrays"]]
    names = [name for name in names if args.array in name and belongs(args.share, name)]
    passed, failed = 0, 0
    with mounted(os.path.join(family, "arrays")) as point:
        for name in names:
            answers = os.path.join(family, "expected", name)
            doc, blob = json.loads(Path(answers + ".json").read_text()), memoryview(Path(answers + ".bin").read_bytes())
            array, shown = os.path.join(family, "arrays", name), os.path.join(str(point), name)
            for view in doc["views"]:
                if view["path"] != "data":
                    continue
                written = None
                if doc["array_type"] == "dense":
                    written, _ = fragment_cover.written(shown, os.path.join(shown, "data"), fragment_cover.domains(array, shown))
                try:
                    parquet.compare("arrow", wanted(blob, view, written), read(args.program, array))
                    passed += 1
                except Exception as error:  # noqa: BLE001
                    failed += 1
                    print(f"FAIL {name}: {type(error).__name__}: {error}"[:500], flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
