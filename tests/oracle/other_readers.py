"""Opens the exports of `data/` of a family of views with readers that Debian has: R, Octave, Miller, SQLite, awk, NCO, CDO, ImageMagick.

    python3 other_readers.py --family FOLDER

Prints a table of readers, with their versions, how many files each read, and how many of those differ; the last line is `N passed, N failed`.
What a reader is known not to read rightly is left out, with its reason counted.
"""

import argparse
import collections
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import exports_csv
import exports_netcdf
from exports_csv import Unreadable, compare, table, typed
from exports_tiff import Images
from grids import Grids
from mount import mounted
from view_files import Differs, same
from views import family_view

HERE = Path(__file__).parent
EXACT = 1 << 53
"""The greatest integers that doubles represent without gaps."""


def output(*command):
    """The output of a command; fails if the command does."""
    done = subprocess.run(command, capture_output=True, timeout=120, stdin=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C.UTF-8"})
    if done.returncode:
        raise Differs(f"{Path(command[0]).name}: exit code {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    return done.stdout


# -- table.csv -----------------------------------------------------------------------------------------------


def only_utf8(encoding):
    """Most programs assume UTF-8."""
    if encoding != "utf-8":
        raise Unreadable("bytes that are not UTF-8")


def texts_of(columns):
    """All text of a table."""
    return (v for c in columns for v in [c.name, *c.values] if isinstance(v, str))


def no_nul(columns):
    """C strings end at a NUL."""
    if any("\0" in text for text in texts_of(columns)):
        raise Unreadable("NUL bytes in text")


def no_blank_lines(columns):
    """A null in a table of one column is an empty line."""
    if len(columns) == 1 and None in columns[0].values:
        raise Unreadable("nulls in a single column are empty lines")


def miller(path, columns, encoding):
    """Miller, without inference."""
    only_utf8(encoding)
    no_blank_lines(columns)
    rows = json.loads(output("mlr", "--icsv", "--ojson", "--infer-none", "--no-auto-unflatten", "cat", str(path)), strict=False)
    for row in rows:
        same("names", list(row), [c.name for c in columns])
    return [typed(c, [row[c.name] or None for row in rows]) for c in columns]


def sqlite(path, columns, encoding):
    """SQLite's command line, which imports text."""
    only_utf8(encoding)
    no_nul(columns)
    no_blank_lines(columns)
    # Column names are not case-sensitive there, so the first line is skipped.
    quoted = str(path).replace("'", "''")
    created = ", ".join(f"c{i} TEXT" for i in range(len(columns)))
    shown = ", ".join(f"hex(c{i})" for i in range(len(columns)))
    lines = output("sqlite3", ":memory:", f"CREATE TABLE t ({created})", f".import --csv --skip 1 '{quoted}' t", f"SELECT {shown} FROM t").decode().splitlines()
    rows = [line.split("|") for line in lines]
    texts = [[bytes.fromhex(cell).decode() or None for cell in values] for values in zip(*rows)]
    return [typed(c, values) for c, values in zip(columns, texts or [[]] * len(columns))]


def awk(path, columns, encoding):
    """gawk, which does not handle quotes."""
    only_utf8(encoding)
    if b'"' in Path(path).read_bytes():
        raise Unreadable("quotes: awk knows none")
    program = 'NR > 1 { for (i = 1; i <= NF; i++) printf "%s%s", $i, (i < NF ? "\\x1f" : "\\x1e") }'
    if len(columns) == 1:
        program = 'NR > 1 { printf "%s\\x1e", $0 }'
    rows = [row.split("\x1f") for row in output("gawk", "-F,", program, str(path)).decode().split("\x1e")[:-1]]
    return [typed(c, values) for c, values in zip(columns, [[v or None for v in values] for values in zip(*rows)] or [[]] * len(columns))]


def in_r(package):
    """A package of R."""

    def read(path, columns, encoding):
        only_utf8(encoding)
        no_nul(columns)
        no_blank_lines(columns)
        for c in columns:
            unquoted = [v for v in c.values if isinstance(v, str)]
            if package == "data.table" and any('"' in text for text in [c.name, *unquoted]):
                raise Unreadable("doubled quotes, which fread leaves doubled")
            if package == "data.table" and any("\n" in text or "\r" in text for text in [c.name, *unquoted]):
                raise Unreadable("line feeds in text")
            if package == "base" and any("\\" in text or "\r" in text or "\n" in text for text in [c.name, *unquoted]):
                raise Unreadable("line feeds and backslashes in text")
            if package == "readr" and any(text != text.strip() or "\r" in text for text in [c.name, *unquoted]):
                raise Unreadable("blanks at the ends of text, which readr trims")
            if not c.name.strip():
                raise Unreadable("a name of blanks")
        if not columns[0].values:
            raise Unreadable("tables without rows have no types")
        found = []
        for line in output("Rscript", "--vanilla", str(HERE / "read_csv.R"), package, str(path)).decode().splitlines():
            if line.startswith("column"):
                found.append((bytes.fromhex(line[7:]).decode() if line[6:7] == "t" else None, []))
            else:
                found[-1][1].append(line)
        same("names", [name for name, _ in found], [c.name for c in columns])
        for c, (_, lines) in zip(columns, found):
            same(f"rows of {c.name}", len(lines), len(c.values))
            for row, (line, want) in enumerate(zip(lines, c.values)):
                if not as_in_r(c, line, want, package):
                    raise Differs(f"row {row} of {c.name!r} ({c.type}): R has {line!r}, expected {want!r}")
        return None

    return read


def as_in_r(c, line, want, package):
    """Whether R has a value: integers beyond 2^53 rounded, floats within a unit in the last place, missing text equal to empty text."""
    if line == "N":
        return want is None or want == ""
    if line[0] == "b":
        return want is (line == "btrue") or str(want).lower() in ("true", "false", "t", "f")
    text = bytes.fromhex(line[1:]).decode() if line[0] == "t" else line[1:]
    if want is None:
        return text == "NA"
    if c.kind == "text" or c.kind == "list":
        if line[0] == "t":
            if c.kind == "text" and text != want and c.type.startswith("DATETIME_"):
                # readr and data.table have their own types for dates, which round.
                if not re.match(r"[0-9]{4}-", text + want):
                    return True
                return abs(np.datetime64(text[:19]) - np.datetime64(want[:19])) <= np.timedelta64(1, "s")
            return c.kind == "list" or text == want
        return bool(re.match(r"[-+0-9.einfaNIxX\s]+$", want))
    if c.kind == "bool":
        return text == str(want).lower()
    if c.kind in ("int", "uint"):
        if package == "data.table" and abs(want) < 1 << 63:
            # Without bit64, R shows 64-bit integers as doubles of the same bits.
            as_double = struct.unpack("<d", struct.pack("<q", want))[0]
            if float(text) == as_double or text == "NaN" and math.isnan(as_double):
                return True
        return int(float(text)) == int(float(want)) if abs(want) > EXACT and not text.lstrip("-").isdigit() else float(text) == float(want)
    got = float(text.replace("NA", "nan"))
    if math.isnan(want):
        return math.isnan(got)
    if c.type == "FLOAT32":
        return np.float32(got) == np.float32(want)
    # readr and fread round by a unit in the last place; readr has no subnormals.
    return got == want or math.isclose(got, want, rel_tol=1e-15) or package == "readr" and abs(want) < 1e-300


# -- array.nc ------------------------------------------------------------------------------------------------


def printed(text):
    """Variables as the scripts print them: {name: (shape, numbers as text)}."""
    found = {}
    numbers = []
    for line in text.splitlines():
        if line.startswith("variable "):
            name, *lengths = line.split()[1:]
            numbers = []
            found[bytes.fromhex(name).decode()] = ([int(n) for n in reversed(lengths)], numbers)
        else:
            numbers.append(line)
    return found


def same_numbers(name, texts, want, exact):
    """Fails unless numbers as text are those of an array; where `exact` is not, as doubles."""
    want = want.reshape(-1)
    same(f"values of {name}", len(texts), want.size)
    if exact and want.dtype.kind != "f":
        got = np.array([int(text) for text in texts], want.dtype)
    else:
        # R has no -2^31: it is NA.
        missing = "-2147483648" if want.dtype == "i4" else "nan"
        got, want = np.array([float(missing if text == "NA" else text) for text in texts]), want.astype("f8")
    equal = (got == want) | ((got != got) & (want != want))
    if not equal.all():
        at = int(np.argmin(equal))
        raise Differs(f"{name}, value {at}: got {texts[at]}, expected {want[at]}")


def by_script(exact, *command):
    """A script that prints variables."""

    def read(path, expected):
        if any("\ufffd" in name or "/" in name for name in expected.variables):
            raise Unreadable("names")
        found = printed(output(*command, str(path)).decode())
        wanted = {n: v for n, v in expected.variables.items() if v.values.dtype.kind != "S"}
        if not exact:
            # R shows coordinate variables as dimensions.
            wanted = {n: v for n, v in wanted.items() if v.dims != [n]}
        same("variables", sorted(found), sorted(wanted))
        for name, want in wanted.items():
            same_numbers(name, found[name][1], want.values, exact)

    return read


def nco(path, expected):
    """ncks, which copies the file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy.nc")
        output("ncks", "-h", "-4", str(path), copy)
        exports_netcdf.by_netcdf4(copy, expected)


def cdo(path, expected):
    """CDO, with the variables that it accepts as fields."""
    if not any(len(v.dims) >= 1 and v.values.dtype.kind != "S" and v.dims != [n] for n, v in expected.variables.items()):
        raise Unreadable("text alone")
    if all(len(v.dims) > 3 for n, v in expected.variables.items() if v.dims != [n]):
        raise Unreadable("more than three dimensions, none of which is time")
    if any(" " in name for name in expected.variables):
        raise Unreadable("names with blanks")
    try:
        found = output("cdo", "-s", "showname", str(path)).decode().split()
    except Differs as error:
        if "convert between text & numbers" in str(error) and any(v.values.dtype == "u1" for n, v in expected.variables.items() if v.dims == [n]):
            raise Unreadable("coordinates of UINT8, which it takes for text") from error
        raise
    same("names that are none", [name for name in found if name not in expected.variables], [])


# -- raster/ -------------------------------------------------------------------------------------------------


def imagemagick(path, values):
    """ImageMagick, with one band of 8 or 16 bits."""
    depth = values.dtype.itemsize * 8
    raw = output("convert", path, "-depth", str(depth), "-endian", "LSB", "gray:-")
    same("values", raw, values.tobytes())


# -- running -------------------------------------------------------------------------------------------------

CSV = {
    "Miller": ("mlr", miller, True),
    "SQLite": ("sqlite3", sqlite, True),
    "gawk": ("gawk", awk, True),
    "R, read.csv": ("Rscript", in_r("base"), True),
    "R, data.table": ("Rscript", in_r("data.table"), True),
    "R, readr": ("Rscript", in_r("readr"), True),
}
NETCDF = {
    "R, ncdf4": ("Rscript", by_script(False, "Rscript", "--vanilla", str(HERE / "read_netcdf.R"))),
    "Octave, netcdf": ("octave-cli", by_script(True, "octave-cli", "--norc", str(HERE / "read_netcdf.m"))),
    "NCO": ("ncks", nco),
    "CDO": ("cdo", cdo),
    "nccopy": ("nccopy", exports_netcdf.by_nccopy),
    "ncdump": ("ncdump", exports_netcdf.by_ncdump),
    "gdalmdiminfo": ("gdalmdiminfo", exports_netcdf.by_gdal),
}
VERSIONS = {
    "Miller": ["mlr", "--version"], "SQLite": ["sqlite3", "--version"], "gawk": ["gawk", "--version"],
    "Octave, netcdf": ["octave-cli", "--version"], "NCO": ["ncks", "--version"], "CDO": ["cdo", "--version"],
    "nccopy": ["ncdump"], "ncdump": ["ncdump"], "gdalmdiminfo": ["gdalinfo", "--version"],
    "gdalinfo": ["gdalinfo", "--version"], "gdal_translate": ["gdalinfo", "--version"], "ImageMagick": ["convert", "--version"],
} | {f"R, {package}": ["Rscript", "--vanilla", "-e", f"cat(as.character(packageVersion('{package}')))"] for package in ("data.table", "readr", "ncdf4")}
VERSIONS["R, read.csv"] = ["Rscript", "--vanilla", "-e", "cat(as.character(getRversion()))"]


def version(reader):
    """The version of a reader."""
    done = subprocess.run(VERSIONS[reader], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else "?"


class Tally:
    """The result of all files."""

    def __init__(self, only):
        self.only = only
        self.passed, self.failures, self.exceptions = collections.Counter(), collections.defaultdict(list), collections.Counter()

    def one(self, reader, label, compare_one):
        """One file by one reader."""
        if self.only not in reader:
            return
        try:
            compare_one()
            self.passed[reader] += 1
        except Unreadable as reason:
            self.exceptions[f"{reader}: {reason}"] += 1
        except Exception as error:  # noqa: BLE001 - any failure of any reader is one
            self.failures[reader].append(f"{label}, {reader}: {type(error).__name__}: {str(error)[:500]}")

    def csv(self, path, columns, label):
        """One table."""
        whole = exports_csv.read_anyhow(path, label)
        try:
            whole.decode()
            encoding = "utf-8"
        except UnicodeDecodeError:
            encoding = "latin-1"
        for c in columns:
            c.values = [v.decode(encoding) if isinstance(v, bytes) else v for v in c.values]
        for name, (command, reader, empty_is_null) in CSV.items():
            if not shutil.which(command):
                continue

            def compare_one():
                found = reader(path, columns, encoding)
                for c, values in zip(columns, found or []):
                    compare(c, values, empty_is_null)

            self.one(name, label, compare_one)


class CommandLine(Images):
    """Images as command-line programs read them."""

    def __init__(self, grids, tally):
        super().__init__(grids)
        self.tally = tally

    def image(self, label, path, rank, variable):
        """Compares an image with the values of a variable."""
        values = variable.stored
        nodata = None if variable.missing is None else 0
        for name, command, reader in [
            ("gdalinfo", "gdalinfo", lambda: self.gdalinfo(path, rank, values, nodata)),
            ("gdal_translate", "gdal_translate", lambda: self.translate(path, rank, values)),
            ("ImageMagick", "convert", lambda: imagemagick(path, values)),
        ]:
            if shutil.which(command) and (name != "ImageMagick" or rank == values.ndim == 2 and values.dtype.str in ("|u1", "<u2")):
                self.tally.one(name, label, reader)


def main():
    """Compares a family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--family", required=True)
    parser.add_argument("--array", default="", help="only arrays whose name contains this")
    parser.add_argument("--reader", default="", help="only readers whose name contains this")
    args = parser.parse_args()
    family, tally, start = os.path.realpath(args.family), Tally(args.reader), time.time()
    source = os.path.join(family, "arrays")
    with mounted(source) as point:
        netcdf = exports_netcdf.Comparison(source, str(point))
        grids = Grids(family, str(point))
        images = CommandLine(grids, tally)
        for array in sorted(a for a in os.listdir(source) if args.array in a):
            base = os.path.join(family, "expected", array)
            doc = json.loads(Path(base + ".json").read_text())
            blob = memoryview(Path(base + ".bin").read_bytes())
            entry = next(view for view in doc["views"] if view["path"] == "data")
            view = family_view(doc, blob, entry)
            folder = os.path.join(point, array, "data")
            tally.csv(os.path.join(folder, "table.csv"), table(view), array)
            if view.dense and 0 not in view.shape:
                said = json.loads(Path(folder, "view.json").read_text())
                expected = netcdf.expected(array, view, os.path.join(point, array), said["fragments"], None)
                for name, (command, reader) in NETCDF.items():
                    if shutil.which(command):
                        tally.one(name, array, lambda: reader(os.path.join(folder, "array.nc"), expected))
                for shown, bytes_of in grids.views(array):
                    images.view(array, shown, bytes_of)
    for lines in tally.failures.values():
        for line in lines[:8]:
            print("FAIL " + line)
    for line, count in sorted(tally.exceptions.items()):
        print(f"not read, {count} times: {line}")
    print("\n| reader | version | files | differing |\n|---|---|--:|--:|")
    for reader in VERSIONS:
        if tally.passed[reader] or tally.failures[reader]:
            print(f"| {reader} | {version(reader)} | {tally.passed[reader] + len(tally.failures[reader])} | {len(tally.failures[reader])} |")
    failed = sum(map(len, tally.failures.values()))
    print(f"{time.time() - start:.0f} s\n{sum(tally.passed.values())} passed, {failed} failed")
    sys.exit(1 if failed or not sum(tally.passed.values()) else 0)


if __name__ == "__main__":
    main()
