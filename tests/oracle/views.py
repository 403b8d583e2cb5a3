"""The oracle test of views: what libtiledb reads from arrays at many times and in many parts, against `data/` in a mount, byte for byte.

    python3 views.py --family FOLDER    arrays written for this, with libtiledb's answers: every view of theirs, and paths that must not exist
    python3 views.py --reads FOLDER     arrays of many releases, with libtiledb's answer for the whole array, now and at some times

`--share 1/3` takes all of `data` and a fixed third of the rest. The last line is `N passed, N failed`, counting views and absent paths.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import names
from capi import np_type
from facts import Raw, json_value
from mount import mounted
from shares import belongs, share
from truth import gather, lengths
from view_files import Differs, ViewComparison, ViewField, ViewTruth, contains, load, read, same

FAMILY_KEY = b"0123456789abcdeF0123456789abcdeF"
UNSHOWN = {"new-2.30/grp_deep/dropped"}
"""Arrays in a group's directory that are no longer members."""
SHOWN = 400
"""The most failures to print."""


class Tally:
    """The result of comparing one array."""

    def __init__(self):
        self.passed, self.failures, self.files, self.seconds = 0, [], 0, []

    def check(self, label, function, *args):
        """Counts one comparison."""
        start = time.time()
        try:
            function(*args)
            self.passed += 1
        except (Differs, OSError, KeyError, TypeError, ValueError) as error:
            text = str(error) if isinstance(error, Differs) else f"{type(error).__name__}: {error}"
            self.failures.append(f"{label}: {text}")
        self.seconds.append((time.time() - start, label))


def chosen(part, array, path):
    """Whether a view belongs to the share (part, of how many)."""
    return path == "data" or belongs(part, f"{array}/{path}")


# -- arrays written for this ---------------------------------------------------------------------------------


def family_view(doc, blob, view):
    """The truth of one view of a family."""
    dense = doc["array_type"] == "dense"

    def part(entry, name):
        return bytes(blob[entry[name][0] : sum(entry[name])]) if name in entry else None

    fields = []
    for index, entry in enumerate(view["fields"]):
        shape = [view["shape"][index]] if dense and entry["kind"] == "dimension" else view["shape"]
        parts = (part(entry, name) for name in ("data", "offsets", "validity"))
        fields.append(ViewField(entry["name"], entry["kind"], entry["datatype"], entry["cell_val_num"], entry["nullable"], shape, *parts))
    facts = {name: view[name] for name in ("schema", "metadata", "enumerations")}
    return ViewTruth(view["path"], view["time"], dense, view["order"], view["shape"], view["cells"], view["region"], fields, True, facts)


def family_array(family, point, array, share):
    """Compares one array of a family."""
    tally = Tally()
    base = os.path.join(family, "expected", array)
    doc = json.loads(Path(base + ".json").read_text())
    blob = memoryview(Path(base + ".bin").read_bytes())
    comparison = ViewComparison(os.path.join(point, array))
    for view in doc["views"]:
        if chosen(share, array, view["path"]):
            tally.check(f"{array} {view['path']}", comparison.compare, family_view(doc, blob, view))
    for path in doc["absent"]:
        if chosen(share, array, path):
            tally.check(f"{array} {path}", comparison.absent, path)
    tally.files = comparison.files
    return tally


# -- arrays of many releases ---------------------------------------------------------------------------------


def shown_path(point, path):
    """The path in a mount of the array `path` of its source: members of groups and labels have names of their own."""
    at = point
    parts = path.split("/")
    while parts:
        name = parts.pop(0)
        if name == "__labels":
            labels = load(os.path.join(at, "schema.json"))["dimension_labels"]
            uri = f"__labels/{parts.pop(0)}"
            at = os.path.join(at, "labels", next(names.encode(one["name"]) for one in labels if one["uri"] == uri))
            continue
        if os.path.exists(os.path.join(at, "group.json")):
            members = load(os.path.join(at, "group.json"))["members"]
            known = [m["name"] for m in members if m["uri"].rstrip("/").split("/")[-1] == name and m["name"]]
            name = known[0] if known else name
        at = os.path.join(at, names.encode(name))
    return at


