"""Damages copies of the sample's arrays and mounts them: what is concerned fails with EIO and a line in `errors.jsonl` that names the file; everything
else stays byte for byte as it was, what needs the file in `data/` fails with it, and no read gives other bytes; the mount lives on. Then flips bytes at random, many at a time, to see that nothing worse happens.

The last line is `N passed, N failed`.
"""

import contextlib
import errno
import json
import os
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mount import ROOT, errors, mounted
from plain_tools import Checks

SAMPLE = ROOT / "tests/data/sample"
FLIPS = 150


def outcome(path):
    """The bytes of a file, or the error's name."""
    try:
        return path.read_bytes()
    except OSError as error:
        return errno.errorcode[error.errno]


def listing(path):
    """The names in a directory, or the error's name."""
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return errno.errorcode[error.errno]


def contents(root):
    """{path relative to `root`: bytes, or the error's name} of every file, except those about the mount."""
    out = {}

    def note(error):
        out[os.path.relpath(error.filename, root)] = errno.errorcode[error.errno]

    for folder, subfolders, names in os.walk(root, onerror=note):
        subfolders[:] = [s for s in subfolders if s != ".tiledbfs"]
        for name in names:
            path = Path(folder, name)
            out[os.path.relpath(path, root)] = outcome(path)
    return out


def flip(path, offset, mask=0xFF):
    """Inverts bits of one byte; negative offsets count from the end."""
    raw = bytearray(path.read_bytes())
    raw[offset] ^= mask
    path.write_bytes(raw)


def footer_start(path):
    """The start of the footer of a fragment's metadata file, whose last eight bytes are the footer's length."""
    raw = path.read_bytes()
    return len(raw) - 8 - struct.unpack("<Q", raw[-8:])[0]


