"""`tiledbfs serve` over TLS: which protocol is agreed on, ranges and heads over HTTP/2, many streams, streams that are reset, limits.

Every answer is compared with what was written. The last line is `N passed, N failed`.
"""

import contextlib
import os
import re
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import numpy as np
import tiledb

from plain_tools import Checks
from serve import serving

CELLS = 1 << 21
"""Cells of the large array, of 8 bytes each."""
COLUMN = "/large/data/columns/a/data.bin"
SCHEMA = "/large/schema.json"


def certificate(folder, name):
    """A certificate for `localhost` and 127.0.0.1 that signs itself, and its key."""
    files = [Path(folder, f"{name}.{kind}.pem") for kind in ("cert", "key")]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def large(folder):
    """Makes the array `large`. Returns its cells as bytes."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, CELLS - 1), tile=1 << 16, dtype=np.int64))
    attribute = tiledb.Attr("a", dtype=np.int64, filters=[tiledb.ZstdFilter()])
    path = os.path.join(folder, "large")
    tiledb.Array.create(path, tiledb.ArraySchema(domain, [attribute]))
    values = np.arange(CELLS, dtype=np.int64) * 3
    with tiledb.open(path, "w", timestamp=10) as array:
        array[:] = values
    return values.tobytes()


def connect(url, authority, protocols, versions=None):
    """A TLS connection that trusts the certificate `authority` alone, and offers `protocols`."""
    context = ssl.create_default_context(cafile=authority)
    if protocols:
        context.set_alpn_protocols(protocols)
    if versions:
        context.minimum_version = context.maximum_version = versions
    host, port = urlsplit(url).netloc.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), timeout=60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=host)


class Stream:
    """What has come of an answer."""

    def __init__(self):
        self.status, self.headers, self.body, self.ended, self.reset = None, {}, bytearray(), False, None

    @property
    def done(self):
        return self.ended or self.reset is not None


class Http2:
    """A connection that speaks HTTP/2."""

    def __init__(self, url, authority, window=None):
        self.host = urlsplit(url).netloc
        self.socket = connect(url, authority, ["h2"])
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.state.initiate_connection()
        if window is not None:
            self.state.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.streams, self.gone = {}, False
        self.flush()

    def flush(self):
        self.socket.sendall(self.state.data_to_send())

    def send(self, path, method="GET", authority=None, end=True, **headers):
        """Begins a request. Headers are given with _ for -."""
        named = [(name.replace("_", "-").lower(), value) for name, value in headers.items()]
        return self.send_fields(path, method, authority, named, end)

    def send_fields(self, path, method, authority, fields, end=True):
        number = self.state.get_next_available_stream_id()
        own = [(":method", method), (":scheme", "https"), (":authority", authority or self.host), (":path", path)]
        self.state.send_headers(number, own + fields, end_stream=end)
        self.streams[number] = stream = Stream()
        stream.number = number
        self.flush()
        return stream

    def receive(self, until, seconds=60, taking=True):
        """Receives until `until()`, or the connection ends. With `taking`, what was received makes room for more."""
        end = time.monotonic() + seconds
        while not until() and not self.gone and time.monotonic() < end:
            if not self.socket.pending() and not select.select([self.socket], [], [], 0.2)[0]:
                continue
            received = self.socket.recv(1 << 16)
            if not received:
                self.gone = True
                return
            for event in self.state.receive_data(received):
                stream = self.streams.get(getattr(event, "stream_id", None))
                if isinstance(event, h2.events.ConnectionTerminated):
                    self.gone = True
                elif stream is None:
                    continue
                elif isinstance(event, h2.events.ResponseReceived):
                    stream.headers = dict(event.headers)
                    stream.status = int(stream.headers[":status"])
                elif isinstance(event, h2.events.DataReceived):
                    stream.body += event.data
                    if taking and event.flow_controlled_length:
                        self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    stream.ended = True
                elif isinstance(event, h2.events.StreamReset):
                    stream.reset = event.error_code
            self.flush()

    def ask(self, path, method="GET", **options):
        """A whole answer."""
        stream = self.send(path, method, **options)
        self.receive(lambda: stream.done)
        return stream

    def reset(self, stream):
        self.state.reset_stream(stream.number, h2.errors.ErrorCodes.CANCEL)
        self.flush()


def negotiation(checks, url, authority):
    """Which protocol and which TLS are spoken."""
    for offered, agreed in [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), ([], None)]:
        with connect(url, authority, offered) as connection:
            checks.equal(f"offered {offered}", connection.selected_alpn_protocol(), agreed)
            if agreed == "h2":
                continue
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            checks.equal("HTTP/1.1 is answered", connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n"), True)
    for version, name in [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]:
        with connect(url, authority, ["h2"], version) as connection:
            checks.equal(name, connection.version(), name)
    host, port = urlsplit(url).netloc.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        checks.equal("no answer without TLS", b"HTTP" in connection.recv(1000), False)
    for protocol in ("--http2", "--http1.1"):
        command = ["curl", "-sg", protocol, "--cacert", authority, "-w", "%{http_version}", "-o", "/dev/null", url]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
        checks.equal(f"curl {protocol}", shown, protocol.removeprefix("--http").removesuffix(".0"))


def requests(checks, client, whole):
    """Ranges, HEAD and conditions, on one connection."""
    one = client.ask(COLUMN)
    tag, length = one.headers["etag"], len(whole)
    checks.equal("a file", (one.status, int(one.headers["content-length"]), bytes(one.body) == whole), (200, length, True))
    checks.equal("no header of HTTP/1", [name for name in ("connection", "transfer-encoding", "keep-alive") if name in one.headers], [])
    for header, status, expected in [
        ("bytes=0-0", 206, whole[:1]),
        ("bytes=-100000", 206, whole[-100_000:]),
        ("bytes=1000000-1999999", 206, whole[1_000_000:2_000_000]),
        (f"bytes={length}-", 416, None),
    ]:
        answer = client.ask(COLUMN, range=header)
        same = expected is None or bytes(answer.body) == expected
        checks.equal(f"range {header}", (answer.status, same), (status, True))
    answer = client.ask(COLUMN, range="bytes=0-9,1000-1009")
    checks.equal("several ranges", (answer.status, len(answer.body), whole[1000:1010] in answer.body),
                 (206, int(answer.headers["content-length"]), True))
    answer = client.ask(COLUMN, method="HEAD")
    checks.equal("HEAD", (answer.status, answer.headers["etag"], int(answer.headers["content-length"]), len(answer.body)), (200, tag, length, 0))
    for headers, status in [
        ({"if_none_match": tag}, 304),
        ({"if_match": '"other"'}, 412),
        ({"range": "bytes=0-0", "if_range": tag}, 206),
        ({"range": "bytes=0-0", "if_range": '"other"'}, 200),
    ]:
        checks.equal(f"condition {headers}", client.ask(COLUMN, **headers).status, status)
    for method, path, status in [("GET", "/large", 301), ("GET", "/nothing", 404), ("PUT", SCHEMA, 405), ("OPTIONS", "/", 200), ("GET", "/a/../b", 400)]:
        checks.equal(f"{method} {path}", client.ask(path, method=method).status, status)
    answer = client.ask("/large/", method="PROPFIND", depth="1")
    checks.equal("PROPFIND", (answer.status, b"<D:href>/large/schema.json</D:href>" in answer.body), (207, True))


def limits(checks, url, authority):
    """Heads that are too big, and names of other servers."""
    for name, path, fields, host, status in [
        ("a long target", "/" + "a" * 9000, [], None, 414),
        ("many fields", "/", [(f"x{n}", "a") for n in range(120)], None, 431),
        ("a big head", "/", [("x", "a" * 40_000)], None, 431),
        ("another host", "/", [], "evil.example", 421),
        ("another host beside", "/", [("host", "evil.example")], None, 421),
        ("two hosts", "/", [("host", "localhost"), ("host", "localhost")], None, 400),
    ]:
        client = Http2(url, authority)
        # h2 itself would not send some of these.
        client.state.config.validate_outbound_headers = False
        stream = client.send_fields(path, "GET", host, fields)
        client.receive(lambda: stream.done)
        checks.equal(name, stream.status, status)


def streams(checks, url, authority, whole):
    """Many streams at once, some of which are reset."""
    client = Http2(url, authority)
    client.receive(lambda: client.state.remote_settings.max_concurrent_streams <= 1000)
    checks.equal("streams that are allowed", client.state.remote_settings.max_concurrent_streams, 100)
    step = len(whole) // 100
    asked = [(n, client.send(COLUMN, range=f"bytes={n * step}-{(n + 1) * step - 1}")) for n in range(100)]
    client.receive(lambda: all(stream.done for _, stream in asked))
    good = [bytes(stream.body) == whole[n * step:(n + 1) * step] for n, stream in asked]
    checks.equal("100 streams at once", good.count(True), 100)
    # A stream's window of 64 KiB is full long before the end, so that all are in the middle.
    client = Http2(url, authority, window=1 << 16)
    client.state.increment_flow_control_window(1 << 26)
    asked = [client.send(COLUMN) for _ in range(20)]
    client.receive(lambda: all(len(stream.body) == 1 << 16 for stream in asked), taking=False)
    checks.equal("windows are kept to", {len(stream.body) for stream in asked}, {1 << 16})
    kept = asked[0]
    for stream in asked[1:]:
        client.reset(stream)
    client.state.increment_flow_control_window(1 << 25, kept.number)
    client.flush()
    client.receive(lambda: kept.done)
    checks.equal("one beside 19 that were reset", bytes(kept.body) == whole, True)
    # Whether the server ends that connection is its business.
    with contextlib.suppress(OSError):
        for _ in range(300):
            client.reset(client.send(COLUMN))
    checks.equal("the server lives on", Http2(url, authority).ask("/healthz").status, 200)


def frame(kind, payload, flags=0, stream=1):
    """A frame, by its type."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


