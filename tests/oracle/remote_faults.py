"""Faults of network and store: each ends as docs/object-stores.md says, without wrong or lost data.

    python3 remote_faults.py [--only NAME]

Scenarios run at the same time, each with a proxy and a mount of its own. One in which something took too long is run once more
when all others have ended: other stages take the processors as well. The last line is `N passed, N failed`.
"""

import argparse
import concurrent.futures
import contextlib
import errno
import functools
import io
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import tiledb

from hostile import PIECE, Hostile, azure_object, azure_page, dav_entry, s3_object, s3_page
from mount import binary, errors, mounted, stats, unmount
from proxy import Proxy
from remote_requests import read_at
from serve import serving
from stores import KEYS as SECRETS, Moto, Rclone, Wrong, clean_environment, expect

CELLS, TILE = 1 << 20, 1 << 16
"""4 MiB of int32, in tiles of 256 KiB."""
COLUMN, PLAIN = "columns/a/data.bin", "columns/plain/data.bin"
SCENARIOS = []


def scenario(function):
    """Marks a scenario."""
    SCENARIOS.append(function)
    return function


def scenario_apart(function):
    """Marks a scenario whose store floods, so that it would delay the proxies of others, which run in the same process, or which others must not delay."""
    function.apart = True
    return scenario(function)


class Slow(Wrong):
    """Something took longer than allowed."""


def in_time(condition, what):
    """Raises `Slow` unless the condition on the time holds."""
    if not condition:
        raise Slow(what)


def error_of(act, seconds=60):
    """The errno of a call that must fail within a time."""
    start = time.monotonic()
    try:
        act()
    except OSError as error:
        took = time.monotonic() - start
        in_time(took < seconds, f"the error came after {took:.1f} s")
        return error.errno
    raise Wrong("it does not fail")


@functools.cache
def values_of(seed):
    """What is written into a fragment."""
    return np.random.default_rng(seed).integers(0, 1 << 20, CELLS, dtype="i4")


class Place:
    """An array of two fragments on moto, below a prefix of its own, and what libtiledb reads from it."""

    def __init__(self, moto, name, folder):
        self.moto, self.name, self.folder = moto, name, folder
        self.array = os.path.join(folder, "array")
        self.url = f"s3://faults/{name}"
        self.values = [values_of(seed) for seed in (1, 2)]
        moto.load("faults", name, self.array)
        self.fragments = sorted({key.split("/")[2] for key in moto.keys("faults", f"{name}/__fragments/")})

    def column(self, point, index=0):
        """The column of a fragment in a mount."""
        return point / "fragments" / self.fragments[index] / COLUMN

    def right(self, point, index=0):
        """Reads a column; all of it must be right."""
        got = self.column(point, index).read_bytes()
        expect(got == self.values[index].tobytes(), f"the column of fragment {index} is wrong")

    def key(self, index=0, name="a0.tdb"):
        """The key of a file of a fragment."""
        return f"{self.name}/__fragments/{self.fragments[index]}/{name}"

    @contextlib.contextmanager
    def mounted(self, *options, faults=()):
        """A mount of it through a proxy, with faults from the start."""
        with Proxy(self.moto.host) as proxy:
            for what, more in faults:
                proxy.fault(what, **more)
            with mounted(self.url, *options, env=self.moto.env(proxy.host)) as point:
                yield point, proxy


def write_array(folder):
    """The array of all scenarios."""
    path = os.path.join(folder, "array")
    attributes = [tiledb.Attr("a", dtype="i4", filters=tiledb.FilterList([tiledb.ZstdFilter()])), tiledb.Attr("plain", dtype="i4")]
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, CELLS - 1), tile=TILE, dtype="i4"))
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=attributes))
    for seed in (1, 2):
        values = values_of(seed)
        with tiledb.open(path, "w", timestamp=1000 * seed) as array:
            array[:] = {"a": values, "plain": values}


# -- what passes ---------------------------------------------------------------------------------------------


def passes(name, *faults):
    """A scenario after which everything must be right."""

    def run(place):
        with place.mounted(faults=faults) as (point, proxy):
            place.right(point)
            expect(all(fault.hits for fault in proxy.faults), f"it did not happen: {proxy.faults}")
            expect(stats(point)["retries"] > 0, "stats.json tells of no retry")

    run.__name__ = name
    scenario(run)


passes("unavailable_three_times", (503, {"times": 3}))
passes("an_internal_error", (500, {"times": 1, "path": "a0.tdb"}))
passes("too_many_requests", (429, {"times": 2, "path": "a0.tdb"}))
passes("two_resets", ("reset", {"times": 2, "path": "a0.tdb"}))
passes("a_listing_that_fails_once", (500, {"times": 1, "kind": "list"}), ("reset", {"times": 1, "path": "a0.tdb"}))


@scenario
def a_body_cut_short(place):
    """The missing part is requested again."""
    with place.mounted() as (point, proxy):
        fault = proxy.fault("cut", path="a0.tdb", times=3, after=1000)
        place.right(point)
        expect(fault.hits == 3, f"{fault.hits} bodies were cut")


@scenario
def a_body_that_stalls(place):
    """After some seconds it is requested again."""
    with place.mounted() as (point, proxy):
        proxy.fault("stall", path="a0.tdb", times=1, after=1000)
        place.right(point)


@scenario
def directory_markers(place):
    """Empty keys that end in a slash change nothing."""
    with place.mounted() as (point, _):
        wanted = tree(point)
    for key in ("", "__fragments/", "__schema/", f"__fragments/{place.fragments[0]}/", "__meta/", "__commits/"):
        place.moto.put("faults", f"{place.name}/{key}", b"")
    with place.mounted() as (point, _):
        expect(tree(point) == wanted, "the tree is another")
        place.right(point)


@scenario_apart
def odd_keys(place):
    """Keys that TileDB does not write do not hide others."""
    for key in ("a//b", "./c", "x/../y", "sp ace", "per%20cent", "ünï/x", "plus+"):
        place.moto.put("faults", f"{place.name}/{key}", b"odd")
    with place.mounted() as (point, _):
        place.right(point)


