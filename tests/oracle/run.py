"""The oracle test: mounts arrays through the kernel and compares everything with what libtiledb reads.

    python3 run.py --set core|filters [--keep FOLDER]   writes the matrix of arrays, see matrix.py
    python3 run.py --source FOLDER                      any folder of arrays and groups
    python3 run.py --family FOLDER                      a folder with arrays/ and expected/, answers of libtiledb as files

Each is checked with `tiledbfs check` too, which must find it clean. The last line is `N passed, N failed`, counting arrays and groups, and one
for the check.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import names
from capi import Lib
from checking import BROKEN, compare_check
from compare import UNREADABLE_ARRAYS, ArrayComparison, Report, compare_group
from counts import Counts
from facts import Facts, is_array, is_group
from matrix import KEY
from mount import mounted
from truth import Reader, load_sidecar

HERE = Path(__file__).resolve().parent
REMOVED_MEMBERS = {"new-2.30/grp_deep/dropped"}
"""Arrays in a group's directory that are no longer members, and so not shown."""
FAMILY_KEY = b"0123456789abcdeF0123456789abcdeF"


def walk(facts, source, shown="", inside=None):
    """Everything that a mount of `source` shows: (kind, path in the source, path in the mount, the API's members of a group)."""
    inside = inside or source
    if is_array(source):
        yield "array", source, shown, None
    elif is_group(source):
        group = facts.group(source)
        yield "group", source, shown, group
        for member in group["members"]:
            path = member["uri"].rstrip("/")
            # Members elsewhere are listed but not shown.
            if path.startswith(source.rstrip("/") + "/") and os.path.isdir(path):
                name = member["name"] or os.path.basename(path)
                yield from walk(facts, path, os.path.join(shown, names.encode(name)), inside)
    else:
        for entry in sorted(os.scandir(source), key=lambda e: e.name):
            if entry.is_dir() and not entry.name.startswith("."):
                yield from walk(facts, entry.path, os.path.join(shown, entry.name), inside)