PREFACE, SETTINGS, HEADERS, CONTINUATION = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 4, 1, 9


class Slow:
    """Clients that are slow with a head, while other things are looked at, and one that has nothing to ask."""

    def __init__(self, url, authority):
        begun = PREFACE + frame(SETTINGS, b"", stream=0)
        self.pool, self.results = ThreadPoolExecutor(5), {}
        in_head = begun + frame(HEADERS, b"\x82")
        for name, first, ticks in [
            ("half a preface", PREFACE[:10], []),
            ("a head without its end", in_head, []),
            ("a frame of it byte by byte", in_head + frame(CONTINUATION, b"\x84" * 100)[:9], [b"\x84"] * 20),
            # More than five of them are refused at once.
            ("frames of it one by one", in_head, [b"", b"", frame(CONTINUATION, b"\x84")] * 4),
        ]:
            self.results[name] = self.pool.submit(self.waited, url, authority, first, ticks)
        self.alive = self.pool.submit(self.pinged, url, authority)

    @staticmethod
    def waited(url, authority, first, ticks):
        """How long the server waits for the rest of `first`, of which there is one of `ticks` every second."""
        start, ticks = time.monotonic(), iter(ticks)
        with connect(url, authority, ["h2"]) as connection, contextlib.suppress(OSError):
            connection.sendall(first)
            connection.settimeout(1)
            while time.monotonic() - start < 20:
                try:
                    if not connection.recv(1000):
                        break
                except TimeoutError:
                    connection.sendall(next(ticks, b""))
        return round(time.monotonic() - start)

    @staticmethod
    def pinged(url, authority):
        """The status of a request after 11 s, in each of which there was a PING."""
        client = Http2(url, authority)
        for _ in range(11):
            client.state.ping(bytes(8))
            client.flush()
            client.receive(lambda: False, seconds=1)
        return client.ask("/healthz").status

    def end(self, checks):
        for name, result in self.results.items():
            checks.equal(f"{name} ends after 10 s", 9 <= result.result() <= 12, True)
        checks.equal("a connection without a request is kept", self.alive.result(), 200)


