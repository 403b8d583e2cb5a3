"""A sparse view of very many fragments that overlap: right, within the memory that the cache is given, and made only as long as somebody waits. Long cells that are hidden are not read. And nothing is decoded twice of fragments that do not overlap, and little of chunks that fill the cache.

`python3 view_memory.py [--fragments N]`. The last line is `N passed, N failed`.
"""

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import tiledb

from mount import errors, mounted, stats

CELLS = 8192
"""Cells of a fragment: a chunk of 64 KiB of coordinates and another of values."""
CACHE = 96 << 20
BESIDES = 64 << 20
"""The memory of a mount besides its cache, in bytes."""
START = 1_700_000_000_000


def schema(capacity):
    """A schema of sparse cells with one number each, `capacity` of them per tile."""
    dimension = tiledb.Dim("x", domain=(0, 2**40), tile=2**20, dtype=np.int64)
    attribute = tiledb.Attr("a", dtype=np.int64, filters=[tiledb.ZstdFilter(1)])
    return tiledb.ArraySchema(
        domain=tiledb.Domain(dimension), attrs=[attribute], sparse=True, capacity=capacity, coords_filters=[tiledb.ZstdFilter(1)]
    )


def write(path, fragments):
    """An array whose fragments all cover the same part of the domain."""
    tiledb.Array.create(path, schema(CELLS))
    draw = np.random.default_rng(7)
    written = []
    for number in range(fragments):
        x = np.unique(draw.integers(0, 2**23, CELLS))
        a = np.arange(x.size, dtype=np.int64) + number * CELLS
        with tiledb.open(path, "w", timestamp=START + number) as array:
            array[x] = a
        written.append((x, a))
    # The newest of each place is the first of those in reverse.
    x, a = (np.concatenate(parts)[::-1] for parts in zip(*written))
    x, newest = np.unique(x, return_index=True)
    return x, a[newest]


