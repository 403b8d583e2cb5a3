"""Processes that stay in a directory or keep a file open while an array evolves: what they read there is what the name means now, or one state.

    python3 staying.py

The last line is `N passed, N failed`.
"""

import contextlib
import errno
import io
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time

import netCDF4
import numpy as np
import tiledb

from mount import errors, mounted
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


def write_line(path, values):
    """A dense array of one attribute."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, len(values) - 1), tile=4, dtype=np.int64))
    tiledb.Array.create(path, tiledb.ArraySchema(domain, attrs=[tiledb.Attr("a", dtype=np.int64)]))
    with tiledb.open(path, "w") as array:
        array[:] = np.array(values)
    return list(values)


def compare_members(checks, source, point):
    """A member of a group that becomes another array, for who stays in it and for all others."""
    one, two = write_line(f"{source}/one", range(8)), write_line(f"{source}/two", range(100, 108))
    path, group = f"{source}/group", point / "group"
    tiledb.Group.create(path)

    def point_to(uri, *removed):
        for name in removed:
            with tiledb.Group(path, "w") as changed:
                changed.remove(name)
        with tiledb.Group(path, "w") as changed:
            changed.add(uri, name="v")
        time.sleep(SETTLED)

    point_to(f"{source}/one")
    members = group / "v/data/columns/a/data.npy"
    with staying(group / "v/data"):
        checks.equal("members: before", (read("columns/a/data.npy"), read(members)), (one, one))
        (group / "dataset.nc").read_bytes()
        times = {name: (group / name).stat().st_mtime for name in ("group.json", "dataset.nc")}
        point_to(f"{source}/two", "v")
        for _ in range(5):
            read("columns/a/data.npy")
            time.sleep(0.2)
        checks.equal("members: by the path, at once", read(members), two)
        checks.equal("members: who stays", read("columns/a/data.npy"), two)
        with netCDF4.Dataset(group / "dataset.nc") as dataset:
            checks.equal("members: dataset.nc", dataset["v"][:].tolist(), two)
        checks.equal("members: times that are not later", [name for name, before in times.items() if (group / name).stat().st_mtime <= before], [])
    # The same array elsewhere.
    os.rename(f"{source}/two", f"{source}/moved")
    point_to(f"{source}/moved", "v")
    with netCDF4.Dataset(group / "dataset.nc") as dataset:
        checks.equal("members: dataset.nc of an array that was moved", dataset["v"][:].tolist(), two)
    labelled = f"{source}/labelled"
    row = tiledb.Dim("row", domain=(0, 7), tile=4, dtype=np.int32)
    labels = {0: {"lat": row.create_label_schema("increasing", np.float64)}}
    tiledb.Array.create(labelled, tiledb.ArraySchema(tiledb.Domain(row), [tiledb.Attr("a", dtype=np.int64)], dim_labels=labels))
    with tiledb.open(labelled, "w") as array:
        array[:] = {"a": np.arange(8), "lat": np.arange(8.0)}
    point_to(labelled, "v")
    before = (group / "dataset.nc").stat().st_mtime
    with tiledb.open(f"{labelled}/__labels/l0", "w") as array:
        array[:] = np.arange(8.0) * 2
    time.sleep(SETTLED)
    checks.equal("members: the time of dataset.nc when labels are written", (group / "dataset.nc").stat().st_mtime > before, True)
    before = (group / "metadata.json").stat().st_mtime
    with tiledb.Group(path, "w") as changed:
        changed.meta["k"] = 1
    time.sleep(SETTLED)
    checks.equal("members: the time of metadata.json", (group / "metadata.json").stat().st_mtime > before, True)


def compare_kinds(checks, source, point):
    """A directory that becomes an array, below a source and as the source; an array with fewer axes; one that is sparse."""
    os.mkdir(f"{source}/kind")
    with staying(point / "kind"):
        checks.equal("kinds: an empty directory", os.listdir("."), [])
        values = write_line(f"{source}/kind/array", range(4))
        shutil.copytree(f"{source}/kind/array", f"{source}/kind", dirs_exist_ok=True)
        time.sleep(SETTLED)
        checks.equal("kinds: who stays in it", read("data/columns/a/data.npy"), values)
    with tempfile.TemporaryDirectory() as empty, mounted(empty) as root:
        checks.equal("kinds: an empty source", "data" in os.listdir(root), False)
        shutil.copytree(f"{source}/one", empty, dirs_exist_ok=True)
        time.sleep(SETTLED)
        checks.equal("kinds: a source that is an array", read(root / "data/columns/a/data.npy"), list(range(8)))
    path = f"{source}/axes"
    dims = [tiledb.Dim(name, domain=(0, 3), tile=2, dtype=np.int64) for name in "xy"]
    tiledb.Array.create(path, tiledb.ArraySchema(tiledb.Domain(*dims), attrs=[tiledb.Attr("a", dtype=np.int64)]))
    with tiledb.open(path, "w") as array:
        array[:] = np.arange(16).reshape(4, 4)
    chunks = point / "axes/data/array.zarr/a/c/0"
    with staying(chunks):
        checks.equal("kinds: chunks", os.listdir("."), ["0"])
        shutil.rmtree(path)
        write_line(path, range(4))
        time.sleep(SETTLED)
        try:
            found = os.listdir(".")
        except OSError as error:
            found = error.errno
        checks.equal("kinds: chunks along an axis that is gone", found in ([], errno.ESTALE, errno.ENOENT), True)
    with staying(point / "axes/data/array.zarr"):
        checks.equal("kinds: a group of Zarr", "zarr.json" in os.listdir("."), True)
        shutil.rmtree(path)
        sparse = tiledb.ArraySchema(tiledb.Domain(*dims), attrs=[tiledb.Attr("a", dtype=np.int64)], sparse=True)
        tiledb.Array.create(path, sparse)
        with tiledb.open(path, "w") as array:
            array[np.array([1]), np.array([2])] = np.array([7])
        time.sleep(SETTLED)
        checks.equal("kinds: that of an array that is sparse", read("zarr.json") in (errno.ESTALE, errno.ENOENT), True)


def compare_touched(checks, source, point):
    """Files of a fragment get another time, and their bytes stay."""
    path = f"{source}/touched"
    values = write_line(path, range(40))
    [fragment] = os.listdir(f"{path}/__fragments")
    column, tiles = point / "touched/data/columns/a/data.npy", point / "touched/fragments" / fragment / "tiles.json"
    (point / "touched/schema.json").read_bytes()
    (point / "touched/fragments" / fragment / "footer.json").read_bytes()
    column.stat()
    for file in os.listdir(f"{path}/__fragments/{fragment}"):
        os.utime(f"{path}/__fragments/{fragment}/{file}")
    end = time.monotonic() + 5
    while time.monotonic() < end and read(column) != values:
        time.sleep(0.2)
    checks.equal("touched: the column", read(column), values)
    checks.equal("touched: the tiles", len(json.loads(tiles.read_bytes())) > 0, True)


def write_unfiltered(path, values):
    """A dense array whose data file has the values as they are. Returns the file."""
    dimension = tiledb.Dim("x", domain=(0, len(values) - 1), tile=min(len(values), 1 << 16), dtype=np.int32)
    attribute = tiledb.Attr("a", dtype=np.int32, filters=tiledb.FilterList([]))
    tiledb.Array.create(path, tiledb.ArraySchema(tiledb.Domain(dimension), [attribute]))
    with tiledb.open(path, "w") as array:
        array[:] = values
    [fragment] = os.listdir(f"{path}/__fragments")
    return f"{path}/__fragments/{fragment}/a0.tdb"


def compare_replaced(checks, source, point):
    """A data file, or a whole array, in whose place others of the same names and lengths are put: never a mix."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as beside:
        for cells in 10, 1 << 20:
            part = f"data/subarray/0..{cells // 2 - 1}/columns/a/data.bin"
            files = "data/columns/a/data.bin", "data/array.zarr/a/c/0", part, "at/latest/data/columns/a/data.bin"
            old, new = np.arange(cells, dtype=np.int32), np.arange(cells, dtype=np.int32) + 7
            for way in "moved", "written", "array":
                name = f"replaced_{cells}_{way}"
                stored = write_unfiltered(f"{source}/{name}", old)
                shutil.copytree(f"{source}/{name}", f"{beside}/{name}")
                other = stored.replace(f"{source}/", f"{beside}/")
                shutil.copyfile(write_unfiltered(f"{beside}/{name}_new", new), other)
                time.sleep(SETTLED)
                for file in files:
                    with open(point / name / file, "rb") as opened:
                        os.pread(opened.fileno(), 4096, 0)
                if way == "moved":
                    os.rename(other, stored)
                elif way == "written":
                    with open(other, "rb") as new_bytes, open(stored, "r+b") as file:
                        file.write(new_bytes.read())
                else:
                    os.rename(f"{source}/{name}", f"{beside}/{name}_old")
                    os.rename(f"{beside}/{name}", f"{source}/{name}")
                time.sleep(SETTLED)
                for file in files:
                    found = [numbers(point / name / file) for _ in range(3)]
                    end = len(found[-1]) if isinstance(found[-1], np.ndarray) else 0
                    states = {"old": old[:end], "new": new[:end], "error": errno.EIO}
                    kinds = [next((kind for kind, state in states.items() if np.array_equal(one, state)), "a mix") for one in found]
                    # What the kernel has whole of a column is the old state for as long as the array does not
                    # change.
                    allowed = ("new", "error") if cells > 10 or way == "array" else ("new", "error", "old")
                    right = all(kind in allowed for kind in kinds) and (kinds[-1] == "new" or "old" in allowed)
                    checks.equal(f"{name}: {file}", right or kinds, True)


def numbers(path):
    """INT32 values, or the errno of reading them."""
    try:
        return np.frombuffer(open(path, "rb").read(), np.int32)
    except OSError as error:
        return error.errno


def main():
    """Runs all of it."""
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as source, mounted(source) as point:
        compare_parts(checks, source, point)
        compare_steps(checks, source, point)
        compare_columns(checks, source, point)
        compare_enumerations(checks, source, point)
        compare_members(checks, source, point)
        compare_kinds(checks, source, point)
        compare_touched(checks, source, point)
        compare_replaced(checks, source, point)
        print(*errors(point), sep="\n")
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
