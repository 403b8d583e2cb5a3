"""Rows on columns of fragments, documents and listings."""

import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import arrays
from bench import CORES, MIB, cat, fragment, median, peak, processor, reads, seconds, stats, timed, warm

# Against TileDB-Py. None: decoding takes so long that the limit of the machine is what counts.
COLUMN_TARGETS = {
    "plain": 0.33,
    "delta": 0.33,
    "zstd": None,
    "lz4": 0.45,
    "gzip": 0.45,
    "shuffle": 0.6,
    "double-delta": 0.6,
}
LABELS = {
    "plain": "no filter",
    "delta": "POSITIVE_DELTA+BIT_WIDTH_REDUCTION+ZSTD",
    "zstd": "ZSTD",
    "lz4": "LZ4",
    "gzip": "GZIP",
    "shuffle": "BYTESHUFFLE+ZSTD",
    "double-delta": "DOUBLE_DELTA",
}

READ_COLUMNS = """
import sys, tiledb
with tiledb.open(sys.argv[1]) as a:
    for name in sys.argv[2:]:
        sys.stdout.buffer.write(a.query(attrs=[name])[:][name].data)
"""


def read_columns(path, names):
    """Wall seconds of a Python that reads columns with TileDB-Py and writes them to stdout."""
    return timed([sys.executable, "-c", READ_COLUMNS, path, *names], stdout=subprocess.DEVNULL)[0]


def columns(bench):
    """cat of a column against TileDB-Py, and against the limit."""
    for name in COLUMN_TARGETS:
        if bench.options.filter and name not in bench.options.filter:
            continue
        path = arrays.columns(bench.folder, name, bench.size)
        warm(path)
        decode = [bench.examples / "decode", path, None, CORES]
        with bench.mounted(path) as (mountpoint, _):
            inside = (fragment(mountpoint) / "columns/a/data.bin").relative_to(mountpoint)
            decode[2] = inside
            with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-") as copy:
                subprocess.run(["cp", mountpoint / inside, pathlib.Path(copy) / "data.bin"], check=True)
                compare_column(bench, name, path, inside, decode, copy)


def compare_column(bench, name, path, inside, decode, copy):
    ours, theirs, limits, requests = [], [], [], []
    parts = []
    for _ in range(bench.rounds):
        with bench.mounted(path, name="cat of a column") as (mountpoint, process):
            os.stat(mountpoint / inside)
            before = processor(process.pid)
            wall, used = cat(mountpoint / inside)
            ours.append(wall)
            used += processor(process.pid) - before
            requests.append(reads(mountpoint, lambda: cat(mountpoint / inside)))
        theirs.append(read_columns(path, ["a"]))
        with bench.memory(copy) as (mountpoint, process):
            os.stat(mountpoint / "data.bin")
            before = processor(process.pid)
            a, serving = cat(mountpoint / "data.bin")
            serving += processor(process.pid) - before
        alone = json.loads(timed(decode)[1])
        b, c = alone["wall"], (serving + alone["cpu"]) / CORES
        limits.append(max(a, b, c))
        parts.append((a, b, c, used / CORES))
    label = LABELS[name]
    bench.row(f"cat, {label}", f"{seconds(median(ours))} against {seconds(median(theirs))}",
              median([o / t for o, t in zip(ours, theirs)]), COLUMN_TARGETS[name])
    a, b, c, used = (median(part) for part in zip(*parts))
    bench.row(f"limit, {label}",
              f"{seconds(median(limits))} (a {seconds(a)}, b {seconds(b)}, c {seconds(c)}; our processor time / cores {seconds(used)})",
              median([l / o for l, o in zip(limits, ours)]), 0.9 if COLUMN_TARGETS[name] is None else 0.8, at_least=True)
    bench.row(f"second cat, {label}", f"read requests (in one of the rounds {max(requests)})", median(requests), 0)


def floats(bench):
    """cat of a column with ZSTD against TileDB-Py, for other values: how well they compress decides what decoding costs."""
    for kind in arrays.OTHER_FLOATS:
        path = arrays.other_floats(bench.folder, kind, bench.size)
        warm(path)
        stored = sum(file.stat().st_size for file in path.glob("__fragments/*/a*.tdb"))
        ours, theirs = [], []
        for _ in range(bench.rounds):
            with bench.mounted(path, name="cat of a column") as (mountpoint, _):
                file = fragment(mountpoint) / "columns/a/data.bin"
                os.stat(file)
                ours.append(cat(file)[0])
            theirs.append(read_columns(path, ["a"]))
        bench.row(f"  cat, ZSTD, {kind}",
                  f"{seconds(median(ours))} against {seconds(median(theirs))}; stored in {stored / bench.size:.0%} of the bytes",
                  median([o / t for o, t in zip(ours, theirs)]))


