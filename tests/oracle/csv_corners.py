"""Corners of `table.csv`: names, extremes, text, labels, long rows; by the readers of exports_csv.py, and a few lines to the letter.

    python3 csv_corners.py

The last line is `N passed, N failed`.
"""

import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import tiledb

from exports_csv import Tally, compare_shown
from mount import binary, mounted
from view_files import Differs, same

TEXTS = ["", "a", " a", "a ", "\ta", "a,b", 'say "a"', '"', "a\nb", "a\r\nb", "a\rb", "NA", "null", "NaN", "é漢😀", "-", "'", "a;b|c\td", "0x10", "007"]
FLOATS = [0.0, -0.0, 2.0, 0.1, 1e16, 1e-7, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, float("nan"), float("inf"), float("-inf")]


def dimension(name="d", size=None, dtype=np.int64):
    """A dimension of `size` cells."""
    return tiledb.Dim(name, domain=(0, size - 1), tile=size, dtype=dtype)


def write_text(folder):
    """Text that needs quotes."""
    attributes = [tiledb.Attr("u", dtype="U", var=True), tiledb.Attr("a", dtype="ascii", var=True)]
    tiledb.Array.create(folder, tiledb.ArraySchema(tiledb.Domain(dimension(size=len(TEXTS))), attributes, sparse=True))
    ascii_only = np.array([t.encode("ascii", "replace") for t in TEXTS], dtype="O")
    with tiledb.open(folder, "w") as array:
        array[np.arange(len(TEXTS))] = {"u": np.array(TEXTS, dtype="O"), "a": ascii_only}


def write_names(folder):
    """Names with commas, quotes, blanks and more; one attribute without a name."""
    domain = tiledb.Domain(dimension("a,b", 3), dimension("x y", 2))
    attributes = [tiledb.Attr(name, dtype=np.int32) for name in ("", 'say "x"', " lead", "trail\t", "per%cent/slash", ".dot", "é", "_attr")]
    tiledb.Array.create(folder, tiledb.ArraySchema(domain, attributes))
    with tiledb.open(folder, "w") as array:
        array[:] = {a.name: np.arange(6, dtype=np.int32).reshape(3, 2) + 10 * i for i, a in enumerate(attributes)}


