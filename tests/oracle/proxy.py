"""A proxy before a store, on loopback unless told otherwise: counts requests and bytes, and adds latency, limits of bandwidth, and faults.

    with Proxy("127.0.0.1:5000", latency=0.03, total_rate=100 << 20, connection_rate=40 << 20) as proxy:
        use(proxy.url)
        proxy.counts            # Counts(list=1, head=0, get=3, other=0, bytes=1234, most=2)

It runs in a thread of this process. The store is `HOST:PORT` or the path of a Unix socket. Requests of both sides are HTTP/1.1; connections of
clients are kept alive, whatever the store does. With `signed_only` requests without a signature are refused (403), which moto does not do with
listings; with `tls`, a context of `ssl`, the proxy speaks HTTPS.
"""

import asyncio
import contextlib
import dataclasses
import re
import socket
import threading
import time

LIMIT = 1 << 16
"""The most bytes of a header, and of a piece of a body."""
CREDIT = 0.02
"""The most seconds of unused bandwidth that may be made up for."""


@dataclasses.dataclass
class Counts:
    """Counters of the traffic."""

    list: int = 0
    head: int = 0
    get: int = 0
    other: int = 0
    bytes: int = 0
    """Bytes of the bodies of answers."""
    most: int = 0
    """The most requests at once."""

    @property
    def requests(self):
        """The number of all requests."""
        return self.list + self.head + self.get + self.other

    def __sub__(self, before):
        """The difference to an earlier count."""
        fields = (f.name for f in dataclasses.fields(self))
        return Counts(**{name: getattr(self, name) - (getattr(before, name) if name != "most" else 0) for name in fields})


@dataclasses.dataclass
class Fault:
    """A fault of some requests, in place of or after the answer.

    `what` is a status (403, 500, 503, ...), "expired" (400 ExpiredToken), "reset" (the connection breaks), "cut" (it ends after `after` bytes of
    the body), "stall" (nothing more comes after `after` bytes, for `seconds`), "late" (the answer begins after `seconds`), "whole" (the range
    that was asked for is passed over), "zeros" (in place of the body), "call" (`call` is called, then it is answered) or "redirect" (301 without Location).
    """

    what: object
    kind: str = "get"
    """list, head, get or any."""
    path: str = ""
    """A regular expression that is to be found in the path."""
    times: float = 1
    """How often it happens."""
    skip: int = 0
    """The number of matching requests to skip first."""
    after: int = 1000
    seconds: float = 3600
    call: object = None
    hits: int = 0
    """How often it happened."""


@dataclasses.dataclass
class Request:
    """One request, as it arrived."""

    method: str
    path: str
    kind: str
    headers: dict
    at: float = 0.0
    status: int = 0
    bytes: int = 0
    """Bytes of the body of its answer that were sent."""
    end: float = 0.0
    """When the answer had been sent."""

    @property
    def key(self):
        """The access key of its signature."""
        found = re.search(r"Credential=([^/]+)/", self.headers.get("authorization", ""))
        return found and found.group(1)


REASONS = {301: "Moved Permanently", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 412: "Precondition Failed", 429: "Too Many Requests"}
CODES = {403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 500: "InternalError", 503: "SlowDown"}