def tree(point):
    """All names, with their lengths."""
    found = {}
    for folder, _, files in os.walk(point):
        if ".tiledbfs" not in folder:
            found |= {os.path.relpath(os.path.join(folder, f), point): os.lstat(os.path.join(folder, f)).st_size for f in files}
    return found


# -- what fails ----------------------------------------------------------------------------------------------


def refused(name, what, word):
    """A scenario in which one object is not readable."""

    def run(place):
        with place.mounted() as (point, proxy):
            fault = proxy.fault(what, kind="any", path=f"{place.fragments[0]}/a0.tdb", times=float("inf"))
            expect(error_of(lambda: place.column(point).read_bytes(), 10) == errno.EACCES, "another error")
            place.right(point, 1)
            told = " ".join(str(one) for one in errors(point))
            expect(word in told and "a0.tdb" in told, f"errors.jsonl: {told}")
            fault.times = 0
            place.right(point)

    run.__name__ = name
    scenario(run)


refused("forbidden_object", 403, "credentials")
refused("expired_credentials", "expired", "credentials")


@scenario
def forbidden_in_the_middle(place):
    """What was read before stays readable, and the rest is refused."""
    with place.mounted() as (point, proxy):
        read_at(place.column(point), 0, 8)
        proxy.fault(403, kind="any", path="a0.tdb", times=float("inf"))
        expect(error_of(lambda: place.column(point).read_bytes(), 10) == errno.EACCES, "another error")


@scenario
def unavailable_without_end(place):
    """An error within a minute; reads work again when the store does. Nothing else waits."""
    with place.mounted() as (point, proxy):
        schema_before = (point / "schema.json").read_bytes()
        read_at(place.column(point, 1), 0, 8)
        fault = proxy.fault(503, kind="any", times=float("inf"))
        got = []
        reader = threading.Thread(target=lambda: got.append(error_of(lambda: place.column(point).read_bytes())))
        reader.start()
        time.sleep(1)
        for what in (lambda: stats(point), lambda: errors(point), lambda: (point / "schema.json").read_bytes(), lambda: os.listdir(point),
                     lambda: read_at(place.column(point, 1), 0, 8)):
            start = time.monotonic()
            what()
            took = time.monotonic() - start
            in_time(took < 1, f"what needs no request took {took:.1f} s")
        expect((point / "schema.json").read_bytes() == schema_before, "schema.json is another")
        reader.join()
        expect(got == [errno.EIO], f"{got}")
        fault.times = 0
        place.right(point)