class Oracle:
    """Compares all that a mount shows."""

    def __init__(self, args):
        self.args, self.lib, self.report, self.counts = args, Lib(), Report(), Counts()
        self.passed = self.failed = 0
        self.visited = set()
        self.hashes = []

    def tree(self, source, key=None, encrypted=lambda path: False, family=None):
        """Mounts `source` and compares every array and group in it."""
        source = os.path.realpath(source)
        with self.key_options(key) as options, Reader(self.lib, self.args.scratch) as reader, contextlib.ExitStack() as stack:
            items = self.chosen(source, list(walk(reader.facts, source)))
            point = stack.enter_context(self.mounted(source, items, options))
            for kind, path, shown, group in items:
                relative = os.path.relpath(path, source)
                before = len(self.report.failures)
                self.report.read.clear()
                try:
                    secret = key if encrypted(relative) else None
                    self.one(kind, path, point / shown, group, reader, secret, family)
                except Exception as error:  # noqa: BLE001 - one array must not end the test of the others
                    self.report.fail(f"{relative}: {type(error).__name__}: {error}")
                    if self.args.traceback:
                        raise
                if len(self.report.failures) == before:
                    self.hashes += [f"{digest} {os.path.relpath(file, point)}\n" for file, digest in self.report.read.items()]
                self.passed += len(self.report.failures) == before
                self.failed += len(self.report.failures) != before
            if not self.args.only:
                before = len(self.report.failures)
                self.check(source, options)
                self.passed += len(self.report.failures) == before
                self.failed += len(self.report.failures) != before

    def chosen(self, source, items):
        """The arrays and groups in `source` to compare."""
        del source
        return items

    def mounted(self, source, items, options):
        """A mount of `source`."""
        del items
        return mounted(source, *options)

    def check(self, source, options):
        """Checks `source` with `tiledbfs check`."""
        compare_check(source, options, [path for path in BROKEN if os.path.isdir(os.path.join(source, path))], self.report)

    @staticmethod
    @contextlib.contextmanager
    def key_options(key):
        """The options that give the program the key of encrypted arrays."""
        with tempfile.TemporaryDirectory(prefix="tiledbfs-key-") as folder:
            path = Path(folder, "key")
            path.write_bytes(key or b"")
            yield ["--key-file", str(path)] if key else []

    def one(self, kind, path, folder, group, reader, key, family):
        """Compares one array, its dimension labels included, or one group."""
        if self.args.only and self.args.only not in path:
            return
        label = os.path.relpath(path, family + "/arrays" if family else self.root)
        self.visited.add(label)
        if kind == "group":
            before = len(self.report.failures)
            compare_group(folder, group, label, self.report)
            if len(self.report.failures) == before:
                self.counts.group(path)
            return
        if label in UNREADABLE_ARRAYS:
            self.unreadable(folder, label)
            return
        truth = reader.array(path, key)
        sidecar = load_sidecar(family, label) if family else None
        before = len(self.report.failures)
        ArrayComparison(folder, truth, label, self.report, sidecar).run()
        if len(self.report.failures) == before:
            self.counts.array(truth, label, bool(key))
        for one in truth.schema["dimension_labels"]:
            where = os.path.join(path, one["uri"])
            below = folder / "labels" / names.encode(one["name"])
            self.one("array", where, below, None, reader, key, family)

    def unreadable(self, folder, label):
        """An array that libtiledb cannot open, either: reading its schema is an error."""
        self.report.exceptions.append(f"{label}: {UNREADABLE_ARRAYS[label]}")
        try:
            (folder / "schema.json").read_bytes()
        except OSError:
            return
        self.report.fail(f"{label}: schema.json reads, though libtiledb does not open the array")

    def summary(self, start):
        """Prints the counts; the exit code."""
        total = {}
        for version, counts in sorted(self.report.counts.items(), key=lambda kv: (isinstance(kv[0], str), kv[0])):
            print(f"format version {version}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
            for what, n in counts.items():
                total[what] = total.get(what, 0) + n
        for line in self.report.exceptions:
            print("exception: " + line)
        print("compared " + ", ".join(f"{n} {what}" for what, n in total.items()) + f"; {self.report.checks} checks in {time.time() - start:.0f} s")
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0

    def write_and_compare(self, chosen, folder):
        """Writes one set of the matrix and compares it."""
        command = [sys.executable, str(HERE / "matrix.py"), "--set", chosen, folder]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        self.compare_written(folder)

    def compare_written(self, folder):
        """Compares one set of the matrix."""
        objects = json.loads(Path(folder, "matrix.json").read_text())["objects"]
        secret = {o["path"] for o in objects if o["encrypted"]}
        self.root = os.path.realpath(folder)
        self.tree(folder, KEY if secret else None, lambda path: path in secret)
        self.complete({o["path"] for o in objects if not o.get("hidden")})

    def family(self, folder):
        """Compares a family, with its sidecars too."""
        folder = os.path.realpath(folder)
        secret = set()
        for info in Path(folder, "arrays").glob("*/*.info.json"):
            if json.loads(info.read_text()).get("key"):
                secret.add(os.path.relpath(str(info).removesuffix(".info.json"), folder + "/arrays"))
        self.root = folder + "/arrays"
        self.tree(self.root, FAMILY_KEY, lambda path: path in secret, folder)
        rows = json.loads(Path(folder, "expected/manifest.json").read_text())["rows"]
        self.complete({r["path"] for r in rows} - REMOVED_MEMBERS)

    def complete(self, wanted):
        """Checks that every written object has been compared."""
        for path in sorted(wanted - self.visited):
            if not self.args.only:
                self.failed += not self.report.fail(f"{path}: not found in the mount's source, so not compared")


def main():
    """Runs one test."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--set", choices=("core", "filters"))
    which.add_argument("--source")
    which.add_argument("--family")
    parser.add_argument("--keep", help="write the matrix here, and leave it")
    parser.add_argument("--only", help="only arrays whose path contains this")
    parser.add_argument("--scratch", help="folder for scratch arrays")
    parser.add_argument("--counts", help="write what was compared to this file, for table.py")
    parser.add_argument("--hashes", help="write the SHA-256 and path of each column file that was found right to this file, for tests/load")
    parser.add_argument("--traceback", action="store_true")
    args = parser.parse_args()
    start, oracle = time.time(), Oracle(args)
    if args.source:
        oracle.root = os.path.realpath(args.source)
        oracle.tree(args.source)
    elif args.family:
        oracle.family(args.family)
    elif args.keep:
        os.makedirs(args.keep, exist_ok=True)
        oracle.write_and_compare(args.set, args.keep)
    else:
        with tempfile.TemporaryDirectory(prefix="tiledbfs-matrix-", dir=args.scratch) as folder:
            oracle.write_and_compare(args.set, folder)
    if args.counts:
        oracle.counts.write(args.counts, args.set or ("arrays of other releases" if args.family else Path(args.source).name))
    if args.hashes:
        Path(args.hashes).write_text("".join(oracle.hashes))
    sys.exit(oracle.summary(start))


if __name__ == "__main__":
    main()
