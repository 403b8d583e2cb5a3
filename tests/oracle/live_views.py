"""A writer, a consolidator and a vacuum at work while readers read `data/` through a mount: every file that is read whole is that of one commit.

    python3 live_views.py --seconds 60 --readers 8

Each commit writes one number to all cells, so that a column holds one number and no other. A reader opens a file once, asks for its size, and reads it to the end: it may fail with ESTALE or EIO, when what it
reads was removed, but must never get a number that was not committed, two numbers, or a length that is not the one it was told. Nor may
it get a commit that was no longer the last one some seconds before it opened the file.

The last line is `N passed, N failed`.
"""

import argparse
import errno
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tiledb

from mount import mounted
from plain_tools import Checks

NAMES = ["dense", "sparse", "hilbert"]
SIDE = 60
PATIENCE = 3.0
"""Seconds after which a commit must be visible, on a busy machine."""
ALLOWED = {errno.ESTALE, errno.EIO}


def create(root):
    """A dense and two sparse arrays. Each write replaces all cells."""
    axis = [tiledb.Dim(name, domain=(0, SIDE - 1), tile=16, dtype=np.int32) for name in "xy"]
    attrs = [tiledb.Attr("a", dtype=np.int64, filters=[tiledb.ZstdFilter()]), tiledb.Attr("v", dtype="ascii", var=True)]
    tiledb.Array.create(str(root / "dense"), tiledb.ArraySchema(tiledb.Domain(*axis), attrs))
    tiledb.Array.create(str(root / "sparse"), tiledb.ArraySchema(tiledb.Domain(*axis), attrs, sparse=True, capacity=64))
    tiledb.Array.create(str(root / "hilbert"), tiledb.ArraySchema(tiledb.Domain(*axis), attrs, sparse=True, capacity=64, cell_order="hilbert"))


def write(root, number):
    """Commit `number` of every array: the number in all cells."""
    values = {"a": np.full(SIDE * SIDE, number, np.int64), "v": np.full(SIDE * SIDE, str(number).zfill(7), "S7")}
    with tiledb.open(str(root / "dense"), "w") as array:
        array[:] = {name: value.reshape(SIDE, SIDE) for name, value in values.items()}
    x, y = (axis.ravel().astype(np.int32) for axis in np.meshgrid(range(SIDE), range(SIDE), indexing="ij"))
    for name in ("sparse", "hilbert"):
        with tiledb.open(str(root / name), "w") as array:
            array[x, y] = values


def writer(root, committed, stop, failed):
    """Writes."""
    try:
        number = committed.value
        while not stop.is_set():
            number += 1
            write(root, number)
            committed.value = number
            stop.wait(0.05)
    except Exception as error:  # noqa: BLE001
        failed.put(f"the writer: {error!r}")


def consolidator(root, done, stop, failed):
    """Consolidates one array after the other, and sometimes vacuums it."""
    try:
        steps = random.Random(1)
        # libtiledb allocates the whole memory budget, so it is small.
        config = {"sm.mem.total_budget": 64 << 20}
        while not stop.is_set():
            uri = str(root / steps.choice(NAMES))
            mode = steps.choice(["fragments", "fragments", "commits", "fragment_meta"])
            tiledb.consolidate(uri, config=tiledb.Config({**config, "sm.consolidation.mode": mode}))
            if steps.random() < 0.7:
                mode = steps.choice(["fragments", "fragments", "commits", "fragment_meta"])
                tiledb.vacuum(uri, config=tiledb.Config({"sm.vacuum.mode": mode}))
            done.value += 1
            stop.wait(0.1)
    except Exception as error:  # noqa: BLE001
        failed.put(f"the consolidator: {error!r}")


def check(column, raw):
    """The number in a file; otherwise an error in words."""
    cells = SIDE * SIDE
    if column == "offsets":
        want = np.arange(cells + 1, dtype="<u8") * 7
        return None if raw == want.tobytes() else "offsets of no commit"
    if column == "a":
        values = np.frombuffer(raw, "<i8") if len(raw) % 8 == 0 else np.zeros(0)
    else:
        values = np.frombuffer(raw, "S7") if len(raw) % 7 == 0 else np.zeros(0)
    if len(values) != cells:
        return f"{len(values)} cells, {len(raw)} bytes"
    if (values != values[0]).any():
        return f"several commits: {sorted(set(values.tolist()))[:5]}"
    return int(values[0])


