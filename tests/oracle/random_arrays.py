"""Hunts for wrong bytes with random arrays: `python3 random_arrays.py --seed N --count N [--library PATH] [--keep FOLDER]`.

Array `i` of a seed is always the same (but for identifiers in names): schema, values and life come from `random_schemas.py` and `random_lives.py`. Each one is written
in a process of its own, because libtiledb may crash on what it is given; those arrays are thrown away. Then a mount of a batch is compared with
libtiledb 2.30 as `run.py` does it, `tiledbfs check` must find nothing, `ls` and `cat` must show what the mount shows, and parts of columns, read
past the page cache at random places, must be parts of the whole. Arrays with differences stay in the folder given with `--keep`, and `--only I`
writes array `I` alone and prints its life. `--library` lets another release write (the shared library out of a wheel of TileDB-Py).
"""

import argparse
import ctypes as ct
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import names
import random_lives
from capi import Lib, library_path
from compare import fragment_folders
from facts import Facts
from mount import binary, mounted
from random_schemas import Draw, Refused
from run import Oracle
from truth import Reader

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "data"))
from old_capi import OldLib  # noqa: E402

BATCH = 20
SECONDS = 120
"""The most seconds for writing or comparing one array."""
KEY = b"0123456789abcdeffedcba9876543210"


class PiecesLib(OldLib):
    """`Lib` with writing in global order by several submits."""

    def write_pieces(self, uri, pieces, timestamp, key):
        """Writes one fragment; the cells of `pieces` are in global order."""
        array = self.open(uri, 1, timestamp, key)
        query = self.get("tiledb_query_alloc", array, 1)
        try:
            self.call("tiledb_query_set_layout", query, 2)
            for columns in pieces:
                sizes = {}
                for name, one in columns.items():
                    self._set_buffer(query, name, one, sizes)
                self.call("tiledb_query_submit", query)
            self.call("tiledb_query_finalize", query)
        finally:
            self.c.tiledb_query_free(ct.byref(query))
            self.close(array)