def peak(point):
    """The peak memory of the process behind a mount, in bytes."""
    found = subprocess.run(["pgrep", "-f", f"mount .*{point}"], capture_output=True, text=True).stdout.split()
    status = Path("/proc", found[0], "status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def abandoned(folder, failures):
    """Kills the process that waits for a merge: the merge ends soon, and the next request gets a complete one."""
    file = "data/columns/a/data.bin"
    with mounted(folder, "--cache-size", str(CACHE)) as point:
        start = time.monotonic()
        expected = os.stat(point / file).st_size
        whole = time.monotonic() - start
    with mounted(folder, "--cache-size", str(CACHE)) as point:
        asking = subprocess.Popen(["stat", "-c", "%s", str(point / file)], stdout=subprocess.PIPE)
        time.sleep(whole / 4)
        asking.kill()
        start = time.monotonic()
        asking.communicate()
        took = time.monotonic() - start
        print(f"a merge of {whole:.1f} s ended {took:.1f} s after it was abandoned")
        if asking.returncode != -signal.SIGKILL or took > whole / 2 + 0.3:
            failures.append(f"it took {took:.1f} of {whole:.1f} s to end a merge for which nobody waits ({asking.returncode})")
        if os.stat(point / file).st_size != expected or errors(point):
            failures.append(f"after a merge that was abandoned: {errors(point)}")


def decoded_once(folder, failures):
    """Reads fragments one after the other: the order of their coordinates is checked first, and no chunk is decoded twice."""
    fragments, cells, tile, chunk = 4, 400_000, 100_000, 65_536
    path = f"{folder}/appended"
    tiledb.Array.create(path, schema(tile))
    for number in range(fragments):
        x = np.arange(number * cells, (number + 1) * cells)
        with tiledb.open(path, "w", timestamp=START + number) as array:
            array[x] = x
    with mounted(path) as point:
        for name in "xa":
            if not np.array_equal(np.fromfile(point / f"data/columns/{name}/data.bin", np.int64), np.arange(fragments * cells)):
                failures.append(f"{name} of fragments one behind the other is wrong")
        decoded = stats(point)["chunks_decoded"]
    there = 2 * fragments * (cells // tile) * -(-8 * tile // chunk)
    print(f"fragments one behind the other: {there} chunks, {decoded} decoded")
    if decoded != there:
        failures.append(f"{decoded} chunks were decoded of {there}")


def large_chunks(folder, failures):
    """Two chunks of which the cache keeps one: readers of both do not decode them for each other again and again. Chunks of text with RLE are whole tiles."""
    cells, size, path = 1 << 14, 2000, f"{folder}/large"
    dimension = tiledb.Dim("x", domain=(0, 2 * cells - 1), tile=cells, dtype=np.int32)
    attribute = tiledb.Attr("v", dtype="ascii", var=True, filters=[tiledb.RleFilter(), tiledb.LZ4Filter()])
    tiledb.Array.create(path, tiledb.ArraySchema(domain=tiledb.Domain(dimension), attrs=[attribute]))
    texts = [f"{number // 3:0{size}}" for number in range(2 * cells)]
    with tiledb.open(path, "w", timestamp=START) as array:
        array[:] = np.array(texts, "O")
    for file in ("columns/v/data.bin", "table.parquet"):
        with mounted(path, "--cache-size", "40M") as point:
            got = (point / "data" / file).read_bytes()
            decoded = stats(point)["chunks_decoded"]
        print(f"{file} of two chunks of {cells * size} bytes: {decoded} decoded")
        values = "".join(pq.read_table(io.BytesIO(got))["v"].to_pylist()) if file == "table.parquet" else got.decode()
        if values != "".join(texts):
            failures.append(f"{file} of large chunks is wrong")
        # Offsets and values are read one after the other.
        if decoded > 20:
            failures.append(f"{decoded} chunks decoded for {file} of two large chunks")


def large_row_groups(folder, failures):
    """The offsets of a row group of a million texts are decoded once to measure them, because their tile is so large, and once for the values."""
    cells, chunk, path = 1 << 21, 65_536, f"{folder}/groups"
    dimension = tiledb.Dim("x", domain=(0, cells - 1), tile=cells // 2, dtype=np.int32)
    attribute = tiledb.Attr("v", dtype="ascii", var=True, filters=[tiledb.ZstdFilter(1)])
    tiledb.Array.create(path, tiledb.ArraySchema(domain=tiledb.Domain(dimension), attrs=[attribute], offsets_filters=[tiledb.ZstdFilter(1)]))
    texts = np.arange(10**6, 10**6 + cells).astype("S7")
    with tiledb.open(path, "w", timestamp=START) as array:
        array[:] = texts
    with mounted(path) as point:
        got = pq.read_table(io.BytesIO((point / "data/table.parquet").read_bytes()))["v"]
        decoded = stats(point)["chunks_decoded"]
    offsets, values = 8 * cells // chunk, -(-7 * cells // chunk)
    print(f"{offsets} chunks of offsets, {values} of texts: {decoded} decoded")
    if got.to_pylist() != texts.astype("U7").tolist():
        failures.append("table.parquet of large row groups is wrong")
    if decoded > 2 * offsets + values + 8:
        failures.append(f"{decoded} chunks decoded for {offsets} of offsets and {values} of texts")


def long_cells(folder, failures):
    """Short cells between long ones that are overwritten: these are not read. And a delete condition on them, which has to be evaluated on each."""
    cells, long, path = 600, 1 << 20, f"{folder}/long"
    dimension = tiledb.Dim("x", domain=(0, cells - 1), tile=cells, dtype=np.int64)
    attribute = tiledb.Attr("v", dtype="ascii", var=True, filters=[tiledb.ZstdFilter(1)])
    tiledb.Array.create(path, tiledb.ArraySchema(domain=tiledb.Domain(dimension), attrs=[attribute], sparse=True, capacity=cells))
    short = [f"short {x}" for x in range(cells)]
    with tiledb.open(path, "w", timestamp=START) as array:
        array[np.arange(cells)] = np.array([f"{x:8}" * (long // 8) if x % 2 else short[x] for x in range(cells)], "O")
    odd = np.arange(1, cells, 2)
    with tiledb.open(path, "w", timestamp=START + 2) as array:
        array[odd] = np.array([short[x] for x in odd], "O")
    with tiledb.open(path, "d", timestamp=START + 4) as array:
        array.query(cond="v == 'short 4'").submit()
    allowed = CACHE + BESIDES
    chunks = cells // 2 * long // 65_536
    for when, wanted in ((START + 3, short), (START + 5, [text for text in short if text != "short 4"])):
        with mounted(path, "--cache-size", str(CACHE)) as point:
            got = (point / f"at/{when}/data/columns/v/data.bin").read_text()
            most, decoded = peak(point), stats(point)["chunks_decoded"]
        print(f"{cells // 2} hidden cells of {long} bytes: at most {most >> 20} MiB, {decoded} chunks of {chunks} decoded")
        if got != "".join(wanted):
            failures.append("short cells between long ones are wrong")
        if most > allowed:
            failures.append(f"{most} bytes of memory for short cells between long ones, where {allowed} are allowed")
        if when == START + 3 and decoded > chunks // 4:
            failures.append(f"{decoded} chunks decoded for short cells between long ones")


def long_strings(folder, failures):
    """Merges fragments whose coordinates are long strings."""
    cells, path = 3000, f"{folder}/strings"
    domain = tiledb.Domain(tiledb.Dim("s", dtype="ascii", filters=[tiledb.ZstdFilter(1)]))
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("a", dtype=np.int32)], sparse=True, capacity=10_000))
    places = np.array([f"{x:8}" * 12_500 for x in range(cells)], "S")
    for number in range(2):
        with tiledb.open(path, "w", timestamp=START + number) as array:
            array[places] = np.arange(cells, dtype=np.int32) + number
    with mounted(path, "--cache-size", str(CACHE)) as point:
        got = np.fromfile(point / "data/columns/a/data.bin", np.int32)
        most = peak(point)
    print(f"2 x {cells} coordinates of 100,000 bytes: at most {most >> 20} MiB")
    if not np.array_equal(got, np.arange(cells) + 1):
        failures.append("cells at long strings are wrong")
    if most > CACHE + BESIDES:
        failures.append(f"{most} bytes of memory for coordinates that are long strings, where {CACHE + BESIDES} are allowed")


def main():
    """Writes, mounts, compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fragments", type=int, default=1000)
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="tiledbfs-memory-")
    failures = []
    try:
        x, a = write(f"{folder}/array", args.fragments)
        with mounted(f"{folder}/array", "--cache-size", str(CACHE)) as point:
            for name, expected in (("x", x), ("a", a), ("a", a)):
                got = np.fromfile(point / f"data/columns/{name}/data.bin", np.int64)
                if not np.array_equal(got, expected):
                    failures.append(f"{name}: {got.size} values differ from the {expected.size} expected")
            most, counts = peak(point), stats(point)
        chunks = counts["chunks_decoded"]
        print(f"{args.fragments} fragments, {x.size} cells: at most {most >> 20} MiB with a cache of {CACHE >> 20} MiB, {chunks} chunks decoded")
        if most > CACHE + BESIDES:
            failures.append(f"{most} bytes of memory, where {CACHE + BESIDES} are allowed")
        abandoned(f"{folder}/array", failures)
        decoded_once(folder, failures)
        large_chunks(folder, failures)
        large_row_groups(folder, failures)
        long_cells(folder, failures)
        long_strings(folder, failures)
    finally:
        shutil.rmtree(folder)
    for failure in failures:
        print(failure)
    print(f"{22 - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
