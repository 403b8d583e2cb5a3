"""Mounts of several machines of one source: what one of them writes, the others read by its time or its pin, or fail.

    python3 cluster.py

The mounts keep their listings for an hour, as if each had been made at another time. The last line is `N passed, N failed`.
"""

import contextlib
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tiledb

from mount import binary, mounted, stats
from plain_tools import Checks
from stores import KEYS, Moto

CELLS = 1000


def context(moto):
    """What libtiledb writes to the store with."""
    key, secret = KEYS.values()
    return tiledb.Ctx({"vfs.s3.endpoint_override": moto.host, "vfs.s3.scheme": "http", "vfs.s3.use_virtual_addressing": "false",
                       "vfs.s3.region": "us-east-1", "vfs.s3.aws_access_key_id": key, "vfs.s3.aws_secret_access_key": secret})


def create(ctx, sparse, uri):
    """An array without cells."""
    dim = tiledb.Dim("x", domain=(0, 100 * CELLS - 1), tile=CELLS, dtype="i8")
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("a", dtype="i8")], sparse=sparse)
    tiledb.Array.create(uri, schema, ctx=ctx)
    return uri


def write(uri, ctx, number, stamp=None):
    """Write `number`: the next cells. Returns its stamp, once that is past."""
    cells = np.arange(number * CELLS, (number + 1) * CELLS)
    stamp = stamp or int(time.time() * 1000)
    with tiledb.open(uri, "w", ctx=ctx, timestamp=stamp) as array:
        values = {array.schema.attr(i).name: cells for i in range(array.schema.nattr)}
        if array.schema.sparse:
            array[cells] = values
        else:
            array[cells[0] : cells[-1] + 1] = values
    time.sleep(0.01)
    return stamp


def rows(view):
    """How many cells a view shows."""
    return len(np.load(view / "columns/a/data.npy"))


def compare_times(checks, ctx, env):
    """`at/<time>` is the same on a mount that listed the source before that time as on one that listed it later."""
    for sparse in (False, True):
        name = "sparse" if sparse else "dense"
        uri = create(ctx, sparse, f"s3://cluster/arrays/{name}")
        write(uri, ctx, 0)
        with mounted("s3://cluster/arrays", "--refresh", "3600", env=env) as older:
            checks.equal(f"{name}: the older mount, of now", rows(older / name / "data"), CELLS)
            stamp = write(uri, ctx, 1)
            checks.equal(f"{name}: its listing holds", rows(older / name / "data"), CELLS)
            with mounted("s3://cluster/arrays", "--refresh", "3600", env=env) as newer:
                newest = sorted(os.listdir(newer / name / "at"))[-1]
                checks.equal(f"{name}: at/{newest} on the newer mount", rows(newer / name / "at" / newest / "data"), 2 * CELLS)
                checks.equal(f"{name}: ... on the older one", rows(older / name / "at" / newest / "data"), 2 * CELLS)
            checks.equal(f"{name}: ... which knows it now", rows(older / name / "data"), 2 * CELLS)
            lists = stats(older)["list_requests"]
            for _ in range(3):
                checks.equal(f"{name}: an earlier time", rows(older / name / f"at/{stamp - 1}/data"), CELLS)
                rows(older / name / f"at/{stamp}/data")
            checks.equal(f"{name}: ... needs no listing", stats(older)["list_requests"] - lists, 0)
            write(uri, ctx, 2)
            checks.equal(f"{name}: a time in the future holds as now does", rows(older / name / "at/2999/data"), 2 * CELLS)
            between = int(time.time() * 1000)
            time.sleep(0.01)
            checks.equal(f"{name}: a time without a write", rows(older / name / f"at/{between}/data"), 3 * CELLS)
            write(uri, ctx, 3)
            now = int(time.time() * 1000)
            time.sleep(0.01)
            checks.equal(f"{name}: a range", rows(older / name / f"at/{stamp}..{now}/data"), 3 * CELLS)
        tiledb.VFS(ctx=ctx).remove_dir(uri)