class Answer:
    """What libtiledb read from a whole array: a folder with `fields.json` and its columns."""

    def __init__(self, folder):
        self.meta = json.loads(Path(folder, "fields.json").read_text())
        self.time = [None, self.meta["timestamp_end"]]
        self.path = "data" if self.time[1] is None else f"at/{names.instant(self.time[1])}/data"
        self.columns, self.files = [], 0
        for entry in self.meta["fields"]:
            parts = [np.fromfile(Path(folder, entry["file"] + e), t) if Path(folder, entry["file"] + e).exists() else None
                     for e, t in ((".data", "u1"), (".offs", "<u8"), (".valid", "u1"))]
            self.columns.append((entry, parts))

    def compare(self, at):
        """Compares it with the array shown at `at`."""
        if self.meta["empty"]:
            same(f"cells of {self.path}", load(os.path.join(at, self.path, "view.json"))["cells"], 0)
        elif "subarray" in self.meta:
            self._dense(at)
        else:
            self._sparse(at)

    def _dense(self, at):
        """The box that was read, and the box inside it that `data` shows."""
        box = self.meta["subarray"]
        shape = [hi - lo + 1 for lo, hi in box]
        asked = "/subarray/" + ",".join(f"{lo}..{hi}" for lo, hi in box)
        datatypes = [d["datatype"] for d in load(os.path.join(at, "schema.json"))["dimensions"]]
        covered = [[int(np.frombuffer(bytes.fromhex(end), np_type(t))[0]) for end in ends] for ends, t in zip(self.meta["non_empty_domain"], datatypes)]
        comparison = ViewComparison(at)
        cells = np.arange(int(np.prod(shape)))
        comparison.compare(self._view(self.path + asked, box, shape, cells))
        # The current domain may crop the covered box.
        covered = [[max(a, c), min(b, d)] for (a, b), (c, d) in zip(covered, box)]
        inside = tuple(slice(a - lo, b - lo + 1) for (a, b), (lo, _) in zip(covered, box))
        comparison.compare(self._view(self.path, covered, [b - a + 1 for a, b in covered], cells.reshape(shape)[inside].reshape(-1)))
        self.files = comparison.files

    def _view(self, path, region, shape, cells):
        fields = [self._field(entry, parts, shape, cells) for entry, parts in self.columns if entry["role"] == "attr"]
        return ViewTruth(path, self.time, True, "row-major", shape, cells.size, region, fields, False)

    @staticmethod
    def _field(entry, parts, shape, cells):
        data, offsets, validity = parts
        if offsets is not None:
            sizes = lengths(offsets, data.size)[cells]
            data = gather(data, offsets[cells], sizes)
            offsets = np.append(np.uint64(0), np.cumsum(sizes).astype("<u8")).astype("<u8").tobytes()
        else:
            data = data.reshape(-1, data.size // max(entry["cells"], 1))[cells]
        validity = None if validity is None else validity[cells].tobytes()
        return ViewField(entry["name"], "attribute", entry["type"], entry["cell_val_num"], bool(entry["nullable"]), shape, data.tobytes(), offsets, validity)

    def _sparse(self, at):
        """Compares cells in any order, because libtiledb was asked for another one."""
        folder = os.path.join(at, self.path)
        got = load(os.path.join(folder, "view.json"))
        count = self.columns[0][0]["cells"] if self.columns else 0
        contains("view.json", got, {"time_range": self.time, "dense": False, "shape": [count], "cells": count, "region": None})
        wanted, found = [], []
        for index, (entry, (data, offsets, validity)) in enumerate(self.columns):
            directory = names.attribute(entry["name"]) if entry["role"] == "attr" else names.dimension(entry["name"], index)
            where = os.path.join(folder, "columns", directory)
            wanted.append(rows(data.tobytes(), None if offsets is None else np.append(offsets, np.uint64(data.size)), validity, count))
            plain = read(os.path.join(where, "data.bin"))
            starts = None if offsets is None else np.frombuffer(read(os.path.join(where, "offsets.bin")), "<u8")
            valid = None if validity is None else np.frombuffer(read(os.path.join(where, "validity.bin")), "u1")
            found.append(rows(plain, starts, valid, count))
            same(f"values of {where}", sorted(found[-1]), sorted(wanted[-1]))
            self.files += 1 + (offsets is not None) + (validity is not None)
        same(f"cells of {folder}", sorted(zip(*found)), sorted(zip(*wanted)))


def rows(data, offsets, validity, count):
    """The cells of a column as a list of (validity, bytes)."""
    if offsets is None:
        size = len(data) // max(count, 1)
        cells = [data[i * size : (i + 1) * size] for i in range(count)]
    else:
        cells = [data[a:b] for a, b in zip(offsets.tolist(), offsets[1:].tolist())]
    return list(zip([1] * count if validity is None else validity.tolist(), cells))


def compare_metadata(at, moment, entries):
    """Array metadata at a time."""
    got = load(os.path.join(at, "at", names.instant(int(moment)), "metadata.json"))
    same(f"keys of at/{moment}/metadata.json", sorted(got), sorted(e["key"] for e in entries))
    for entry in entries:
        value = json_value(Raw(entry["type"], bytes.fromhex(entry["value_hex"])))
        same(f"{entry['key']} in at/{moment}/metadata.json", got[entry["key"]]["datatype"], entry["type"])
        if not isinstance(got[entry["key"]]["value"], list) and not entry["value_is_null"]:
            same(f"{entry['key']} in at/{moment}/metadata.json", got[entry["key"]]["value"], value)


def read_array(family, point, path, share):
    """Compares one array of many releases."""
    tally = Tally()
    top = Path(family, "expected", path + ".read")
    for folder in sorted([top, *top.glob("at_*")]):
        moment = folder.name.removeprefix("at_") if folder != top else None
        label = "data" if moment is None else f"at/{moment}/data"
        if not chosen(share, path, label):
            continue
        if (folder / "fields.json").exists():
            answer = Answer(folder)
            tally.check(f"{path} {label}", lambda answer=answer: answer.compare(shown_path(point, path)))
            tally.files += answer.files
        if moment and (folder / "metadata.json").exists():
            entries = json.loads((folder / "metadata.json").read_text())
            tally.check(f"{path} at/{moment}/metadata.json", lambda m=moment, e=entries: compare_metadata(shown_path(point, path), m, e))
    return tally


# -- running -------------------------------------------------------------------------------------------------


def work(job):
    """One array in a process of its own."""
    function, *args = job
    try:
        return args[2], function(*args)
    except Exception as error:  # noqa: BLE001 - one array must not end the test of the others
        tally = Tally()
        tally.failures.append(f"{args[2]}: {type(error).__name__}: {error}")
        return args[2], tally


def jobs(args, point):
    """The arrays to compare."""
    if args.family:
        function, family = family_array, os.path.realpath(args.family)
        arrays = [row["name"] for row in json.loads(Path(family, "expected/manifest.json").read_text())["arrays"]]
    else:
        function, family = read_array, os.path.realpath(args.reads)
        rows = json.loads(Path(family, "expected/manifest.json").read_text())["rows"]
        arrays = [row["path"] for row in rows if row["path"] not in UNSHOWN and Path(family, "expected", row["path"] + ".read").is_dir()]
    return [(function, family, str(point), array, args.share) for array in arrays if not args.array or args.array in array]


def main():
    """Compares a family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--family")
    which.add_argument("--reads")
    parser.add_argument("--array", help="only arrays whose name contains this")
    parser.add_argument("--share", type=share, help="`data`, and part N of M of the rest: N/M")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--failures", help="write all failures to this file")
    args = parser.parse_args()
    start, failures, passed, files, seconds = time.time(), [], 0, 0, []
    source = os.path.join(args.family or args.reads, "arrays")
    with tempfile.NamedTemporaryFile() as key:
        key.write(FAMILY_KEY)
        key.flush()
        options = ["--key-file", key.name] if args.reads else []
        with mounted(source, *options) as point, multiprocessing.Pool(args.processes) as pool:
            for _, tally in pool.imap_unordered(work, jobs(args, point)):
                passed += tally.passed
                files += tally.files
                seconds += tally.seconds
                for line in tally.failures:
                    if len(failures) < SHOWN:
                        print("FAIL " + line[:700], flush=True)
                    failures.append(line)
    if args.failures:
        Path(args.failures).write_text("".join(line + "\n" for line in sorted(failures)))
    slowest = max(seconds, default=(0, ""))
    print(f"{files} column files compared in {time.time() - start:.0f} s; the slowest view took {slowest[0]:.1f} s ({slowest[1]})")
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(1 if failures or not passed else 0)


if __name__ == "__main__":
    main()