class Proxy:
    """See the module's documentation."""

    def __init__(self, store, latency=0.0, total_rate=None, connection_rate=None, signed_only=False, tls=None, address="127.0.0.1"):
        self.store, self.latency, self.address = store, latency, address
        self.signed_only, self.tls = signed_only, tls
        self.total_rate, self.connection_rate = total_rate, connection_rate
        self.faults, self.log = [], []
        self.counts = Counts()
        self.at_once = 0
        self.next_free = 0.0
        self.idle = []
        self.clients = set()

    # The thread.

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join()

    def _run(self, ready):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve(ready))
        self.loop.close()

    async def _serve(self, ready):
        self.stop = asyncio.Event()
        server = await asyncio.start_server(self._client, self.address, 0, limit=LIMIT, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self.stop.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, writer in self.idle:
            writer.close()

    @property
    def url(self):
        """The URL for clients."""
        return f"http{'s' if self.tls else ''}://{self.host}"

    @property
    def host(self):
        """The URL without its scheme."""
        return f"{self.address}:{self.port}"

    def fault(self, what, **options):
        """Adds a fault, and returns it."""
        fault = Fault(what, **options)
        self.faults.append(fault)
        return fault

    def clear(self):
        """Clears faults, logs and counts."""
        self.faults.clear()
        self.log.clear()
        self.counts = Counts()

    def snapshot(self):
        """The current counts."""
        return dataclasses.replace(self.counts)

    # One connection of a client.

    async def _client(self, reader, writer):
        self.clients.add(writer)
        # Each small answer is sent immediately.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = Line(self)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, Broken):
            while await self._request(reader, writer, line):
                pass
        self.clients.discard(writer)
        writer.close()

    async def _request(self, reader, writer, line):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, headers, raw = parse(head)
        method, path, _ = first.split(" ", 2)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            raw = [pair for pair in raw if pair[0].lower() != "expect"]
        body = b""
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            body = b"".join([piece async for piece in chunks(reader)])
            raw = [pair for pair in raw if pair[0].lower() != "transfer-encoding"] + [("Content-Length", str(len(body)))]
        request = Request(method, path, kind_of(method, path), headers, time.monotonic())
        self.log.append(request)
        setattr(self.counts, request.kind, getattr(self.counts, request.kind) + 1)
        self.at_once += 1
        self.counts.most = max(self.counts.most, self.at_once)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            await self._answer(request, raw, body, writer, line)
        finally:
            self.at_once -= 1
            request.end = time.monotonic()
        return headers.get("connection", "").lower() != "close"

    def _fault(self, request):
        for fault in self.faults:
            if fault.kind in (request.kind, "any") and re.search(fault.path, request.path) and fault.times > 0:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                fault.hits += 1
                return fault
        return None

    async def _answer(self, request, raw, body, writer, line):
        fault = self._fault(request)
        what = fault.what if fault else 403 if self.signed_only and not request.key else None
        if isinstance(what, int) or what in ("expired", "redirect"):
            status = {"expired": 400, "redirect": 301}.get(what, what)
            code = {"expired": "ExpiredToken", "redirect": "PermanentRedirect"}.get(what) or CODES.get(status, "Error")
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>made by the test</Message></Error>".encode()
            request.status = status
            text = b"" if request.method == "HEAD" else text
            head = f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n\r\n"
            writer.write(head.encode() + text)
            await writer.drain()
            return
        if what == "reset":
            # Without lingering, a close is a reset.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            raise Broken
        if what == "late":
            await asyncio.sleep(fault.seconds)
        if what == "call":
            await asyncio.get_running_loop().run_in_executor(None, fault.call)
        if what == "whole":
            raw = [pair for pair in raw if pair[0].lower() != "range"]
        head, pieces = await self._ask(request, raw, body)
        writer.write(head)
        sent = 0
        async for piece in pieces:
            if what == "zeros":
                piece = bytes(len(piece))
            if what in ("cut", "stall") and sent + len(piece) > fault.after:
                writer.write(piece[: fault.after - sent])
                await writer.drain()
                if what == "stall":
                    await asyncio.sleep(fault.seconds)
                raise Broken
            sent += len(piece)
            self.counts.bytes += len(piece)
            request.bytes += len(piece)
            await line.wait(len(piece))
            writer.write(piece)
            await writer.drain()
        await writer.drain()

    # The store.

    async def _connect(self):
        if self.store.startswith("/"):
            return await asyncio.open_unix_connection(self.store, limit=LIMIT)
        host, port = self.store.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port), limit=LIMIT)

    async def _ask(self, request, raw, body):
        """Forwards a request: the head of the answer, and its body in pieces."""
        lines = [f"{request.method} {request.path} HTTP/1.1"] + [f"{name}: {value}" for name, value in raw]
        message = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
        while True:
            old = bool(self.idle)
            reader, writer = self.idle.pop() if old else await self._connect()
            try:
                writer.write(message)
                await writer.drain()
                answer = await reader.readuntil(b"\r\n\r\n")
                while answer.startswith(b"HTTP/1.1 100"):
                    answer = await reader.readuntil(b"\r\n\r\n")
                break
            except (ConnectionError, asyncio.IncompleteReadError):
                writer.close()
                # A kept connection may have been closed meanwhile.
                if not old:
                    raise
        first, headers, raw = parse(answer)
        request.status = int(first.split(" ")[1])
        keeps = first.startswith("HTTP/1.1") and headers.get("connection", "").lower() != "close"
        empty = request.method == "HEAD" or request.status in (204, 304)
        drop = {"connection", "keep-alive", "transfer-encoding"}
        kept = [(name, value) for name, value in raw if name.lower() not in drop]

        async def give_back():
            if keeps:
                self.idle.append((reader, writer))
            else:
                writer.close()

        if "content-length" in headers or empty:
            length = 0 if empty else int(headers["content-length"])

            async def pieces():
                left = length
                try:
                    while left:
                        piece = await reader.read(min(left, LIMIT))
                        if not piece:
                            raise Broken
                        left -= len(piece)
                        yield piece
                finally:
                    if left:
                        writer.close()
                await give_back()

            bodies = pieces()
        else:
            chunked = headers.get("transfer-encoding", "").lower() == "chunked"
            whole = b"".join([piece async for piece in chunks(reader)]) if chunked else await reader.read(-1)
            keeps = keeps and chunked
            await give_back()
            kept.append(("Content-Length", str(len(whole))))

            async def pieces():
                for at in range(0, len(whole), LIMIT):
                    yield whole[at : at + LIMIT]

            bodies = pieces()
        lines = ["HTTP/1.1 " + first.split(" ", 1)[1]] + [f"{name}: {value}" for name, value in kept]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), bodies


class Broken(Exception):
    """The connection must be closed."""


class Line:
    """The bandwidth of one connection."""

    def __init__(self, proxy):
        self.proxy, self.next_free = proxy, 0.0

    async def wait(self, length):
        """Waits until this many bytes may be sent."""
        now, proxy = time.monotonic(), self.proxy
        # A late timer does not reduce the rate.
        until, idle = now, now - CREDIT
        if proxy.connection_rate:
            self.next_free = max(self.next_free, idle) + length / proxy.connection_rate
            until = self.next_free
        if proxy.total_rate:
            proxy.next_free = max(proxy.next_free, idle) + length / proxy.total_rate
            until = max(until, proxy.next_free)
        # Timers have no finer resolution.
        if until - now > 0.002:
            await asyncio.sleep(until - now)


def parse(head):
    """The first line, the headers by lower-case name, and the original headers."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    raw = [tuple(part.strip() for part in line.split(":", 1)) for line in lines]
    return first, {name.lower(): value for name, value in raw}, raw


async def chunks(reader):
    """The pieces of a chunked body."""
    while True:
        length = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if length:
            yield await reader.readexactly(length)
        await reader.readexactly(2)
        if not length:
            return


def kind_of(method, path):
    """list, head, get or other."""
    query = path.partition("?")[2]
    if method == "PROPFIND" or (method == "GET" and re.search(r"(^|&)(list-type=|comp=list|prefix=|delimiter=)", query)):
        return "list"
    return {"HEAD": "head", "GET": "get"}.get(method, "other")
