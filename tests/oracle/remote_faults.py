"""Faults of network and store: each ends as docs/object-stores.md says, without wrong or lost data.

    python3 remote_faults.py [--only NAME]

Scenarios run at the same time, each with a proxy and a mount of its own. The last line is `N passed, N failed`.
"""

import argparse
import concurrent.futures
import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import tiledb

from mount import binary, errors, mounted, stats, unmount
from proxy import Proxy
from remote_requests import read_at
from stores import Moto, Wrong, clean_environment, expect

CELLS, TILE = 1 << 20, 1 << 16
"""4 MiB of int32, in tiles of 256 KiB."""
COLUMN, PLAIN = "columns/a/data.bin", "columns/plain/data.bin"
SCENARIOS = []


def scenario(function):
    """Marks a scenario."""
    SCENARIOS.append(function)
    return function


def error_of(act, seconds=60):
    """The errno of a call that must fail within a time."""
    start = time.monotonic()
    try:
        act()
    except OSError as error:
        took = time.monotonic() - start
        expect(took < seconds, f"the error came after {took:.1f} s")
        return error.errno
    raise Wrong("it does not fail")


class Place:
    """An array of two fragments on moto, below a prefix of its own, and what libtiledb reads from it."""

    def __init__(self, moto, name, folder):
        self.moto, self.name, self.folder = moto, name, folder
        self.array = os.path.join(folder, "array")
        self.url = f"s3://faults/{name}"
        self.values = [np.random.default_rng(seed).integers(0, 1 << 20, CELLS, dtype="i4") for seed in (1, 2)]
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
        values = np.random.default_rng(seed).integers(0, 1 << 20, CELLS, dtype="i4")
        with tiledb.open(path, "w", timestamp=1000 * seed) as array:
            array[:] = {"a": values, "plain": values}


# -- what passes ------------------------------------------------------------------------------------------------


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


@scenario
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


# -- what fails -------------------------------------------------------------------------------------------------


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
            expect(took < 1, f"what needs no request took {took:.1f} s")
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
        expect(took < 5, f"it took {took:.1f} s")
        reader.kill()
        reader.wait(20)


@scenario
def an_interrupted_read(place):
    """A signal ends a read and its request within a second."""
    with place.mounted() as (point, proxy):
        proxy.fault("late", kind="any", path="a0.tdb", times=float("inf"))
        script = "import os, signal, sys, time\nsignal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(InterruptedError))\n" \
                 "fd = os.open(sys.argv[1], os.O_RDONLY)\nsignal.alarm(2)\nstart = time.monotonic()\n" \
                 "try:\n    os.read(fd, 8)\nexcept InterruptedError:\n    print('interrupted', time.monotonic() - start)\n"
        done = subprocess.run([sys.executable, "-c", script, place.column(point)], capture_output=True, text=True, timeout=60)
        expect("interrupted" in done.stdout, done.stdout + done.stderr)
        took = float(done.stdout.split()[1])
        expect(took < 3.5, f"it took {took:.1f} s, two of them until the signal")
        # A request that nobody waits for is dropped: the proxy sees the connection close.
        killed = subprocess.Popen(["cat", place.column(point)], stdout=subprocess.DEVNULL)
        time.sleep(1)
        killed.send_signal(signal.SIGKILL)
        start = time.monotonic()
        killed.wait(30)
        took = time.monotonic() - start
        expect(took < 2, f"a killed reader lived on for {took:.1f} s")


def timed(act, seconds, what):
    """The result of `act`, which must not take longer."""
    start = time.monotonic()
    got = act()
    took = time.monotonic() - start
    expect(took < seconds, f"{what} took {took:.1f} s")
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


# -- what changes -----------------------------------------------------------------------------------------------


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
            expect(time.monotonic() < end, f"the new bytes are not seen: {why} {errors(point)}")
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
            expect(time.monotonic() < end, f"not seen: {errors(point)}")
            time.sleep(0.2)
        expect(os.listdir(point / "fragments") == sorted(left), "another is listed")


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
            expect(time.monotonic() < end, f"the fragment is not seen: {errors(point)}")
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
            expect(time.monotonic() < end, "it is not seen")
            time.sleep(0.2)
        last = (point / "fragments/latest" / COLUMN).read_bytes()
        expect(last == place.values[0].tobytes(), "it is wrong")


# -- what cannot be mounted -------------------------------------------------------------------------------------


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
            expect(took < 10, f"it took {took:.1f} s: {message}")
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
    failed = []
    with tempfile.TemporaryDirectory(prefix="tiledbfs-faults-") as folder, Moto() as moto:
        write_array(folder)
        Path(folder, "sso").write_text("[default]\nsso_session = x\n")
        places = {}
        for one in chosen:
            places[one] = Place(moto, one.__name__, folder)

        def run(one):
            text = io.StringIO()
            start = time.monotonic()
            try:
                one(places[one])
            except BaseException as error:  # noqa: BLE001 - one scenario must not end the others
                if not isinstance(error, (Wrong, SystemExit)):
                    traceback.print_exc(file=text)
                return one, f"{type(error).__name__}: {error}\n{text.getvalue()}", time.monotonic() - start
            return one, None, time.monotonic() - start

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for one, why, took in pool.map(run, chosen):
                print(f"{'FAIL' if why else 'ok  '} {one.__name__} ({took:.1f} s){': ' + why if why else ''}", flush=True)
                failed += [one] if why else []
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