READ_CELL = """
import sys, tiledb
with tiledb.open(sys.argv[1]) as a:
    print(a.query(attrs=["a"])[int(sys.argv[2])])
"""


def cell(bench):
    """Eight bytes in the middle of the column."""
    path = arrays.columns(bench.folder, "zstd", bench.size)
    middle = bench.size // 16
    ours, theirs, chunks = [], [], []
    for _ in range(bench.rounds):
        with bench.mounted(path) as (mountpoint, _):
            file = fragment(mountpoint) / "columns/a/data.bin"
            before = stats(mountpoint)["chunks_decoded"]
            ours.append(timed(["dd", f"if={file}", "bs=8", "count=1", f"skip={middle}", "status=none"])[0])
            chunks.append(stats(mountpoint)["chunks_decoded"] - before)
        theirs.append(bench.python(READ_CELL, path, middle)[0])
    bench.row("dd of 8 bytes in the middle", f"{seconds(median(ours))} against {seconds(median(theirs))}",
              median([o / t for o, t in zip(ours, theirs)]), 0.1)
    bench.row("chunks decoded for it", f"{max(chunks)}", max(chunks), 1)


def schema(bench):
    """schema.json on a fresh mount, the mount included."""
    path = arrays.columns(bench.folder, "zstd", bench.size)
    code = "import sys, tiledb; print(tiledb.ArraySchema.load(sys.argv[1]))"
    ours, theirs = [], []
    for _ in range(bench.rounds):
        with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-") as mountpoint:
            script = '"$0" mount "$1" "$2" && cat "$2/schema.json"'
            ours.append(timed(["sh", "-c", script, bench.program, path, mountpoint])[0])
            subprocess.run([bench.program, "unmount", mountpoint], check=True)
        theirs.append(bench.python(code, path)[0])
    bench.row("mount and cat schema.json", f"{seconds(median(ours))} against {seconds(median(theirs))}",
              median([o / t for o, t in zip(ours, theirs)]), 0.2)


def fragments(bench):
    """An array of very many fragments."""
    count = 10_000
    path = arrays.appended(bench.folder, count, 10)
    code = "import sys, tiledb; print(len(tiledb.array_fragments(sys.argv[1])))"
    ours, theirs = [], []
    for _ in range(bench.rounds):
        warm(path)
        with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-") as mountpoint:
            script = '"$0" mount "$1" "$2" && ls "$2/fragments" && cat "$2/fragments.json"'
            ours.append(timed(["sh", "-c", script, bench.program, path, mountpoint])[0])
            subprocess.run([bench.program, "unmount", mountpoint], check=True)
        theirs.append(bench.python(code, path)[0])
    bench.row(f"{count} fragments: mount, ls fragments, cat fragments.json",
              f"{seconds(median(ours))} against {seconds(median(theirs))}",
              median([o / t for o, t in zip(ours, theirs)]), 0.2)
    with bench.mounted(path, name="10,000 fragments") as (mountpoint, _):
        before = stats(mountpoint)["files_opened"]
        took, _ = timed(["ls", "-l", mountpoint / "fragments"])
        opened = stats(mountpoint)["files_opened"] - before
        (mountpoint / "fragments.json").read_bytes()
    bench.row("ls -l fragments: files opened", f"{opened} in {seconds(took)}", opened, 0)


def tiles(bench):
    """One fragment of a million tiles."""
    count = 1_000_000
    path = arrays.tiles(bench.folder, count)
    took, resident = [], []
    for _ in range(bench.rounds):
        with bench.mounted(path) as (mountpoint, process):
            (fragment(mountpoint) / "footer.json").read_bytes()
            before = peak(process.pid)
            start = time.perf_counter()
            file = os.open(fragment(mountpoint) / "columns/a/data.bin", os.O_RDONLY)
            size = os.fstat(file).st_size
            os.pread(file, 4096, size - 4096)
            took.append(time.perf_counter() - start)
            os.close(file)
            resident.append(peak(process.pid) - before)
    bench.row(f"{count} tiles: open, stat, last 4 KiB (ms)", f"{seconds(median(took))}", median(took) * 1000, 50)
    bench.row("memory for it (MiB)", f"{max(resident) / MIB:.1f} MiB", max(resident) / MIB, 8)
    with bench.mounted(path, name="documents of a million tiles") as (mountpoint, _):
        for document in ["tiles.json", "rtree.json", "footer.json", "statistics.json"]:
            took, _ = cat(fragment(mountpoint) / document)
            size = (fragment(mountpoint) / document).stat().st_size
            bench.row(f"  {document} of {count} tiles", f"{size / MIB:.1f} MiB in {seconds(took)}")