def write_numbers(folder):
    """The ends of every type of number."""
    columns = {"f8": np.array(FLOATS)}
    with np.errstate(over="ignore", under="ignore"):
        columns["f4"] = np.array(FLOATS).astype(np.float32)
    for dtype in "i1 i2 i4 i8 u1 u2 u4 u8".split():
        info = np.iinfo(dtype)
        columns[dtype] = np.array([info.min, info.max, 0, 1] * (len(FLOATS) // 4), dtype=dtype)
    attributes = [tiledb.Attr(name, dtype=values.dtype) for name, values in columns.items()]
    tiledb.Array.create(folder, tiledb.ArraySchema(tiledb.Domain(dimension(size=len(FLOATS))), attributes))
    with tiledb.open(folder, "w") as array:
        array[:] = columns


def write_datetimes(folder):
    """Dates of every unit, with distant ones and not-a-time."""
    counts = np.array([0, 1, -1, 1738673445, -(1 << 63), (1 << 63) - 1, -(1 << 63) + 1, -719529, 2932897], dtype=np.int64)
    attributes = [tiledb.Attr(unit, dtype=f"datetime64[{unit}]") for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")]
    tiledb.Array.create(folder, tiledb.ArraySchema(tiledb.Domain(dimension(size=len(counts))), attributes))
    with tiledb.open(folder, "w") as array:
        array[:] = {a.name: counts.view(f"datetime64[{a.name}]") for a in attributes}


def write_labels(folder):
    """Labels that need quotes, and indexes without a label."""
    labels = tiledb.Enumeration("labels", False, ["plain", "a,b", "", 'say "x"', " "], dtype="U")
    numbers = tiledb.Enumeration("numbers", True, np.array([10, -20, 1 << 40]))
    attributes = [tiledb.Attr("c", dtype=np.int8, enum_label="labels"), tiledb.Attr("n", dtype=np.uint16, enum_label="numbers")]
    schema = tiledb.ArraySchema(tiledb.Domain(dimension(size=10)), attributes, enums=[labels, numbers])
    tiledb.Array.create(folder, schema)
    with tiledb.open(folder, "w") as array:
        array[1:8] = {"c": np.array([0, 1, 2, 3, 4, 5, -1], dtype=np.int8), "n": np.array([0, 1, 2, 3, 65535, 0, 1], dtype=np.uint16)}


def write_empty(folder):
    """An empty array."""
    tiledb.Array.create(folder, tiledb.ArraySchema(tiledb.Domain(dimension(size=4)), [tiledb.Attr("a", dtype=np.int32)], sparse=True))


def write_long(folder):
    """Rows so long that blocks have far fewer than 1,024."""
    chance = random.Random(7)
    tiledb.Array.create(folder, tiledb.ArraySchema(tiledb.Domain(dimension(size=10**6)), [tiledb.Attr("t", dtype="U", var=True)], sparse=True, capacity=64))
    words = ["".join(chance.choice('ab"\n,é ') for _ in range(50)) * chance.choice([0, 1, 20, 1000]) for _ in range(900)]
    with tiledb.open(folder, "w") as array:
        array[np.arange(900) * 3] = {"t": np.array(words, dtype="O")}


def write_many(folder):
    """Many blocks, in tiles that rows cross."""
    domain = tiledb.Domain(tiledb.Dim("y", domain=(10, 209), tile=30, dtype=np.int16), tiledb.Dim("x", domain=(3, 102), tile=17, dtype=np.int16))
    tiledb.Array.create(folder, tiledb.ArraySchema(domain, [tiledb.Attr("v", dtype=np.int64), tiledb.Attr("w", dtype=np.float32)], cell_order="col-major"))
    with tiledb.open(folder, "w") as array:
        array[20:160, 3:90] = {"v": np.arange(140 * 87).reshape(140, 87) ** 3, "w": np.arange(140 * 87).reshape(140, 87).astype(np.float32) / 7}


LINES = {
    "numbers": ["d,f8,f4,i1,i2,i4,i8,u1,u2,u4,u8",
                "0,0.0,0.0,-128,-32768,-2147483648,-9223372036854775808,0,0,0,0",
                "1,-0.0,-0.0,127,32767,2147483647,9223372036854775807,255,65535,4294967295,18446744073709551615"],
    "names": ['"a,b",x y,__attr,"say ""x"""," lead","trail\t",per%cent/slash,.dot,é,_attr', "0,0,0,10,20,30,40,50,60,70"],
    "labels": ["d,c,n", "1,plain,10", '2,"a,b",-20', '3,"",1099511627776', '4,"say ""x""",', '5," ",', "6,,10", "7,,-20"],
    "empty": ["d,a"],
}
"""The beginnings of some tables."""


def main():
    """Writes and compares."""
    writers = {name.removeprefix("write_"): writer for name, writer in globals().items() if name.startswith("write_")}
    total = Tally()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-csv-") as folder:
        for name, writer in writers.items():
            writer(os.path.join(folder, name))
        with mounted(folder) as point:
            for name in writers:
                tally = compare_shown(str(point), name)
                path = os.path.join(point, name, "data", "table.csv")
                try:
                    with open(path, "rb") as f:
                        whole = f.read()
                    lines = whole.decode().split("\n")
                    same(f"lines of {name}", lines[: len(LINES.get(name, []))], LINES.get(name, []))
                    done = subprocess.run([binary(), "cat", os.path.join(folder, name), "data/table.csv"], capture_output=True, check=True)
                    same(f"what cat writes of {name}", done.stdout == whole, True)
                    tally.passed += 1
                except (Differs, OSError, subprocess.CalledProcessError) as error:
                    tally.failures.append(f"{name}: {error}")
                if not tally.files:
                    tally.failures.append(f"{name}: was not compared")
                total.passed += tally.passed
                total.failures += tally.failures
                total.exceptions += tally.exceptions
    for line in total.failures:
        print("FAIL " + line[:500])
    for line, count in sorted(total.exceptions.items()):
        print(f"exception, {count} times: {line}")
    print(f"{total.passed} passed, {len(total.failures)} failed")
    sys.exit(1 if total.failures or not total.passed else 0)


if __name__ == "__main__":
    main()
