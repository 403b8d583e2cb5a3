"""What `tiledbfs serve` does when things go wrong or get tight: damaged files, a writer, clients that leave, slow ones, very many.

    python3 serve_load.py --seconds 6

An answer is whole, or an error, or cut; it is of one state of the array, the one that its tag names. The last line is `N passed, N failed`.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import tiledb

import damage
import live_views
from plain_tools import Checks
from serve import SAMPLE, Client, serving

CELLS = 1 << 22
"""Cells of the large array, of 8 bytes each."""
TILE = 1 << 16
LONG = 8 << 20
"""Pieces of an answer are longer before that much of it is sent."""
COLUMN = "/large/data/columns/a/data.bin"


def large(folder):
    """Makes the array `large` and returns its only data file."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, CELLS - 1), tile=TILE, dtype=np.int64))
    attribute = tiledb.Attr("a", dtype=np.float64, filters=[tiledb.ZstdFilter(level=1), tiledb.ChecksumMD5Filter()])
    path = os.path.join(folder, "large")
    tiledb.Array.create(path, tiledb.ArraySchema(domain, [attribute]))
    with tiledb.open(path, "w", timestamp=10) as array:
        array[:] = np.arange(CELLS) / 7
    return next(Path(path, "__fragments").glob("*/a0.tdb"))


def ask(url, path, method="GET", **headers):
    """Status, headers and body of an answer on a connection of its own; the body is None if the answer was cut."""
    client = Client(url)
    try:
        client.connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = client.connection.getresponse()
        try:
            return answer.status, answer.headers, answer.read()
        except (http.client.IncompleteRead, ConnectionResetError):
            return answer.status, answer.headers, None
    finally:
        client.connection.close()


def address(url):
    host, port = urlsplit(url).netloc.rsplit(":", 1)
    return host, int(port)


def damaged(checks):
    """Every kind of damage: what needs the file is an error from the start, and no answer says where the file is."""
    with contextlib.ExitStack() as stack:
        [good], _ = stack.enter_context(serving(SAMPLE, "--listen", "127.0.0.1:0"))
        for name, (array, file, do, expected) in damage.CASES.items():
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiledbfs-secret-"))
            copy, fragment = damage.damaged(array, scratch, file, do)
            with serving(copy, "--listen", "127.0.0.1:0") as ([url], _):
                path = f"/fragments/{fragment}/{expected}"
                status, _, body = ask(url, path)
                checks.equal(f"{name}: {expected}", status, 500)
                status, _, part = ask(url, path, Range="bytes=0-9")
                # The first bytes may not be concerned.
                whole = status == 500 or (status, part) == (206, ask(good, f"/{array}{path}", Range="bytes=0-9")[2])
                checks.equal(f"{name}: a part of it", whole, True)
                texts, above = [body, part], path.rsplit("/", 1)[0] + "/"
                for more in (above, above + "?json", "/", "/data/", "/data/?json", "/data/table.csv", "/data/nothing", "/data/subarray/x/"):
                    texts.append(ask(url, more)[2] or b"")
                texts.append(ask(url, above, "PROPFIND", Depth="1")[2] or b"")
                told = [text[:200] for text in texts if b"tiledbfs-secret" in text or b"__fragment_metadata" in text or b".tdb" in text]
                checks.equal(f"{name}: no answer says where", told, [])
                checks.equal(f"{name}: the server lives", ask(url, "/schema.json")[0], 200)