@scenario
def unmount_while_it_hangs(place):
    """A mount whose store does not answer can be unmounted."""
    with place.mounted() as (point, proxy):
        proxy.fault("late", kind="any", path="a0.tdb", times=float("inf"))
        reader = subprocess.Popen(["cat", place.column(point)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        start = time.monotonic()
        subprocess.run([binary(), "unmount", "--lazy", point], check=True, timeout=30)
        took = time.monotonic() - start
        in_time(took < 5, f"it took {took:.1f} s")
        reader.kill()
        reader.wait(20)


@scenario
def an_interrupted_read(place):
    """A signal ends a read and its request within a second."""
    with place.mounted() as (point, proxy):
        proxy.fault("late", kind="any", path="a0.tdb", times=float("inf"))
        # A timer's signal, which programs handle and go on, comes first.
        script = "import os, signal, sys, time\n" \
                 "signal.signal(signal.SIGALRM, lambda *_: print('alarm after', time.monotonic() - start))\n" \
                 "signal.signal(signal.SIGINT, lambda *_: (_ for _ in ()).throw(InterruptedError))\n" \
                 "fd = os.open(sys.argv[1], os.O_RDONLY)\nstart = time.monotonic()\nsignal.alarm(1)\nif os.fork() == 0:\n" \
                 "    time.sleep(3)\n    os.kill(os.getppid(), signal.SIGINT)\n    os._exit(0)\n" \
                 "try:\n    os.read(fd, 8)\nexcept InterruptedError:\n    print('interrupted', time.monotonic() - start)\n"
        done = subprocess.run([sys.executable, "-c", script, place.column(point)], capture_output=True, text=True, timeout=60)
        told = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
        expect(set(told) == {"alarm after", "interrupted"}, done.stdout + done.stderr)
        # Its handler runs when the read has ended.
        in_time(all(2.5 < float(took) < 4.5 for took in told.values()), f"{told}, three seconds until the signal that ends it")
        # A request that nobody waits for is dropped: the proxy sees the connection close.
        killed = subprocess.Popen(["cat", place.column(point)], stdout=subprocess.DEVNULL)
        time.sleep(1)
        killed.send_signal(signal.SIGKILL)
        start = time.monotonic()
        killed.wait(30)
        took = time.monotonic() - start
        in_time(took < 2, f"a killed reader lived on for {took:.1f} s")


@scenario
def an_interrupted_copy(place):
    """It ends soon although the store does not answer, and says so once; the same command goes on."""
    copy = os.path.join(place.folder, f"{place.name}-copy")
    with Proxy(place.moto.host) as proxy:
        proxy.fault("late", kind="any", path="a0.tdb", times=float("inf"))
        command = [binary(), "cp", "-r", place.url, "fragments", copy]
        copier = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=place.moto.env(proxy.host))
        while not any(fault.hits for fault in proxy.faults):
            expect(copier.poll() is None, "it has ended")
            time.sleep(0.05)
        start = time.monotonic()
        copier.send_signal(signal.SIGINT)
        told = copier.communicate(timeout=60)[1]
        took = time.monotonic() - start
        in_time(took < 5, f"an interrupted copy took {took:.1f} s")
        expect(copier.returncode == 130 and len(told.splitlines()) == 1, f"exit code {copier.returncode}: {told}")
        proxy.clear()
        subprocess.run(command, check=True, timeout=60, env=place.moto.env(proxy.host))
    for index, values in enumerate(place.values):
        expect(Path(copy, place.fragments[index], COLUMN).read_bytes() == values.tobytes(), f"the copy of fragment {index} is wrong")


def timed(act, seconds, what):
    """The result of `act`, which must not take longer."""
    start = time.monotonic()
    got = act()
    took = time.monotonic() - start
    in_time(took < seconds, f"{what} took {took:.1f} s")
    return got


@scenario
def a_listing_that_hangs(place):
    """Cached listings are shown for a little longer; then readers wait, and may give up; nothing else waits."""
    with place.mounted("--refresh", "2") as (point, proxy):
        schema = (point / "schema.json").read_bytes()
        place.right(point)
        time.sleep(2.2)
        os.listdir(point / "fragments")
        time.sleep(2.2)
        late = proxy.fault("late", kind="list", times=float("inf"))
        over = time.monotonic() + 4
        while time.monotonic() < over:
            expect(timed((point / "schema.json").read_bytes, 2, "schema.json") == schema, "schema.json is another")
            timed(lambda: os.listdir(point / "fragments"), 2, "ls fragments")
            timed(lambda: stats(point), 1, "stats.json")
        timed(lambda: place.right(point), 3, "a column that was read")
        expect(late.hits == 1, f"{late.hits} listings were asked for at once")
        # Older than allowed: readers wait.
        time.sleep(7)
        waiting = [subprocess.Popen(["ls", point / "fragments"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
        time.sleep(1)
        expect(all(one.poll() is None for one in waiting), "nobody waits")
        timed(lambda: stats(point), 1.5, "stats.json")
        timed(lambda: errors(point), 1.5, "errors.jsonl")
        for one in waiting:
            one.send_signal(signal.SIGINT)
            timed(lambda: one.wait(20), 1.5, "an interrupted ls")
        late.times = 0
        timed(lambda: os.listdir(point / "fragments"), 5, "ls, with the store back")
        place.right(point)
        late.times = float("inf")
        time.sleep(12)
        waiting = subprocess.Popen(["ls", point / "fragments"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        timed(lambda: subprocess.run([binary(), "unmount", "--lazy", point], check=True, timeout=30), 5, "unmount")
        waiting.kill()
        waiting.wait(20)


@scenario
def a_whole_object_for_a_range(place):
    """A wrong answer is an error, never other bytes."""
    with place.mounted() as (point, proxy):
        read_at(place.column(point), 0, 8)
        proxy.fault("whole", path="a0.tdb", times=float("inf"))
        number = error_of(lambda: read_at(place.column(point), 4 * (CELLS - 8), 8))
        expect(number == errno.EIO, f"errno {number}")
        proxy.clear()
        place.right(point)


@scenario
def another_region(place):
    """A redirect without a location is reported."""
    with place.mounted() as (point, proxy):
        proxy.fault("redirect", path="a0.tdb", times=float("inf"))
        expect(error_of(lambda: place.column(point).read_bytes()) == errno.EIO, "another error")
        told = " ".join(str(one) for one in errors(point))
        expect("region" in told, told)


# -- what changes --------------------------------------------------------------------------------------------


@scenario
def an_object_that_is_replaced(place):
    """Open files give an error, new opens the new bytes, and nobody a mix."""
    with place.mounted() as (point, _):
        column = point / "fragments" / place.fragments[0] / PLAIN
        with open(column, "rb", buffering=0) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            first = os.pread(opened.fileno(), 4096, 0)
            expect(first == place.values[0].tobytes()[:4096], "wrong before it was replaced")
            # Without filters, the bytes of the other fragment are at the same offsets.
            source = os.path.join(place.array, "__fragments", place.fragments[1], "a1.tdb")
            place.moto.put("faults", place.key(0, "a1.tdb"), Path(source).read_bytes())
            number = error_of(lambda: os.pread(opened.fileno(), 4096, 4 * (CELLS - 2048)), 10)
            expect(number == errno.EIO, f"errno {number}")
        end = time.monotonic() + 5
        while True:
            why = None
            try:
                got = column.read_bytes()
            except OSError as error:
                why = error
            else:
                expect(got == place.values[1].tobytes(), "neither an error nor the new bytes")
                break
            in_time(time.monotonic() < end, f"the new bytes are not seen: {why} {errors(point)}")
            time.sleep(0.2)


@scenario
def a_vacuum(place):
    """Objects that vanish: an error for open files, and gone from the next listing."""
    with place.mounted("--refresh", "2") as (point, _):
        with open(place.column(point), "rb", buffering=0) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            os.pread(opened.fileno(), 8, 0)
            for key in place.moto.keys("faults", place.name + "/"):
                if place.fragments[0] in key:
                    place.moto.delete("faults", key)
            number = error_of(lambda: os.pread(opened.fileno(), 4096, 4 * (CELLS - 2048)), 10)
            expect(number == errno.EIO, f"errno {number}")
        time.sleep(3)
        expect(os.listdir(point / "fragments") == [place.fragments[1]], "the fragment is still listed")
        place.right(point, 1)


def right_or_failed(path):
    """The content of a file; None if reading it fails, which may only be with EIO."""
    try:
        return path.read_bytes()
    except OSError as error:
        expect(error.errno == errno.EIO, f"{error}")
        return None


@scenario
def a_vacuum_under_a_view(place):
    """A view is right before, while and after its fragments are consolidated and vacuumed, although listings are cached for a minute."""
    wanted = place.values[1].tobytes()
    with place.mounted() as (point, _):
        column = point / "data" / COLUMN
        expect(read_at(column, 0, 4096) == wanted[:4096], "wrong before")
        ctx = tiledb.Ctx(place.moto.tiledb())
        tiledb.consolidate(place.url, ctx=ctx)
        tiledb.vacuum(place.url, ctx=ctx)
        left = {key.split("/")[2] for key in place.moto.keys("faults", place.name + "/__fragments/")}
        expect(len(left) == 1 and not left & set(place.fragments), f"{left}")
        # Unread files are gone: an error for those open. New opens get the replacement.
        end = time.monotonic() + 5
        while right_or_failed(column) != wanted:
            in_time(time.monotonic() < end, f"not seen: {errors(point)}")
            time.sleep(0.2)
        expect(os.listdir(point / "fragments") == sorted(left), "another is listed")


# Files that need the schema, the metadata, or both.
NEEDING = ["schema.json", "metadata.json", "data/array.nc", "data/array.zarr/zarr.json", "data/array.zarr/a/zarr.json", "data/array.zarr/a/c/0",
           "data/columns/a/data.npy"]


def write_metadata(place, count):
    """Files of metadata."""
    for number in range(count):
        with tiledb.open(place.url, "w", ctx=tiledb.Ctx(place.moto.tiledb())) as array:
            array.meta["k"] = number


def read_all(point, paths):
    """The content of each file, or the errno of reading it."""
    found = {}
    for path in paths:
        try:
            found[path] = (point / path).read_bytes()
        except OSError as error:
            found[path] = error.errno
    return found


def get(url, path):
    """The status and the content of a file over HTTP."""
    try:
        with urllib.request.urlopen(url + path) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, None


@scenario
def listed_files_that_are_missing(place):
    """A file that is listed and whose GET says 404: what needs it is never said not to exist, which readers of Zarr take for fill values."""
    write_metadata(place, 2)
    with place.mounted() as (point, _):
        want = read_all(point, NEEDING)
        expect(all(isinstance(one, bytes) for one in want.values()), f"{want}")
    for part in "__schema/", "__meta/":
        with place.mounted(faults=[(404, {"kind": "get", "path": part, "times": 10**6})]) as (point, proxy):
            found = read_all(point, NEEDING)
            wrong = {path: one for path, one in found.items() if one not in (want[path], errno.EIO)}
            expect(not wrong, f"{part}: {wrong}")
            expect(errno.EIO in found.values() and errors(point), f"{part}: nothing has failed")
            proxy.clear()
            end = time.monotonic() + 5
            while read_all(point, NEEDING) != want:
                in_time(time.monotonic() < end, f"{part}: it does not recover")
                time.sleep(0.2)
        with Proxy(place.moto.host) as proxy:
            proxy.fault(404, kind="get", path=part, times=10**6)
            with serving(place.url, "--listen", "127.0.0.1:0", env=place.moto.env(proxy.host)) as ([url], _):
                got = {path: get(url, path) for path in NEEDING}
                wrong = {path: one for path, one in got.items() if one not in ((200, want[path]), (500, None))}
                expect(not wrong and (500, None) in got.values(), f"{part} over HTTP: {wrong or got}")


@scenario
def one_wrong_answer(place):
    """An object that is another one once, or whose bytes are wrong once: an error at most, and then everything is right, also for who comes later."""
    write_metadata(place, 2)
    with tiledb.open(place.url, "w", ctx=tiledb.Ctx(place.moto.tiledb()), timestamp=3000) as array:
        # A part of the cells: what is read is put together from several fragments.
        array[TILE : 2 * TILE] = {"a": np.arange(TILE, dtype="i4"), "plain": np.arange(TILE, dtype="i4")}
    with place.mounted() as (point, _):
        want = read_all(point, NEEDING)
        expect(all(isinstance(one, bytes) for one in want.values()), f"{want}")
    for part in "__schema/", "__meta/", "a0.tdb", "__fragment_metadata.tdb":
        for what in 412, "zeros":
            cache = tempfile.mkdtemp(dir=place.folder)
            with place.mounted("--disk-cache", cache, faults=[(what, {"kind": "get", "path": part, "times": 1})]) as (point, proxy):
                end = time.monotonic() + 5
                while (found := read_all(point, NEEDING)) != want:
                    wrong = {path: one for path, one in found.items() if one not in (want[path], errno.EIO)}
                    expect(not wrong, f"{part}, {what}: {wrong}")
                    in_time(time.monotonic() < end, f"{part}, {what}: it does not recover: {errors(point)[-3:]}")
                    time.sleep(0.2)
                expect(proxy.faults[0].hits == 1, f"{part}, {what}: it did not happen")
            with place.mounted("--disk-cache", cache) as (point, _):
                expect(read_all(point, NEEDING) == want, f"{part}, {what}: the next mount is wrong")


@scenario
def a_listed_directory_that_is_said_to_be_missing(place):
    """A web server answers 404 for a directory that it lists: once, and nothing is missing; always, and what needs it fails. One that was removed is not there."""
    folder = f"{place.folder}/web"
    write_array(folder)
    with tiledb.open(f"{folder}/array", "w") as array:
        array.meta["key"] = 1
    shutil.copytree(f"{folder}/array", f"{folder}/other")
    needing = ["array/data/columns/a/data.bin", "array/metadata.json", "array/data/array.zarr/a/c/0"]
    with Rclone(folder) as store, Proxy(store.host) as proxy:
        with mounted(proxy.url, env=clean_environment()) as point:
            want = read_all(point, needing)
            expect(all(isinstance(one, bytes) for one in want.values()), f"{want}")
        for name in "__schema", "__commits", "__fragments", "__meta":
            for times in 1, 10**6:
                proxy.clear()
                fault = proxy.fault(404, kind="list", path=f"/{name}/?$", times=times)
                with mounted(proxy.url, env=clean_environment()) as point:
                    got = read_all(point, needing)
                    wrong = {path: one for path, one in got.items() if one not in ((want[path],) if times == 1 else (want[path], errno.EIO))}
                    expect(not wrong and (times == 1 or errno.EIO in got.values()), f"404 for {name}, {times} times: {wrong or got}")
                expect(fault.hits > 0, f"404 for {name}: it did not happen")
        proxy.clear()
        with mounted(proxy.url, env=clean_environment()) as point:
            os.listdir(point)
            shutil.rmtree(f"{folder}/array")
            expect(error_of(lambda: os.listdir(point / "array")) in (errno.ENOENT, errno.ESTALE), "a directory that was removed")


class Elsewhere(Proxy):
    """A proxy that asks for listings at another path than its client did."""

    async def _ask(self, request, raw, body):
        if request.kind == "list":
            request.path = request.path.replace("/array/__", "/other/__")
        return await super()._ask(request, raw, body)


@scenario
def a_listing_of_another_directory(place):
    """A proxy changes paths of requests, and not those in the answers: what is listed is not in the directory, which is not empty then."""
    folder = f"{place.folder}/elsewhere"
    write_array(folder)
    shutil.copytree(f"{folder}/array", f"{folder}/other")
    needing = ["array/data/columns/a/data.bin", "array/data/array.zarr/a/c/0"]
    with Rclone(folder) as store, Elsewhere(store.host) as proxy, mounted(proxy.url, env=clean_environment()) as point:
        got = read_all(point, needing)
        expect(set(got.values()) == {errno.EIO}, f"{got}")
        expect(any("not in this directory" in error["cause"] for error in errors(point)), "the log does not say why")


@scenario
def a_vacuum_of_metadata(place):
    """Metadata are consolidated and vacuumed while listings are cached: nothing that needs them is said not to exist."""
    write_metadata(place, 3)
    with place.mounted() as (point, _):
        os.listdir(point)
        (point / "data/columns/a/data.npy").read_bytes()
        config = tiledb.Config({**place.moto.tiledb(), "sm.consolidation.mode": "array_meta", "sm.vacuum.mode": "array_meta"})
        ctx = tiledb.Ctx(config)
        tiledb.consolidate(place.url, config=config, ctx=ctx)
        tiledb.vacuum(place.url, config=config, ctx=ctx)
        paths = ["data/array.zarr/a/c/0", "data/array.zarr/a/zarr.json", "metadata.json", "data/array.zarr/zarr.json", "data/array.nc"]
        first = read_all(point, paths)
        expect(errno.ENOENT not in first.values(), f"{first}")
        end = time.monotonic() + 5
        while any(isinstance(one, int) for one in read_all(point, paths).values()):
            in_time(time.monotonic() < end, f"it does not recover: {errors(point)}")
            time.sleep(0.2)


@scenario
def a_commit_before_its_files(place):
    """A commit without its fragment is not there yet; it is shown once its files are listed, and is damage if they never are."""
    name = place.fragments[1]
    files = [key for key in place.moto.keys("faults", place.name + "/__fragments/") if name in key]
    for key in files:
        place.moto.delete("faults", key)

    def commit():
        place.moto.put("faults", f"{place.name}/__commits/{name}.wrt", b"")

    commit()
    with place.mounted("--refresh", "2") as (point, _):
        column = point / "data" / COLUMN
        expect(column.read_bytes() == place.values[0].tobytes(), "what is not there yet is missed")
        for key in files:
            place.moto.put("faults", key, Path(place.array, key.split("/", 1)[1]).read_bytes())
        end = time.monotonic() + 12
        # Files that are put after their commit, one by one, may be listed in part.
        while right_or_failed(column) != place.values[1].tobytes():
            in_time(time.monotonic() < end, f"the fragment is not seen: {errors(point)}")
            time.sleep(0.2)
    for key in files:
        place.moto.delete("faults", key)
    commit()
    with place.mounted("--refresh", "2") as (point, _):
        column = point / "data" / COLUMN
        expect(column.read_bytes() == place.values[0].tobytes(), "what is not there yet is missed")
        time.sleep(12)
        expect(error_of(column.read_bytes, 10) == errno.EIO, "another error")
        told = " ".join(str(one) for one in errors(point))
        expect("is committed but missing" in told, told)


@scenario
def a_fragment_written_meanwhile(place):
    """It is seen when the cached listing has expired."""
    with place.mounted("--refresh", "2") as (point, _):
        os.listdir(point / "fragments")
        with tiledb.open(place.url, "w", ctx=tiledb.Ctx(place.moto.tiledb()), timestamp=9000) as array:
            array[:] = {"a": place.values[0], "plain": place.values[1]}
        end = time.monotonic() + 12
        while len(os.listdir(point / "fragments")) < 3:
            in_time(time.monotonic() < end, "it is not seen")
            time.sleep(0.2)
        last = (point / "fragments/latest" / COLUMN).read_bytes()
        expect(last == place.values[0].tobytes(), "it is wrong")

# -- stores that mean harm -----------------------------------------------------------------------------------


HEADERS = [b"X-More: " + PIECE[:1000] + b"\r\n"] * 200_000
LISTING_MIB, ERROR_MIB = 320, 100
"""The most memory that a listing without end may take, and the text of an error, in MiB."""


def s3_env(store, **more):
    """The environment for a store as S3."""
    return clean_environment() | SECRETS | {"AWS_ENDPOINT_URL": store.url, "AWS_REGION": "us-east-1", "AWS_SESSION_TOKEN": "hidden-token"} | more


def gcs_env(store):
    """The environment for a store as Google Cloud Storage."""
    return clean_environment() | {"GOOGLE_BASE_URL": store.url, "GOOGLE_SKIP_SIGNATURE": "true"}


def azure_env(store):
    """The environment for a store as Azure."""
    key = "aGlkZGVuLXNlY3JldA=="
    return clean_environment() | {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": key, "AZURE_STORAGE_ENDPOINT": store.url,
                                  "AZURE_ALLOW_HTTP": "true"}


MEASURE = "import resource, subprocess, sys\ncode = subprocess.run(sys.argv[2:]).returncode\n" \
          "open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024))\nsys.exit(code)"
"""Runs a command, and writes the most memory that it took, in MiB: from a small process, because forking counts that of the parent."""


def run_measured(*command, env, seconds=120):
    """Runs a command. Its exit code, its output and messages, and the most memory that it took, in MiB."""
    with tempfile.NamedTemporaryFile("r") as took:
        done = subprocess.run([sys.executable, "-c", MEASURE, took.name, binary(), *command], env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=seconds)
        return done.returncode, done.stdout, done.stderr, int(took.read())


def refused_listing(url, env, most, *words):
    """`ls` of a hostile store is one clear error, within memory. Returns the message."""
    code, out, message, took = run_measured("ls", url, env=env)
    expect(code == 1 and not out, f"exit code {code}, {out[:200]!r}: {message[:500]}")
    expect(took < most, f"{took} MiB: {message[:500]}")
    lines = [line for line in message.splitlines() if not line.startswith("tiledbfs: warning")]
    expect(len(message) < 3000 and len(lines) == 1, f"not a line: {message[:3000]}")
    for word in words:
        expect(word in message, f"no {word!r} in {message}")
    expect("hidden" not in message, message)
    return message


def memory(point):
    """The most memory that the process of a mount has taken, in MiB."""
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and str(point).encode() in (folder / "cmdline").read_bytes() and b"tiledbfs" in (folder / "cmdline").read_bytes():
                status = (folder / "status").read_text()
                return int(status.split("VmHWM:")[1].split()[0]) // 1024
    raise Wrong(f"no process has mounted {point}")


def in_all_stores(attack):
    """Runs `attack(store, url, env, kind)` against a new store as each of the four kinds."""
    for kind in ("s3", "gs", "az", "http"):
        with Hostile() as store:
            url = {"s3": "s3://bucket/p", "gs": "gs://bucket/p", "az": "az://bucket/p", "http": f"{store.url}/p"}[kind]
            env = {"s3": s3_env, "gs": gcs_env, "az": azure_env, "http": lambda _: clean_environment()}[kind](store)
            attack(store, url, env, kind)


def listing_fails(name, attack, *words, requests=None, most=LISTING_MIB):
    """A scenario in which a listing as S3 is one clear error."""

    def run(_):
        with Hostile(attack=lambda request, reply: request.lists and attack(request, reply)) as store:
            refused_listing("s3://bucket/p", s3_env(store), most, *words)
            expect(requests is None or len(store.log) <= requests, f"{len(store.log)} requests")

    run.__name__ = name
    scenario_apart(run)


def endless_page(kind):
    """A page of a listing without end."""
    entries = {"az": (azure_page, azure_object, "<Blobs>"), "http": (None, dav_entry, None)}.get(kind, (s3_page, s3_object, "<ListBucketResult>"))
    page, entry, start = entries
    yield page([]).split(start.encode())[0] + start.encode() if page else b'<D:multistatus xmlns:D="DAV:">'
    for number in itertools.count():
        yield "".join(entry(f"p/{number:06d}/{i:04d}") if page else entry(f"/p/{number:06d}{i:04d}") for i in range(1000)).encode()


@scenario_apart
def a_page_without_end(_):
    """The page of a listing has a bound, in all stores."""

    def attack(store, url, env, kind):
        store.attack = lambda request, reply: request.lists and reply.stream(207 if kind == "http" else 200, endless_page(kind))
        refused_listing(url, env, LISTING_MIB, "more than", "bytes")
        expect(len(store.log) == 1, f"{kind}: {len(store.log)} requests")

    in_all_stores(attack)


def pages_without_end(shape):
    """Pages of 1000 keys of this shape, of S3 or Azure."""

    def page(request, reply):
        if not request.lists:
            return False
        azure = "comp" in request.query
        start = int(request.query.get("marker" if azure else "continuation-token", 0))
        keys = (shape.format(n) for n in range(start, start + 1000))
        if "delimiter" in request.query:
            keys = ("/".join(key.split("/")[:2]) for key in keys)
        make, one = (azure_page, azure_object) if azure else (s3_page, s3_object)
        return reply.whole(200, make([one(key) for key in keys], f"{start + 1000:015d}"))

    return page


@scenario_apart
def a_listing_without_end(_):
    """A listing has a bound, in all stores that have pages."""

    def attack(store, url, env, kind):
        store.attack = pages_without_end("p/{:015d}" + "x" * 900)
        if kind != "http":
            refused_listing(url, env, LISTING_MIB, "listing")

    in_all_stores(attack)


for name, shape in {"short_keys": "p/{:015d}", "directories": "p/{:015d}/a/b/c/d", "deep_directories": "p/{:015d}" + "/d" * 300}.items():
    listing_fails(f"{name}_without_end", pages_without_end(shape), "listing")


@scenario_apart
def a_listing_without_end_in_a_mount(place):
    """Directories stay whole or fail, and the mount lives on, within memory."""
    with hostile_place(place) as (store, mount), mount("--refresh", "1") as point:
        place.right(point)
        wanted = sorted(os.listdir(point / "fragments"))

        def page(request, reply):
            if not request.lists:
                return False
            start = int(request.query.get("continuation-token", 0))
            return reply.whole(200, s3_page([s3_object(f"array/__fragments/__{n:09d}/x") for n in range(start, start + 1000)], str(start + 1000)))

        store.attack = page
        failed, end = None, time.monotonic() + 90
        while failed is None:
            time.sleep(1)
            in_time(time.monotonic() < end, "it does not fail")
            try:
                names = sorted(os.listdir(point / "fragments"))
            except OSError as error:
                failed = error.errno
            else:
                expect(names == wanted, f"{len(names)} names")
        expect(failed == errno.EIO, f"errno {failed}")
        expect(memory(point) < LISTING_MIB, f"{memory(point)} MiB")
        store.attack = None
        expect(sorted(os.listdir(point / "fragments")) == wanted, "not what it was")
        place.right(point)


@contextlib.contextmanager
def hostile_place(place):
    """A hostile store that holds the array of `place`, and how to mount it."""
    files = {f"array/{path.relative_to(place.array)}": path.read_bytes() for path in Path(place.array).rglob("*") if path.is_file()}
    with Hostile(files) as store:
        yield store, lambda *options, **more: mounted("s3://bucket/array", *options, env=s3_env(store, **more))


def counted(prefix="p/k", step=3):
    """The next page of a listing without end, with `step` keys."""
    def page(request, more="", start=None):
        start = int(request.query.get("continuation-token", 0)) if start is None else start
        return s3_page([s3_object(f"{prefix}{n:09d}") for n in range(start, start + step)], str(start + step), more)
    return page


listing_fails("a_token_that_repeats", lambda q, r: r.whole(200, s3_page([s3_object("p/a")], "again")), "again and again", requests=5)
listing_fails("empty_pages_without_end", lambda q, r: r.whole(200, counted(step=0)(q, start=len(q.query) + time.monotonic_ns())), "without end", requests=500)
listing_fails("a_token_that_is_too_long", lambda q, r: r.whole(200, s3_page([s3_object("p/a")], "t" * 100_000)), "too long", requests=3)
listing_fails("a_page_without_its_token", lambda q, r: r.whole(200, s3_page([s3_object("p/a")], None, "<IsTruncated>true</IsTruncated>")), "token", requests=1)
listing_fails("odd_keys_without_end", lambda q, r: r.whole(200, s3_page([s3_object("p/../x")], "t")), "not paths", requests=20)
listing_fails("a_page_for_people", lambda q, r: r.whole(200, b"<html>Log in first.</html>"), "listing", requests=1)
listing_fails("a_page_that_ends_too_soon", lambda q, r: r.whole(200, s3_page([s3_object("p/a")])[:-30]), requests=1)
listing_fails("a_compressed_page", lambda q, r: r.whole(200, b"\x1f\x8b" + bytes(1 << 20), Content_Encoding="gzip"), "compressed", requests=1)
listing_fails("a_length_that_is_too_long", lambda q, r: r.head(200, Content_Length=1 << 60) and r.raw(PIECE * 500), "more than", requests=1)
listing_fails("elements_in_elements", lambda q, r: r.whole(200, b"<ListBucketResult>" + b"<a>" * 5_000_000), requests=1)
listing_fails("headers_without_end", lambda q, r: r.raw(b"HTTP/1.1 200 X\r\n", *HEADERS), requests=3)
listing_fails("a_loop_of_redirects", lambda q, r: r.whole(307, b"", Location=q.path + "?list-type=2&prefix=p/"), "redirects", requests=10)


@scenario_apart
def a_directory_without_times(_):
    """The error names what an answer to PROPFIND lacks."""
    body = f'<D:multistatus xmlns:D="DAV:">{dav_entry("/p/a")}</D:multistatus>'.replace("getlastmodified", "creationdate").encode()
    with Hostile(attack=lambda request, reply: request.lists and reply.whole(207, body)) as store:
        refused_listing(f"{store.url}/p", clean_environment(), LISTING_MIB, "PROPFIND", "getlastmodified")


@scenario_apart
def the_text_of_an_error(_):
    """It has a bound, in all stores and for all statuses, and is not asked for again."""
    for status in (400, 403, 500, 503):

        def attack(store, url, env, kind, status=status):
            store.attack = lambda request, reply: reply.stream(status, [PIECE] * (200 << 4))
            # So a server answers that has no WebDAV.
            refused_listing(url, env, ERROR_MIB, "WebDAV" if (kind, status) == ("http", 400) else str(status))
            expect(len(store.log) == 1, f"{len(store.log)} requests")

        in_all_stores(attack)


@scenario_apart
def redirects_to_another_origin(_):
    """Refused in all stores: nobody else sees a request, nor is shown."""
    with Hostile(attack=lambda request, reply: reply.whole(200, s3_page([s3_object("p/of-a-thief/x")]))) as thief:

        def attack(store, url, env, _):
            for status in (301, 302, 307, 308):
                store.attack = lambda request, reply, status=status: reply.whole(status, b"", Location=thief.url + request.path + "?list-type=2&prefix=p/")
                refused_listing(url, env, ERROR_MIB, "redirect", thief.url)
            expect(not thief.log, f"another origin was asked: {thief.log}")

        in_all_stores(attack)


@scenario_apart
def a_redirected_read(place):
    """Refused as well; the same origin is followed."""
    with Hostile({}) as thief, hostile_place(place) as (store, mount), mount() as point:
        place.right(point, 1)

        def to(origin):
            def redirect(request, reply):
                if "a0.tdb" not in request.path or request.path.startswith("/moved"):
                    return False
                return reply.whole(307, b"", Location=f"{origin}/moved{request.path.removeprefix('/bucket')}")
            return redirect

        store.attack = to(thief.url)
        expect(error_of(lambda: place.column(point).read_bytes()) == errno.EIO, "another error")
        told = " ".join(str(one) for one in errors(point))
        expect("another origin" in told and not thief.log, f"{told}; {thief.log}")
        store.attack = to(store.url)
        place.right(point)


@scenario_apart
def credentials_of_a_hostile_service(_):
    """The reply has a bound, and a redirect is refused."""
    with Hostile() as store, Hostile() as thief, tempfile.NamedTemporaryFile("w") as token:
        token.write("hidden")
        token.flush()
        env = clean_environment() | {"AWS_ENDPOINT_URL": store.url, "AWS_REGION": "us-east-1", "AWS_CONTAINER_CREDENTIALS_FULL_URI": store.url + "/keys",
                                     "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token.name}
        store.attack = lambda request, reply: reply.stream(200, [PIECE] * (200 << 4))
        refused_listing("s3://bucket/p", env, ERROR_MIB, "more than")
        store.attack = lambda request, reply: reply.whole(302, b"", Location=thief.url + "/keys")
        refused_listing("s3://bucket/p", env, ERROR_MIB, "redirect")
        expect(not thief.log, "the token went to another origin")


@scenario_apart
def keys_that_do_harm(place):
    """Names, sizes and ETags that cannot be: an error or nothing on them, and neighbours are right."""
    with hostile_place(place) as (store, mount):
        more = [s3_object("array/" + "n" * 2000), s3_object("array/" + "d/" * 3000 + "x"), s3_object("array/huge", (1 << 64) - 1),
                s3_object("array/etag", 5, '"a&#10;b"'), s3_object("array/long", 5, '"' + "e" * 100_000 + '"')]

        def page(request, reply):
            if not request.lists:
                return False
            keys = sorted(store.objects)
            return reply.whole(200, s3_page([s3_object(key, len(store.objects[key]), store.etag(key)) for key in keys] + more))

        store.attack = page
        with mount() as point:
            place.right(point)
            subprocess.run(["find", point, "-ls"], check=True, capture_output=True, timeout=60)

        def all_wrong(request, reply):
            objects = [s3_object(key, (1 << 64) - 1 if "a0" in key else 1 << 40, '"a&#10;b"') for key in sorted(store.objects)]
            return request.lists and reply.whole(200, s3_page(objects))

        store.attack = all_wrong
        with mount() as point:
            error_of(lambda: place.column(point).read_bytes())
            expect(memory(point) < LISTING_MIB, f"{memory(point)} MiB")


def read_fails(name, attack, *words, seconds=60, requests=None):
    """A scenario in which bytes of an object are an error; others are right, and so is it afterwards."""

    def run(place):
        with hostile_place(place) as (store, mount), mount("--log-level", "debug") as point:
            place.right(point, 1)
            key = f"{place.fragments[0]}/a0.tdb"
            asked = []

            def on_key(request, reply):
                if key not in request.path:
                    return False
                asked.append(request)
                return attack(request, reply, store)

            store.attack = on_key
            number = error_of(lambda: read_at(place.column(point), 0, 8), seconds)
            expect(number == errno.EIO, f"errno {number}")
            expect(requests is None or len(asked) <= requests, f"{len(asked)} requests")
            expect(memory(point) < LISTING_MIB, f"{memory(point)} MiB")
            told = " ".join(str(one) for one in errors(point))
            expect(all(word in told for word in words), told)
            place.right(point, 1)
            store.attack = None
            place.right(point)

    run.__name__ = name
    scenario_apart(run)


def partial(request, store, shift=0, end=None, **more):
    """Headers of a reply to a request for a range, shifted."""
    key = request.path.lstrip("/").partition("/")[2]
    start, stop = request.range
    size = len(store.objects[key])
    return {"ETag": store.etag(key), "Last_Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
            "Content_Range": f"bytes {start + shift}-{end or min(stop, size) - 1 + shift}/{size}"} | more


read_fails("more_bytes_than_asked_for", lambda q, r, s: r.head(206, Content_Length=200 << 20, **partial(q, s)) and r.raw(*[PIECE] * 3200), "more than", requests=4)
read_fails("another_range_than_asked_for", lambda q, r, s: r.whole(206, PIECE, **partial(q, s, shift=8)), "another range", requests=4)
read_fails("a_range_that_overflows", lambda q, r, s: r.whole(206, PIECE, **partial(q, s, end=(1 << 64) - 1)), "another range", requests=4)
read_fails("fewer_bytes_than_asked_for", lambda q, r, s: r.whole(206, b"x" * 10, **partial(q, s)), "expected", requests=4)
read_fails("other_headers_without_end", lambda q, r, s: r.raw(b"HTTP/1.1 206 X\r\n", *HEADERS), requests=4)


def drip(request, reply, store):
    """Two bytes a second."""
    reply.head(206, Content_Length=1 << 20, **partial(request, store))
    while True:
        reply.raw(b"x")
        time.sleep(0.5)


read_fails("a_reply_that_drips", drip, "slowly", seconds=150)


# -- what cannot be mounted ----------------------------------------------------------------------------------


def not_mounted(name, words, url="s3://faults/{name}", fault=None, env=None):
    """A scenario in which mounting fails within 10 s with a message that contains these words."""

    def run(place):
        with Proxy(place.moto.host, signed_only=True) as proxy, tempfile.TemporaryDirectory() as point:
            if fault:
                proxy.fault(fault, kind="any", times=float("inf"))
            given = clean_environment() | {"AWS_ENDPOINT_URL": proxy.url} if env is None else place.moto.env(proxy.host)
            given |= {variable: value.format(folder=place.folder) for variable, value in (env or {}).items()}
            source = url.format(name=place.name)
            start = time.monotonic()
            done = subprocess.run([binary(), "mount", source, point], env=given, capture_output=True, text=True, timeout=60)
            took = time.monotonic() - start
            unmount(point)
            message = done.stderr
            expect(done.returncode == 1, f"exit code {done.returncode}: {message}")
            in_time(took < 10, f"it took {took:.1f} s: {message}")
            expect(message.count("\n") == 1, f"not one line: {message}")
            for word in [source, *words]:
                expect(word in message, f"no {word!r} in {message}")
            expect("hidden" not in message, message)

    run.__name__ = name
    scenario(run)


KEYS = {}
not_mounted("no_such_prefix", ["not found"], "s3://faults/nothing/here", env=KEYS)
not_mounted("no_such_bucket", ["not found"], "s3://no-such-bucket-at-all/a", env=KEYS)
not_mounted("no_credentials", ["credentials"])
not_mounted("wrong_credentials", ["credentials"], fault=403, env=KEYS)
not_mounted("expired_at_mount", ["credentials"], fault="expired", env=KEYS)
not_mounted("wrong_region", ["region"], fault="redirect", env=KEYS)
not_mounted("unavailable_at_mount", ["503"], fault=503, env=KEYS)
not_mounted("silent_at_mount", ["answer"], fault="late", env=KEYS)
not_mounted("nobody_listens", ["refused"], env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
not_mounted("no_such_host", [], env={"AWS_ENDPOINT_URL": "http://no-such-host.invalid"})
not_mounted("no_such_profile", ["profile `gone`"], env={"AWS_PROFILE": "gone", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""})
not_mounted("sso", ["aws configure export-credentials"], env={"AWS_CONFIG_FILE": "{folder}/sso", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""})


def main():
    """All scenarios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only")
    args = parser.parse_args()
    chosen = [s for s in SCENARIOS if not args.only or args.only in s.__name__]
    # The longest first.
    chosen.sort(key=lambda scenario: scenario.__name__ != "a_reply_that_drips")
    failed = []
    with tempfile.TemporaryDirectory(prefix="tiledbfs-faults-") as folder, Moto() as moto:
        write_array(folder)
        Path(folder, "sso").write_text("[default]\nsso_session = x\n")
        places = {one: Place(moto, one.__name__, folder) for one in chosen}

        def run(one):
            text = io.StringIO()
            start = time.monotonic()
            try:
                one(places[one])
            except BaseException as error:  # noqa: BLE001 - one scenario must not end the others
                if not isinstance(error, (Wrong, SystemExit)):
                    traceback.print_exc(file=text)
                # As a mount says whose store did not answer in time.
                if isinstance(error, Slow) or "does not answer" in str(error):
                    slow.append(one)
                return one, f"{type(error).__name__}: {error}\n{text.getvalue()}", time.monotonic() - start
            return one, None, time.monotonic() - start

        def run_all(scenarios, workers):
            with concurrent.futures.ThreadPoolExecutor(workers) as pool:
                for one, why, took in pool.map(run, scenarios):
                    print(f"{('slow' if one in slow else 'FAIL') if why else 'ok  '} {one.__name__} ({took:.1f} s){': ' + why if why else ''}", flush=True)
                    failed.extend([one] if why and one not in slow else [])

        slow = []
        for workers, apart in ((8, False), (2, True)):
            run_all([one for one in chosen if getattr(one, "apart", False) == apart], workers)
        again = slow.copy()
        places = {one: Place(moto, f"{one.__name__}_again", folder) for one in again}
        slow.clear()
        run_all(again, 1)
        failed += slow
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