CASES = {
    # name: (array, file in the fragment, what to do with it, pattern of the files that must fail)
    "truncated data file": ("weather", "a0.tdb", lambda p: os.truncate(p, p.stat().st_size // 2), "columns/temperature/data.bin"),
    "empty data file": ("weather", "a2.tdb", lambda p: os.truncate(p, 0), "columns/wind/data.bin"),
    "byte flipped in a chunk header": ("weather", "a0.tdb", lambda p: flip(p, 8), "columns/temperature/data.bin"),
    "byte flipped in the number of chunks": ("weather", "a4.tdb", lambda p: flip(p, 0), "columns/sky/data.bin"),
    "byte flipped in compressed data": ("weather", "a5_var.tdb", lambda p: flip(p, p.stat().st_size // 2), "columns/note/data.bin"),
    "byte flipped under a checksum": ("lightning", "a1.tdb", lambda p: flip(p, -1), "columns/current/data.bin"),
    "byte flipped in offsets": ("lightning", "a2.tdb", lambda p: flip(p, p.stat().st_size // 2), "columns/network/offsets.bin"),
    "directory in place of a data file": ("weather", "a0.tdb", lambda p: (os.remove(p), os.mkdir(p)), "columns/temperature/data.bin"),
    "missing data file": ("weather", "a0.tdb", os.remove, "columns/temperature/data.bin"),
    "missing validity file": ("weather", "a1_validity.tdb", os.remove, "columns/rain/validity.bin"),
    "corrupt footer": ("weather", "__fragment_metadata.tdb", lambda p: flip(p, footer_start(p) + 4), "footer.json"),
    "corrupt length of the footer": ("weather", "__fragment_metadata.tdb", lambda p: flip(p, -1), "footer.json"),
    "truncated fragment metadata": ("lightning", "__fragment_metadata.tdb", lambda p: os.truncate(p, 100), "footer.json"),
    "missing fragment metadata": ("weather", "__fragment_metadata.tdb", os.remove, "footer.json"),
}


def damaged(array, scratch, file, do):
    """A copy of an array of the sample with one file of its first fragment damaged: the copy and the fragment's name."""
    copy = Path(scratch) / array
    shutil.copytree(SAMPLE / array, copy)
    fragment = sorted((copy / "__fragments").iterdir())[0]
    do(fragment / file)
    return copy, fragment.name


def one_case(checks, name, case, whole):
    """One kind of damage."""
    array, file, do, expected = case
    metadata = file == "__fragment_metadata.tdb"
    with tempfile.TemporaryDirectory(prefix="tiledbfs-damage-") as scratch:
        copy, fragment = damaged(array, scratch, file, do)
        with mounted(copy) as point:
            columns = sorted(p for p in whole if p.startswith("data/columns/"))
            merged_error(checks, name, point, fragment, file, columns[0] if metadata else f"data/{expected}")
            target = point / "fragments" / fragment / expected
            try:
                target.read_bytes()
                got = "no error"
            except OSError as error:
                got = errno.errorcode[error.errno]
            checks.equal(f"{name}: {expected}", got, "EIO")
            lines = [e for e in errors(point) if fragment in (e["file"] or "") and file in (e["file"] or "")]
            checks.equal(f"{name}: errors.jsonl names {file}", bool(lines), True)
            now = contents(point)
            concerned = f"fragments/{fragment}/", "data/columns/"
            if not metadata:
                concerned = f"fragments/{fragment}/{os.path.dirname(expected)}/", f"data/{os.path.dirname(expected)}/"
            # Documents in which such a fragment is an error are checked separately.
            documents = {"fragments.json", "data/view.json"} if metadata else {"fragments.json"}
            exports = {p for p in whole if p.startswith("data/") and not p.startswith("data/columns/") and p != "data/view.json"}
            others = {p for p in whole if not p.startswith(concerned) and p not in documents} - exports
            changed = sorted(p for p in others if now.get(p) != whole[p])
            checks.equal(f"{name}: everything else is as it was", changed, [])
            odd = {p: v for p, v in now.items() if isinstance(v, str) and v != "EIO"}
            checks.equal(f"{name}: no error but EIO", odd, {})
            # An export fails as soon as it needs the damaged file; a table needs all files.
            wrong = sorted(p for p in exports if now.get(p) != whole[p] and "EIO" not in {now.get(above) for above in (p, *map(str, Path(p).parents))})
            checks.equal(f"{name}: exports are as they were, or fail", wrong, [])
            checks.equal(f"{name}: table.csv fails", now.get("data/table.csv"), "EIO")
            merged_files(checks, name, point, whole, now, fragment, None if metadata else f"data/{expected}")
            checks.equal(f"{name}: the mount lives", (point / "schema.json").read_bytes() == whole["schema.json"], True)


def merged_error(checks, name, point, fragment, file, path):
    """The first read is of a column of `data/` that needs the damaged file."""
    try:
        (point / path).read_bytes()
        got = "no error"
    except OSError as error:
        got = errno.errorcode[error.errno]
    checks.equal(f"{name}: {path}", got, "EIO")
    lines = [e for e in errors(point) if e["path"] == path and fragment in (e["file"] or "") and file in e["file"]]
    checks.equal(f"{name}: errors.jsonl names the fragment for {path}", bool(lines), True)


def merged_files(checks, name, point, whole, now, fragment, expected):
    """`data/` with a damaged fragment: `expected`, or all columns, fail; pages that can be read equal those of the whole array."""
    fail = [expected] if expected else sorted(p for p in whole if p.startswith("data/columns/"))
    checks.equal(f"{name}: {expected or 'data/columns'} fails", {now.get(p) for p in fail}, {"EIO"})
    view = json.loads(now["data/view.json"]) if isinstance(now["data/view.json"], bytes) else {}
    checks.equal(f"{name}: view.json names the fragment", fragment in (view.get("fragments", []) if expected else view.get("error") or ""), True)
    wrong = []
    for path in sorted(p for p in whole if p.startswith("data/columns/")):
        with contextlib.suppress(OSError), open(point / path, "rb", buffering=0) as f:
            for at in range(0, len(whole[path]), 4096):
                with contextlib.suppress(OSError):
                    if os.pread(f.fileno(), 4096, at) != whole[path][at : at + 4096]:
                        wrong.append((path, at))
    checks.equal(f"{name}: no other bytes in data/", wrong, [])


def missing_fragment(checks, array):
    """A fragment that is committed but missing: all of `data/` but `view.json` fails, as opening the array does."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-damage-") as scratch:
        copy, fragment = damaged(array, scratch, "", shutil.rmtree)
        with mounted(copy) as point:
            now = contents(point)
            read = sorted(p for p, v in now.items() if p.startswith("data/") and isinstance(v, bytes))
            checks.equal(f"{array}, a committed fragment is missing: what is read of data/", read, ["data/view.json"])
            view = json.loads(now["data/view.json"])
            checks.equal(f"{array}, a committed fragment is missing: view.json", (fragment.split("_")[4] in view["error"], view["shape"]), (True, None))
            lines = [e for e in errors(point) if e["path"].startswith("data") and fragment.split("_")[4] in e["error"]]
            checks.equal(f"{array}, a committed fragment is missing: errors.jsonl names it", bool(lines), True)
            checks.equal(f"{array}, a committed fragment is missing: schema.json", isinstance(now.get("schema.json"), bytes), True)


def damaged_group(checks):
    """A group whose details are damaged, and then one that is gone: it is never empty. Lines in the log begin with a path."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-damage-") as scratch:
        source, log = Path(scratch) / "source", Path(scratch) / "log"
        shutil.copytree(SAMPLE, source / "group")
        for file in (source / "group/__group").iterdir():
            os.truncate(file, file.stat().st_size // 2)
        with mounted(source / "group") as mount:
            checks.equal("group as the source: listing", listing(mount), "EIO")
            checks.equal("group as the source: another file", isinstance(outcome(mount / "metadata.json"), bytes), True)
        with mounted(source, "-o", f"log_file={log}") as mount:
            point = mount / "group"
            for what, expected in (("damaged details", ["metadata.json"]), ("gone", [])):
                checks.equal(f"group, {what}: listing", listing(point), "EIO")
                names = ("group.json", "metadata.json", "weather", "none")
                read = [name for name in names if isinstance(outcome(point / name), bytes)]
                checks.equal(f"group, {what}: what can be read", read, expected)
                shutil.rmtree(source, ignore_errors=True)
                time.sleep(1)
            checks.equal("group, gone: listing of the root", listing(mount), "EIO")
        lines = [line.partition("] ")[2] for line in log.read_text().splitlines() if "ERROR" in line]
        checks.equal("group: lines in the log that begin without a path", (len(lines) > 1, [line for line in lines if line.startswith(":")]), (True, []))


def random_flips(checks):
    """Copies of an array, each with a random byte flipped, under one mount: files read to their size or fail with EIO, wherever the byte is."""
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="tiledbfs-flips-") as scratch:
        for i in range(FLIPS):
            array = ("weather", "lightning")[i % 2]
            copy = Path(scratch) / f"{i:03}"
            shutil.copytree(SAMPLE / array, copy)
            files = sorted(p for p in copy.rglob("*") if p.is_file() and p.stat().st_size)
            path = files[rng.integers(len(files))]
            flip(path, int(rng.integers(path.stat().st_size)), 1 << int(rng.integers(8)))
        with mounted(scratch) as point:
            now = contents(point)
            odd = {p: v for p, v in now.items() if isinstance(v, str) and v != "EIO"}
            checks.equal(f"{FLIPS} random flips: no error but EIO", odd, {})
            short = [p for p, v in now.items() if isinstance(v, bytes) and os.stat(point / p).st_size != len(v)]
            checks.equal(f"{FLIPS} random flips: what reads has the size of stat", short, [])
            checks.equal(f"{FLIPS} random flips: the mount lives", len(os.listdir(point)) >= FLIPS, True)
            failed = sum(isinstance(v, str) for v in now.values())
            print(f"     {len(now)} files, {failed} of them EIO")


def main():
    """Runs all checks."""
    start, checks, whole = time.time(), Checks(), {}
    for array in ("weather", "lightning"):
        # From a copy, because a document may contain the path of the array.
        with tempfile.TemporaryDirectory(prefix="tiledbfs-whole-") as scratch:
            shutil.copytree(SAMPLE / array, Path(scratch) / array)
            with mounted(Path(scratch) / array) as point:
                whole[array] = contents(point)
                bad = sorted(p for p, v in whole[array].items() if isinstance(v, str))
                checks.equal(f"{array} reads whole", bad, [])
    for name, case in CASES.items():
        one_case(checks, name, case, whole[case[0]])
    for array in ("weather", "lightning"):
        missing_fragment(checks, array)
    damaged_group(checks)
    random_flips(checks)
    print(f"damage: {time.time() - start:.1f} s")
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