def damaged_late(checks, url, data):
    """A file that is damaged in the middle: what is before can be read, an answer that gets there is cut."""
    whole = (np.arange(CELLS) / 7).tobytes()
    def flip():
        """Changes the byte. The first answer fails because the file has changed, wherever it is damaged."""
        damage.flip(data, data.stat().st_size // 2)
        with contextlib.suppress(http.client.IncompleteRead):
            ask(url, COLUMN)

    flip()
    try:
        client = Client(url)
        client.connection.request("GET", COLUMN)
        answer = client.connection.getresponse()
        checks.equal("a file with an error in the middle", (answer.status, int(answer.headers["Content-Length"])), (200, len(whole)))
        try:
            begun = answer.read()
        except http.client.IncompleteRead as cut:
            begun = cut.partial
        good = len(begun)
        checks.equal("its answer is cut", (0 < good < len(whole), begun == whole[:good]), (True, True))
        status, _, body = ask(url, COLUMN, Range="bytes=1000-1999,500000-500999")
        checks.equal("ranges before it", (status, body.count(whole[1000:2000])), (206, 1))
        step = 32 << 10
        # Of the last piece before the error a part may have arrived.
        good -= good % step
        bad = [at for at in range(good, good + 4 * step, step) if ask(url, COLUMN, Range=f"bytes={at}-{at + step - 1}")[0] == 500]
        checks.equal("a range in it is an error", bool(bad), True)
        checks.equal("so are several, one of which is in it", ask(url, COLUMN, Range=f"bytes=0-9,{bad[0]}-{bad[0] + 9}")[0], 500)
    finally:
        flip()
    checks.equal("the file without damage", ask(url, COLUMN)[2] == whole, True)


def gone(checks):
    """A source that is removed, and comes back."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        live_views.create(source)
        with serving(source, "--listen", "127.0.0.1:0") as ([url], _):
            checks.equal("it is healthy", ask(url, "/healthz")[0], 200)
            source.rename(Path(folder, "away"))
            for path in ("/healthz", "/", "/dense/schema.json"):
                status, headers, _ = ask(url, path)
                checks.equal(f"without its source: {path}", (status, "Retry-After" in headers), (503, True))
            Path(folder, "away").rename(source)
            for path in ("/healthz", "/", "/dense/schema.json"):
                checks.equal(f"with it again: {path}", ask(url, path)[0], 200)


class Reader:
    """Reads columns of arrays that are written to, in every way, and notes what is wrong."""

    def __init__(self, url, seed, tags):
        self.url, self.rng, self.tags = url, random.Random(seed), tags
        self.wrong, self.counts = [], {}

    def run(self, end):
        while time.monotonic() < end:
            kind = self.rng.choice(live_views.NAMES)
            column, path = self.rng.choice([("a", "a/data.bin"), ("v", "v/data.bin"), ("offsets", "v/offsets.bin")])
            step = self.rng.choice([self.whole, self.halves, self.head])
            try:
                step(column, f"/{kind}/data/columns/{path}")
            except Exception as error:  # noqa: BLE001
                self.wrong.append(f"{path}: {error!r}")

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def ask(self, path, method="GET", **headers):
        """An answer with a body, or None if it is an error or cut."""
        status, headers, body = ask(self.url, path, method, **headers)
        if body is None or status in (404, 500, 503):
            self.count("cut" if body is None else str(status))
            return None
        if status not in (200, 206):
            self.wrong.append(f"{path}: {status}")
            return None
        self.count(f"{method} {status}")
        if method == "GET" and int(headers["Content-Length"]) != len(body):
            self.wrong.append(f"{path}: {len(body)} bytes")
        return status, headers, body

    def check(self, column, path, tag, body):
        """Bytes are those of one commit, and always the same with this tag."""
        number = live_views.check(column, body)
        if isinstance(number, str):
            self.wrong.append(f"{path}: {number}")
        known = self.tags.setdefault((path, tag), body)
        if known != body:
            self.wrong.append(f"{path}: other bytes with the tag {tag}")

    def whole(self, column, path):
        if got := self.ask(path):
            self.check(column, path, got[1]["ETag"], got[2])

    def halves(self, column, path):
        """The second half only if it is of the state of the first."""
        first = self.ask(path, Range="bytes=0-9999")
        if first is None:
            return
        by_date = self.rng.random() < 0.5
        # A date that another state may get is not told.
        named = by_date and first[1]["Last-Modified"] or first[1]["ETag"]
        second = self.ask(path, Range="bytes=10000-", If_Range=named)
        if second and second[0] == 200:
            self.check(column, path, second[1]["ETag"], second[2])
        elif second:
            self.check(column, path, first[1]["ETag"], first[2] + second[2])

    def head(self, column, path):
        head = self.ask(path, "HEAD")
        if head is None:
            return
        got = self.ask(path)
        if got and got[1]["ETag"] == head[1]["ETag"] and int(head[1]["Content-Length"]) != len(got[2]):
            self.wrong.append(f"{path}: HEAD says {head[1]['Content-Length']}")
        elif got:
            self.check(column, path, got[1]["ETag"], got[2])


def written_meanwhile(checks, seconds):
    """A writer and a consolidator beside several clients."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        live_views.create(root)
        live_views.write(root, 1)
        context = multiprocessing.get_context("spawn")
        stop, failed = context.Event(), context.Queue()
        committed, done = context.Value("q", 1), context.Value("q", 0)
        writers = [
            context.Process(target=live_views.writer, args=(root, committed, stop, failed)),
            context.Process(target=live_views.consolidator, args=(root, done, stop, failed)),
        ]
        with serving(root, "--listen", "127.0.0.1:0") as ([url], _):
            for writer in writers:
                writer.start()
            tags, end = {}, time.monotonic() + seconds
            readers = [Reader(url, seed, tags) for seed in range(6)]
            with ThreadPoolExecutor(len(readers)) as pool:
                list(pool.map(lambda reader: reader.run(end), readers))
            stop.set()
            for writer in writers:
                writer.join()
            counts = {}
            for what, count in (item for reader in readers for item in reader.counts.items()):
                counts[what] = counts.get(what, 0) + count
            print(f"{committed.value} commits, {done.value} consolidations, {len(tags)} states: {counts}")
            checks.equal("no answer of two states", [wrong for reader in readers for wrong in reader.wrong][:5], [])
            checks.equal("writers succeed", failed.empty(), True)
            checks.equal("commits were seen", len(tags) > 10, True)
            checks.equal("ranges were of the same state", counts.get("GET 206", 0) > 20, True)
            quiet(checks, url, root, committed.value)


def quiet(checks, url, root, number):
    """If-Range by a date, and a commit just when that counts again."""
    path = "/dense/data/columns/a/data.bin"
    time.sleep(2.5)
    _, headers, before = ask(url, path)
    checks.equal("a date that is old enough", ask(url, path, Range="bytes=0-9", If_Range=headers["Last-Modified"])[0], 206)
    with tiledb.open(str(root / "dense"), "w") as array:
        side = live_views.SIDE
        array[:] = {"a": np.full((side, side), number + 1), "v": np.full((side, side), "0000000", "S7")}
    status, _, body = ask(url, path, Range="bytes=10000-", If_Range=headers["Last-Modified"])
    checks.equal("it names no state after a commit", isinstance(live_views.check("a", body if status == 200 else before[:10_000] + body), int), True)


def decoded(url):
    return json.loads(ask(url, "/.tiledbfs/stats.json")[2])["chunks_decoded"]


def leaving(checks, url):
    """Work for clients that leave ends within a second."""
    clients = 20
    for name, close in [
        ("close", lambda connection: connection.close()),
        ("send no more", lambda connection: connection.shutdown(socket.SHUT_WR)),
        ("reset", lambda connection: (connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"), connection.close())),
    ]:
        start, connections = decoded(url), []
        for number in range(clients):
            # The length of each is found out on its own.
            part = f"/large/data/subarray/{len(name)}..{CELLS - 2 - number}/table.csv"
            connections.append(socket.create_connection(address(url)))
            connections[-1].sendall(f"GET {part} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        end = time.monotonic() + 20
        while decoded(url) < start + 20 and time.monotonic() < end:
            time.sleep(0.01)
        for connection in connections:
            close(connection)
        time.sleep(1)
        one = decoded(url)
        time.sleep(0.5)
        two = decoded(url)
        print(f"{one - start} chunks of {clients * CELLS // 8192} were decoded for clients that {name}")
        checks.equal(f"of those who {name}: the work begins", one >= start + 20, True)
        checks.equal(f"of those who {name}: the work ends", (two - one, one - start < clients * CELLS // 8192), (0, True))
        for connection in connections:
            connection.close()


def slow(url, request, tick=None):
    """How long the server waits for the rest of `request`, of which a byte comes every second if there is a `tick`."""
    start = time.monotonic()
    with socket.create_connection(address(url)) as connection, contextlib.suppress(OSError):
        connection.sendall(request)
        connection.settimeout(1)
        while time.monotonic() - start < 20:
            try:
                received = connection.recv(1000)
            except TimeoutError:
                if tick:
                    connection.sendall(tick)
                continue
            if not received:
                break
    return round(time.monotonic() - start)


class Slow:
    """Clients that are slow, while other things are looked at."""

    def __init__(self, url):
        self.pool, self.results = ThreadPoolExecutor(8), {}
        for name, request, tick in [
            ("half a head", b"GET / HTTP/1.1\r\nHost: local", None),
            ("a head byte by byte", b"GET / HTTP/1.1\r\nX: ", b"a"),
            ("an endless head", b"GET / HTTP/1.1\r\n", b"X: a\r\n"),
            ("half a body", b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: 100\r\n\r\na", None),
            ("a body byte by byte", b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: 100\r\n\r\n", b" "),
        ]:
            self.results[name] = self.pool.submit(slow, url, request, tick)

    def end(self, checks):
        for name, result in self.results.items():
            checks.equal(f"{name} ends after 10 s", 9 <= result.result() <= 12, True)


def resident(server):
    """Memory of a process, in KiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[1])


def many(checks, url, server):
    """A thousand connections that are idle, and clients that do not read."""
    def timed():
        start = time.monotonic()
        return ask(url, "/weather/schema.json")[0] == 200 and time.monotonic() - start < 1

    # Threads are at work before it is measured.
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda _: timed(), range(256)))
    before = resident(server)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(address(url))) for _ in range(1000)]
        for connection in idle:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answered = sum(connection.recv(4096).startswith(b"HTTP/1.1 200") for connection in idle)
        checks.equal("a thousand connections", answered, 1000)
        grown = resident(server) - before
        print(f"1,000 idle connections: {grown / 1024:.1f} MiB")
        checks.equal("take less than 20 MiB", grown < 20 << 10, True)
        checks.equal("others are answered beside them", timed(), True)
        # More than may be: those that have been idle for longest are closed.
        for _ in range(200):
            stack.enter_context(socket.create_connection(address(url)))
        checks.equal("others are answered at the limit", all(timed() for _ in range(3)), True)


def stalled(checks, url, server):
    """Clients that do not read hold little memory and no thread."""
    before = resident(server)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(address(url))
            connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % COLUMN.encode())
        time.sleep(2)
        start = time.monotonic()
        checks.equal("others are answered beside 200 who do not read", ask(url, "/large/schema.json")[0], 200)
        checks.equal("... at once", time.monotonic() - start < 1, True)
        grown = resident(server) - before
        print(f"200 clients who do not read: {grown / 1024:.1f} MiB")
        checks.equal("they take little", grown < 200 * 512, True)
    for count in (16, 200):
        with contextlib.ExitStack() as stack:
            before = resident(server)
            for _ in range(count):
                connection = stack.enter_context(socket.create_connection(address(url)))
                connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % COLUMN.encode())
                left = LONG
                while left > 0:
                    left -= len(connection.recv(left))
            time.sleep(1)
            grown = resident(server) - before
            print(f"{count} clients who stop behind {LONG >> 20} MiB: {grown / 1024:.1f} MiB")
            checks.equal(f"{count} clients who stop later take little too", grown < 16 * 1024 + (count - 16) * 512, True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        data = large(folder)
        with serving(folder, "--listen", "127.0.0.1:0", "--status", "--cache-size", "32M") as ([url], server):
            waiting = Slow(url)
            leaving(checks, url)
            damaged_late(checks, url, data)
            stalled(checks, url, server)
            written_meanwhile(checks, options.seconds)
            waiting.end(checks)
        with serving(SAMPLE, "--listen", "127.0.0.1:0") as ([url], server):
            many(checks, url, server)
            start = time.monotonic()
            server.send_signal(signal.SIGTERM)
            checks.equal("it ends at once", (server.wait(12), time.monotonic() - start < 3), (0, True))
    gone(checks)
    damaged(checks)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
