"""Reads a mount with everyday tools, which must all see the same bytes. Then checks by the counters that reading is lazy.

Needs jq, hexdump, od, dd, cp, cmp, tail, wc, stat, rsync, and exFAT in FUSE. The last line is `N passed, N failed, N skipped`.
"""

import errno
import filecmp
import mmap
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from capi import Attr, Column, Dim, Lib, Pipeline, Schema
from mount import ROOT, binary, mounted, stats

SAMPLE = ROOT / "tests/data/sample"
CHUNK = 65_536
CELLS = 1 << 20


class Checks:
    """Counts checks."""

    def __init__(self):
        self.passed = self.failed = 0

    def equal(self, what, got, want):
        """One check."""
        good = got == want
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": got {str(got)[:200]}, expected {str(want)[:200]}"), flush=True)


def run(*command, cwd=None):
    """The standard output of a command that must succeed."""
    return subprocess.run(command, check=True, capture_output=True, cwd=cwd, timeout=120, stdin=subprocess.DEVNULL).stdout


def files(root):
    """Every file below a directory, except those about the mount."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [s for s in subfolders if s != ".tiledbfs"]
        yield from (Path(folder, n) for n in names)


def write_big(folder):
    """An array of one tile of 4 MiB in 64 chunks, and its values."""
    values = np.arange(CELLS, dtype="<i4") * 7
    attr = Attr("a", "INT32", pipeline=Pipeline([("ZSTD", {"level": 1})]))
    lib, uri = Lib(), os.path.join(folder, "big")
    lib.create(uri, Schema("dense", [Dim("x", "INT32", 0, CELLS - 1, CELLS)], [attr]), timestamp=1)
    lib.write(uri, {"a": Column(values)}, ranges=[np.array([0, CELLS - 1], "<i4")], timestamp=10)
    return uri, values


def looking(checks, point):
    """The tools of the README on the sample."""
    weather = point / "weather"
    names = run("jq", "-r", ".attributes[].name", str(weather / "schema.json")).decode().split()
    checks.equal("jq .attributes[].name schema.json", names, ["temperature", "rain", "wind", "measured", "sky", "note"])
    fragment = sorted((weather / "fragments").iterdir())[0]
    temperature, wind = fragment / "columns/temperature", fragment / "columns/wind"
    raw = (temperature / "data.bin").read_bytes()
    array = np.load(temperature / "data.npy", mmap_mode="r")
    checks.equal("numpy.load(…, mmap_mode='r')", (array.dtype.str, array.tobytes() == raw), ("<f4", True))
    pairs = np.load(wind / "data.npy", mmap_mode="r")
    checks.equal("numpy.load of two values a cell", (pairs.dtype.str, pairs.shape), ("<f8", (365 * 6, 2)))
    times = np.load(fragment / "columns/measured/data.npy", mmap_mode="r")
    checks.equal("numpy.load of dates", str(times[0]), "2024-01-01T12:00:00.000")
    line = run("hexdump", "-C", str(temperature / "data.bin")).decode().splitlines()[0]
    checks.equal("hexdump -C", line.split()[1:17], [f"{b:02x}" for b in raw[:16]])
    numbers = run("od", "-A", "n", "-v", "-t", "f8", str(wind / "data.bin")).split()
    checks.equal("od -t f8", [float(n) for n in numbers], pairs.reshape(-1).tolist())
    sizes = {str(f): (run("wc", "-c", str(f)).split()[0], run("stat", "-c", "%s", str(f)).strip()) for f in files(fragment)}
    checks.equal(f"wc -c equals stat -c %s on {len(sizes)} files", [f for f, (a, b) in sizes.items() if a != b], [])
    ends = [int(t.split("_")[3]) for t in run("ls", "-t", str(weather / "fragments")).decode().split()]
    checks.equal("ls -t sorts fragments by when they were written", ends, sorted(ends, reverse=True))


def read_only(checks, point):
    """Modes, owner, and the errors of all attempts to write."""
    modes = {oct(os.stat(f).st_mode & 0o7777) for f in files(point)}
    checks.equal("modes of files", modes, {"0o444"})
    folders = {oct(os.stat(folder).st_mode & 0o7777) for folder, _, _ in os.walk(point)}
    checks.equal("modes of directories", folders, {"0o555"})
    checks.equal("owner", (os.stat(point).st_uid, os.stat(point).st_gid), (os.getuid(), os.getgid()))
    schema = point / "weather/schema.json"
    attempts = {"open": lambda: open(schema, "r+b"), "unlink": lambda: os.unlink(schema), "mkdir": lambda: os.mkdir(point / "new"),
                "create": lambda: open(point / "new", "w"), "rename": lambda: os.rename(schema, point / "new"), "truncate": lambda: os.truncate(schema, 0)}
    for name, attempt in attempts.items():
        try:
            attempt()
            got = None
        except OSError as error:
            got = error.errno
        checks.equal(f"{name} is EROFS", errno.errorcode.get(got), "EROFS")


def same_bytes(checks, point, values, scratch):
    """Every way of reading gives the same bytes."""
    data = next((point / "fragments").iterdir()) / "columns/a/data.bin"
    want = values.tobytes()
    checks.equal("cat", run("cat", str(data)) == want, True)
    for size, skip in ((1, 0), (13, 5041), (4097, 511), (65_537, 31), (1 << 20, 3), (999_983, 4)):
        got = run("dd", f"if={data}", f"bs={size}", f"skip={skip}", "count=1", "status=none")
        checks.equal(f"dd bs={size} skip={skip}", got == want[size * skip : size * (skip + 1)], True)
    got = run("dd", f"if={data}", "bs=12345", "iflag=skip_bytes", "skip=1000001", "status=none")
    checks.equal("dd to the end", got == want[1_000_001:], True)
    checks.equal("tail -c", run("tail", "-c", "100001", str(data)) == want[-100_001:], True)
    copy = os.path.join(scratch, "copy")
    run("cp", str(data), copy)
    checks.equal("cp, cmp", run("cmp", str(data), copy), b"")
    checks.equal("what cp has copied", Path(copy).read_bytes() == want, True)
    with open(data, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        checks.equal("mmap", (mapped[:] == want, mapped[CHUNK - 3 : CHUNK + 9] == want[CHUNK - 3 : CHUNK + 9]), (True, True))
    everything = os.path.join(scratch, "everything")
    run("rsync", "-a", "--exclude", ".tiledbfs", f"{point}/", everything)
    different = [str(f) for f in files(point) if not filecmp.cmp(f, Path(everything, f.relative_to(point)), shallow=False)]
    checks.equal("rsync -a", different, [])
    again = run("rsync", "-ai", "--exclude", ".tiledbfs", f"{point}/", everything)
    checks.equal("rsync -a finds nothing new the second time", again, b"")


def parallel(checks, source, values):
    """16 readers at once on a fresh mount, in processes of their own, and in threads with random access."""
    want = values.tobytes()
    with mounted(source, "--cache-size", "1M") as point:
        data = str(next((point / "fragments").iterdir()) / "columns/a/data.bin")
        readers = [subprocess.Popen(["cat", data], stdout=subprocess.PIPE) for _ in range(16)]
        with ThreadPoolExecutor(16) as pool:
            outputs = list(pool.map(lambda p: p.communicate(timeout=120)[0], readers))
        checks.equal("16 parallel readers", [o == want for o in outputs], [True] * 16)
        with ThreadPoolExecutor(16) as pool:
            good = list(pool.map(lambda seed: _jump(data, want, seed), range(16)))
        checks.equal("16 readers at random places, cache of 1 MiB", good, [True] * 16)
        checks.equal("the cache keeps its bound", stats(point)["cache_bytes"] <= 1 << 20, True)


def _jump(path, want, seed):
    """Reads at random offsets; returns whether all bytes were right."""
    rng = np.random.default_rng(seed)
    with open(path, "rb", buffering=0) as f:
        for offset, size in zip(rng.integers(0, len(want), 100).tolist(), rng.integers(1, 100_000, 100).tolist()):
            if os.pread(f.fileno(), size, offset) != want[offset : offset + size]:
                return False
    return True


def laziness(checks, source, values):
    """Which reads decode what, by the counters."""
    with mounted(source) as point:
        run("ls", "-lR", str(point))
        run("find", str(point), "-type", "f", "-size", "+0")
        checks.equal("ls -lR decodes no chunk of a data tile", stats(point)["chunks_decoded"], 0)
        data = str(next((point / "fragments").iterdir()) / "columns/a/data.bin")
        middle = 32 * CHUNK + CHUNK // 2
        with open(data, "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            got = os.pread(f.fileno(), 8, middle)
            checks.equal("8 bytes in the middle", got, values.tobytes()[middle : middle + 8])
            checks.equal("8 bytes in the middle decode one chunk", stats(point)["chunks_decoded"], 1)
            os.pread(f.fileno(), 8, middle + 8192)
            checks.equal("8 more of the same chunk decode none", stats(point)["chunks_decoded"], 1)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: _eight(data, 48 * CHUNK + 8192 * i), range(8)))
        checks.equal("eight readers of one chunk decode it once", stats(point)["chunks_decoded"], 2)
        run("cat", data)
        checks.equal("all was decoded once", stats(point)["chunks_decoded"], 64)
        # The kernel may reclaim pages at any time, so one of several attempts suffices.
        checks.equal("a second cat asks nothing", min(_requests(point, data) for _ in range(5)), 0)


def _requests(point, data):
    """Read requests caused by a `cat`, without those for reading the counters."""
    before = [stats(point)["reads"] for _ in range(2)]
    run("cat", data)
    return stats(point)["reads"] - before[1] - (before[1] - before[0])


def _eight(path, offset):
    """Reads eight bytes without read-ahead."""
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return os.pread(f.fileno(), 8, offset)


def too_long(checks, folder):
    """Columns of 2^63 and more bytes: two fragments at the ends of a large domain. Opening them is EIO, and what is shorter can be read."""
    lib, uri = Lib(), os.path.join(folder, "far_apart")
    attrs = [Attr("shorter", "INT8", nullable=True), Attr("too_long", "INT16"), Attr("far_too_long", "INT64")]
    lib.create(uri, Schema("dense", [Dim("x", "INT64", 0, 1 << 62, 4)], attrs))
    types = {"shorter": "<i1", "too_long": "<i2", "far_too_long": "<i8"}
    for first in (0, (1 << 62) - 4):
        columns = {name: Column(np.arange(4, dtype=dtype).view("u1")) for name, dtype in types.items()}
        columns["shorter"] = Column(np.arange(4, dtype="i1").view("u1"), None, np.ones(4, "u1"))
        lib.write(uri, columns, ranges=[np.array([first, first + 3], "<i8")])
    with mounted(uri) as point:
        for name, wanted in (("shorter", None), ("too_long", errno.EIO), ("far_too_long", errno.EIO)):
            for file in ("data.bin", "data.npy"):
                path = point / "data/columns" / name / file
                try:
                    with open(path, "rb") as opened:
                        opened.seek(-2, os.SEEK_END)
                        got = None if opened.read() == bytes([2, 3]) else "other bytes"
                except OSError as error:
                    got = error.errno
                checks.equal(f"{name}/{file} of a view of 2^62 cells", got, wanted)


def without_case(checks, folder):
    """`cp` to a file system that takes `T` and `t` for one name: an error, and what was copied first stays. Returns what was skipped: 1 without a loop device."""
    lib, uri, places = Lib(), os.path.join(folder, "case"), Path(folder, "exfat")
    names = {"T": np.arange(4, dtype="<i4"), "t": np.arange(4, 8, dtype="<i4"), "other": np.arange(8, 12, dtype="<i4")}
    lib.create(uri, Schema("dense", [Dim("x", "INT32", 0, 3, 4)], [Attr(name, "INT32") for name in names]))
    lib.write(uri, {name: Column(values) for name, values in names.items()}, ranges=[np.array([0, 3], "<i4")])
    with open(f"{folder}/image", "wb") as image:
        image.truncate(32 << 20)
    run("mkfs.exfat", f"{folder}/image")
    places.mkdir()
    made = subprocess.run(["losetup", "--find", "--show", f"{folder}/image"], capture_output=True, text=True, timeout=60)
    if made.returncode:
        print(f"skipped: cp without case: no loop device: {made.stderr.strip()}")
        return 1
    device = made.stdout.strip()
    try:
        run("mount.exfat-fuse", device, places)
        for what, options in (("", ()), (", once more", ("--skip-existing",)), (", written over", ())):
            done = subprocess.run([binary(), "cp", "-r", *options, uri, "data/columns", places / "columns"], capture_output=True, text=True, timeout=60)
            told = [line for line in done.stderr.splitlines() if "exists there under another name" in line]
            checks.equal(f"cp without case{what}: one of two fails", (done.returncode, len(told)), (1, 1))
            kept, failed = ("T", "t") if "columns/t:" in told[0] else ("t", "T")
            held = {name: np.fromfile(places / "columns" / name / "data.bin", "<i4").tolist() for name in (kept, "other")}
            checks.equal(f"cp without case{what}: {failed} failed", held, {name: names[name].tolist() for name in held})
        done = subprocess.run([binary(), "cp", "-r", uri, "data/columns/T", "data/columns/t", places], capture_output=True, text=True, timeout=60)
        told = [line.count("exists there under another name") for line in done.stderr.splitlines()]
        checks.equal("cp without case: two of the command line", (done.returncode, told, np.fromfile(places / "T/data.bin", "<i4").tolist()), (1, [1], names["T"].tolist()))
        done = subprocess.run([binary(), "cp", uri, "data/columns/T/data.bin", "data/columns/T/data.npy", places], capture_output=True, text=True, timeout=60)
        checks.equal("cp without case: other files", (done.returncode, done.stderr), (0, ""))
        run("cp", "-r", uri, places / "source")
        begun = time.time()
        run(binary(), "cp", places / "source", "data/columns/T/data.bin", f"{folder}/out_of_fuse")
        age = begun - os.stat(f"{folder}/out_of_fuse").st_mtime
        checks.equal("cp out of FUSE: the copy is older than what may be missing", 29 < age < 40, True)
    finally:
        if os.path.ismount(places):
            run("umount", places)
        run("losetup", "--detach", device)
    return 0


def main():
    """Runs all checks."""
    start, checks = time.time(), Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-plain-") as scratch:
        with mounted(SAMPLE) as point:
            looking(checks, point)
            read_only(checks, point)
        big, values = write_big(scratch)
        with mounted(big) as point:
            same_bytes(checks, point, values, scratch)
        parallel(checks, big, values)
        laziness(checks, big, values)
        too_long(checks, scratch)
        skipped = without_case(checks, scratch)
    print(f"plain tools: {time.time() - start:.1f} s")
    print(f"{checks.passed} passed, {checks.failed} failed, {skipped} skipped")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
