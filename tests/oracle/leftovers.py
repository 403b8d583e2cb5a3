"""What writers leave behind, held against libtiledb: commits whose fragments are gone, enumerations that were extended or dropped
after a fragment was written, arrays in a group that are no members.

    python3 leftovers.py

The last line is `N passed, N failed`.
"""

import contextlib
import errno
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tiledb

from checking import check
from damage import Checks
from mount import binary, errors, mounted

GONE = {
    "ok": ("__5_5_{0:032x}_10.ok", ""),
    "ok_new": ("__5_5_{0:032x}_22.ok", ""),
    "con_ok": ("__commits/__9_9_{1:032x}_22.con", "__5_5_{0:032x}_10.ok\n"),
    "wrt": ("__commits/__5_5_{0:032x}_22.wrt", ""),
    "con_wrt": ("__commits/__9_9_{1:032x}_22.con", "__commits/__5_5_{0:032x}_22.wrt\n"),
}
"""By name of an array: the file that commits a fragment which is not there, and its text."""


def write(path):
    """A sparse array of four cells."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32))
    tiledb.Array.create(path, tiledb.ArraySchema(domain, [tiledb.Attr("a", dtype=np.int32)], sparse=True))
    with tiledb.open(path, "w", timestamp=10) as array:
        array[np.arange(4)] = np.arange(4, dtype=np.int32)


def walk(folder):
    """The errors that `find` and `cat` meet: (path, errno)."""
    failed = []
    walked = os.walk(folder, onerror=lambda error: failed.append((os.path.relpath(error.filename, folder), errno.errorcode[error.errno])))
    for above, _, names in walked:
        for name in names:
            path = os.path.join(above, name)
            try:
                with open(path, "rb") as f:
                    f.read()
            except OSError as error:
                failed.append((os.path.relpath(path, folder), errno.errorcode[error.errno]))
    return failed


def read(path):
    """What libtiledb reads; None if it fails."""
    try:
        with tiledb.open(path) as array:
            return array[:]["a"].tolist()
    except tiledb.TileDBError:
        return None


def gone_fragments(checks, scratch):
    """Without fragments that `.ok` files commit libtiledb reads the array; without others it does not."""
    for name, (file, text) in GONE.items():
        write(os.path.join(scratch, name))
        with open(os.path.join(scratch, name, file.format(7, 9)), "w") as f:
            f.write(text.format(7, 9))
    with mounted(scratch) as point:
        for name in GONE:
            array, want = point / name, read(os.path.join(scratch, name))
            checks.equal(f"{name}: libtiledb reads it", want is not None, "ok" in name)
            failed = walk(array / "data")
            with open(array / "data/view.json") as f:
                view = json.load(f)
            code, findings, _ = check(os.path.join(scratch, name), ())
            found = [(finding["level"], finding["kind"]) for finding in findings if "does not exist" in finding["message"]]
            if want is None:
                listed = sorted(os.listdir(array / "data/columns/a"))
                checks.equal(f"{name}: files of a column", listed, ["data.bin", "data.npy"])
                checks.equal(f"{name}: every file but view.json", {e for _, e in failed}, {"EIO"})
                checks.equal(f"{name}: columns fail", {p for p, _ in failed if "columns" in p}, {f"columns/{f}/{p}" for f in "ax" for p in listed})
                checks.equal(f"{name}: view.json", ("missing" in (view["error"] or ""), view["cells"], view["shape"]), (True, None, None))
                checks.equal(f"{name}: check", (code, found), (1, [("problem", "commit")]))
            else:
                checks.equal(f"{name}: no error", failed, [])
                checks.equal(f"{name}: data", np.load(array / "data/columns/a/data.npy").tolist(), want)
                checks.equal(f"{name}: view.json", (view["error"], view["cells"]), (None, 4))
                checks.equal(f"{name}: check", (code, found), (0, [("note", "commit")]))


def evolve(path, change):
    """Changes the schema of an array."""
    evolution = tiledb.ArraySchemaEvolution(tiledb.default_ctx())
    change(evolution)
    evolution.array_evolve(path)


def bind(path):
    """Makes a socket; its address is short."""
    with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(path.parent):
        bound.bind(path.name)


ODD = {"dangling": lambda path: path.symlink_to("nowhere"), "circle": lambda path: path.symlink_to(path.name), "socket": bind, "directory": Path.mkdir}
"""What may be there in place of a file."""

NEW = f"__30_30_{7:032x}"

PLACES = [
    *("__commits/*.wrt", f"__commits/{NEW}_22.wrt", f"__commits/{NEW}_22.con", f"__commits/{NEW}_22.ign", f"__commits/{NEW}_22.vac", "__commits/readme"),
    *("__fragments/*", f"__fragments/{NEW}_22", "__fragments/*/__fragment_metadata.tdb", "__fragments/*/a0.tdb", "__schema/__[0-9]*", f"__schema/{NEW}"),
    *("__meta/*", f"__meta/{NEW}", f"__meta/{NEW}.vac", "__schema/__enumerations", "__meta", "__commits", "__fragments", "__schema", "__fragment_meta"),
]
"""Where: the first path in an array that fits, or a new one."""


def special_files(checks, scratch):
    """Something else in place of a file. Where libtiledb fails so do we, and else both read the same: nothing counts as absent."""
    scratch = Path(scratch)
    write(str(scratch / "whole"))
    with tiledb.open(str(scratch / "whole"), "w", timestamp=20) as array:
        array.meta["key"] = 1
    for place, (kind, make) in itertools.product(PLACES, ODD.items()):
        copy = scratch / f"{PLACES.index(place)}-{kind}"
        shutil.copytree(scratch / "whole", copy)
        path = min(copy.glob(place), default=copy / place)
        if path.is_dir() and kind == "directory":
            continue
        if path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)

    def metadata(path):
        try:
            with tiledb.open(path) as array:
                return dict(array.meta)
        except tiledb.TileDBError:
            return None

    def ours(path, parse):
        try:
            return parse(path.read_bytes())
        except OSError as error:
            return None if error.errno == errno.EIO else errno.errorcode[error.errno]

    with mounted(scratch) as point:
        for copy in sorted(path.name for path in scratch.iterdir()):
            number, _, kind = copy.partition("-")
            what = f"{kind} at {PLACES[int(number)]}" if kind else copy
            got = ours(point / copy / "data/columns/a/data.bin", lambda data: np.frombuffer(data, np.int32).tolist())
            checks.equal(f"{what}: cells", got, read(str(scratch / copy)))
            got = ours(point / copy / "metadata.json", lambda text: {key: pair["value"] for key, pair in json.loads(text).items()})
            # Cells are an error for more than metadata is.
            want = metadata(str(scratch / copy))
            checks.equal(f"{what}: metadata", want is None and got is not None and read(str(scratch / copy)) is None or got == want, True)
        before = len(errors(point))
        checks.equal("special files: lines in errors.jsonl", before > 0, True)


def stray_names(checks, scratch):
    """What another program left among the schemas: libtiledb does not open the array, we read it, and check tells."""
    for number, name in enumerate((".DS_Store", "__1_2", "readme.tmp")):
        path = os.path.join(scratch, f"array{number}")
        write(path)
        want = read(path)
        Path(path, "__schema", name).touch()
        checks.equal(f"{name}: libtiledb reads it", read(path), None)
        code, findings, _ = check(path, ())
        checks.equal(f"{name}: check", (code, [(f["level"], f["kind"]) for f in findings]), (0, [("note", "name")]))
        with mounted(path) as point:
            checks.equal(f"{name}: data", np.load(point / "data/columns/a/data.npy").tolist(), want)


def enumerations(checks, scratch):
    """The values of an enumeration are those of the newest schema that has the attribute."""
    path = os.path.join(scratch, "enumerated")
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32))
    attributes = [tiledb.Attr(name, dtype=np.int8, enum_label="e") for name in "abc"] + [tiledb.Attr("n", dtype=np.int32)]
    empty = tiledb.Enumeration("e", False, dtype="U")
    tiledb.Array.create(path, tiledb.ArraySchema(domain, attributes, enums=[empty], sparse=True))
    with tiledb.open(path, "w") as array:
        indexes = {"a": [0, 1, 2, 1], "b": [2, 1, 0, 0], "c": [0, 3, 2, 1]}
        array[np.arange(4)] = {"n": np.arange(4, dtype=np.int32), **{k: np.array(v, np.int8) for k, v in indexes.items()}}
    with tiledb.open(path) as array:
        longer = array.enum("e").extend(["x", "y", "z"])

    def outside():
        code, findings, _ = check(path, ())
        return code, [(f["level"], f["part"]) for f in findings if f["kind"] == "enumeration"], len(findings)

    for what, change in (
        ("extended", lambda evolution: evolution.extend_enumeration(longer)),
        ("an attribute dropped", lambda evolution: evolution.drop_attribute("a")),
        ("another dropped", lambda evolution: evolution.drop_attribute("c")),
    ):
        evolve(path, change)
        checks.equal(f"enumeration, {what}", outside(), (0, [("note", "field `c`")], 1))


def groups(checks, scratch):
    """A group with a member, one elsewhere, and an array and a group that were never added."""
    path, away = os.path.join(scratch, "group"), os.path.join(scratch, "away")
    tiledb.Group.create(path)
    for name in ("member", "stray"):
        write(os.path.join(path, name))
    tiledb.Group.create(os.path.join(path, "lost"))
    os.makedirs(os.path.join(path, "plain/deeper"))
    write(os.path.join(path, "plain/deeper/inside"))
    write(away)
    with tiledb.Group(path, "w") as group:
        group.add("member", "member", relative=True)
        group.add("plain/deeper/inside", "inside", relative=True)
        group.add(f"file://{away}", "away")
    want = [{"name": "lost", "type": "GROUP"}, {"name": "stray", "type": "ARRAY"}]
    with mounted(path) as point:
        with open(point / "group.json") as f:
            details = json.load(f)
        checks.equal("group.json: unregistered", sorted(details["unregistered"], key=lambda one: one["name"]), want)
        checks.equal("group.json: members", len(details["members"]), 3)
        write(os.path.join(path, "plain"))
        # Changes are seen within a second.
        time.sleep(1.5)
        with open(point / "group.json") as f:
            text = f.read()
        size = os.stat(point / "group.json").st_size
        checks.equal("group.json: a directory that became an array", ({"name": "plain", "type": "ARRAY"} in json.loads(text)["unregistered"], size), (True, len(text)))
    shutil.rmtree(os.path.join(path, "plain/__schema"))
    done = subprocess.run([binary(), "info", path], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    checks.equal("info: the group", lines[0], f"{path}: group, 2 members, 1 member elsewhere, 2 unregistered")
    checks.equal("info: elsewhere", [line.split("── ", 1)[-1] for line in lines[1:] if "elsewhere," in line], [f"away: elsewhere, file://{away}"])
    checks.equal("info: an array that is no member", [line.split("── ", 1)[-1] for line in lines if "stray" in line], ["stray: array, not registered in the group"])
    code, findings, _ = check(path, ())
    found = sorted((f["level"], f["kind"], f["path"].removeprefix(path).strip("/")) for f in findings if "no member" in f["message"])
    checks.equal("check", (code, found), (0, [("note", "group", "lost"), ("note", "group", "stray")]))


def main():
    """Runs all checks."""
    checks = Checks()
    for one in (gone_fragments, special_files, stray_names, enumerations, groups):
        with tempfile.TemporaryDirectory(prefix="tiledbfs-leftovers-") as scratch:
            one(checks, scratch)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