def readers(bench):
    """Sixteen readers, of sixteen columns and of one."""
    # Kernel and `cat` take a large part of the processors with the one, and next to nothing with the other.
    for codec, size in [("zstd", bench.size // 4), ("bzip2", bench.size // 64)]:
        read_by_sixteen(bench, codec, size)


def read_by_sixteen(bench, codec, size):
    number = 16
    path = arrays.many_columns(bench.folder, codec, size, number)
    names = [f"a{i:02}" for i in range(number)]
    first = f"fragments/{fragment_name(path)}/columns/{names[0]}/data.bin"
    chunks = size // 65536
    warm(path)

    def read_all(files):
        with concurrent.futures.ThreadPoolExecutor(len(files)) as pool:
            start = time.perf_counter()
            list(pool.map(cat, files))
            return time.perf_counter() - start

    many, alike, same, decoded, limits, times, theirs = [], [], [], [], [], [], []
    with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-") as copy:
        with bench.mounted(path) as (mountpoint, _):
            subprocess.run(["cp", mountpoint / first, pathlib.Path(copy) / "data.bin"], check=True)
        for _ in range(bench.rounds):
            alone = json.loads(timed([bench.examples / "decode", path, first, 1])[1])
            single = alone["bytes"] / alone["wall"]
            with bench.memory(copy) as (mountpoint, process):
                os.stat(mountpoint / "data.bin")
                before = processor(process.pid)
                serving = cat(mountpoint / "data.bin")[1] + processor(process.pid) - before
            limits.append(CORES * alone["wall"] / (serving + alone["cpu"]))
            with bench.mounted(path, "--threads", "1") as (mountpoint, _):
                os.stat(mountpoint / first)
                one_reader = size / cat(mountpoint / first)[0]
            with bench.mounted(path, name="16 readers of 16 columns") as (mountpoint, _):
                took = read_all([mountpoint / pathlib.Path(first).parents[1] / name / "data.bin" for name in names])
                times.append(took)
                many.append(number * size / took / single)
                alike.append(number * size / took / one_reader)
            with bench.mounted(path, name="16 readers of one column") as (mountpoint, _):
                took = read_all([mountpoint / first] * number)
                same.append(number * size / took / single)
                decoded.append(stats(mountpoint)["chunks_decoded"])
            theirs.append(read_columns(path, names))
    label = codec.upper()
    # Decoding ZSTD takes little more than kernel and `cat` do, which leave no room for so many decoders.
    target = None if codec == "zstd" else 0.8 * CORES
    bench.row(f"{number} readers of {number} columns of {label}, in decoders of one thread", "throughput / that of one thread",
              median(many), target, at_least=True)
    bench.row(f"{number} readers of {number} columns of {label}, in readers of a mount with one thread",
              "throughput / that of one reader", median(alike), target, at_least=True)
    bench.row(f"{number} readers of {number} columns of {label}, against the limit of the processors",
              f"{median(limits):.2f} decoders; {seconds(median(times))}, TileDB-Py {seconds(median(theirs))}",
              median([m / l for m, l in zip(many, limits)]), 0.9 if target is None else None, at_least=True)
    bench.row(f"{number} readers of one column of {label}, in decoders of one thread", "throughput / that of one thread",
              median(same), 0.8 * CORES, at_least=True)
    bench.row("  chunks decoded for it", f"{max(decoded)} of {chunks}", max(decoded), chunks)


def fragment_name(path):
    return next((path / "__fragments").iterdir()).name


def scattered(bench):
    """Random reads of 4 KiB over a column larger than the cache."""
    size = 4 * bench.size
    path = arrays.columns(bench.folder, "zstd", size)
    count = 4000
    rates, chunks = [], []
    for round in range(bench.rounds):
        pick = random.Random(round)
        with bench.mounted(path, "--cache-size", "64M") as (mountpoint, process):
            file = os.open(fragment(mountpoint) / "columns/a/data.bin", os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            offsets = [pick.randrange(size // 4096) * 4096 for _ in range(count)]
            before = stats(mountpoint)["chunks_decoded"]
            start = time.perf_counter()
            for offset in offsets:
                os.pread(file, 4096, offset)
            rates.append(count / (time.perf_counter() - start))
            chunks.append((stats(mountpoint)["chunks_decoded"] - before) / count)
            os.close(file)
            bench.peaks["random reads (cache 64 MiB)"] = peak(process.pid)
    bench.row(f"random 4 KiB reads over {size // MIB} MiB, cache 64 MiB", f"{median(rates):.0f} reads/s; chunks decoded a read",
              max(chunks), 1)


def walk(bench):
    """Listing very many arrays."""
    count = 2000
    path = arrays.many_arrays(bench.folder, count)
    warm(path)
    with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-") as copy:
        with bench.mounted(path / "a00000") as (mountpoint, _):
            subprocess.run(["cp", "-r", mountpoint, pathlib.Path(copy) / "one"], check=True)
        copy = pathlib.Path(copy) / "one"
        for command in [["find"], ["ls", "-lR"]]:
            ours, static = [], []
            for _ in range(min(bench.rounds, 3)):
                with bench.mounted(path, name=f"{command[0]} over {count} arrays") as (mountpoint, _):
                    took, out = timed([*command, mountpoint])
                    ours.append(took)
                paths = out.count(b"\n")
                with bench.memory(copy, count) as (mountpoint, _):
                    static.append(timed([*command, mountpoint])[0])
            bench.row(f"{' '.join(command)} over {count} arrays ({paths} lines)",
                      f"{paths / median(ours):.0f} lines/s; a static tree {paths / median(static):.0f}")


def resident(bench):
    """Memory of a column that is read in pieces, from the end to the start."""
    path = arrays.columns(bench.folder, "zstd", 4 * bench.size)
    with bench.mounted(path, name="1 GiB in pieces, from the end to the start") as (mountpoint, _):
        file = os.open(fragment(mountpoint) / "columns/a/data.bin", os.O_RDONLY)
        for offset in range(os.fstat(file).st_size - 65536, 0, -65536):
            os.pread(file, 65536, offset)
        os.close(file)


def cores(bench):
    """A model of what more cores would give, of what is measured on this machine."""
    # Every chunk takes decoding, the kernel's and the daemon's serving, and so many looks into the cache,
    # which one thread at a time may take.
    subprocess.run(["cargo", "bench", "--quiet", "--bench", "decoders", "--", "cache/hit", "--quick"], check=True, stdout=subprocess.DEVNULL)
    criterion = bench.examples.parent.parent / "criterion/cache/hit"
    locked = max(json.loads((criterion / threads / "new/estimates.json").read_text())["mean"]["point_estimate"] for threads in ["1", "16"]) / 1e9
    for name in ["zstd", "lz4"]:
        path = arrays.columns(bench.folder, name, bench.size)
        warm(path)
        chunks = bench.size // 65536
        with bench.mounted(path) as (mountpoint, process):
            inside = (fragment(mountpoint) / "columns/a/data.bin").relative_to(mountpoint)
            os.stat(mountpoint / inside)
            before, first = processor(process.pid), stats(mountpoint)
            reader = cat(mountpoint / inside)[1]
            work = (reader + processor(process.pid) - before) / chunks
            last = stats(mountpoint)
        looks = sum(last[key] - first[key] for key in ["cache_hits", "cache_misses"]) / chunks
        serial = looks * locked
        for count in [2, 16, 64]:
            free, bound = count / work * 65536 / MIB, 65536 / serial / MIB
            bench.row(f"  model: {LABELS[name]} on {count} cores",
                      f"{work * 1e6:.0f} µs a chunk, {looks:.1f} looks of {locked * 1e9:.0f} ns: {min(free, bound):.0f} MiB/s; the cache alone would let pass {bound:.0f}")


ROWS = {
    "cores": cores,
    "columns": columns,
    "floats": floats,
    "cell": cell,
    "schema": schema,
    "fragments": fragments,
    "tiles": tiles,
    "readers": readers,
    "scattered": scattered,
    "walk": walk,
    "resident": resident,
}
