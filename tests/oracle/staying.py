"""Processes that stay in a directory or keep a file open while an array evolves: what they read there is what the name means now, or one state.

    python3 staying.py

The last line is `N passed, N failed`.
"""

import contextlib
import io
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import tiledb

from mount import mounted
from plain_tools import Checks

SETTLED = 1.5
"""Seconds after which a change is seen everywhere."""


@contextlib.contextmanager
def staying(folder):
    """With `folder` as the working directory."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def read(path):
    """An array, or the errno of reading it."""
    try:
        return np.load(io.BytesIO(open(path, "rb").read())).tolist()
    except OSError as error:
        return error.errno


def evolve(path, change):
    """Changes the schema of an array."""
    evolution = tiledb.ArraySchemaEvolution(tiledb.default_ctx())
    change(evolution)
    evolution.array_evolve(path)
    # The next schema has another millisecond.
    time.sleep(0.01)


def compare_parts(checks, source, point):
    """A part whose bounds are those of the domain at first, and one between labels that move."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 999), tile=100, dtype=np.int32))

    def until(last):
        rectangle = tiledb.NDRectangle(tiledb.default_ctx(), domain)
        rectangle.set_range("x", 0, last)
        current = tiledb.CurrentDomain(tiledb.default_ctx())
        current.set_ndrectangle(rectangle)
        return current

    schema = tiledb.ArraySchema(domain, attrs=[tiledb.Attr("a", dtype=np.int64)], sparse=True)
    schema.set_current_domain(until(49))
    growing, moving = f"{source}/growing", f"{source}/moving"
    tiledb.Array.create(growing, schema)
    with tiledb.open(growing, "w") as array:
        array[np.array([1, 40], dtype=np.int32)] = np.array([1, 40])
    rows = np.arange(40)
    row = tiledb.Dim("row", domain=(0, rows.size - 1), tile=8, dtype=np.int32)
    labels = {0: {"lat": row.create_label_schema("increasing", np.float64)}}
    tiledb.Array.create(moving, tiledb.ArraySchema(tiledb.Domain(row), [tiledb.Attr("a", dtype=np.int64)], dim_labels=labels))

    def write_labels(scale, add):
        with tiledb.open(moving, "w") as array:
            array[:] = {"a": rows + add, "lat": rows * float(scale)}

    def grow():
        evolve(growing, lambda evolution: evolution.expand_current_domain(until(99)))
        with tiledb.open(growing, "w") as array:
            array[np.array([2, 60], dtype=np.int32)] = np.array([2, 60])

    write_labels(1, 0)
    cases = [("growing", "0..49", grow, [1, 40], [1, 2, 40]), ("moving", "lat:10..14", lambda: write_labels(2, 1000), [10, 11, 12, 13, 14], [1005, 1006, 1007])]
    for name, part, change, before, after in cases:
        folder = point / name / "data/subarray" / part
        with staying(folder), open("columns/a/data.npy", "rb") as held:
            checks.equal(f"{name}: before", read("columns/a/data.npy"), before)
            change()
            time.sleep(SETTLED)
            checks.equal(f"{name}: who stays in it reads", read("columns/a/data.npy"), after)
            checks.equal(f"{name}: who has opened a file", np.load(held).tolist(), before)
        checks.equal(f"{name}: by its path", read(folder / "columns/a/data.npy"), after)
    write_labels(100, 0)
    time.sleep(SETTLED)
    checks.equal("moving: there are no such labels any more", (point / "moving/data/subarray/lat:10..14").exists(), False)


def compare_steps(checks, source, point):
    """Each directory of the way is looked at shortly before the one above it is looked up again."""
    path = f"{source}/growing"
    for number in range(6):
        folder, written = point / "growing/data/subarray/0..49", 3 + number
        folder.stat()
        with tiledb.open(path, "w") as array:
            array[np.array([written, 70 + number], dtype=np.int32)] = np.array([written, 70 + number])
        for part in "columns", "columns/a":
            time.sleep(0.25)
            (folder / part).stat()
        time.sleep(0.25)
        found = read(folder / "columns/a/data.npy")
        checks.equal(f"growing: cells outside of the part, {number}", [cell for cell in found if cell > 49], [])