def apart(function, *args):
    """The result of a function (as JSON) in a process of its own; ("crash", how) if it does not return."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(SECONDS)
        try:
            out = ["ok", function(*args)]
        except Refused:
            out = ["refused", None]
        except BaseException:  # noqa: BLE001 - the parent is to hear of it
            out = ["error", traceback.format_exc()]
        with os.fdopen(write, "w") as pipe:
            json.dump(out, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    try:
        return json.loads(text)
    except ValueError:
        return ["crash", f"signal {status & 127}"]


def secret(draw, release):
    """Whether an array is encrypted."""
    return release >= (2, 8) and draw.chance(0.07)


def write(library, uri, seed, index):
    """Writes one array; its life."""
    lib = PiecesLib(library)
    draw = Draw(seed, index)
    life = random_lives.Life(lib, uri, draw, lib.release, KEY if secret(draw, lib.release) else None)
    try:
        life.live()
    finally:
        life.log.append("encrypted" if life.key else "plain")
    for folder in fragment_folders(uri):
        for path in (f"{uri}/{folder}", f"{uri}/__fragments/{folder}"):
            if os.path.isdir(path) and not os.path.exists(path + "/__fragment_metadata.tdb"):
                shutil.rmtree(path)  # libtiledb refused the cells half-way
    return life.log


def compare(folder, path, shown, point, key, group):
    """Compares one object of a mount with libtiledb."""
    oracle = Oracle(argparse.Namespace(only=None, scratch=None, traceback=False))
    oracle.root = folder
    with Reader(oracle.lib, os.path.dirname(folder)) as reader:
        if group:
            oracle.one("group", path, Path(point) / shown, reader.facts.group(path), reader, None, None)
        else:
            oracle.one("array", path, Path(point) / shown, None, reader, key, None)
    counts = {}
    for version, of in oracle.report.counts.items():
        counts[str(version)] = dict(of)
    return oracle.report.failures, oracle.report.checks, counts


def slices(draw, folder):
    """Reads parts of column files past the page cache and compares them with the whole; (failures, number of reads)."""
    paths = (Path(at, n) for at, _, files in os.walk(folder) for n in sorted(files))
    found = [p for p in paths if p.suffix in (".bin", ".npy") and p.stat().st_size]
    failures, reads = [], 0
    for path in draw.sample(found, min(len(found), 12)):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError as error:
            failures.append(f"{path}: {error}")
            continue
        try:
            whole = path.read_bytes()
            for _ in range(12):
                at = draw.randint(0, len(whole) + 3)
                size = draw.choice([1, 7, 8, 100, 4096, draw.randint(1, len(whole) + 9)])
                got = os.pread(handle, size, at)
                reads += 1
                if got != whole[at : at + size]:
                    failures.append(f"{path}: {size} bytes at {at} are not part of the whole")
        except OSError as error:
            failures.append(f"{path}: {error}")
        finally:
            os.close(handle)
    return failures, reads


def beside(draw, source, point, options):
    """`ls` and `cat` against the mount; (failures, checks)."""
    failures = []
    done = subprocess.run([binary(), "ls", "-R", source, *options], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        return [f"ls -R {source}: {done.stderr}"], 1
    files = [Path(at, n) for at, _, found in os.walk(point) for n in sorted(found) if ".tiledbfs" not in at]
    for path in draw.sample(files, min(len(files), 6)):
        relative = os.path.relpath(path, point)
        if path.name not in done.stdout:
            failures.append(f"ls -R does not list {relative}")
        got = subprocess.run([binary(), "cat", source, relative, *options], capture_output=True, timeout=SECONDS)
        if got.returncode or got.stdout != path.read_bytes():
            failures.append(f"cat {relative}: other bytes than the mount's; {got.stderr[:300]}")
    return failures, 6


class Hunt:
    """Writes and compares batch after batch."""

    def __init__(self, args):
        self.args, self.library = args, args.library or library_path()
        self.total = dict.fromkeys(("arrays", "groups", "refused", "crashed", "checks", "reads", "notes", "unread", "passed", "failed"), 0)
        self.counts, self.unread = {}, []
        self.release = apart(lambda: OldLib(self.library).release)[1]

    def batch(self, first, count):
        """One batch."""
        with tempfile.TemporaryDirectory(prefix="tiledbfs-random-", dir=self.args.scratch) as top:
            folder, logs = os.path.join(top, "arrays"), {}
            os.mkdir(folder)
            for index in range(first, first + count):
                kind, what = apart(write, self.library, f"{folder}/{index}", self.args.seed, index)
                if kind == "ok":
                    logs[index] = what
                    if self.args.only is not None:
                        print("\n".join(what))
                    continue
                self.total["refused" if kind == "refused" else "crashed"] += 1
                if kind == "error" or self.args.only is not None:
                    print(f"array {index} not written: {kind} {what}", flush=True)
                shutil.rmtree(f"{folder}/{index}", ignore_errors=True)
            if self.release >= [2, 12] and logs:
                self.group(folder, first)
            if logs:
                self.look(top, folder, logs, first)

    def group(self, folder, first):
        """A group with some of the batch in it."""
        draw = Draw(self.args.seed, first + 1_000_000)
        members = draw.sample(sorted(os.listdir(folder)), min(4, len(os.listdir(folder))))
        os.mkdir(folder + "/group")
        for name in members:
            os.rename(f"{folder}/{name}", f"{folder}/group/{name}")
        kind, what = apart(lambda: random_lives.grow_group(PiecesLib(self.library), folder + "/group", draw, members))
        if kind != "ok":
            print(f"group of {first}: {kind} {what}")

    def look(self, top, folder, logs, first):
        """Compares the batch."""
        draw = Draw(self.args.seed, first + 2_000_000)
        key = os.path.join(top, "key")
        Path(key).write_bytes(KEY)
        options = ["--key-file", key] if any(log[-1] == "encrypted" for log in logs.values()) else []
        failed, lost_of = {}, {}
        with mounted(folder, *options) as point:
            for kind, path, shown in self.objects(folder):
                name = os.path.basename(path)
                log = logs.get(int(name)) if name.isdigit() else None
                wanted = KEY if log and log[-1] == "encrypted" else None
                outcome, what = apart(compare, folder, path, shown, str(point), wanted, kind == "group")
                self.total["arrays" if kind == "array" else "groups"] += 1
                if outcome != "ok":
                    failed.setdefault(path, []).append(f"libtiledb: {outcome} {what}")
                    continue
                failures, checks, counts = what
                self.total["checks"] += checks
                for version, of in counts.items():
                    for one, n in of.items():
                        self.counts.setdefault(version, {}).setdefault(one, 0)
                        self.counts[version][one] += n
                if kind == "array":
                    more, reads = slices(draw, point / shown)
                    self.total["reads"] += reads
                    failures += more
                unread = [line for line in failures if "libtiledb does not read it" in line]
                self.total["unread"] += len(unread)
                self.unread += [(name, line) for line in unread]
                lost = {re.search("field '(.*?)': libtiledb", line)[1] for line in unread}
                # tiledbfs may or may not fail as well; there is nothing to compare with.
                failures = [line for line in failures if line not in unread and not any(f"/{names.attribute(x)}/" in line for x in lost)]
                lost_of[path] = lost
                if failures:
                    failed[path] = failures
            more, checks = beside(draw, folder, point, options)
            self.total["checks"] += checks
            if more:
                failed[folder] = more
        done = subprocess.run([binary(), "check", "--quiet", folder, *options], capture_output=True, text=True, timeout=600)
        for line in (done.stdout + done.stderr).splitlines():
            if line.startswith("note: "):
                self.total["notes"] += 1
            elif line.strip():
                name = next((x for x in line.replace(":", "/").split("/") if x.strip().isdigit() and int(x) in logs), None)
                where = next((p for _, p, _ in self.objects(folder) if os.path.basename(p) == name), folder)
                if not any(f"`{x}`" in line for x in lost_of.get(where, ())):
                    failed.setdefault(where, []).append(f"check: {line}")
        self.tell(failed, logs)
        self.total["failed"] += len(failed)
        self.total["passed"] += len(logs) - len(failed)

    def objects(self, folder):
        """(kind, path, path in the mount) of the objects of the batch, as `group` arranged them."""
        for name in sorted(os.listdir(folder)):
            path = f"{folder}/{name}"
            if name != "group":
                yield "array", path, name
                continue
            outcome, members = apart(lambda: [(m["uri"], m["name"]) for m in Facts(Lib()).group(path)["members"]])  # noqa: B023
            if outcome != "ok":
                print(f"libtiledb cannot read the group of {folder}: {members}", flush=True)
                continue
            yield "group", path, name
            for uri, called in members:
                kind = "group" if os.path.basename(uri) == "inner" else "array"
                yield kind, uri.rstrip("/"), name + "/" + names.encode(called or os.path.basename(uri.rstrip("/")))

    def tell(self, failed, logs):
        """Prints what differs, and keeps the arrays."""
        for path, failures in failed.items():
            print(f"FAIL {path}", flush=True)
            for line in failures[:8]:
                print("    " + line[:700])
            if len(failures) > 8:
                print(f"    and {len(failures) - 8} more")
            if self.args.keep and os.path.isdir(path) and os.path.basename(path).isdigit():
                to = os.path.join(self.args.keep, f"{'.'.join(map(str, self.release))}_{self.args.seed}_{os.path.basename(path)}")
                shutil.copytree(path, to, dirs_exist_ok=True)
                name = os.path.basename(path)
                Path(to + ".log").write_text("\n".join(logs.get(int(name), [])) + "\n\n" + "\n".join(failures) + "\n")


def main():
    """Runs the hunt."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--library")
    parser.add_argument("--scratch")
    parser.add_argument("--keep")
    parser.add_argument("--verbose", action="store_true", help="print totals after every batch")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no mount behind
    start, hunt = time.time(), Hunt(args)
    ct.CDLL(hunt.library)
    if args.only is not None:
        hunt.batch(args.only, 1)
    else:
        for first in range(args.first, args.first + args.count, BATCH):
            hunt.batch(first, min(BATCH, args.first + args.count - first))
            if args.verbose:
                print(f"{first}: {hunt.total} {hunt.counts}", flush=True)
    for version, of in sorted(hunt.counts.items()):
        print(f"format version {version}: " + ", ".join(f"{n} {what}" for what, n in of.items()))
    print(f"libtiledb {hunt.release}, seed {args.seed}: " + ", ".join(f"{n} {what}" for what, n in hunt.total.items()) + f"; {time.time() - start:.0f} s")
    print(f"{hunt.total['passed']} passed, {hunt.total['failed']} failed")
    sys.exit(1 if hunt.total["failed"] else 0)


if __name__ == "__main__":
    main()