def without_descriptors(checks, url, server, authority):
    """A connection for which there is no descriptor to ask whose it is: it is refused once, and ends."""
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    command = ["curl", "-sg", "--http2", "--cacert", authority, "-w", "%{http_code} %{num_connects}\n", *["-o", "/dev/null", url] * 2]
    # Connections that end meanwhile give some back.
    for _ in range(20):
        used = {int(name) for name in os.listdir(f"/proc/{server.pid}/fd")}
        free = next(number for number in range(1 << 20) if number not in used)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (free + 1, before[1]))
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.splitlines()
        if all(line.startswith("503") for line in shown):
            break
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
    checks.equal("without a descriptor", shown, ["503 1"] * 2)
    checks.equal("the next connection", Http2(url, authority).ask(SCHEMA).status, 200)


def renewed(checks, url, server, folder, files, whole):
    """A certificate that is replaced while the server runs."""
    before = Http2(url, files[0])
    other = certificate(folder, "other")
    for new, old in zip(other, files, strict=True):
        os.replace(new, old)
    server.send_signal(signal.SIGHUP)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            connect(url, files[0], ["h2"]).close()
            break
        except ssl.SSLError:
            time.sleep(0.05)
    checks.equal("the new certificate", Http2(url, files[0]).ask("/healthz").status, 200)
    checks.equal("a connection that was open", before.ask("/healthz").status, 200)
    authority = Path(folder, "kept")
    authority.write_bytes(files[0].read_bytes())
    files[0].write_text("nothing\n")
    server.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    checks.equal("a bad certificate changes nothing", before.ask("/healthz").status, 200)
    # Nothing is asked of it: it must not hold the server up.
    idle = connect(url, authority, ["h2"])
    command = ["curl", "-sgf", "--http2", "--cacert", authority, "--limit-rate", "8M", url.rstrip("/") + COLUMN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as taking:
        begun = taking.stdout.read(1 << 20)
        server.send_signal(signal.SIGTERM)
        checks.equal("an answer is finished at the end", begun + taking.stdout.read() == whole, True)
    taken = time.monotonic()
    checks.equal("it ends", server.wait(11), 0)
    checks.equal("without waiting for those that are idle", time.monotonic() - taken < 5, True)
    idle.close()


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        whole = large(source)
        files = certificate(folder, "first")
        options = ["--listen", "127.0.0.1:0", "--tls-cert", str(files[0]), "--tls-key", str(files[1])]
        with serving(source, *options) as ([url], server):
            checks.equal("the URL", bool(re.fullmatch(r"https://127\.0\.0\.1:\d+/", url)), True)
            waiting = Slow(url, files[0])
            negotiation(checks, url, files[0])
            requests(checks, Http2(url, files[0]), whole)
            limits(checks, url, files[0])
            streams(checks, url, files[0], whole)
            waiting.end(checks)
            without_descriptors(checks, url, server, files[0])
            renewed(checks, url, server, folder, files, whole)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