def compare_columns(checks, source, point):
    """Who stays in the directory of an attribute when one before it is dropped."""
    path = f"{source}/dropped"
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32))
    attributes = [tiledb.Attr("b", dtype=np.int64), tiledb.Attr("a", dtype=np.int64)]
    tiledb.Array.create(path, tiledb.ArraySchema(domain, attrs=attributes, sparse=True))
    with tiledb.open(path, "w") as array:
        array[np.array([1, 40], dtype=np.int32)] = {"a": np.array([1, 40]), "b": np.array([5, 6])}
    with staying(point / "dropped/data/columns/a"):
        checks.equal("dropped: before", read("data.npy"), [1, 40])
        evolve(path, lambda evolution: evolution.drop_attribute("b"))
        time.sleep(SETTLED)
        checks.equal("dropped: afterwards", read("data.npy"), [1, 40])
        checks.equal("dropped: names", sorted(os.listdir(".")), ["data.bin", "data.npy"])


def enumeration(labels):
    """An enumeration of text."""
    return tiledb.Enumeration("e", False, values=np.array(labels, dtype="U40"))


def compare_enumerations(checks, source, point):
    """An open file of labels stays as it was when the schema gets others of the same name."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32))
    many = [f"label number {number:05}" for number in range(2000)]

    def extend(path):
        with tiledb.open(path) as array:
            more = array.enum("e").extend([f"another {number:05}" for number in range(3000)])
        evolve(path, lambda evolution: evolution.extend_enumeration(more))

    def replace(path):
        def add(evolution):
            evolution.add_enumeration(enumeration([f"n{number}" for number in range(20)]))
            evolution.add_attribute(tiledb.Attr("a", dtype=np.int32, enum_label="e"))

        evolve(path, lambda evolution: evolution.drop_attribute("a"))
        evolve(path, lambda evolution: evolution.drop_enumeration("e"))
        evolve(path, add)

    for name, change in ("longer", extend), ("shorter", replace):
        path, file = f"{source}/{name}", point / name / "enumerations/e.json"
        attributes = [tiledb.Attr("a", dtype=np.int32, enum_label="e"), tiledb.Attr("z", dtype=np.int32)]
        tiledb.Array.create(path, tiledb.ArraySchema(domain, attrs=attributes, sparse=True, enums=[enumeration(many)]))
        before = file.read_bytes()
        with open(file, "rb", buffering=0) as held, open(file, "rb") as other, mmap.mmap(other.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            head = held.read(100)
            change(path)
            time.sleep(SETTLED)
            with tiledb.open(path) as array:
                want = list(array.enum("e").values())
            checks.equal(f"{name}: the length of the new file", file.stat().st_size, len(file.read_bytes()))
            checks.equal(f"{name}: its labels", json.loads(file.read_bytes())["values"], want)
            checks.equal(f"{name}: the length of the open file", os.fstat(held.fileno()).st_size, len(before))
            checks.equal(f"{name}: the open file", head + b"".join(iter(lambda: held.read(1 << 16), b"")) == before, True)
            checks.equal(f"{name}: the new one's length again", file.stat().st_size == len(before), False)
            # In a process of its own: a page that is not there any more would end this one.
            check = "import mmap, os, sys; sys.exit(mmap.mmap(0, 0, prot=mmap.PROT_READ)[:] != open(sys.argv[1], 'rb').read())"
            with tempfile.NamedTemporaryFile() as copy:
                copy.write(before)
                copy.flush()
                code = subprocess.run([sys.executable, "-c", check, copy.name], stdin=other).returncode
            checks.equal(f"{name}: a mapping of it", code, 0)
            if code == 0:
                checks.equal(f"{name}: the mapping that was there", mapped[:] == before, True)


def main():
    """Runs all of it."""
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as source, mounted(source) as point:
        compare_parts(checks, source, point)
        compare_steps(checks, source, point)
        compare_columns(checks, source, point)
        compare_enumerations(checks, source, point)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