def reader(point, seed, committed, history, stop, results):
    """Reads random files; counts the results."""
    rng, counts, wrong = random.Random(seed), {"whole": 0, "refused": 0}, []
    files = {"a": "a/data.bin", "v": "v/data.bin", "offsets": "v/offsets.bin"}
    while not stop.is_set():
        kind, column = rng.choice(NAMES), rng.choice(list(files))
        path, old = f"{point}/{kind}/data/columns/{files[column]}", settled(history, time.time() - PATIENCE)
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                size, parts = os.fstat(descriptor).st_size, []
                while part := os.read(descriptor, rng.choice([4096, 10_000, 1 << 20])):
                    parts.append(part)
                raw = b"".join(parts)
            finally:
                os.close(descriptor)
        except OSError as error:
            counts["refused"] += 1
            if error.errno not in ALLOWED:
                wrong.append(f"{path}: {error!r}")
            continue
        counts["whole"] += 1
        got = check(column, raw)
        if len(raw) != size:
            wrong.append(f"{path}: {len(raw)} bytes, but fstat said {size}")
        elif isinstance(got, str):
            wrong.append(f"{path}: {got}")
        elif got is not None and not old <= got <= committed.value + 1:
            wrong.append(f"{path}: commit {got}, but {old} was seen {PATIENCE} s ago and the last one is {committed.value}")
    results.put((counts, wrong[:20]))


def settled(history, before):
    """The last commit that was complete at a time."""
    numbers = [number for number, when in list(history) if when <= before]
    return max(numbers, default=0)


def main():
    """Runs writers and readers and counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--readers", type=int, default=8)
    options = parser.parse_args()
    checks, processes = Checks(), multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-live-") as folder, processes.Manager() as manager:
        root = Path(folder)
        create(root)
        write(root, 1)
        committed, done, stop = processes.Value("q", 1), processes.Value("q", 0), processes.Event()
        history, results, failed = manager.list(), processes.Queue(), processes.Queue()
        with mounted(root) as point:
            work = [processes.Process(target=writer, args=(root, committed, stop, failed))]
            work.append(processes.Process(target=consolidator, args=(root, done, stop, failed)))
            arguments = (committed, history, stop, results)
            work += [processes.Process(target=reader, args=(str(point), seed, *arguments)) for seed in range(options.readers)]
            for process in work:
                process.start()
            end = time.time() + options.seconds
            while time.time() < end:
                history.append((committed.value, time.time()))
                time.sleep(0.1)
            stop.set()
            answers = [results.get(timeout=120) for _ in range(options.readers)]
            for process in work:
                process.join(120)
            time.sleep(PATIENCE)
            for kind in NAMES:
                raw = (point / kind / "data/columns/a/data.bin").read_bytes()
                checks.equal(f"{kind}: the last commit is there in the end", check("a", raw), committed.value)
            mount_lives = sorted(os.listdir(point / "dense/data"))
        checks.equal("the mount lives", {"columns", "view.json"} <= set(mount_lives), True)
        troubles = []
        while not failed.empty():
            troubles.append(failed.get())
        checks.equal("what writes never fails", troubles, [])
        for seed, (counts, wrong) in enumerate(answers):
            checks.equal(f"reader {seed}: every whole read is one commit", wrong, [])
            checks.equal(f"reader {seed}: it read some files whole", counts["whole"] > 0, True)
        whole, refused = (sum(counts[name] for counts, _ in answers) for name in ("whole", "refused"))
        print(f"     {committed.value} commits, {done.value} consolidations, {whole} files read whole, {refused} refused")
        checks.equal("there were commits and consolidations", committed.value > 5 and done.value > 2, True)
        # Readers that nearly always fail would prove nothing.
        checks.equal("more files are read than refused", whole > refused, True)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