def compare_vacuumed(checks):
    """A time that vacuum has emptied says so, and is not listed; a sparse array keeps its times."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        for sparse in (False, True):
            name = "sparse" if sparse else "dense"
            uri = create(None, sparse, f"{folder}/{name}")
            stamps = [write(uri, None, number) for number in range(3)]
            with mounted(folder) as point:
                incomplete = lambda time: json.loads((point / name / f"at/{time}/data/view.json").read_text())["incomplete"]
                listed = lambda: len(os.listdir(point / name / "at"))
                before = listed()
                checks.equal(f"{name}: nothing is incomplete", [incomplete(stamp) for stamp in stamps], 3 * [[]])
                tiledb.consolidate(uri)
                time.sleep(0.5)
                checks.equal(f"{name}: nothing is when consolidated", ([incomplete(stamp) for stamp in stamps], listed()), (3 * [[]], before))
                tiledb.vacuum(uri)
                time.sleep(0.5)
                [fragment] = tiledb.array_fragments(uri).uri
                lost = [] if sparse else [os.path.basename(fragment)]
                got = [incomplete(time) for time in (stamps[0] - 1, stamps[0], stamps[1], stamps[2])]
                checks.equal(f"{name}: the fragment is named when vacuumed", got, [[], lost, lost, []])
                checks.equal(f"{name}: of a range as well", incomplete(f"{stamps[1]}..{stamps[2]}"), lost)
                checks.equal(f"{name}: rows as libtiledb reads them", rows(point / name / f"at/{stamps[1]}/data"), 2 * CELLS if sparse else 0)
                names = os.listdir(point / name / "at")
                stamp = lambda time: np.datetime_as_string(np.datetime64(time, "ms"), unit="ms") + "Z"
                checks.equal(f"{name}: what is listed", [stamp(time) in names for time in stamps], [sparse, False, True])
                log = Path(folder, "log")
                with mounted(uri, "--log-file", log) as point:
                    for _ in range(2):
                        for asked in stamps[:2]:
                            (point / f"at/{asked}/data/view.json").read_text()
                        time.sleep(1.5)
                checks.equal(f"{name}: a warning for each state", log.read_text().count("is vacuumed"), 0 if sparse else 2)
                log.unlink()


def consolidate(uri, ctx, mode="fragments", vacuum=False, times=(0, 2**64 - 1)):
    """Consolidates what was written in a range of time, or vacuums what was consolidated."""
    call, key = (tiledb.vacuum, "sm.vacuum.mode") if vacuum else (tiledb.consolidate, "sm.consolidation.mode")
    config = (ctx.config().dict() if ctx else {}) | {key: mode}
    if not vacuum:
        config |= {"sm.consolidation.timestamp_start": times[0], "sm.consolidation.timestamp_end": times[1]}
    call(uri, ctx=ctx or tiledb.default_ctx(), config=tiledb.Config(config))


def delete(uri, ctx, below, stamp=None):
    """Deletes the cells with values of less than `below`, at a time or now. Returns its stamp, once that is past."""
    stamp = stamp or int(time.time() * 1000)
    with tiledb.open(uri, "d", ctx=ctx, timestamp=stamp) as array:
        array.query(cond=f"a < {below}").submit()
    time.sleep(0.01)
    return stamp


def describe(uri, ctx):
    """Writes metadata."""
    with tiledb.open(uri, "w", ctx=ctx, timestamp=int(time.time() * 1000)) as array:
        array.meta["written"] = time.time()
    time.sleep(0.01)


def evolve(uri, ctx, name):
    """Adds an attribute."""
    evolution = tiledb.ArraySchemaEvolution(ctx or tiledb.default_ctx())
    evolution.add_attribute(tiledb.Attr(name, dtype="i8"))
    evolution.timestamp(int(time.time() * 1000))
    evolution.array_evolve(uri)
    time.sleep(0.01)


def truth(uri, ctx, stamp):
    """What libtiledb reads up to a time: coordinates and values, and the metadata."""
    with tiledb.open(uri, ctx=ctx, timestamp=stamp) as array:
        meta = dict(array.meta)
        if array.nonempty_domain() is None:
            return [], [], meta
        if array.schema.sparse:
            cells = array[:]
            order = np.argsort(cells["x"], kind="stable")
            return cells["x"][order].tolist(), cells["a"][order].tolist(), meta
        (low, high), = array.nonempty_domain()
        values = array[int(low) : int(high) + 1]
        return list(range(int(low), int(high) + 1)), (values["a"] if isinstance(values, dict) else values).tolist(), meta


def read(state):
    """What `at/<pin>` shows: the same three."""
    columns = [np.load(state / f"data/columns/{name}/data.npy") for name in "xa"]
    order = np.argsort(columns[0], kind="stable")
    meta = {key: value["value"] for key, value in json.loads((state / "metadata.json").read_text()).items()}
    return *(column[order].tolist() for column in columns), meta


def pin_of(view):
    """The pin that a view has."""
    return json.loads((view / "data/view.json").read_text())["pin"]


def fails_with(path):
    """The errors of looking for a path."""
    try:
        os.stat(path)
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


def compare_undone(checks):
    """A pin is found as long as what it names is there, however often that was consolidated."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        for sparse in (False, True):
            name = "sparse" if sparse else "dense"
            uri = create(None, sparse, f"{folder}/{name}")
            pins = {}

            def pin(what):
                """Pins the state of now on a mount of its own."""
                with mounted(uri) as point:
                    pins[what] = pin_of(point)
                    latest = os.readlink(point / "at/latest")
                    checks.equal(f"{name}: at/latest, {what}", latest, pins[what])
                    checks.equal(f"{name}: the pin of it", pin_of(point / "at/latest"), pins[what])
                wanted[pins[what]] = truth(uri, None, int(time.time() * 1000))

            wanted = {}
            pin("empty")
            stamps = [write(uri, None, number) for number in range(4)]
            pin("four writes")
            consolidate(uri, None, times=(stamps[0], stamps[1]))
            pin("the first two consolidated")
            if sparse:
                delete(uri, None, CELLS // 2)
                pin("deleted")
            describe(uri, None)
            pin("described")
            describe(uri, None)
            consolidate(uri, None, "array_meta")
            pin("metadata consolidated")
            consolidate(uri, None)
            pin("all consolidated")
            write(uri, None, 4)
            consolidate(uri, None)
            pin("consolidated again")
            evolve(uri, None, "b")
            pin("evolved")
            write(uri, None, 5)
            consolidate(uri, None, "commits")
            consolidate(uri, None, "commits", vacuum=True)
            pin("commits consolidated")
            if sparse:
                # What both pins are made of has the same fragments and the same newest time.
                delete(uri, None, 3 * CELLS, stamps[3] + 1)
                pin("deleted late")
                gone = wanted[pins["deleted late"]] != wanted[pins["commits consolidated"]]
                checks.equal(f"{name}: the late delete deletes", gone, True)
            checks.equal(f"{name}: every state has a pin of its own", len(set(pins.values())), len(pins))
            with tiledb.open(uri, "w", timestamp=stamps[1] + 1) as array:
                cells = np.arange(50 * CELLS, 50 * CELLS + 10)
                values = {"a": cells, "b": cells}
                if sparse:
                    array[cells] = values
                else:
                    array[cells[0] : cells[-1] + 1] = values
            with mounted(folder) as point:
                for what, one in pins.items():
                    checks.equal(f"{name}: at/<pin> of {what}", read(point / name / "at" / one), wanted[one])
                    checks.equal(f"{name}: its own pin", pin_of(point / name / "at" / one), one)
                one = pins["consolidated again"]
                checks.equal(f"{name}: without colons", read(point / name / "at" / one.replace(":", "")), wanted[one])
                part = np.load(point / name / "at" / one / "data/subarray/10..19/columns/a/data.npy").tolist()
                checks.equal(f"{name}: a part of it", part, [a for x, a in zip(*wanted[one][:2]) if 10 <= x <= 19])
                changed = one[:-1] + ("0" if one[-1] != "0" else "1")
                later = one.replace(one[11:13], f"{(int(one[11:13]) + 1) % 24:02}")
                got = [fails_with(point / name / "at" / other) for other in (changed, later, one[:-1], one + "0", "~" + one[-16:], one + "..")]
                checks.equal(f"{name}: names of no state", got, 2 * ["ESTALE"] + 4 * ["ENOENT"])
                copy = shutil.copytree(uri, f"{folder}/other/{name}")
                with mounted(copy) as other:
                    checks.equal(f"{name}: a copy has the same pins", read(other / "at" / one), wanted[one])
                for mode in ("fragments", "array_meta"):
                    consolidate(uri, None, mode, vacuum=True)
                shutil.rmtree(copy)
            with mounted(folder) as point:
                got = {what: fails_with(point / name / "at" / one) for what, one in pins.items()}
                checks.equal(f"{name}: when vacuumed", {*got.values()} - {None}, {"ESTALE"})
                left = ["empty", "consolidated again", "evolved", "commits consolidated", *(["deleted late"] if sparse else [])]
                checks.equal(f"{name}: what is left", [what for what, error in got.items() if not error], left)
                gone = pins["four writes"]
                lines = [line for line in (point / ".tiledbfs/errors.jsonl").read_text().splitlines() if gone in line]
                checks.equal(f"{name}: one line in the log", len(lines), 1)
                done = subprocess.run([binary(), "cat", uri, f"at/{gone}/schema.json"], capture_output=True, text=True, timeout=60)
                checks.equal(f"{name}: cat says why", (done.returncode, "no state of this name" in done.stderr), (1, True))
                done = subprocess.run([binary(), "ls", uri, f"at/{gone[:-1]}"], capture_output=True, text=True, timeout=60)
                checks.equal(f"{name}: ls says why", (done.returncode, "16 hexadecimal digits" in done.stderr), (1, True))


def compare_future(checks):
    """What is stamped in the future is in no pin of now; a pin of later times has it."""
    later = 4_000_000_000_000
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        for sparse in (False, True):
            name = "sparse" if sparse else "dense"
            uri = create(None, sparse, f"{folder}/{name}")
            pins = {}

            def pin(state, end):
                """Pins a state on a mount of its own."""
                with mounted(uri) as point:
                    one = pin_of(point / state)
                pins[one] = truth(uri, None, end)
                return one

            newest = np.datetime64(write(uri, None, 0), "ms")
            write(uri, None, 1, later)
            now = int(time.time() * 1000)
            checks.equal(f"{name}: the pin of now is of the first write", pin("", now).split("~")[0], f"{newest}Z")
            checks.equal(f"{name}: that of a later time of the second one", pin("at/2999", later + 1).split("~")[0], f"{np.datetime64(later, 'ms')}Z")
            consolidate(uri, None)
            pin("", int(time.time() * 1000))
            pin("at/2999", later + 1)
            checks.equal(f"{name}: the states", len(pins), 4 if sparse else 3)
            with mounted(folder) as point:
                for one, wanted in pins.items():
                    checks.equal(f"{name}: at/{one}", read(point / name / "at" / one), wanted)


def compare_labels(checks):
    """What is in the array of a dimension label belongs to the state."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        uri, count = f"{folder}/labelled", 20
        dim = tiledb.Dim("x", domain=(0, count - 1), tile=count, dtype="i8")
        labels = {0: {"lat": dim.create_label_schema("increasing", np.float64)}}
        schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("a", dtype="i8")], dim_labels=labels)
        tiledb.Array.create(uri, schema)
        pins, tables = [], []
        for turn in range(2):
            with tiledb.open(uri, "w") as array:
                array[:] = {"a": np.arange(count), "lat": np.linspace(-1, 1 + turn, count)}
            time.sleep(0.01)
            with mounted(folder) as point:
                pins.append(pin_of(point / "labelled"))
                tables.append((point / "labelled/data/table.csv").read_bytes())
        with mounted(folder) as point:
            got = [(point / f"labelled/at/{pin}/data/table.csv").read_bytes() for pin in pins]
            checks.equal("labels: of each state", (got == tables, tables[0] != tables[1]), (True, True))
            with mounted(uri, "--at", pins[0]) as other:
                checks.equal("labels: a mount of the state", (other / "data/table.csv").read_bytes(), tables[0])
                checks.equal("labels: their array", np.load(other / "labels/lat/data/columns/label/data.npy")[-1], 1)
        newest = sorted(Path(uri, "__labels").glob("*/__fragments/*"))[-1]
        shutil.rmtree(newest)
        os.remove(newest.parents[1] / "__commits" / f"{newest.name}.wrt")
        with mounted(folder) as point:
            checks.equal("labels: no state without them", [fails_with(point / "labelled/at" / pin) for pin in pins], [None, "ESTALE"])


def compare_pins(checks, ctx, env, seed):
    """A writer appends, deletes, consolidates and vacuums; each read of a pin on any mount is what libtiledb read then, or fails."""
    rng = random.Random(seed)
    read_well = refused = 0
    for sparse in (False, True):
        name = "sparse" if sparse else "dense"
        uri = create(ctx, sparse, f"s3://cluster/pinned/{name}")
        write(uri, ctx, 0)
        with contextlib.ExitStack() as stack:
            mounts = [stack.enter_context(mounted("s3://cluster/pinned", "--refresh", age, env=env)) for age in ("3600", "5", "1")]
            for point in mounts:
                rows(point / name / "data")
            pins, number = {}, 1
            actions = rng.choices(["write", "write", "delete", "consolidate", "consolidate", "vacuum", "describe", "evolve"], k=11)
            # Once: libtiledb 2.30 fails to consolidate commits again after deletes that it has consolidated.
            actions.insert(rng.randrange(len(actions)), "commits")
            actions += ["write", "consolidate", "vacuum"]
            for turn, action in enumerate(actions):
                if action == "delete" and sparse:
                    delete(uri, ctx, rng.randrange(number * CELLS))
                elif action == "consolidate":
                    consolidate(uri, ctx)
                elif action == "vacuum":
                    consolidate(uri, ctx, vacuum=True)
                elif action == "commits":
                    consolidate(uri, ctx, "commits")
                    consolidate(uri, ctx, "commits", vacuum=True)
                elif action == "describe":
                    describe(uri, ctx)
                elif action == "evolve":
                    evolve(uri, ctx, f"b{turn}")
                else:
                    write(uri, ctx, number)
                    number += 1
                # A machine that has seen nothing before.
                done = subprocess.run([binary(), "cat", uri, "data/view.json"], capture_output=True, env=env, timeout=60, check=True)
                pins[json.loads(done.stdout)["pin"]] = truth(uri, ctx, int(time.time() * 1000))
                last = turn == len(actions) - 1
                for pin in rng.sample(sorted(pins), len(pins) if last else min(3, len(pins))):
                    for age, point in enumerate(mounts):
                        try:
                            got = read(point / name / "at" / pin)
                        except OSError as error:
                            refused += 1
                            if error.errno not in (errno.ESTALE, errno.EIO):
                                checks.equal(f"{name}, {turn}, {action}: {pin} on mount {age}", errno.errorcode[error.errno], "ESTALE or EIO")
                            continue
                        read_well += 1
                        if got != pins[pin]:
                            checks.equal(f"{name}, {turn}, {action}: {pin} on mount {age}", got, pins[pin])
    print(f"{read_well} reads of pins, {refused} refused")
    checks.equal("pins were read", read_well > 0, True)
    checks.equal("pins were refused", refused > 0, True)


def compare_open(checks, ctx, env):
    """A file of a pin that is open stays as it is, or fails; and stores have the pins of local copies."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        uri = create(ctx, False, "s3://cluster/open/dense")
        for number in range(3):
            write(uri, ctx, number)
        vfs = tiledb.VFS(ctx=ctx)
        for key in vfs.ls_recursive(uri):
            local = Path(folder, key.removeprefix("s3://cluster/open/"))
            local.parent.mkdir(parents=True, exist_ok=True)
            with vfs.open(key) as source:
                local.write_bytes(source.read())
        with mounted("s3://cluster/open", "--refresh", "3600", env=env) as point, mounted(folder) as here:
            pin = pin_of(point / "dense")
            checks.equal("a local copy has the pin of the store", pin_of(here / "dense"), pin)
            wanted = (here / f"dense/at/{pin}/data/columns/a/data.bin").read_bytes()
            with open(point / f"dense/at/{pin}/data/columns/a/data.bin", "rb", buffering=0) as file:
                first = os.pread(file.fileno(), 8, 0)
                consolidate(uri, ctx)
                consolidate(uri, ctx, vacuum=True)
                write(uri, ctx, 0)
                checks.equal("an open file has its bytes", first, wanted[:8])
                try:
                    rest = os.pread(file.fileno(), len(wanted), 0)
                    checks.equal("and has them after vacuum", rest, wanted[: len(rest)])
                except OSError as error:
                    checks.equal("or fails", error.errno in (errno.EIO, errno.ESTALE), True)
            with mounted("s3://cluster/open", env=env) as other:
                checks.equal("another mount has it no more", fails_with(other / "dense/at" / pin), "ESTALE")


def main():
    """Runs all of it."""
    checks = Checks()
    compare_vacuumed(checks)
    compare_undone(checks)
    compare_future(checks)
    compare_labels(checks)
    with Moto() as moto:
        moto.bucket("cluster")
        compare_times(checks, context(moto), moto.env())
        compare_open(checks, context(moto), moto.env())
        compare_pins(checks, context(moto), moto.env(), seed=5)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
