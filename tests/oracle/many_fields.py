"""Work grows with the number of attributes, and not with its square: exports, documents, listings, `info` and `check` of arrays of many attributes.

    python3 many_fields.py

Compared is the processor time of the program for 500 and for 2,000 attributes, in three fragments: at most seven times as much, where four is to be expected.
Exports of the former are the same where fewer files may be open than they have.
The last line is `N passed, N failed`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from capi import Attr, Column, Dim, Lib, Schema
from mount import binary
from plain_tools import Checks

COUNTS = 500, 2000
MOST, NOISE = 7, 0.1
"""How many times as much, and how much besides, in seconds."""
CELLS = 4
FILES = 200
"""A limit of open files that is far below the number of fields in fragments."""
COMMANDS = {
    "table.csv": ["cat", "data/table.csv"],
    "table.parquet": ["cat", "data/table.parquet"],
    "view.json": ["cat", "data/view.json"],
    "a list of the columns": ["ls", "-R", "data/columns"],
    "info": ["info"],
    "check": ["check"],
}
DENSE = {
    "array.nc": ["cat", "data/array.nc"],
    "zarr.json": ["cat", "data/array.zarr/zarr.json"],
    "a list of the images": ["ls", "-R", "data/raster"],
    "a list of the arrays": ["ls", "-R", "data/array.zarr"],
}


def write(path, kind, count):
    """An array of `count` attributes, some nullable, with three fragments that overlap."""
    lib = Lib()
    dims = [Dim("y", "INT32", 0, 9, 5), Dim("x", "INT32", 0, 9, 5)]
    attrs = [Attr(f"attribute {i}", "INT32", nullable=i % 10 == 0) for i in range(count)]
    lib.create(path, Schema(kind, dims, attrs))
    for fragment in range(3):
        valid = np.ones(CELLS, "u1")
        columns = {a.name: Column(np.full(CELLS, fragment, "i4").view("u1"), None, valid if a.nullable else None) for a in attrs}
        if kind == "dense":
            lib.write(path, columns, ranges=[np.array([fragment, fragment + 1], "i4"), np.array([0, 1], "i4")])
        else:
            for name, values in (("y", np.arange(CELLS) + fragment), ("x", np.arange(CELLS))):
                columns[name] = Column(values.astype("i4").view("u1"))
            lib.write(path, columns)


def seconds(command):
    """The processor time that a command takes."""
    before = os.times()
    done = subprocess.run([binary(), *command], capture_output=True, timeout=600)
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}: {done.stderr[:300]}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def same_with_few_files(checks, kind, path, names):
    """Compares exports made with a low limit of open files, and without it."""
    for name in names:
        command = [binary(), "cat", path, f"data/{name}"]
        limited = subprocess.run(["sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh", *command], capture_output=True, timeout=600)
        free = subprocess.run(command, capture_output=True, timeout=600)
        got = limited.stderr.decode() or limited.stdout == free.stdout
        checks.equal(f"{name} of a {kind} array with {FILES} open files", (got, len(free.stdout) > 0), (True, True))


def main():
    """Runs all."""
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("dense", "sparse"):
            paths = [str(Path(folder, f"{kind}{count}")) for count in COUNTS]
            for path, count in zip(paths, COUNTS):
                write(path, kind, count)
            exports = ["table.csv", "table.parquet"] + ["array.nc"] * (kind == "dense")
            same_with_few_files(checks, kind, paths[0], exports)
            for name, (command, *rest) in (COMMANDS | (DENSE if kind == "dense" else {})).items():
                options = [part for part in rest if part.startswith("-")]
                few, many = (seconds([command, *options, path, *rest[len(options) :]]) for path in paths)
                print(f"     {name} of {kind} arrays: {few:.2f} s and {many:.2f} s")
                checks.equal(f"whether {name} of a {kind} array grows with its attributes", many <= MOST * few + NOISE, True)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
